"""Numba kernels of sums over the words of documents.

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

__all__ = ["CACHED", "add_rounded", "fill_norms", "sum_weighted"]

CACHED = 32_768  # entries of a sum that are added to at a time: 256 KiB
_jit = compiled(nogil=True, fastmath=FASTMATH, error_model="numpy")
_inline = compiled(nogil=True, fastmath=FASTMATH, error_model="numpy", inline="always")


@_jit
def fill_norms(indptr, indices, ratios, topic_weights, scaled_weights, start, stop, norms):
    """``norms[d]`` = sqrt(Σ_kv (θ̃_k r_v c_kv B_kv)²), in double precision, from the numbers that ``sum_weighted`` sums."""
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


@_jit
def sum_weighted(indptr, indices, ratios, topic_weights, record_weights, scaled_weights, first_word, last_word, total):
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


@_jit
def add_rounded(
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
