"""Gaussian components of a posterior as a chart, and the posterior at a chart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vips.models._gaussians.posterior import MixturePosterior
from vips.models.components.matching.charts import Gaussians

__all__ = ["at_chart", "chart_of"]


def chart_of(posterior: MixturePosterior, prior_sizes: tuple[float, float]) -> Gaussians:
    """Means and covariances of the components, full or diagonal; priors count as so many records."""
    factor, prior, d = posterior.factors, posterior.prior_covariance, posterior.mean.shape[1]
    is_diagonal = posterior.covariance_type == "diag"
    if is_diagonal:
        factor, prior = factor[:, 0, :, None] * np.eye(d), np.diag(prior[0])
    return Gaussians(posterior.mean, factor, is_diagonal, posterior.prior_mean, prior, prior_sizes)


def at_chart(posterior: MixturePosterior, chart: Gaussians, sizes: np.ndarray) -> MixturePosterior:
    """A posterior of the same kind at these parameters, which E-steps take as known; components have so many records."""
    factor = chart.factor
    if chart.is_diagonal:
        factor = np.diagonal(factor, axis1=1, axis2=2)[:, None]
    return replace(
        posterior,
        concentration=sizes,
        mean=chart.mean,
        mean_precision=sizes,
        dof=sizes + chart.mean.shape[1],
        factor=factor,
        plug_in=True,
        n_active=len(sizes),
    )
