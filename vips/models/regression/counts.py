"""Bayesian regression of counts: the augmentation of logistic regression, with other likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.base import RegressorMixin

from vips._validation import check_integer
from vips.expfam import DiagonalGaussian, Gamma, Gaussian
from vips.expfam.gaussian import posterior_probabilities
from vips.models.regression.estimator import PolyaGammaRegression
from vips.models.regression.likelihoods import Binomial, NegativeBinomial
from vips.privacy import PrivacyBudget, PrivacyPlan

__all__ = ["BayesianBinomialRegression", "BayesianNegativeBinomialRegression"]


# Upper limit of `n_trials` and `max_count`.
_MOST = 1_000_000


class BayesianBinomialRegression(RegressorMixin, PolyaGammaRegression):
    """Counts out of a fixed number of trials, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_trials : int
        n. Public.
    privacy, max_norm, fit_intercept, indicators, prior, covariance, statistics, influence, schedule
    on_invalid, dtype, random_state
        See :class:`BayesianLogisticRegression`. A count that is not a whole number from 0 to ``n_trials`` makes a record
        defective.

    Attributes
    ----------
    posterior_, coef_, intercept_, alpha_, bound_, privacy_
        See :class:`BayesianLogisticRegression`.

    Privacy
    -------
    As :class:`BayesianLogisticRegression`; ``n_trials`` is public, too.
    """

    settings_of_meaning = ("fit_intercept", "n_trials")

    def __init__(
        self,
        *,
        n_trials: int = 1,
        privacy: PrivacyBudget | PrivacyPlan | None = None,
        max_norm: float | None = None,
        fit_intercept: bool = True,
        indicators: Sequence[tuple[int, int, float]] | None = None,
        prior: float | Gamma | Gaussian | DiagonalGaussian | None = None,
        covariance: str = "full",
        statistics: str = "centred",
        influence: str = "unbiased",
        schedule: Callable[[int], float] | None = None,
        on_invalid: str = "drop",
        dtype: type = np.float64,
        random_state: object = None,
    ) -> None:
        super().__init__(
            privacy=privacy, max_norm=max_norm, fit_intercept=fit_intercept, indicators=indicators,
            prior=prior, covariance=covariance, statistics=statistics, influence=influence, schedule=schedule,
            on_invalid=on_invalid, dtype=dtype, random_state=random_state,
        )  # fmt: skip
        self.n_trials = n_trials

    def typical_labels(self, predictor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.binomial(self.n_trials, self.likelihood.expected(predictor) / self.n_trials)

    def predict(self, X) -> np.ndarray:
        """Posterior mean of the expected count, n E[σ(ψ)], shape (n_records,)."""
        return self.n_trials * posterior_probabilities(*self._predictors(X))[:, 0]

    def check_parameters(self) -> None:
        super().check_parameters()
        check_integer("n_trials", self.n_trials, 1, _MOST)

    @property
    def likelihood(self) -> Binomial:
        return Binomial(self.n_trials)

    def _declared(self) -> tuple[str, ...]:
        return (f"n_trials = {self.n_trials}",)


class BayesianNegativeBinomialRegression(RegressorMixin, PolyaGammaRegression):
    """Overdispersed counts, fitted by (private) variational Bayes.

    Parameters
    ----------
    dispersion : float
        r: the variance of a count of mean m = exp(x'w) is m + m²/r; a large r gives Poisson counts. Public.
    max_count : int or None
        Larger counts are reduced to it. Required by a private fit.
    privacy, max_norm, fit_intercept, indicators, prior, covariance, statistics, influence, schedule
    on_invalid, dtype, random_state
        See :class:`BayesianLogisticRegression`. A count that is not a whole number ≥ 0 makes a record defective.

    Attributes
    ----------
    posterior_, coef_, intercept_, alpha_, bound_, privacy_
        See :class:`BayesianLogisticRegression`.

    Privacy
    -------
    As :class:`BayesianLogisticRegression`; ``dispersion`` and ``max_count`` are public, too.
    """

    settings_of_meaning = ("fit_intercept", "dispersion")
    name_of_ratio = "rate ratio"

    def __init__(
        self,
        *,
        dispersion: float = 1.0,
        max_count: int | None = None,
        privacy: PrivacyBudget | PrivacyPlan | None = None,
        max_norm: float | None = None,
        fit_intercept: bool = True,
        indicators: Sequence[tuple[int, int, float]] | None = None,
        prior: float | Gamma | Gaussian | DiagonalGaussian | None = None,
        covariance: str = "full",
        statistics: str = "centred",
        influence: str = "unbiased",
        schedule: Callable[[int], float] | None = None,
        on_invalid: str = "drop",
        dtype: type = np.float64,
        random_state: object = None,
    ) -> None:
        super().__init__(
            privacy=privacy, max_norm=max_norm, fit_intercept=fit_intercept, indicators=indicators,
            prior=prior, covariance=covariance, statistics=statistics, influence=influence, schedule=schedule,
            on_invalid=on_invalid, dtype=dtype, random_state=random_state,
        )  # fmt: skip
        self.dispersion = dispersion
        self.max_count = max_count

    def typical_labels(self, predictor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        counts = rng.negative_binomial(self.dispersion, 1.0 / (1.0 + np.exp(predictor) / self.dispersion))
        return counts if self.max_count is None else np.minimum(counts, self.max_count)

    def predict(self, X) -> np.ndarray:
        """Posterior mean of the expected count, E[exp(x'w)] = exp(x'μ + x'Σx/2), shape (n_records,)."""
        mean, variance = self._predictors(X)
        return self.dispersion * np.exp(mean + 0.5 * variance)[:, 0]

    def check_parameters(self) -> None:
        super().check_parameters()
        if not 1e-6 <= self.dispersion <= 1e6:
            raise ValueError(f"`dispersion` must be a number between 1e-6 and 1e6, got {self.dispersion!r}.")
        if self.max_count is not None:
            check_integer("max_count", self.max_count, 1, _MOST)
        elif self.is_private:
            raise ValueError(
                "`max_count` is required for a private fit: a record's share in the sum grows with its count, and a bound that "
                "is learnt from the counts would reveal the largest. Declare a bound; larger counts are reduced to it."
            )

    def max_record_norm(self) -> float:
        """As in the base class; ``inf`` without a ``max_count``, too."""
        return np.inf if self.max_count is None else super().max_record_norm()

    @property
    def likelihood(self) -> NegativeBinomial:
        return NegativeBinomial(self.dispersion, self.max_count)

    def _declared(self) -> tuple[str, ...]:
        return (f"dispersion = {self.dispersion:g}", f"max_count = {self.max_count}")
