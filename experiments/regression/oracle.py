"""What an oracle knows of a private logistic regression: the clip's weights, the curvature, and the noise but for its draw.

All of it is in the coordinates that the fit has learnt, at the clip of its last step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import expit

from vips import BayesianLogisticRegression, Records
from vips.core.contract import plan_of_release
from vips.core.phases import phases_of
from vips.models.regression.posterior import CoefficientPosterior

__all__ = ["precision_of_oracle", "weights_at"]


def weights_at(
    model: BayesianLogisticRegression, X: np.ndarray, coefficients: np.ndarray, person: np.ndarray | None = None
) -> np.ndarray:
    """Weight of each row in a step of this fit at these coefficients, the intercept last; ``person``: numbers from 0."""
    search, plan = model.last_posterior_.search, model.privacy_.plan
    point = coefficients @ model._to_rows(search.zooms.coordinates).T
    at = CoefficientPosterior(coefficients, np.eye(len(coefficients)), search=replace(search, point=point[None]))
    blocks = phases_of(model, plan.n_steps)[-1].blocks
    norms = model.expected_statistics(Records(np.asarray(X), np.zeros(len(X))), at).norms(blocks)
    person = np.arange(len(X)) if person is None else person
    return np.minimum(1.0, plan.clip_norm / np.bincount(person, norms))[person]


def precision_of_oracle(
    model: BayesianLogisticRegression, X: np.ndarray, coefficients: np.ndarray, y: np.ndarray | None = None, person=None
) -> np.ndarray:
    """Precision of the coefficients, shape (d, d).

    The averaged scores ḡ ~ N(H (w - μ), B + I s²), with s² the noise of the average of all scores; H is the curvature and B the
    variance of the weighted scores, by persons. Without labels B is what is expected where rows do not depend on each other.
    """
    search = model.last_posterior_.search
    coordinates, to_rows = search.zooms.coordinates, model._to_rows(search.zooms.coordinates)
    rows, weights = model._moved(np.asarray(X), coordinates), weights_at(model, X, coefficients, person)
    p = expit(rows @ to_rows @ coefficients)
    curvature = (rows.T * (weights * p * (1.0 - p))) @ rows
    if y is None:
        varies = (rows.T * (weights**2 * p * (1.0 - p))) @ rows
    else:
        person = np.arange(len(y)) if person is None else person
        scores = np.stack([np.bincount(person, weights * (y - p) * column) for column in rows.T])
        varies = scores @ scores.T
    (released,) = search.released(model.noisy_totals_.noise_std, plan_of_release(model))
    varies += np.eye(len(varies)) / (1.0 / released.stds[:, 0] ** 2).sum()
    known = curvature @ np.linalg.solve(varies, curvature)
    known += model._prior_of(coordinates, 0, 1.0 if model.prior is None else float(model.prior), 1.0).precision
    precision = to_rows.T @ known @ to_rows
    return 0.5 * (precision + precision.T)
