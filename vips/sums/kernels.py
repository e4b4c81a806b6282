"""Numba kernels of sums. Every record is computed by itself, in the same order of operations.

``offsets[n]`` is where record n begins among all rows.
"""

from __future__ import annotations

import numpy as np

from vips._compute.compiled import compiled

__all__ = ["add_by_symbol", "add_emissions", "fill_squares", "fill_sums", "group_symbols"]

_jit = compiled(nogil=True, error_model="numpy")


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


@_jit
def group_symbols(codes, offsets, first, last, place_of, symbols, places, counts):
    """Different symbols of each sequence: they are ``symbols[a : a + counts[n]]``, a = ``offsets[n]``, ascending, and step t
    has the one at ``places[t]``; -1 for a missing step, and in ``place_of``, of shape (n_symbols,), before and after."""
    n_symbols = len(place_of)
    for n in range(first, last):
        a, b = offsets[n], offsets[n + 1]
        u = 0
        for t in range(a, b):
            code = codes[t]
            is_code = code >= 0 and code < n_symbols and np.int64(code) == code
            if is_code and place_of[np.int64(code)] < 0:
                place_of[np.int64(code)] = a
                symbols[a + u] = np.int64(code)
                u += 1
        if u * u > n_symbols:  # they come in order where all symbols are gone through
            i = a
            for symbol in range(n_symbols):
                if place_of[symbol] >= 0:
                    symbols[i] = symbol
                    i += 1
        else:
            for i in range(a + 1, a + u):
                symbol, j = symbols[i], i
                while j > a and symbols[j - 1] > symbol:
                    symbols[j] = symbols[j - 1]
                    j -= 1
                symbols[j] = symbol
        counts[n] = u
        for i in range(a, a + u):
            place_of[symbols[i]] = i
        for t in range(a, b):
            code = codes[t]
            is_code = code >= 0 and code < n_symbols and np.int64(code) == code
            places[t] = place_of[np.int64(code)] if is_code else -1
        for i in range(a, a + u):
            place_of[symbols[i]] = -1


@_jit
def add_emissions(offsets, first, last, shares, places, counts, sums):
    """Σ of ``shares`` over the steps of a sequence with one symbol, at the symbol's place in ``sums``, shape (n_steps, K)."""
    K = shares.shape[1]
    for n in range(first, last):
        a, b = offsets[n], offsets[n + 1]
        for i in range(a, a + counts[n]):
            sums[i] = 0.0
        for t in range(a, b):
            if places[t] >= 0:
                row, share = sums[places[t]], shares[t]
                for k in range(K):
                    row[k] += share[k]


@_jit
def add_by_symbol(offsets, counts, symbols, weights, sums, total):
    """Add w_n times each sequence's ``sums`` to the rows of ``total``, shape (n_symbols, K). Weight 0: left out."""
    K = total.shape[1]
    for n in range(len(weights)):
        if weights[n] == 0:
            continue
        for i in range(offsets[n], offsets[n] + counts[n]):
            row, share, weight = total[symbols[i]], sums[i], weights[n]
            for k in range(K):
                row[k] += weight * share[k]


@_jit
def fill_squares(offsets, counts, sums, squares):
    """‖sums‖² of each sequence."""
    for n in range(len(counts)):
        square = 0.0
        for i in range(offsets[n], offsets[n] + counts[n]):
            for k in range(sums.shape[1]):
                square += sums[i, k] * sums[i, k]
        squares[n] = square
