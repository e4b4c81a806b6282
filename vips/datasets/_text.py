"""From texts to word counts over a declared vocabulary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Bunch

__all__ = ["corpus_from_texts", "tokenize"]

_WORD = re.compile(r"[^\W\d_]+")


def tokenize(text: str) -> Iterator[str]:
    """Runs of letters, in lower case."""
    return (match.group() for match in _WORD.finditer(text.lower()))


def corpus_from_texts(texts: Iterable[str], vocabulary: Sequence[str]) -> Bunch:
    """Count the words of ``vocabulary`` in every text.

    Parameters
    ----------
    texts : iterable of str
        One document each. Words that are not in the vocabulary are ignored, so that nothing is learnt from the texts.
    vocabulary : sequence of str
        Distinct words in lower case; column i of the counts is word i. Take it from something public.

    Returns
    -------
    Bunch
        ``counts``: CSR of shape (n_texts, n_words), int32; ``vocabulary``: list of str.

    Examples
    --------
    >>> corpus = corpus_from_texts(["A cat, a dog.", "Cats?"], ["cat", "dog"])
    >>> corpus.counts.toarray().tolist()
    [[1, 1], [0, 0]]
    """
    if isinstance(texts, str):
        raise TypeError("`texts` must be a sequence of texts, not one text: write [text].")
    vocabulary = list(vocabulary)
    column = {word: i for i, word in enumerate(vocabulary)}
    if len(column) != len(vocabulary):
        raise ValueError("`vocabulary` holds a word twice.")
    indptr, indices, counts = [0], [], []
    for text in texts:
        occurrences = Counter(column[word] for word in tokenize(text) if word in column)
        for word in sorted(occurrences):
            indices.append(word)
            counts.append(occurrences[word])
        indptr.append(len(indices))
    arrays = (np.array(counts, dtype=np.int32), np.array(indices, dtype=np.int32), np.array(indptr, dtype=np.int32))
    return Bunch(counts=sp.csr_array(arrays, shape=(len(indptr) - 1, len(vocabulary))), vocabulary=vocabulary)
