"""AdaSSP: linear regression from sums of products with noise, and an adaptive ridge penalty.

Y.-X. Wang (2018), *Revisiting differentially private linear regression*, algorithm 2, arXiv:1803.02596; its three Gaussian
releases in equal parts of 1/σ².
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from experiments.regression.methods import Method, Scores, linear_scores, plan_for, with_constant

__all__ = ["adassp_coefficients", "adassp_method"]

_FAILURE = 0.05  # probability with which the bound on the noise may fail


def adassp_coefficients(X, y, norm: float, bound: float, epsilon: float, delta: float, rng) -> np.ndarray:
    """Coefficients, shape (d,), of rows of norm at most ``norm`` and targets of at most ``bound`` in absolute value."""
    d, sigma = X.shape[1], plan_for(epsilon, delta, 1.0, 3).noise_multiplier
    gram = X.T @ X
    spread = sigma * norm**2 * math.sqrt(d * math.log(2.0 * d**2 / _FAILURE))
    smallest = np.linalg.eigvalsh(gram)[0] + norm**2 * sigma * rng.normal()
    smallest = max(0.0, smallest - sigma * norm**2 * math.sqrt(math.log(6.0 / _FAILURE)))
    noise = np.triu(rng.normal(0.0, sigma * norm**2, (d, d)))
    gram = gram + noise + np.triu(noise, 1).T
    cross = X.T @ y + rng.normal(0.0, sigma * norm * bound, d)
    return np.linalg.solve(gram + max(0.0, spread - smallest) * np.eye(d), cross)


def adassp(X, y, epsilon: float, seed: int, delta: float) -> Scores:
    """Scores of a regression on labels ±1, for rows of norm at most 1 and a constant column."""
    signs, rng = np.where(y, 1.0, -1.0), np.random.default_rng(seed)
    coef = adassp_coefficients(with_constant(X), signs, math.sqrt(2.0), 1.0, epsilon, delta, rng)
    return partial(linear_scores, coef=coef[:-1])


def adassp_method(delta: float) -> Method:
    """It has no settings."""
    return Method("AdaSSP", partial(adassp, delta=delta))
