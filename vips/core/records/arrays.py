"""Rows of arrays in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from vips.core.records.groups import runs_of_rows
from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import Ragged, range_of_rows
from vips.core.records.source import DataSource, Partition

__all__ = ["PARTITION_SIZE", "InMemoryData", "RangesOfRecords"]

# Rows of a partition. It bounds the memory of a sample and is a worker's unit of work.
PARTITION_SIZE = 16_384


class RangesOfRecords(DataSource):
    """What rows and texts in memory share: partitions of equally many records, each a row or a run of rows.

    A subclass sets ``_n_rows``, ``_partition_size``, and ``_starts``, where each record begins and the last one ends (None:
    every row is a record).
    """

    _n_rows: int
    _partition_size: int
    _starts: np.ndarray | None

    @property
    def _n_records(self) -> int:
        return self._n_rows if self._starts is None else len(self._starts) - 1

    @property
    def has_groups(self) -> bool:  # type: ignore[override]
        return self._starts is not None

    @property
    def n_partitions(self) -> int:
        return max(1, -(-self._n_records // self._partition_size))  # whether there is a record decides nothing

    @property
    def sizes(self) -> tuple[int, ...]:
        n, size = self._n_records, self._partition_size
        return tuple(min(size, n - start) for start in range(0, max(n, 1), size))

    def rows_of(self, i: int) -> tuple[slice, np.ndarray | None]:
        """Rows of partition i, and where its records begin among them."""
        first = i * self._partition_size
        last = min(first + self._partition_size, self._n_records)
        if self._starts is None:
            return slice(first, last), None
        starts = self._starts[first : last + 1]
        return slice(starts[0], starts[-1]), starts - starts[0]


class InMemoryData(RangesOfRecords):
    """Rows of an array, a memory-mapped array or a CSR matrix, with optional labels, in ranges of records.

    Parameters
    ----------
    X : ndarray, memmap or CSR of shape (n_rows, n_features)
    y : ndarray of shape (n_rows, ...), optional
    partition_size : int
        Records of a partition; the last may be shorter. Another size draws other samples.

    Notes
    -----
    Nothing is checked here. A fit checks X and y as if it had got them as arrays.
    """

    is_checked = True

    def __init__(self, X: Any, y: np.ndarray | None = None, partition_size: int = PARTITION_SIZE) -> None:
        self._X = X.without_ids() if isinstance(X, Ragged) else X
        self._y, self._starts, self._partition_size = y, None, partition_size
        (self._n_rows, self.n_features), self.has_labels = X.shape, y is not None

    @property
    def arrays(self) -> tuple:
        """X and y."""
        return self._X, self._y

    def divided_like(self, other: InMemoryData) -> InMemoryData:
        """The same rows, in partitions of the size that ``other`` has."""
        return InMemoryData(self._X, self._y, other._partition_size)

    def with_weights(self, weights: np.ndarray) -> InMemoryData:
        """The same rows, with a weight of each as the last column of y: wherever labels go, weights go."""
        labels = weights[:, None] if self._y is None else np.column_stack([self._y, weights])
        return InMemoryData(self._X, labels, self._partition_size)

    def grouped(self, numbers: np.ndarray, name: str | None = None) -> InMemoryData:
        """The rows as records of several rows, for ``fit``, which states the unit. ``name`` is that of the ids.

        All rows with one number are one record; a row with -1 is left out. Rows of a record that do not stand together are
        copied.
        """
        if self.has_groups:
            raise ValueError("The rows have groups already, and another order than they were given in.")
        order, starts = runs_of_rows(numbers)
        X, y = (self._X, self._y) if order is None else (self._X[order], None if self._y is None else self._y[order])
        data = InMemoryData(X, y, self._partition_size)
        data._starts, data.group_name = starts, name
        return data

    def partition(self, i: int) -> Partition:
        rows, starts = self.rows_of(i)
        X = range_of_rows(self._X, rows) if sp.issparse(self._X) else self._X[rows]
        return ArrayPartition(f"partition {i}", X, None if self._y is None else self._y[rows], starts)


@dataclass(frozen=True, repr=False)
class ArrayPartition(Partition):
    """A range of rows; in another process a copy of them."""

    name: str
    X: object
    y: np.ndarray | None = None
    starts: np.ndarray | None = None
    holds_records = True

    def open(self) -> OpenPartition:
        return OpenPartition(self.X, self.y, self.starts)

    def __getstate__(self) -> dict:
        return self._sent

    @cached_property
    def _sent(self) -> dict:  # the same arrays in every step, so that joblib writes them once
        X, y = _without_file_map(self.X), _without_file_map(self.y)
        return {"name": self.name, "X": X, "y": y, "starts": self.starts}


def _without_file_map(array: Any) -> Any:
    """A copy of an array that is mapped copy-on-write: joblib would send its path, and the file lacks changes made here."""
    is_ragged = isinstance(array, Ragged)
    parts = (array.data, array.indices, array.indptr) if sp.issparse(array) else (array,)
    for part in (array.storage,) if is_ragged else parts:
        while isinstance(part, np.ndarray):
            if getattr(part, "mode", None) == "c":  # a memory map
                return array.copy() if is_ragged or sp.issparse(array) else np.array(array)
            part = part.base
    return array.packed() if is_ragged else array
