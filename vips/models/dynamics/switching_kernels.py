"""Numba kernel of switching linear dynamical systems: structured mean field, each sequence by itself.

The states of a sequence are Gaussian given the shares of the regimes, and the regimes a chain given the states (Ghahramani and
Hinton, 2000). With h_t the shares at step t, states have the precision of blocks

    J_tt = Cᵀ R⁻¹ C + Σ_m h_t Q_m⁻¹ + Σ_m h_{t+1} A_mᵀ Q_m⁻¹ A_m,    J_{t,t-1} = -Σ_m h_t Q_m⁻¹ A_m

Regimes govern the moves from the second step on. Shares begin at those of the chain, whatever is seen.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled
from vips.models.dynamics.kernels import add_scaled, copy, divide_symmetric, fill, multiply, multiply_back

__all__ = ["infer"]

_jit = compiled(nogil=True, error_model="numpy")
_LOG_TWO_PI = float(np.log(2.0 * np.pi))


@_jit
def _inverse(S, L, out):
    """Inverse of a positive definite S, and log|S|; ``L`` is room for its factor."""
    fill(out, 0.0)
    for i in range(len(S)):
        out[i, i] = 1.0
    divide_symmetric(S, out, L, out)
    log_det = 0.0
    for i in range(len(S)):
        log_det += 2.0 * np.log(L[i, i])
    return log_det


@_jit
def _add_product(X, y, sign, out):
    """``out`` += sign X y."""
    for i in range(X.shape[0]):
        value = 0.0
        for k in range(X.shape[1]):
            value += X[i, k] * y[k]
        out[i] += sign * value


@_jit
def _weighted_moments(weights, cov, first, second):
    """Σ_ij of a (K, K) weight times cov + first secondᵀ."""
    total = 0.0
    for i in range(len(first)):
        for k in range(len(second)):
            total += weights[i, k] * (cov[i, k] + first[i] * second[k])
    return total


@_jit
def _next_shares(shares, start, moves, is_first, out):
    """Shares one step later, before anything is seen."""
    for m in range(len(start)):
        out[m] = start[m] if is_first else 0.0
        if not is_first:
            for i in range(len(start)):
                out[m] += shares[i] * moves[i, m]


@_jit
def _states(
    values, a, b, C, d, R, m0, inverse_P0, after, across, before, shares, J, lower, inverse, eta, mean, cov, lagged
):
    """Means, covariances and lagged covariances of the states given the shares; returns log|J|."""
    p, K = C.shape
    M, log_det = len(after), 0.0
    factor, product, other, row = np.empty((K, K)), np.empty((K, K)), np.empty((K, K)), np.empty(K)
    for t in range(a, b):
        S, low, e = J[t - a], lower[t - a], eta[t - a]
        fill(S, 0.0)
        fill(low, 0.0)
        for k in range(K):
            e[k] = 0.0
        if t == a:
            add_scaled(inverse_P0, 1.0, S)
            _add_product(inverse_P0, m0, 1.0, e)
        for m in range(M):
            if t > a:
                add_scaled(after[m], shares[t, m], S)
                add_scaled(across[m], -shares[t, m], low)
            if t < b - 1:
                add_scaled(before[m], shares[t + 1, m], S)
        for i in range(p):
            y = values[t, i]
            if np.isfinite(y):
                for k in range(K):
                    weight = C[i, k] / R[i]
                    e[k] += weight * (y - d[i])
                    for j in range(K):
                        S[k, j] += weight * C[i, j]
        if t > a:
            multiply(low, inverse[t - a - 1], product)
            multiply_back(product, low, other)
            add_scaled(other, -1.0, S)
            _add_product(product, eta[t - a - 1], -1.0, e)
        for i in range(K):
            for j in range(i):
                S[i, j] = S[j, i] = 0.5 * (S[i, j] + S[j, i])
        log_det += _inverse(S, factor, inverse[t - a])
    for t in range(b - 1, a - 1, -1):
        V = inverse[t - a]
        fill(lagged[t], 0.0)
        copy(V, cov[t])
        for k in range(K):
            mean[t, k] = 0.0
        if t == b - 1:
            _add_product(V, eta[t - a], 1.0, mean[t])
            continue
        low = lower[t - a + 1]
        for k in range(K):
            row[k] = eta[t - a, k]
            for i in range(K):
                row[k] -= low[i, k] * mean[t + 1, i]
        _add_product(V, row, 1.0, mean[t])
        multiply_back(V, low, product)
        multiply_back(cov[t + 1], product, lagged[t + 1])
        for i in range(K):
            for j in range(K):
                lagged[t + 1, i, j] *= -1.0
        multiply(product, lagged[t + 1], other)
        add_scaled(other, -1.0, cov[t])
        for i in range(K):
            for j in range(i):
                cov[t, i, j] = cov[t, j, i] = 0.5 * (cov[t, i, j] + cov[t, j, i])
    return log_det


@_jit
def _regimes(a, b, start, moves, likely, scale, shares, pair, forward):
    """Shares of the regimes and Σ_t of those at t - 1 and t, for densities exp(scale) likely; returns the log normaliser."""
    M, total, log_total = len(start), 0.0, 0.0
    back, ahead = np.empty(M), np.empty(M)
    for m in range(M):
        back[m] = 1.0
    fill(pair, 0.0)
    for t in range(a, b):
        now = forward[t - a]
        _next_shares(forward[t - a - 1], start, moves, t == a, now)
        total = 0.0
        for m in range(M):
            now[m] *= likely[t - a, m]
            total += now[m]
        for m in range(M):
            now[m] /= total
        log_total += np.log(total) + scale[t - a]
        scale[t - a] = total
    for t in range(b - 1, a - 1, -1):
        for m in range(M):
            shares[t, m] = forward[t - a, m] * back[m]
        if t > a:
            for m in range(M):
                ahead[m] = back[m] * likely[t - a, m] / scale[t - a]
            for i in range(M):
                for m in range(M):
                    pair[i, m] += forward[t - a - 1, i] * moves[i, m] * ahead[m]
            for m in range(M):
                back[m] = 0.0
            _add_product(moves, ahead, 1.0, back)
    return log_total


@_jit
def infer(
    values, offsets, first, last, C, d, R, m0, inverse_P0, log_det_P0, A, inverse_Q, log_det_Q, start, moves, max_iter,
    shares, pairs, mean, cov, lagged, bound,
):  # fmt: skip
    """For sequences ``first`` to ``last``: shares of the regimes, their pairs, states, and the evidence lower bound."""
    p, K = C.shape
    M = len(A)
    across, before = np.empty((M, K, K)), np.empty((M, K, K))
    for m in range(M):
        multiply(inverse_Q[m], A[m], across[m])
        multiply(A[m].T, across[m], before[m])
    for n in range(first, last):
        a, b = offsets[n], offsets[n + 1]
        T = b - a
        fill(pairs[n], 0.0)
        bound[n] = 0.0
        if T == 0:
            continue
        J, lower, inverse, eta = np.empty((T, K, K)), np.empty((T, K, K)), np.empty((T, K, K)), np.empty((T, K))
        likely, scale, forward = np.empty((T, M)), np.empty(T), np.empty((T, M))
        for t in range(a, b):
            _next_shares(shares[t - 1], start, moves, t == a, shares[t])
        for _ in range(max_iter):
            log_det = _states(
                values, a, b, C, d, R, m0, inverse_P0, inverse_Q, across, before, shares, J, lower, inverse, eta, mean, cov,
                lagged,
            )  # fmt: skip
            scale[0] = 0.0
            for m in range(M):
                likely[0, m] = 1.0
            for t in range(a + 1, b):
                scale[t - a] = -np.inf
                for m in range(M):
                    square = _weighted_moments(inverse_Q[m], cov[t], mean[t], mean[t])
                    square -= 2.0 * _weighted_moments(across[m], lagged[t], mean[t], mean[t - 1])
                    square += _weighted_moments(before[m], cov[t - 1], mean[t - 1], mean[t - 1])
                    likely[t - a, m] = -0.5 * (square + log_det_Q[m] + K * _LOG_TWO_PI)
                    scale[t - a] = max(scale[t - a], likely[t - a, m])
                for m in range(M):
                    likely[t - a, m] = np.exp(likely[t - a, m] - scale[t - a])
            log_total = _regimes(a, b, start, moves, likely, scale, shares, pairs[n], forward)
        error = np.empty(K)
        for k in range(K):
            error[k] = mean[a, k] - m0[k]
        value = log_total + 0.5 * (T * K * (_LOG_TWO_PI + 1.0) - log_det)
        value -= 0.5 * (K * _LOG_TWO_PI + log_det_P0 + _weighted_moments(inverse_P0, cov[a], error, error))
        for t in range(a, b):
            for i in range(p):
                y = values[t, i]
                if np.isfinite(y):
                    residual, spread = y - d[i], 0.0
                    for k in range(K):
                        residual -= C[i, k] * mean[t, k]
                        for j in range(K):
                            spread += C[i, k] * cov[t, k, j] * C[i, j]
                    value -= 0.5 * (_LOG_TWO_PI + np.log(R[i]) + (residual * residual + spread) / R[i])
        bound[n] = value
