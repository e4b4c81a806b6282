"""Log likelihoods of counted words under mixtures of distributions over words."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

__all__ = ["log_likelihoods"]


def log_likelihoods(X, doc_topic: np.ndarray, by_word: np.ndarray) -> np.ndarray:
    """Of each row of word counts, given its shares of topics and the words' probabilities in each; shape (n_records,)."""
    entries = sp.coo_array(X)
    row, column = entries.coords
    total = np.zeros(X.shape[0])
    for start in range(0, entries.nnz, 16_384):
        part = slice(start, start + 16_384)
        probability = np.einsum("ik,ik->i", doc_topic[row[part]], by_word[column[part]])
        words = np.zeros(len(probability))
        present = entries.data[part] > 0
        words[present] = entries.data[part][present] * np.log(probability[present])
        total += np.bincount(row[part], words, minlength=X.shape[0])
    return total
