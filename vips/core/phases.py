"""Phases of a fit: consecutive steps of one kind, as a model states them.

A fit may begin with other sums than those of its E-steps: with counts of neighbours, from which states are computed, or with
the sums of a single component, which is then split. Each kind of step is a phase. What a phase does not sum is not clipped,
not noised and not released in it. The plan takes numbers and weights of its steps (``vips/core/plan_phases.py``), and the
accounting follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from vips._support.validation import check_integer
from vips.core.plan import PrivacyPlan
from vips.core.plan_phases import Phase
from vips.core.stream_plan import StreamPlan
from vips.core.sums import Block, RecordStatistics

if TYPE_CHECKING:
    from vips.core.contract import Contract

__all__ = [
    "FitPhase", "completed", "phases_of", "plain_average", "released_in", "step_of", "step_weight", "steps_of_shares",
    "unchanged", "weights_of",
]  # fmt: skip

_MOST_WEIGHT = 1e6  # over that of other steps, which a plan takes


@dataclass(frozen=True)
class FitPhase:
    """Consecutive steps of one kind.

    Parameters
    ----------
    name : str
        Steps of one name call the same kernels.
    n_steps : int
        ≥ 0. Public.
    weight : float
        Each step has noise of standard deviation σ C / √weight, in proportion to the weights of the others: ε does not change.
    blocks : collection of str, optional
        Names of the model's blocks that these steps sum and release. None: all of them.
    statistics : str
        Name of the model's method that gives the statistics of records at a posterior, over these blocks.
    update : method of the model, optional
        Gives the posterior after a step, from the averages of all blocks, the noise in them, and the posterior before. Blocks
        that were not released yet are as at the start. None: ``to_posterior``.
    end : method of the model, optional
        Takes the place of ``update`` after the last step. None: ``update``.
    step_size : callable, optional
        ρ of the steps s = 1, 2, … of this phase. None: ``step_size`` of the model, which counts all steps of the fit.
    released : str
        What these steps release, in words for the report.
    """

    name: str
    n_steps: int
    weight: float = 1.0
    blocks: Any = None  # after `completed` the blocks themselves, by name
    statistics: str = "expected_statistics"
    update: Callable | None = None
    end: Callable | None = None
    step_size: Any = None
    released: str = "noisy totals"

    def __post_init__(self) -> None:
        check_integer("n_steps", self.n_steps, low=0)

    def statistics_of(self, model: Contract, records: Any, posterior: Any) -> RecordStatistics:
        """Statistics of these records."""
        return getattr(model, self.statistics)(records, posterior)

    def update_after(self, step: int) -> Callable[..., Any]:
        """What computes the posterior after this step of the phase."""
        update = self.end if step == self.n_steps and self.end is not None else self.update
        assert update is not None, "the phase is not completed"
        return update


def phases_of(model: Contract, n_steps: int, blocks: Mapping[str, Block] | None = None) -> tuple[FitPhase, ...]:
    """The phases of a fit of so many steps: see :func:`completed`."""
    return completed(model, model.phases(n_steps), n_steps, blocks)


def completed(
    model: Contract, stated: Sequence[FitPhase], n_steps: int, blocks: Mapping[str, Block] | None = None
) -> tuple[FitPhase, ...]:
    """These phases of a fit, those without steps left out, with the model's methods where none are stated.

    Parameters
    ----------
    blocks : dict of str to Block, optional
        The model's: noise is drawn for these. None asks the model.

    Returns
    -------
    tuple of FitPhase
        ``blocks`` of each maps the names to the model's blocks.

    Raises
    ------
    TypeError, ValueError
        If they are not phases of ``n_steps`` steps in all, or name blocks that the model does not have.

    Guarantees
    ----------
    A record is clipped by the very blocks for which noise is drawn: a phase names blocks, and states none.
    """
    stated, phases, first = tuple(stated), [], 0
    if not all(isinstance(phase, FitPhase) for phase in stated):
        raise TypeError(f"`phases` of {type(model).__name__} must give a list of vips.FitPhase, got {stated!r}.")
    if sum(phase.n_steps for phase in stated) != n_steps:
        total = sum(phase.n_steps for phase in stated)
        raise ValueError(f"`phases` of {type(model).__name__} have {total} steps, and the plan has {n_steps}.")
    for phase in stated:
        if phase.n_steps:
            phases.append(_whole(model, phase, first, blocks))
        first += phase.n_steps
    return tuple(phases)


def step_weight(model: Contract, t: int) -> float | dict[str, float]:
    """Weight of step t in the average after it: ``step_size``, and in a stream the last batch's share of all."""
    return 1.0 / model.privacy.weight(t) if isinstance(model.privacy, StreamPlan) else model.step_size(t)


