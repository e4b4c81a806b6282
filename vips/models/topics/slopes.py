"""What a token of a word gives in the steps of a private fit, by topic: simulation for ``matching.py``, which has the symbols.

=========  ==========================================================================================================
symbol     meaning
=========  ==========================================================================================================
S_d, n_d   what the tokens of a word in document d give, and their number by topic
θ_d, L     shares of the document, and its length
r          how often a token is read where documents are resized, on average
N/M        tokens of the records over those of the simulation
=========  ==========================================================================================================

    C = N/M Σ_d (S_d - r G (L θ_d ∘ φ_v)) (…)' + (N/M)² Σ_d (S_d - r G n_d) (…)',

of the records, whose shares are those that they have, and of the simulation. Words that are rare in a topic are put into
documents. For these N/M is by topic, and squares are of single tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from vips.models.components.matching.steps import StepGroup
from vips.models.topics.simulation import add_tokens, draw_documents

__all__ = ["Law", "Sight", "Slopes", "slopes_of"]

_CHUNK = 2_000  # documents
_AT_A_TIME = 200  # words
_ENOUGH = 10.0  # expected tokens of a word from a topic, without which it is put into documents
_EVENLY = 0.4  # of a word's least tokens: to all topics alike; the others by their use of it
_LEAST = 1e-12


@dataclass(frozen=True)
class Law:
    """Law of documents: concentration of their shares, summed over topics, and length."""

    concentration: float
    length: float


class Slopes(NamedTuple):
    """G and C without the noise, shapes (n_words, 2 n_topics, n_topics) and (n_words, 2 n_topics, 2 n_topics)."""

    mean: np.ndarray
    cov: np.ndarray


class Sight:
    """How the kept steps of a fit see documents.

    Parameters
    ----------
    model : LatentDirichletAllocation
        Fitted with noise.
    groups : sequence of StepGroup
    """

    def __init__(self, model, groups: Sequence[StepGroup]) -> None:
        self._model, self._groups = model, groups
        self.resized_length = model.document_length
        self.sampled = float(np.mean([group.sampled for group in groups]))
        most = max(len(group.steps) for group in groups)
        n_topics, n_words = groups[0].totals["topic_word"].shape
        self.of_words = np.zeros((len(groups), most, n_words, n_topics), model.dtype)
        for g, group in enumerate(groups):
            for i, step in enumerate(group.steps):
                self.of_words[g, i] = step.posterior.word_weights(np.dtype(model.dtype), mean=True)[2][:, :n_topics]

    def factors(self, documents: sp.csr_array, turn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``ratios``, ``of_topics`` and ``steps`` of :func:`add_tokens`: a document is seen at one posterior of each group."""
        of_groups = [self._seen(documents, group, turn) for group in self._groups]
        return tuple(np.array(arrays) for arrays in zip(*of_groups, strict=True))

    def _seen(self, documents, group: StepGroup, turn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        model, counts, ends = self._model, documents.data, documents.indptr
        steps = (np.arange(len(ends) - 1, dtype=np.int32) + turn) % len(group.steps)
        is_read = model.resized(documents).data > 0.0
        ratios, of_topics = np.zeros(len(counts)), np.empty((len(steps), self.of_words.shape[3]), self.of_words.dtype)
        step_of_entry = np.repeat(steps, np.diff(ends))
        for i, step in enumerate(group.steps):
            rows, entries = np.flatnonzero(steps == i), np.flatnonzero((step_of_entry == i) & is_read)
            statistics = model.expected_statistics(documents[rows], step.posterior)
            weights = model.privacy_.plan.clip_weights(statistics.norms(model.blocks()))
            of_entries, of_topics[rows] = statistics.factors(weights)
            ratios[entries] = of_entries / counts[entries]
        return ratios, of_topics, steps


def slopes_of(
    sight: Sight,
    x: np.ndarray,
    law: Law,
    seed: int,
    n_documents: int,
    n_tokens: int = 0,
    words: np.ndarray | None = None,
    n_told: int | None = None,
    with_cov: bool = True,
) -> Slopes:
    """By simulation with fixed seeds.

    Parameters
    ----------
    x : ndarray of shape (n_topics, n_words)
        Positive.
    n_documents : int
    n_tokens : int
        That a word has at least, about.
    words : ndarray of int, optional
        Those that are asked about.
    n_told : int, optional
        Use the first tokens of a document only.
    with_cov : bool
        Otherwise C is 0.
    """
    n_topics, n_words = x.shape
    words, rows = np.arange(n_words) if words is None else words, np.full(n_words, -1)
    rows[words] = np.arange(len(words))
    n_told = round(law.length) if n_told is None else n_told
    r = 1.0 if sight.resized_length is None else sight.resized_length / law.length
    topics, shares = np.maximum(x / x.sum(axis=1, keepdims=True), _LEAST), x.sum(axis=1) / x.sum()
    expected = n_documents * n_told * shares[:, None] * topics
    further = _further(x, expected, n_tokens)
    weights = x / ((expected + further) * r)
    is_rare = further.any(axis=0)
    D = sight.of_words.shape[0] * n_topics
    shapes = (n_topics,), (D, n_topics), (D, D), (D, n_topics), (D, n_topics), (n_topics, n_topics)
    sums = tuple(np.zeros((len(words), *of)) for of in shapes)
    details = np.where(is_rare, 1, 2) if with_cov else np.zeros(n_words, np.int64)
    rng, products = np.random.default_rng(seed), np.zeros((n_topics, n_topics))
    topic, word = np.divmod(rng.permutation(np.repeat(np.arange(further.size), further.ravel())), n_words)
    unset = np.full(n_documents, -1)
    squared = np.where(is_rare, (1.0 + sight.sampled) * weights + weights**2, 1.0)
    squared = np.ascontiguousarray(squared)  # kernels are compiled for one layout
    cumulative = np.ascontiguousarray(np.cumsum(topics, axis=1))
    for turn, (of_words, of_topics, told) in enumerate([*_chunks(unset, unset, n_told), *_chunks(word, topic, 1)]):
        indptr, indices, counts, tokens, thetas = draw_documents(
            rng.integers(2**31), law.concentration * shares, cumulative, round(law.length), told, of_words, of_topics
        )
        documents = sp.csr_array((counts, indices, indptr), shape=(len(of_words), n_words))
        add_tokens(
            tokens, indices, *sight.factors(documents, turn), sight.of_words, rows, details, squared, thetas, sums
        )
        if of_words[0] < 0:
            products += n_told**2 * thetas.T @ thetas
    mean = sums[1] / np.maximum(sums[0] * r, _LEAST)[:, None, :]
    cov = np.zeros_like(sums[2])
    if not with_cov:
        return Slopes(mean, cov)
    scale = x.sum() / (expected.sum() * r)
    sampled = sight.sampled * np.kron(np.eye(len(sight.of_words)), np.ones((n_topics, n_topics)))
    for start in range(0, len(words), _AT_A_TIME):
        of = slice(start, start + _AT_A_TIME)
        _, _, squares, by_count, by_share, between = (array[of] for array in sums)
        squares, between, phi = _full(squares), _full(between), topics[:, words[of]].T
        G, rG = mean[of], r * np.swapaxes(mean[of], 1, 2)
        of_records = _residual(
            squares, (by_share * n_told * phi[:, None, :]) @ rG, products * phi[:, :, None] * phi[:, None, :], rG
        )
        of_simulation = _residual(squares, by_count @ rG, between, rG)
        frequent = scale * (of_records + sampled * squares) + scale**2 * of_simulation
        rare = squares - (G * (r**2 * weights[:, words[of]].T ** 2 * sums[0][of])[:, None, :]) @ np.swapaxes(G, 1, 2)
        part = (x.sum(axis=0) / (x * (1.0 + weights)).sum(axis=0))[words[of], None, None]  # of the records in squares
        cov[of] = np.where(is_rare[words[of], None, None], rare + sampled * part * squares, frequent)
    return Slopes(mean, cov)


def _further(x: np.ndarray, expected: np.ndarray, n_tokens: int) -> np.ndarray:
    """Tokens of a word and topic that are put into documents."""
    if n_tokens == 0:
        return np.zeros(x.shape, dtype=np.int64)
    n_topics = len(x)
    part = (1.0 - _EVENLY) * x / x.sum(axis=0) + _EVENLY / n_topics
    least = np.maximum(n_tokens * part, n_tokens / 15.0) - expected
    return np.ceil(np.maximum(least, expected < _ENOUGH)).astype(np.int64)


def _chunks(words: np.ndarray, topics: np.ndarray, n_told: int) -> list[tuple[np.ndarray, np.ndarray, int]]:
    places = [slice(start, start + _CHUNK) for start in range(0, len(words), _CHUNK)]
    return [(words[of], topics[of], n_told) for of in places]


def _full(lower: np.ndarray) -> np.ndarray:
    """Symmetric matrices from their lower triangles."""
    return np.tril(lower) + np.swapaxes(np.tril(lower, -1), 1, 2)


def _residual(squares, cross, between, rG) -> np.ndarray:
    """Σ (S - r G n)(S - r G n)' from Σ S S', Σ S n' r G' and Σ n n'."""
    return squares - cross - np.swapaxes(cross, 1, 2) + np.swapaxes(rG, 1, 2) @ between @ rG
