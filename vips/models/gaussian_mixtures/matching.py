"""Gaussian mixtures as simulated records: what a match moves, and how the steps of a fit see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from vips._support.alignment import align
from vips.expfam import Draws
from vips.models._gaussians.posterior import MixturePosterior, at_chart, chart_of
from vips.models._gaussians.update import Priors
from vips.models._mixture import MixtureSimulator
from vips.models.components.matching.charts import Chart, Simplexes
from vips.models.components.matching.match import ChartMatch, check_told

__all__ = ["GaussianSimulator", "matched_components"]


@dataclass(frozen=True)
class GaussianSimulator(MixtureSimulator):
    """Records of Gaussian components. The charts are those of the shares, and of means and covariances."""

    priors: Priors

    def charts(self) -> list[Chart]:
        """Those of the fit's posterior; NotImplementedError for Student-t, tied and spherical components."""
        posterior, priors = self.model.last_posterior_, self.priors
        if posterior.covariance_type not in ("full", "diag") or posterior.tail.any():
            raise NotImplementedError('Only Gaussian components with covariance_type="full" or "diag" are matched.')
        components = chart_of(posterior, (priors.mean_precision, priors.dof))
        return [Simplexes.inside(posterior.weights[None], priors.concentration), components]

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Rows. Normals come in pairs."""
        shares, components = charts
        members = self.members(shares, n_records, rng)
        normal = rng.standard_normal((n_records, components.mean.shape[1]))
        normal[1::2] = -normal[::2][: n_records // 2]
        return components.mean[members] + np.einsum("nij,nj->ni", components.factor[members], normal)

    def scores(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        shares, components = charts
        images = components.images(records)
        given = softmax(np.log(shares.p[0]) + components.logs(images), axis=1)
        return np.hstack([shares.scores(given[:, None, :]), components.scores(given, images)])


def matched_components(match: ChartMatch, fitted: MixturePosterior) -> MixturePosterior:
    """The fit's posterior with the parameters of the match, which E-steps take as known, and with draws of shares, means and
    covariances; the components are in the order of the fit.

    Raises
    ------
    NotImplementedError
        If the match is refused, or noise hides a component.
    """
    match.check()
    weights, of_components = match.draws()
    check_told(weights, "components")
    shares, components = match.best()
    draws = {"weights": Draws(weights, shares.p[0])} | components.named("", of_components)
    matched = replace(at_chart(fitted, components, match.n_records * shares.p[0]), draws=draws)
    return matched.in_order(align(fitted.mean, components.mean, "euclidean").order)
