"""Coefficients by name, and scores of predicted classes and counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.utils.validation import column_or_1d

from vips.expfam import Gamma
from vips.models._coefficient_tables import classes_of, in_units, names_of_coefficients
from vips.parts import Part, Score, average, divided, in_table, indexed, last_of

__all__ = ["MOST_READ", "classification_scores", "coefficient_parts", "count_scores"]

MOST_READ = 400  # coefficients that are computed when a file is read: more take seconds


def coefficient_parts(model, posterior) -> list[Part]:
    """Coefficients, in units of the columns if these are known, and their prior precision if it is learnt."""
    units, columns = model.units_of_columns, model.column_names()
    name = "coefficients" if units is None else "coefficients in units of the columns"
    names = names_of_coefficients(model, units)
    parts = [Part(name, in_units(posterior, units, model.fit_intercept), _coefficient_label(model, names), names)]
    if isinstance(getattr(model, "prior", 0.0), Gamma | None) and hasattr(posterior, "alpha_shape"):
        alpha = Gamma(posterior.alpha_shape, posterior.alpha_rate)
        parts.append(Part("prior precision", alpha, partial(indexed, "α"), columns, False))
    return parts


def _coefficient_label(model, names: list[str]) -> Callable[[tuple[int, ...]], str]:
    classes = [f"class {value}" for value in classes_of(model)]
    return partial(in_table, classes, names) if len(classes) > 2 else partial(last_of, names)


def count_scores(model, X, y=None) -> list[Score]:
    """Root mean squared error, and R²."""
    truth = column_or_1d(y).astype(np.float64)
    errors = (truth - model.predict(X)) ** 2
    return [
        Score("root mean squared error (lower is better)", lambda counts: np.sqrt(average(counts, errors))),
        Score("R² (higher is better)", lambda counts: _r_squared(counts, truth, errors)),
    ]


def classification_scores(model, X, y) -> list[Score]:
    """Log-loss, and the area under the ROC curve of two classes."""
    y, classes = column_or_1d(y), model.classes_
    place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if (classes[place] != y).any():
        raise ValueError(f"`y_test` holds labels that the models do not know; they know {classes.tolist()}.")
    probabilities = model.predict_proba(X)
    of_own = probabilities[np.arange(len(y)), place]
    losses = -np.log(np.maximum(of_own, np.finfo(float).tiny))
    scores = [Score("log-loss (lower is better)", lambda counts: average(counts, losses))]
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
        """Share of pairs of a positive and a negative record that are in the right order; ties count half."""
        counts = counts[:, self._order]
        positive, negative = (
            np.add.reduceat(counts * is_member, self._starts, axis=1) for is_member in (self._positive, ~self._positive)
        )
        below = np.cumsum(negative, axis=1) - 0.5 * negative
        pairs = positive.sum(axis=1) * negative.sum(axis=1)
        return divided((positive * below).sum(axis=1), pairs)


def _r_squared(counts: np.ndarray, truth: np.ndarray, errors: np.ndarray) -> np.ndarray:
    truth = truth - truth.mean()  # keeps the squares small
    return 1.0 - divided(average(counts, errors), average(counts, truth**2) - average(counts, truth) ** 2)
