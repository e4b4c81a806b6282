"""Numba kernels of the LDA E-step: nothing here knows about privacy, threads or scikit-learn.

Notation (one document d; K topics, n distinct words)::

    γ_k = α + θ̃_k Σ_v r_v B_kv      r_v = n_v / Σ_k θ̃_k B_kv      θ̃_k = exp ψ(γ_k)

===========  ==========================  =====================================================
symbol       name                        meaning
===========  ==========================  =====================================================
n_v          ``counts``                  how often word v occurs in the document
B_kv         ``word_weights[v, k]``      exp E log β_kv, each word divided by its largest entry
α            ``prior``                   doc-topic concentration
γ_k          ``doc_topic[d, k]``         Dirichlet posterior of the document's topic shares
θ̃_k          ``topic_weights[d, k]``     exp ψ(γ_k), without the constant exp ψ(Σγ)
r_v          ``ratios``                  one number per stored count
c_v          ``word_scale``              public scale of a word's column in the released sum
===========  ==========================  =====================================================

The topic-word statistic of the document is ``s_kv = θ̃_k r_v B_kv``, released as ``c_v s_kv``; it is never stored.
Dividing a word's weights by their maximum changes nothing (``r_v`` takes the factor back) and keeps float32 from underflowing.

Words are handled in tiles of ``TILE``, stored topic by topic, so that both products of an iteration run along
contiguous memory while the tile is in the first-level cache.
"""

from __future__ import annotations

import numba
import numpy as np

TILE = 128
CACHED = 32_768  # entries of a sum that are added to at a time: 256 KiB
# exp ψ(γ) of a topic that a document does not use is about exp(-1/α): it must not underflow in float32.
SMALLEST_WEIGHT = 1e-30
# Products may be fused and sums reordered; NaN and inf keep their meaning, because bad records rely on it.
_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

# error_model="numpy": a division by zero gives inf or NaN in that record's numbers. Numba's default would raise, and
# whether a private fit raises must not depend on a record.
# A kernel calls only what is inlined into it: calls to another compiled function are optimised in one way when both are
# compiled and in another when one comes from the cache on disk, and sums are then reordered differently.
_jit = numba.njit(nogil=True, cache=True, fastmath=_FASTMATH, error_model="numpy")
_inline = numba.njit(nogil=True, cache=True, fastmath=_FASTMATH, error_model="numpy", inline="always")


@_inline
def _digamma_parts(x):
    """(s, e) with exp ψ(x) = e·exp(-s), x > 0, to about 1e-10: six steps of ψ(x) = ψ(x + 1) - 1/x, then the series

    exp ψ(y + ½) = y + 1/(24 y) - 37/(5760 y³) + 10313/(2903040 y⁵) - …
    """
    shift = 1.0 / x + 1.0 / (x + 1.0) + 1.0 / (x + 2.0) + 1.0 / (x + 3.0) + 1.0 / (x + 4.0) + 1.0 / (x + 5.0)
    y = x + 5.5
    inverse_square = 1.0 / (y * y)
    return shift, y + (1.0 / 24.0 - inverse_square * (37.0 / 5760.0 - inverse_square * (10313.0 / 2903040.0))) / y


@_inline
def exp_digamma(x):
    """exp ψ(x) for x > 0."""
    shift, series = _digamma_parts(x)
    return np.exp(-shift) * series


@_inline
def digamma(x):
    """ψ(x) for x > 0."""
    shift, series = _digamma_parts(x)
    return np.log(series) - shift


@_jit
def fill_word_weights(concentration, totals, start, stop, word_weights, log_scale):
    """exp E log β of the words ``start`` to ``stop``, each word divided by its largest entry; the log of that entry.

    ``totals`` are ψ(Σ_v λ_kv).
    """
    n_topics = concentration.shape[0]
    logs = np.empty(n_topics)
    for v in range(start, stop):
        largest = -np.inf
        for k in range(n_topics):
            logs[k] = digamma(concentration[k, v]) - totals[k]
            largest = max(largest, logs[k])
        log_scale[v] = largest
        for k in range(n_topics):
            word_weights[v, k] = np.exp(logs[k] - largest)


@_inline
def _mix_topics(tile, active, n_active, weights, mixture):
    """mixture_v = Σ_k θ̃_k B_kv over the active topics of one tile."""
    for j in range(TILE):
        mixture[j] = 0
    i = 0
    while i + 4 <= n_active:
        k0, k1, k2, k3 = active[i], active[i + 1], active[i + 2], active[i + 3]
        w0, w1, w2, w3 = weights[k0], weights[k1], weights[k2], weights[k3]
        for j in range(TILE):
            mixture[j] += w0 * tile[k0, j] + w1 * tile[k1, j] + w2 * tile[k2, j] + w3 * tile[k3, j]
        i += 4
    while i < n_active:
        k0 = active[i]
        w0 = weights[k0]
        for j in range(TILE):
            mixture[j] += w0 * tile[k0, j]
        i += 1


