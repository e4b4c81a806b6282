"""Numba kernels of Markov chains. Every sequence is computed by itself, in the same order of operations.

``offsets[n]`` is where sequence n begins among all steps. ``likely[t, k]`` is in proportion to the probability of what is seen
at step t in state k, and is 1 for a missing step.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled

__all__ = [
    "best_paths",
    "count_pairs",
    "fill_likely",
    "fill_missing",
    "fill_pairs",
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