def _whole(model: Contract, phase: FitPhase, first: int, blocks: Mapping[str, Block] | None) -> FitPhase:
    return replace(
        phase,
        blocks=_named(model, phase, blocks),
        update=model.to_posterior if phase.update is None else phase.update,
        step_size=(lambda s: step_weight(model, first + s)) if phase.step_size is None else phase.step_size,
    )


def _named(model: Contract, phase: FitPhase, blocks: Mapping[str, Block] | None) -> dict[str, Block]:
    """The model's blocks that the phase names. A phase that is completed already holds them, and no others; where the blocks
    of a fit are not given, it may hold one that fits of another length have."""
    is_of_fit, blocks = blocks is not None, model.blocks() if blocks is None else blocks
    names = blocks if phase.blocks is None else phase.blocks
    others = names if isinstance(names, Mapping) and not is_of_fit else {}
    named: dict[str, Any] = (
        {} if isinstance(names, str) else {name: blocks.get(name, others.get(name)) for name in names}
    )
    if not named or None in named.values() or (isinstance(names, Mapping) and names != named):
        raise ValueError(
            f"The phase {phase.name!r} of {type(model).__name__} has blocks={names!r}: write a list of names of the model's "
            f"blocks, {list(blocks)}. Shape, symmetry and scale stand in blocks() alone: records are clipped by them, and "
            "noise is drawn for them."
        )
    return named


def unchanged(average: Mapping, noise_std: Mapping, previous: Any) -> Any:
    """An update of phases whose statistics do not depend on the posterior: it stays until the phase ends."""
    return previous


def plain_average(s: int) -> float:
    """ρ of the plain average of a phase's steps."""
    return 1.0 / s


def steps_of_shares(plan: PrivacyPlan, n_steps: int, *shares: float) -> list[dict[str, Any]]:
    """``n_steps`` and ``weight`` of a fit's first phases, which take these shares of the budget; later ones have weight 1.

    On full batches a phase is one step, whose weight is as large as its share; on samples, whose steps have equal weights,
    it is as many steps as its share of all ``n_steps``.
    """
    left, is_full = n_steps, plan.sampling_rate == 1.0
    phases: list[dict[str, Any]] = []
    for share in shares:
        n = 1 if is_full else max(round(share * n_steps), 1)
        phases.append({"n_steps": min(n, left), "weight": 1.0})
        left -= phases[-1]["n_steps"]
    if is_full and left:
        for phase, share in zip(phases, shares, strict=True):
            phase["weight"] = min(left * share / (1.0 - sum(shares)), _MOST_WEIGHT)
    return phases


def weights_of(phases: Sequence[FitPhase]) -> tuple[Phase, ...]:
    """What a plan takes of these phases."""
    return tuple(Phase(phase.n_steps, phase.weight) for phase in phases)


def step_of(phases: Sequence[FitPhase], t: int) -> tuple[FitPhase, int]:
    """The phase of step t = 1, 2, … of a fit, and its number in that phase."""
    for phase in phases:
        if t <= phase.n_steps:
            return phase, t
        t -= phase.n_steps
    raise ValueError(f"The fit has no step {t} after its phases.")


def released_in(phases: Sequence[FitPhase]) -> tuple[str, ...]:
    """What phases release, in the order of the steps, for a report."""
    lines, first = [], 1
    for words, same in groupby(phases, key=lambda phase: phase.released):
        last = first + sum(phase.n_steps for phase in same) - 1
        lines.append(f"{words} (steps {first} to {last})" if last > first else f"{words} (step {first})")
        first = last + 1
    return tuple(lines)
