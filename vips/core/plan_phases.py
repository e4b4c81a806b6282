"""Phases of a fit: consecutive steps that share its noise by weights, at no ε."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from vips._support.validation import check_integer, check_number
from vips.core.rounding import rounded_down

__all__ = ["Phase", "scaled", "weight_after", "weight_of_step"]

_NEARLY = Fraction(10**12 - 1, 10**12)
_MOST, _LARGEST_RATIO = 1_000, 1.000001e6  # a ratio of 1e6 may be rounded when it is scaled


@dataclass(frozen=True)
class Phase:
    """``n_steps`` ≥ 0 consecutive steps, each released with noise of standard deviation σ C / √``weight``."""

    n_steps: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_integer("n_steps", self.n_steps, low=0)
        check_number("weight", self.weight, 1e-7, 1e7, "between 1e-7 and 1e7")
        object.__setattr__(self, "n_steps", int(self.n_steps))
        object.__setattr__(self, "weight", float(self.weight))


def scaled(phases: Iterable[Phase], n_steps: int, sampling_rate: float) -> tuple[Phase, ...]:
    """The phases with weights in the same proportions, whose sum over all steps is ``n_steps``, and never more.

    T steps of full batches then cost what T steps of weight 1 cost: Σ n_p w_p / σ² = T / σ². Empty if all weights are equal.

    Raises
    ------
    TypeError, ValueError
        If these are not at most 1,000 phases of ``n_steps`` steps, or steps on samples have different weights: the loss of a
        sampled step is not in proportion to 1 / σ².
    """
    phases = _merged((phases,) if isinstance(phases, Phase) else phases)
    n_stated = sum(phase.n_steps for phase in phases)
    if phases and n_stated != n_steps:
        raise ValueError(f"`phases` have {n_stated} steps, and `n_steps` is {n_steps}.")
    if len(phases) < 2:
        return ()
    if len(phases) > _MOST:
        raise ValueError(f"There may be {_MOST:,} phases, not {len(phases):,}: give consecutive steps one weight.")
    if sampling_rate < 1.0:
        raise ValueError("Steps on samples have equal weights: give all `phases` one weight, or take full batches.")
    weights = [phase.weight for phase in phases]
    if max(weights) > _LARGEST_RATIO * min(weights):
        raise ValueError(
            f"Weights of `phases` may differ by a factor of 1e6, got {min(weights):g} and {max(weights):g}."
        )
    total = weight_after(phases, 0)
    if n_steps * _NEARLY <= total <= n_steps:
        return phases
    return tuple(Phase(phase.n_steps, rounded_down(Fraction(phase.weight) * n_steps / total)) for phase in phases)


def _merged(phases: Iterable[Phase]) -> tuple[Phase, ...]:
    """Without empty phases; neighbours of one weight are one phase."""
    merged: list[Phase] = []
    for phase in phases:
        if not isinstance(phase, Phase):
            raise TypeError(f"`phases` must be phases, such as (Phase(5, weight=2.0), Phase(15)), got {phase!r}.")
        if merged and merged[-1].weight == phase.weight:
            merged[-1] = Phase(merged[-1].n_steps + phase.n_steps, phase.weight)
        elif phase.n_steps:
            merged.append(phase)
    return tuple(merged)


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
