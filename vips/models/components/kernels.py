"""Numba kernels of components. Every row and every record is computed by itself, in the same order of operations.

``places[n, j]`` is the level that record n has in column j, counted over all columns of categories; -1 for a missing answer.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled

__all__ = ["fill_likely", "find_places", "responsibilities"]

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
def responsibilities(places, log_answers, shares, log_likelihood):
    """r_nk, and log Σ_k exp(s_nk + Σ_j log θ_k,places[n, j]).

    ``shares`` holds s, the scores of what is no answer, and then r; ``log_answers`` has shape (n_levels, K).
    """
    for n in range(len(places)):
        row = shares[n]
        for j in range(places.shape[1]):
            if places[n, j] >= 0:
                of_level = log_answers[places[n, j]]
                for k in range(len(row)):
                    row[k] += of_level[k]
        largest, total = -np.inf, 0.0
        for k in range(len(row)):
            largest = max(largest, row[k])
        for k in range(len(row)):
            row[k] = np.exp(row[k] - largest)
            total += row[k]
        for k in range(len(row)):
            row[k] /= total
        log_likelihood[n] = largest + np.log(total)
