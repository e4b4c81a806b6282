"""Bayesian regression of counts: the augmentation of logistic regression, with other likelihoods."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom
from sklearn.base import RegressorMixin

from vips._support.arguments import arguments, whole
from vips.core.records.partition import with_their_weights
from vips.core.records.source import DataSource
from vips.expfam.gaussian import posterior_probabilities
from vips.models._exposures import (
    MOST,
    check_counts,
    check_planned,
    score_of_counts,
    times_exposure,
    with_exposure,
)
from vips.models.regression.estimator import PolyaGammaRegression
from vips.models.regression.likelihoods import Binomial, NegativeBinomial
from vips.models.regression.posterior import CoefficientPosterior

__all__ = ["BayesianBinomialRegression", "BayesianNegativeBinomialRegression"]


@arguments
class BayesianBinomialRegression(RegressorMixin, PolyaGammaRegression):
    """Counts out of a fixed number of trials, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_trials : int
        n. Public.
    privacy, max_norm, fit_intercept, indicators, prior, covariance, statistics, schedule
    on_invalid, dtype, random_state
        See :class:`BayesianLogisticRegression`. A count that is not a whole number from 0 to ``n_trials`` makes a record
        defective.

    Attributes
    ----------
    posterior_, coef_, intercept_, alpha_, bound_, privacy_
        See :class:`BayesianLogisticRegression`.

    Notes
    -----
    *Privacy.* As :class:`BayesianLogisticRegression`; ``n_trials`` is public, too.
    """

    n_trials: int = whole(default=1, high=MOST)

    settings_of_meaning = ("fit_intercept", "n_trials")

    def typical_labels(self, predictor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.binomial(self.n_trials, self.likelihood.expected(predictor) / self.n_trials)

    def predict(self, X) -> np.ndarray:
        """Posterior mean of the expected count, n E[σ(ψ)], shape (n_records,)."""
        return self.n_trials * posterior_probabilities(*self._predictors(X))[:, 0]

    @property
    def likelihood(self) -> Binomial:
        return Binomial(self.n_trials)

    def _declared(self) -> tuple[str, ...]:
        return (f"n_trials = {self.n_trials}",)


@arguments
class BayesianNegativeBinomialRegression(RegressorMixin, PolyaGammaRegression):
    """Overdispersed counts, fitted by (private) variational Bayes.

    Parameters
    ----------
    dispersion : float
        r: the variance of a count of mean m = exp(x'w) is m + m²/r; a large r gives Poisson counts. Public.
    max_count : int or None
        Larger counts are reduced to it. Required by a private fit.
    exposure_bounds : (float, float) or None
        Between which exposures lie; others are brought there. Required by a private fit with exposures. Public.
    privacy, max_norm, fit_intercept, indicators, prior, covariance, statistics, schedule
    on_invalid, dtype, random_state
        See :class:`BayesianLogisticRegression`. A count that is not a whole number ≥ 0 makes a record defective.

    Attributes
    ----------
    posterior_, coef_, intercept_, alpha_, bound_, privacy_
        See :class:`BayesianLogisticRegression`.
    dispersion_ : float
        The dispersion from 0.001 to 1e6 under which the counts are most probable, given the fitted means; ordinary fits only.

    Notes
    -----
    *Privacy.*
    As :class:`BayesianLogisticRegression`; ``dispersion``, ``max_count`` and ``exposure_bounds`` are public, too. An exposure
    is part of its record, and moves nothing beyond the record's clip.
    """

    dispersion: float = 1.0
    max_count: int | None = whole(default=None, high=MOST)
    exposure_bounds: tuple[float, float] | None = None

    settings_of_meaning = ("fit_intercept", "dispersion")
    _beside = ("exposure", "sample_weight", "public_X", "public_y")
    name_of_ratio = "rate ratio"
    score, with_exposure = score_of_counts, with_exposure

    def typical_labels(self, predictor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        check_planned(self)
        counts = rng.negative_binomial(self.dispersion, 1.0 / (1.0 + np.exp(predictor) / self.dispersion))
        return counts if self.max_count is None else np.minimum(counts, self.max_count)

    def predict(self, X, exposure=1.0) -> np.ndarray:
        """Posterior mean of the expected count, exposure · E[exp(x'w)] = exposure · exp(x'μ + x'Σx/2), shape (n_records,)."""
        mean, variance = self._predictors(X)
        return times_exposure(exposure, self.dispersion * np.exp(mean + 0.5 * variance)[:, 0])

    @property
    def _releases_rates(self) -> bool:
        return not (self._is_given or self._knows_public)

    def _rates(self, y: np.ndarray) -> np.ndarray:
        return self.likelihood.rates(y)

    def _intercept_at(self, rates: np.ndarray | None, noise_std: float) -> float:
        """Logarithm of the average rate, from released sums of counts and exposures alone."""
        if not self.fit_intercept:
            return 0.0
        return self.likelihood.typical_log_rate() if rates is None else self.likelihood.log_rate(rates, noise_std)

    def finish(self, records: DataSource) -> None:
        """As in the base class, and ``dispersion_``."""
        super().finish(records)
        chunks = with_their_weights(records.chunks(self.chunk_size), self.plan_of_fit().max_weight is not None)
        posterior = self.last_posterior_
        parts = [(chunk.y, self._predictors_of_read(chunk.X, posterior)[0][:, 0], weights) for chunk, weights in chunks]
        counts = np.concatenate([self.likelihood.limited(y)[:, 0] for y, *_ in parts])
        means = np.concatenate(
            [self.dispersion * np.exp(psi + self.likelihood.log_exposures(y)) for y, psi, _ in parts]
        )
        weights = np.concatenate([weights for *_, weights in parts])

        def loss(log_dispersion: float) -> float:
            r = np.exp(log_dispersion)
            return -np.average(nbinom.logpmf(counts, r, r / (r + means)), weights=weights)

        self.dispersion_ = float(np.exp(minimize_scalar(loss, bounds=np.log([1e-3, 1e6]), method="bounded").x))

    def laplace_posterior(self, X, y=None, exposure=None) -> CoefficientPosterior:
        """See :meth:`BayesianLogisticRegression.laplace_posterior`; ``exposure`` is that of the fit. Its deviations are the
        standard errors of an ordinary fit: those of the variational posterior are too small, far too small for large counts."""
        return super().laplace_posterior(X, y if exposure is None else np.column_stack([y, exposure]))

    def check_parameters(self) -> None:
        super().check_parameters()
        check_counts(self)

    def check_beside(self, X) -> None:
        super().check_beside(X)
        if self.beside.exposure is not None and self.beside.public_X is not None:
            raise ValueError("Public records have no exposures here: pass `exposure` or `public_X`.")

    @property
    def likelihood(self) -> NegativeBinomial:
        return NegativeBinomial(self.dispersion, self.max_count, self.exposure_bounds)

    def _declared(self) -> tuple[str, ...]:
        bounds = () if self.exposure_bounds is None else (f"exposures between {self.exposure_bounds}",)
        return (f"dispersion = {self.dispersion:g}", f"max_count = {self.max_count}", *bounds)
