"""Which steps of a fit are kept to be matched, their totals, group by group, and how they see simulated records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vips.models.components.matching.match import Totals
from vips.models.components.matching.simulator import Simulator, portions
from vips.phases import FitPhase, phases_of, step_of, unchanged
from vips.privacy import PrivacyPlan
from vips.privacy.units import is_group
from vips.statistics import Block, ReleasedStep

__all__ = ["StepSimulator", "entries", "kept_steps", "totals_of"]

_MOST = 40  # kept steps of a group
_MOST_TOTALS = 1_000  # of all groups


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
        phase, seen = step_of(self._phases, steps[0].number)[0], None
        for rows, numbers, weight in portions(len(records), len(steps), self.most_seen):
            portion = records[rows]
            for number in numbers:
                statistics = phase.statistics_of(self.model, portion, steps[number].posterior)
                weights = weight * self.model.privacy_.plan.clip_weights(statistics.norms(phase.blocks))
                flat = entries(statistics.weighted(weights), phase.blocks)
                if seen is None:
                    seen = np.zeros((len(records), flat.shape[1]))
                seen[rows] += flat
        return seen

    @cached_property
    def _phases(self) -> Sequence[FitPhase]:
        return phases_of(self.model, self.model.privacy_.plan.n_steps)


def kept_steps(phases: Sequence[FitPhase]) -> list[int]:
    """Steps of all groups, evenly spaced where a group has many."""
    return [step for group in _groups(phases) for step in group]


def totals_of(model) -> Totals:
    """Averages of the kept steps of a fitted model over each group, and the variances of the noise in them.

    Raises
    ------
    NotImplementedError
        If there are none, or a record is a person's rows, of which simulation does not know how they belong together.
    """
    if not getattr(model, "noisy_totals_", None) or not model.noisy_totals_.steps:
        raise NotImplementedError(
            f"This {type(model).__name__} has not kept its steps: private fits of up to {_MOST_TOTALS:,} totals do, but no "
            "streams."
        )
    if is_group(model.privacy_.unit):
        raise NotImplementedError(
            "A record was all rows of a person, and how these are alike is not known: there are no intervals."
        )
    plan, steps = model.privacy_.plan, {step.number: step for step in model.noisy_totals_.steps}
    phases, rate = phases_of(model, plan.n_steps), plan.sampling_rate
    values, noise_var, factors, groups = [], [], [], []
    for numbers in _groups(phases):
        group = [steps[number] for number in numbers]
        phase = step_of(phases, numbers[0])[0]
        blocks = phase.blocks
        averages = {name: np.mean([step.totals[name] for step in group], axis=0) for name in blocks}
        values.append(entries(averages, blocks))
        noise_var.append(_noise_var(plan, numbers[0], blocks) / len(group))
        factors.append(np.full(len(values[-1]), (1.0 - rate) / (rate * len(group))))
        groups.append(group[:1] if phase.update is unchanged else group)
    owners = np.repeat(np.arange(len(groups)), [len(of) for of in values])
    sampled = np.where(owners[:, None] == owners, np.concatenate(factors), 0.0)
    return Totals(np.concatenate(values), np.concatenate(noise_var), sampled, groups)


def entries(arrays: dict[str, np.ndarray], blocks: dict[str, Block]) -> np.ndarray:
    """All blocks in one axis after those before a block's own; of a symmetric one, the entries up to the diagonal."""
    flat = []
    for name, block in blocks.items():
        array = np.asarray(arrays[name])
        before = array.shape[: array.ndim - len(block.shape)]
        if block.symmetric:
            i, j = np.tril_indices(block.shape[-1])
            array = array[..., i, j]
        flat.append(array.reshape(*before, -1))
    return np.concatenate(flat, axis=-1)


def _n_entries(blocks: dict[str, Block]) -> int:
    """Number of the :func:`entries` of blocks."""
    halves = ((block.shape[-1] + 1) / (2 * block.shape[-1]) if block.symmetric else 1 for block in blocks.values())
    return round(sum(math.prod(block.shape) * half for block, half in zip(blocks.values(), halves, strict=True)))


def _noise_var(plan: PrivacyPlan, step: int, blocks: dict[str, Block]) -> np.ndarray:
    """Of the entries of one step's totals of all records."""
    std = plan.of_step(step).noise_std() / plan.sampling_rate
    return entries({name: block.noise_var(std * block.scale) for name, block in blocks.items()}, blocks)


def _groups(phases: Sequence[FitPhase]) -> list[list[int]]:
    """Steps of one kind; of the last kind in two halves, after the first step if there is no other kind: posteriors of early
    steps are far from the last, and tell other things. As many of them, from the last one, as can be matched; none if there
    are not two."""
    groups, first, kind = [], 1, None
    for phase in phases:
        steps = range(first, first + phase.n_steps)
        if (phase.statistics, phase.blocks) == kind:
            steps = range(groups.pop().start, steps.stop)
        groups.append(steps)
        first, kind = steps.stop, (phase.statistics, phase.blocks)
    *groups, last = groups
    if not groups and len(last) > 2:
        groups, last = [last[:1]], last[1:]
    half = len(last) // 2
    groups += [last[:half], last[half:]]
    groups = [[group[i] for i in _spaced(len(group))] for group in groups if group]
    n_totals = [_n_entries(step_of(phases, group[0])[0].blocks) for group in groups]
    first = next((i for i in range(len(groups)) if sum(n_totals[i:]) <= _MOST_TOTALS), len(groups))
    return groups[first:] if first == 0 or len(groups) - first >= 2 else []


def _spaced(n: int) -> list[int]:
    return list(range(n)) if n <= _MOST else [round(i * (n - 1) / (_MOST - 1)) for i in range(_MOST)]
