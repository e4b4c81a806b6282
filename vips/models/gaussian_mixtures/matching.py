"""Gaussian mixtures as simulated records: what a match moves, and how the steps of a fit see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from vips.expfam import Draws
from vips.models._gaussians.posterior import MixturePosterior
from vips.models.components.matching.charts import Chart, Gaussians, Simplexes
from vips.models.components.matching.match import ChartMatch, best_match, check_told
from vips.models.components.matching.simulator import Simulator, portions
from vips.models.components.matching.steps import entries, totals_of
from vips.models.gaussian_mixtures.statistics import MixtureStatistics
from vips.privacy import PrivacyPlan
from vips.statistics import Block, ReleasedStep

__all__ = ["MixtureSimulator", "as_matched", "match_of", "matched_components"]

_LEAST_SHARE = 1e-3  # at the start
_N_STARTS = 8  # other than the fit


@dataclass(frozen=True)
class MixtureSimulator(Simulator):
    """Records of Gaussian components. The charts are those of the shares, and of means and covariances.

    Parameters
    ----------
    plan : PrivacyPlan
    blocks : dict of str to Block
    statistics : callable
        Of records and a posterior.
    """

    plan: PrivacyPlan
    blocks: dict[str, Block]
    statistics: Callable[[np.ndarray, MixturePosterior], MixtureStatistics]

    def simulated(self, charts: Sequence[Chart], n_records: int, rng: np.random.Generator) -> np.ndarray:
        """Rows. Components are stratified, and normals come in pairs."""
        shares, components = charts[0].p[0], charts[1]
        places = (np.arange(n_records) + rng.random()) / n_records
        members = np.minimum((places[:, None] >= np.cumsum(shares)).sum(axis=1), len(shares) - 1)
        normal = rng.standard_normal((n_records, components.mean.shape[1]))
        normal[1::2] = -normal[::2][: n_records // 2]
        return components.mean[members] + np.einsum("nij,nj->ni", components.factor[members], normal)

    def scores(self, records: np.ndarray, charts: Sequence[Chart]) -> np.ndarray:
        shares, components = charts
        images = components.images(records)
        diagonals = np.diagonal(components.factor, axis1=1, axis2=2)
        logs = np.log(shares.p[0]) - np.log(diagonals).sum(axis=1) - 0.5 * np.square(images).sum(axis=-1)
        given = np.exp(logs - logs.max(axis=1, keepdims=True))
        given /= given.sum(axis=1, keepdims=True)
        return np.hstack([shares.scores(given[:, None, :]), components.scores(given, images)])

    def seen(self, records: np.ndarray, steps: Sequence[ReleasedStep]) -> np.ndarray:
        seen = None
        for rows, numbers, weight in portions(len(records), len(steps)):
            for number in numbers:
                statistics = self.statistics(records[rows], steps[number].posterior)
                weights = statistics.bounded(self.plan.clip_weights(statistics.norms(self.blocks)))
                formed = statistics.formed(np.arange(len(weights)), weights[:, None] * statistics.shares)
                flat = weight * entries(formed, self.blocks)
                if seen is None:
                    seen = np.zeros((len(records), flat.shape[1]))
                seen[rows] += flat
        return seen


def match_of(model, simulator: MixtureSimulator, concentration: float, prior_sizes: tuple[float, float]) -> ChartMatch:
    """Components whose records give the totals of a private fit; the first start is the fit's posterior.

    Raises
    ------
    NotImplementedError
        For Student-t, tied and spherical components, and as :func:`totals_of` does.
    """
    posterior, rng = model.posterior_, np.random.default_rng(0)
    kind = posterior.covariance_type
    if kind not in ("full", "diag") or posterior.tail.any():
        raise NotImplementedError('Only Gaussian components with covariance_type="full" or "diag" are matched.')
    totals, d = totals_of(model), posterior.mean.shape[1]
    shares = np.maximum(posterior.weights, _LEAST_SHARE)
    factor, prior = posterior.factors, posterior.prior_covariance
    if kind == "diag":
        factor, prior = factor[:, 0, :, None] * np.eye(d), np.diag(prior[0])
    components = Gaussians(posterior.mean, factor, kind == "diag", posterior.prior_mean, prior, prior_sizes)
    charts = [Simplexes((shares / shares.sum())[None], concentration), components]
    return best_match(simulator, totals, charts, lambda: [_moved_apart(charts, rng) for _ in range(_N_STARTS)])


def matched_components(match: ChartMatch, fitted: MixturePosterior) -> dict[str, Draws]:
    """Draws of shares, means and covariances, the components in the order of the fit.

    Raises
    ------
    NotImplementedError
        If the match is refused, or noise hides a component.
    """
    match.check()
    check_told(match, "components")
    order = _order(match.charts[1], fitted)
    shares, of_components = match.draws()
    mean, covariances = match.charts[1].split(of_components)
    if fitted.covariance_type == "diag":
        covariances = np.diagonal(covariances, axis1=2, axis2=3)
    return {
        "weights": Draws(shares[:, order]), "means": Draws(mean[:, order]), "covariances": Draws(covariances[:, order]),
    }  # fmt: skip


def as_matched(match: ChartMatch, fitted: MixturePosterior) -> MixturePosterior:
    """The fit's posterior with the parameters of the match, which E-steps take as known."""
    shares, components = match.charts
    order = _order(components, fitted)
    factor = components.factor[order]
    if fitted.covariance_type == "diag":
        factor = np.diagonal(factor, axis1=1, axis2=2)[:, None]
    sizes = match.n_records * shares.p[0, order]
    return replace(
        fitted,
        concentration=sizes,
        mean=components.mean[order],
        mean_precision=sizes,
        dof=sizes + fitted.mean.shape[1],
        factor=factor,
        plug_in=True,
        n_active=len(order),
    )


def _order(components: Gaussians, fitted: MixturePosterior) -> np.ndarray:
    return linear_sum_assignment(np.square(fitted.mean[:, None] - components.mean).sum(axis=-1))[1]


def _moved_apart(charts: Sequence[Chart], rng: np.random.Generator) -> list[Chart]:
    """Another start: components of equal size at random places among all records."""
    shares, components = charts[0].p[0], charts[1]
    mean = shares @ components.mean
    within = np.einsum("k,kij->ij", shares, components.covariances)
    apart = components.mean - mean
    whole = within + np.einsum("k,ki,kj->ij", shares, apart, apart)
    if components.is_diagonal:
        whole, within = np.diag(np.diagonal(whole)), np.diag(np.diagonal(within))
    places = mean + rng.standard_normal(components.mean.shape) @ np.linalg.cholesky(whole).T
    factor = np.broadcast_to(np.linalg.cholesky(within), components.factor.shape)
    equal = Simplexes(np.full_like(charts[0].p, 1.0 / len(shares)), charts[0].concentration)
    return [equal, replace(components, mean=places, factor=factor)]
