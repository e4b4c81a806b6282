"""Numba kernels of sums. Every record is computed by itself, in the same order of operations.

``offsets[n]`` is where record n begins among all rows. ``places[n, j]`` is the level that record n has in column j, counted
over all columns of categories; -1 for a missing answer. Kernels of words take:

===========  ==========================  =====================================================
symbol       name                        meaning
===========  ==========================  =====================================================
θ̃_dk         ``topic_weights[d, k]``     of a document
r_dv         ``ratios``                  of each stored word of a document
c_kv B_kv    ``scaled_weights[v, k]``    of a word, public
===========  ==========================  =====================================================
"""

from __future__ import annotations

# numba's cache notices changes of this file only, not of the inlined functions of lanes.py: version 9af7140d
import numpy as np

from vips.core.exact.compiled import FASTMATH, compiled
from vips.core.exact.lanes import WIDTH, load, total, widen, zeros

__all__ = [
    "CACHED",
    "add_answers",
    "add_by_symbol",
    "add_emissions",
    "add_outer",
    "add_rounded_outer",
    "add_rounded_words",
    "fill_answer_norms",
    "fill_squares",
    "fill_sums",
    "fill_word_norms",
    "group_symbols",
    "row_sums",
    "sum_words",
    "unpack",
]

CACHED = 32_768  # entries of a sum over words that are added to at a time: 256 KiB
_jit = compiled(nogil=True, error_model="numpy")
_fast = compiled(nogil=True, fastmath=FASTMATH, error_model="numpy")
_inline = compiled(nogil=True, fastmath=FASTMATH, error_model="numpy", inline="always")


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


@_jit
def unpack(packed, matrices):
    """Symmetric matrices from the rows of their upper triangles."""
    n_hidden = matrices.shape[1]
    for j in range(len(packed)):
        i = 0
        for k in range(n_hidden):
            for m in range(k, n_hidden):
                matrices[j, k, m] = packed[j, i]
                i += 1
            for m in range(k):
                matrices[j, k, m] = matrices[j, m, k]


@_jit
def add_rounded_outer(left, right, correction, weights, unit, total):
    """Σ_n of w_n left_n right_nᵀ / unit, each record's share rounded to whole numbers; exact in any order.

    ``correction``, if not None, is (left', right', factor): left'_n right'_nᵀ ∘ factor is subtracted before rounding.
    """
    for n in range(left.shape[0]):
        if weights[n] == 0.0:
            continue
        for j in range(left.shape[1]):
            for k in range(right.shape[1]):
                share = left[n, j] * right[n, k]
                if correction is not None:
                    share -= correction[0][n, j] * correction[1][n, k] * correction[2][j, k]
                total[j, k] += np.rint(weights[n] * share / unit)


@_jit
def fill_answer_norms(places, shares, of_rest, of_answer, norms):
    """‖r_n‖ √(``of_rest[n]`` + number of answers × ``of_answer``)."""
    for n in range(len(places)):
        square, factor = 0.0, of_rest[n]
        for k in range(shares.shape[1]):
            square += shares[n, k] * shares[n, k]
        for j in range(places.shape[1]):
            if places[n, j] >= 0:
                factor += of_answer
        norms[n] = np.sqrt(square * factor)


@_jit
def add_answers(places, weights, shares, count, total):
    """Add w_n r_n to ``count`` and to the rows of ``total``, of shape (n_levels, K), at its answers. Weight 0: left out."""
    weighted = np.empty_like(count)
    for n in range(len(places)):
        if weights[n] == 0:
            continue
        for k in range(len(count)):
            weighted[k] = weights[n] * shares[n, k]
            count[k] += weighted[k]
        for j in range(places.shape[1]):
            if places[n, j] >= 0:
                row = total[places[n, j]]
                for k in range(len(count)):
                    row[k] += weighted[k]


@_jit
def row_sums(indptr, values, sums):
    """Row sums of CSR data, added from left to right: a row's sum is a function of that row alone, to the last bit."""
    for n in range(len(indptr) - 1):
        total = 0.0
        for k in range(indptr[n], indptr[n + 1]):
            total += values[k]
        sums[n] = total


