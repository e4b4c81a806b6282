"""Numba kernels of LDA: preparation of documents before the E-step, and sums over documents. Names as in ``kernels.py``."""

from __future__ import annotations

# numba's cache notices changes of this file only, not of the inlined functions of digamma.py: version 3b86d7fb
import numpy as np

from vips.models.topics.digamma import inline, jit

CACHED = 32_768  # entries of a sum that are added to at a time: 256 KiB


@jit
def find_canonical(indptr, indices, is_canonical):
    """Whether the words of each document are sorted, none of them twice."""
    for d in range(len(is_canonical)):
        words = indices[
            indptr[d] : indptr[d + 1]
        ]  # the compiler vectorises over a slice, not over indices of the whole
        later, earlier = words[1:], words[: len(words) - 1]
        is_sorted = True
        for j in range(len(later)):
            is_sorted &= later[j] > earlier[j]
        is_canonical[d] = is_sorted


@jit
def find_valid(indptr, indices, counts, n_words, whole, is_valid):
    """Whether each document's counts are finite, not negative and, if asked, whole, all of words that exist."""
    for d in range(len(is_valid)):
        words, values = indices[indptr[d] : indptr[d + 1]], counts[indptr[d] : indptr[d + 1]]
        is_fine = True
        for j in range(len(words)):
            is_fine &= (words[j] >= 0) & (words[j] < n_words) & (values[j] >= 0.0) & (values[j] < np.inf)
        if whole:
            for j in range(len(words)):
                is_fine &= values[j] == np.floor(values[j])
        is_valid[d] = is_fine


@inline
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


@jit
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


@jit
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


@jit
def resample_counts(indptr, indices, counts, length, resampled):
    """Draw ``length`` words with replacement from each document's bag of words, keeping its sparsity pattern.

    The draws come from a splitmix64 stream seeded by the document itself, so that they are a function of this record
    alone: not of its neighbours, its position, or the number of earlier calls.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    first_mix, second_mix = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
    for d in range(len(indptr) - 1):
        start, stop = indptr[d], indptr[d + 1]
        cumulative = np.empty(stop - start)
        total = 0.0
        state = golden
        for j in range(start, stop):
            total += counts[j]
            cumulative[j - start] = total
            resampled[j] = 0
            state = (state ^ np.uint64(indices[j])) * first_mix
            state = (state ^ np.uint64(counts[j]) ^ (state >> np.uint64(29))) * second_mix
        if not 0.0 < total < np.inf:
            continue
        for _ in range(length):
            state += golden
            z = (state ^ (state >> np.uint64(30))) * first_mix
            z = (z ^ (z >> np.uint64(27))) * second_mix
            z = z ^ (z >> np.uint64(31))
            uniform = np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)
            position = np.searchsorted(cumulative, uniform * total, side="right")
            resampled[start + min(position, stop - start - 1)] += 1