@_inline
def _share_words(tile, active, n_active, ratios, shares):
    """shares_k += Σ_v r_v B_kv over the active topics of one tile."""
    zero = tile.dtype.type(0)
    i = 0
    while i + 4 <= n_active:
        k0, k1, k2, k3 = active[i], active[i + 1], active[i + 2], active[i + 3]
        s0, s1, s2, s3 = zero, zero, zero, zero
        for j in range(TILE):
            r = ratios[j]
            s0 += r * tile[k0, j]
            s1 += r * tile[k1, j]
            s2 += r * tile[k2, j]
            s3 += r * tile[k3, j]
        shares[k0] += s0
        shares[k1] += s1
        shares[k2] += s2
        shares[k3] += s3
        i += 4
    while i < n_active:
        k0 = active[i]
        s0 = zero
        for j in range(TILE):
            s0 += ratios[j] * tile[k0, j]
        shares[k0] += s0
        i += 1


@_inline
def _update(tiles, n_tiles, counts, active, n_active, prior, gamma, weights, shares, mixture):
    """One coordinate-ascent update of γ and θ̃ over the active topics; returns Σ_k |Δγ_k|."""
    for i in range(n_active):
        shares[active[i]] = 0
    for t in range(n_tiles):
        _mix_topics(tiles[t], active, n_active, weights, mixture)
        for j in range(TILE):
            mixture[j] = counts[t, j] / mixture[j]
        _share_words(tiles[t], active, n_active, mixture, shares)
    change = 0.0
    for i in range(n_active):
        k = active[i]
        updated = prior + weights[k] * np.float64(shares[k])
        change += abs(updated - gamma[k])
        gamma[k] = updated
        weights[k] = max(exp_digamma(updated), SMALLEST_WEIGHT)
    return change


@_inline
def _extrapolate(active, n_active, prior, before, middle, gamma, weights):
    """SQUAREM (Varadhan and Roland 2008, scheme S3) on log(γ - α), from three successive iterates.

    A step along the direction in which the updates creep; it only chooses where the next plain update starts,
    so fixed points and the stopping rule are those of the plain iteration.
    """
    tiny = 1e-300
    first_square, second_square = 0.0, 0.0
    for i in range(n_active):
        k = active[i]
        mass = gamma[k] - prior
        z0, z1, z2 = np.log(before[k] - prior + tiny), np.log(middle[k] - prior + tiny), np.log(mass + tiny)
        first_square += mass * (z1 - z0) ** 2
        second_square += mass * (z2 - 2.0 * z1 + z0) ** 2
    if not (first_square > second_square > 0.0):
        return  # the iterates do not creep: nothing to gain (and NaN ends here)
    length = min(np.sqrt(first_square / second_square), 8.0)
    total, kept = 0.0, 0.0
    for i in range(n_active):
        k = active[i]
        mass = gamma[k] - prior
        z0, z1, z2 = np.log(before[k] - prior + tiny), np.log(middle[k] - prior + tiny), np.log(mass + tiny)
        step = 2.0 * (length - 1.0) * (z1 - z0) + (length * length - 1.0) * (z2 - 2.0 * z1 + z0)
        kept += mass
        mass *= np.exp(min(max(step, -3.0), 3.0))
        gamma[k] = mass
        total += mass
    rescale = kept / total
    for i in range(n_active):
        k = active[i]
        gamma[k] = prior + gamma[k] * rescale
        weights[k] = max(exp_digamma(gamma[k]), SMALLEST_WEIGHT)


