"""Kernels of the regression models: copies of rows, and for CSR rows quadratic forms and weighted outer products over stored
entries only.

A row's results are a function of that row alone, to the last bit. BLAS does not promise this.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled

__all__ = [
    "copy_beside",
    "copy_rows",
    "finish_rows",
    "quadratic_forms",
]

_jit = compiled(nogil=True, error_model="numpy")


@_jit
def copy_rows(source_indptr, source_indices, source_data, indptr, indices, data):
    """Entries of CSR rows, row n from ``indptr[n]`` on."""
    for n in range(len(indptr) - 1):
        shift = indptr[n] - source_indptr[n]
        for k in range(source_indptr[n], source_indptr[n + 1]):
            indices[shift + k] = source_indices[k]
            data[shift + k] = source_data[k]


@_jit
def finish_rows(indptr, indices, data, max_norm, intercept, n_features):
    """Scale rows into the ball, and write the intercept's constant in their last place if it is not 0.

    Entries are divided by the largest one before squaring, so that squares neither overflow nor vanish. A row whose norm is not
    finite becomes NaN.
    """
    for n in range(len(indptr) - 1):
        first, last = indptr[n], indptr[n + 1] - (intercept != 0.0)
        largest = 0.0
        for k in range(first, last):
            value = abs(data[k])
            if not value <= largest:
                largest = value
        if np.isfinite(largest):
            total = 0.0
            if largest > 0.0:
                for k in range(first, last):
                    ratio = data[k] / largest
                    total += ratio * ratio
            norm = largest * np.sqrt(total)
        else:
            norm = np.inf
        if not norm <= max_norm or norm == np.inf:
            scale = max_norm / norm if norm < np.inf else np.nan
            for k in range(first, last):
                data[k] *= scale
        if intercept != 0.0:
            indices[last] = n_features
            data[last] = intercept


@_jit
def copy_beside(X, intercept, rows):
    """Rows of ``X``, and the constant in the columns that ``rows`` has beyond them."""
    n_features = X.shape[1]
    for n in range(len(X)):
        for i in range(n_features):
            rows[n, i] = X[n, i]
        for i in range(n_features, rows.shape[1]):
            rows[n, i] = intercept


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
