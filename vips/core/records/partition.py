"""Selected rows, as models receive them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from vips.core.records.ragged import Ragged, offsets_of, places, some_rows

__all__ = [
    "OpenPartition",
    "Records",
    "Runs",
    "ranges_of_size",
    "rows_without",
    "step_counts",
    "weights_apart",
    "with_their_weights",
]

_SHARED = 2**19  # numbers from which two threads share a chunk


@dataclass(frozen=True)
class Records:
    """Selected rows of ``X`` with their labels; what a model receives when labels were passed to ``fit``."""

    X: Any
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.X.shape

    def __getitem__(self, rows: np.ndarray) -> Records:
        """Some of the records, as NumPy indexes rows."""
        return type(self)(self.X[rows], self.y[rows])


def with_their_weights(chunks: Iterable, have_weights: bool) -> Iterator[tuple[object, np.ndarray]]:
    """Chunks of records, and the weights of each: 1 where they have none."""
    for chunk in chunks:
        yield weights_apart(chunk) if have_weights else (chunk, np.ones(chunk.shape[0]))


def weights_apart(records: Records) -> tuple[object, np.ndarray]:
    """Records, or rows without labels, and their weights, which :meth:`InMemoryData.with_weights` has put beside the labels."""
    labels, weights = records.y[:, :-1], records.y[:, -1]
    if not labels.shape[1]:
        return records.X, weights
    return Records(records.X, labels[:, 0] if labels.shape[1] == 1 else labels), weights


@dataclass(frozen=True)
class Runs:
    """Rows of several records: record i has the rows ``starts[i]`` to ``starts[i + 1]`` of ``rows``."""

    rows: object
    starts: np.ndarray


@dataclass(frozen=True, repr=False)
class OpenPartition:
    """The rows of one partition, in memory or mapped into it. Only chunks are copied.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_rows, n_features); or Sequences, whose rows are sequences
    y : ndarray of shape (n_rows, ...), optional
    starts : ndarray of shape (n_records + 1,), optional
        Where each record's rows begin, and where the last one's end. None if every row is a record.
    max_rows : int, optional
        Rows of a record beyond its first ``max_rows`` are left out.
    """

    X: Any
    y: np.ndarray | None = None
    starts: np.ndarray | None = None
    max_rows: int | None = None

    @property
    def n_records(self) -> int:
        """Number of records: private."""
        return self.X.shape[0] if self.starts is None else len(self.starts) - 1

    def without_labels(self) -> OpenPartition:
        """The same rows for a model that takes no labels."""
        return self if self.y is None else replace(self, y=None)

    def at_most(self, max_rows: int | None) -> OpenPartition:
        """The same records, with at most so many rows each: their first ones."""
        return self if max_rows is None else replace(self, max_rows=max_rows)

    def first_steps(self, n_steps: int | None) -> OpenPartition:
        """The same records, with at most so many steps of each sequence: no more are read. For other rows the same."""
        return replace(self, X=self.X.first(n_steps)) if isinstance(self.X, Ragged) else self

    def chunks(self, records: np.ndarray, chunk_size: int, are_even: bool = False) -> Iterator:
        """Those ``records`` (ascending), in order: rows of X, or ``Records``; or ``Runs`` of these.

        A chunk has at most ``chunk_size`` rows, or the rows of one record; of sequences, steps in place of rows. Sequences are
        read when their values are asked for. Chunks that ``are_even`` are about as large as each other, so that threads end at
        the same time.
        """
        width = math.prod(self.X.shape[1:])
        if self.starts is None and step_counts(self.X) is None:
            chunk_size = _even_size(len(records), chunk_size, width) if are_even else chunk_size
            for first in range(0, len(records), chunk_size):
                yield self._select(records[first : first + chunk_size])
            return
        sizes = self._sizes(records)
        if are_even:
            chunk_size = min(chunk_size, _even_size(sizes.sum(), chunk_size, width) + sizes.max())
        for first, last in ranges_of_size(sizes, chunk_size):
            chosen = records[first:last]
            yield self._select(chosen) if self.starts is None else self._select_runs(chosen)

    def _sizes(self, records: np.ndarray) -> Any:
        """Rows of each record; of sequences, steps."""
        steps: Any = step_counts(self.X)
        if self.starts is None:
            return steps[records]
        lengths = self._lengths(records)
        if steps is None:
            return lengths
        ends = offsets_of(steps)
        return ends[self.starts[records] + lengths] - ends[self.starts[records]]

    def _lengths(self, records: np.ndarray) -> np.ndarray:
        starts: Any = self.starts
        lengths = starts[records + 1] - starts[records]
        return lengths if self.max_rows is None else np.minimum(lengths, self.max_rows)

    def _select_runs(self, records: np.ndarray) -> Runs:
        lengths, starts = self._lengths(records), cast(np.ndarray, self.starts)
        return Runs(self._select(places(lengths, starts[records])), offsets_of(lengths))

    def _select(self, rows: Any) -> Any:
        # A whole range of an array in C order, as in a full batch, is a view.
        if isinstance(self.X, np.ndarray) and len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            rows = slice(rows[0], rows[-1] + 1)
        X = some_rows(self.X, rows) if getattr(self.X, "format", None) == "csr" else _in_order_of_c(self.X[rows])
        return X if self.y is None else Records(X, _in_order_of_c(self.y[rows]))


def _in_order_of_c(rows: Any) -> Any:
    """An array in C order: kernels are compiled for every order, and that of some rows depends on how many they are."""
    return np.ascontiguousarray(rows) if isinstance(rows, np.ndarray) else rows


def step_counts(rows: Any) -> np.ndarray | None:
    """How much of a chunk each sequence takes: its steps, and at least one. None for rows that are no sequences."""
    return np.maximum(rows.lengths, 1) if isinstance(rows, Ragged) else None


def _even_size(n_rows: int, most: int, width: int) -> int:
    """Rows of equal chunks, of which there are one, two, or a multiple of four; a single one of many numbers is halved."""
    n_chunks = max(-(-n_rows // most), 1 + (n_rows * width >= _SHARED))
    n_chunks += -n_chunks % 4 if n_chunks > 2 else 0
    return max(-(-n_rows // n_chunks), 1)


def ranges_of_size(sizes: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of items in order whose ``sizes`` add up to at most ``most``, or of one larger item."""
    ends, first, before = np.cumsum(sizes), 0, 0
    while first < len(sizes):
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield first, last
        first, before = last, ends[last - 1]


def rows_without(bad: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Which rows of a CSR matrix have no ``bad`` stored entry; shape (n_rows,)."""
    valid = np.ones(len(indptr) - 1, dtype=bool)
    valid[np.searchsorted(indptr, np.flatnonzero(bad), side="right") - 1] = False
    return valid
