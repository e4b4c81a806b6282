"""Which steps of a fit are kept to be matched, their totals, group by group, and how they see simulated records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from vips.core.phases import FitPhase, phases_of, step_of, unchanged
from vips.core.stream_plan import StreamPlan
from vips.core.sums import Block, ReleasedStep
from vips.core.units import is_group
from vips.models._variance_ratios import SQUARES, matched_blocks, variance_ratios
from vips.models.components.matching.match import Totals
from vips.models.components.matching.persons import most_factor, ways_of
from vips.models.components.matching.simulator import SeenInPersons, Simulator, portions

__all__ = ["StepGroup", "StepSimulator", "entries", "groups_of", "kept_steps", "of_groups", "totals_of"]

_MOST, _LEAST = 40, 5  # kept steps of a group, if their totals are few, and if they are many
_MOST_NUMBERS = 500_000  # totals of the kept steps of a group
_MOST_TOTALS = 1_000  # of all groups, in one match


@dataclass(frozen=True)
class StepSimulator(Simulator):
    """Records that are seen as the steps of a private fit saw its records.

    Parameters
    ----------
    model : fitted model
        Its statistics have a method ``weighted(weights)``, which gives w_n s_n of each record by block.
    """

    model: Any
    most_seen = 5  # posteriors at which a record is seen

    def seen(self, records, steps: Sequence[ReleasedStep]) -> np.ndarray:
        return self.seen_in_persons(records, steps).seen

    def seen_in_persons(self, records, steps: Sequence[ReleasedStep]) -> SeenInPersons:
        report, phase = self.model.privacy_, step_of(self._phases, steps[0].number)[0]
        seen, of_ways, factor = None, 0.0, np.zeros(len(records))
        for rows, numbers, weight in portions(len(records), len(steps), self.most_seen):
            portion, of_rows = records[rows], 0.0
            for number in numbers:
                statistics = phase.statistics_of(self.model, portion, steps[number].posterior)
                ways = ways_of(report, statistics.norms(phase.blocks))
                weights = ways.mean(axis=0)
                flat = self.taken(entries(statistics.weighted(weight * weights), matched_blocks(phase.blocks)))
                of_rows += flat
                of_ways += np.divide(ways, weights, np.zeros_like(ways), where=weights > 0.0) @ flat
                factor[rows] += most_factor(report, ways) / len(numbers)
            if seen is None:
                seen = np.empty((len(records), of_rows.shape[1]))
            seen[rows] = of_rows
        return SeenInPersons(seen, of_ways, factor)

    def shares(self, records, step: ReleasedStep) -> np.ndarray:
        return step_of(self._phases, step.number)[0].statistics_of(self.model, records, step.posterior).shares

    def taken(self, flat: np.ndarray) -> np.ndarray:
        """The matched entries of the last axis: by default all of them."""
        return flat

    @cached_property
    def _phases(self) -> Sequence[FitPhase]:
        return phases_of(self.model, self.model.privacy_.plan.n_steps)


@dataclass(frozen=True)
class StepGroup:
    """Steps that see records alike.

    Parameters
    ----------
    steps : list of ReleasedStep
    totals : dict of str to ndarray
        Averages over the steps, by block.
    noise_var : dict of str to ndarray
        Of the noise in them.
    sampled : float
        Factor of N E s s' by which Poisson samples of the steps add to their variance.
    """

    steps: Sequence[ReleasedStep]
    totals: Mapping[str, np.ndarray]
    noise_var: Mapping[str, np.ndarray]
    sampled: float


def kept_steps(model, n_steps: int, most_totals: int = _MOST_TOTALS, least_groups: int = 2) -> list[int]:
    """Steps that a private fit keeps for its match: :func:`of_groups`; none in streams."""
    if not model.is_private or isinstance(model.privacy, StreamPlan):
        return []
    return of_groups(phases_of(model, n_steps), most_totals, least_groups)


def of_groups(phases: Sequence[FitPhase], most_totals: int = _MOST_TOTALS, least_groups: int = 2) -> list[int]:
    """Steps of the groups, from the last one, that have at most so many totals in all, evenly spaced where they are many or
    large; none if these groups are too few."""
    groups = _groups(phases)
    n_totals = [_n_entries(step_of(phases, group[0])[0].blocks) for group in groups]
    first = next((i for i in range(len(groups)) if sum(n_totals[i:]) <= most_totals), len(groups))
    kept = groups[first:] if len(groups) - first >= min(least_groups, len(groups)) else []
    return [step for group in kept for step in group]


def groups_of(model, knows_persons: bool = False) -> list[StepGroup]:
    """The kept steps of a fitted model, group by group, for a match that may know what persons add (``persons.py``).

    Raises
    ------
    NotImplementedError
        If there are none, or a record is all rows of a person, of which the match knows nothing.
    """
    if not hasattr(model, "noisy_totals_"):
        raise NotImplementedError(
            f"This {type(model).__name__} is no private fit: without privacy no noisy totals are kept, which a match needs."
        )
    if not model.noisy_totals_.steps:
        raise NotImplementedError(
            f"This {type(model).__name__} has not kept its steps: private fits without too many totals do, but no streams."
        )
    if is_group(model.privacy_.unit) and not knows_persons:
        raise NotImplementedError(
            "A record was all rows of a person, and how these are alike is not known: there are no intervals."
        )
    plan, steps = model.privacy_.plan, {step.number: step for step in model.noisy_totals_.steps}
    phases, rate, groups = phases_of(model, plan.n_steps), plan.sampling_rate, []
    for numbers in _groups(phases):
        if numbers[0] not in steps:  # a group that is not kept
            continue
        group, n, phase = [steps[number] for number in numbers], len(numbers), step_of(phases, numbers[0])[0]
        blocks = phase.blocks
        std = plan.of_step(numbers[0]).noise_std() / rate
        totals = {name: np.mean([step.totals[name] for step in group], axis=0) for name in blocks}
        noise_var = {name: block.noise_var(std * block.scale) / n for name, block in blocks.items()}
        seen = group[:1] if phase.update is unchanged else group
        groups.append(StepGroup(seen, totals, noise_var, (1.0 - rate) / (rate * n)))
    return groups


def totals_of(model, taken: Callable[[np.ndarray], np.ndarray] = np.asarray) -> Totals:
    """All totals of all groups, or those of each that are taken, in one array; see :func:`groups_of`."""
    groups, phases = groups_of(model, knows_persons=True), phases_of(model, model.privacy_.plan.n_steps)
    of_groups = [matched_blocks(step_of(phases, group.steps[0].number)[0].blocks) for group in groups]
    values, noise_var = (
        [taken(entries(getattr(group, name), blocks)) for group, blocks in zip(groups, of_groups, strict=True)]
        for name in ("totals", "noise_var")
    )
    sampled = block_diag(*(np.full((len(of),) * 2, group.sampled) for of, group in zip(values, groups, strict=True)))
    steps = [group.steps for group in groups]
    ratios = None if is_group(model.privacy_.unit) else _ratios(groups[-1])  # squares are of rows, not of persons
    return Totals(np.concatenate(values), np.concatenate(noise_var), sampled, steps, ratios)


def _ratios(last: StepGroup) -> np.ndarray | None:
    """Σ w² / Σ w of the records in each component; None where squares are not summed."""
    if SQUARES not in last.totals:
        return None
    count_std, noise_std = (np.sqrt(last.noise_var[name]).max() for name in ("count", SQUARES))
    counts = np.maximum(last.totals["count"], count_std)
    return np.minimum(variance_ratios(last.totals[SQUARES], noise_std, counts), 1.0)


def entries(arrays: dict[str, np.ndarray], blocks: dict[str, Block]) -> np.ndarray:
    """All blocks in one axis after those before a block's own; of a symmetric one, the entries up to the diagonal."""
    flat = []
    for name, block in blocks.items():
        array = np.asarray(arrays[name])
        before = array.shape[: array.ndim - len(block.shape)]
        array = array.reshape(*before, -1)
        flat.append(array.take(_up_to_diagonal(block.shape), axis=-1) if block.symmetric else array)
    return np.concatenate(flat, axis=-1)


