"""Words of topics, and which of them say most about a topic.

    relevance(v, k | λ) = λ log φ_kv + (1 - λ) log(φ_kv / p_v),        p_v = Σ_k π_k φ_kv

========  ==========================================
symbol    name
========  ==========================================
φ (K, V)  ``probabilities``, rows sum to 1
π (K,)    ``shares`` of the topics in all words
p (V,)    ``overall`` frequencies
λ         ``relevance``: 1 probability, 0 lift
========  ==========================================

Sievert and Shirley (2014), "LDAvis: a method for visualizing and interpreting topics".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vips._support.validation import check_integer, check_number

__all__ = ["TopicWords", "check_relevance"]


@dataclass(frozen=True)
class TopicWords:
    """Topics as people read them; computed from released values alone.

    Attributes
    ----------
    names : list of str
        The words.
    probabilities : ndarray of shape (n_topics, n_words)
        Rows sum to 1.
    shares : ndarray of shape (n_topics,)
        Share of each topic in all words; sums to 1.
    total : float
        Number of words in all clipped documents, as released.
    """

    names: list[str]
    probabilities: np.ndarray
    shares: np.ndarray
    total: float

    @classmethod
    def of(cls, concentration: np.ndarray, prior: float, names: list[str]) -> TopicWords:
        """From the concentrations λ of a posterior. Counts are those above the prior η, or λ if there are none."""
        counts = np.maximum(concentration - prior, 0.0).sum(axis=1)
        if not counts.sum() > 0.0:
            counts = concentration.sum(axis=1)
        total = counts.sum()
        probabilities = concentration / concentration.sum(axis=1, keepdims=True)
        return cls(names, probabilities, counts / total, float(total))

    @classmethod
    def of_model(cls, model) -> TopicWords:
        """The topics of a fitted model."""
        return cls.of(model.components_, model.word_concentration(), model.column_names())

    @cached_property
    def overall(self) -> np.ndarray:
        """Frequency of each word over all topics, shape (n_words,); sums to 1."""
        return self.shares @ self.probabilities

    @cached_property
    def of_word(self) -> np.ndarray:
        """Share of each topic in the uses of a word, shape (n_topics, n_words); columns sum to 1."""
        return self.shares[:, None] * self.probabilities / self.overall

    def relevance(self, weight: float) -> np.ndarray:
        """Relevance of each word to each topic, shape (n_topics, n_words); ``weight`` is λ."""
        return np.log(self.probabilities) - (1.0 - weight) * np.log(self.overall)

    def top(self, n_words: int, weight: float = 1.0) -> np.ndarray:
        """The most relevant words of each topic, most relevant first, shape (n_topics, at most n_words)."""
        return np.argsort(-self.relevance(weight), axis=1, kind="stable")[:, :n_words]


def check_relevance(n_words: object, relevance: object = 1.0) -> None:
    """Raise ValueError unless words can be ranked in this way."""
    check_integer("n_words", n_words)
    check_number("relevance", relevance, 0.0, 1.0, "from 0 (lift) to 1 (probability)")
