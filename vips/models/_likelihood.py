"""Log likelihoods of counted words under mixtures of distributions over words."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

__all__ = ["log_likelihoods"]

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
