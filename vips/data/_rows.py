"""Rows of CSR matrices with all their entries, in whatever columns: SciPy's slices drop entries of nonexistent columns.

A defective record is found by its entries, so that none may be lost before it is checked.
"""

from __future__ import annotations

import numba
import numpy as np

from vips._compute.threads import run_ranges

__all__ = ["range_of_rows", "some_rows"]

_LEAST_ENTRIES = 50_000  # below it, one thread copies


def range_of_rows(X, rows: slice):
    """Rows ``start`` to ``stop`` of a CSR matrix, as a view."""
    indptr = X.indptr[rows.start : rows.stop + 1]
    stored = slice(indptr[0], indptr[-1])
    return _csr(X, X.data[stored], X.indices[stored], indptr - indptr[0])


def some_rows(X, rows: np.ndarray):
    """``X[rows]`` of a CSR matrix."""
    if X.data.dtype.kind not in "biuf" or X.data.itemsize > 8 or X.indices.dtype != X.indptr.dtype:
        return X[rows]
    begins = X.indptr[rows].astype(np.int64)
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(X.indptr[rows + 1] - begins, out=indptr[1:])
    data, indices = np.empty(indptr[-1], X.data.dtype), np.empty(indptr[-1], X.indices.dtype)

    def copy(first: int, last: int) -> None:
        for source, target in ((X.data, data), (X.indices, indices)):
            whole = f"u{source.itemsize}"  # few types to compile for
            _copy_rows(source.view(whole), begins, indptr, first, last, target.view(whole))

    run_ranges(copy, indptr, least_work=_LEAST_ENTRIES)
    return _csr(X, data, indices, indptr.astype(X.indptr.dtype))


def _csr(X, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray):
    """A matrix like X of these arrays, which a constructor would check or copy."""
    result = type(X)((len(indptr) - 1, X.shape[1]), dtype=X.dtype)
    result.data, result.indices, result.indptr = data, indices, indptr
    return result


@numba.njit(nogil=True, cache=True)
def _copy_rows(source, begins, indptr, first, last, target):
    for i in range(first, last):
        row = target[indptr[i] : indptr[i + 1]]
        entries = source[begins[i] : begins[i] + len(row)]
        for j in range(len(row)):
            row[j] = entries[j]
