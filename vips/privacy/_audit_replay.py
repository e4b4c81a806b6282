"""Does anything but the noisy totals depend on the records? Fits whose noisy totals were fixed beforehand.

Whatever such a fit shows must be the same for every data set: the path of the posterior, shapes, number and size of
steps, errors, warnings, printed text, what is left on the fitted object, the report.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
import scipy.sparse as sp

from vips.privacy._audit_records import Table, for_records
from vips.privacy._audit_report import Finding
from vips.privacy.plan import PrivacyPlan
from vips.privacy.sampling import PoissonCoins

__all__ = ["FrozenPlan", "Replay", "fingerprint", "frozen", "replay", "replay_findings"]

KINDS = ("noisy", "sparse", "exact")
DEEPEST = 8
_ADVICE = {
    "errors and warnings": "whether a fit raises, warns or prints may not depend on a record: let `valid_records` drop it, and "
    "check public facts only.",
    "steps": "number, sizes and shapes of the steps must be public: no stopping on a bound, no step size or vocabulary "
    "computed from the records.",
    "posterior": "the posterior must be a function of noisy totals and constructor arguments: a model that needs the number of "
    "records sums a block `count`.",
    "fitted object": "what stays on the object is released with it: keep no count, vocabulary or cache of the records in "
    "attributes, reports or parameters.",
}


@dataclass(frozen=True, kw_only=True)
class FrozenPlan(PrivacyPlan):
    """A plan whose noisy totals are a function of (kind, step), whatever the total.

    Parameters
    ----------
    kind : one of ``KINDS``
        Totals like those of a noisy fit; mostly zeros and a few large counts; or, not frozen at all, the total itself.
    seen : list
        Filled with the step and the shapes of every total that was to be released.
    """

    kind: str = "noisy"
    seen: list = field(default_factory=list, compare=False, repr=False)

    def sampler(self, randomness, step, sizes):
        """Everybody: what is left to chance would make two fits of the same records differ."""
        return lambda partition: PoissonCoins(1.0, 0, step, partition)

    def add_noise(self, total, blocks, randomness, step):
        self.seen.append((step, {name: np.shape(value) for name, value in total.items()}))
        if self.kind == "exact":
            lattice = self.lattice(blocks)
            return {name: np.array(lattice.values(v, blocks[name]) if lattice else v) for name, v in total.items()}
        rng = np.random.default_rng([step, self.kind == "sparse"])
        return {name: self._drawn(block, rng) for name, block in blocks.items()}

    def _drawn(self, block, rng) -> np.ndarray:
        size = self.clip_norm * block.scale
        if self.kind == "noisy":
            total = rng.normal(7.0 * size, 10.0 * size, block.shape)
        else:
            total = 300.0 * size * (rng.random(block.shape) < 0.05)
        return 0.5 * (total + np.swapaxes(total, -1, -2)) if block.symmetric else total


def frozen(plan: PrivacyPlan, n_records: int, n_steps: int, kind: str = "noisy") -> FrozenPlan:
    """The plan with fixed totals, in fewer steps."""
    plan = for_records(plan, n_records)
    settings = {f.name: getattr(plan, f.name) for f in fields(PrivacyPlan)} | {"n_steps": n_steps, "report_delta": None}
    return FrozenPlan(**settings, kind=kind)


@dataclass(frozen=True)
class Replay:
    """What one fit showed, as text and bytes that can be compared."""

    said: tuple
    steps: tuple
    path: tuple
    left: dict[str, object]

    @property
    def error(self) -> str | None:
        return self.said[0]

    def differences(self, other: Replay) -> dict[str, str]:
        """Aspect -> what differs."""
        found = {}
        if self.said != other.said:
            found["errors and warnings"] = f"{_short(other.said)} instead of {_short(self.said)}"
        elif self.steps != other.steps:
            found["steps"] = f"{_short(other.steps)} instead of {_short(self.steps)}"
        elif self.path != other.path:
            found["posterior"] = "another path"
        names = sorted(name for name in {**self.left, **other.left} if self.left.get(name) != other.left.get(name))
        if names and "errors and warnings" not in found:
            found["fitted object"] = ", ".join(names)
        return found


def replay(model, plan: FrozenPlan, table: Table) -> tuple[Replay, object, list]:
    """Fit ``model`` (which is changed: pass a clone).

    Returns
    -------
    shown : Replay
    model : object
        As the fit left it.
    posteriors : list
        The first one, and the one after every step.
    """
    model.set_params(privacy=plan)
    plan.seen.clear()
    averages, posteriors, path, sizes = [], [], [], []
    to_posterior, step_size = model.to_posterior, model.step_size

    def recording_posterior(average, noise_std, previous):
        averages.append((fingerprint(average), fingerprint(noise_std)))
        posteriors.append(to_posterior(average, noise_std, previous))
        path.append(fingerprint(posteriors[-1]))  # now: later it may hold what an E-step cached
        return posteriors[-1]

    def recording_step_size(t):
        sizes.append((t, fingerprint(step_size(t))))
        return step_size(t)

    model.to_posterior, model.step_size = recording_posterior, recording_step_size
    printed, error = io.StringIO(), None
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            model.fit(*table.fit_arguments)
        except Exception as raised:  # shown like everything else
            error = f"{type(raised).__name__}: {raised}"
    del model.to_posterior, model.step_size
    said = (error, tuple(str(warning.message) for warning in caught), printed.getvalue())
    steps = (len(plan.seen), tuple(fingerprint(entry) for entry in plan.seen), tuple(sizes))
    left = {name: fingerprint(value) for name, value in vars(model).items() if name not in ("privacy", "privacy_")}
    if "privacy_" in vars(model):
        left["privacy_"] = fingerprint(model.privacy_.to_dict())
    return Replay(said, steps, (tuple(averages), tuple(path)), left), model, posteriors


def replay_findings(reference: Replay, n_steps: int, others: Mapping[str, Replay]) -> list[Finding]:
    """What differs between a fit of ``n_steps`` and fits to neighbours, by aspect."""
    found: dict[str, str] = {}
    if reference.steps[0] != n_steps:
        found["steps"] = f"{reference.steps[0]} steps instead of the plan's {n_steps}"
    for name, other in others.items():
        for aspect, difference in reference.differences(other).items():
            found.setdefault(aspect, f"{name}: {difference}")
    checked = f"{len(others)} fits to neighbours with the noisy totals fixed"
    return [
        Finding(f"replay: {aspect}", checked, found.get(aspect, "identical"), "identical", aspect not in found, advice)
        for aspect, advice in _ADVICE.items()
    ]


def fingerprint(value: object, depth: int = 0) -> object:
    """Something that is equal for equal values: containers and objects by what they hold, arrays by their bytes."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return (value.dtype.str, value.shape, hashlib.blake2b(value.tobytes()).hexdigest())
    if sp.issparse(value):
        return (type(value).__name__, value.shape, fingerprint(value.toarray()))
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if value is None or isinstance(value, str | bytes | int | complex | np.generic | type):
        return repr(value)
    if depth > DEEPEST:
        return type(value).__name__
    if isinstance(value, Mapping):
        return tuple((repr(key), fingerprint(value[key], depth + 1)) for key in value)
    if isinstance(value, list | tuple | np.ndarray):
        return (type(value).__name__, *(fingerprint(each, depth + 1) for each in value))
    if isinstance(value, set | frozenset):
        return (type(value).__name__, *sorted(repr(fingerprint(each, depth + 1)) for each in value))
    held = {name: each for name, each in getattr(value, "__dict__", {}).items() if not callable(each)}
    return (type(value).__name__, fingerprint(held, depth + 1))


def _short(value: object, length: int = 160) -> str:
    text = repr(value)
    return text if len(text) <= length else text[: length - 1] + "…"
