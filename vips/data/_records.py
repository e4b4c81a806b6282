"""Selected rows, as models receive them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["OpenPartition", "Records", "rows_without"]


@dataclass(frozen=True)
class Records:
    """Selected rows of ``X`` with their labels; what a model receives when labels were passed to ``fit``."""

    X: object
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.X.shape

    def __getitem__(self, rows: np.ndarray) -> Records:
        """Some of the records, as NumPy indexes rows."""
        return type(self)(self.X[rows], self.y[rows])


@dataclass(frozen=True, repr=False)
class OpenPartition:
    """The rows of one partition, in memory or mapped into it. Only chunks are copied.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_records, n_features)
    y : ndarray of shape (n_records, ...), optional
    """

    X: object
    y: np.ndarray | None = None

    @property
    def n_records(self) -> int:
        """Number of rows: private."""
        return self.X.shape[0]

    def without_labels(self) -> OpenPartition:
        """The same rows for a model that takes no labels."""
        return self if self.y is None else OpenPartition(self.X)

    def chunks(self, rows: np.ndarray, chunk_size: int) -> Iterator:
        """Those ``rows`` (ascending), at most ``chunk_size`` at a time, in order: rows of X, or ``Records``."""
        for first in range(0, len(rows), chunk_size):
            yield self._select(rows[first : first + chunk_size])

    def _select(self, rows: np.ndarray):
        # A whole range, as in a full batch, is a view. (Not for CSR: SciPy's slices drop entries of columns that do not exist;
        # its selections keep them, so that the record is found to be defective.)
        if isinstance(self.X, np.ndarray) and rows[-1] - rows[0] + 1 == len(rows):
            rows = slice(rows[0], rows[-1] + 1)
        X = self.X[rows]
        return X if self.y is None else Records(X, self.y[rows])


def rows_without(bad: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Which rows of a CSR matrix have no ``bad`` stored entry; shape (n_rows,)."""
    valid = np.ones(len(indptr) - 1, dtype=bool)
    valid[np.searchsorted(indptr, np.flatnonzero(bad), side="right") - 1] = False
    return valid
