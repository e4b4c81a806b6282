"""Probabilities whose logit is normal."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit, ndtr

__all__ = ["posterior_probabilities"]

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_QUANTILES, _QUANTILE_WEIGHTS = np.polynomial.legendre.leggauss(32)


def posterior_probabilities(means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """∫ σ(a) N(a | mean, variance) da to 2e-5, of the shape of ``means``.

    By Gauss-Hermite quadrature. This loses accuracy for standard deviations above 2: there, the integral is the average of
    Φ((mean - l) / deviation) over a logistic variable l, by Gauss-Legendre quadrature of its quantiles.
    """
    deviations = np.sqrt(variances)
    narrow, wide = np.zeros(means.shape), np.zeros(means.shape)
    for node, weight in zip(_NODES, _NODE_WEIGHTS / _NODE_WEIGHTS.sum(), strict=True):
        narrow += weight * expit(means + node * deviations)
    for node, weight in zip(logit(0.5 + 0.5 * _QUANTILES), 0.5 * _QUANTILE_WEIGHTS, strict=True):
        wide += weight * ndtr((means - node) / np.maximum(deviations, 1.0))
    return np.where(deviations > 2.0, wide, narrow)
