"""What a worker does: one partition's share of a step's sum, which every executor computes by the same functions.

The sum of a step is the sum of its partitions' sums, each of which flips its own coins and clips its own records. A partition's
sum is that of its chunks, which threads may compute side by side, added in order: their number changes no bit::

    partition 0 ─▶ coins ─▶ clip ─▶ sum ─┐
    partition 1 ─▶ coins ─▶ clip ─▶ sum ─┼─▶ tree of fixed shape ─▶ total ─▶ + noise, once, where the fit runs
    partition 2 ─▶ coins ─▶ clip ─▶ sum ─┘

A share is a pure function of (task, partition, coins): if a worker is lost, another one computes the same share. Workers see
records, keys of coins and shares, which are sums without noise. They never see noise, or anything to make it from.

A step of a model is one kind of task. A private encoder whose sums have no fixed size is another one: it adds its shares itself
(:meth:`PartitionTask.new_sum`).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from vips._support.printable import class_and_place
from vips.core.exact.blas_threads import one_blas_thread
from vips.core.exact.rowwise import PIECE
from vips.core.exact.threads import at_most, n_threads, side_by_side
from vips.core.execution.rehearsal import SAMPLES, form_of, settings_of, stand_ins_for
from vips.core.execution.tree import Totals, TreeSum, add_to
from vips.core.records.partition import OpenPartition, Runs, ranges_of_size, step_counts, weights_apart
from vips.core.records.source import Partition
from vips.core.sums import RecordStatistics
from vips.core.sums.forms import sums_of_runs
from vips.exceptions import InvalidRecordError, PartitionError, SourceError

if TYPE_CHECKING:
    from vips.core.contract import Contract
    from vips.core.mechanism.sampling import PoissonCoins
    from vips.core.phases import FitPhase
    from vips.core.plan import PrivacyPlan
    from vips.core.sums.blocks import Block

__all__ = ["MOST_ROWS", "PartitionTask", "Task", "added", "partition_sum", "share_of_worker"]

MOST_NUMBERS = 2**25  # in the sums of chunks that wait to be added
MOST_ROWS = 1000  # of a person, by a model that reads persons: memory is that of a chunk


class PartitionTask(ABC):
    """What executors compute: a share of every partition, and the sum of all shares.

    Attributes
    ----------
    adds_on_workers : bool
        Whether a cluster adds shares on its workers, as the tree of :mod:`vips.core.execution.tree`. If not, the process that
        fits receives them one after the other.
    """

    plan: PrivacyPlan
    adds_on_workers = True

    @abstractmethod
    def calls(self, partition: Partition, coins: PoissonCoins) -> Iterator[Callable[[], Totals]]:
        """Calls, at least one, whose results are the share of a partition when they are added in order.

        The share is a function of the arguments and the partition's records. Several threads may make the calls.
        """

    @abstractmethod
    def zeros(self) -> Totals:
        """The sum of no records."""

    def prepare(self) -> None:  # noqa: B027
        """Compute what all shares need, before several threads start."""

    def most_calls(self) -> int:
        """So many calls may be made at a time; memory grows with their number."""
        return 1

    def new_sum(self) -> TreeSum:
        """An empty sum, to which shares are pushed in the order of partitions; its ``result()`` is None without any."""
        return TreeSum()


@dataclass(frozen=True, repr=False)
class Task(PartitionTask):
    """One step, as far as workers need to know it.

    Attributes
    ----------
    model : ConjugateExponentialModel
        In another process a copy without ``random_state``, from which the noise of a reproducible fit could be derived.
    phase, statistics : str
        Name of the step's phase, and of the method of the model that gives statistics in it.
    blocks : dict of str to Block
        Of the phase.
    posterior : object
        The last view. Released.
    plan : PrivacyPlan
        Clip norm, lattice: public numbers.
    stop_at_invalid : bool
        Whether an invalid record stops the fit; else it counts for nothing.
    """

    model: Contract
    phase: str
    statistics: str
    blocks: Mapping[str, Block]
    posterior: Any
    plan: PrivacyPlan
    stop_at_invalid: bool

    @classmethod
    def of_step(cls, model: Contract, phase: FitPhase, posterior: Any, plan: PrivacyPlan, is_checked: bool) -> Task:
        """A step of a phase. ``is_checked`` says that the values of a non-private fit were validated before."""
        stop = model.on_invalid == "raise" or not (plan.is_private or is_checked)
        return cls(model, phase.name, phase.statistics, phase.blocks, posterior, plan, stop)

    def statistics_of(self, records: Any) -> Any:
        """Statistics of these records at the posterior."""
        records, sample_weights = self.without_weights(records)
        statistics = getattr(self.model, self.statistics)(records, self.posterior)
        if sample_weights is not None:
            statistics.weigh(sample_weights)
        return statistics

    def without_weights(self, records: Any) -> tuple[Any, np.ndarray | None]:
        """The records as the model takes them, and their weights over the largest; None in a fit without weights."""
        if self.plan.max_weight is None:
            return records, None
        rows, sample_weights = weights_apart(records)
        return rows, self.plan.shares_of(sample_weights)

    def __getstate__(self) -> dict:
        """What a pickle holds: nothing from which noise could be derived."""
        model = copy.copy(self.model)
        model.random_state = None
        model.privacy = self.plan
        model.use_plan(self.plan)
        return self.__dict__ | {"model": model}

    def prepare(self) -> None:
        self.model.prepare(self.posterior)

    def most_calls(self) -> int:
        """One for a model that does not promise ``exact_rows``: its E-step may keep work arrays, or start fits of its own."""
        if not has_exact_rows(self.model):
            return 1
        numbers = sum(math.prod(block.shape) for block in self.blocks.values())
        return min(n_threads(), max(1, MOST_NUMBERS // (2 * numbers)))

    def calls(self, partition: Partition, coins: PoissonCoins) -> Iterator[Callable[[], Totals]]:
        """Calls for Σ over the chunks of one partition's sample of each record's statistics, scaled into the ball of radius C.

        Guarantees
        ----------
        Functions of the arguments and the partition's records. Nothing is raised or warned of because of a record, unless
        ``stop_at_invalid``.
        """
        model, plan = self.model, self.plan
        with one_blas_thread(), np.errstate(all="ignore"):
            most_rows = plan.max_rows_per_group
            if model.reads_persons and plan.is_private:
                most_rows = most_rows or MOST_ROWS
            opened = partition.open().at_most(most_rows).first_steps(model.max_length)
            has_weights = plan.max_weight is not None
            if model.ignores_labels and not has_weights:
                opened = opened.without_labels()
            if model.takes_one_label and getattr(opened.y, "ndim", 0) != 1 + has_weights:  # before a record is sampled
                raise SourceError(f"{partition.name}: y must have one label for each row of X, shape (n_records,).")
            if plan.is_private:
                rehearse(self, opened)
            size = None if has_exact_rows(model) or not plan.is_private else whole_size(model.chunk_size)
            most = size or model.chunk_size
            if opened.starts is not None:  # no chunk divides a run of PIECE rows, whose norm may be exact
                most = max(most, PIECE)
            return calls_of_chunks(self, opened, coins.rows(opened.n_records), size, most)

    def zeros(self) -> Totals:
        """The sum of no records."""
        return {name: np.zeros(block.shape, self.dtype) for name, block in self.blocks.items()}

    @property
    def dtype(self) -> type:
        """dtype of totals, which are integers with discrete noise."""
        return np.int64 if self.plan.rounds_records else np.float64


def partition_sum(task: PartitionTask, partition: Partition, coins: PoissonCoins) -> Totals:
    """One partition's share of a sum: the function that every worker runs."""
    with closing(side_by_side(task.calls(partition, coins), task.most_calls())) as sums:
        return added(sums)


