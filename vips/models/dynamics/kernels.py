"""Numba kernels of linear dynamical systems. Every sequence is computed by itself, in the same order of operations.

``offsets[n]`` is where sequence n begins among all steps. An entry of ``values`` that is not finite is missing.

===================  ==========================================
A, Q (K, K)          moves of the state: x' ~ N(A x, Q)
C (p, K), d, R (p,)  what is seen: y ~ N(C x + d, diag R)
m0 (K,), P0 (K, K)   first state: N(m0, P0)
===================  ==========================================
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled

__all__ = [
    "add_scaled", "copy", "divide_symmetric", "fill", "filter_forward", "known_gains", "known_smoother", "means_known",
    "multiply", "multiply_back", "smooth_backward",
]  # fmt: skip

_jit = compiled(nogil=True, error_model="numpy")
_LOG_TWO_PI = float(np.log(2.0 * np.pi))


@_jit
def divide_symmetric(S, B, L, out):
    """``out``, which may be B, = B S⁻¹ for a positive definite S, by Cholesky; ``L`` is room for the factor."""
    K = len(S)
    for j in range(K):
        for i in range(j, K):
            value = S[i, j]
            for k in range(j):
                value -= L[i, k] * L[j, k]
            if i == j:
                L[j, j] = np.sqrt(value)
            else:
                L[i, j] = value / L[j, j]
    for row in range(len(B)):
        for i in range(K):
            value = B[row, i]
            for k in range(i):
                value -= L[i, k] * out[row, k]
            out[row, i] = value / L[i, i]
        for i in range(K - 1, -1, -1):
            value = out[row, i]
            for k in range(i + 1, K):
                value -= L[k, i] * out[row, k]
            out[row, i] = value / L[i, i]


@_jit
def fill(out, value):
    """All entries of ``out`` become ``value``. Loops, here and below: arrays of two dimensions in an assignment or a sum take
    Numba seconds to compile."""
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[i, k] = value


@_jit
def add_scaled(X, factor, out):
    """``out`` += factor X."""
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            out[i, k] += factor * X[i, k]


@_jit
def copy(X, out):
    """``out`` = X."""
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            out[i, k] = X[i, k]


@_jit
def multiply(X, Y, out):
    """``out`` = X Y."""
    for i in range(X.shape[0]):
        for j in range(Y.shape[1]):
            value = 0.0
            for k in range(X.shape[1]):
                value += X[i, k] * Y[k, j]
            out[i, j] = value


@_jit
def multiply_back(X, Y, out):
    """``out`` = X Yᵀ."""
    for i in range(X.shape[0]):
        for j in range(Y.shape[0]):
            value = 0.0
            for k in range(X.shape[1]):
                value += X[i, k] * Y[j, k]
            out[i, j] = value


@_jit
def _move_covariance(A, Q, V, product, out):
    """``out`` = A V Aᵀ + Q, exactly symmetric."""
    multiply(A, V, product)
    multiply_back(product, A, out)
    for i in range(len(A)):
        for j in range(i + 1):
            value = 0.5 * (out[i, j] + out[j, i]) + Q[i, j]
            out[i, j] = value
            out[j, i] = value


@_jit
def _see(V, gain, variance):
    """V - g gᵀ / variance, in place."""
    for k in range(len(V)):
        share = gain[k] / variance
        for j in range(k + 1):
            value = V[k, j] - share * gain[j]
            V[k, j] = value
            V[j, k] = value


@_jit
def _step_back(back, ahead_cov, before, product, now):
    """``now``, the covariance at t + 1 given all steps, becomes that at t: before + J (now - ahead) Jᵀ, exactly symmetric."""
    K = len(back)
    for i in range(K):
        for k in range(K):
            value = 0.0
            for j in range(K):
                value += back[i, j] * (now[j, k] - ahead_cov[j, k])
            product[i, k] = value
    for i in range(K):
        for j in range(i + 1):
            value = before[i, j]
            for k in range(K):
                value += 0.5 * (product[i, k] * back[j, k] + product[j, k] * back[i, k])
            now[i, j] = value
            now[j, i] = value


@_jit
def filter_forward(
    values, offsets, chosen, first, last, A, Q, C, d, R, m0, P0, ahead, ahead_cov, mean, cov, log_likelihood
):
    """For the sequences ``chosen[first:last]``: states given the steps before (``ahead``), and given those up to now.

    Means have the shape (n_steps, K), covariances (n_steps, K, K)."""
    p, K = C.shape
    product, gain = np.empty((K, K)), np.empty(K)
    for number in range(first, last):
        n = chosen[number]
        a, b = offsets[n], offsets[n + 1]
        log_likelihood[n] = 0.0
        for t in range(a, b):
            if t == a:
                for i in range(K):
                    ahead[t, i] = m0[i]
                copy(P0, ahead_cov[t])
            else:
                for i in range(K):
                    value = 0.0
                    for k in range(K):
                        value += A[i, k] * mean[t - 1, k]
                    ahead[t, i] = value
                _move_covariance(A, Q, cov[t - 1], product, ahead_cov[t])
            m, V = mean[t], cov[t]
            for k in range(K):
                m[k] = ahead[t, k]
            copy(ahead_cov[t], V)
            for i in range(p):
                y = values[t, i]
                if not np.isfinite(y):
                    continue
                error, variance = y - d[i], R[i]
                for k in range(K):
                    value = 0.0
                    for j in range(K):
                        value += V[k, j] * C[i, j]
                    gain[k] = value
                    error -= C[i, k] * m[k]
                    variance += C[i, k] * value
                log_likelihood[n] -= 0.5 * (_LOG_TWO_PI + np.log(variance) + error / variance * error)
                for k in range(K):
                    m[k] += gain[k] / variance * error
                _see(V, gain, variance)


@_jit
def smooth_backward(offsets, chosen, first, last, A, ahead, ahead_cov, mean, cov, lagged):
    """For the sequences ``chosen[first:last]``: ``mean`` and ``cov`` become those given the whole sequence; ``lagged[t]`` is
    the covariance of the states at t and t - 1, 0 at the first step."""
    K = len(A)
    product, backward, factor, now = np.empty((K, K)), np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    for number in range(first, last):
        n = chosen[number]
        a, b = offsets[n], offsets[n + 1]
        if a == b:
            continue
        fill(lagged[a], 0.0)
        for t in range(b - 2, a - 1, -1):
            multiply_back(cov[t], A, product)
            divide_symmetric(ahead_cov[t + 1], product, factor, backward)
            for i in range(K):
                value = mean[t, i]
                for k in range(K):
                    value += backward[i, k] * (mean[t + 1, k] - ahead[t + 1, k])
                mean[t, i] = value
            multiply_back(cov[t + 1], backward, lagged[t + 1])
            copy(cov[t + 1], now)
            _step_back(backward, ahead_cov[t + 1], cov[t], product, now)
            copy(now, cov[t])


@_jit
def known_gains(n_steps, A, Q, C, R, P0, gains, variances, ahead_cov, cov):
    """For a sequence in which nothing is missing: gains (n_steps, p, K) and variances (n_steps, p) of the scalar updates, and
    covariances of the states before and after them."""
    p, K = C.shape
    product = np.empty((K, K))
    for t in range(n_steps):
        if t == 0:
            copy(P0, ahead_cov[t])
        else:
            _move_covariance(A, Q, cov[t - 1], product, ahead_cov[t])
        V = cov[t]
        copy(ahead_cov[t], V)
        for i in range(p):
            gain, variance = gains[t, i], R[i]
            for k in range(K):
                value = 0.0
                for j in range(K):
                    value += V[k, j] * C[i, j]
                gain[k] = value
                variance += C[i, k] * value
            variances[t, i] = variance
            _see(V, gain, variance)
            for k in range(K):
                gain[k] /= variance


@_jit
def known_smoother(A, ahead_cov, cov, backs, last, total, lagged):
    """For sequences of ``len(cov)`` steps in which nothing is missing: ``cov`` given the whole sequence at the first and at the
    last step goes to ``last[0]`` and ``last[1]``; sums over steps to ``total`` and ``lagged``."""
    n_steps, K = len(cov), len(A)
    now, product, factor = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    for out in (now, last[1], total):
        copy(cov[n_steps - 1], out)
    fill(lagged, 0.0)
    for t in range(n_steps - 2, -1, -1):
        multiply_back(cov[t], A, product)
        divide_symmetric(ahead_cov[t + 1], product, factor, backs[t])
        multiply_back(now, backs[t], product)
        add_scaled(product, 1.0, lagged)
        _step_back(backs[t], ahead_cov[t + 1], cov[t], product, now)
        add_scaled(now, 1.0, total)
    copy(now, last[0])


@_jit
def means_known(
    values, offsets, chosen, first, last, A, C, d, m0, gains, variances, backs, ahead, mean, log_likelihood
):
    """For the sequences ``chosen[first:last]``, in which nothing is missing: means of the states given the whole sequence."""
    p, K = C.shape
    for number in range(first, last):
        n = chosen[number]
        a, b = offsets[n], offsets[n + 1]
        total, log_total = 0.0, 0.0
        for t in range(a, b):
            m = mean[t]
            for i in range(K):
                value = m0[i]
                if t > a:
                    value = 0.0
                    for k in range(K):
                        value += A[i, k] * mean[t - 1, k]
                ahead[t, i] = value
                m[i] = value
            for i in range(p):
                error = values[t, i] - d[i]
                for k in range(K):
                    error -= C[i, k] * m[k]
                total += error / variances[t - a, i] * error
                log_total += np.log(variances[t - a, i])
                for k in range(K):
                    m[k] += gains[t - a, i, k] * error
        log_likelihood[n] = -0.5 * (total + log_total + (b - a) * p * _LOG_TWO_PI)
        for t in range(b - 2, a - 1, -1):
            back = backs[t - a]
            for i in range(K):
                value = mean[t, i]
                for k in range(K):
                    value += back[i, k] * (mean[t + 1, k] - ahead[t + 1, k])
                mean[t, i] = value
