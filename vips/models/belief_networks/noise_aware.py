"""Posterior of weights and biases given *noisy* totals: post-processing, which costs no budget.

Each distribution keeps its mean. The variance of the noise is added to the variance given the records:

- weights: the noise of the running average that remains after shrinking (``denoising.shrunken``);
- visible biases: noise of the steps, s²/Ω² each, averaged as the steps shorten; and, since c = c' - W p, that of W and of p;
- hidden biases: b = logit p, so Var p / (p (1 - p))², added to the variance 1 / (n p (1 - p)) given the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vips.expfam import DiagonalGaussian, Gaussian
from vips.models.belief_networks.denoising import Totals, shrunken
from vips.models.belief_networks.posterior import NetworkPosterior
from vips.models.belief_networks.prior import BIAS_PRECISION
from vips.models.belief_networks.update import CENTRE, pace_of

__all__ = ["noise_aware_network"]


def noise_aware_network(
    posterior: NetworkPosterior, average: Mapping[str, np.ndarray], noise_std: Mapping[str, float]
) -> NetworkPosterior:
    """The posterior with the variances of the noise added.

    Parameters
    ----------
    posterior : NetworkPosterior
        Of a private fit.
    average, noise_std : dict
        The totals from which the posterior was computed, and the standard deviations of the noise in them.
    """
    totals = Totals.view(average, noise_std, CENTRE)
    _, remaining_var = shrunken(posterior.running, posterior.noise_var)
    mean, weight_var = posterior.weights.mean, posterior.weight_variances + remaining_var
    if isinstance(posterior.weights, Gaussian):
        weights = Gaussian(
            mean, np.linalg.inv(posterior.weights.cov + remaining_var[:, :, None] * np.eye(remaining_var.shape[1]))
        )
    else:
        weights = DiagonalGaussian(mean, 1.0 / weight_var)

    activity, count = totals.activity, totals.count
    activity_var = (noise_std["hidden"] ** 2 + (activity - CENTRE) ** 2 * noise_std["count"] ** 2) / count**2

    averaged = 0.0  # noise variance in c' after all steps, in units of one step's
    for t in range(1, posterior.step + 1):
        pace = pace_of(t)
        averaged = (1.0 - pace) ** 2 * averaged + pace**2
    curvature = totals.omega + BIAS_PRECISION
    visible_var = 1.0 / curvature + averaged * (noise_std["visible"] / curvature) ** 2
    visible_var += weight_var @ activity**2 + mean**2 @ activity_var

    slope = activity * (1.0 - activity)
    hidden_var = 1.0 / (count * slope + BIAS_PRECISION) + activity_var / slope**2
    return replace(
        posterior,
        weights=weights,
        visible_bias=DiagonalGaussian(posterior.visible_bias.mean, 1.0 / visible_var),
        hidden_bias=DiagonalGaussian(posterior.hidden_bias.mean, 1.0 / hidden_var),
    )
