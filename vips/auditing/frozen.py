"""Fits whose noisy totals were fixed beforehand: a sound model then shows the same whatever the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

import numpy as np

from vips.auditing.records import Table
from vips.auditing.sums import as_numbers
from vips.core.mechanism.sampling import PoissonCoins
from vips.core.phases import completed
from vips.core.plan import PrivacyPlan

__all__ = ["KINDS", "FrozenPlan", "fit", "frozen", "unfitted", "watched"]

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
            return as_numbers(total, blocks, self.of_step(step).lattice(blocks))
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
    plan = replace(plan.with_n_steps(n_steps), report_delta=None)
    return FrozenPlan(**{f.name: getattr(plan, f.name) for f in fields(PrivacyPlan)}, kind=kind)


def unfitted(model, plan: PrivacyPlan):
    """A clone with another plan."""
    from sklearn.base import clone

    return clone(model).set_params(privacy=plan, random_state=0)


def fit(model, table: Table, note: Callable[[str, object], None] = lambda name, value: None) -> list:
    """Fit ``model`` (which is changed: pass a clone with a frozen plan), and ``note`` what its methods return.

    Returns
    -------
    list
        The first posterior, and the one after every step.
    """
    model.privacy.seen.clear()
    posteriors = []

    def seen(average, noise_std, posterior) -> None:
        note(f"posterior after step {len(posteriors)}", (average, noise_std, posterior))
        posteriors.append(posterior)

    with watched(model, seen, lambda size: note(f"step size {len(posteriors)}", size)):
        table.fit(model)
    return posteriors


@contextmanager
def watched(
    model, seen: Callable[..., None], seen_size: Callable[[object], None] = lambda size: None
) -> Iterator[None]:
    """Call ``seen(average, noise_std, posterior)`` at the start of fits and after each step, ``seen_size`` with step sizes."""
    start, phases = model.start, model.phases

    def noted_start(rng):
        average, posterior = start(rng)
        seen(average, dict.fromkeys(average, 0.0), posterior)
        return average, posterior

    def noted_size(step_size):
        def noted(s):
            size = step_size(s)
            seen_size(size)
            return size

        return noted

    def noted_update(update):
        def noted(average, noise_std, previous):
            posterior = update(average, noise_std, previous)
            seen(average, noise_std, posterior)
            return posterior

        return noted

    def noted_phases(n_steps):
        return [
            replace(
                phase,
                update=noted_update(phase.update),
                end=None if phase.end is None else noted_update(phase.end),
                step_size=noted_size(phase.step_size),
            )
            for phase in completed(model, phases(n_steps), n_steps)
        ]

    model.start, model.phases = noted_start, noted_phases
    try:
        yield
    finally:
        del model.start, model.phases