def added(sums: Iterable[Totals]) -> Totals:
    """The sum, in order; the first one is changed."""
    sums = iter(sums)
    total = next(sums)
    for other in sums:
        with np.errstate(all="ignore"):
            add_to(total, other)
    return total


def calls_of_chunks(
    task: Task, opened: OpenPartition, records: np.ndarray, size: int | None, most: int
) -> Iterator[Callable[[], Totals]]:
    """For ``records`` of a partition, ascending; ``size`` and ``most`` as in :func:`weighted`. No records add zeros."""
    if not len(records):
        return iter([task.zeros])
    chunks = opened.chunks(records, most, are_even=size is None)
    return (partial(chunk_sum, task, chunk, size, most) for chunk in chunks)


def chunk_sum(task: Task, chunk: Any, size: int | None, most: int) -> Totals:
    """Σ over the records of a chunk, or over the pieces of a record that is larger."""
    blocks, lattice = task.blocks, task.plan.lattice(task.blocks)
    total: Totals | None = None
    # One limit for the whole sum costs less than one for each product. A warning would reveal that some record overflows.
    with one_blas_thread(), np.errstate(all="ignore"):
        for statistics, weights in weighted(task, *usable(task, chunk), size, most):
            shares = statistics.rounded_sum(weights, blocks, lattice) if lattice else statistics.weighted_sum(weights)
            if total is None:
                total = _first_total(shares, task, copy=not statistics.sums_are_new)
            else:
                add_to(total, shares)
    assert total is not None  # a chunk has records
    return total


