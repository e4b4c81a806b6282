"""Does anything but the noisy totals depend on the records? Replays are fits whose noisy totals were fixed beforehand.

Everything that such a fit shows must be the same for every data set: posteriors, steps, errors and warnings, output, files,
everything that can be reached from the fitted object, and what stays in classes and modules.
"""

from __future__ import annotations

import contextvars
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import numpy as np

from vips.auditing.files import watching
from vips.auditing.output import listening
from vips.auditing.reach import reachable
from vips.auditing.records import Table
from vips.auditing.surroundings import Surroundings
from vips.privacy.mechanism.sampling import PoissonCoins
from vips.privacy.plan import PrivacyPlan

__all__ = ["KINDS", "FrozenPlan", "Replay", "frozen", "replay"]

KINDS = ("noisy", "sparse", "exact")


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

    def sampler(self, randomness, step):
        """All records: random samples would make two fits to the same records differ."""
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


def frozen(plan: PrivacyPlan, n_steps: int, kind: str = "noisy") -> FrozenPlan:
    """The plan with fixed totals, in fewer steps."""
    settings = {f.name: getattr(plan, f.name) for f in fields(PrivacyPlan)} | {"n_steps": n_steps, "report_delta": None}
    return FrozenPlan(**settings, kind=kind)


@dataclass(frozen=True)
class Replay:
    """What one fit showed, as texts that can be compared.

    Attributes
    ----------
    shown : dict of str to dict of str to str
        Aspect (as in the names of the findings) -> name -> description.
    unseen : tuple of str
        Events whose content was not seen.
    """

    shown: dict[str, dict[str, str]]
    unseen: tuple[str, ...]

    @property
    def error(self) -> str | None:
        return self.shown["errors and warnings"].get("error")


def replay(model, plan: FrozenPlan, table: Table, surroundings: Surroundings | None) -> tuple[Replay, object, list]:
    """Fit ``model`` (which is changed: pass a clone); look at the surroundings, if any.

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
    posteriors, path, sizes = [], {}, {}
    to_posterior, step_size = model.to_posterior, model.step_size

    def recording_posterior(average, noise_std, previous):
        posterior = to_posterior(average, noise_std, previous)
        # described now, because an E-step may cache something in it later
        roots = {"average": average, "noise_std": noise_std, "posterior": posterior}
        path.update({f"{name} after step {len(posteriors)}": text for name, text in reachable(roots).items()})
        posteriors.append(posterior)
        return posterior

    def recording_step_size(t):
        size = step_size(t)
        sizes[f"step size {t}"] = str(reachable({"": size}))
        return size

    model.to_posterior, model.step_size = recording_posterior, recording_step_size
    context, messages, left_behind = contextvars.copy_context(), {}, {}
    if surroundings:
        surroundings.begin()
    with listening() as output, watching() as written, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            context.run(table.fit, model)
        except Exception as raised:
            messages["error"] = "".join(_chain(raised))
        if surroundings:
            left_behind = surroundings.contents(context)
    del model.to_posterior, model.step_size
    messages |= {f"warning {i}": f"{each.category.__name__}: {each.message}" for i, each in enumerate(caught)}
    steps = {"number": str(len(plan.seen))} | {f"shapes {i}": str(each) for i, each in enumerate(plan.seen)} | sizes
    shown = {
        "errors and warnings": messages,
        "output": output,
        "files and processes": written.contents | {"events": "\n".join(written.events)},
        "steps": steps,
        "posterior": path,
        "fitted object": reachable(vars(model) | {"(pickled)": _pickled(model)}),
        "classes and modules": left_behind,
    }
    return Replay(shown, tuple(written.unseen)), model, posteriors


def _chain(error: BaseException) -> Iterator[str]:
    """Text of an error, its notes, and the errors that led to it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield from traceback.format_exception_only(error)
        error = error.__cause__ or error.__context__


def _pickled(model: object) -> object:
    """What pickle would store of the model; its class may choose that."""
    try:
        return model.__reduce_ex__(2)
    except Exception as error:
        return type(error).__name__
