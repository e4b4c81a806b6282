"""Numba kernels that add up the statistics of sequences, each sequence by itself.

``offsets[n]`` is where sequence n begins among all steps. An entry of ``values`` that is not finite is missing.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled
from vips.models.dynamics.kernels import add_scaled

__all__ = ["add_covariances", "add_lagged", "add_regimes", "add_states"]

_jit = compiled(nogil=True, error_model="numpy")


@_jit
def add_states(values, offsets, first, last, mean, begin, end, states, cross, seen, loadings, squares):
    """For sequences ``first`` to ``last``, the part of the statistics that the states' means give (``statistics.py``)."""
    K, p = mean.shape[1], values.shape[1]
    for n in range(first, last):
        a, b = offsets[n], offsets[n + 1]
        for t in range(a, b):
            m = mean[t]
            for i in range(K):
                for k in range(K):
                    states[n, i, k] += m[i] * m[k]
                    if t > a:
                        cross[n, i, k] += m[i] * mean[t - 1, k]
            for c in range(p):
                y = values[t, c]
                if not np.isfinite(y):
                    continue
                squares[n, c] += y * y
                loadings[n, c, K] += y
                seen[n, c, K, K] += 1.0
                for i in range(K):
                    loadings[n, c, i] += y * m[i]
                    seen[n, c, i, K] += m[i]
                    seen[n, c, K, i] += m[i]
                    for k in range(K):
                        seen[n, c, i, k] += m[i] * m[k]
        if b > a:
            for i in range(K):
                for k in range(K):
                    begin[n, i, k] += mean[a, i] * mean[a, k]
                    end[n, i, k] += mean[b - 1, i] * mean[b - 1, k]


@_jit
def add_covariances(values, offsets, chosen, first, last, cov, lagged, begin, end, states, cross, seen):
    """As ``add_states``, the part of the covariances, of the sequences ``chosen[first:last]``."""
    K, p = cov.shape[1], values.shape[1]
    for number in range(first, last):
        n = chosen[number]
        a, b = offsets[n], offsets[n + 1]
        for t in range(a, b):
            add_scaled(cov[t], 1.0, states[n])
            add_scaled(lagged[t], 1.0, cross[n])
            for c in range(p):
                if np.isfinite(values[t, c]):
                    for i in range(K):
                        for k in range(K):
                            seen[n, c, i, k] += cov[t, i, k]
        if b > a:
            add_scaled(cov[a], 1.0, begin[n])
            add_scaled(cov[b - 1], 1.0, end[n])


@_jit
def add_lagged(rows, offsets, first, last, second, lagged):
    """Sums of sequences ``first`` to ``last``: Σ_t z_t z_tᵀ, and Σ_t z_{t+k} z_tᵀ for k = 1, 2, …; shape (n, n_lags, D, D)."""
    D, n_lags = rows.shape[1], lagged.shape[1]
    for n in range(first, last):
        a, b = offsets[n], offsets[n + 1]
        for t in range(a, b):
            now = rows[t]
            for i in range(D):
                x, out = now[i], second[n, i]
                for j in range(D):
                    out[j] += x * now[j]
            for k in range(1, min(n_lags, b - 1 - t) + 1):
                later = rows[t + k]
                for i in range(D):
                    x, out = later[i], lagged[n, k - 1, i]
                    for j in range(D):
                        out[j] += x * now[j]


@_jit
def add_regimes(offsets, first, last, shares, mean, cov, lagged, before, after, cross, regimes, begin):
    """For sequences ``first`` to ``last`` and each regime: sums of its share at t times the second moments of the states at
    t - 1, at t, and of both; its share in the steps but the first, and in the first one."""
    K, M = mean.shape[1], shares.shape[1]
    for n in range(first, last):
        a, b = offsets[n], offsets[n + 1]
        for m in range(M if b > a else 0):
            begin[n, m] = shares[a, m]
        for t in range(a + 1, b):
            for m in range(M):
                share = shares[t, m]
                regimes[n, m] += share
                for i in range(K):
                    for k in range(K):
                        before[n, m, i, k] += share * (cov[t - 1, i, k] + mean[t - 1, i] * mean[t - 1, k])
                        after[n, m, i, k] += share * (cov[t, i, k] + mean[t, i] * mean[t, k])
                        cross[n, m, i, k] += share * (lagged[t, i, k] + mean[t, i] * mean[t - 1, k])
