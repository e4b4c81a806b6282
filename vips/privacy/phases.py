"""Phases of a fit: consecutive steps that share its noise by weights, at no ε."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from vips._validation import check_integer, check_number
from vips.privacy.rounding import rounded_down

__all__ = ["Phase", "scaled", "weight_after", "weight_of_step"]

_NEARLY = Fraction(10**12 - 1, 10**12)


@dataclass(frozen=True)
class Phase:
    """``n_steps`` consecutive steps, each released with noise of standard deviation σ C / √``weight``."""

    n_steps: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_integer("n_steps", self.n_steps)
        check_number("weight", self.weight, 1e-6, 1e6, "between 1e-6 and 1e6")
        object.__setattr__(self, "n_steps", int(self.n_steps))
        object.__setattr__(self, "weight", float(self.weight))


def scaled(phases: Iterable[Phase], n_steps: int, sampling_rate: float) -> tuple[Phase, ...]:
    """The phases with weights in the same proportions, whose sum over all steps is ``n_steps``, and never more.

    T steps of full batches then cost what T steps of weight 1 cost: Σ n_p w_p / σ² = T / σ².

    Raises
    ------
    TypeError, ValueError
        If these are not phases of ``n_steps`` steps, or steps on samples have different weights: the loss of a sampled step is
        not in proportion to 1 / σ².
    """
    phases = tuple(phases)
    if not all(isinstance(phase, Phase) for phase in phases):
        raise TypeError(f"`phases` must be phases, such as (Phase(5, weight=2.0), Phase(15)), got {phases!r}.")
    if phases and sum(phase.n_steps for phase in phases) != n_steps:
        raise ValueError(f"`phases` have {sum(phase.n_steps for phase in phases)} steps, and `n_steps` is {n_steps}.")
    if sampling_rate < 1.0 and len({phase.weight for phase in phases}) > 1:
        raise ValueError("Steps on samples have equal weights: give all `phases` one weight, or take full batches.")
    total = weight_after(phases, 0)
    if not phases or n_steps * _NEARLY <= total <= n_steps:
        return phases
    return tuple(Phase(phase.n_steps, rounded_down(Fraction(phase.weight) * n_steps / total)) for phase in phases)


def weight_of_step(phases: Iterable[Phase], step: int) -> float:
    """The weight of a step, counted from 1; 1 without phases."""
    return next((phase.weight for phase, first in _with_first_steps(phases) if step < first + phase.n_steps), 1.0)


def weight_after(phases: Iterable[Phase], step: int) -> Fraction:
    """Sum of the weights of all steps after ``step``, exactly."""
    remaining = (
        (min(phase.n_steps, max(0, first + phase.n_steps - 1 - step)), phase.weight)
        for phase, first in _with_first_steps(phases)
    )
    return sum((n_steps * Fraction(weight) for n_steps, weight in remaining), Fraction(0))


def _with_first_steps(phases: Iterable[Phase]) -> Iterator[tuple[Phase, int]]:
    first = 1
    for phase in phases:
        yield phase, first
        first += phase.n_steps