@cache
def _up_to_diagonal(shape: tuple[int, ...]) -> np.ndarray:
    """Places of these entries of symmetric matrices, in the flat array."""
    *before, n, _ = shape
    return np.flatnonzero(np.broadcast_to(np.tri(n, dtype=bool), (*before, n, n)))


def _n_entries(blocks: dict[str, Block]) -> int:
    """Number of the :func:`entries` of blocks."""
    halves = ((block.shape[-1] + 1) / (2 * block.shape[-1]) if block.symmetric else 1 for block in blocks.values())
    return round(sum(math.prod(block.shape) * half for block, half in zip(blocks.values(), halves, strict=True)))


def _groups(phases: Sequence[FitPhase]) -> list[Sequence[int]]:
    """Steps of one kind; of the last kind in two halves, after the first step if there is no other kind: posteriors of early
    steps are far from the last, and tell other things."""
    groups, first, kind = [], 1, None
    for phase in phases:
        steps = range(first, first + phase.n_steps)
        before, kind = kind, (phase.statistics, phase.blocks, phase.update is unchanged)
        if kind == before:
            steps = range(groups.pop().start, steps.stop)
        groups.append(steps)
        first = steps.stop
    *groups, last = groups
    if not groups and len(last) > 2:
        groups, last = [last[:1]], last[1:]
    half = len(last) // 2
    groups += [last[:half], last[half:]]
    return [_spaced(group, _n_entries(step_of(phases, group[0])[0].blocks)) for group in groups if group]


def _spaced(group: Sequence[int], n_totals: int) -> list[int]:
    most, n = int(np.clip(_MOST_NUMBERS // max(n_totals, 1), _LEAST, _MOST)), len(group)
    return list(group) if n <= most else [group[round(i * (n - 1) / (most - 1))] for i in range(most)]
