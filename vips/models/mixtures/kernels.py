"""Numba kernels of latent classes. Every row is computed by itself, in the same order of operations.

``places[n, j]`` is the level that record n has in column j, counted over all columns; -1 for a missing answer.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["add_shares", "responsibilities"]

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")


@_jit
def responsibilities(places, log_weights, log_answers, shares, log_likelihood):
    """r_nk and log Σ_k exp(log w_k + Σ_j log θ_k,places[n, j]); ``log_answers`` has shape (n_levels, K)."""
    for n in range(len(places)):
        row, largest, total = shares[n], -np.inf, 0.0
        for k in range(len(row)):
            row[k] = log_weights[k]
        for j in range(places.shape[1]):
            if places[n, j] >= 0:
                of_level = log_answers[places[n, j]]
                for k in range(len(row)):
                    row[k] += of_level[k]
        for k in range(len(row)):
            largest = max(largest, row[k])
        for k in range(len(row)):
            row[k] = np.exp(row[k] - largest)
            total += row[k]
        for k in range(len(row)):
            row[k] /= total
        log_likelihood[n] = largest + np.log(total)


@_jit
def add_shares(places, weighted, total):
    """Add each row of ``weighted``, of shape (n_records, K), to the rows of ``total`` at its answers."""
    for n in range(len(places)):
        for j in range(places.shape[1]):
            if places[n, j] >= 0:
                row = total[places[n, j]]
                for k in range(len(row)):
                    row[k] += weighted[n, k]
