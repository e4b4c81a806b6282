"""The contract of Gaussian mixtures: what the engine calls, and records that are simulated for a match.

w ~ Dirichlet(α, …, α), or the stick-breaking weights of a Dirichlet process with concentration α
Λ_k ~ Wishart(ν₀, W₀⁻¹),   μ_k | Λ_k ~ N(m₀, (β₀ Λ_k)⁻¹)
z_n | w ~ Categorical(w),   x_n | z_n = k ~ N(μ_k, (u_nk Λ_k)⁻¹)        u_nk = 1, or Gamma(t/2, t/2): Student-t components
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax

from vips._support.alignment import align
from vips._support.arguments import arguments, choice, function_of_step, number, positive, whole
from vips._support.validation import check_max_norm
from vips.core.contract import weighs_records
from vips.core.exact.rowwise import scaled_rows
from vips.core.phases import FitPhase
from vips.core.records.source import DataSource
from vips.core.sums import Block, RecordStatistics
from vips.core.sums.gaussians import MixtureStatistics
from vips.expfam import Draws
from vips.models import _typical as typical
from vips.models._centred import look_at_columns, place
from vips.models._gaussians.denoising import Influence, view
from vips.models._gaussians.posterior import KINDS, MixturePosterior, at_chart, chart_of
from vips.models._gaussians.splitting import (
    first_posterior,
    growing_phases,
    lengths_of_growth,
    n_splits_in_step,
    next_components,
    step_size_of_all,
    with_learnt_priors,
)
from vips.models._gaussians.transport import carried
from vips.models._gaussians.update import Moments, Priors, next_posterior
from vips.models._mixture import Mixture, MixtureSimulator, block_of_squares, with_squares
from vips.models._scales import blocks_of_least_cost
from vips.models._starts import best_start, clusters
from vips.models._variance_ratios import WITH_SQUARES, matched_blocks
from vips.models.components.matching.charts import Chart, Simplexes
from vips.models.components.matching.match import ChartMatch, check_told

__all__ = ["GaussianMixtureModel", "GaussianSimulator", "matched_components"]

_CHUNK = 500_000  # numbers: more would leave the cache, and fewer keep threads waiting for each other
_FIRST_TAIL = 8.0


@arguments
class GaussianMixtureModel(Mixture):
    """The methods that the engine calls. :class:`~vips.BayesianGaussianMixture` documents the arguments."""

    n_components: int = whole(default=1, kw_only=False)
    covariance_type: str = choice(*KINDS, default="full")
    weight_concentration_prior_type: str = choice(
        "dirichlet_process", "dirichlet_distribution", default="dirichlet_process"
    )
    weight_concentration_prior: float | None = positive(default=None)
    mean_precision_prior: float | None = positive(default=None)
    mean_prior: object = None
    degrees_of_freedom_prior: float | None = positive(default=None)
    covariance_prior: object = None
    reg_covar: float | None = number(0.0, 1e12, "a number between 0 and 1e12", default=None)
    inference: str = choice("vb", "em", default="vb")
    dof: object = None
    max_norm: float | None = None
    schedule: object = function_of_step("PolynomialAveraging()", default=None)
    on_invalid: str = "drop"

    name_of_score = "log density"
    exact_rows = takes_sparse = True
    exact_noise = ("count",)

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        check_max_norm(self.max_norm, self.is_private, "longer rows are scaled down to it")
        self._tail()

    def check_features(self) -> None:
        super().check_features()
        self._priors()

    # -- sums ---------------------------------------------------------------------------------------------------

    def blocks(self) -> dict[str, Block]:
        """Scales such that a record at its component has norm 1, and noise costs least in KL: see docs/gaussian_mixtures.md."""
        n, d = self.n_components, self.n_features_in_
        kinds = {"count": ((n,), 1.0, 1.0), "linear": ((n, d), d, d), "second": {
            "full": ((n, d, d), d**2, d**2 / 2), "tied": ((d, d), d**2, d**2 / (2 * n)), "diag": ((n, d), 3.0 * d, d),
            "spherical": ((n,), d**2, 1.0 / d),
        }[self.covariance_type]}  # fmt: skip
        if self._tail().any():
            kinds["weight"] = (n,), 1.0, 1.0
            if self._learns_tail():
                kinds["tail"] = (n,), 2.0, 0.5
        symmetric = ["second"] if self.covariance_type in ("full", "tied") else []
        return blocks_of_least_cost(kinds, symmetric) | block_of_squares(self)

    def begin(self, records: DataSource) -> MixturePosterior | None:
        """Look where the columns lie, and begin at clusters of the records."""
        look_at_columns(self, records, self._vectors)
        return best_start(self, records, self._starts)

    def _starts(self, records, weights: np.ndarray, rng: np.random.Generator) -> list[MixturePosterior]:
        X, kind, priors, K = self._vectors(records), self.covariance_type, self._priors(), self.n_components
        everybody, (centre, units) = Moments.of_rows(X, weights[:, None], kind), self._place
        first = with_learnt_priors(self, self._first(np.zeros((K, X.shape[1]))), everybody, priors)
        members = [clusters((X - centre) / units, weights, K, rng) for _ in range(3)]
        return [next_posterior(Moments.of_rows(X, shares, kind), first, priors, K) for shares in members]

    def in_units(self, posterior):
        return posterior.in_units(*self._place)

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], MixturePosterior]:
        """One component over the ball of ``max_norm``, with draws: directions in which spherical components are split."""
        return self.initial(rng), self._first(rng.standard_normal((self.n_components, self.n_features_in_)))

    def phases(self, n_steps: int) -> list[FitPhase]:
        """In a private fit one component, which is split until there are ``n_components``; then the steps of all of them."""
        moments = {"released": "noisy counts, first and second moments of the components"}
        lengths = lengths_of_growth(self.n_components, n_steps, 1) if self.is_private else []
        growing = growing_phases(lengths, n_steps, end=self._split_components, **moments)
        n_left = n_steps - sum(phase.n_steps for phase in growing)
        return [
            *growing,
            FitPhase("components", n_left, step_size=partial(step_size_of_all, self, bool(growing), n_left), **moments),
        ]

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        K, d = self.n_components, typical.n_columns(self, n_features)
        return typical.vectors(self.max_norm, typical.members(n_records, K, rng), K, d, rng), None

    def simulator(self) -> GaussianSimulator:
        return GaussianSimulator(self, self._priors())

    def to_noise_aware_posterior(self) -> MixturePosterior:
        return matched_components(self.match(), self.last_posterior_)

    def prepare(self, posterior: MixturePosterior) -> None:
        _ = posterior.tables

    def expected_statistics(self, records, posterior: MixturePosterior) -> RecordStatistics:
        return with_squares(self, self._statistics(records, posterior, 1.0 if self.is_private else np.inf))

    def _statistics(self, records, posterior: MixturePosterior, largest: float = np.inf) -> MixtureStatistics:
        return MixtureStatistics(self._vectors(records), posterior.tables, matched_blocks(self.blocks()), largest)

    def _vectors(self, records) -> np.ndarray:
        """Rows, at most as long as ``max_norm``."""
        X = sp.csr_array(records).toarray() if sp.issparse(records) else np.asarray(records)
        X = np.ascontiguousarray(X, dtype=np.float64)
        return X if self.max_norm is None else scaled_rows(X, float(self.max_norm))

    def max_record_norm(self) -> float:
        """1, the norm of a record at its component: others weigh less in a private fit; with weights their squares, too."""
        longer = WITH_SQUARES if weighs_records(self) else 1.0
        return longer * (1.0 + 1e-8) if self.is_private else np.inf

    def default_chunk_size(self) -> int:
        return int(np.clip(_CHUNK // (self.n_columns + 3 * self.n_components), 256, 16384))

    # -- steps --------------------------------------------------------------------------------------------------

    def to_posterior(self, average, noise_std, previous: MixturePosterior | None) -> MixturePosterior:
        """The update of all components; noisy totals are denoised first."""
        return self._updated(average, noise_std, previous, 0)

    def _split_components(self, average, noise_std, previous: MixturePosterior) -> MixturePosterior:
        """The same, and a split of the largest components."""
        n_splits = n_splits_in_step(self.n_components, self.plan_of_fit().n_steps)
        return self._updated(average, noise_std, previous, n_splits)

    def _updated(self, average, noise_std, previous: MixturePosterior | None, n_splits: int) -> MixturePosterior:
        if previous is None:
            first = self._first(np.array(average["linear"]))
            totals = {name: np.maximum(value, 0.0) if name == "count" else value for name, value in average.items()}
            return next_posterior(Moments.of(totals, first), first, self._priors(), self.n_components)
        priors, totals = self._priors(), average
        if self.is_private:
            totals = view(average, noise_std, previous, self._influences(previous), float(self.max_norm))
        return next_components(self, totals, previous, priors, n_splits)

    def transport(self, average, noise_std, previous: MixturePosterior, posterior: MixturePosterior):
        """Totals in the coordinates of the components, which have moved (``transport.py``)."""
        return carried(average, noise_std, previous, posterior)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _first(self, directions: np.ndarray) -> MixturePosterior:
        """One component, with draws along which spherical ones are split."""
        priors, K, is_em = self._priors(), self.n_components, self.inference == "em"
        concentration = np.ones((2, K) if priors.process and not is_em else K)
        others = {"tail": self._tail(), "plug_in": is_em, "concentration": concentration, "directions": directions}
        return first_posterior(self, priors, self._place, **others)

    def _priors(self) -> Priors:
        alpha, units = self.weight_concentration_prior, self._place[1]
        return Priors.stated(
            self,
            ("mean_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior", "reg_covar"),
            units,
            None,
            1e-6 * np.square(units),
            process=self.weight_concentration_prior_type == "dirichlet_process",
            concentration=1.0 / self.n_components if alpha is None else float(alpha),
        )

    def _n_free(self) -> int:
        K, d = self.n_components, self.n_features_in_
        of_matrix = d * (d + 1) // 2
        of_covariances = {"full": K * of_matrix, "tied": of_matrix, "diag": K * d, "spherical": K}
        return K - 1 + K * d + of_covariances[self.covariance_type] + K * self._learns_tail()

    def _learns_tail(self) -> bool:
        return isinstance(self.dof, str)

    def _tail(self) -> np.ndarray:
        """Degrees of freedom of Student-t components at the start, 0 for Gaussian ones; shape (K,)."""
        if self.dof is None:
            return np.zeros(self.n_components)
        if isinstance(self.dof, str) and self.dof == "learn":
            return np.full(self.n_components, _FIRST_TAIL)
        try:
            tail = np.broadcast_to(np.asarray(self.dof, dtype=np.float64), self.n_components).copy()
        except (TypeError, ValueError):
            tail = np.full(1, np.nan)
        if not ((tail >= 1.0) & (tail <= 1e6)).all():
            raise ValueError(
                f'`dof` must be None, "learn", a number from 1 to 1e6, or one for each component, got {self.dof!r}.'
            )
        return tail

    _place = property(place)

    def _influences(self, frame: MixturePosterior) -> list[Influence]:
        blocks, d = matched_blocks(self.blocks()), self.n_features_in_
        largest = min(1.0, self.plan_of_fit().clip_norm)
        return [Influence.of(blocks, self.covariance_type, d, largest, tail) for tail in frame.tail]


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
