"""Probabilistic principal component analysis from one release of second moments."""

from __future__ import annotations

import numpy as np

from vips.models.second_moments.estimates import Estimate, NoisyCovariance, principal_components
from vips.models.second_moments.factors import FactorModel

__all__ = ["ProbabilisticPCA"]


class ProbabilisticPCA(FactorModel):
    """Principal components of a Gaussian model (Tipping and Bishop, 1999), private or not.

    A private fit releases noisy second moments once; all else is post-processing, which knows the noise: it takes from large
    eigenvalues what noise added to them, and calls a component 0 that noise hides.

    Parameters
    ----------
    n_components : int or None
        None is the number of columns.
    privacy : PrivacyBudget, PrivacyPlan, StreamPlan or None
        None is a non-private fit. One full-batch step is enough; further steps are averaged.
    max_norm : float or None
        Public bound on the L2 norm of a row. Longer rows weigh less: max_norm² / norm². Required by a private fit.
    on_invalid, random_state
        See :class:`BayesianLinearRegression`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Directions, by decreasing variance, as in scikit-learn's ``PCA``.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray of shape (n_components,)
    mean_ : ndarray of shape (n_features,)
    noise_variance_ : float
        Variance in all other directions; 0 if there are none.
    n_components_ : int
    posterior_ : DiagonalGaussian, or Draws of a private fit
        Of loadings (directions times the root of the variance above the noise's), noise variances and means, for known factors.
        Draws are given the noisy moments; there are none where noise hides a component.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Notes
    -----
    *Privacy.*
    Unit: one row of X. Relation: add or remove one. Released: noisy second moments of the columns, and the noisy number of
    records, hence the posterior. Public by declaration: ``max_norm``, the number of columns, all other arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import PrivacyPlan, ProbabilisticPCA
    >>> rng = np.random.default_rng(0)
    >>> X = 0.3 * rng.normal(size=(20_000, 1)) * [0.8, 0.6, 0.0] + 0.1 * rng.normal(size=(20_000, 3))
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=1)
    >>> model = ProbabilisticPCA(1, privacy=plan, max_norm=1.0).fit(X)
    >>> bool(np.abs(model.components_[0] - [0.8, 0.6, 0.0]).max() < 0.1)
    True
    """

    def _estimate(self, data: NoisyCovariance, start: np.ndarray | None = None) -> Estimate:
        return principal_components(data, self._n_kept())

    def transform(self, X) -> np.ndarray:
        """Coordinates of rows along the components, shape (n_records, n_components)."""
        return self._centred(X) @ self.components_.T

    @property
    def components_(self) -> np.ndarray:
        """Directions of length 1; 0 for a component that noise hides."""
        loadings = self._loadings()
        lengths = np.linalg.norm(loadings, axis=1, keepdims=True)
        return np.divide(loadings, lengths, out=np.zeros(loadings.shape), where=lengths > 0.0)

    @property
    def explained_variance_(self) -> np.ndarray:
        """Variance along each component."""
        return np.square(self._loadings()).sum(axis=1) + self.noise_variance_

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """The same, as shares of the columns' total variance."""
        return self.explained_variance_ / max(self.last_posterior_.total_variance, 1e-300)

    @property
    def singular_values_(self) -> np.ndarray:
        """Roots of the variances times (number of records - 1)."""
        return np.sqrt(self.explained_variance_ * max(self.last_posterior_.count - 1.0, 0.0))

    @property
    def noise_variance_(self) -> float:
        """Variance in directions beside the components."""
        self._loadings()
        return float(self.last_posterior_.mean[-2, 0])

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return len(self._loadings())
