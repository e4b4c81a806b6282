"""Log likelihoods of counted words under mixtures of distributions over words, and halves of documents to be scored."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

__all__ = ["alternate_words", "log_likelihoods", "split_words"]

_BLOCK = 16_384  # stored counts scored at a time, so that memory does not grow with the number of records


def log_likelihoods(X, doc_topic: np.ndarray, by_word: np.ndarray) -> np.ndarray:
    """Σ_v n_dv log Σ_k θ_dk β_kv of each row of counts n_d; shape (n_records,).

    Parameters
    ----------
    X : CSR of shape (n_records, n_words)
    doc_topic : ndarray of shape (n_records, n_topics)
        θ.
    by_word : ndarray of shape (n_words, n_topics)
        Transpose of β.
    """
    entries = sp.coo_array(X)
    row, column = entries.coords
    total = np.zeros(X.shape[0])
    for start in range(0, entries.nnz, _BLOCK):
        part = slice(start, start + _BLOCK)
        probability = np.einsum("ik,ik->i", doc_topic[row[part]], by_word[column[part]])
        words = np.zeros(len(probability))
        present = entries.data[part] > 0
        words[present] = entries.data[part][present] * np.log(probability[present])
        np.add.at(total, row[part], words)  # one by one: where a block ends changes no rounding
    return total


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


def alternate_words(documents: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
    """Every second word of each document (rounded down), and the rest, both as counts: without a draw, so that the halves of a
    document do not depend on other documents.

    Parameters
    ----------
    documents : CSR of shape (n_documents, n_words)
        Whole counts, in canonical form.
    """
    counts = documents.data.astype(np.float64)
    is_odd = counts % 2.0 == 1.0
    number = np.concatenate([[0], np.cumsum(is_odd)])  # of odd counts so far: a huge count rounds no other
    row = np.repeat(np.arange(documents.shape[0]), np.diff(documents.indptr))
    within = number[1:] - number[documents.indptr[:-1]][row]
    observed = np.floor(counts / 2.0) + (is_odd & (within % 2 == 0))
    return tuple(
        sp.csr_array((part, documents.indices, documents.indptr), shape=documents.shape)
        for part in (observed, counts - observed)
    )