def rehearse(task: Task, opened: OpenPartition) -> None:
    """Call all kernels of such a step for such a partition, once in a process, before a record is read: see ``rehearsal.py``.

    A model without ``exact_rows``, or one that says that it ``compiles`` none (the audit's canaries), has no kernels; those
    that select rows are called for all.
    """
    model = task.model
    has_kernels = has_exact_rows(model) and getattr(model, "compiles", True)
    kernels = (settings_of(model), task.phase, task.plan.rounds_records) if has_kernels else None
    step = kernels, form_of(opened)
    done = rehearsals(step)
    if done:
        return
    labels = np.asarray(getattr(model, "classes_", (0.0, 1.0)))
    stand_ins = stand_ins_for(opened, labels if labels.dtype.kind in "biuf" else np.arange(len(labels)))
    of_stand_ins = replace(task, stop_at_invalid=False)
    for records, most in product(SAMPLES, (PIECE,) if stand_ins.starts is None else (PIECE, 1)):
        if not has_kernels:
            list(stand_ins.chunks(records, most))
            continue
        with suppress(Exception):  # a model of somebody else may not take such rows
            for call in calls_of_chunks(of_stand_ins, stand_ins, records, None, most):
                call()
    done.append(True)


@lru_cache(maxsize=4096)
def rehearsals(step: tuple) -> list[bool]:
    """Rehearsals of such a step in this process: empty before the first one."""
    return []


def weighted(
    task: Task, rows: Any, starts: np.ndarray | None, size: int | None, most: int
) -> Iterator[tuple[RecordStatistics, np.ndarray]]:
    """Statistics of the rows of a chunk, or of its persons, and the weight of each in the sum.

    A record of more rows (of sequences: steps) than a chunk is taken in pieces, twice: its rows have one weight, which depends
    on all of them. ``rows`` and ``starts`` are from :func:`usable`. A chunk has at most ``most`` rows, and is filled up to
    ``size``.
    """
    plan, blocks, n_rows = task.plan, task.blocks, rows.shape[0]
    if task.model.reads_persons:
        statistics = task.statistics_of(rows if starts is None else Runs(rows, starts))
        yield statistics, plan.clip_weights(_norms(statistics, blocks, n_rows if starts is None else len(starts) - 1))
        return
    steps = step_counts(rows)
    sizes = np.ones(n_rows, np.int64) if steps is None else steps

    def statistics_of(chunk: Any) -> Any:
        """Statistics of the rows, filled up, and how many these are."""
        chunk = filled_up(chunk, size)
        with one_blas_thread() if size else nullcontext():
            return task.statistics_of(chunk), chunk.shape[0]

    if starts is None or sizes.sum() <= most:
        statistics, n_given = statistics_of(rows)
        weights = weights_of_rows(plan, statistics, blocks, starts, n_given, steps)
        weights[n_rows:] = 0.0
        yield statistics, weights
        return
    pieces = [slice(*bounds) for bounds in ranges_of_size(sizes, most)]
    parts, usable_rows = [], []
    for piece in pieces:
        statistics, n_given = statistics_of(rows[piece])
        norms, is_usable = norms_of_rows(plan, statistics, blocks, n_given)
        norms[piece.stop - piece.start :] = 0.0
        parts.append(statistics.piece_norm(norms, blocks))
        usable_rows.append(is_usable)
    weight = plan.clip_weights(np.array([sum(parts) * (1.0 + 1e-9)]))[0]
    carried = None
    for piece, is_usable in zip(pieces, usable_rows, strict=True):
        n_here, (statistics, _) = piece.stop - piece.start, statistics_of(rows[piece])
        weights = _weighed(statistics, weight * is_usable)
        weights[n_here:] = 0.0
        carried = statistics.carry(carried, weights[:n_here], piece is pieces[-1])
        yield statistics, weights


def has_exact_rows(model: Contract) -> bool:
    """``exact_rows``, if the class that defines the E-step or a subclass of it sets it; else False."""
    for cls in type(model).__mro__:
        if "exact_rows" in vars(cls):
            return bool(vars(cls)["exact_rows"])
        if "expected_statistics" in vars(cls):
            return False
    return False


