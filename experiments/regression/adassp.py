"""AdaSSP: linear regression on ±1 labels from sums of products with noise, and an adaptive ridge penalty.

Y.-X. Wang (2018), *Revisiting differentially private linear regression*, algorithm 2, arXiv:1803.02596; its three Gaussian
releases in equal parts of 1/σ².
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from experiments.regression.methods import Method, Scores, linear_scores, plan_for, with_constant

__all__ = ["adassp_method"]

_FAILURE = 0.05  # probability with which the bound on the noise may fail


def adassp(X, y, epsilon: float, seed: int, delta: float) -> Scores:
    """Scores of a fit to rows of norm at most 1 and a constant column."""
    rng = np.random.default_rng(seed)
    X, signs = with_constant(X), np.where(y, 1.0, -1.0)
    d, norm = X.shape[1], math.sqrt(2.0)  # of a row with its constant
    sigma = plan_for(epsilon, delta, 1.0, 3).noise_multiplier
    gram = X.T @ X
    spread = sigma * norm**2 * math.sqrt(d * math.log(2.0 * d**2 / _FAILURE))
    smallest = np.linalg.eigvalsh(gram)[0] + norm**2 * sigma * rng.normal()
    smallest = max(0.0, smallest - sigma * norm**2 * math.sqrt(math.log(6.0 / _FAILURE)))
    noise = np.triu(rng.normal(0.0, sigma * norm**2, (d, d)))
    gram = gram + noise + np.triu(noise, 1).T
    cross = X.T @ signs + rng.normal(0.0, sigma * norm, d)
    coef = np.linalg.solve(gram + max(0.0, spread - smallest) * np.eye(d), cross)
    return partial(linear_scores, coef=coef[:-1])


def adassp_method(delta: float) -> Method:
    """It has no settings."""
    return Method("AdaSSP", partial(adassp, delta=delta))
