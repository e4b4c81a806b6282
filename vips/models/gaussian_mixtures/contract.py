"""The contract of Gaussian mixtures: what the engine calls.

w ~ Dirichlet(α, …, α), or the stick-breaking weights of a Dirichlet process with concentration α
Λ_k ~ Wishart(ν₀, W₀⁻¹),   μ_k | Λ_k ~ N(m₀, (β₀ Λ_k)⁻¹)
z_n | w ~ Categorical(w),   x_n | z_n = k ~ N(μ_k, (u_nk Λ_k)⁻¹)        u_nk = 1, or Gamma(t/2, t/2): Student-t components
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from vips._support.arguments import arguments, choice, function_of_step, number, positive, whole
from vips._support.validation import check_max_norm
from vips.core.exact.rowwise import scaled_rows
from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.core.records.source import DataSource
from vips.core.step_size import PolynomialAveraging, RobbinsMonro
from vips.core.sums import Block, RecordStatistics
from vips.core.sums.gaussians import MixtureStatistics
from vips.models import _typical as typical
from vips.models._centred import look_at_columns, place
from vips.models._gaussians.denoising import Influence, view
from vips.models._gaussians.posterior import KINDS, MixturePosterior
from vips.models._gaussians.splitting import growing_phases, lengths_of_growth, n_splits_in_step, split
from vips.models._gaussians.transport import carried
from vips.models._gaussians.update import Moments, Priors, next_posterior
from vips.models._mixture import Mixture
from vips.models._starts import best_start, clusters
from vips.models._variance_ratios import WITH_SQUARES, matched_blocks
from vips.models.components.matching.match import Match
from vips.models.components.matching.steps import kept_steps
from vips.models.gaussian_mixtures.matching import MixtureSimulator, match_of, matched_components

__all__ = ["GaussianMixtureModel"]

_AVERAGING, _LARGEST = PolynomialAveraging(power=4.0), 0.3
_UPDATES = 12  # least sum of the step sizes after growth, for which a short fit takes longer steps
_PRIOR_SHARE = 0.001  # of the covariance of all records: as a prior, the whole would hide components that are thin
_LEAST_STD = 1e-4  # of a private component, in units of `max_norm`
_CHUNK = 500_000  # numbers: more would leave the cache, and fewer keep threads waiting for each other
_FIRST_TAIL = 8.0


@arguments
class GaussianMixtureModel(Mixture):
    """The methods that the engine calls. :class:`~vips.BayesianGaussianMixture` documents the arguments."""

    n_components: int = whole(1, kw_only=False)
    covariance_type: str = choice(*KINDS)
    weight_concentration_prior_type: str = choice("dirichlet_process", "dirichlet_distribution")
    weight_concentration_prior: float | None = positive()
    mean_precision_prior: float | None = positive()
    mean_prior: object = None
    degrees_of_freedom_prior: float | None = positive()
    covariance_prior: object = None
    reg_covar: float | None = number(None, 0.0, 1e12, "a number between 0 and 1e12")
    inference: str = choice("vb", "em")
    dof: object = None
    max_norm: float | None = None
    schedule: object = function_of_step("PolynomialAveraging()")
    on_invalid: str = "drop"

    name_of_score = "log density"
    _unlisted = ("simulator",)
    exact_rows = True
    exact_noise = ("count",)

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        check_max_norm(self.max_norm, self.is_private, "longer rows are scaled down to it")
        self._tail()

    def check_features(self) -> None:
        if self.n_features_in_ < 1:
            raise ValueError("X has no columns.")
        self._priors()

    # -- sums ---------------------------------------------------------------------------------------------------

    def blocks(self) -> dict[str, Block]:
        """Scales such that a record at its component has norm 1, and noise costs least in KL: see docs/gaussian_mixtures.md."""
        n, d = self.n_components, self.n_features_in_
        shapes = {"full": (n, d, d), "tied": (d, d), "diag": (n, d), "spherical": (n,)}
        # of each block: square of the norm at a component, and cost of noise of standard deviation 1
        at = {"count": (1.0, 1.0), "linear": (d, d), "second": {
            "full": (d**2, d**2 / 2), "tied": (d**2, d**2 / (2 * n)), "diag": (3.0 * d, d), "spherical": (d**2, 1.0 / d),
        }[self.covariance_type]}  # fmt: skip
        shape = {"count": (n,), "linear": (n, d), "second": shapes[self.covariance_type]}
        if self._tail().any():
            at["weight"], shape["weight"] = (1.0, 1.0), (n,)
            if self._learns_tail():
                at["tail"], shape["tail"] = (2.0, 0.5), (n,)
        whole = sum(np.sqrt(norm * cost) for norm, cost in at.values())
        scales = {name: float(np.sqrt(whole * np.sqrt(norm / cost))) for name, (norm, cost) in at.items()}
        symmetric = self.covariance_type in ("full", "tied")
        blocks = {name: Block(shape[name], name == "second" and symmetric, scales[name]) for name in shape}
        return blocks | self.block_of_squares()

    def begin(self, records: DataSource) -> MixturePosterior | None:
        """Look where the columns lie, and begin at clusters of the records."""
        look_at_columns(self, records, self._vectors)
        return best_start(self, records, self._starts)

    def _starts(self, records, weights: np.ndarray, rng: np.random.Generator) -> list[MixturePosterior]:
        X, kind, priors, K = self._vectors(records), self.covariance_type, self._priors(), self.n_components
        everybody, (centre, units) = Moments.of_rows(X, weights[:, None], kind), self._place
        first = self._with_learnt_priors(self._first(np.zeros((K, X.shape[1]))), everybody, priors)
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
        return [*growing, FitPhase("components", n_left, step_size=partial(self._step_size, n_left), **moments)]

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps)

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        K, d = self.n_components, typical.n_columns(self, n_features)
        return typical.vectors(self.max_norm, typical.members(n_records, K, rng), K, d, rng), None

    def to_match(self) -> Match:
        priors = self._priors()
        return match_of(self.simulator(), priors.concentration, (priors.mean_precision, priors.dof))

    def simulator(self) -> MixtureSimulator:
        """Simulator of records like those of a private fit."""
        return MixtureSimulator(self)

    def to_noise_aware_posterior(self) -> MixturePosterior:
        return matched_components(self.match(), self.last_posterior_)

    def prepare(self, posterior: MixturePosterior) -> None:
        _ = posterior.tables

    def expected_statistics(self, records, posterior: MixturePosterior) -> RecordStatistics:
        return self.with_squares(self._statistics(records, posterior, 1.0 if self.is_private else np.inf))

    def _statistics(self, records, posterior: MixturePosterior, largest: float = np.inf) -> MixtureStatistics:
        return MixtureStatistics(self._vectors(records), posterior.tables, matched_blocks(self.blocks()), largest)

    def _vectors(self, records) -> np.ndarray:
        """Rows, at most as long as ``max_norm``."""
        X = sp.csr_array(records).toarray() if sp.issparse(records) else np.asarray(records)
        X = np.ascontiguousarray(X, dtype=np.float64)
        return X if self.max_norm is None else scaled_rows(X, float(self.max_norm))

    def max_record_norm(self) -> float:
        """1, the norm of a record at its component: others weigh less in a private fit; with weights their squares, too."""
        longer = WITH_SQUARES if self.weighs_records else 1.0
        return longer * (1.0 + 1e-8) if self.is_private else np.inf

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full-batch steps until the components have settled, at most 500."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=500)

    def default_chunk_size(self) -> int:
        return int(np.clip(_CHUNK // (self.n_columns + 3 * self.n_components), 256, 16384))

    # -- steps --------------------------------------------------------------------------------------------------

    def _step_size(self, n_steps: int, s: int) -> float:
        """ρ of the steps s = 1, 2, … after the last split, ``n_steps`` in all: ``schedule(s)`` if there is one, min(0.3,
        5/(s + 4)) in a private fit (longer steps if they are less than 40), (1 + s)^(-0.6) in a non-private stochastic one,
        and 1 in a non-private full-batch one. While components are split it is ½. It is 1 in the first step of all."""
        if s == 1 and (self.n_components == 1 or not self.is_private):
            return 1.0
        if self.schedule is not None:
            return self.schedule(s)
        if self.is_private:
            return min(max(_LARGEST, _UPDATES / n_steps), _AVERAGING(s))
        return 1.0 if self.plan_of_fit().sampling_rate == 1.0 else RobbinsMonro(offset=1.0, decay=0.6)(s)

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
        moments = Moments.of(totals, previous).first(previous.n_active)
        if previous.n_active == 1:
            previous = self._with_learnt_priors(previous, moments, priors)
        n_active = min(previous.n_active + n_splits, self.n_components)
        moments, parent, portion = split(
            moments, previous.n_active, n_splits, previous.directions, self.covariance_type, priors.units
        )
        posterior = next_posterior(moments, previous, priors, n_active)
        return replace(posterior, parent=parent, portion=portion, tail=posterior.tail[parent])

    def transport(self, average, noise_std, previous: MixturePosterior, posterior: MixturePosterior):
        """Totals in the coordinates of the components, which have moved (``transport.py``)."""
        return carried(average, noise_std, previous, posterior)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _first(self, directions: np.ndarray) -> MixturePosterior:
        """One component over the ball of ``max_norm``, or where the columns lie; the others wait at the same place."""
        n, d, (centre, units) = self.n_components, self.n_features_in_, self._place
        spread = np.full(d, float(self.max_norm) if self.is_private else 1.0) * units / np.sqrt(d)
        shape = {"full": (n, d, d), "tied": (1, d, d)}.get(self.covariance_type, (n, 1, d))
        prior_shape = (d, d) if self.covariance_type in ("full", "tied") else (1, d)
        priors = self._priors()
        is_process = priors.process and self.inference == "vb"
        return MixturePosterior(
            covariance_type=self.covariance_type,
            concentration=np.ones((2, n)) if is_process else np.ones(n),
            mean=np.tile(centre, (n, 1)),
            mean_precision=np.ones(n),
            dof=np.full(n, priors.dof),
            factor=np.broadcast_to(np.diag(spread) if shape[1] == d else spread, shape),
            tail=self._tail(),
            plug_in=self.inference == "em",
            n_active=1,
            parent=np.arange(n),
            portion=np.ones(n),
            prior_mean=np.zeros(d) if priors.mean is None else priors.mean,
            prior_covariance=np.zeros(prior_shape) if priors.covariance is None else priors.covariance,
            directions=directions,
        )

    def _with_learnt_priors(self, previous: MixturePosterior, moments: Moments, priors: Priors) -> MixturePosterior:
        """Mean and covariance of all records, which are the totals of the only component, where none are given."""
        given, count = {}, max(moments.count[0], 2.0)
        if priors.mean is None:
            given["prior_mean"] = moments.mean[0]
        if priors.covariance is None:
            share = _PRIOR_SHARE if self.is_private else count / (count - 1.0)
            given["prior_covariance"] = share * moments.covariance[0]
        return replace(previous, **given)

    def _priors(self) -> Priors:
        d, kind = self.n_features_in_, self.covariance_type
        mean = None if self.mean_prior is None else np.asarray(self.mean_prior, dtype=np.float64)
        if mean is not None and not (mean.shape == (d,) and np.isfinite(mean).all()):
            raise ValueError(f"`mean_prior` must be {d} finite numbers, got shape {mean.shape}.")
        covariance = None if self.covariance_prior is None else np.asarray(self.covariance_prior, dtype=np.float64)
        if covariance is not None:
            shape = {"full": (d, d), "tied": (d, d), "diag": (d,), "spherical": ()}[kind]
            if covariance.shape != shape or not np.isfinite(covariance).all() or not _is_positive(covariance):
                raise ValueError(
                    f"`covariance_prior` must be positive definite and of shape {shape}, got {covariance.shape}."
                )
            covariance = covariance if len(shape) == 2 else np.broadcast_to(covariance, (1, d)).copy()
        dof = float(d) if self.degrees_of_freedom_prior is None else float(self.degrees_of_freedom_prior)
        if dof <= d - 1.0:
            raise ValueError(f"`degrees_of_freedom_prior` must be greater than {d - 1}, got {dof:g}.")
        reg_covar, units = self.reg_covar, self._place[1]
        if reg_covar is None:
            reg_covar = (_LEAST_STD * float(self.max_norm)) ** 2 if self.is_private else 1e-6 * np.square(units)
        alpha, beta = self.weight_concentration_prior, self.mean_precision_prior
        return Priors(
            process=self.weight_concentration_prior_type == "dirichlet_process",
            concentration=1.0 / self.n_components if alpha is None else float(alpha),
            mean_precision=1.0 if beta is None else float(beta),
            dof=dof,
            mean=mean,
            covariance=covariance,
            reg_covar=reg_covar,
            units=units,
        )

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


def _is_positive(covariance: np.ndarray) -> bool:
    if covariance.ndim < 2:
        return bool((covariance > 0.0).all())
    return np.allclose(covariance, covariance.T) and np.linalg.eigvalsh(covariance).min() > 0.0