@_jit
def add_outer(indptr, indices, data, weights, unit, first, last, total):
    """Lower triangle of Σ_n w_n x_n x_nᵀ, its rows ``first`` to ``last``; columns of a row are sorted.

    With a ``unit`` (not None) each record's share is rounded to whole units of isometric coordinates (off-diagonal × √2).
    """
    root_two = np.sqrt(2.0)
    for n in range(len(indptr) - 1):
        if weights[n] == 0.0:
            continue
        for a in range(indptr[n], indptr[n + 1]):
            i = indices[a]
            if i < first:
                continue
            if i >= last:
                break
            scaled = weights[n] * data[a]
            if unit is None:
                for b in range(indptr[n], a + 1):
                    total[i, indices[b]] += scaled * data[b]
            else:
                scaled /= unit
                for b in range(indptr[n], a):
                    total[i, indices[b]] += np.rint(root_two * scaled * data[b])
                total[i, i] += np.rint(scaled * data[a])


@_fast
def fill_word_norms(indptr, indices, ratios, topic_weights, scaled_weights, start, stop, norms):
    """``norms[d]`` = sqrt(Σ_kv (θ̃_k r_v c_kv B_kv)²), in double precision, from the numbers that ``sum_words`` sums."""
    width = topic_weights.shape[1]
    weights = np.empty(width)
    nothing, one = zeros(weights, 1), zeros(scaled_weights, 1)
    for d in range(start, stop):
        for k in range(width):
            weights[k] = topic_weights[d, k]
        squares = nothing
        for j in range(indptr[d], indptr[d + 1]):
            place, of_word = indices[j] * width, nothing
            for k in range(0, width, WIDTH):
                share = load(weights, k, nothing) * widen(load(scaled_weights, place + k, one))
                of_word = share * share + of_word
            ratio = np.float64(ratios[j])
            squares = of_word * ratio * ratio + squares  # from the left: ratio² alone may underflow
        norms[d] = np.sqrt(total(squares))


@_inline
def _first_entries(indptr, indices, first_word):
    """Position of each document's first entry with a word from ``first_word`` on. Words of a document are sorted."""
    entries = np.empty(len(indptr) - 1, indptr.dtype)
    for d in range(len(entries)):
        low, high = indptr[d], indptr[d + 1]
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < first_word:
                low = middle + 1
            else:
                high = middle
        entries[d] = low
    return entries


@_fast
def sum_words(indptr, indices, ratios, topic_weights, record_weights, scaled_weights, first_word, last_word, total):
    """``total[k, v] = c_kv B_kv Σ_d w_d r_dv θ̃_dk`` for the words ``first_word <= v < last_word``.

    A record of weight 0 is skipped, not multiplied. Each entry is summed in the order of the documents, so that the
    result does not depend on how words are divided among threads and blocks that fit the cache.
    """
    n_topics = topic_weights.shape[1]
    entries, n_words = _first_entries(indptr, indices, first_word), max(1, CACHED // n_topics)
    sums = np.empty((n_words, n_topics))
    for start in range(first_word, last_word, n_words):
        stop = min(start + n_words, last_word)
        for v in range(n_words):
            for k in range(n_topics):
                sums[v, k] = 0.0
        for d in range(len(record_weights)):
            if record_weights[d] == 0.0:
                continue
            weights, j, end = topic_weights[d], entries[d], indptr[d + 1]
            while j < end and indices[j] < stop:
                scale = record_weights[d] * ratios[j]
                row = sums[indices[j] - start]
                for k in range(n_topics):
                    row[k] += scale * weights[k]
                j += 1
            entries[d] = j
        for k in range(len(total)):
            for v in range(start, stop):
                total[k, v] = sums[v - start, k] * scaled_weights[v, k]


@_fast
def add_rounded_words(
    indptr, indices, ratios, topic_weights, record_weights, scaled_weights, unit, first_word, last_word, total
):
    """``total[v, k] += Σ_d round(w_d r_dv θ̃_dk c_kv B_kv / unit)`` in whole numbers: exact below 2⁵³, whatever the order."""
    n_topics = topic_weights.shape[1]
    entries = _first_entries(indptr, indices, first_word)
    for d in range(len(record_weights)):
        if record_weights[d] == 0.0:
            continue
        weights, j = topic_weights[d], entries[d]
        while j < indptr[d + 1] and indices[j] < last_word:
            v = indices[j]
            scale = record_weights[d] * np.float64(ratios[j]) / unit
            words, row = scaled_weights[v], total[v]
            for k in range(n_topics):
                row[k] += np.rint(scale * np.float64(weights[k]) * np.float64(words[k]))
            j += 1