def whole_size(chunk_size: int) -> int:
    """Size of a chunk that is filled up: a multiple of the number of rows that BLAS works on at a time."""
    return -(-chunk_size // PIECE) * PIECE


def filled_up(records: Any, size: int | None) -> Any:
    """The records followed by copies of the first one, ``size`` in all; unchanged without records or without ``size``."""
    n_records = records.shape[0]
    if size is None or not n_records:
        return records
    return records[np.concatenate([np.arange(n_records), np.zeros(size - n_records, dtype=np.intp)])]


def _first_total(shares: Totals, task: Task, copy: bool) -> Totals:
    """The first chunk's sums, to which the others are added. In C order, like ``zeros``, so that the rounding of later products
    does not reveal an empty sample."""
    for name, block in task.blocks.items():
        if np.shape(shares[name]) != block.shape:
            raise ValueError(f"Block {name!r} is declared {block.shape}, its sum has shape {np.shape(shares[name])}.")
    return {name: np.array(shares[name], task.dtype, order="C", copy=copy or None) for name in task.blocks}


def _norms(statistics: RecordStatistics, blocks: Mapping[str, Block], n_rows: int) -> np.ndarray:
    """Norms of so many rows. With other rows than those of the records a record would take the weight of another one."""
    norms = statistics.norms(blocks)
    if len(norms) != n_rows:
        raise ValueError(
            "Statistics must have one row for each record that a model gets, in their order: zeros for one that says nothing."
        )
    return norms


def weights_of_rows(
    plan: PrivacyPlan, statistics: RecordStatistics, blocks: Mapping[str, Block], starts: np.ndarray | None,
    n_rows: int, steps: np.ndarray | None,
) -> np.ndarray:  # fmt: skip
    """How much of each row enters the sum: all rows of a record have one weight, which clips the record as a whole.

    A row whose norm cannot be used counts for nothing, and its record is clipped without it. ``steps`` are of sequences.
    """
    if starts is None:
        weights = plan.clip_weights(_norms(statistics, blocks, n_rows))
        if not (plan.is_private or weights.all()):
            raise ValueError("A record is not valid: the statistics of a record are not finite.")
        return _weighed(statistics, weights)
    norms, is_usable = norms_of_rows(plan, statistics, blocks, n_rows)
    bounds = statistics.run_norms(norms, blocks, starts)
    adds_up: Any = statistics.sample_weights is not None  # rows that cancel may not, once they are weighted
    if steps is not None:  # a smaller chunk divides a record of more steps
        adds_up |= sums_of_runs(steps, starts) > PIECE
    bounds = np.where(adds_up, np.maximum(bounds, sums_of_runs(norms, starts)), bounds)
    weights = np.zeros(len(is_usable))
    weights[: starts[-1]] = np.repeat(plan.clip_weights(bounds), np.diff(starts))
    return _weighed(statistics, weights * is_usable)


def _weighed(statistics: RecordStatistics, weights: np.ndarray) -> np.ndarray:
    """Weights of the clip, times those of the rows, which are at most 1 in a private fit: no record's share grows."""
    return weights if statistics.sample_weights is None else weights * statistics.sample_weights


def norms_of_rows(
    plan: PrivacyPlan, statistics: RecordStatistics, blocks: Mapping[str, Block], n_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Norm of each row, 0 where it cannot be used; and where it can."""
    norms = _norms(statistics, blocks, n_rows)
    is_usable = plan.clip_weights(norms) > 0.0
    return np.where(is_usable, norms, 0.0), is_usable


def usable(task: Task, chunk: Any) -> tuple[Any, np.ndarray | None]:
    """The valid rows of a chunk, and where those of each record start, if a record may have several."""
    rows: Any
    rows, starts = (chunk.rows, chunk.starts) if isinstance(chunk, Runs) else (chunk, None)
    records, sample_weights = task.without_weights(rows)
    valid = task.model.valid_records(records)
    if sample_weights is not None:
        valid = valid & (sample_weights >= 0.0) & (sample_weights < np.inf)
    if valid.all():
        return rows, starts
    if task.stop_at_invalid:
        raise InvalidRecordError(
            "A record is not valid (NaN, infinite or out of the model's domain). In a private fit this error depends on a "
            'record and is outside the privacy guarantee; on_invalid="drop" lets such records count for nothing instead.'
        )
    return rows[valid], None if starts is None else np.concatenate([[0], np.cumsum(valid)])[starts]


def share_of_worker(task: PartitionTask, partition: Partition, coins: PoissonCoins, threads: int) -> Totals:
    """:func:`partition_sum` as a worker runs it: with at most ``threads`` threads for kernels and one for BLAS, and without
    messages that quote a record.

    Raises
    ------
    SourceError, InvalidRecordError
        Unchanged.
    PartitionError
        In a private fit, for any other error. It names the error's class and place, and omits its message.
    """
    try:
        with at_most(threads), one_blas_thread():
            return partition_sum(task, partition, coins)
    except (SourceError, InvalidRecordError):
        raise
    except Exception as error:
        if not task.plan.is_private:
            raise
        problem = class_and_place(error)
    # outside of `except`, so that the original error is not attached
    raise PartitionError(
        f"{partition.name}: {problem}. Its message is not shown, because it may quote a record: try the model on public data."
    )
