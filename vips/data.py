"""Data access by record index: what the engine samples from.

Rows are sampled in fixed ranges (which bounds memory), and a row's coin depends on its index alone, so that neither
depends on how a fit is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

__all__ = ["InMemoryData", "Records", "check_data", "rows_without"]

PARTITION_SIZE = 65_536


@dataclass(frozen=True)
class Records:
    """Selected rows of ``X`` with their labels; what a model receives when ``y`` was passed to ``fit``."""

    X: object
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.X.shape


class InMemoryData:
    """Rows of an array, a memory-mapped array or a CSR matrix, with optional labels. Nothing is copied but chunks.

    Parameters
    ----------
    X : ndarray, memmap or CSR of shape (n_records, n_features)
    y : ndarray of shape (n_records, ...), optional
    """

    def __init__(self, X, y: np.ndarray | None = None) -> None:
        self._X, self._y = X, y

    @property
    def n_records(self) -> int:
        """Number of rows: private. Only a non-private fit may ask."""
        return self._X.shape[0]

    def chunks(
        self, sample: Callable[[int, int], np.ndarray], chunk_size: int
    ) -> Iterator[np.ndarray | sp.csr_array | Records]:
        """The records that ``sample(start, stop)`` picks among those rows, at most ``chunk_size`` at a time, in order."""
        n_records = self.n_records
        for start in range(0, n_records, PARTITION_SIZE):
            picked = sample(start, min(start + PARTITION_SIZE, n_records))
            for first in range(0, len(picked), chunk_size):
                yield self._select(picked[first : first + chunk_size])

    def _select(self, rows: np.ndarray):
        # all of a range, as in a full batch, is not copied. (Not so for CSR: SciPy's slices drop entries of columns that do not
        # exist, its selections keep them, and then the record is found to be defective.)
        if isinstance(self._X, np.ndarray) and rows[-1] - rows[0] + 1 == len(rows):
            rows = slice(rows[0], rows[-1] + 1)
        X = self._X[rows]
        return X if self._y is None else Records(X, self._y[rows])


def rows_without(bad: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Rows of a CSR matrix none of whose stored entries is ``bad``; shape (n_rows,)."""
    valid = np.ones(len(indptr) - 1, dtype=bool)
    valid[np.searchsorted(indptr, np.flatnonzero(bad), side="right") - 1] = False
    return valid


def check_data(X, y=None) -> InMemoryData:
    """Wrap ``X`` (and ``y``) for a private fit, looking at public facts only: container, dtype, number of columns.

    Values are not looked at: whether a record is valid is decided per record, later, and changes nothing but that
    record's contribution.

    Raises
    ------
    TypeError
        If the dtype is not boolean, integer or real, or the container is not a table of numbers.
    ValueError
        If ``X`` is not two-dimensional, or ``y`` has another number of rows.
    """
    if sp.issparse(X):
        X = X.tocsr()
        X.check_format(full_check=False)
    else:  # as a plain array: a matrix or masked array would index and compare in ways of its own, for some records only
        X = np.asarray(X if isinstance(X, np.ndarray) else _to_array(X, "X"))
    if sp.issparse(X) and (np.diff(X.indptr) < 0).any():
        raise ValueError("X is not a CSR matrix: its indptr decreases.")
    _check_dtype(X, "X")
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: X has one row per record.")
    if y is None:
        return InMemoryData(X)
    y = np.asarray(y if isinstance(y, np.ndarray) else _to_array(y, "y"))
    _check_dtype(y, "y")
    if y.shape[:1] != X.shape[:1]:
        raise ValueError("X and y have different numbers of rows.")
    return InMemoryData(X, y)


def _to_array(values, name: str) -> np.ndarray:
    """Data frames and series, whose dtypes are declared. The dtype of a list depends on its values."""
    if not hasattr(values, "to_numpy"):
        raise TypeError(
            f"A private fit needs {name} as an array, CSR matrix or data frame, got {type(values).__name__}: its dtype "
            f"would depend on its values. Convert it first, e.g. numpy.asarray({name}, dtype=float)."
        )
    # By the declared types: those of pandas' own (nullable, categorical, sparse) become this or that NumPy type by value.
    declared = values.dtypes if hasattr(values, "dtypes") else values.dtype
    declared = list(declared) if np.ndim(declared) or hasattr(declared, "__iter__") else [declared]
    for dtype in declared:
        if not isinstance(dtype, np.dtype):
            raise TypeError(
                f"A private fit needs columns of {name} with NumPy dtypes, got {dtype}: what it is converted to would depend "
                f"on its values. Convert it first, e.g. {name}.astype(float)."
            )
    try:
        return np.asarray(values.to_numpy())
    except Exception:  # the original message may quote a value
        raise TypeError(f"{name} cannot be read as an array of numbers with one row per record.") from None


def _check_dtype(array, name: str) -> None:
    """What NumPy and SciPy compute with in every case: anything else could fail for some records and not for others."""
    dtype = array.dtype
    usable = dtype.isnative and (dtype.kind in "biu" or dtype in (np.float32, np.float64))
    if not usable:
        raise TypeError(
            f"A private fit needs numbers (booleans, integers, float32 or float64 in native byte order), but {name} has "
            f"dtype {dtype}: converting it would let an error depend on a record. Convert it first, e.g. "
            f"{name}.astype(numpy.float64)."
        )
