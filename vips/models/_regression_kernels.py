"""Kernels of the regression models for CSR rows: quadratic forms and weighted outer products over stored entries only.

A row's results are a function of that row alone, to the last bit, which BLAS does not promise.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["add_outer", "add_outer_rounded", "count_stored", "fill_rows", "quadratic_forms", "row_norms", "row_sums"]

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")


@_jit
def fill_rows(X, indices, data):
    """Entries of an array that are not 0, row by row: columns and values of its CSR form."""
    k = 0
    for n in range(X.shape[0]):
        for i in range(X.shape[1]):
            if X[n, i] != 0:
                indices[k] = i
                data[k] = X[n, i]
                k += 1


@_jit
def row_norms(indptr, data, norms):
    """L2 norms of CSR rows by their largest entry, so that squares neither overflow nor vanish; NaN if it is not finite."""
    for n in range(len(indptr) - 1):
        largest = 0.0
        for k in range(indptr[n], indptr[n + 1]):
            value = abs(data[k])
            if not value <= largest:
                largest = value
        if not np.isfinite(largest):
            norms[n] = np.nan
            continue
        total = 0.0
        if largest > 0.0:
            for k in range(indptr[n], indptr[n + 1]):
                ratio = data[k] / largest
                total += ratio * ratio
        norms[n] = largest * np.sqrt(total)


@_jit
def row_sums(indptr, values, sums):
    """Of CSR data, from left to right: a row's sum is a function of that row alone, to the last bit."""
    for n in range(len(indptr) - 1):
        total = 0.0
        for k in range(indptr[n], indptr[n + 1]):
            total += values[k]
        sums[n] = total


@_jit
def count_stored(X, counts):
    """Entries of each row that are not 0."""
    for n in range(X.shape[0]):
        count = 0
        for i in range(X.shape[1]):
            if X[n, i] != 0:
                count += 1
        counts[n] = count


@_jit
def quadratic_forms(indptr, indices, data, covariance, first, last, forms):
    """xᵀ Σ x of rows ``first`` to ``last``, Σ symmetric and of the dtype of ``data``."""
    for n in range(first, last):
        total = data.dtype.type(0.0)
        for a in range(indptr[n], indptr[n + 1]):
            row = covariance[indices[a]]
            inner = data.dtype.type(0.0)
            for b in range(indptr[n], a):
                inner += row[indices[b]] * data[b]
            total += data[a] * (inner + inner + row[indices[a]] * data[a])
        forms[n] = total


@_jit
def add_outer(indptr, indices, data, weights, first, last, total):
    """Lower triangle of Σ_n w_n x_n x_nᵀ, its rows ``first`` to ``last``; columns of a row are sorted."""
    for n in range(len(indptr) - 1):
        if weights[n] == 0.0:
            continue
        for a in range(indptr[n], indptr[n + 1]):
            i = indices[a]
            if i < first:
                continue
            if i >= last:
                break
            scaled = weights[n] * data[a]
            for b in range(indptr[n], a + 1):
                total[i, indices[b]] += scaled * data[b]


@_jit
def add_outer_rounded(indptr, indices, data, weights, unit, first, last, total):
    """As ``add_outer``, each record's share rounded to whole units of isometric coordinates (off-diagonal × √2)."""
    root_two = np.sqrt(2.0)
    for n in range(len(indptr) - 1):
        if weights[n] == 0.0:
            continue
        for a in range(indptr[n], indptr[n + 1]):
            i = indices[a]
            if i < first:
                continue
            if i >= last:
                break
            scaled = weights[n] * data[a] / unit
            for b in range(indptr[n], a):
                total[i, indices[b]] += np.rint(root_two * scaled * data[b])
            total[i, i] += np.rint(scaled * data[a])
