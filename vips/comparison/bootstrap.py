"""How well two models predict records that were not fitted, and how sure that is, by a bootstrap over these records.

resample the records with replacement; score both models on the same resamples; quantiles
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import column_or_1d

from vips.models.belief_networks.sigmoid import SigmoidBeliefNetwork
from vips.models.proportions.dirichlet_multinomial import DirichletMultinomial
from vips.models.regression.counts import _CountRegression
from vips.models.regression.logistic import BayesianLogisticRegression
from vips.models.topics.completion import split_words
from vips.models.topics.lda import LatentDirichletAllocation, canonical

__all__ = ["Interval", "Score", "bootstrap", "needs_labels", "predictions", "scores_of"]

_BLOCK = 4_000_000  # resampled records at a time

Interval = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """A number that records have together.

    Attributes
    ----------
    name : str
    of_counts : callable
        From how often each record is taken, shape (n_resamples, n_records), to the score of each resample.
    """

    name: str
    of_counts: Callable[[np.ndarray], np.ndarray]


def needs_labels(model) -> bool:
    """Whether the model predicts a y."""
    return isinstance(model, BayesianLogisticRegression | _CountRegression)


def scores_of(model, X, y=None, noise_aware: bool = False) -> list[Score]:
    """Scores of a fitted model on records; an empty list for a model class whose predictions are not known.

    Parameters
    ----------
    model : ConjugateExponentialModel
    X : array or CSR matrix of shape (n_records, n_features)
    y : array of shape (n_records,), optional
    noise_aware : bool
        Predict with the noise-aware posterior: logistic regression only.
    """
    if isinstance(model, BayesianLogisticRegression):
        return _classification_scores(model, X, y, noise_aware)
    if noise_aware:
        return []
    if isinstance(model, _CountRegression):
        truth = column_or_1d(y).astype(np.float64)
        errors = (truth - model.predict(X)) ** 2
        return [
            Score("root mean squared error (lower is better)", lambda counts: np.sqrt(_average(counts, errors))),
            Score("R² (higher is better)", lambda counts: _r_squared(counts, truth, errors)),
        ]
    if isinstance(model, SigmoidBeliefNetwork):
        bounds = model.score_samples(X)
        return [Score("evidence lower bound per record (higher is better)", lambda counts: _average(counts, bounds))]
    if isinstance(model, LatentDirichletAllocation | DirichletMultinomial):
        kind = "word" if isinstance(model, LatentDirichletAllocation) else "count"
        total, n_words = _log_likelihoods(model, X)
        name = f"log likelihood per {kind} (higher is better)"
        return [Score(name, lambda counts: _divided(counts @ total, counts @ n_words))]
    return []


def predictions(model, X) -> np.ndarray | None:
    """What a model says of each record, shape (n_records, ...): probabilities, expected counts, or log likelihoods."""
    if isinstance(model, BayesianLogisticRegression):
        return model.predict_proba(X)
    if isinstance(model, _CountRegression):
        return model.predict(X)
    if isinstance(model, SigmoidBeliefNetwork):
        return model.score_samples(X)
    if isinstance(model, LatentDirichletAllocation | DirichletMultinomial):
        return _log_likelihoods(model, X)[0]
    return None


def bootstrap(
    scores: list[Score], n_records: int, n_resamples: int, level: float, rng: np.random.Generator
) -> list[tuple[float, Interval]]:
    """Values and intervals of scores, and of the difference of the first two, all on the same resamples.

    Parameters
    ----------
    scores : list of two scores
    n_records, n_resamples : int
    level : float
        Of the intervals.
    rng : Generator

    Returns
    -------
    list of (value, (lower, upper))
        Of the first score, the second, and first less second.
    """
    everyone = np.ones((1, n_records))
    values = [score.of_counts(everyone)[0] for score in scores]
    found, per_block = [], max(1, _BLOCK // n_records)
    for start in range(0, n_resamples, per_block):
        size = min(per_block, n_resamples - start)
        taken = [np.bincount(rng.integers(0, n_records, n_records), minlength=n_records) for _ in range(size)]
        counts = np.array(taken, dtype=np.float64)
        found.append(np.stack([score.of_counts(counts) for score in scores]))
    draws = np.concatenate(found, axis=1)
    tails = 0.5 - 0.5 * level, 0.5 + 0.5 * level
    columns = [*zip(values, draws, strict=True), (values[0] - values[1], draws[0] - draws[1])]
    return [(float(value), _quantiles(draw, tails)) for value, draw in columns]


def _quantiles(draws: np.ndarray, tails: tuple[float, float]) -> Interval:
    draws = draws[np.isfinite(draws)]  # a resample may hold one class only, which has no AUC
    if not len(draws):
        return float("nan"), float("nan")
    lower, upper = np.quantile(draws, tails)
    return float(lower), float(upper)


def _classification_scores(model, X, y, noise_aware: bool) -> list[Score]:
    y, classes = column_or_1d(y), model.classes_
    place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if (classes[place] != y).any():
        raise ValueError(f"`y_test` holds labels that the models do not know; they know {classes.tolist()}.")
    probabilities = model.predict_proba(X, noise_aware=noise_aware)
    of_own = probabilities[np.arange(len(y)), place]
    losses = -np.log(np.maximum(of_own, np.finfo(float).tiny))
    scores = [Score("log-loss (lower is better)", lambda counts: _average(counts, losses))]
    if len(classes) == 2:
        ranking = _Ranking(probabilities[:, 1], place == 1)
        scores.append(Score("AUC (higher is better)", ranking.auc))
    return scores


class _Ranking:
    """Records in the order of their scores, for the area under the ROC curve of many resamples."""

    def __init__(self, scores: np.ndarray, positive: np.ndarray) -> None:
        self._order = np.argsort(scores, kind="stable")
        self._positive = positive[self._order]
        ordered = scores[self._order]
        self._starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # of groups of equal scores

    def auc(self, counts: np.ndarray) -> np.ndarray:
        """Share of pairs of a positive and a negative record in the right order, ties for half."""
        counts = counts[:, self._order]
        positive, negative = (
            np.add.reduceat(counts * own, self._starts, axis=1) for own in (self._positive, ~self._positive)
        )
        below = np.cumsum(negative, axis=1) - 0.5 * negative
        pairs = positive.sum(axis=1) * negative.sum(axis=1)
        return _divided((positive * below).sum(axis=1), pairs)


def _log_likelihoods(model, X) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood of each record, and of how many words: by document completion for topic models, on one fixed split.

    Together they give ``LatentDirichletAllocation.perplexity``.
    """
    X = canonical(X)
    if isinstance(model, LatentDirichletAllocation):
        observed, X = split_words(X, np.random.default_rng(0))
        doc_topic, by_word = model.transform(observed), np.ascontiguousarray(model.posterior_.mean.T)
    else:
        doc_topic, by_word = np.ones((X.shape[0], 1)), model.posterior_.mean[:, None]
    entries = sp.coo_array(X)
    row, column = entries.coords
    log_likelihoods = np.zeros(X.shape[0])
    for start in range(0, entries.nnz, 16_384):
        part = slice(start, start + 16_384)
        probability = np.einsum("ik,ik->i", doc_topic[row[part]], by_word[column[part]])
        words = np.zeros(len(probability))
        present = entries.data[part] > 0
        words[present] = entries.data[part][present] * np.log(probability[present])
        log_likelihoods += np.bincount(row[part], words, minlength=X.shape[0])
    return log_likelihoods, np.asarray(X.sum(axis=1), dtype=np.float64).ravel()


def _average(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    return counts @ values / counts.sum(axis=1)


def _r_squared(counts: np.ndarray, truth: np.ndarray, errors: np.ndarray) -> np.ndarray:
    truth = truth - truth.mean()  # what is squared is then small
    return 1.0 - _divided(_average(counts, errors), _average(counts, truth**2) - _average(counts, truth) ** 2)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, NaN where b is 0."""
    return np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0.0)
