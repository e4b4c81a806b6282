"""Numba kernels of components. Every row and every record is computed by itself, in the same order of operations."""

from __future__ import annotations

import numpy as np

from vips._compute.compiled import compiled

__all__ = ["fill_likely", "fill_sums", "find_places"]

_jit = compiled(nogil=True, error_model="numpy")


@_jit
def find_places(codes, levels, starts, places):
    """Level of each code, counted over all columns; -1 for NaN, fractions and numbers that are no code of their column."""
    for n in range(len(codes)):
        for j in range(len(levels)):
            code, places[n, j] = codes[n, j], -1
            if code >= 0 and code < levels[j] and np.int64(code) == code:
                places[n, j] = starts[j] + np.int64(code)


@_jit
def fill_likely(scores, least, likely, log_scale):
    """Rows of exp(``scores``), shape (n, K), over their largest entries, at least ``least``; and the logarithms of these."""
    for n in range(len(scores)):
        log_scale[n] = -np.inf
        for k in range(scores.shape[1]):
            log_scale[n] = max(log_scale[n], scores[n, k])
        for k in range(scores.shape[1]):
            likely[n, k] = max(np.exp(scores[n, k] - log_scale[n]), least)


@_jit
def fill_sums(rows, shares, offsets, first, last, sums):
    """Σ_t ``shares[t]`` ⊗ ``rows[t]`` of records ``first`` to ``last``, shape (last - first, K, width)."""
    for n in range(first, last):
        total = sums[n - first]
        total[:] = 0.0
        for t in range(offsets[n], offsets[n + 1]):
            for k in range(shares.shape[1]):
                share, of_component = shares[t, k], total[k]
                if share != 0.0:
                    for j in range(rows.shape[1]):
                        of_component[j] += share * rows[t, j]
