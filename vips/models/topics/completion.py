"""Held-out likelihood of documents by completion: topic shares from one half of the words, scored on the other."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

__all__ = ["completion_log_likelihood", "split_words"]

_BLOCK = 16_384  # stored counts scored at a time, so that memory does not grow with the number of documents


def split_words(documents: sp.csr_array, rng: np.random.Generator) -> tuple[sp.csr_array, sp.csr_array]:
    """A random half of each document's words (rounded down), and the rest, both as counts.

    A fractional count n is divided as ⌈n⌉ pieces of equal weight.
    """
    pieces = np.ceil(documents.data).astype(np.int64)
    n_documents = documents.shape[0]
    entry = np.repeat(np.arange(len(pieces)), pieces)  # the words one by one: which stored count each belongs to
    row = np.repeat(np.arange(n_documents), np.diff(documents.indptr))[entry]
    order = np.lexsort((rng.random(len(entry)), row))
    first = np.searchsorted(row, np.arange(n_documents))
    length = np.bincount(row, minlength=n_documents)
    rank = np.arange(len(entry)) - first[row]  # rows stay in order under the sort
    chosen = entry[order][rank < (length // 2)[row]]
    observed = np.bincount(chosen, minlength=len(pieces))
    weight = documents.data / np.maximum(pieces, 1)
    return tuple(
        sp.csr_array((part * weight, documents.indices, documents.indptr), shape=documents.shape)
        for part in (observed, pieces - observed)
    )


def completion_log_likelihood(hidden: sp.csr_array, doc_topic: np.ndarray, topic_word: np.ndarray) -> float:
    """Σ_dv n_dv log Σ_k E[θ_dk] E[β_kv] over the hidden words.

    Parameters
    ----------
    hidden : CSR of shape (n_documents, n_words)
    doc_topic : ndarray of shape (n_documents, n_topics)
        E[θ] given the observed halves.
    topic_word : ndarray of shape (n_topics, n_words)
        E[β].
    """
    hidden = hidden.tocoo()
    by_word = np.ascontiguousarray(topic_word.T)
    total = 0.0
    for start in range(0, hidden.nnz, _BLOCK):
        part = slice(start, start + _BLOCK)
        counts = hidden.data[part]
        probability = np.einsum("ik,ik->i", doc_topic[hidden.row[part]], by_word[hidden.col[part]])
        total += counts[counts > 0] @ np.log(probability[counts > 0])
    return float(total)
