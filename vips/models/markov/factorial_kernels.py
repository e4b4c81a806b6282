"""Kernels of factorial hidden Markov models: each row, and each sequence, is a function of itself alone.

The indicators of M chains with K states each form one vector s of M K numbers: chain m has the entries m K to (m + 1) K.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled

__all__ = ["add_sums", "fill_evidence", "fill_expected_log", "fill_steps"]

_jit = compiled(nogil=True, error_model="numpy")


@_jit
def fill_steps(X, is_missing, centre, whitening, gains, precision, first, last, z, scores, squares):
    """For rows ``first`` to ``last``: z = T (x - m), its scores Gᵀ z, and zᵀ E[Λ] z; 0 where a row is missing."""
    d = X.shape[1]
    for t in range(first, last):
        squares[t] = 0.0
        scores[t] = 0.0
        z[t] = 0.0
        if is_missing[t]:
            continue
        for i in range(d):
            for j in range(i + 1):  # T is lower triangular
                z[t, i] += whitening[i, j] * (X[t, j] - centre[j])
        for i in range(d):
            for r in range(scores.shape[1]):
                scores[t, r] += z[t, i] * gains[i, r]
            for j in range(d):
                squares[t] += z[t, i] * precision[i, j] * z[t, j]


@_jit
def fill_evidence(scores, is_missing, overlap, shares, m, K, first, last, log_likely, likely, log_scale):
    """Expected log density of each row in each state of chain m, given the shares of the others, but for a constant; and its
    exponential, in proportion to the largest one."""
    R = shares.shape[1]
    a = m * K
    for t in range(first, last):
        largest = -np.inf
        for k in range(K):
            value = 0.0
            if not is_missing[t]:
                value = scores[t, a + k] - 0.5 * overlap[a + k, a + k]
                for r in range(R):
                    if r < a or r >= a + K:
                        value -= overlap[a + k, r] * shares[t, r]
            log_likely[t, a + k] = value
            largest = max(largest, value)
        for k in range(K):
            likely[t, k] = np.exp(log_likely[t, a + k] - largest)
        log_scale[t] = largest


@_jit
def fill_expected_log(
    offsets, is_missing, scores, squares, overlap, shares, constant, log_likely, n_states, first, last, out
):
    """For sequences ``first`` to ``last``: Σ_t E log p(y_t | s_t) less what the chains' normalisers have of it already."""
    R, K = shares.shape[1], n_states
    for n in range(first, last):
        out[n] = 0.0
        for t in range(offsets[n], offsets[n + 1]):
            if is_missing[t]:
                continue
            value = constant - 0.5 * squares[t]
            for r in range(R):
                a = r // K * K
                score = scores[t, r] - 0.5 * overlap[r, r] - log_likely[t, r]
                for other in range(R):
                    if other < a or other >= a + K:
                        score -= 0.5 * overlap[r, other] * shares[t, other]
                value += shares[t, r] * score
            out[n] += value


@_jit
def add_sums(offsets, is_missing, z, shares, n_states, first, last, both, linear, second):
    """Sums of sequences ``first`` to ``last``: Σ_t of E[s sᵀ], of s zᵀ and of z zᵀ, over steps that are not missing."""
    R, d, K = shares.shape[1], z.shape[1], n_states
    for n in range(first, last):
        both[n] = 0.0
        linear[n] = 0.0
        second[n] = 0.0
        for t in range(offsets[n], offsets[n + 1]):
            if is_missing[t]:
                continue
            for r in range(R):
                both[n, r, r] += shares[t, r]
                for other in range(r // K * K):
                    both[n, r, other] += shares[t, r] * shares[t, other]
                for i in range(d):
                    linear[n, r, i] += shares[t, r] * z[t, i]
            for i in range(d):
                for j in range(i + 1):
                    second[n, i, j] += z[t, i] * z[t, j]
        for r in range(R):
            for other in range(r // K * K):
                both[n, other, r] = both[n, r, other]
        for i in range(d):
            for j in range(i):
                second[n, j, i] = second[n, i, j]
