"""Bayesian regression of counts: the same augmentation as logistic regression, with other b and κ.

    binomial           y ~ Binomial(n, σ(ψ)),              b = n,       κ = y - n/2
    negative binomial  y ~ NB(r, σ(ψ)), E y = r exp(ψ),    b = y + r,   κ = (y - r)/2          ψ = x'w + intercept

Polson, Scott and Windle (2013), arXiv:1205.0310v3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom, nbinom
from sklearn.base import RegressorMixin

from vips._validation import check_integer
from vips.expfam import DiagonalGaussian, Gamma, Gaussian
from vips.expfam.gaussian import posterior_probabilities
from vips.models._coefficients import count_scores
from vips.models.regression.estimator import PolyaGammaRegression
from vips.parts import Score
from vips.privacy import PrivacyBudget, PrivacyPlan

__all__ = ["BayesianBinomialRegression", "BayesianNegativeBinomialRegression"]


# Upper limit of `n_trials` and `max_count`.
_MOST = 1_000_000


class _CountRegression(RegressorMixin, PolyaGammaRegression):
    """Base of the two regressions: counts are whole numbers from 0 to a public bound."""

    def score(self, X, y, sample_weight=None) -> float:
        """Coefficient of determination R² of :meth:`predict`."""
        return super().score(X, y, sample_weight)

    def held_out_scores(self, X, y=None, noise_aware: bool = False) -> list[Score]:
        """Root mean squared error, and R²."""
        return [] if noise_aware else count_scores(self, X, y)

    def score_ranges(self) -> dict[str, tuple[float, float] | None]:
        """From twice the log likelihood under counts drawn uniformly to 0."""
        most = self._largest_count()
        return {"log_likelihood": (-2.0 * float(np.log1p(most)), 0.0) if np.isfinite(most) else None}

    def record_scores(self, records, name: str) -> np.ndarray:
        """Log likelihood of each count at the expected one."""
        counts = np.minimum(self._counts(records.y)[:, 0], self._largest_count())
        return self._log_likelihoods(counts, self.predict(records.X))

    @abstractmethod
    def _log_likelihoods(self, counts: np.ndarray, expected: np.ndarray) -> np.ndarray: ...

    def predictions(self, X) -> np.ndarray:
        """Expected counts."""
        return self.predict(X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    @abstractmethod
    def _largest_count(self) -> int: ...

    def _extreme_labels(self) -> np.ndarray:
        """0 and the largest count: squares of residuals and precisions are convex functions of the count."""
        return np.array([0.0, self._largest_count()])

    def check_values(self, X, y) -> None:
        shape, _ = self._terms(y)
        if np.isnan(shape).any():
            raise ValueError(f"y must hold whole numbers from 0 to {self._largest_count()}.")

    def _counts(self, y: np.ndarray) -> np.ndarray:
        """Counts as floats, NaN for invalid ones; shape (n_records, 1)."""
        y = np.asarray(y, dtype=np.float64)
        return np.where((y >= 0.0) & (y == np.floor(y)) & np.isfinite(y), y, np.nan)[:, None]


class BayesianBinomialRegression(_CountRegression):
    """Counts out of a fixed number of trials, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_trials : int
        n. Public.
    privacy, max_norm, fit_intercept, prior, covariance, statistics, influence, schedule, on_invalid, dtype, random_state
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
            privacy=privacy, max_norm=max_norm, fit_intercept=fit_intercept, prior=prior, covariance=covariance,
            statistics=statistics, influence=influence, schedule=schedule, on_invalid=on_invalid, dtype=dtype,
            random_state=random_state,
        )  # fmt: skip
        self.n_trials = n_trials

    def predict(self, X) -> np.ndarray:
        """Posterior mean of the expected count, n E[σ(ψ)], shape (n_records,)."""
        return self.n_trials * posterior_probabilities(*self._predictors(X))[:, 0]

    def _log_likelihoods(self, counts, expected):
        share = np.clip(expected / self.n_trials, 1e-300, 1.0 - 1e-16)
        return binom.logpmf(counts, self.n_trials, share)

    def check_parameters(self) -> None:
        super().check_parameters()
        check_integer("n_trials", self.n_trials, 1, _MOST)

    def _largest_count(self) -> int:
        return self.n_trials

    def _largest_shape(self) -> float:
        return float(self.n_trials)

    def _largest_linear(self) -> float:
        return 0.5 * self.n_trials

    def _terms(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = self._counts(y)
        y[y > self.n_trials] = np.nan
        return np.where(np.isnan(y), np.nan, float(self.n_trials)), y - 0.5 * self.n_trials

    def _log_base_measure(self, y: np.ndarray) -> float:
        y, n = self._counts(y), float(self.n_trials)
        return float(np.sum(gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)))

    def _declared(self) -> tuple[str, ...]:
        return (f"n_trials = {self.n_trials}",)


class BayesianNegativeBinomialRegression(_CountRegression):
    """Overdispersed counts, fitted by (private) variational Bayes.

    Parameters
    ----------
    dispersion : float
        r: the variance of a count of mean m is m + m²/r. Public.
    max_count : int or None
        Larger counts are reduced to it. Required by a private fit.
    privacy, max_norm, fit_intercept, prior, covariance, statistics, influence, schedule, on_invalid, dtype, random_state
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
            privacy=privacy, max_norm=max_norm, fit_intercept=fit_intercept, prior=prior, covariance=covariance,
            statistics=statistics, influence=influence, schedule=schedule, on_invalid=on_invalid, dtype=dtype,
            random_state=random_state,
        )  # fmt: skip
        self.dispersion = dispersion
        self.max_count = max_count

    def predict(self, X) -> np.ndarray:
        """Posterior mean of the expected count, r E[exp(ψ)] = r exp(x'μ + x'Σx/2), shape (n_records,)."""
        mean, variance = self._predictors(X)
        return self.dispersion * np.exp(mean + 0.5 * variance)[:, 0]

    def _log_likelihoods(self, counts, expected):
        return nbinom.logpmf(counts, self.dispersion, self.dispersion / (self.dispersion + expected))

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

    def _largest_count(self) -> int | float:
        return np.inf if self.max_count is None else self.max_count

    def _largest_shape(self) -> float:
        return 1.0 if self.max_count is None else self.max_count + float(self.dispersion)

    def _largest_linear(self) -> float:
        r = float(self.dispersion)
        return 0.5 * (r if self.max_count is None else max(r, self.max_count - r))

    def _terms(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = np.minimum(self._counts(y), self._largest_count())
        return y + self.dispersion, 0.5 * (y - self.dispersion)

    def _log_base_measure(self, y: np.ndarray) -> float:
        y, r = np.minimum(self._counts(y), self._largest_count()), float(self.dispersion)
        return float(np.sum(gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)))

    def _declared(self) -> tuple[str, ...]:
        return (f"dispersion = {self.dispersion:g}", f"max_count = {self.max_count}")