@_jit
def infer_documents(
    indptr, indices, counts, word_weights, word_scale, prior, tol, max_iter, start, stop,
    doc_topic, topic_weights, ratios, norms,
):  # fmt: skip
    """E-step of the documents ``start`` to ``stop``; fills the last four arguments.

    Topics that a document has left (γ_k - α below a tenth of ``tol``) are skipped while the others settle. Convergence
    is declared only after an update over all topics that moves γ by less than ``tol`` on average.

    ``norms[d]`` is ``sqrt(Σ_v c_v² Σ_k s_kv²)`` with c = ``word_scale``, in float64 from the very numbers that
    ``sum_weighted`` sums.
    """
    n_topics = word_weights.shape[1]
    longest = 0
    for d in range(start, stop):
        longest = max(longest, indptr[d + 1] - indptr[d])
    tiles = np.ones(((longest + TILE - 1) // TILE, n_topics, TILE), word_weights.dtype)
    padded_counts = np.empty((tiles.shape[0], TILE), word_weights.dtype)
    mixture = np.empty(TILE, word_weights.dtype)
    weights = np.empty(n_topics, word_weights.dtype)
    shares = np.empty(n_topics, word_weights.dtype)
    scaled = np.empty(TILE)
    gamma, middle, before = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    active = np.arange(n_topics)

    for d in range(start, stop):
        first, n = indptr[d], indptr[d + 1] - indptr[d]
        n_tiles = (n + TILE - 1) // TILE
        n_words = 0.0
        for j in range(n):
            tile, column = tiles[j // TILE], j % TILE
            row = word_weights[indices[first + j]]
            padded_counts[j // TILE, column] = counts[first + j]
            n_words += counts[first + j]
            for k in range(n_topics):
                tile[k, column] = row[k]
        for j in range(n, n_tiles * TILE):
            padded_counts[j // TILE, j % TILE] = 0
            for k in range(n_topics):  # a longer document's words may be left here: 0/0 of theirs would be NaN of ours
                tiles[j // TILE, k, j % TILE] = 1
        for k in range(n_topics):
            gamma[k] = prior + n_words / n_topics
            weights[k] = 1
            active[k] = k

        n_active = n_topics
        iteration, since_jump = 0, 0
        while iteration < max_iter and n > 0:
            for k in range(n_topics):
                before[k], middle[k] = middle[k], gamma[k]
            change = _update(tiles, n_tiles, padded_counts, active, n_active, prior, gamma, weights, shares, mixture)
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
                _extrapolate(active, n_active, prior, before, middle, gamma, weights)
                since_jump = 0
            if iteration >= 3:
                kept = 0
                for i in range(n_active):
                    k = active[i]
                    if not gamma[k] - prior < 0.1 * tol:
                        active[kept] = k
                        kept += 1
                n_active = kept

        for k in range(n_topics):
            active[k] = k
            doc_topic[d, k] = gamma[k]
            topic_weights[d, k] = weights[k]
        square = 0.0
        for t in range(n_tiles):
            _mix_topics(tiles[t], active, n_topics, weights, mixture)
            width = min(TILE, n - t * TILE)
            for j in range(width):
                mixture[j] = padded_counts[t, j] / mixture[j]
                ratios[first + t * TILE + j] = mixture[j]
                scaled[j] = word_scale[indices[first + t * TILE + j]] * np.float64(mixture[j])
            for k in range(n_topics):
                weight = np.float64(weights[k])
                for j in range(width):
                    entry = weight * scaled[j] * np.float64(tiles[t, k, j])
                    square += entry * entry
        norms[d] = np.sqrt(square)


@_inline
def _first_entries(indptr, indices, first_word):
    """Where each document's entries of words from ``first_word`` on begin. Its words are sorted."""
    entries = np.empty(len(indptr) - 1, indptr.dtype)
    for d in range(len(entries)):
        entries[d] = indptr[d] + np.searchsorted(indices[indptr[d] : indptr[d + 1]], first_word)
    return entries


@_jit
def sum_weighted(
    indptr, indices, ratios, topic_weights, record_weights, word_weights, word_scale, first_word, last_word, total
):
    """``total[k, v] = c_v B_kv Σ_d w_d r_dv θ̃_dk`` for the words ``first_word <= v < last_word``.

    A record of weight 0 is skipped, not multiplied. Each entry is summed in the order of the documents, so that the
    result does not depend on how the words are divided, among threads or so that their sums stay in the cache.
    """
    n_topics = topic_weights.shape[1]
    entries, n_words = _first_entries(indptr, indices, first_word), max(1, CACHED // n_topics)
    sums = np.empty((n_words, n_topics))
    for start in range(first_word, last_word, n_words):
        stop = min(start + n_words, last_word)
        sums[:] = 0.0
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
        for k in range(n_topics):
            for v in range(start, stop):
                total[k, v] = sums[v - start, k] * word_weights[v, k] * word_scale[v]


@_jit
def add_rounded(
    indptr, indices, ratios, topic_weights, record_weights, word_weights, word_scale, unit, first_word, last_word, total
):
    """``total[v, k] += Σ_d round(w_d c_v r_dv θ̃_dk B_kv / unit)`` in whole numbers: exact below 2⁵³, whatever the order."""
    n_topics = topic_weights.shape[1]
    entries = _first_entries(indptr, indices, first_word)
    for d in range(len(record_weights)):
        if record_weights[d] == 0.0:
            continue
        weights, j = topic_weights[d], entries[d]
        while j < indptr[d + 1] and indices[j] < last_word:
            v = indices[j]
            scale = record_weights[d] * np.float64(ratios[j]) * (word_scale[v] / unit)
            words, row = word_weights[v], total[v]
            for k in range(n_topics):
                row[k] += np.rint(scale * np.float64(weights[k]) * np.float64(words[k]))
            j += 1


@_jit
def resample_counts(indptr, indices, counts, length, resampled):
    """Draw ``length`` words with replacement from each document's bag of words, keeping its sparsity pattern.

    The draws come from a splitmix64 stream seeded by the document itself, so that they are a function of this record
    alone: not of its neighbours, its position, or how often it has been looked at.
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
