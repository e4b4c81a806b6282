"""Bayesian linear regression from second moments; a private fit of several steps releases scores, too."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, choice, number, whole
from vips._support.validation import check_number, levels_to_user
from vips.core.contract import plan_of_release, weighs_records
from vips.core.exact.rowwise import row_norms, rowwise_product
from vips.core.phases import FitPhase, plain_average, unchanged
from vips.core.records.partition import Records
from vips.core.stream_plan import StreamPlan
from vips.core.sums import Block, Quadratic
from vips.core.sums.regressions import RegressionSums
from vips.core.units import is_group
from vips.exceptions import PrivacyWarning
from vips.expfam import Gaussian
from vips.models import _coefficient_tables as tables
from vips.models import _typical as typical
from vips.models._coefficients import MOST_READ, coefficient_parts, count_scores
from vips.models._coordinates import CONSTANT, LIMIT, UNTOLD, Coordinates, Zooms, moments_of_columns, number_of_zooms
from vips.models._definite import floored, positive_definite
from vips.models._newton import Released, doubted_deviation
from vips.models._search import (
    MOST_BENDS,
    Search,
    before_adapted,
    blocks_of_scores,
    fitting_size,
    phase_of_scores,
    scores_at,
)
from vips.models.second_moments.contract import SecondMomentModel, design
from vips.models.second_moments.evidence import maximise_evidence
from vips.models.second_moments.moments import SecondMoments, positive_mean
from vips.models.second_moments.noise_aware import coefficients_of_scores, noise_aware_coefficients
from vips.models.second_moments.posterior import LinearPosterior
from vips.parts import STANDS_OUT, FeatureTotals, Part, Score

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["BayesianLinearRegression"]

# Share of the largest norm of a row that a target at its bound has in a record's vector.
_TARGET_SHARE = 0.7
_PLANNED_STEPS = 16
# Scales of squares over the clip norm, since limited residuals come near to C; and of the information of many columns.
_SCALES = 4.0, 1.3
_SPREAD, _LARGEST_SPREAD = 4.0, 6.0  # scale of squares of residuals and of weights, and their largest C
_HIDDEN = 2.0  # deviations of noise that a variance is at least taken for
_LARGEST_EFFECT = 0.15  # of an indicator, over the prior deviation of other coefficients
_UNTOLD = 0.08  # for a target: errors in few of them move every effect
_LONG_TAILS = 1.25, 1.45  # of columns and target: variance in wide windows over that in a narrow one; normals have 1.15
# Limits of C; the unit of residuals, in deviations of the target around its expected value, over those of C; the limit of
# residuals over C; deviation of the prior of coefficients, in deviations of the target.
_SIZES, _UNIT, _LIMIT, _SCALE = (3.6, 12.0), 1.3, 1.4, 7.0
_NARROWER = 0.4, 1.0  # factor of C once it follows from released squares
_ROUNDING = 1e-12  # of a column's sum of squares, from which it varies


@arguments
class BayesianLinearRegression(RegressorMixin, SecondMomentModel):
    """Linear regression with a normal-gamma or an automatic relevance prior, private or not.

    A private fit releases noisy sums of squares and products, and of residuals; all else is post-processing.

    Parameters
    ----------
    penalty : {"ridge", "ard"}
        One prior precision λ for all coefficients, or one for each. Both are learnt.
    privacy : PrivacyBudget, PrivacyPlan, StreamPlan or None
        None is a non-private fit. A budget plans 16 full-batch steps, a pipeline its ``n_steps``: four zooms, which find
        coordinates of columns and target (docs/factors.md), and releases of scores in them. A plan of n steps has (n + 1) // 3
        zooms, at most four. A single step, and a stream, release moments, in units of ``max_norm`` and ``target_range``.
    max_norm : float or None
        Public bound on the L2 norm of a row. A longer row, with its target and constant, is multiplied by
        max_norm / norm: it weighs less, which biases coefficients only where expected targets are not linear in the columns.
        Required by a private fit.
    target_range : (float, float) or None
        Public bounds of y. Values beyond are moved to the bound. Required by a private fit, which limits residuals to five
        deviations, or more where noise is small; ``summary`` warns if the target has a long tail.
    fit_intercept : bool
        Without one, expected targets are 0 where all columns are: a pipeline then takes bounds around 0 only.
    indicators : sequence of (int, int, float), or None
        Columns ``first`` to ``last - 1`` are the indicators of one answer and hold ``value`` or 0: public. Their effects have a
        prior in the unit of the target in a private fit. A pipeline takes them from its encoder.
    alpha_1, alpha_2, lambda_1, lambda_2 : float
        Shape and rate of the Gamma priors of α and λ, in ``last_posterior_``.
    max_iter, tol : int, float
        Of the iteration for α and λ: it ends when coefficients change by less than ``tol`` in all.
    on_invalid : {"drop", "raise"}
        What a private fit does with a record with missing or infinite numbers: ignore it, or stop. The latter is outside the
        guarantee.
    random_state : int, Generator, RandomState or None
        Seeds the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : Gaussian
        Of coefficients and intercept. In private fits given the noisy moments; else at the maximum of the evidence, as in
        scikit-learn's ``BayesianRidge`` and ``ARDRegression``.
    last_posterior_ : Gaussian
        The latter in private fits of moments, too: takes them at face value, negative ones as their noise.
    coef_, intercept_ : ndarray of shape (n_features,), float
    alpha_ : float
        One over the variance of residuals, by the weights of rows; residuals beyond their limit count as it.
    lambda_ : float or ndarray of shape (n_features,)
        Prior precision of the coefficients.
    sigma_ : ndarray of shape (n_features, n_features)
        Covariance of the coefficients.
    n_iter_ : int
        Iterations for ``last_posterior_``.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Notes
    -----
    *Privacy.*
    Unit: one row of X with its target. Relation: add or remove one. Released: noisy second moments of columns and target, which
    count records, and scores, information, squares of scores and of residuals, bends and tilts, hence the posterior. Public by
    declaration: ``max_norm``, ``target_range``, the number of columns, all other arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import BayesianLinearRegression, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, (20_000, 3))
    >>> y = X @ [2.0, -1.0, 0.0] + 1.0 + 0.3 * rng.normal(size=20_000)
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=1)
    >>> model = BayesianLinearRegression(privacy=plan, max_norm=1.0, target_range=(-2, 4)).fit(X, y)
    >>> bool(np.abs(model.coef_ - [2.0, -1.0, 0.0]).max() < 0.2)
    True
    """

    penalty: str = choice("ridge", "ard", default="ridge")
    target_range: tuple[float, float] | None = None
    fit_intercept: bool = True
    indicators: Sequence[tuple[int, int, float]] | None = None
    alpha_1: float = number(0.0, 1e6, "a number between 0 and 1e6", default=1e-6)
    alpha_2: float = number(0.0, 1e6, "a number between 0 and 1e6", default=1e-6)
    lambda_1: float = number(0.0, 1e6, "a number between 0 and 1e6", default=1e-6)
    lambda_2: float = number(0.0, 1e6, "a number between 0 and 1e6", default=1e-6)
    max_iter: int = whole(default=300, high=1_000_000)
    tol: float = number(0.0, 1e6, "a number between 0 and 1e6", default=1e-6)

    unit = "one row of X with its target"
    needs_labels = True
    takes_one_label = True
    settings_of_meaning = ("fit_intercept",)
    name_of_ratio = None

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        super().check_parameters()
        tables.check_indicators(self.indicators)
        if self.target_range is None:
            if self.is_private:
                raise ValueError(
                    "`target_range` is required for a private fit: a range that is learnt from y would reveal its extremes. "
                    "Declare target_range=(low, high); values beyond are moved to the bound."
                )
            return
        if not (isinstance(self.target_range, tuple | list) and len(self.target_range) == 2):
            raise ValueError(f"`target_range` must be (low, high) or None, got {self.target_range!r}.")
        low, high = self.target_range
        for bound in (low, high):
            check_number("target_range", bound, -1e12, 1e12, "made of numbers between -1e12 and 1e12")
        if not high - low > 1e-9 * max(abs(low), abs(high)):
            raise ValueError(f"`target_range` must be (low, high) with low < high, got {self.target_range!r}.")

    @property
    def planned_steps(self) -> int:
        """Steps that a budget plans: of a stream one, since all would release the same moments."""
        return 1 if isinstance(self.privacy, StreamPlan) else _PLANNED_STEPS

    @property
    def _searches(self) -> bool:
        """Whether a private fit zooms, and then releases scores: see ``vips/models/_search.py``. That takes several steps."""
        return self.is_private and not isinstance(self.privacy, StreamPlan) and self.plan_of_fit().n_steps > 1

    @property
    def _sums_squares(self) -> bool:
        return super()._sums_squares and not self._searches

    def blocks(self) -> dict[str, Block]:
        blocks, p = super().blocks(), self.n_features_in_ + bool(self.fit_intercept)
        if not self._searches:
            return blocks
        of_scores = blocks_of_scores((), p, self._clip_norm(), p <= MOST_BENDS, *_SCALES, tilts=True)
        return blocks | of_scores | {"spread": Block((2,), scale=_SPREAD)}

    def _clip_norm(self) -> float:
        clip_norm = self.plan_of_fit().clip_norm
        return self.max_record_norm() if clip_norm is None else clip_norm

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Zooms of a private fit, whose sums belong to their own coordinates, and scores in those that they found."""
        if not self._searches:
            return super().phases(n_steps)
        n_zooms = self._n_zooms(n_steps)
        zoom = FitPhase(
            "zoom", 1, blocks=("second",), statistics="_moments", update=unchanged, end=self._zoomed, step_size=plain_average,
            released="noisy number of rows, and noisy sums of products of columns and target, in coordinates of those before",
        )  # fmt: skip
        n_scores = n_steps - n_zooms
        of, first = phase_of_scores(n_scores, "bends" in self.blocks(), "_scores", tilts=True), before_adapted(n_scores)
        scores = replace(
            of, blocks=[*of.blocks, "spread"], released=f"{of.released}, squares of residuals and weights",
            step_size=lambda s: of.step_size(s) | {"spread": 1.0 / (s if s <= first else s - first)},  # of one C
        )  # fmt: skip
        return [*[zoom] * n_zooms, scores]

    def _n_zooms(self, n_steps: int) -> int:
        return number_of_zooms(n_steps)

    def _n_scores(self) -> int:
        n_steps = self.plan_of_fit().n_steps
        return n_steps - self._n_zooms(n_steps)

    def _first_zooms(self) -> Zooms:
        """Coordinates in which a fit begins: rows of norm ``max_norm`` have norm 1, targets are between -1 and 1."""
        shift, scale = self._centre, np.ones(self.n_features_in_ + 1)
        if self.max_norm is not None:
            scale[:-1] = 1.0 / float(self.max_norm)
        if self.target_range is not None:
            low, high = self.target_range
            shift, scale[-1] = np.append(shift[:-1], 0.5 * (low + high)), 2.0 / (high - low)
        return Zooms.beginning(shift, scale, len(scale))

    def _moved(self, records: Records, zooms: Zooms) -> np.ndarray:
        """Columns and the target in these coordinates, shape (n_records, n_features + 1)."""
        X = records.X.toarray() if sp.issparse(records.X) else np.asarray(records.X, dtype=np.float64)
        y = np.asarray(records.y, dtype=np.float64)
        y = y if self.target_range is None else np.clip(y, *self.target_range)
        return zooms.coordinates.rows(np.column_stack([X, y]))

    def _rows(self, records: Records, posterior: LinearPosterior) -> np.ndarray:
        moved = self._moved(records, self._first_zooms() if posterior is None else posterior.zooms)
        x, target = moved[:, :-1], moved[:, -1]
        if self.target_range is not None:
            target = self._target_share() * np.clip(target, -1.0, 1.0)
        return design(x, np.inf if self.max_norm is None else 1.0, self._constant(), target)

    def _largest_norms(self, rows: np.ndarray) -> np.ndarray | None:
        if self.target_range is None:
            return None
        return np.hypot(row_norms(rows[:, :-1]), self._target_share() * rows[:, -2] / self._constant())

    def _rows_like_one(self) -> float:
        """How many rows of one person, who may say the same in all of them, weigh as much as so many rows of several."""
        if not is_group(self.privacy_.unit):
            return 1.0
        plan, d, totals = self.privacy_.plan, self.n_features_in_, self.noisy_totals_
        matrix, constant = totals.average["second"], self._constant() ** 2
        count = positive_mean(matrix[d, d], totals.noise_std["second"]) / constant
        norm = max(np.trace(matrix[: d + 1, : d + 1]) / count, constant) + self._target_share() ** 2  # of a row, ‖z‖²
        clip_norm = self.max_record_norm() if plan.clip_norm is None else plan.clip_norm
        return float(np.clip(clip_norm / norm, 1.0, plan.max_rows_per_group or np.inf))

    def _moments(self, records: Records, posterior: LinearPosterior) -> Quadratic:
        """z zᵀ of each row z = (x̃, ỹ, ½), in units of the norm beyond which a zoom clips."""
        moved = self._moved(records, posterior.zooms)
        moved = np.column_stack([moved, np.full(len(moved), CONSTANT)])
        return Quadratic("second", moved * np.sqrt(self._unit_of_zoom()))

    def _unit_of_zoom(self) -> float:
        """Largest norm of a row's moments over ‖z‖² beyond which a zoom clips."""
        return super().max_record_norm() / LIMIT

    def _zoomed(self, average, noise_std, previous: LinearPosterior) -> LinearPosterior:
        """The posterior after a zoom: rows are in new coordinates."""
        n_zooms, zooms = self._n_zooms(self.plan_of_fit().n_steps), previous.zooms
        moments, std = (value / self._unit_of_zoom() for value in (average["second"], noise_std["second"]))
        scale, is_centred = zooms.coordinates.scale, bool(self.fit_intercept)
        after = zooms.after(moments, std, zooms.aim(n_zooms), is_centred)
        if after.n_zooms < n_zooms:
            return self._begun(after, np.zeros(self.n_features_in_))
        slopes, deviation = _regressed(moments, std, is_centred)
        unit = deviation * after.coordinates.scale[-1] / scale[-1]
        if after.seen[-1]:  # by a zoom with less noise, perhaps
            unit = min(unit, np.sqrt(after.seen[-1]))
        after = after.rescaled(np.append(np.ones(self.n_features_in_), 1.0 / unit)).with_short(self.indicators)
        factors = after.coordinates.scale / scale
        return self._begun(after, slopes * factors[-1] / factors[:-1])

    def _begun(self, zooms: Zooms, slopes: np.ndarray) -> LinearPosterior:
        """A posterior before the first scores, which are taken at these slopes of moved rows."""
        point = np.append(slopes, np.zeros(int(bool(self.fit_intercept))))[None]
        n_scores, posterior = self._n_scores(), self._prior_posterior(zooms)
        numbers = ~tables.indicator_columns(self.n_features_in_, self.indicators)
        size = fitting_size(self.plan_of_fit(), zooms, n_scores, numbers, 1.0, _SIZES)
        posterior.search = Search.begun(zooms, point, size, _UNIT, n_scores, tilts=True)
        return posterior

    def _scores(self, records: Records, posterior: LinearPosterior) -> RegressionSums:
        zooms, d = posterior.zooms, self.n_features_in_
        moved = self._moved(records, zooms)
        rows, target, origin = moved[:, :d], moved[:, d], zooms.coordinates.shift[d]
        with np.errstate(over="ignore"):
            tilts = 1.0 / (1.0 + 2.0 * np.square(np.square(row_norms(rows))))
        if self.fit_intercept:
            rows = np.column_stack([rows, np.full(len(rows), CONSTANT)])
        else:
            target, origin = target + origin * zooms.coordinates.scale[d], 0.0
        search, settings = posterior.search, (self._clip_norm(), self.plan_of_fit().rounds_records)
        return scores_at(
            rows, target, rowwise_product(rows, search.point.T), _Normal(), search.size, search.unit,
            (np.array(self.target_range) - origin) * zooms.coordinates.scale[d], *settings, rows.shape[1] <= MOST_BENDS, tilts,
            (search.size / _size_of_spread(search), _LIMIT / search.unit),
        )  # fmt: skip

    def _searched(self, average, noise_std, previous: LinearPosterior) -> LinearPosterior:
        """The posterior after a step that took scores, given all of them and the variance in them: a sandwich."""
        n_scores = self._n_scores()
        search = previous.search.after(average, n_scores)
        around = _around(average["spread"], noise_std["spread"], _size_of_spread(previous.search))
        released, deviation = search.released(noise_std, plan_of_release(self))[0].in_deviations()
        zooms, d, p = search.zooms, self.n_features_in_, len(search.point[0])
        units = np.append(self._prior_units(zooms.coordinates) / zooms.coordinates.scale[:d], np.ones(p - d))
        scale = _SCALE * np.sqrt(max(zooms.seen[d], 1.0)) / deviation
        given = coefficients_of_scores(released, units, d, self.penalty, scale)
        units = units * deviation
        given = LinearPosterior(
            given.mean * units, positive_definite(given.precision / np.outer(units, units)), given.linear / units,
            given.information / np.outer(units, units), around**-2.0, given.prior_precision / np.square(units[:d]),
        )  # fmt: skip
        posterior = self._natural(given, zooms)
        posterior.search = search = search.towards(given.mean[None])
        if search.adapts(n_scores):
            deviation = around if weighs_records(self) else deviation
            posterior.search = replace(search, size=float(np.clip(deviation, *_NARROWER)) * search.size)
        return posterior

    def _natural(self, given: LinearPosterior, zooms: Zooms) -> LinearPosterior:
        """The posterior of coefficients of columns, from one of coefficients of moved rows."""
        d, coordinates = self.n_features_in_, zooms.coordinates
        units = self._units_of_rows(coordinates, len(given.mean))
        outer, shift = np.outer(units, units), np.zeros(len(units))
        shift[d:] = coordinates.shift[d]
        information = given.information / outer
        return LinearPosterior(
            given.mean * units + shift, positive_definite(given.precision / outer),
            given.linear / units + information @ shift, information,
            given.noise_precision * coordinates.scale[d] ** 2, given.prior_precision / np.square(units[:d]),
            centre=coordinates.shift[:d], zooms=zooms,
        )  # fmt: skip

    def _released_scores(self) -> Released:
        """What a fit that searched released."""
        noise_std, plan = self.noisy_totals_.noise_std, plan_of_release(self)
        return self.once("released scores", lambda: self.last_posterior_.search.released(noise_std, plan)[0])

    def to_noise_aware_posterior(self) -> LinearPosterior:
        return super().to_noise_aware_posterior() if self.last_posterior_.search is None else self.last_posterior_

    def _prior_posterior(self, zooms: Zooms) -> LinearPosterior:
        d = self.n_features_in_
        p = d + int(bool(self.fit_intercept))
        return LinearPosterior(np.zeros(p), np.eye(p), prior_precision=np.ones(d), zooms=zooms)

    def to_posterior(self, average, noise_std, previous: LinearPosterior | None) -> LinearPosterior:
        if self._searches:
            if previous is None:
                return self._begun(self._first_zooms(), np.zeros(self.n_features_in_))
            return self._searched(average, noise_std, previous)
        zooms = self._first_zooms() if previous is None else previous.zooms
        return self._posterior_of(SecondMoments.of(average["second"], noise_std["second"]), zooms)

    def check_features(self) -> None:
        super().check_features()
        tables.check_indicators(self.indicators, self.n_features_in_)

    def _posterior_of(self, moments: SecondMoments, zooms: Zooms) -> LinearPosterior:
        viewed = moments.repaired()
        d, has_constant = self.n_features_in_, int(bool(self.fit_intercept))
        rows, of_target, means = self._around_means(viewed, zooms.coordinates)
        inner, products = rows @ viewed.matrix @ rows.T, rows @ viewed.matrix @ of_target
        count = float(viewed.matrix[d, d]) / self._constant() ** 2
        squares = float(of_target @ viewed.matrix @ of_target)
        if not np.trace(moments.matrix) > 0.0 or not count > 0.0:
            return self._prior_posterior(zooms)
        mean = of_target @ viewed.matrix[:, d] / (self._constant() * count)  # 0 if there is an intercept
        variance = max(squares / count - mean**2, 0.0)
        of_columns, units = np.diagonal(inner)[:d], None
        if not moments.noise_std:
            varies = of_columns > _ROUNDING * np.diagonal(viewed.matrix)[:d]
            units = np.sqrt(np.where(varies, of_columns, np.inf))
            if 0.0 < count * variance < 200.0 * self.alpha_2:  # of which 1 % and more would be the prior's
                warnings.warn(
                    f"y varies so little that alpha_2={self.alpha_2:g} makes intervals too wide: write y in a smaller unit, "
                    "times 1000 say, or alpha_2=0.",
                    stacklevel=levels_to_user(),
                )
        best = maximise_evidence(inner[:d, :d], products[:d], squares, count, variance, self, units)
        information = best.alpha * 0.5 * (inner + inner.T)
        precision = positive_definite(information + np.diag(np.append(best.lam, np.zeros(has_constant))))
        linear = best.alpha * products
        mean = np.linalg.solve(precision, linear)
        posterior = LinearPosterior(mean, precision, linear, information, best.alpha, best.lam, best.n_iter)
        return self._uncentred(posterior, means, zooms)

    def _noise_aware_posterior_of(self, moments: SecondMoments) -> LinearPosterior:
        zooms, d, constant = self.last_posterior_.zooms, self.n_features_in_, self._constant()
        rows, of_target, means = self._around_means(moments.repaired(), zooms.coordinates)
        count = positive_mean(moments.matrix[d, d] / constant**2, moments.noise_std / constant**2)
        units, squares = self._prior_units(zooms.coordinates), self._released("squares")
        of_target, unit = of_target * zooms.coordinates.scale[d], 1.0 / zooms.coordinates.scale[d]
        rows[:d] *= units[:, None]
        given = noise_aware_coefficients(moments, rows, of_target, count, d, self.penalty, squares)
        units = np.append(units, np.ones(len(rows) - d)) * unit
        outer = np.outer(units, units)
        posterior = LinearPosterior(
            given.mean * units, given.precision / outer, given.linear / units, given.information / outer,
            given.noise_precision / unit**2, given.prior_precision / np.square(units[:d]),
        )  # fmt: skip
        return self._uncentred(posterior, means, zooms)

    def _prior_units(self, coordinates: Coordinates) -> np.ndarray:
        """Coefficients that are large, over the unit of moved targets, shape (n_features,): 1 of moved rows; of indicators,
        whose unit is known, so much that the effect is a deviation of the target, since rare ones are far out."""
        units = coordinates.scale[: self.n_features_in_].copy()
        for first, last, value in self.indicators or ():
            units[first:last] = np.minimum(units[first:last], _LARGEST_EFFECT / value)
        return units

    def _declared(self) -> tuple[str, ...]:
        if self.target_range is None:
            return ()
        low, high = self.target_range
        return (f"target_range = ({low:g}, {high:g}): values beyond are moved to the bound",)

    # -- users --------------------------------------------------------------------------------------------------

    @overload
    def predict(self, X, return_std: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict(self, X, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...
    def predict(self, X, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Expected targets, shape (n_records,). With ``return_std`` also the deviations of targets around them, which include
        that of the intercept."""
        posterior, d = self.posterior_, self.n_features_in_
        X = self.read_rows(X, reset=False)
        mean = X @ posterior.mean[:d] + self.intercept_
        if not return_std:
            return np.asarray(mean, dtype=np.float64)
        rows = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        rows = np.column_stack([rows - posterior.centre[:d], np.ones((len(rows), len(posterior.mean) - d))])
        return np.asarray(mean), np.sqrt(np.einsum("ij,ij->i", rows @ posterior.around.cov, rows) + 1.0 / self.alpha_)

    def score(self, X, y, sample_weight=None) -> float:
        """Coefficient of determination R² of :meth:`predict`."""
        return super().score(X, y, sample_weight)

    @property
    def coef_(self) -> np.ndarray:
        """Posterior means of the coefficients, shape (n_features,)."""
        return self.posterior_.mean[: self.n_features_in_]

    @property
    def intercept_(self) -> float:
        """Posterior mean of the intercept; 0 without one."""
        mean = self.posterior_.mean
        return float(mean[-1]) if self.fit_intercept else 0.0

    @property
    def alpha_(self) -> float:
        """One over the variance of targets around the fitted line, by the weights of rows."""
        return self.posterior_.noise_precision

    @property
    def lambda_(self) -> float | np.ndarray:
        """Prior precision, one for all coefficients or one for each."""
        precision = self.posterior_.prior_precision
        return float(precision[0]) if self.penalty == "ridge" else precision

    @property
    def sigma_(self) -> np.ndarray:
        """Covariance of the coefficients, shape (n_features, n_features)."""
        d = self.n_features_in_
        return self.posterior_.cov[:d, :d]

    @property
    def n_iter_(self) -> int:
        """Iterations for α and λ of ``last_posterior_``."""
        check_is_fitted(self, "last_posterior_")
        return self.last_posterior_.n_iter

    def summary(self, level: float = 0.95, *, features=None) -> pd.DataFrame:
        """Coefficients by name: posterior mean, deviation, interval, probability of a positive coefficient.

        A fit in which nothing stands out from the noise warns of that.

        Parameters
        ----------
        level : float
            Of the intervals.
        features : fitted TableEncoder, optional
            See :meth:`BayesianLogisticRegression.summary`.

        Returns
        -------
        pandas.DataFrame
            One row for each coefficient, and the intercept last. ``attrs["signal"]`` is :meth:`signal_of_coefficients`.

        Warns
        -----
        PrivacyWarning
            If noise hides columns, or what tells columns apart that vary together: they get no limits; if the variance of a
            column, or of the target, is in few rows, or noise hides whether it is; if the target depends on columns in another
            way than by straight lines; if a table without effects would show as much with a probability above 5 %.
        """
        units = None if features is None else features.in_column_units()
        table = tables.coefficient_table(self, self.posterior_, level, units)
        others = None if features is None else features.indicators
        are_numbers = ~tables.indicator_columns(self.n_features_in_, self.indicators, others)
        hidden = self._hidden() & are_numbers
        tables.withhold(self, table, hidden[None], units, tables.HIDDEN)
        inseparable = self._inseparable() & are_numbers & ~hidden
        tables.withhold(self, table, inseparable[None], units, tables.INSEPARABLE)
        self._warn_of_tails(are_numbers & ~inseparable, units)
        d = self.n_features_in_
        is_bent = self._bent()
        if is_bent[d:].any() and not is_bent[:d].any():
            warnings.warn(tables.BENT.format(columns="the columns"), PrivacyWarning, stacklevel=3)
        tables.warn_of_columns(self, is_bent[:d], units, tables.BENT, 4)
        table.attrs["signal"] = signal = self.signal_of_coefficients()
        tables.warn_of_nothing(self, signal)
        return table

    def _warn_of_tails(self, columns: np.ndarray, units) -> None:
        """Warn of those of these columns, and of a target, whose variance is in few rows."""
        if is_group(self.privacy_.unit) or self.privacy_.plan.max_weight is not None:  # else other weights differ, too
            return
        d = self.n_features_in_
        zooms, reach = self.posterior_.zooms, np.append(np.full(d, self.max_norm or np.inf), self._reach())
        *are_long, target = zooms.long_tailed(np.repeat(_LONG_TAILS, [d, 1]))
        tables.warn_of_columns(self, are_long & columns, units, tables.TAILS, 4)
        limit = _UNTOLD if zooms.tails[d] else -1.0  # a target that the last zoom does not see
        doubts = np.append(np.full(d, UNTOLD), limit)
        *are_untold, is_hidden = zooms.untold(reach, doubts)
        tables.warn_of_columns(self, are_untold & columns & ~self._hidden(), units, tables.UNTOLD, 4)
        if target or is_hidden:
            whether, more = ("A", "without these rows") if target else ("Noise hides whether a", "nearer to its values")
            warnings.warn(
                f"{whether} part of the variance of {tables.target_of(self)} is in few rows far out. A private fit moves such "
                f"targets nearer, so that effects, and the intercept, may be too small. A `target_range` {more} or np.log1p of "
                "the target says more; of a target of two values, BayesianLogisticRegression.",
                PrivacyWarning,
                stacklevel=3,
            )

    def _reach(self) -> float:
        """Distance of the farthest target that is declared possible from the targets' centre."""
        centre = self.posterior_.zooms.coordinates.shift[-1]
        return np.inf if self.target_range is None else float(np.abs(np.subtract(self.target_range, centre)).max())

    def plot_coefficients(self, level: float = 0.95, *, features=None, ax: Axes | None = None) -> Axes:
        """A forest plot: each coefficient with its interval; arguments as in :meth:`summary`."""
        return tables.forest_plot(self.summary(level, features=features), ax)

    def signal_of_coefficients(self) -> tables.Signal:
        """Whether the coefficients stand out from sampling and noise; computed from released values only."""
        posterior, d = self.posterior_, self.n_features_in_
        prior = np.zeros(len(posterior.mean))
        information = posterior.information + np.eye(len(prior)) * 1e-12 * max(np.trace(posterior.information), 1e-300)
        likelihood = Gaussian(np.linalg.solve(information, posterior.linear), information)
        return tables.signal_of(likelihood, [prior], d)

    def _hidden(self) -> np.ndarray:
        """Columns of a private fit whose variance noise hides, shape (n_features,)."""
        d, last, is_centred = self.n_features_in_, self.last_posterior_, bool(self.fit_intercept)
        if last.search is not None:
            return last.zooms.hidden[:d] & ~self._released_scores().visible(is_centred)[:d]
        noisy = getattr(self, "noisy_totals_", None)
        if noisy is None or not noisy.noise_std["second"]:
            return np.zeros(d, bool)
        moments = noisy.average["second"][: d + 1, : d + 1]
        return ~moments_of_columns(moments, noisy.noise_std["second"], self._constant(), is_centred).is_visible

    def _inseparable(self) -> np.ndarray:
        """Columns of a private fit whose effects noise does not let it tell apart, shape (n_features,)."""
        d, last = self.n_features_in_, self.last_posterior_
        if last.search is None:
            return np.zeros(d, bool)
        units = self._units_of_rows(last.zooms.coordinates, len(last.mean))
        return self._released_scores().inseparable(last.around.precision * np.outer(units, units))[:d]

    def _units_of_rows(self, coordinates: Coordinates, n_coefficients: int) -> np.ndarray:
        """Coefficients of columns over those of moved rows, and the intercept, shape (n_coefficients,)."""
        d = self.n_features_in_
        return np.append(coordinates.scale[:d], np.full(n_coefficients - d, CONSTANT)) / coordinates.scale[d]

    def _bent(self) -> np.ndarray:
        """Whether targets depend on each column, and perhaps the intercept, in another way than a straight line, shape (p,)."""
        search = self.last_posterior_.search
        if search is None:
            return np.zeros(self.n_features_in_, bool)
        totals, unit, released = self.noisy_totals_, search.size * search.unit, self._released_scores()
        of_unit, deviation = released.in_deviations()
        tilted = of_unit.tilted(search.point[0] / deviation)
        if "bends" not in totals.average:
            return tilted
        return tilted | released.bent(
            totals.average["bends"], totals.noise_std["bends"], unit, bool(self.fit_intercept)
        )

    def feature_totals(self) -> FeatureTotals | None:
        """Sums of the first zoom, or second moments of a fit without zooms; None without noise."""
        if not hasattr(self, "noisy_totals_"):
            return None
        d, noisy, zooms = self.n_features_in_, self.noisy_totals_, self.last_posterior_.zooms
        if (counted := zooms.counts_of(d)) is not None:
            return counted
        constant, units, means = self._constant(), 1.0 / zooms.coordinates.scale[:d], np.zeros(d)
        moments, std = noisy.average["second"], noisy.noise_std["second"]
        if moments[d, d] > STANDS_OUT * std:
            means = units * moments[:d, d] * constant / moments[d, d]
        size, size_std = np.array([moments[d, d], std]) / constant**2
        return FeatureTotals(np.diagonal(moments)[:d] * units**2, std * units**2, means, size, size_std)

    def check_restored(self) -> None:
        if self.n_features_in_ <= MOST_READ:
            self.posterior_parts(self.posterior_)
            self.signal_of_coefficients()

    # -- comparisons --------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """Coefficients by name."""
        return coefficient_parts(self, posterior)

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        X, predictor = typical.rows(self.max_norm, n_records, typical.n_columns(self, n_features), rng)
        return X, self.typical_labels(predictor, rng)

    def typical_labels(self, predictor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        low, high = (-3.0, 3.0) if self.target_range is None else self.target_range
        noisy = predictor + rng.standard_normal(len(predictor))
        return np.clip(0.5 * (low + high) + 0.125 * (high - low) * noisy, low, high)

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Root mean squared error, and R²."""
        return count_scores(self, X, y)

    def predictions(self, X) -> np.ndarray:
        """Expected targets."""
        return self.predict(X)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _ball(self) -> float:
        """Norm to which rows are clipped: coordinates have it as their unit."""
        return 1.0

    def _constant(self) -> float:
        return 1.0 if self.max_norm is None else CONSTANT

    def _target_share(self) -> float:
        return _TARGET_SHARE if self.max_norm is not None and self.target_range is not None else 1.0

    def max_record_norm(self) -> float:
        """As in the base class; ``inf`` without a ``target_range``, too."""
        return np.inf if self.target_range is None else super().max_record_norm()

    def _around_means(
        self, viewed: SecondMoments, coordinates: Coordinates
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Columns of the design and the target, as rows of numbers for the entries of z, around the means of a view; and these
        means: those of columns from the coordinates' shift.

        Without an intercept the means are 0, and the design has no constant.
        """
        d, constant, units = self.n_features_in_, self._constant(), 1.0 / coordinates.scale
        natural = np.diag(np.append(units[:d], [1.0 / constant, units[d] / self._target_share()]))
        natural[d + 1, d] = coordinates.shift[d] / constant
        means = np.zeros(d + 1)
        if self.fit_intercept and viewed.matrix[d, d] > 0.0:
            means = np.delete(natural @ viewed.matrix[:, d], d) * constant / viewed.matrix[d, d]
            natural[np.append(np.arange(d), d + 1), d] -= means / constant
        return natural[: d + 1] if self.fit_intercept else natural[:d], natural[d + 1], means

    def _uncentred(self, posterior: LinearPosterior, means: np.ndarray, zooms: Zooms) -> LinearPosterior:
        """The posterior of coefficients and intercept, from that around means of columns and target."""
        posterior.zooms, d = zooms, self.n_features_in_
        if not self.fit_intercept:
            return posterior
        shift = np.append(np.zeros(d), means[d])  # the intercept at x̄ is that of the centred target, and ȳ
        return LinearPosterior(
            posterior.mean + shift, posterior.precision, posterior.linear + posterior.information @ shift,
            posterior.information, posterior.noise_precision, posterior.prior_precision, posterior.n_iter,
            means[:d] + zooms.coordinates.shift[:d], zooms,
        )  # fmt: skip

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class _Normal:
    """Targets around their expected value, in units of their deviation."""

    def scores(self, y: np.ndarray, psi: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
        """Residuals, limited at a multiple of C, and information."""
        return np.clip(y[:, None] - psi, -_LIMIT * size, _LIMIT * size), np.ones(psi.shape)


def _size_of_spread(search: Search) -> float:
    """C of squares of residuals, whose noise grows with its square."""
    return min(search.size, _LARGEST_SPREAD)


def _around(spread: np.ndarray, std: float, size: float) -> float:
    """Deviation of residuals, from released sums of their squares and of weights. Squares of scores do not tell it: they are by
    squared weights, and add up the rows of a person first."""
    unit = size / max(spread[1], std, 1e-300)
    return doubted_deviation(unit * spread[0], unit * std)


def _regressed(moments: np.ndarray, std: float, centred: bool) -> tuple[np.ndarray, float]:
    """Slopes of the target, the last column but the constant, from noisy moments, and the deviation around it."""
    count, means = max(moments[-1, -1], std), moments[:-1, -1:] if centred else np.zeros((len(moments) - 1, 1))
    products = moments[:-1, :-1] - means @ means.T / count
    least = _HIDDEN * std
    slopes = np.linalg.solve(floored(products[:-1, :-1], least * np.sqrt(len(products))), products[:-1, -1])
    residual = products[-1, -1] - slopes @ products[:-1, -1]
    if residual <= 0.0:  # slopes of noise
        slopes, residual = 0.0 * slopes, products[-1, -1]
    return slopes, float(np.sqrt(max(residual, least) * CONSTANT**2 / count))
