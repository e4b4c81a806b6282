"""Scores of topics that several experiments use."""

from __future__ import annotations

import numpy as np

from vips import LatentDirichletAllocation
from vips.models.topics.statistics import TopicPosterior

__all__ = ["model_of_topics", "unigram_perplexity"]


def unigram_perplexity(train, test) -> float:
    """Perplexity per word under the words' frequencies alone (one is added to each count). Not private."""
    frequencies = np.asarray(train.sum(axis=0), dtype=float).ravel() + 1.0
    words = np.asarray(test.sum(axis=0), dtype=float).ravel()
    return float(np.exp(-(words @ np.log(frequencies / frequencies.sum())) / words.sum()))


def model_of_topics(topic_word: np.ndarray, vocabulary=None) -> LatentDirichletAllocation:
    """A model with the given posterior, so that the same code scores topics of any method. It has no report."""
    n_topics, n_words = topic_word.shape
    model = LatentDirichletAllocation(n_topics, vocabulary=vocabulary)
    model.n_features_in_, model.last_posterior_ = n_words, TopicPosterior(topic_word)
    return model
