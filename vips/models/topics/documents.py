"""Numba kernels of LDA: preparation of documents before the E-step."""

from __future__ import annotations

import numpy as np

from vips.models.topics.digamma import jit


@jit
def find_canonical(indptr, indices, is_canonical):
    """Whether the words of each document are sorted, none of them twice."""
    for d in range(len(is_canonical)):
        # the compiler vectorises over a slice, not over indices of the whole
        words = indices[indptr[d] : indptr[d + 1]]
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
