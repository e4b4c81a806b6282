"""Numba kernels of the LDA E-step: nothing here knows about privacy, threads or scikit-learn.

Notation (one document d; K topics, n distinct words)::

    γ_k = α + θ̃_k Σ_v r_v B_kv      r_v = n_v / Σ_k θ̃_k B_kv      θ̃_k = exp ψ(γ_k)

===========  ==========================  =====================================================
symbol       name                        meaning
===========  ==========================  =====================================================
n_v          ``counts``                  how often word v occurs in the document
B_kv         ``word_weights[v, k]``      exp E log β_kv or E β_kv, each word divided by its largest entry
α            ``prior``                   doc-topic concentration
γ_k          ``doc_topic[d, k]``         Dirichlet posterior of the document's topic shares
θ̃_k          ``topic_weights[d, k]``     exp ψ(γ_k), without the constant exp ψ(Σγ); γ_k if shares are point estimates
r_v          ``ratios``                  one number per stored count
c_kv B_kv    ``scaled_weights[v, k]``    with c_kv, a public scale of each cell in the released sum
===========  ==========================  =====================================================

The topic-word statistic of the document is ``s_kv = θ̃_k r_v B_kv``, released as ``c_kv s_kv``; it is never stored.
Dividing a word's weights by their maximum changes nothing (``r_v`` takes the factor back) and keeps float32 from underflowing.

A document's words are handled in tiles of ``TILE``, stored topic by topic. A kernel loops over a list of the active topics, and
keeps the words of a tile in registers (``vips.core.exact.lanes``) meanwhile.
"""

from __future__ import annotations

# numba's cache notices changes of this file only, not of the inlined functions of lanes.py and digamma.py: version aa0b9c67
import numpy as np

from vips.core.exact.lanes import (
    WIDTH,
    add_products,
    load,
    load_rows,
    narrow,
    spread,
    store,
    store_transposed,
    total,
    totals,
    widen,
    zeros,
)
from vips.models.topics.digamma import digamma, exp_digamma, exp_small, inline, jit

_REGISTERS = 8
TILE = _REGISTERS * WIDTH
# exp ψ(γ) of a topic that a document does not use is about exp(-1/α): it must not underflow in float32.
SMALLEST_WEIGHT = 1e-30
_TINY = 1e-300


@jit
def fill_word_weights(concentration, totals, mean, start, stop, word_weights, log_scale):
    """exp E log β of the words ``start`` to ``stop``, or E β, each word divided by its largest entry; the log of that entry.

    ``totals`` are ψ(Σ_v λ_kv), or Σ_v λ_kv for E β.
    """
    n_topics = concentration.shape[0]
    values = np.empty(n_topics)
    for v in range(start, stop):
        largest = _TINY if mean else -np.inf  # weights of 0, not NaN, where no topic has a probability
        for k in range(n_topics):
            values[k] = concentration[k, v] / totals[k] if mean else digamma(concentration[k, v]) - totals[k]
            largest = max(largest, values[k])
        log_scale[v] = np.log(largest) if mean else largest
        for k in range(n_topics):
            word_weights[v, k] = values[k] / largest if mean else np.exp(values[k] - largest)


@inline
def _place(j, width):
    """Index in the tiles of word j of the first topic; that of topic k is k · TILE larger."""
    return (j - j % TILE) * width + j % TILE


