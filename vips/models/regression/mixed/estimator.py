"""Logistic and negative binomial regression with effects of persons: what users call."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, whole
from vips._support.extras import imported
from vips._support.validation import check_level, levels_to_user
from vips.core.records.source import DataSource
from vips.data._columns import column
from vips.exceptions import PrivacyWarning
from vips.expfam.gaussian import posterior_probabilities
from vips.models import _typical as typical
from vips.models._coefficient_tables import TAILS, coefficient_table, indicator_columns, warn_of_columns
from vips.models._coefficients import coefficient_parts
from vips.models._exposures import MOST, check_counts, score_of_counts, times_exposure, with_exposure
from vips.models.regression.counts import BayesianNegativeBinomialRegression
from vips.models.regression.logistic import BayesianLogisticRegression, check_classes
from vips.models.regression.mixed.contract import MixedRegression, long_tailed
from vips.models.regression.mixed.posterior import INTERCEPT, MixedPosterior
from vips.parts import Part, indexed, warn_of_no_intervals

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MixedLogisticRegression", "MixedNegativeBinomialRegression"]

# The square of c with σ(ψ) ≈ Φ(cψ) (Zeger, Liang and Albert 1988).
_TO_PROBIT = (16.0 * np.sqrt(3.0) / (15.0 * np.pi)) ** 2
_LEAST_SHARE = 0.01  # of yes, or mean, at which a fit starts
_TYPICAL_SLOPE = 0.5  # deviation among persons, for a column with a deviation of 1


class MixedEffects(MixedRegression):
    """Base class of both models: fits, tables, predictions."""

    name_of_ratio = "odds ratio"
    _without_persons = "BayesianLogisticRegression"

    def check_beside(self, X) -> None:
        """Warn of rows without ids of persons, before anything is spent."""
        if self.beside.groups is None and not (isinstance(X, DataSource) and X.has_groups):
            warnings.warn(
                "Each row counts as a person of its own, and hardly tells how persons differ: pass the ids of persons, or "
                f"sites, fit(X, y, groups=ids), or fit {self._without_persons}.",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )

    def summary(self, level: float = 0.95, *, features=None) -> pd.DataFrame:
        """Coefficients by name: those of a row of one and the same person, and what they are on average over persons.

        Parameters
        ----------
        level, features
            See :meth:`BayesianLogisticRegression.summary`.

        Returns
        -------
        pandas.DataFrame
            As that of :meth:`BayesianLogisticRegression.summary`, with "averaged" besides: the coefficient that a regression
            without effects of persons tends to, which is nearer to 0. :meth:`summary_of_effects` tells how persons differ.

        Warns
        -----
        PrivacyWarning
            If no interval knows the noise; if the variance of a column is in few rows.
        """
        check_is_fitted(self, "last_posterior_")
        units, others = (None, None) if features is None else (features.in_column_units(), features.indicators)
        table = coefficient_table(self, self.posterior_.coefficients, level, units)
        tails = long_tailed(self) & ~indicator_columns(self.n_features_in_, self.indicators, others)
        warn_of_columns(self, tails, units, TAILS, 3)
        table.insert(1, "averaged", self._averaged(table["mean"].to_numpy()))
        return self._without_limits(table, "std|upper|lower|P")

    def summary_of_effects(self, level: float = 0.95, *, features=None) -> pd.DataFrame:
        """How persons differ: standard deviations of their effects, and correlations; means and intervals.

        The share that persons explain, "intraclass correlation", is that of the latent scale: the variance of the average
        row's predictor among persons, over it and that of a row. Arguments as for :meth:`summary`.
        """
        pd = imported("pandas", "summary_of_effects()")
        check_level(level)
        check_is_fitted(self, "last_posterior_")
        draws, row = self.posterior_.effects.draws, self.posterior_.frame.average_row()
        variance = np.einsum("k,nkm,m->n", row, draws, row)
        names, matrix = self._effects_in_units(None if features is None else features.in_column_units())
        draws = matrix @ draws @ matrix.T
        deviations = np.sqrt(np.diagonal(draws, axis1=1, axis2=2))
        values = {f"deviation of {name}": deviations[:, k] for k, name in enumerate(names)}
        for k, m in zip(*np.tril_indices(len(names), -1), strict=True):
            values[f"correlation of {names[m]} and {names[k]}"] = draws[:, k, m] / (deviations[:, k] * deviations[:, m])
        values["intraclass correlation"] = variance / (variance + self._row_variance)
        tails = [0.5 - 0.5 * level, 0.5, 0.5 + 0.5 * level]
        quantiles = np.array([np.quantile(value, tails) for value in values.values()])
        table = pd.DataFrame(quantiles, index=list(values), columns=["lower", "median", "upper"])
        table.insert(0, "mean", [value.mean() for value in values.values()])
        table.attrs["level"] = level
        return self._without_limits(table, "upper|lower")

    def _without_limits(self, table: pd.DataFrame, columns: str) -> pd.DataFrame:
        """The table, with a warning and without the columns that match this if no interval knows the noise."""
        if self.why_no_intervals():
            warn_of_no_intervals(self)
            table[list(table.filter(regex=columns))] = np.nan
        return table

    def _effects_in_units(self, units) -> tuple[list[str], np.ndarray]:
        """Names of the effects, and the matrix that takes them to units of the columns."""
        places, names = self.posterior_.frame.columns, self.column_names()
        matrix, is_intercept = np.eye(len(places)), places == INTERCEPT
        names = ["intercept" if place == INTERCEPT else names[place] for place in places]
        if units is not None:
            of_columns, to_columns, shift = units
            for k, place in zip(np.flatnonzero(~is_intercept), places[~is_intercept], strict=True):
                column = int(np.argmax(np.abs(to_columns[:, place])))
                names[k], matrix[k, k] = of_columns[column], to_columns[column, place]
                matrix[is_intercept, k] = shift[place]
        return names, matrix

    plot_coefficients = BayesianLogisticRegression.plot_coefficients

    @property
    def coef_(self) -> np.ndarray:
        """Posterior means of the coefficients, shape (n_features,)."""
        return self.posterior_.coefficients.mean[:-1]

    @property
    def intercept_(self) -> float:
        """Posterior mean of the intercept."""
        return float(self.posterior_.coefficients.mean[-1])

    @property
    def effects_cov_(self) -> np.ndarray:
        """Covariance Ω of a person's effects, in the order of ``random_effects``; shape (q, q)."""
        return self.posterior_.effects_cov

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- the contract -------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """Coefficients by name, and the covariance of effects."""
        if not isinstance(posterior, MixedPosterior):
            return super().posterior_parts(posterior)
        parts = coefficient_parts(self, posterior.coefficients)
        return [
            *parts,
            Part("covariance of effects", posterior.effects, partial(indexed, "covariance"), self.column_names()),
        ]

    def check_restored(self) -> None:
        self.posterior_parts(self.posterior_)

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, ...]:
        persons = typical.persons(n_records, rng)
        X, predictor = typical.rows(self.max_norm, len(persons), typical.n_columns(self, n_features), rng)
        return X, self.typical_labels(predictor + self.typical_effects(X, persons, rng), rng), persons

    def typical_effects(self, X, persons: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        effects = np.zeros(len(persons))
        for name in self.random_effects:
            values = 1.0 if name == "intercept" else np.asarray(column(X, name), dtype=np.float64)
            scale = 1.0 if name == "intercept" else _TYPICAL_SLOPE / max(float(np.nanstd(values)), 1e-12)
            effects += rng.standard_normal(persons.max(initial=0) + 1)[persons] * scale * np.nan_to_num(values)
        return effects

    # -- helpers ------------------------------------------------------------------------------------------------

    def _predictors(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of ψ of a row of a new person, each of shape (n, 1)."""
        check_is_fitted(self, "last_posterior_")
        posterior = self.posterior_
        x, u = posterior.frame.design(self._rows(self.read_rows(X, reset=False)))
        d, factor = x.shape[1], posterior.factor
        cov = posterior.parameters_cov[:d, :d]
        variance = np.einsum("nk,km,nm->n", x, cov, x) + np.square(u @ factor).sum(axis=1)
        return (x @ posterior.parameters[:d])[:, None], variance[:, None]

    def _variance_of_average_row(self) -> float:
        row = self.posterior_.frame.average_row()
        return float(row @ self.posterior_.effects_cov @ row)


@arguments
class MixedLogisticRegression(ClassifierMixin, MixedEffects):
    """Logistic regression in which persons differ, fitted by (private) variational Bayes.

        P(y_ij = 1) = σ(x_ijᵀβ + u_ijᵀz_i),   z_i ~ N(0, Ω),   u: some columns of x, or the constant

    Parameters
    ----------
    random_effects : sequence of str or int
        Columns whose coefficients differ among persons, by name or place, and "intercept": up to three.
    prior : float or None
        Precision of the coefficients. None: 0.02 for rows in units of ``max_norm``, which hardly shrinks.
    classes, privacy, max_norm, indicators, on_invalid, random_state
        See :class:`BayesianLogisticRegression`; there are two ``classes``.

    Attributes
    ----------
    posterior_ : MixedPosterior
        ``coefficients``, a Gaussian with the intercept in the last place, and ``effects``, draws of Ω; ``sample``. After a
        private fit it knows the noise.
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    effects_cov_ : ndarray of shape (q, q)
        Ω.
    classes_, privacy_, n_features_in_
        See :class:`BayesianLogisticRegression`.

    Notes
    -----
    Pass the ids of persons, or sites, as ``groups``: all rows of one share the effects that are its own, and are one record. A
    source of :func:`vips.data.regroup` has them. Without ids every row is a person, of which ``fit`` warns. A private fit reads
    the first 1000 rows of each, or ``PrivacyPlan(max_rows_per_group=...)``.

    *Privacy.*
    Unit: all rows of one person, by ``groups``. Relation: add or remove one. Released: noisy sums of persons' scores,
    information and squared scores in every step, after sums of products of the columns; hence the posterior. The effects of a
    person are not released, and could not be. Public by declaration: ``max_norm``, ``classes``, columns, and all
    other constructor arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import MixedLogisticRegression, PrivacyBudget
    >>> rng = np.random.default_rng(0)
    >>> patient = np.repeat(np.arange(5_000), 4)
    >>> X = rng.uniform(-1.0, 1.0, (20_000, 1))
    >>> psi = 2.0 * X[:, 0] + 1.0 * rng.normal(size=5_000)[patient]
    >>> y = rng.random(20_000) < 1.0 / (1.0 + np.exp(-psi))
    >>> model = MixedLogisticRegression(privacy=PrivacyBudget(epsilon=2.0, delta=1e-6), max_norm=1.0)
    >>> model.fit(X, y, groups=patient).coef_.round().tolist()
    [2.0]
    """

    classes: Sequence | None = None

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities for a row of a new person, ∫ σ(x'β + u'z) over z and the posterior; shape (n_rows, 2)."""
        yes = posterior_probabilities(*self._predictors(X))
        return self._by_class(np.hstack([1.0 - yes, yes]))

    def decision_function(self, X) -> np.ndarray:
        """Log odds of :meth:`predict_proba`, shape (n_rows,)."""
        return logit(self.predict_proba(X)[:, 1])

    predict_log_proba, predict = BayesianLogisticRegression.predict_log_proba, BayesianLogisticRegression.predict
    _by_class = BayesianLogisticRegression._by_class

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # -- the contract -------------------------------------------------------------------------------------------

    check_source, labels_of = BayesianLogisticRegression.check_source, BayesianLogisticRegression.labels_of
    likelihood, typical_labels = BayesianLogisticRegression.likelihood, BayesianLogisticRegression.typical_labels
    held_out_scores, predictions = BayesianLogisticRegression.held_out_scores, BayesianLogisticRegression.predictions
    score = BayesianLogisticRegression.score
    _declared, _row_variance = BayesianLogisticRegression._declared, np.pi**2 / 3.0  # that of a logistic distribution

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.classes is not None:
            check_classes(self.classes, self.is_private)
            _check_two(np.unique(self.classes))

    def check_features(self) -> None:
        super().check_features()
        self.classes_ = np.sort(self.likelihood.labels)

    def check_values(self, X, y) -> None:
        BayesianLogisticRegression.check_values(self, X, y)
        _check_two(self.classes_)
        super().check_values(X, y)

    def _intercept_at(self, linear: float) -> float:
        return float(logit(np.clip(0.5 + linear, _LEAST_SHARE, 1.0 - _LEAST_SHARE)))

    def _averaged(self, coefficients: np.ndarray) -> np.ndarray:
        return coefficients / np.sqrt(1.0 + _TO_PROBIT * self._variance_of_average_row())


def _check_two(classes: np.ndarray) -> None:
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass, its classes are "
            f"{classes.tolist()}: fit one class against the others, y == label, or BayesianLogisticRegression, without effects "
            "of persons."
        )


@arguments
class MixedNegativeBinomialRegression(RegressorMixin, MixedEffects):
    """Counts whose rates differ among persons, fitted by (private) variational Bayes.

        E y_ij = exp(x_ijᵀβ + u_ijᵀz_i),   z_i ~ N(0, Ω),   with variance m + m²/r around a mean of m

    Parameters
    ----------
    dispersion, max_count, exposure_bounds
        See :class:`BayesianNegativeBinomialRegression`.
    random_effects, privacy, max_norm, indicators, prior, on_invalid, random_state
        See :class:`MixedLogisticRegression`.

    Attributes
    ----------
    posterior_, coef_, intercept_, effects_cov_, privacy_, n_features_in_
        See :class:`MixedLogisticRegression`. The intercept is the logarithm of a mean.

    Notes
    -----
    *Privacy.*
    As :class:`MixedLogisticRegression`; ``dispersion``, ``max_count`` and ``exposure_bounds`` are public, too. An exposure is
    part of its person's record, and moves nothing beyond the record's clip.
    """

    dispersion: float = 1.0
    max_count: int | None = whole(default=None, high=MOST)
    exposure_bounds: tuple[float, float] | None = None

    settings_of_meaning = ("random_effects", "dispersion")
    _beside = ("exposure",)
    _information_scale = 1.6
    name_of_ratio = "rate ratio"
    _without_persons = "BayesianNegativeBinomialRegression"
    score, with_exposure = score_of_counts, with_exposure

    def predict(self, X, exposure=1.0) -> np.ndarray:
        """Expected count of a row of a new person, exposure · exp(x'μ + half the variance of ψ); shape (n_rows,)."""
        mean, variance = self._predictors(X)
        return times_exposure(exposure, np.exp(mean + 0.5 * variance)[:, 0])

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        super().check_parameters()
        check_counts(self)

    likelihood, _declared = BayesianNegativeBinomialRegression.likelihood, BayesianNegativeBinomialRegression._declared
    typical_labels = BayesianNegativeBinomialRegression.typical_labels
    held_out_scores = BayesianNegativeBinomialRegression.held_out_scores
    predictions = BayesianNegativeBinomialRegression.predictions

    @property
    def _drawn_as(self) -> tuple[float, float]:
        return float(self.dispersion), float(self.likelihood.largest)

    def _intercept_at(self, linear: float) -> float:
        """For the middle one of the declared exposures."""
        most = 1e6 if self.max_count is None else self.max_count
        middle = 1.0 if self.exposure_bounds is None else np.mean(self.exposure_bounds)
        return float(np.log(np.clip(2.0 * linear + self.dispersion, _LEAST_SHARE, most) / middle))

    def _averaged(self, coefficients: np.ndarray) -> np.ndarray:
        """Logarithms of averages: the intercept alone moves, where effects are those of the intercept."""
        return coefficients + np.append(np.zeros(len(coefficients) - 1), 0.5 * self._variance_of_average_row())

    @property
    def _row_variance(self) -> float:
        """Variance of the logarithm of a mean, by its reciprocal average and dispersion (Nakagawa and Schielzeth 2010)."""
        posterior = self.posterior_
        row = np.append(posterior.frame.ball * posterior.frame.shift, 1.0)
        log_mean = row @ posterior.coefficients.mean + 0.5 * self._variance_of_average_row()
        return float(np.log1p(np.exp(-log_mean) + 1.0 / self.dispersion))
