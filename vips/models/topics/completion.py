"""Completion of documents: topic shares from one half of the words, scored on the other."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

__all__ = ["alternate_words", "split_words"]


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