@inline
def _fill_tiles(places, n, n_topics, word_weights, tiles):
    """The weights of a document's words, eight words and eight topics at a time. Its last tile ends with its last word, then
    ones."""
    for j in range(0, n, WIDTH):
        start = _place(j, word_weights.shape[1])
        for k in range(0, n_topics, WIDTH):
            rows = load_rows(word_weights, places, j, k, zeros(tiles, 1))
            store_transposed(tiles, start + TILE * k, TILE, rows)
    for j in range((n + WIDTH - 1) // WIDTH * WIDTH, (n + TILE - 1) // TILE * TILE, WIDTH):
        start = _place(j, word_weights.shape[1])
        for k in range(n_topics):
            store(tiles, start + TILE * k, spread(1.0, zeros(tiles, 1)))


@inline
def _mixture(tiles, start, active, n_active, weights):
    """Σ_k θ̃_k B_kv over the active topics, for the words of one tile."""
    mixture = zeros(tiles, _REGISTERS)
    for i in range(n_active):
        mixture = load(tiles, start + TILE * active[i], mixture) * weights[i] + mixture
    return mixture


@inline
def _update(tiles, width, n, counts, active, n_active, prior, point, is_first, gamma, weights, shares):
    """θ̃ of the active topics, except in the first update, and one coordinate-ascent update of γ; returns Σ_k |Δγ_k|."""
    nothing, one = zeros(gamma, 1), zeros(tiles, 1)
    if not is_first:
        _fill_weights(gamma, n_active, point, weights)
    for i in range(n_active + WIDTH - 1):
        store(shares, WIDTH * i, one)
    for first in range(0, n, TILE):
        start = first * width
        mixture = _mixture(tiles, start, active, n_active, weights)
        ratios = load(counts, first, mixture) / mixture
        for i in range(n_active):
            share = load(shares, WIDTH * i, one)
            store(shares, WIDTH * i, add_products(ratios, load(tiles, start + TILE * active[i], ratios), share))
    change = nothing
    for i in range(0, n_active, WIDTH):
        share = widen(totals(shares, WIDTH * i, one))
        updated = widen(load(weights, i, one)) * share + prior
        change = change + abs(updated - load(gamma, i, nothing))
        store(gamma, i, updated)
    return total(change)


@inline
def _fill_weights(gamma, n_topics, point, weights):
    """θ̃ = exp ψ(γ), or γ."""
    for k in range(0, n_topics, WIDTH):
        weight = load(gamma, k, zeros(gamma, 1))
        if not point:
            weight = exp_digamma(weight)
        store(weights, k, narrow(max(weight, SMALLEST_WEIGHT), zeros(weights, 1)))


@inline
def _rough_log(above, below):
    """log of a ratio near 1; further away it stays within ±3.3."""
    t = (above - below) / (above + below)
    square = t * t
    return t * (2.0 + square * (2.0 / 3.0 + square * (2.0 / 5.0 + square * (2.0 / 7.0))))


@inline
def _extrapolate(n_active, prior, before, middle, gamma, first, second):
    """SQUAREM (Varadhan and Roland 2008, scheme S3) on log(γ - α), from three successive iterates.

    A long step along the direction of slow updates. It only chooses where the next plain update starts, so fixed points and the
    stopping rule are those of the plain iteration, and rough logarithms suffice.
    """
    nothing = zeros(gamma, 1)
    first_squares, second_squares = nothing, nothing
    for i in range(0, n_active, WIDTH):
        mass = load(gamma, i, nothing) - prior + _TINY
        mean = load(middle, i, nothing) - prior + _TINY
        step = _rough_log(mean, load(before, i, nothing) - prior + _TINY)
        bend = _rough_log(mass, mean) - step
        store(first, i, step)
        store(second, i, bend)
        first_squares = first_squares + mass * step * step
        second_squares = second_squares + mass * bend * bend
    first_square, second_square = total(first_squares), total(second_squares)
    if not (first_square > second_square > 0.0):
        return  # the updates are not slow: nothing to gain (NaN returns here, too)
    length = min(np.sqrt(first_square / second_square), 8.0)
    of_first, of_second = 2.0 * (length - 1.0), length * length - 1.0
    moved, kept = nothing, nothing
    for i in range(0, n_active, WIDTH):
        step = load(first, i, nothing) * of_first + load(second, i, nothing) * of_second
        factor = exp_small(min(max(step, -3.0), 3.0) * 0.125)
        for _ in range(3):
            factor = factor * factor
        mass = load(gamma, i, nothing) - prior
        kept = kept + mass
        mass = mass * factor
        moved = moved + mass
        store(first, i, mass)
    rescale = total(kept) / total(moved)
    for i in range(0, n_active, WIDTH):
        store(gamma, i, load(first, i, nothing) * rescale + prior)


@jit
def infer_documents(
    indptr, indices, counts, word_weights, prior, point, tol, max_iter, start, stop, doc_topic, topic_weights, ratios
):
    """E-step of the documents ``start`` to ``stop``; fills the last three arguments.

    ``word_weights`` and ``topic_weights`` have columns of zeros up to a multiple of ``WIDTH``.

    Topics that a document no longer uses (γ_k - α below a tenth of ``tol``) are skipped while the others converge. A document
    has converged only after an update over all topics that moves γ by less than ``tol`` on average. Arrays over topics hold the
    active ones, then places of no effect up to a multiple of ``WIDTH``; ``settled`` holds γ of all.

    With ``point``, topic shares are points in proportion to γ, and updates are those of EM.
    """
    n_topics, width, dtype = doc_topic.shape[1], word_weights.shape[1], word_weights.dtype
    longest = 0
    for d in range(start, stop):
        longest = max(longest, indptr[d + 1] - indptr[d])
    n_places = (longest + TILE - 1) // TILE * TILE
    places, padded_counts = np.empty(n_places, np.int64), np.empty(n_places, dtype)
    padded_ratios = np.empty(TILE, dtype)
    tiles, shares = np.empty(width * n_places, dtype), np.empty(WIDTH * (width + WIDTH), dtype)
    weights, active = np.empty(width, dtype), np.empty(width, np.int64)
    gamma, middle, before, settled = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    work, more_work = np.empty(width), np.empty(width)

    for d in range(start, stop):
        first, n = indptr[d], indptr[d + 1] - indptr[d]
        n_words = 0.0
        for j in range((n + TILE - 1) // TILE * TILE):
            places[j] = indices[first + min(j, n - 1)] * width
            padded_counts[j] = counts[first + j] if j < n else 0
            n_words += padded_counts[j]
        _fill_tiles(places, n, n_topics, word_weights, tiles)
        for k in range(width):
            gamma[k] = prior + n_words / n_topics if k < n_topics else prior
            active[k], weights[k], settled[k], before[k], middle[k] = k, 1, gamma[k], prior, prior

        n_active = n_topics
        iteration, since_jump = 0, 0
        while iteration < max_iter and n > 0:
            before, middle = middle, before
            for i in range(n_active):
                middle[i] = gamma[i]
            change = _update(
                tiles, width, n, padded_counts, active, n_active, prior, point, iteration == 0, gamma, weights, shares
            )
            iteration += 1
            since_jump += 1
            if change < tol * n_topics:
                if n_active == n_topics:
                    break
                for i in range(n_active):
                    settled[active[i]] = gamma[i]
                n_active, since_jump = n_topics, 0
                for k in range(width):
                    gamma[k], active[k] = settled[k], k
                continue
            if since_jump >= 2 and iteration + 1 < max_iter:
                _extrapolate(n_active, prior, before, middle, gamma, work, more_work)
                since_jump = 0
            if iteration >= 3:
                kept = 0
                for i in range(n_active):
                    if gamma[i] - prior < 0.1 * tol:
                        settled[active[i]] = gamma[i]
                    else:
                        active[kept], gamma[kept], middle[kept] = active[i], gamma[i], middle[i]
                        kept += 1
                for i in range(kept, n_active):
                    gamma[i], middle[i] = prior, prior
                n_active = kept

        for i in range(n_active):
            settled[active[i]] = gamma[i]
        _fill_weights(settled, width, point, weights)
        for k in range(width):
            active[k] = k
            topic_weights[d, k] = weights[k] if k < n_topics else 0
        for k in range(n_topics):
            doc_topic[d, k] = settled[k]
        for start_of_tile in range(0, n, TILE):
            mixture = _mixture(tiles, start_of_tile * width, active, n_topics, weights)
            store(padded_ratios, 0, load(padded_counts, start_of_tile, mixture) / mixture)
            for j in range(min(TILE, n - start_of_tile)):
                ratios[first + start_of_tile + j] = padded_ratios[j]
