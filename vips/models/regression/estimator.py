"""Methods for users of the Pólya-Gamma regressions: fits, coefficients, the exact posterior's curvature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from scipy.special import ndtri
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from vips._support.extras import imported
from vips._support.validation import check_level
from vips.core.contract import plan_of_release
from vips.core.records.arrays import InMemoryData
from vips.core.records.partition import with_their_weights
from vips.core.records.source import DataSource
from vips.core.units import is_group
from vips.expfam import Gaussian
from vips.models import _typical as typical
from vips.models._apart import fit_to_public
from vips.models._coefficient_tables import (
    BENT,
    HIDDEN,
    TAILS,
    UNBOUNDED,
    UNTOLD,
    Signal,
    classes_of,
    coefficient_draws,
    coefficient_table,
    forest_plot,
    indicator_columns,
    signal_of,
    warn_of_columns,
    warn_of_nothing,
    withhold,
)
from vips.models._coefficients import MOST_READ, count_scores
from vips.models._definite import positive_definite
from vips.models._newton import Released, misfit
from vips.models.regression.contract import AugmentedRegression
from vips.models.regression.posterior import CoefficientPosterior, DiagonalCoefficientPosterior
from vips.models.regression.statistics import times_rowwise, variances
from vips.parts import STANDS_OUT, FeatureTotals, Score, warn_of_no_intervals

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["PolyaGammaRegression"]

# Largest number of coefficients for a noise-aware posterior of a diagonal fit, which itself needs no d × d matrix.
_MOST_DENSE = 2048


class PolyaGammaRegression(AugmentedRegression):
    """Base class of the regressions; its checks and scores are those of counts.

    Attributes
    ----------
    name_of_ratio : str
        What the exponential of a coefficient is.
    centre_ : ndarray of shape (n_features,)
        Means of the columns of an ordinary fit, at which the prior of its intercept sits; absent where it sits at 0.
    spreads_ : ndarray of shape (n_features,)
        Spreads of the columns of an ordinary fit, in whose units the default prior is: ranges of columns of two values, of
        others five mean absolute deviations at most. Absent where the prior has the units of the columns.
    curvature_ : ndarray of shape (d, d) or (n_outputs, d, d)
        Precision of ``posterior_`` of an ordinary fit, with the intercept at ``centre_``.
    public_posterior_ : Gaussian
        Posterior of the public records alone; absent without them, like the next ones.
    public_alpha_ : ndarray of shape (n_outputs,)
        E[α] of that fit.
    public_centre_ : ndarray of shape (d,)
        Centre of its columns, at which its intercept's prior sits.
    public_records_ : (int, str)
        Number of public records, and a hash that tells them from others.
    """

    name_of_ratio = "odds ratio"
    _beside = ("sample_weight", "public_X", "public_y")

    def finish(self, records: DataSource) -> None:
        """The curvature of the posterior itself, from which people read limits; without weights the evidence lower bound."""
        have_weights = self.plan_of_fit().max_weight is not None
        information, bound, is_dense = 0.0, 0.0, self._n_coefficients() <= _MOST_DENSE
        for chunk, weights in with_their_weights(records.chunks(self.chunk_size), have_weights):
            statistics = self.expected_statistics(chunk, self.last_posterior_)
            if is_dense:
                information = information + statistics.curvature(weights)
            bound += float(statistics.bounds().sum()) + self.likelihood.log_base_measure(chunk.y)
        if is_dense:
            self.curvature_ = self._curvature(information)
        if not have_weights:
            self.bound_ = bound - self._coefficient_prior().divergence(self.last_posterior_)

    @property
    def posterior_(self) -> CoefficientPosterior | DiagonalCoefficientPosterior:
        """Posterior of the coefficients: in a private fit given that totals are noisy, in an ordinary one with the curvature of
        the posterior itself at the mean of ``last_posterior_``, whose variational deviations are too small."""
        posterior = super().posterior_
        return self.once("curved", self._curved) if "curvature_" in vars(self) else posterior

    def _curved(self) -> CoefficientPosterior:
        last = self.last_posterior_
        learnt = last.alpha_shape, last.alpha_rate, last.step
        return CoefficientPosterior(last.around.mean, self.curvature_, *learnt, centre=self._centre)

    def laplace_posterior(self, X, y=None) -> CoefficientPosterior:
        """Gaussian at the posterior mean with the curvature of the posterior itself, α integrated out.

        Variational variances are too small, and more so for strong signals: ω, the curvature of a bound, is larger than
        that of the likelihood. The deviations of this posterior were within 10 % of exact ones (docs/logistic.md). It is
        ``posterior_`` of an ordinary fit.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_records, n_features)
            The fitted records, of weight 1.
        y : array of shape (n_records,)
            Their labels.

        Raises
        ------
        ValueError
            For a private fit: curvatures would be released without noise.
        """
        check_is_fitted(self)
        if self.privacy_.plan.is_private:
            raise ValueError(
                "The fit is private, and a curvature computed from its records would be released without noise. Use "
                "`posterior_`."
            )
        X, y = self.read_rows(X, y, reset=False, multi_output=np.ndim(y) == 2)
        last = self.last_posterior_
        chunks = InMemoryData(X, y).chunks(self.chunk_size)
        precision = self._curvature(
            sum(self.expected_statistics(chunk, last).curvature(np.ones(len(chunk.y))) for chunk in chunks)
        )
        return CoefficientPosterior(last.around.mean, precision, last.alpha_shape, last.alpha_rate, centre=self._centre)

    def _curvature(self, information: np.ndarray) -> np.ndarray:
        """Minus the second derivative of the log posterior at the mean, α integrated out; shape (d, d) or (n_outputs, d, d).

        ``information``, shape (n_outputs, d, d), is that of the likelihood.
        """
        held, units = np.atleast_2d(self.last_posterior_.around.mean), self._units()
        precision = information * units[:, None] * units
        if not np.isfinite(precision).all():
            raise ValueError("y holds labels or counts that the model does not know.")
        for j in range(self.n_outputs):
            alpha = self.last_posterior_.alpha_shape[j], self.last_posterior_.alpha_rate[j]
            precision[j] += self._coefficient_prior().laplace_precision(j, held[j], *alpha)
        precision = np.stack([positive_definite(matrix) for matrix in precision])
        return precision[0] if self.n_outputs == 1 else precision

    def to_noise_aware_posterior(self) -> CoefficientPosterior:
        """``last_posterior_`` of a private fit that searches, which knows the noise: ``_newton.py``.

        Its variance is that of the scores of records or persons (a sandwich), and of noise.
        """
        if getattr(self.last_posterior_, "search", None) is None:
            raise NotImplementedError(
                'Intervals that know the noise need statistics="centred", covariance="full" and at most 1,000 columns.'
            )
        return self.last_posterior_

    @property
    def hidden_columns_(self) -> list[str]:
        """Columns of a private fit whose variance noise hides, less indicators: nothing can be said of their effects."""
        check_is_fitted(self, "last_posterior_")
        return [name for name, is_hidden in zip(self.column_names(), self._hidden(), strict=True) if is_hidden]

    def _hidden(self, others=None) -> np.ndarray:
        """Whether noise hid each column in every zoom and in the information of scores, shape (n_features,). How far indicators
        can vary is known, and a prior in units of the columns holds where the fit tells nothing."""
        search = getattr(self.last_posterior_, "search", None)
        if search is None or not self._is_flat or self._knows_public:
            return np.zeros(self.n_features_in_, bool)
        visible = np.any([of.visible(bool(self.fit_intercept)) for of in self._released_scores()], axis=0)
        return (
            search.zooms.hidden
            & ~indicator_columns(self.n_features_in_, self.indicators, others)
            & ~np.resize(visible, len(search.zooms.seen))
        )

    def _released_scores(self) -> list[Released]:
        """What a fit that searched released about each output; none before the first scores."""
        return self.once("released scores", self._scores_released)

    def _scores_released(self) -> list[Released]:
        search = getattr(self.last_posterior_, "search", None)
        if search is None or not search.kept.counts.any():
            return []
        return search.released(self.noisy_totals_.noise_std, plan_of_release(self))

    def _unbounded(self) -> np.ndarray:
        """Whether noise hides how large each column's effect is, because labels are nearly certain; shape
        (n_outputs, n_features)."""
        return self.once("unbounded", self._without_bound)

    def _without_bound(self) -> np.ndarray:
        are = np.zeros((self.n_outputs, self.n_features_in_), bool)
        if not (released := self._released_scores()) or self._is_given or self._knows_public:
            return are
        last, units = self.last_posterior_, self._units_of_rows(self.last_posterior_.search.zooms.coordinates)
        precisions = last.around.precision.reshape(-1, len(units), len(units)) * np.outer(units, units)
        for j, (of, at, precision) in enumerate(
            zip(released, np.atleast_2d(last.around.mean) / units, precisions, strict=True)
        ):
            are[j] = of.unbounded(at, precision, bool(self.fit_intercept))[: self.n_features_in_]
        return are

    def _bent(self) -> np.ndarray:
        """Whether expected counts depend on each column in another way than a straight line, shape (n_features,)."""
        if not (released := self._released_scores()) or not self._releases_bends:
            return np.zeros(self.n_features_in_, bool)
        search, totals = self.last_posterior_.search, self.noisy_totals_
        settings = totals.noise_std["bends"], search.size * search.unit, bool(self.fit_intercept)
        return released[0].bent(totals.average["bends"], *settings)[: self.n_features_in_]

    def check_restored(self) -> None:
        if self.n_features_in_ <= MOST_READ:
            self.posterior_parts(self.posterior_)
            self.signal_of_coefficients()
            self.misfit()

    def misfit(self) -> float:
        """Probability that the released scores, carried to the estimate, scatter as much or more by noise alone.

        It tells whether scores were carried well, not whether the model holds. NaN where intervals do not rest on scores.
        """
        if not (released := self._released_scores()):
            return np.nan
        units = self._units_of_rows(self.last_posterior_.search.zooms.coordinates)
        return misfit(released, np.atleast_2d(self.last_posterior_.around.mean) / units)

    def summary(self, level: float = 0.95, *, features=None) -> pd.DataFrame:
        """Coefficients by name: posterior mean, deviation, interval, odds or rate ratio.

        A fit in which nothing stands out from the noise warns of that.

        Parameters
        ----------
        level : float
            Of the intervals.
        features : fitted TableEncoder, optional
            The encoder of the features: rows are then in units of its columns, per year and not per unit of a scaled feature,
            and categories stand against the first one of their column. A pipeline's ``summary()`` passes its own.

        Returns
        -------
        pandas.DataFrame
            One row for each coefficient, and the intercept last: "mean", "std", "lower", "upper", "P(> 0)" (probability of a
            positive coefficient), and ratios, the exponentials of mean and bounds. Several classes are the first level of the
            index: each against all later ones. ``attrs["signal"]`` is :meth:`signal_of_coefficients`.

        Warns
        -----
        PrivacyWarning
            If no interval knows the noise; if noise hides columns, or how large strong effects are, which get no limits; if the
            variance of a column is in few rows, or noise hides whether it is; if counts depend on columns in another way than
            by straight lines; and if a table without effects would show as much with a probability above 5 %.
        """
        units = None if features is None else features.in_column_units()
        table = coefficient_table(self, self.posterior_, level, units)
        self._warn_of_columns(table, features)
        table.attrs["signal"] = signal = self.signal_of_coefficients()
        warn_of_no_intervals(self)
        warn_of_nothing(self, signal)
        return table

    def _warn_of_columns(self, table: pd.DataFrame, features) -> None:
        """Warn of columns of which a fit that searched tells less than it seems; no limits where noise hides a column."""
        if (search := getattr(self.posterior_, "search", None)) is None:
            return
        units, others = (None, None) if features is None else (features.in_column_units(), features.indicators)
        withhold(self, table, np.tile(self._hidden(others), (self.n_outputs, 1)), units, HIDDEN)
        withhold(self, table, self._unbounded(), units, UNBOUNDED)
        # else other weights differ, too
        is_one_row = not is_group(self.privacy_.unit) and self.privacy_.plan.max_weight is None
        numbers = is_one_row & ~indicator_columns(self.n_features_in_, self.indicators, others)
        warn_of_columns(self, search.zooms.long_tailed() & numbers, units, TAILS, 4)
        warn_of_columns(self, search.zooms.untold(self._ball()) & numbers & ~self._hidden(others), units, UNTOLD, 4)
        warn_of_columns(self, self._bent(), units, BENT, 4)

    def plot_coefficients(self, level: float = 0.95, *, features=None, ax: Axes | None = None) -> Axes:
        """A forest plot: each coefficient with its interval.

        Parameters
        ----------
        level, features
            See :meth:`summary`.
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        return forest_plot(self.summary(level, features=features), ax)

    def to_arviz(self, n_draws: int = 4000, random_state: object = None) -> Any:
        """Draws of the coefficients as ``arviz.InferenceData``, for ArviZ's plots and summaries; needs arviz.

        Draws are post-processing: ``random_state``, an integer or a generator, may be fixed.
        """
        arviz = imported("arviz", "to_arviz()")

        rng = np.random.default_rng(random_state)
        parts = coefficient_draws(self, self.posterior_, n_draws, rng)
        classes = classes_of(self)[:-1] if self.n_outputs > 1 else []
        dims = {"coef": ["class", "feature"] if classes else ["feature"], "intercept": ["class"] if classes else []}
        coords = {"feature": self.column_names()} | ({"class": classes} if classes else {})
        return arviz.from_dict(posterior=parts, coords=coords, dims={name: dims[name] for name in parts})

    def predict_interval(self, X, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Intervals of the probability of the last class, or of the expected count, under ``posterior_``: how far the
        coefficients' uncertainty, of sampling and noise, leaves it open.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_records, n_features)
        level : float

        Returns
        -------
        lower, upper : ndarray of shape (n_records,)

        Raises
        ------
        ValueError
            For more than two classes.
        """
        check_level(level)
        mean, variance = (values[:, 0] for values in self._predictors(X, self.posterior_))
        if self._hidden().any() or self._unbounded().any():
            variance = np.full(len(variance), np.nan)
        half = ndtri(0.5 + 0.5 * level) * np.sqrt(variance)
        return self.likelihood.expected(mean - half), self.likelihood.expected(mean + half)

    def signal_of_coefficients(self) -> Signal:
        """Whether the coefficients stand out from sampling and noise; computed from released values only."""
        check_is_fitted(self, "last_posterior_")
        posterior, law = self.posterior_, [self._prior_around(j) for j in range(self.n_outputs)]
        of_read = posterior.around
        if getattr(posterior, "search", None) is not None:
            units = self._units_of_rows(posterior.search.zooms.coordinates)
            of_read = Gaussian(of_read.mean / units, of_read.precision * np.outer(units, units))
        linear, prior = zip(*law, strict=True)
        return signal_of(of_read, prior, self.n_features_in_, linear)

    def _prior_around(self, output: int) -> tuple[np.ndarray, np.ndarray]:
        """Prior of one output, Λm and Λ or its diagonal; of a fit that searched, in the coordinates of its rows."""
        last = self.last_posterior_
        alpha = last.alpha_shape / last.alpha_rate
        public = self.public_weight_ if self._knows_public else np.ones(self.n_outputs)
        if getattr(last, "search", None) is None:
            return self._coefficient_prior().natural(output, alpha[output], public[output])
        prior = self._prior_of(last.search.zooms.coordinates, output, alpha[output], public[output])
        return prior.linear, prior.precision

    @property
    def coef_(self) -> np.ndarray:
        """Posterior means of the coefficients, shape (n_outputs, n_features); one output: (n_features,) or (1, n_features)."""
        return self._shaped(np.atleast_2d(self.posterior_.mean)[:, : self.n_features_in_])

    @property
    def intercept_(self) -> np.ndarray:
        """Posterior means of the intercepts, shape (n_outputs,); 0 without an intercept."""
        mean = np.atleast_2d(self.posterior_.mean)
        return mean[:, -1] if self.fit_intercept else np.zeros(len(mean))

    @property
    def alpha_(self) -> float | np.ndarray:
        """E[α], the prior precision of the coefficients; one for each output if there are several."""
        check_is_fitted(self, "last_posterior_")
        if self._is_given or self._is_flat:
            raise AttributeError(
                "The prior has no α: it is a Gaussian, or, by default in a private fit, flat in learnt coordinates."
            )
        alpha = self.last_posterior_.alpha_shape / self.last_posterior_.alpha_rate
        return float(alpha[0]) if self.n_outputs == 1 else alpha

    # -- counts: checks and scores ------------------------------------------------------------------------------

    def check_values(self, X, y) -> None:
        shape, _ = self.likelihood.terms(y)
        if np.isnan(shape).any():
            raise ValueError(f"y must hold whole numbers from 0 to {self.likelihood.largest}.")

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        X, predictor = typical.rows(self.max_norm, n_records, typical.n_columns(self, n_features), rng)
        return X, self.typical_labels(predictor, rng)

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Root mean squared error, and R²."""
        return count_scores(self, X, y)

    def predictions(self, X) -> np.ndarray:
        """Expected counts."""
        return self.predict(X)

    # -- public records -----------------------------------------------------------------------------------------

    @property
    def public_weight_(self) -> np.ndarray:
        """Weight of the public records in the prior, from 0 to 1, shape (n_outputs,): learnt from released totals; 1 in a fit
        that does not search."""
        check_is_fitted(self, "public_posterior_")
        weight = self.last_posterior_.public
        return np.ones(self.n_outputs) if weight is None else weight

    def feature_totals(self) -> FeatureTotals | None:
        """Sums of the first zoom, in which rows weigh alike; of a fit without zooms the precision of the first output, which
        sees all records. None without noise."""
        if not hasattr(self, "noisy_totals_"):
            return None
        d, noise = self.n_features_in_, self.noisy_totals_.noise_std
        zooms = getattr(self.last_posterior_, "zooms", None)
        if zooms is not None and (counted := zooms.counts_of(d)) is not None:
            return counted
        average = {
            name: value if self.n_outputs == 1 else value[0] for name, value in self.noisy_totals_.average.items()
        }
        std, means, size, size_std = np.full(d, noise["precision"]), np.zeros(d), np.nan, np.nan
        if self.covariance == "diagonal":
            squares, size, size_std = average["precision"][:d], float(average["weight"]), noise["weight"]
            if size > STANDS_OUT * size_std:
                means = average["cross"][:d] / size
            return FeatureTotals(squares, std, means, size, size_std)
        units = np.ones(len(average["linear"])) if zooms is None else 1.0 / zooms.coordinates.scale
        precision, std = average["precision"] * np.outer(units, units), noise["precision"] * np.square(units)
        if self.fit_intercept:
            size, size_std = np.array([precision[d, d], std[d]]) / self._intercept_constant() ** 2
            if precision[d, d] > STANDS_OUT * std[d]:
                means = precision[:d, d] * self._intercept_constant() / precision[d, d]
        return FeatureTotals(np.diagonal(precision)[:d], std[:d], means, size, size_std)

    def findings(self) -> dict[str, float]:
        """The weight of public records, and :meth:`misfit`."""
        public = {"weight of public records": float(self.public_weight_.mean())} if self._knows_public else {}
        misfit = self.misfit()
        scores = {} if np.isnan(misfit) else {"probability of so large a scatter of the released scores": misfit}
        return super().findings() | public | scores

    def check_features(self) -> None:
        super().check_features()
        self._learn_from_public()

    def check_beside(self, X) -> None:
        """Raise ValueError if public records cannot be used."""
        if (self.beside.public_X is None) != (self.beside.public_y is None):
            raise ValueError("`public_X` and `public_y` go together: public records with their labels.")
        if self.beside.public_X is None:
            return
        if not self.is_private:
            raise ValueError("`public_X` is for private fits: without noise, append the public records to X and y.")
        if self._is_given:
            raise ValueError(
                "`public_X` makes a prior of its own: leave `prior` at its default, or leave `public_X` out."
            )
        if self.statistics == "paper" or self.covariance == "diagonal":
            raise ValueError('`public_X` needs statistics="centred" and covariance="full".')

    def _learn_from_public(self) -> None:
        """Fit the public records without noise, if there are any: charges no ledger, reads no private record."""
        X, y = self.beside.public_X, self.beside.public_y
        if X is None:
            return
        posterior, (X, y) = fit_to_public(self, X, y, **self._settings_of_public())
        self.public_alpha_ = posterior.alpha_shape / posterior.alpha_rate
        self.public_posterior_ = Gaussian(posterior.mean, posterior.precision)
        self.public_centre_ = posterior.centre
        self.public_records_ = (len(y), joblib.hash((X, y)))

    def _settings_of_public(self) -> dict:
        """Settings of the fit to public records that differ from the model's own."""
        return {}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.positive_only = isinstance(self, RegressorMixin)  # counts
        return tags

    def _predictors(self, X, posterior=None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of ψ, both of shape (n_records, n_outputs)."""
        check_is_fitted(self)
        posterior = self.last_posterior_ if posterior is None else posterior
        X = self.read_rows(X, reset=False)
        warn_of_columns(self, self._hidden(), None, HIDDEN, 4)
        warn_of_columns(self, self._unbounded(), None, UNBOUNDED, 4)
        return self._predictors_of_read(X, posterior)

    def _predictors_of_read(self, X, posterior) -> tuple[np.ndarray, np.ndarray]:
        """The same of rows that are read already."""
        means, forms = [np.zeros((0, self.n_outputs))], [np.zeros((0, self.n_outputs))]
        for chunk in InMemoryData(X).chunks(self.chunk_size):
            rows, mean, spread = self._rows_and_law(chunk, posterior)
            means.append(times_rowwise(rows, mean.T) + self.likelihood.offsets(np.empty(0)))
            forms.append(variances(rows, spread, self.dtype))
        return np.concatenate(means), np.concatenate(forms)

    def _shaped(self, coef: np.ndarray) -> np.ndarray:
        return coef[0] if self.n_outputs == 1 else coef
