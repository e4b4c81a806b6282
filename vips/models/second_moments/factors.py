"""Probabilistic principal components and factor analysis, from one release of second moments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, choice, number, whole
from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable
from vips.core.exact.blas import cholesky, eigh, inverse_from_factor
from vips.expfam import DiagonalGaussian, Draws
from vips.models import _typical as typical
from vips.models._definite import positive_definite
from vips.models.second_moments import estimates
from vips.models.second_moments.contract import SecondMomentModel
from vips.models.second_moments.estimates import Estimate, NoisyCovariance, bootstrapped, stacked
from vips.models.second_moments.moments import SecondMoments
from vips.parts import Part, Score, average, warn_of_no_intervals

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["FactorAnalysis", "FactorModel", "FactorPosterior", "ProbabilisticPCA"]

_N_DRAWS = 300


class FactorPosterior(DiagonalGaussian):
    """Loadings, noise variances and means of the columns: the rows of ``mean``, shape (n_components + 2, n_features).

    Variances are those for known factors: ψ/N of loadings, 2ψ²/N of noise variances, and Cov(x)/N of means.

    Parameters
    ----------
    mean, precision : array of shape (n_components + 2, n_features)
    count : float
        Number of records.
    total_variance : float
    log_likelihoods : array of shape (max_iter,)
        After each iteration; infinite after the last.
    """

    _parameters = "mean", "precision", "count", "total_variance", "log_likelihoods"

    def __init__(self, mean, precision, count=0.0, total_variance=0.0, log_likelihoods=()) -> None:
        super().__init__(mean, precision)
        self.count, self.total_variance = float(count), float(total_variance)
        self.log_likelihoods = np.asarray(log_likelihoods, dtype=np.float64)

    @classmethod
    def of(cls, data: NoisyCovariance, estimate: Estimate, max_iter: int) -> FactorPosterior:
        """From an estimate."""
        loadings, psi, count = estimate.loadings, estimate.noise_variance, max(data.count, 1.0)
        variances = np.vstack([np.tile(psi, (len(loadings), 1)), 2.0 * psi**2, psi + np.square(loadings).sum(axis=0)])
        curve = np.full(max_iter, np.inf)
        curve[: len(estimate.log_likelihoods)] = estimate.log_likelihoods
        total = np.trace(data.scatter) / max(data.count - 1.0, 1.0)
        return cls(stacked(estimate, data.mean), count / np.maximum(variances, 1e-100), data.count, total, curve)


@arguments
class FactorModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SecondMomentModel):
    """Base class; a subclass estimates loadings and noise variances from a covariance."""

    n_components: int | None = whole(default=None, high=1_000_000, kw_only=False)

    ignores_labels = True
    unit = "one row of X"
    _unlisted = ("least_strength",)
    least_strength = 2.0  # ℓ/t of a component for which errors of simulated fits are like those of this one

    def check_features(self) -> None:
        super().check_features()
        if self._n_kept() > self.n_features_in_:
            raise ValueError(f"n_components={self.n_components} is more than the {self.n_features_in_} column(s) of X.")

    @abstractmethod
    def _estimate(self, data: NoisyCovariance, start: np.ndarray | None = None) -> Estimate:
        """The model of a covariance; iterations may start at noise variances."""

    def _estimates(self, data: Sequence[NoisyCovariance], start: np.ndarray) -> list[Estimate]:
        return [self._estimate(covariance, start) for covariance in data]

    def _most_iterations(self) -> int:
        return 0

    def _n_kept(self) -> int:
        return self.n_features_in_ if self.n_components is None else self.n_components

    def _posterior_of(self, moments: SecondMoments) -> FactorPosterior:
        data = NoisyCovariance.of(moments, self._constant())
        if moments.matrix.any():
            estimate, data = self._estimate(data), replace(data, mean=data.mean + self._centre)
        else:
            d = self.n_features_in_
            estimate = Estimate(np.zeros((self._n_kept(), d)), np.ones(d))
        return FactorPosterior.of(data, estimate, self._most_iterations())

    def _noise_aware_posterior_of(self, moments: SecondMoments) -> Draws:
        """Draws by a parametric bootstrap (``estimates.py``)."""
        data = NoisyCovariance.of(moments, self._constant())
        estimate = self._estimate(data)
        if not estimate.strength >= self.least_strength:
            raise NotImplementedError(
                "Noise hides a component, or turns it too far: intervals would not hold the truth. Take fewer "
                "components, more records or a larger ε."
            )
        again = partial(self._estimates, start=estimate.noise_variance)
        return bootstrapped(data, estimate, again, self._constant(), _N_DRAWS)

    # -- users --------------------------------------------------------------------------------------------------

    def inverse_transform(self, X) -> np.ndarray:
        """Expected rows with these factors or coordinates, shape (n_records, n_features)."""
        return np.asarray(X) @ self.components_ + self.mean_

    @property
    def mean_(self) -> np.ndarray:
        """Means of the columns."""
        check_is_fitted(self, "last_posterior_")
        return self.last_posterior_.mean[-1]

    def get_covariance(self) -> np.ndarray:
        """Covariance of the columns under the model, shape (n_features, n_features)."""
        loadings = self._loadings()
        return loadings.T @ loadings + np.diag(self.last_posterior_.mean[-2])

    def get_precision(self) -> np.ndarray:
        """Its inverse."""
        return inverse_from_factor(cholesky(positive_definite(self.get_covariance())))

    def score_samples(self, X) -> np.ndarray:
        """Log likelihood of each row."""
        X = self._centred(X)
        values, vectors = eigh(positive_definite(self.get_covariance()))
        squares = np.square(X @ vectors / np.sqrt(values)).sum(axis=1)
        return -0.5 * (squares + np.log(values).sum() + X.shape[1] * np.log(2.0 * np.pi))

    def score(self, X, y=None) -> float:
        """Average log likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Loadings, noise variances and means of the columns by name: mean, deviation and interval.

        Where noise hides a component there are no intervals: the table then has the estimates, and NaN for deviations and
        limits.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            Columns "mean", "std", "lower" and "upper"; one row for each number.

        Warns
        -----
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        """
        pd = imported("pandas", "summary()")

        warn_of_no_intervals(self)
        posterior, names = self.posterior_, self.column_names()
        shape = posterior.mean.shape
        if self.why_no_intervals():
            numbers = [posterior.mean, *np.full((3, *shape), np.nan)]
        else:
            numbers = [posterior.mean, posterior.std, *posterior.interval(level)]
        index = [_label(self._n_kept(), names, place) for place in np.ndindex(shape)]
        columns = dict(zip(("mean", "std", "lower", "upper"), map(np.ravel, numbers), strict=True))
        return pd.DataFrame(columns, index=index)

    def plot_loadings(self, ax: Axes | None = None) -> Axes:
        """Loadings as an image, one row for each component.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        plt = imported("matplotlib.pyplot", "plot_loadings()")

        loadings, names = self._loadings(), self.column_names()
        if ax is None:
            _, ax = plt.subplots(figsize=(1.5 + 0.4 * len(names), 1.2 + 0.4 * len(loadings)), layout="constrained")
        most = np.abs(loadings).max(initial=1e-300)
        image = ax.imshow(loadings, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
        ax.set_xticks(range(len(names)), [printable(name) for name in names], rotation=90, **PLAIN_TEXT)
        ax.set_yticks(range(len(loadings)))
        ax.figure.colorbar(image, ax=ax, label="loading")
        return ax

    # -- comparisons --------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """Loadings, noise variances and means."""
        columns = self.column_names()
        return [Part("parameters", posterior, partial(_label, self._n_kept(), columns), columns)]

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        d = typical.n_columns(self, n_features)
        loadings = rng.standard_normal((self.n_components or d, d)) / np.sqrt(d)
        X = rng.standard_normal((n_records, len(loadings))) @ loadings + 0.3 * rng.standard_normal((n_records, d))
        norm = 1.0 if self.max_norm is None else self.max_norm
        return norm * X / np.quantile(np.linalg.norm(X, axis=1), 0.99), None

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Log likelihood per record."""
        log_likelihoods = self.score_samples(X)
        return [Score("log likelihood per record (higher is better)", lambda counts: average(counts, log_likelihoods))]

    def predictions(self, X) -> np.ndarray:
        """Log likelihood of each row."""
        return self.score_samples(X)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _loadings(self) -> np.ndarray:
        check_is_fitted(self, "last_posterior_")
        return self.last_posterior_.mean[:-2]

    def _centred(self, X) -> np.ndarray:
        check_is_fitted(self, "last_posterior_")
        X = self.read_rows(X, reset=False)
        return (X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)) - self.mean_

    @property
    def _n_features_out(self) -> int:
        return len(self._loadings())


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
        return estimates.principal_components(data, self._n_kept())

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


def _label(n_components: int, columns: list[str], index: tuple[int, ...]) -> str:
    row, column = index
    if row < n_components:
        return f"component {row}: {columns[column]}"
    return f"{'noise variance' if row == n_components else 'mean'} of {columns[column]}"
