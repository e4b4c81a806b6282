"""M-step of sigmoid belief networks: the next posterior from (noisy) totals.

Derivatives of the bound, with p the average z̄, in coordinates in which ψ = w'(z - p) + c' (so that c' hardly depends on w):

    by w_jk:   Σ_n r_nj (z̄_nk - p_k) - ω_nj v_nk w̄_jk  -  w̄_jk E 1/ζ_jk  +  p_k c̄_j / 10²
    by c'_j:   Σ_n r_nj  -  c̄_j / 10²

With a diagonal covariance, the derivatives are divided by Σ_n ω E (z_k - p_k)² + E 1/ζ and Σ_n ω + 10⁻², and half of that step
is taken, because all weights of a row move at once, each as if the others were fixed. With a full covariance, the rows of W are
solved for exactly, and then c. Either way nothing moves where the derivatives are 0: the fixed points are those of coordinate
ascent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vips.core.exact.blas import product
from vips.expfam import DiagonalGaussian, Gaussian, polya_gamma_mean
from vips.models.belief_networks.denoising import Totals, raised, shrunken
from vips.models.belief_networks.posterior import NetworkPosterior
from vips.models.belief_networks.prior import BIAS_PRECISION, Shrinkage

__all__ = ["CENTRE", "LARGEST_WEIGHT", "first_posterior", "first_weights", "next_posterior", "pace_of"]

# Activity of hidden units at the start, at which their statistics are centred.
CENTRE = 0.25
# Starting weights are N(0, 2²/J), so that a unit's initial influence does not depend on J.
_FIRST_STD, _FIRST_PRECISION = 2.0, 1e3
# Bounds of a private fit: on a weight, on its running average, and on the move of a visible bias in one step.
LARGEST_WEIGHT, _LARGEST_RUNNING, _LARGEST_MOVE = 6.0, 12.0, 3.0
# Least precision of a visible bias in a step, in units of the noise in its gradient.
_BIAS_TO_NOISE = 2.0
# Precision that is added to a weight's prior precision, in units of the noise in its gradient.
_RIDGE = 0.5
# Share of the step that is taken with a diagonal covariance; from step _FULL_STEPS on, steps on samples or with noise are
# shortened as 1/t.
_DAMPING, _FULL_STEPS = 0.5, 10


def first_weights(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Random start weights, which break the symmetry between hidden units."""
    return _FIRST_STD / np.sqrt(shape[0]) * rng.standard_normal(shape)


def first_posterior(weights: np.ndarray, prior: str, full: bool) -> NetworkPosterior:
    """The posterior before any record."""
    n_visible, n_hidden = weights.shape
    precision = np.full(weights.shape, _FIRST_PRECISION)
    weights = np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    visible = DiagonalGaussian(np.zeros(n_visible), np.full(n_visible, _FIRST_PRECISION))
    hidden = DiagonalGaussian(np.full(n_hidden, np.log(CENTRE / (1.0 - CENTRE))), np.full(n_hidden, _FIRST_PRECISION))
    law = Gaussian(weights, precision[:, :, None] * np.eye(n_hidden)) if full else DiagonalGaussian(weights, precision)
    coupling = 0.25 * weights.T @ weights
    return NetworkPosterior(
        law, visible, hidden, Shrinkage.start(prior, *weights.shape), coupling, weights, np.zeros(weights.shape)
    )


# Running weights, centred visible biases, precision of the weights, and the variance of the noise in them, after a step.
_Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def pace_of(t: int) -> float:
    """Share of its length that step ``t`` keeps, on samples or with noise."""
    return min(1.0, _FULL_STEPS / t)


