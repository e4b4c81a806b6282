"""Documents from a known model, and digits of scikit-learn."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from vips.core.mechanism.random_state import RandomStateLike, as_generator

__all__ = ["load_digits_binary", "make_lda_corpus"]


def make_lda_corpus(
    n_documents: int = 1000,
    *,
    n_topics: int = 10,
    n_words: int = 1000,
    document_length: int = 100,
    doc_topic_prior: float = 0.1,
    topic_word_prior: float = 0.05,
    topics: np.ndarray | None = None,
    random_state: RandomStateLike = None,
) -> Bunch:
    """Draw documents from latent Dirichlet allocation.

    Parameters
    ----------
    n_documents, n_topics, n_words, document_length : int
    doc_topic_prior, topic_word_prior : float
        Dirichlet concentrations of topic shares and of topics.
    topics : ndarray of shape (n_topics, n_words), optional
        Known topics (rows sum to 1) instead of drawn ones.
    random_state : int, Generator or None

    Returns
    -------
    Bunch
        ``counts``: CSR of shape (n_documents, n_words), int32; ``topics``: (n_topics, n_words);
        ``doc_topic``: (n_documents, n_topics).
    """
    rng = as_generator(random_state)
    if topics is None:
        topics = rng.dirichlet(np.full(n_words, topic_word_prior), n_topics)
    n_topics, n_words = topics.shape
    doc_topic = rng.dirichlet(np.full(n_topics, doc_topic_prior), n_documents)
    cumulative = np.cumsum(topics, axis=1)
    cumulative /= cumulative[:, -1:]
    chunks = []
    for start in range(0, n_documents, 1024):  # a chunk's words at a time: memory does not grow with n_documents
        shares = doc_topic[start : start + 1024]
        words_of_topic = rng.multinomial(document_length, shares)
        topic = np.repeat(np.tile(np.arange(n_topics), len(shares)), words_of_topic.ravel())
        row = np.repeat(np.arange(len(shares), dtype=np.int32), document_length)
        word = np.empty(len(row), dtype=np.int32)
        uniform = rng.random(len(row))
        for k in range(n_topics):
            of_topic = topic == k
            word[of_topic] = np.searchsorted(cumulative[k], uniform[of_topic], side="right")
        ones = np.ones(len(row), dtype=np.int32)
        chunks.append(sp.coo_array((ones, (row, np.minimum(word, n_words - 1))), shape=(len(shares), n_words)).tocsr())
    counts = sp.vstack(chunks, format="csr") if chunks else sp.csr_array((0, n_words), dtype=np.int32)
    return Bunch(counts=counts, topics=topics, doc_topic=doc_topic)


def load_digits_binary() -> Bunch:
    """1,797 images of handwritten digits, 8 by 8 pixels, on where the grey value of scikit-learn's digits is at least half.

    Returns
    -------
    Bunch
        ``data``: (1797, 64) bool; ``target``: (1797,) int.

    Examples
    --------
    >>> load_digits_binary().data.shape
    (1797, 64)
    """
    digits = load_digits()
    return Bunch(data=digits.data >= 8, target=digits.target)
