"""Numba kernels of Markov chains. Every sequence is computed by itself, in the same order of operations.

``offsets[n]`` is where sequence n begins among all steps. ``likely[t, k]`` is in proportion to the probability of what is seen
at step t in state k, and is 1 for a missing step. In factorial models the indicators of M chains with K states each form one
vector s of M K numbers: chain m has the entries m K to (m + 1) K.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled

__all__ = [
    "add_sums",
    "best_paths",
    "count_pairs",
    "fill_evidence",
    "fill_expected_log",
    "fill_likely",
    "fill_missing",
    "fill_pairs",
    "fill_steps",
    "neighbours",
]

_jit = compiled(nogil=True, error_model="numpy")


@_jit
def fill_likely(codes, tables, log_largest, first, last, likely, log_scale):
    """Rows of ``tables``, shape (n_symbols, K), for the codes of steps ``first`` to ``last``; NaN and what is no code: 1."""
    n_symbols, K = tables.shape
    for t in range(first, last):
        code = codes[t]
        if code >= 0 and code < n_symbols and np.int64(code) == code:
            row = tables[np.int64(code)]
            log_scale[t] = log_largest[np.int64(code)]
            for k in range(K):
                likely[t, k] = row[k]
        else:
            log_scale[t] = 0.0
            for k in range(K):
                likely[t, k] = 1.0


@_jit
def best_paths(offsets, log_start, log_moves, log_likely, states, log_probability):
    """Most probable states of each sequence (Viterbi), and the log probability of these states and what is seen."""
    K = len(log_start)
    for n in range(len(offsets) - 1):
        a, b = offsets[n], offsets[n + 1]
        log_probability[n] = 0.0
        if a == b:
            continue
        best = log_start + log_likely[a]
        origin = np.zeros((b - a, K), np.int32)
        for t in range(a + 1, b):
            after = np.empty(K)
            for k in range(K):
                top, argument = -np.inf, 0
                for i in range(K):
                    value = best[i] + log_moves[i, k]
                    if value > top:
                        top, argument = value, i
                after[k] = top + log_likely[t, k]
                origin[t - a, k] = argument
            best = after
        state = np.argmax(best)
        log_probability[n] = best[state]
        for t in range(b - 1, a - 1, -1):
            states[t] = state
            state = origin[t - a, state]


@_jit
def fill_pairs(codes, offsets, n_symbols, pairs):
    """``pairs[t]`` = n_symbols × the code at t - 1 + that at t; -1 where one of them is missing."""
    for n in range(len(offsets) - 1):
        before = -1
        for t in range(offsets[n], offsets[n + 1]):
            code, now = codes[t], -1
            if code >= 0 and code < n_symbols and np.int64(code) == code:
                now = np.int64(code)
            pairs[t] = before * n_symbols + now if before >= 0 and now >= 0 else -1
            before = now


@_jit
def count_pairs(codes, offsets, n_codes, places, first, last, table, pairs, counts, sums):
    """Different pairs of a code at step t - 1 and one at t in each sequence, of any columns of ``codes``; -1 is a missing one.
    They are ``pairs[a : a + counts[n]]``, a = ``places[n]``, ascending, and ``sums`` there says how often each comes. ``table``
    has a 0 for each pair of codes."""
    for n in range(first, last):
        for t in range(offsets[n] + 1, offsets[n + 1]):
            for i in range(codes.shape[1]):
                for j in range(codes.shape[1]):
                    before, now = codes[t - 1, i], codes[t, j]
                    if before >= 0 and now >= 0:
                        table[before * n_codes + now] += 1
        a = places[n]
        for pair in range(len(table)):
            if table[pair]:
                pairs[a], sums[a, 0] = pair, table[pair]
                table[pair] = 0
                a += 1
        counts[n] = a - places[n]


@_jit
def neighbours(codes, offsets, first, last, classes, shift, shares, pairs, start):
    """For sequences ``first`` to ``last``, with ``classes`` of shape (n_symbols, K): those of the symbol at t + ``shift``, 0
    where there is none; Σ_t of the products of those at t - 1 and t; and those of the first symbol."""
    n_symbols, K = classes.shape
    for n in range(first, last):
        a, b = offsets[n], offsets[n + 1]
        for i in range(K):
            start[n, i] = 0.0
            for k in range(K):
                pairs[n, i, k] = 0.0
        before = -1
        for t in range(a, b):
            code, now = codes[t], -1
            if code >= 0 and code < n_symbols and np.int64(code) == code:
                now = np.int64(code)
            if now >= 0 and t == a:
                for k in range(K):
                    start[n, k] = classes[now, k]
            if now >= 0 and before >= 0:
                for i in range(K):
                    for k in range(K):
                        pairs[n, i, k] += classes[before, i] * classes[now, k]
            before = now
            for k in range(K):
                shares[t, k] = 0.0
            if t + shift >= a and t + shift < b:
                code = codes[t + shift]
                if code >= 0 and code < n_symbols and np.int64(code) == code:
                    for k in range(K):
                        shares[t, k] = classes[np.int64(code), k]


@_jit
def fill_missing(X, is_missing):
    """Which steps have a number that is not finite; returns whether there are any."""
    any_missing = False
    for t in range(len(X)):
        total = 0.0
        for i in range(X.shape[1]):
            total += X[t, i] - X[t, i]
        is_missing[t] = total != 0.0
        any_missing = any_missing or is_missing[t]
    return any_missing


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
