"""Factor analysis from one release of second moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, choice, number, whole
from vips.models.second_moments import estimates
from vips.models.second_moments.estimates import Estimate, NoisyCovariance
from vips.models.second_moments.factors import FactorModel

__all__ = ["FactorAnalysis"]


@arguments
class FactorAnalysis(FactorModel):
    """Factors with a noise variance for each column, private or not.

    A private fit releases noisy second moments once; the iterations are post-processing, which knows the noise.

    Parameters
    ----------
    n_components : int or None
        None is the number of columns.
    rotation : {"varimax", "quartimax"} or None
    privacy, max_norm, on_invalid, random_state
        See :class:`ProbabilisticPCA`.
    tol, max_iter : float, int
        Iterations end when the log likelihood rises by less than ``tol``; in a private fit, when no noise variance changes by
        more than 1e-4 of it.
    noise_variance_init : array of shape (n_features,), optional
        Start of the noise variances; None: 1, and without noise the variances of the columns. Public.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Loadings, as in scikit-learn's ``FactorAnalysis``.
    noise_variance_ : ndarray of shape (n_features,)
        In private fits at least the deviation of the noise in a variance.
    mean_ : ndarray of shape (n_features,)
    loglike_ : list of float
        Log likelihood after each iteration; with noisy moments, of these.
    n_iter_ : int
    posterior_ : DiagonalGaussian, or Draws of a private fit
        Of loadings, noise variances and means, for known factors. Draws are given the noisy moments; there are none where noise
        hides a factor, and of a noise variance that is at its bound only the upper end of an interval counts.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Notes
    -----
    *Privacy.* As :class:`ProbabilisticPCA`.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import FactorAnalysis, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 1)) * [0.3, 0.2, 0.0] + rng.normal(size=(20_000, 3)) * [0.1, 0.2, 0.3]
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=1)
    >>> model = FactorAnalysis(1, privacy=plan, max_norm=1.5).fit(X)
    >>> bool(np.abs(model.components_[0] - [0.3, 0.2, 0.0]).max() < 0.1)
    True
    """

    rotation: str | None = choice("varimax", "quartimax", default=None)
    tol: float = number(0.0, 1e12, "a number between 0 and 1e12", default=0.01)
    max_iter: int = whole(default=1000, high=1_000_000)
    noise_variance_init: np.ndarray | None = None

    least_strength = 3.0

    def check_features(self) -> None:
        super().check_features()
        if self.noise_variance_init is not None:
            start = np.asarray(self.noise_variance_init, dtype=np.float64)
            if start.shape != (self.n_features_in_,) or not ((start > 0.0) & np.isfinite(start)).all():
                raise ValueError("`noise_variance_init` must hold one positive number for each column of X.")

    def _estimate(self, data: NoisyCovariance, start: np.ndarray | None = None) -> Estimate:
        start = self.noise_variance_init if start is None else start
        return self._turned(estimates.factor_analysis(data, self._n_kept(), start, self.tol, self.max_iter))

    def _estimates(self, data: Sequence[NoisyCovariance], start: np.ndarray) -> list[Estimate]:
        given = estimates.noisy_factor_analysis(data, self._n_kept(), start, self.max_iter)
        return [self._turned(estimate) for estimate in given]

    def _turned(self, estimate: Estimate) -> Estimate:
        if self.rotation is None:
            return estimate
        return replace(estimate, loadings=estimates.rotated(estimate.loadings, self.rotation))

    def _most_iterations(self) -> int:
        return self.max_iter

    def transform(self, X) -> np.ndarray:
        """Expected factors of rows, shape (n_records, n_components)."""
        X, loadings = self._centred(X), self.components_
        weighted = loadings / self.noise_variance_
        return np.linalg.solve(np.eye(len(loadings)) + weighted @ loadings.T, weighted @ X.T).T

    @property
    def components_(self) -> np.ndarray:
        """Loadings."""
        return self._loadings()

    @property
    def noise_variance_(self) -> np.ndarray:
        """Noise variance of each column."""
        check_is_fitted(self, "last_posterior_")
        return self.last_posterior_.mean[-2]

    @property
    def loglike_(self) -> list[float]:
        """Log likelihood after each iteration."""
        check_is_fitted(self, "last_posterior_")
        log_likelihoods = self.last_posterior_.log_likelihoods
        return log_likelihoods[np.isfinite(log_likelihoods)].tolist()

    @property
    def n_iter_(self) -> int:
        """Number of iterations."""
        return len(self.loglike_)
