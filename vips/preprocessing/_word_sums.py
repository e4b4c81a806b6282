"""Words of texts that do not fit into memory: both rounds of the private set union, partition by partition.

A round is one sum over partitions, which any executor computes::

    partition ─▶ its documents' words that are not released yet ─▶ its records' shares ─▶ its words, in order, with their totals
    all partitions ─▶ sorted runs, merged ─▶ totals in the order of words ─▶ + noise on each ─▶ above the threshold: released

Shares, noise and thresholds are those of ``vips/preprocessing/_set_union.py``, and so is the proof (docs/guarantee.md). Only
released words are ever in memory together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from vips._support.no_warnings import without_warnings
from vips.core.execution.base import Executor
from vips.core.execution.partitions import PartitionTask
from vips.core.execution.tree import Totals
from vips.core.mechanism.secret_bits import secret_bits
from vips.core.plan import PrivacyPlan
from vips.core.records.source import Partition
from vips.data._texts import TextSource
from vips.preprocessing._documents import chunks_of, counted_records
from vips.preprocessing._set_union import (
    Release,
    Union,
    count_weight,
    plans_of_rounds,
    released,
    thresholds,
    weighted_words,
)
from vips.preprocessing._sorted_runs import SortedRuns, share_of_words

__all__ = ["WordTask", "union_of_source"]


@dataclass(frozen=True, repr=False)
class WordTask(PartitionTask):
    """One round, as far as workers need to know it.

    Attributes
    ----------
    settings : dict
        What a word is.
    known : tuple of str
        Words that the round before has released.
    most : int
        Of a record with more different words that are unknown, so many are drawn.
    of_count : float
        Weight of a record in the number of records.
    """

    settings: dict
    known: tuple[str, ...]
    most: int
    of_count: float
    plan: PrivacyPlan
    adds_on_workers = False

    def calls(self, partition: Partition, coins: tuple[int, int]) -> Iterator[Callable[[], Totals]]:
        """One for a partition: words are found by Python, which threads do not do side by side."""
        return iter([partial(self.share, partition, coins)])

    def share(self, partition: Partition, coins: tuple[int, int]) -> Totals:
        """Totals of the partition's words, from its records and its own ``coins`` (a key and its number) alone.

        Guarantees
        ----------
        Each record adds a vector of norm at most 1. Nothing is raised or warned of because of a document.
        """
        opened, generator = partition.open(), np.random.default_rng(coins)
        persons = None
        if opened.starts is not None:
            persons = np.repeat(np.arange(opened.n_records), np.diff(opened.starts))
        with np.errstate(all="ignore"):
            return without_warnings(lambda: self._sum(opened.X, persons, generator))

    def _sum(self, documents, persons: np.ndarray | None, generator: np.random.Generator):
        """The share of these documents."""
        index = defaultdict(count(len(self.known)).__next__, {word: i for i, word in enumerate(self.known)})
        counts = counted_records(self.settings, documents, persons, self.plan.max_rows_per_group, index)
        known, total = np.ones(len(self.known), bool), np.zeros(len(index))
        for words, starts in chunks_of(counts):
            kept, weights = weighted_words(words, starts, known, self.most, generator, self.of_count)
            total += np.bincount(kept, weights, len(total))
        names = list(index)
        return share_of_words({names[i]: total[i] for i in np.flatnonzero(total)}, self.of_count * counts.shape[0])

    def zeros(self) -> Totals:
        raise NotImplementedError  # sorted runs are a sum, even of nothing

    def new_sum(self) -> SortedRuns:
        return SortedRuns()


def union_of_source(
    source: TextSource,
    settings: dict,
    plan: PrivacyPlan,
    delta: float,
    most: int,
    count_records: bool,
    executor: Executor,
    release: Release,
) -> Union:
    """Words above the threshold of each round; arguments as for :func:`vips.preprocessing._set_union.noisy_union`. May warn."""
    plans = plans_of_rounds(plan)
    cuts = thresholds(delta, [round_plan.noise_std() for round_plan in plans], most)
    rounds, n_records = [], None
    with executor.over(source) as workers:
        for round_plan, cut in zip(plans, cuts, strict=True):
            known = tuple(word for words, _ in rounds for word in words)
            task = WordTask(settings, known, most, count_weight(count_records and not rounds), round_plan)
            key = secret_bits(128)
            with workers.sum(task, lambda i, key=key: (key, i)) as runs:
                words, noisy, counted = released(round_plan, cut, runs.blocks(), runs.count, task.of_count, release)
            n_records = counted if task.of_count else n_records
            rounds.append((words, noisy))
    return Union(tuple(rounds), n_records)
