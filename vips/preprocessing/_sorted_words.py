"""Words of texts that do not fit into memory: the rounds of the private set union, partition by partition.

A round is one sum over partitions, which any executor computes::

    partition ─▶ its documents' words that are not released yet ─▶ its records' shares ─▶ its words, in order, with their totals
    all partitions ─▶ sorted runs, merged ─▶ totals in the order of words ─▶ + noise on each ─▶ above the threshold: released

Shares, noise and thresholds are those of ``vips/preprocessing/_set_union.py``, and so is the proof (docs/guarantee.md). Only
released words are ever in memory together.

How many different words there are is private, and nothing bounds it. So no table of them is kept. Every share is written to a
file with its words in order; 16 files are merged to one, 16 of these to one, and so on, as ``vips/core/execution/tree.py`` adds
arrays. A merge reads each file from its beginning to its end, and holds one block of each: memory is that of one share and of a
few dozen blocks. No word is left out, and the order of a total's additions depends on the number of shares alone.

(Buckets of hashed words would need no order, but a bucket has room for a number of words that somebody must choose beforehand.)

The files hold words and sums without noise. They have no name (or are removed as they are closed, where the system has no such
files), only this user can read them, and nothing of them is left when the process ends, killed or not.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import BinaryIO

import numpy as np

from vips._support.no_warnings import without_warnings
from vips.core.execution.base import Executor
from vips.core.execution.partitions import PartitionTask
from vips.core.execution.tree import FAN_IN, Totals
from vips.core.mechanism.secret_bits import secret_bits
from vips.core.plan import PrivacyPlan
from vips.core.records.source import Partition
from vips.data._texts import TextSource
from vips.preprocessing._documents import chunks_of, counted_records
from vips.preprocessing._set_union import Release, Round, Union, count_weight, released, weighted_words

__all__ = ["SortedRuns", "WordTask", "share_of_words", "union_of_source"]

_BLOCK_BYTES = 2**18
_HEADER = np.dtype(np.int64)

Block = tuple[list[bytes], list[float]]


@dataclass(frozen=True, repr=False)
class WordTask(PartitionTask):
    """One round, as far as workers need to know it.

    Attributes
    ----------
    settings : dict
        What a word is.
    length : int
        Number of words of a phrase; 1 for words.
    known : tuple of str
        Words and phrases that were released before.
    most : int
        Of a record with more different words that are unknown, so many are drawn.
    of_count : float
        Weight of a record in the number of records.
    """

    settings: dict
    length: int
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
        before = frozenset(self.known)
        counts = counted_records(
            self.settings, documents, persons, self.plan.max_rows_per_group, index, self.length, before
        )
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
    rounds: Iterable[Round],
    most: int,
    count_records: bool,
    executor: Executor,
    release: Release,
) -> Union:
    """What each round releases; arguments as for :func:`vips.preprocessing._set_union.noisy_union`. May warn."""
    union, n_records = [], None
    with executor.over(source) as workers:
        for turn in rounds:
            known = tuple(word for words, _ in union for word in words)
            task = WordTask(settings, turn.length, known, most, count_weight(count_records and not union), turn.plan)
            key = secret_bits(128)
            with workers.sum(task, lambda i, key=key: (key, i)) as runs:
                words, noisy, counted = released(turn, runs.blocks(), runs.count, task.of_count, release)
            n_records = counted if task.of_count else n_records
            union.append((words, noisy))
    return Union(tuple(union), n_records)


# -- sorted runs ---------------------------------------------------------------------------------------------------


def share_of_words(totals: dict[str, float], count: float) -> dict[str, np.ndarray]:
    """A share as arrays, which executors can send: words in the order of their UTF-8, totals, and the number of records."""
    coded = sorted((word.encode("utf-8", "surrogatepass"), total) for word, total in totals.items())
    return {
        "text": np.frombuffer(b"".join(word for word, _ in coded), np.uint8).copy(),
        "lengths": np.fromiter((len(word) for word, _ in coded), np.int64, len(coded)),
        "totals": np.fromiter((total for _, total in coded), np.float64, len(coded)),
        "records": np.array([count]),
    }


class SortedRuns:
    """The sum of shares: pushed one after the other, read once in the order of words. ``count`` is that of records."""

    def __init__(self) -> None:
        self._levels: list[list[BinaryIO]] = []
        self.count = 0.0

    def push(self, share: dict[str, np.ndarray]) -> None:
        """Add the next share."""
        self.count += float(share["records"][0])
        self._push(_written([(_cut(share["text"].tobytes(), share["lengths"]), share["totals"].tolist())]), 0)

    def result(self) -> SortedRuns:
        """This sum."""
        return self

    def blocks(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """All words in order with their totals, some at a time."""
        for words, totals in _merged([_blocks(run) for level in self._levels for run in level]):
            yield [word.decode("utf-8", "surrogatepass") for word in words], np.array(totals)

    def close(self) -> None:
        """Remove the files."""
        for level in self._levels:
            for run in level:
                run.close()
        self._levels = []

    def __enter__(self) -> SortedRuns:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _push(self, run: BinaryIO, level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(run)
        if len(self._levels[level]) == FAN_IN:
            merged = _written(_merged([_blocks(part) for part in self._levels[level]]))
            for part in self._levels[level]:
                part.close()
            self._levels[level] = []
            self._push(merged, level + 1)


def _written(blocks: Iterable[Block]) -> BinaryIO:
    """A temporary file of these blocks, cut into pieces of about ``_BLOCK_BYTES``."""
    file = tempfile.TemporaryFile(prefix="vips-")  # noqa: SIM115
    try:
        for words, totals in blocks:
            lengths = np.fromiter(map(len, words), np.int64, len(words))
            sizes = np.cumsum(lengths + 16)
            first = 0
            while first < len(words):
                before = sizes[first - 1] if first else 0
                last = max(first + 1, int(np.searchsorted(sizes, before + _BLOCK_BYTES, side="right")))
                text = b"".join(words[first:last])
                file.write(np.array([last - first, len(text)], _HEADER).tobytes())
                file.write(lengths[first:last].tobytes() + np.array(totals[first:last]).tobytes() + text)
                first = last
        file.flush()
    except BaseException:
        file.close()
        raise
    return file


def _blocks(file: BinaryIO) -> Iterator[Block]:
    file.seek(0)
    while header := file.read(2 * _HEADER.itemsize):
        n_words, n_bytes = np.frombuffer(header, _HEADER).tolist()
        lengths = np.frombuffer(file.read(8 * n_words), np.int64)
        totals = np.frombuffer(file.read(8 * n_words), np.float64).tolist()
        yield _cut(file.read(n_bytes), lengths), totals


def _cut(text: bytes, lengths: np.ndarray) -> list[bytes]:
    ends = np.cumsum(lengths).tolist()
    return [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _merged(runs: list[Iterator[Block]]) -> Iterator[Block]:
    """Words of all runs in order, with the sums of their totals. Holds one block of each run."""
    # block, place in it, and the rest of the run
    heads = [[block, 0, run] for run in runs if (block := next(run, None)) is not None]
    while heads:
        last = min(words[-1] for (words, _), _, _ in heads)  # nothing up to this word comes later
        sums: dict[bytes, float] = {}
        for head in heads:
            (words, totals), place, run = head
            end = bisect_right(words, last, place)
            for word, total in zip(words[place:end], totals[place:end], strict=True):
                sums[word] = sums.get(word, 0.0) + total
            if end == len(words):
                head[0], end = next(run, None), 0
            head[1] = end
        heads = [head for head in heads if head[0] is not None]
        ordered = sorted(sums)
        yield ordered, [sums[word] for word in ordered]
