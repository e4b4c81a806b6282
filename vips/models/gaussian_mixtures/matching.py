"""Gaussian mixtures as simulated records: what a match moves, and how the steps of a fit see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import softmax

from vips._support.alignment import align
from vips.expfam import Draws
from vips.models._gaussians.posterior import MixturePosterior, at_chart, chart_of
from vips.models.components.matching.charts import Chart, Simplexes
from vips.models.components.matching.match import ChartMatch, best_match, check_told
from vips.models.components.matching.simulator import levels_at, weights_in
from vips.models.components.matching.steps import StepSimulator, totals_of

__all__ = ["MixtureSimulator", "match_of", "matched_components"]


@dataclass(frozen=True)
class MixtureSimulator(StepSimulator):
    """Records of Gaussian components. The charts are those of the shares, and of means and covariances."""

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Rows. Components are stratified, and normals come in pairs."""
        shares, components = charts[0].p[0], charts[1]
        members = levels_at((np.arange(n_records) + rng.random()) / n_records, shares[None])
        normal = rng.standard_normal((n_records, components.mean.shape[1]))
        normal[1::2] = -normal[::2][: n_records // 2]
        return components.mean[members] + np.einsum("nij,nj->ni", components.factor[members], normal)

    def scores(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        shares, components = charts
        images = components.images(records)
        logs = np.log(shares.p[0]) + components.logs(images)
        given = softmax(logs, axis=1)
        return np.hstack([shares.scores(given[:, None, :]), components.scores(given, images)])

    def components(self, charts: Sequence[Chart]) -> tuple[np.ndarray, Sequence[Chart]]:
        return charts[0].p[0], charts[1:]

    def merged(self, charts: Sequence[Chart], into: np.ndarray) -> list[Chart]:
        p, weights = weights_in(into, charts[0].p[0])
        return [replace(charts[0], p=p[None]), charts[1].merged(weights)]


def match_of(simulator: MixtureSimulator, concentration: float, prior_sizes: tuple[float, float]) -> ChartMatch:
    """Components whose records give the totals of a private fit; the first start is the fit's posterior.

    Raises
    ------
    NotImplementedError
        For Student-t, tied and spherical components, and as :func:`totals_of` does.
    """
    model = simulator.model
    posterior, kind = model.last_posterior_, model.last_posterior_.covariance_type
    if kind not in ("full", "diag") or posterior.tail.any():
        raise NotImplementedError('Only Gaussian components with covariance_type="full" or "diag" are matched.')
    totals, components = totals_of(model), chart_of(posterior, prior_sizes)
    charts = [Simplexes.inside(posterior.weights[None], concentration), components]
    return best_match(simulator, totals, charts, partial(_moved_apart, charts))


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


def _moved_apart(charts: Sequence[Chart], rng: np.random.Generator) -> list[Chart]:
    """Another start: components of equal size at random places among all records."""
    shares, components = charts
    equal = replace(shares, p=np.full_like(shares.p, 1.0 / shares.p.size))
    return [equal, components.moved_apart(shares.p[0], rng)]
