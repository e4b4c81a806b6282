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
keeps the words of a tile in registers (``vips._compute.lanes``) meanwhile.
"""

from __future__ import annotations

# numba's cache notices changes of this file only, not of the inlined functions of lanes.py and digamma.py: version 15dad907
import numpy as np

from vips._compute.lanes import WIDTH, add_products, divide, load, multiply_add, spread, store, total, widen, zeros
from vips.models.topics.digamma import digamma, exp_digamma, exp_small, inline, jit

_REGISTERS = 8
TILE = _REGISTERS * WIDTH
# exp ψ(γ) of a topic that a document does not use is about exp(-1/α): it must not underflow in float32.
SMALLEST_WEIGHT = 1e-30


@jit
def fill_word_weights(concentration, totals, mean, start, stop, word_weights, log_scale):
    """exp E log β of the words ``start`` to ``stop``, or E β, each word divided by its largest entry; the log of that entry.

    ``totals`` are ψ(Σ_v λ_kv), or Σ_v λ_kv for E β.
    """
    n_topics = concentration.shape[0]
    values = np.empty(n_topics)
    for v in range(start, stop):
        largest = -np.inf
        for k in range(n_topics):
            values[k] = concentration[k, v] / totals[k] if mean else digamma(concentration[k, v]) - totals[k]
            largest = max(largest, values[k])
        log_scale[v] = np.log(largest) if mean else largest
        for k in range(n_topics):
            word_weights[v, k] = values[k] / largest if mean else np.exp(values[k] - largest)


@inline
def _place(j, n_topics):
    """Index in the tiles of word j of the first topic; that of topic k is k · TILE larger."""
    return (j - j % TILE) * n_topics + j % TILE


@inline
def _fill_tiles(words, n, word_weights, tiles, eight):
    """The weights of a document's words. The rest of its last tile is filled with its own words, or with ones."""
    n_topics, ends = word_weights.shape[1], (n + TILE - 1) // TILE * TILE
    for j in range(0, n, WIDTH):
        last = n - 1 - j
        row0 = word_weights[words[j]]
        row1 = word_weights[words[j + min(1, last)]]
        row2 = word_weights[words[j + min(2, last)]]
        row3 = word_weights[words[j + min(3, last)]]
        row4 = word_weights[words[j + min(4, last)]]
        row5 = word_weights[words[j + min(5, last)]]
        row6 = word_weights[words[j + min(6, last)]]
        row7 = word_weights[words[j + min(7, last)]]
        for k in range(n_topics):  # transposed by shuffles
            eight[k, 0] = row0[k]
            eight[k, 1] = row1[k]
            eight[k, 2] = row2[k]
            eight[k, 3] = row3[k]
            eight[k, 4] = row4[k]
            eight[k, 5] = row5[k]
            eight[k, 6] = row6[k]
            eight[k, 7] = row7[k]
        start = _place(j, n_topics)
        for k in range(n_topics):
            store(tiles, start + TILE * k, load(eight, WIDTH * k, zeros(tiles, 1)))
    for j in range((n + WIDTH - 1) // WIDTH * WIDTH, ends, WIDTH):
        start = _place(j, n_topics)
        for k in range(n_topics):
            store(tiles, start + TILE * k, spread(1.0, zeros(tiles, 1)))


@inline
def _share_tile(tiles, start, counts, first, active, n_active, weights, shares):
    """shares_k += Σ_v r_v B_kv over the active topics and the words of one tile, from ``first`` on."""
    mixture = zeros(tiles, _REGISTERS)
    for i in range(n_active):
        k = active[i]
        mixture = multiply_add(spread(weights[k], mixture), load(tiles, start + TILE * k, mixture), mixture)
    ratios = divide(load(counts, first, mixture), mixture)
    for i in range(n_active):
        k = active[i]
        share = load(shares, WIDTH * k, zeros(shares, 1))
        store(shares, WIDTH * k, add_products(ratios, load(tiles, start + TILE * k, ratios), share))


@inline
def _update(tiles, n, counts, active, n_active, prior, point, gamma, weights, shares, work):
    """One coordinate-ascent update of γ and θ̃ over the active topics; returns Σ_k |Δγ_k|."""
    for i in range(n_active):
        store(shares, WIDTH * active[i], zeros(shares, 1))
    for first in range(0, n, TILE):
        _share_tile(tiles, first * len(weights), counts, first, active, n_active, weights, shares)
    change = 0.0
    for i in range(n_active):
        k = active[i]
        share = total(load(shares, WIDTH * k, zeros(shares, 1)))
        updated = prior + weights[k] * np.float64(share)
        change += abs(updated - gamma[k])
        gamma[k] = updated
    _weigh(active, n_active, point, gamma, weights, work)
    return change


@inline
def _weigh(active, n_active, point, gamma, weights, work):
    """θ̃ = exp ψ(γ) of the active topics, or γ."""
    for i in range(n_active):
        work[i] = gamma[active[i]]
    if not point:
        for i in range(n_active):
            work[i] = exp_digamma(work[i])
    for i in range(n_active):
        work[i] = max(work[i], SMALLEST_WEIGHT)
    for i in range(n_active):
        weights[active[i]] = work[i]


@inline
def _rough_log(ratio):
    """log of a ratio near 1; further away it stays within ±3.3."""
    t = (ratio - 1.0) / (ratio + 1.0)
    square = t * t
    return t * (2.0 + square * (2.0 / 3.0 + square * (2.0 / 5.0 + square * (2.0 / 7.0))))


@inline
def _extrapolate(active, n_active, prior, point, before, middle, gamma, weights, first, second):
    """SQUAREM (Varadhan and Roland 2008, scheme S3) on log(γ - α), from three successive iterates.

    A long step along the direction of slow updates. It only chooses where the next plain update starts, so fixed points and the
    stopping rule are those of the plain iteration, and rough logarithms suffice.
    """
    tiny = 1e-300
    for i in range(n_active):
        k = active[i]
        first[i] = (middle[k] - prior + tiny) / (before[k] - prior + tiny)
        second[i] = (gamma[k] - prior + tiny) / (middle[k] - prior + tiny)
    for i in range(n_active):
        first[i], second[i] = _rough_log(first[i]), _rough_log(second[i])
        second[i] -= first[i]
    first_square, second_square = 0.0, 0.0
    for i in range(n_active):
        mass = gamma[active[i]] - prior
        first_square += mass * first[i] ** 2
        second_square += mass * second[i] ** 2
    if not (first_square > second_square > 0.0):
        return  # the updates are not slow: nothing to gain (NaN returns here, too)
    length = min(np.sqrt(first_square / second_square), 8.0)
    for i in range(n_active):
        step = 2.0 * (length - 1.0) * first[i] + (length * length - 1.0) * second[i]
        factor = exp_small(min(max(step, -3.0), 3.0) / 8.0)
        for _ in range(3):
            factor *= factor
        first[i] = factor
    total_mass, kept = 0.0, 0.0
    for i in range(n_active):
        mass = gamma[active[i]] - prior
        kept += mass
        total_mass += mass * first[i]
    rescale = kept / total_mass
    for i in range(n_active):
        k = active[i]
        gamma[k] = prior + (gamma[k] - prior) * first[i] * rescale
    _weigh(active, n_active, point, gamma, weights, first)


@inline
def _finish(tiles, n, counts, words, scaled_weights, weights, ratios, some_ratios, double):
    """Ratios of a document's words, and the square of the norm of its statistic.

    Both are computed from exactly the numbers that ``sum_weighted`` sums, the square in double precision.
    """
    n_topics = len(weights)
    square = 0.0
    for first in range(0, n, len(some_ratios)):
        start = _place(first, n_topics)
        mixture = zeros(tiles, 4)
        for k in range(n_topics):
            part = load(tiles, start + TILE * k, mixture)
            mixture = multiply_add(spread(weights[k], mixture), part, mixture)
        store(some_ratios, 0, divide(load(counts, first, mixture), mixture))
        for j in range(min(len(some_ratios), n - first)):
            ratios[first + j] = some_ratios[j]
            square += np.float64(some_ratios[j]) ** 2 * _square_of_word(
                words[first + j], scaled_weights, weights, double
            )
    return square


@inline
def _square_of_word(word, scaled_weights, weights, double):
    """Σ_k (θ̃_k c_kv B_kv)² in double precision."""
    n_topics = len(weights)
    squares, nothing = zeros(double, 1), zeros(double, 1)
    n_whole = n_topics - n_topics % WIDTH
    for k in range(0, n_whole, WIDTH):
        part = widen(load(scaled_weights, word * n_topics + k, zeros(scaled_weights, 1)))
        product = multiply_add(widen(load(weights, k, zeros(weights, 1))), part, nothing)
        squares = multiply_add(product, product, squares)
    square = total(squares)
    for k in range(n_whole, n_topics):
        product = np.float64(weights[k]) * np.float64(scaled_weights[word, k])
        square += product * product
    return square


@jit
def infer_documents(
    indptr, indices, counts, word_weights, scaled_weights, prior, point, tol, max_iter, start, stop,
    doc_topic, topic_weights, ratios, norms,
):  # fmt: skip
    """E-step of the documents ``start`` to ``stop``; fills the last four arguments.

    Topics that a document no longer uses (γ_k - α below a tenth of ``tol``) are skipped while the others converge. A document
    has converged only after an update over all topics that moves γ by less than ``tol`` on average.

    With ``point``, topic shares are points in proportion to γ, and updates are those of EM.

    ``norms[d]`` is ``sqrt(Σ_kv c_kv² s_kv²)``; ``scaled_weights`` are ``c_kv B_kv``.
    """
    n_topics, dtype = word_weights.shape[1], word_weights.dtype
    longest = 0
    for d in range(start, stop):
        longest = max(longest, indptr[d + 1] - indptr[d])
    padded_counts = np.empty((longest + TILE - 1) // TILE * TILE, dtype)
    tiles, eight = np.empty(n_topics * len(padded_counts), dtype), np.empty((n_topics, WIDTH), dtype)
    weights, shares = np.empty(n_topics, dtype), np.empty((n_topics, WIDTH), dtype)
    some_ratios, double = np.empty(4 * WIDTH, dtype), np.empty(WIDTH)
    gamma, middle, before = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    work, more_work = np.empty(n_topics), np.empty(n_topics)
    active = np.arange(n_topics)

    for d in range(start, stop):
        words, n = indices[indptr[d] : indptr[d + 1]], indptr[d + 1] - indptr[d]
        _fill_tiles(words, n, word_weights, tiles, eight)
        n_words = 0.0
        for j in range(n):
            padded_counts[j] = counts[indptr[d] + j]
            n_words += counts[indptr[d] + j]
        padded_counts[n : (n + TILE - 1) // TILE * TILE] = 0
        for k in range(n_topics):
            gamma[k] = prior + n_words / n_topics
            weights[k] = 1
            active[k] = k

        n_active = n_topics
        iteration, since_jump = 0, 0
        while iteration < max_iter and n > 0:
            for k in range(n_topics):
                before[k], middle[k] = middle[k], gamma[k]
            change = _update(tiles, n, padded_counts, active, n_active, prior, point, gamma, weights, shares, work)
            iteration += 1
            since_jump += 1
            if change < tol * n_topics:
                if n_active == n_topics:
                    break
                n_active, since_jump = n_topics, 0
                for k in range(n_topics):
                    active[k] = k
                continue
            if since_jump >= 2 and iteration + 1 < max_iter:
                _extrapolate(active, n_active, prior, point, before, middle, gamma, weights, work, more_work)
                since_jump = 0
            if iteration >= 3:
                kept = 0
                for i in range(n_active):
                    k = active[i]
                    if not gamma[k] - prior < 0.1 * tol:
                        active[kept] = k
                        kept += 1
                n_active = kept

        document_ratios = ratios[indptr[d] : indptr[d + 1]]
        norms[d] = np.sqrt(
            _finish(tiles, n, padded_counts, words, scaled_weights, weights, document_ratios, some_ratios, double)
        )
        for k in range(n_topics):
            doc_topic[d, k] = gamma[k]
            topic_weights[d, k] = weights[k]