def next_posterior(
    average: Mapping[str, np.ndarray],
    noise_std: Mapping[str, float],
    previous: NetworkPosterior,
    private: bool,
    exact: bool,
) -> NetworkPosterior:
    """Posterior after a step.

    Parameters
    ----------
    average, noise_std : dict
        Averages of the totals in ``statistics.py``, and standard deviations of the noise in them.
    previous : NetworkPosterior
        The posterior of the E-step.
    private : bool
        Whether the fit is private: then weights are bounded.
    exact : bool
        Whether the totals are those of all records, without noise: then no step is shortened.
    """
    previous.forget()
    totals = Totals.view(average, noise_std, CENTRE)
    t = previous.step + 1
    pace = 1.0 if exact else pace_of(t)
    step = _full_step if "outer" in average else _diagonal_step
    running, centred_bias, precision, noise_var = step(average, noise_std, previous, totals, pace)
    weights, noise_left = running, np.zeros(())
    if private:
        running = np.clip(running, -_LARGEST_RUNNING, _LARGEST_RUNNING)
        weights, noise_left = shrunken(running, noise_var)
        weights = np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    # in natural coordinates c = c' - W p
    bias = centred_bias - product(weights, totals.activity[:, None])[:, 0]
    family = Gaussian if precision.ndim == 3 else DiagonalGaussian
    b = previous.hidden_bias
    b_precision = BIAS_PRECISION + totals.count * polya_gamma_mean(np.sqrt(b.mean**2 + b.var))
    visible = DiagonalGaussian(bias, totals.omega + BIAS_PRECISION)
    hidden = DiagonalGaussian(totals.count * (totals.activity - 0.5) / b_precision, b_precision)
    coupling = product(np.ascontiguousarray((weights * (totals.omega / totals.count)[:, None]).T), weights)
    posterior = NetworkPosterior(
        family(weights, precision), visible, hidden, previous.shrinkage, coupling, running, noise_var, t, private
    )
    squares = weights**2 + posterior.weight_variances + noise_left
    return replace(posterior, shrinkage=previous.shrinkage.updated(squares))


def _diagonal_step(average, noise_std, previous: NetworkPosterior, totals: Totals, pace: float) -> _Step:
    weights, bias, prior = previous.weights.mean, previous.visible_bias.mean, previous.shrinkage.precision
    prior = prior + _RIDGE * noise_std["weights"]
    pull = BIAS_PRECISION * bias
    rise = average["weights"] + np.outer(average["visible"], CENTRE - totals.activity)
    rise += np.outer(pull, totals.activity) - prior * weights
    curvature = totals.centred + prior
    centred_bias = bias + product(weights, totals.activity[:, None])[:, 0]
    lift = _lift(average["visible"] - pull, totals, noise_std)
    if previous.step == 0:  # biases only: otherwise all weights would learn the columns' averages
        return (previous.running, centred_bias + lift, totals.precision + prior, previous.noise_var)
    pace *= _DAMPING
    running = (1.0 - pace) * previous.running + pace * (weights + rise / curvature)
    noise_var = (1.0 - pace) ** 2 * previous.noise_var + (pace * noise_std["weights"] / curvature) ** 2
    return (running, centred_bias + pace * lift, totals.precision + prior, noise_var)


def _full_step(average, noise_std, previous: NetworkPosterior, totals: Totals, pace: float) -> _Step:
    weights, bias, prior = previous.weights.mean, previous.visible_bias.mean, previous.shrinkage.precision
    precision = raised(average["outer"], noise_std["outer"])
    n_hidden = weights.shape[1]
    precision[:, np.arange(n_hidden), np.arange(n_hidden)] += prior
    rise = average["weights"] + CENTRE * average["visible"][:, None] - prior * weights
    target = weights + np.linalg.solve(precision, rise[:, :, None])[:, :, 0]
    running = (1.0 - pace) * previous.running + pace * target
    # the residuals' totals after that move, then c
    visible = average["visible"] - np.einsum("jk,jk->j", totals.precision, running - weights)
    lift = _lift(visible - BIAS_PRECISION * bias, totals, noise_std)
    centred_bias = bias + pace * lift + product(running, totals.activity[:, None])[:, 0]
    diagonal = precision[:, np.arange(n_hidden), np.arange(n_hidden)]
    noise_var = (1.0 - pace) ** 2 * previous.noise_var + (pace * noise_std["weights"] / diagonal) ** 2
    return (running, centred_bias, precision, noise_var)


def _lift(rise: np.ndarray, totals: Totals, noise_std: Mapping[str, float]) -> np.ndarray:
    """Full steps of visible biases; with noise, shortened as far as the noise requires."""
    noise = noise_std["visible"]
    curvature = np.maximum(totals.omega + BIAS_PRECISION, _BIAS_TO_NOISE * noise)
    return np.clip(rise / curvature, -_LARGEST_MOVE, _LARGEST_MOVE) if noise > 0.0 else rise / curvature
