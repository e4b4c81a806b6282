"""Draws of factor models given one noisy release: a parametric bootstrap.

Records from the estimated model are simulated by their moments (a Wishart matrix and a Gaussian mean), noise is added as the
release had it, and the model is estimated again. The estimate's errors there stand for its errors here. For principal
components a draw is the estimate minus the error, and for noise variances the estimate over the ratio. For factor analysis,
whose noise variances are bounded from below, it is the other estimate itself, with what its loadings leave of the variances for
the noise variances (percentiles; intervals of the first kind held too few of the truths). Nothing is read but released numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from vips.expfam import Draws
from vips.models.second_moments.estimates import Estimate, NoisyCovariance
from vips.models.second_moments.moments import SecondMoments

__all__ = ["aligned", "bootstrapped", "stacked"]


def bootstrapped(
    data: NoisyCovariance,
    estimate: Estimate,
    again: Callable[[Sequence[NoisyCovariance]], Sequence[Estimate]],
    constant: float,
    n_draws: int,
) -> Draws:
    """Draws of :func:`stacked` parameters, shape (n_draws, q + 2, d).

    Parameters
    ----------
    data, estimate
        What was released, and the model estimated from it.
    again : callable
        Estimates the models of several releases.
    constant : float
        cF.
    n_draws : int
    """
    rng, q, parameters = np.random.default_rng(0), len(estimate.loadings), stacked(estimate, data.mean)
    factor = np.linalg.cholesky(
        estimate.loadings.T @ estimate.loadings + np.diag(np.maximum(estimate.noise_variance, 1e-12))
    )
    simulated = [NoisyCovariance.of(_simulated(data, factor, constant, rng), constant) for _ in range(n_draws)]
    draws = np.empty((n_draws, *parameters.shape))
    for draw, sample, refit in zip(draws, simulated, again(simulated), strict=True):
        loadings = aligned(refit.loadings, estimate.loadings)
        if refit.unbounded_variance is None:
            draw[:] = 2.0 * parameters - stacked(Estimate(loadings, refit.noise_variance), sample.mean)
            draw[q] = parameters[q] ** 2 / np.maximum(refit.noise_variance, 1e-300)
        else:
            draw[:] = stacked(Estimate(loadings, np.maximum(refit.unbounded_variance, 0.0)), sample.mean)
    return Draws(np.clip(draws, -1e100, 1e100))


def stacked(estimate: Estimate, mean: np.ndarray) -> np.ndarray:
    """Loadings, noise variances, means, one row each; shape (q + 2, d)."""
    return np.vstack([estimate.loadings, estimate.noise_variance, mean])


def aligned(loadings: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Loadings in the order and with the signs that are nearest to others."""
    products = like @ loadings.T
    _, order = linear_sum_assignment(-np.abs(products))
    signs = np.where(products[np.arange(len(like)), order] < 0.0, -1.0, 1.0)
    return loadings[order] * signs[:, None]


def _simulated(data: NoisyCovariance, factor: np.ndarray, constant: float, rng: np.random.Generator) -> SecondMoments:
    d, count = len(factor), max(data.count, 2.0)
    mean = data.mean + factor @ rng.standard_normal(d) / np.sqrt(count)
    root = np.tril(rng.standard_normal((d, d)), -1)  # Bartlett's factor of a Wishart matrix
    root[np.diag_indices(d)] = np.sqrt(rng.chisquare(np.maximum(count - 1.0 - np.arange(d), 1.0)))
    root = factor @ root
    rows = np.append(mean, constant)
    matrix = count * np.outer(rows, rows)
    matrix[:d, :d] += root @ root.T
    noise = rng.standard_normal((d + 1, d + 1)) * data.noise_std
    return SecondMoments.of(matrix + 0.5 * (noise + noise.T), data.noise_std)
