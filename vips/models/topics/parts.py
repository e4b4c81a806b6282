"""Topics as distributions over words, their order, and the likelihood of held-out words."""

from __future__ import annotations

from functools import partial

import numpy as np

from vips.expfam import Dirichlet, Draws, ScaledDirichlet
from vips.models.topics.completion import split_words
from vips.parts import Part, Score, divided

__all__ = ["completion_score", "held_out_words", "topic_parts", "topics_in_order"]


def topic_parts(topics, words: list[str]) -> list[Part]:
    """Topics, one row each."""
    return [Part("topics", topics, partial(_word_of_topic, words), words)]


def _word_of_topic(words: list[str], index: tuple[int, ...]) -> str:
    return f"topic {index[0]}: {words[index[1]]}"


def topics_in_order(posterior, order: np.ndarray):
    """The posterior, of either kind, with its topics in another order."""
    if isinstance(posterior, Draws):
        return posterior.taken(order)
    if isinstance(posterior, ScaledDirichlet):
        return ScaledDirichlet(posterior.rate_mean[order], posterior.rate_var[order])
    return Dirichlet(posterior.concentration[order])


def held_out_words(model, documents) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood of the held-out words of each document, and their number: by completion, on one fixed split.

    Together they give ``LatentDirichletAllocation.perplexity``.
    """
    return model.completed(*split_words(documents, np.random.default_rng(0)))


def completion_score(model, documents) -> Score:
    """Per held-out word."""
    total, n_words = held_out_words(model, documents)
    return Score("log likelihood per word (higher is better)", lambda counts: divided(counts @ total, counts @ n_words))
