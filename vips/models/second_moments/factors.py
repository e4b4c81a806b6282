"""What probabilistic principal components and factor analysis share: posterior, transforms, likelihood, comparison."""

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

from vips._support.arguments import arguments, whole
from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable
from vips.core.exact.blas import cholesky, eigh, inverse_from_factor
from vips.expfam import DiagonalGaussian, Draws
from vips.models import _typical as typical
from vips.models._definite import positive_definite
from vips.models.second_moments.contract import SecondMomentModel
from vips.models.second_moments.estimates import Estimate, NoisyCovariance, bootstrapped, stacked
from vips.models.second_moments.moments import SecondMoments
from vips.parts import Part, Score, average

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["FactorModel", "FactorPosterior"]

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

        self.warn_of_no_intervals()
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


def _label(n_components: int, columns: list[str], index: tuple[int, ...]) -> str:
    row, column = index
    if row < n_components:
        return f"component {row}: {columns[column]}"
    return f"{'noise variance' if row == n_components else 'mean'} of {columns[column]}"
