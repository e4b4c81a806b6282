"""Numba kernels of the match: documents that are drawn from topics, and sums over what steps make of their tokens."""

# ruff: noqa: NPY002  (in a kernel, this is a generator of numba, which the kernel seeds)
from __future__ import annotations

import numpy as np

from vips.models.topics.digamma import jit

__all__ = ["add_tokens", "draw_documents"]


@jit
def draw_documents(seed, concentration, cumulative, length, n_told, first_words, first_topics):
    """Documents of ``length`` tokens in CSR, and the topics of the first ``n_told`` tokens of each.

    Shares are from Dirichlet(``concentration``), given the topic of the first token if that is not -1. A document is a function
    of its seed: if its length grows, it gets further tokens.

    Parameters
    ----------
    concentration : ndarray of shape (n_topics,)
    cumulative : ndarray of shape (n_topics, n_words)
        Probabilities of words, cumulated.
    first_words, first_topics : ndarray of shape (n_documents,)

    Returns
    -------
    indptr, words, counts : ndarray
    told : ndarray of shape (3, n_documents * n_told)
        Entry, topic and document of each token, by entry.
    shares : ndarray of shape (n_documents, n_topics)
    """
    (n_topics, n_words), n_documents = cumulative.shape, len(first_words)
    indptr, shares = np.zeros(n_documents + 1, np.int64), np.empty((n_documents, n_topics))
    words, counts = np.empty(n_documents * length, np.int32), np.empty(n_documents * length, np.float32)
    told = np.empty((3, n_documents * n_told), np.int32)
    theta, codes = np.empty(n_topics), np.empty(length, np.int64)
    at = n_tokens = 0
    for d in range(n_documents):
        np.random.seed(seed + d)
        for k in range(n_topics):  # logs: shares of a small concentration underflow
            a = concentration[k] + (1.0 if k == first_topics[d] else 0.0)
            theta[k] = np.log(np.random.gamma(a + 1.0, 1.0)) + np.log(1.0 - np.random.random()) / a
        largest, total = theta[0], 0.0
        for k in range(1, n_topics):
            largest = max(largest, theta[k])
        for k in range(n_topics):
            theta[k] = np.exp(theta[k] - largest)
            total += theta[k]
        for k in range(n_topics):
            shares[d, k] = theta[k] / total
        for i in range(length):
            u, k = np.random.random(), 0
            while k < n_topics - 1 and u >= shares[d, k]:
                u -= shares[d, k]
                k += 1
            v = min(np.searchsorted(cumulative[k], np.random.random() * cumulative[k, -1], side="right"), n_words - 1)
            codes[i] = 2 * (v * n_topics + k) + (i >= n_told)
        if first_words[d] >= 0:
            codes[0] = 2 * (first_words[d] * n_topics + first_topics[d])
        codes.sort()
        last = -1
        for i in range(length):
            v = codes[i] // (2 * n_topics)
            if v == last:
                counts[at - 1] += 1.0
            else:
                words[at], counts[at], last = v, 1.0, v
                at += 1
            if codes[i] % 2 == 0:
                told[0, n_tokens], told[1, n_tokens], told[2, n_tokens] = at - 1, codes[i] // 2 % n_topics, d
                n_tokens += 1
        indptr[d + 1] = at
    return indptr, words[:at].copy(), counts[:at].copy(), told, shares


@jit
def add_tokens(told, words, ratios, of_topics, steps, of_words, rows, details, weights, shares, sums):
    """Add statistics of tokens, and products of them, in place.

    The statistic of a token of entry e is ``ratios[:, e] of_topics[:, document] of_words[:, step, word]``. S is the sum over
    tokens of an entry, n their number by topic, θ the shares of the document.

    Parameters
    ----------
    told, shares : ndarray
        From :func:`draw_documents`.
    words : ndarray of shape (n_entries,)
    ratios : ndarray of shape (n_groups, n_entries)
    of_topics : ndarray of shape (n_groups, n_documents, n_topics)
    steps : ndarray of shape (n_groups, n_documents)
    of_words : ndarray of shape (n_groups, n_steps, n_words, n_topics)
    rows : ndarray of shape (n_words,)
        Of each word in the sums; -1 leaves it out.
    details : ndarray of shape (n_words,)
        0: only the first two sums of a word; 1: and its squares; 2: all.
    weights : ndarray of shape (n_topics, n_words)
        Of a token in S S'.
    sums : (counts, means, squares, by_count, by_share, between)
        Σ n, Σ s by topic, Σ S S', Σ S n', Σ S θ', Σ n n'; symmetric ones below the diagonal. The first axis is of rows.
    """
    counts, means, squares, by_count, by_share, between = sums
    n_groups, _, n_topics = of_topics.shape
    s, n = np.empty(n_groups * n_topics), np.empty(n_topics)
    t = 0
    while t < told.shape[1]:
        e, d = told[0, t], told[2, t]
        v = words[e]
        row, weight, size = rows[v], 0.0, 0.0
        for k in range(n_topics):
            n[k] = 0.0
        while t < told.shape[1] and told[0, t] == e:
            n[told[1, t]] += 1.0
            weight += weights[told[1, t], v]
            size += 1.0
            t += 1
        if row < 0:
            continue
        for g in range(n_groups):
            for k in range(n_topics):
                s[g * n_topics + k] = ratios[g, e] * of_topics[g, d, k] * of_words[g, steps[g, d], v, k]
        for j in range(n_topics):
            if n[j] > 0.0:
                counts[row, j] += n[j]
                for a in range(len(s)):
                    means[row, a, j] += s[a] * n[j]
        if details[v] == 0:
            continue
        weight *= size
        for a in range(len(s)):
            for b in range(a + 1):
                squares[row, a, b] += weight * s[a] * s[b]
        if details[v] == 1:
            continue
        for j in range(n_topics):
            for k in range(j + 1):
                between[row, j, k] += n[j] * n[k]
            for a in range(len(s)):
                by_count[row, a, j] += size * s[a] * n[j]
                by_share[row, a, j] += size * s[a] * shares[d, j]
