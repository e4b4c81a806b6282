"""The contract of regressions with a Pólya-Gamma augmentation: statistics, posterior, clip, bound.

    likelihood of a record    Π_j  exp(κ_j ψ_j) / (2 cosh(ψ_j/2))^b_j,   ψ_j = x'w_j + intercept_j        (b, κ: of y)
    w_j | α_j ~ N(0, I/α_j),  α_j ~ Gamma(a₀, b₀),  intercept_j at the columns' centre ~ N(0, 10²)

    The identity E exp(-ω ψ²/2) = cosh(ψ/2)^-b for ω ~ PG(b, 0) makes the model conjugate:
    Σ_j⁻¹ = E[α_j] I + Σ_n ω_nj x_n x_n',    Σ_j⁻¹ μ_j = Σ_n κ_nj x_n                                (textbook update)

Statistics are centred at the current posterior: blocks ``linear`` Σ_n r_nj x_n with the residual r = κ - ω ψ, and
``precision`` Σ_n ω_nj x_n x_n'. With averages ḡ and P of their totals, and m the previous μ,
μ = m + (P + E[α])⁻¹ (ḡ - E[α] m). Without noise this is the textbook update.

A private fit searches. Zooms find coordinates of the rows (``vips/models/_coordinates.py``); then each step releases scores at
a point, with ω of that point alone, the expected information σ'(ψ) x x' in place of ω x x', and the squares of scores;
``_newton.py`` matches them. Without noise, and where nothing is clipped or limited, its fixed point is the maximum of the
likelihood times the prior.

Polson, Scott and Windle (2013); private: section 5 of Park et al. (arXiv:1611.00340).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve, solve_triangular

from vips._support.arguments import arguments, choice, function_of_step, precision
from vips._support.validation import check_max_norm
from vips.core.contract import plan_of_release, released
from vips.core.exact.blas import cholesky
from vips.core.exact.rowwise import rowwise_product
from vips.core.phases import FitPhase, plain_average, unchanged
from vips.core.plan import PrivacyPlan
from vips.core.records.arrays import InMemoryData
from vips.core.records.partition import Records, rows_without, with_their_weights
from vips.core.records.source import DataSource
from vips.core.step_size import PolynomialAveraging
from vips.core.sums import Block, DenseStatistics, Joint, Quadratic
from vips.core.sums.regressions import RegressionSums
from vips.expfam import DiagonalGaussian, Gamma, Gaussian
from vips.model import ConjugateExponentialModel
from vips.models._centred import means_and_spreads
from vips.models._coefficient_tables import check_indicators, indicator_columns
from vips.models._coefficients import coefficient_parts
from vips.models._coordinates import CONSTANT, LIMIT, SUMS_OF_ZOOMS, Coordinates, Zooms, number_of_zooms
from vips.models._definite import positive_definite
from vips.models._newton import ROUNDS, Prior, Released, best_prior
from vips.models._search import MOST_BENDS, Search, blocks_of_scores, fitting_size, phase_of_scores, scores_at
from vips.models.regression.denoising import diagonal_step, diagonal_view, noise_aware_moments, precision_view
from vips.models.regression.likelihoods import Likelihood
from vips.models.regression.limit import Piece, Table
from vips.models.regression.posterior import CoefficientPosterior, DiagonalCoefficientPosterior
from vips.models.regression.prior import CoefficientPrior, KnownCoefficients
from vips.models.regression.statistics import RegressionStatistics, design_rows, variances
from vips.parts import Part
from vips.settling import Settling

__all__ = ["POWER", "AugmentedRegression", "unseen_directions"]


# Share of `max_norm` that the intercept's constant has in the sum.
_INTERCEPT_SHARE = 0.25
# Clip norm and block scales of steps without search, in units in which a row has norm at most 1.
_CLIP_NORM = 0.5
_SCALES_FULL = {"linear": 1.0, "precision": 0.7}
_SCALES_DIAGONAL = {"linear": 1.0, "precision": 0.2, "cross": 0.5, "weight": 1.0}
_PRODUCTS = "noisy sums of products of the columns with the target and with each other"
POWER = {"linear": 1, "precision": 2, "cross": 1, "weight": 0}  # of the rows' unit in each block
# Noisy steps without search have full length up to this number; later ones are shortened as 1/t.
_FULL_STEPS = 20
# Most columns of a fit that searches.
_MOST_SEARCHED = 1000
# Steps of a fit for each step of a zoom.
_STEPS_PER_ZOOM = 20
# Share of the clip norm that each of counts and exposures may have beside the moments of a zoom; and the largest norm of all
# three, over that of its moments.
_PART = 0.3
_UNIT_WITH_RATES = float(np.sqrt(1.0 + 2.0 * _PART**2))
_SIZES = 0.5, 24.0  # limits of C
# Prior precision in the coordinates of a search, and of the intercept over it; of directions that no row sees.
_FLAT, _OF_INTERCEPT, _UNSEEN = 0.02, 0.01, 10.0
# Deviation of the effect of an indicator under that prior: a logarithm of odds or rates.
_LARGEST_EFFECT = 10.0
# Rounds of a match where coefficients are more than so many, but after the last scores.
_FEW_ROUNDS, _FEW_COEFFICIENTS = 2, 64
# Weights of public records among which a fit chooses; with 0 it is a fit without them.
WEIGHTS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0)
# Logarithm of the least ratio of probabilities for which the first weight is left.
_LEAST_GAIN = 5.0
# Steps of an ordinary fit that does not settle before.
_MOST_STEPS = {"full": 1000, "diagonal": 4000}
# Numbers in rows that an ordinary fit keeps to look for its limit.
_MOST_KEPT_ROWS = 2**26
# Least step size of the residuals: about the last five totals are averaged.
_LEAST_STEP = 0.2


@arguments
class AugmentedRegression(ConjugateExponentialModel):
    """The methods that the engine calls. A subclass has a :class:`Likelihood`.

    :class:`~vips.BayesianLogisticRegression` documents the arguments.
    """

    max_norm: float | None = None
    fit_intercept: bool = True
    indicators: Sequence[tuple[int, int, float]] | None = None
    prior: float | Gamma | Gaussian | DiagonalGaussian | None = None
    covariance: str = choice("full", "diagonal", default="full")
    statistics: str = choice("centred", "paper", default="centred")
    schedule: Callable[[int], float] | None = function_of_step("PolynomialAveraging()", default=None)
    on_invalid: str = "drop"
    dtype: type = precision(default=np.float64)

    unit = "one row of X with its label"
    needs_labels = True
    takes_one_label = True
    settings_of_meaning = ("fit_intercept",)
    exact_rows = True
    _unlisted = ("likelihood", "n_outputs")
    # Where an ordinary fit of records in memory starts, and whether that is its limit, while it runs.
    _begins = None

    @property
    @abstractmethod
    def likelihood(self) -> Likelihood:
        """What a label says."""

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the data are read."""
        check_max_norm(self.max_norm, self.is_private, "longer rows are scaled down to it")
        CoefficientPrior.check(self._given_prior())
        if self.covariance == "diagonal" and self.statistics == "paper":
            raise ValueError('statistics="paper" needs covariance="full": a diagonal one cannot undo Σ_n κ_n x_n.')
        check_indicators(self.indicators)

    def check_features(self) -> None:
        super().check_features()
        check_indicators(self.indicators, self.n_features_in_)
        self._check_given_prior()
        if self._searches and self.schedule is not None:
            raise ValueError(
                "`schedule` weighs totals in an average, and this private fit averages none: leave it out, or write "
                'covariance="diagonal" or statistics="paper".'
            )

    def blocks(self) -> dict[str, Block]:
        d, outputs = self._n_coefficients(), () if self.n_outputs == 1 else (self.n_outputs,)
        if self._searches:
            p = self.n_features_in_ + 1
            rates = {"rates": Block((2,), scale=1.0 / _PART)} if self._releases_rates else {}
            scores = blocks_of_scores(outputs, d, self._clip_norm(), self._releases_bends)
            return {"moments": Block((p, p), symmetric=True), **rates, **scores}
        scale = self._scales()
        if self.covariance == "full":
            shapes = {"linear": (*outputs, d), "precision": (*outputs, d, d)}
        else:
            shapes = {"linear": (*outputs, d), "precision": (*outputs, d), "cross": (*outputs, d), "weight": outputs}
        return {
            name: Block(shape, symmetric=name == "precision" and self.covariance == "full", scale=scale[name])
            for name, shape in shapes.items()
        }

    def initial(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Totals of no record: the first posterior is the prior. But under a wide prior (the intercept's) every record would
        look nearly certain, and a first step other than the textbook's would be far too long. There Σ starts with a variance of
        1 for a row of norm ``max_norm``."""
        initial = {name: np.zeros(block.shape) for name, block in self.blocks().items()}
        prior = self._coefficient_prior()
        if self._searches or self._is_textbook() or prior.known is not None:
            return initial
        wanting = np.maximum(self._ball() ** 2 - prior.precision(prior.initial_alpha(1)[0]) / self._units() ** 2, 0.0)
        initial["precision"] += np.diag(wanting) if self.covariance == "full" else wanting
        return initial

    def begin(self, records: DataSource) -> None:
        """Look for the centre of the columns, where the intercept's prior sits; and for their spreads, in whose units the
        coefficients have the default prior unless ``max_norm`` states a unit."""
        if not self._is_given:
            means, spreads = means_and_spreads(self, records, lambda chunk: self._design(chunk.X))
            if means is not None and self.fit_intercept and self.covariance == "full":
                self.centre_ = means[: self.n_features_in_]
            if spreads is not None and self.prior is None and self.max_norm is None:
                self.spreads_ = spreads[: self.n_features_in_]
        if self.privacy is None and self.covariance == "full" and isinstance(records, InMemoryData):
            self._begins = self._limit(records)

    def _limit(self, records: InMemoryData) -> tuple[CoefficientPosterior, bool] | None:
        """Where an ordinary fit ends, and whether that was found: ``limit.py``."""
        parts, keeps = [], records.n_records * self.n_columns <= _MOST_KEPT_ROWS
        for chunk, weights in with_their_weights(
            records.chunks(self.chunk_size), self.plan_of_fit().max_weight is not None
        ):
            rows = self._kept_design(chunk.X) if keeps else partial(self._design, chunk.X)
            parts.append(Piece(rows, weights, *self.likelihood.terms(chunk.y), self.likelihood.offsets(chunk.y)))
        sparse = bool(parts) and sp.issparse(parts[0].rows())
        table = Table(
            parts,
            self._units(),
            self._coefficient_prior(),
            lambda mean, precision: self._posterior(mean, precision, 1.0, 0.0),
            lambda posterior: self._in_coordinates(posterior, sparse)[1],
            self.dtype,
        )
        zeros = {name: np.zeros(block.shape) for name, block in self.blocks().items()}
        return table.limit(self._stepped(zeros, dict.fromkeys(zeros, 0.0), None))

    def use_plan(self, plan: PrivacyPlan | None) -> None:
        super().use_plan(plan)
        if plan is None:
            vars(self).pop("_begins", None)

    def settling_of(self, plan: PrivacyPlan) -> Settling | None:
        """As in the base class, from the limit on where that was found."""
        settling = super().settling_of(plan)
        if settling is not None and self._begins is not None and self._begins[1]:
            settling.begin_at(self._begins[0])
        return settling

    def valid_records(self, records: Records) -> np.ndarray:
        shape, linear = self.likelihood.terms(records.y)
        valid = super().valid_records(Records(records.X, np.zeros(len(records.y))))
        valid &= np.isfinite(shape).all(axis=1) & np.isfinite(linear).all(axis=1)
        if sp.issparse(records.X):  # a column that does not exist would be read beyond the end of an array
            columns = records.X.indices
            valid &= rows_without((columns < 0) | (columns >= self.n_features_in_), records.X.indptr)
        return valid

    def phases(self, n_steps: int) -> list[FitPhase]:
        """A fit that searches has zooms, whose totals belong to their own coordinates, and scores, each total by itself."""
        if not self._searches:
            weights = "" if self.covariance == "full" else ", and noisy sums of the columns and of weights"
            return [FitPhase("steps", n_steps, released=_PRODUCTS + weights)]
        n_zooms, length, n_scores = self._lengths(n_steps)
        zoom = FitPhase(
            "zoom", length, blocks=("moments",), statistics="_moments", update=unchanged, end=self._zoomed,
            step_size=plain_average, released=SUMS_OF_ZOOMS,
        )  # fmt: skip
        last = zoom
        if self._releases_rates:
            last = replace(
                zoom, name="last zoom", blocks=("moments", "rates"), statistics="_moments_and_rates",
                released=f"{SUMS_OF_ZOOMS}, and of labels and exposures",
            )  # fmt: skip
        scores = phase_of_scores(n_scores, self._releases_bends)
        return [*[zoom] * (n_zooms - 1), *[last] * min(n_zooms, 1), scores]

    def expected_statistics(self, records: Records, posterior) -> RegressionSums:
        offset = self.likelihood.offsets(records.y)
        if self._searches:
            return self._scores(records.X, records.y, offset, posterior.search)
        # shares of hardened noise are rounded one by one, which is faster entry by entry
        X = sp.csr_array(records.X) if self.plan_of_fit().rounds_records else records.X
        rows = self._design(X)
        mean, spread = self._in_coordinates(posterior, sp.issparse(rows))
        return RegressionStatistics(
            rows,
            *self.likelihood.terms(records.y),
            mean,
            0.0 if self._keeps_gradients else variances(rows, spread, self.dtype),
            centred=self.statistics == "centred",
            diagonal=self.covariance == "diagonal",
            labels=None if self._labels is None else self.likelihood.terms(self._labels),
            offset=offset,
        )

    @property
    def _keeps_gradients(self) -> bool:
        """Whether residuals are gradients of the likelihood: of noisy steps, without the posterior's variance."""
        return self.is_private and self.statistics == "centred"

    @property
    def _labels(self) -> np.ndarray | None:
        """Labels over which norms are maximised; None where nothing is clipped."""
        labels = self.likelihood.extreme_labels()
        return labels if np.isfinite(self._clip_norm()) and np.isfinite(labels).all() else None

    # -- the search of a private fit: `_newton.py` -----------------------------------------------------------------

    @property
    def _searches(self) -> bool:
        """Whether a private fit takes Newton's steps from released scores and information."""
        is_default = (self.statistics, self.covariance) == ("centred", "full")
        return self.is_private and is_default and self.n_columns <= _MOST_SEARCHED

    @property
    def _releases_bends(self) -> bool:
        """Whether scores come with their products with the columns."""
        return self.likelihood.is_limited and self._n_coefficients() <= MOST_BENDS

    @property
    def _releases_rates(self) -> bool:
        """Whether the last zoom also sums labels and exposures: see :meth:`_rates`."""
        return False

    def _rates(self, y: np.ndarray) -> np.ndarray:
        """Two numbers between 0 and 1 of each label, shape (n_records, 2), whose sums say where an intercept starts."""
        raise NotImplementedError

    def _intercept_at(self, rates: np.ndarray | None, noise_std: float) -> float:
        """Intercept at the centre of the columns from which a fit starts; ``rates``: noisy sums, None before there are any."""
        return 0.0

    def _n_zooms(self, n_steps: int) -> int:
        return number_of_zooms(n_steps)

    def _lengths(self, n_steps: int) -> tuple[int, int, int]:
        """Number of zooms, steps of each, and steps that release scores."""
        n_zooms, length = self._n_zooms(n_steps), max(n_steps // _STEPS_PER_ZOOM, 1)
        return n_zooms, length, n_steps - n_zooms * length

    def _moved(self, X, coordinates: Coordinates) -> np.ndarray:
        rows = self._design(X)
        return coordinates.rows(rows.toarray() if sp.issparse(rows) else rows)

    def _moments(self, records: Records, posterior: CoefficientPosterior, unit: float = 1.0) -> Quadratic:
        """z zᵀ of each row z = (x̃, ½), in units of the norm beyond which a zoom clips, or of so many of these."""
        rows = self._moved(records.X, posterior.search.zooms.coordinates)
        if not self.fit_intercept:
            rows = np.column_stack([rows, np.full(len(rows), CONSTANT)])
        return Quadratic("moments", rows / np.sqrt(LIMIT * unit))

    def _moments_and_rates(self, records: Records, posterior: CoefficientPosterior) -> Joint:
        """The same, and rates; together of norm 1 at most."""
        rates = DenseStatistics({"rates": self._rates(records.y) / _UNIT_WITH_RATES})
        return Joint(self._moments(records, posterior, _UNIT_WITH_RATES), rates)

    def _zoomed(self, average, noise_std, previous: CoefficientPosterior) -> CoefficientPosterior:
        """The posterior after a zoom: rows are in new coordinates."""
        search, has_rates = previous.search, noise_std.get("rates", 0.0) > 0.0
        unit = _UNIT_WITH_RATES if has_rates else 1.0
        moments, std = (LIMIT * unit * value for value in (average["moments"], noise_std["moments"]))
        aim = search.zooms.aim(self._n_zooms(self._n_steps))
        zooms = search.zooms.after(moments, std, aim, centred=bool(self.fit_intercept))
        if zooms.n_zooms == self._n_zooms(self._n_steps):
            zooms = zooms.with_short(self.indicators)
        rates = (unit * average["rates"], unit * noise_std["rates"]) if has_rates else (None, 0.0)
        return self._begun(zooms, *rates)

    @property
    def _n_steps(self) -> int:
        return self.plan_of_fit().n_steps

    def _begun(self, zooms: Zooms, rates: np.ndarray | None = None, noise_std: float = 0.0) -> CoefficientPosterior:
        """The posterior before the first scores: the prior."""
        (mean, alpha), coordinates = self._start(), zooms.coordinates
        point = mean @ self._to_rows(coordinates).T
        intercept = 0.0 if self._is_given or self._knows_public else self._intercept_at(rates, noise_std)
        if self.fit_intercept:
            point[:, -1] += intercept / CONSTANT
        unit = self.likelihood.unit(intercept + self.likelihood.offset)
        _, _, n_scores = self._lengths(self._n_steps)
        search = Search.begun(zooms, point, self._size_of(zooms, n_scores), unit, n_scores)
        public = np.ones(len(point)) if self._knows_public else None
        precisions = [self._prior_of(coordinates, j, alpha[j], 1.0).precision for j in range(len(point))]
        return self._from_rows(point, np.array(precisions), search, public)

    def _size_of(self, zooms: Zooms, n_scores: int, share: float = 1.0) -> float:
        """C, with which the noise of the averaged scores is a tenth of their variance by sampling: of ¼ a row in the units of
        residuals, or a ``share`` of that."""
        numbers = ~indicator_columns(self.n_features_in_, self.indicators)
        return fitting_size(self.plan_of_fit(), zooms, n_scores, numbers, 0.25 * share, _SIZES)

    def _scores(self, X, y, offset, search: Search) -> RegressionSums:
        rows = self._moved(X, search.zooms.coordinates)
        psi = rowwise_product(rows, search.point.T) + offset
        settings = self._labels, self._clip_norm(), self.plan_of_fit().rounds_records, self._releases_bends
        return scores_at(rows, y, psi, self.likelihood, search.size, search.unit, *settings)

    def _searched(self, average, noise_std, previous: CoefficientPosterior) -> CoefficientPosterior:
        """The posterior after a step that took scores at ``previous.search.point``."""
        _, _, n_scores = self._lengths(self._n_steps)
        search = previous.search.after(average, n_scores)
        released, coordinates = search.released(noise_std, plan_of_release(self)), search.zooms.coordinates
        alpha, public = previous.alpha_shape / previous.alpha_rate, previous.public
        estimates = np.atleast_2d(previous.around.mean) / self._units_of_rows(coordinates)
        if self._knows_public:
            public = np.array(
                [self._weight_of_public(of, coordinates, j, alpha[j], estimates[j]) for j, of in enumerate(released)]
            )
        weights = np.ones(len(released)) if public is None else public
        n_rounds = ROUNDS if search.n_done == n_scores or search.point.size <= _FEW_COEFFICIENTS else _FEW_ROUNDS
        moments = [
            of.matched(self._prior_of(coordinates, j, alpha[j], weights[j]), estimates[j], n_rounds)
            for j, of in enumerate(released)
        ]
        means, precisions = (np.array(values) for values in zip(*moments, strict=True))
        search = search.towards(means)
        if search.adapts(n_scores) and search.zooms.n_zooms:
            recent = np.flatnonzero(search.kept.counts)[-2:]
            trace = np.trace(search.kept.informations[:, recent].mean(axis=(0, 1))) / search.unit**2
            share = np.clip(trace / (search.zooms.count * LIMIT / 4.0), 0.01, 1.0)
            search = replace(search, size=self._size_of(search.zooms, n_scores, share))
        return self._from_rows(means, precisions, search, public, previous.step + 1)

    def _to_rows(self, coordinates: Coordinates) -> np.ndarray:
        """T, shape (d, d), lower triangular: T w are coefficients of moved rows, w natural ones."""
        return coordinates.coefficients(np.diag(self._units()), self._intercept_constant()).T

    def _units_of_rows(self, coordinates: Coordinates) -> np.ndarray:
        """Natural coefficients, and the intercept at the centre, per coefficient of moved rows; shape (d,)."""
        units = coordinates.scale.copy()
        if self.fit_intercept:
            units[-1] = CONSTANT
        return units

    def _from_rows(self, means, precisions, search: Search, public, step: int = 0) -> CoefficientPosterior:
        """The posterior with these moments of the coefficients of moved rows."""
        coordinates = search.zooms.coordinates
        units = self._units_of_rows(coordinates)
        precisions = np.stack([positive_definite(matrix) for matrix in precisions / np.outer(units, units)])
        moments = (means * units, precisions) if self.n_outputs > 1 else (means[0] * units, precisions[0])
        posterior = CoefficientPosterior(*moments, step=step, public=public, search=search, centre=coordinates.shift)
        prior = self._coefficient_prior(coordinates)
        posterior.alpha_shape, posterior.alpha_rate = prior.alpha_posterior(
            means * units, np.atleast_2d(posterior.around.var)
        )
        return posterior

    def _prior_of(self, coordinates: Coordinates, j: int, alpha: float, public: float) -> Prior:
        """Prior of one output, of coefficients of moved rows: a flat one there, unless another one is given."""
        to_rows = self._to_rows(coordinates)
        linear, precision = self._coefficient_prior(coordinates).natural(j, alpha, public)
        precision = np.diag(precision) if precision.ndim == 1 else precision
        natural = solve_triangular(to_rows, np.eye(len(to_rows)), lower=True)
        precision, linear = natural.T @ precision @ natural, natural.T @ linear
        if self._is_flat:
            flat = np.full(len(precision), _FLAT)
            flat[-1] *= _OF_INTERCEPT if self.fit_intercept else 1.0
            # the unit of indicators is known, and rare ones are far out in the coordinates
            for first, last, value in self.indicators or ():
                steps = value * coordinates.scale[first:last]
                flat[first:last] = np.maximum(flat[first:last], np.square(steps / _LARGEST_EFFECT))
            precision = precision + np.diag(flat)
        if self.indicators:  # what no row sees says nothing of effects, and yields to rows where all of them are zero
            unseen = unseen_directions(self.indicators, len(precision), has_intercept=bool(self.fit_intercept))
            unseen = np.linalg.qr(to_rows @ unseen)[0]
            precision = precision + _UNSEEN * unseen @ unseen.T
        return Prior(precision, linear)

    def _weight_of_public(self, released: Released, coordinates, j: int, alpha: float, at: np.ndarray) -> float:
        """Weight of public records, the most probable one of ``WEIGHTS``."""
        priors = [self._prior_of(coordinates, j, alpha, weight) for weight in WEIGHTS]
        return WEIGHTS[best_prior(released, priors, at, _LEAST_GAIN)]

    # -- other steps --------------------------------------------------------------------------------------------

    def to_posterior(self, average, noise_std, previous) -> Any:
        """The coefficients that match all that a search has released: ``_newton.py``. In other fits
        Σ⁻¹ = E[α] + P and μ = previous μ + Σ (ḡ - E[α] previous μ), P made positive definite: ``denoising.py``."""
        if self._searches:
            if previous is None:
                return self._begun(Zooms.declared(self.n_features_in_, self._ball(), self._intercept_constant()))
            return self._searched(average, noise_std, previous)
        if previous is None and self._begins is not None:
            return self._begins[0]
        posterior = self._stepped(average, noise_std, previous)
        posterior.step = 0 if previous is None else previous.step + 1
        return posterior

    def _average_of(self, average, j: int) -> dict[str, np.ndarray]:
        """Averages of one output, in coordinates in which rows have norm 1."""
        averages = {name: np.asarray(value) / self._ball() ** POWER[name] for name, value in average.items()}
        return averages if self.n_outputs == 1 else {name: value[j] for name, value in averages.items()}

    def _stepped(self, average, noise_std, previous) -> Any:
        ball, scale = self._ball(), self._units() * self._ball()  # from here on, units in which rows have norm 1
        noise = {name: noise_std[name] / ball ** POWER[name] for name in noise_std}
        prior, (start, alpha), t = self._coefficient_prior(), self._start(), 0
        old = start * scale
        if previous is not None:
            alpha, old = previous.alpha_shape / previous.alpha_rate, np.atleast_2d(previous.around.mean) * scale
            t = previous.step + 1
        steps = []
        for j in range(self.n_outputs):
            linear, law = prior.natural(j, alpha[j])
            law = law / (scale**2 if law.ndim == 1 else np.outer(scale, scale))
            steps.append(
                self._step(self._average_of(average, j), noise, (linear / scale, law), alpha[j] / ball**2, old[j], t)
            )
        mean, precision, share, unknown = (np.stack(parts) for parts in zip(*steps, strict=True))
        outer = scale**2 if self.covariance == "diagonal" else np.outer(scale, scale)
        return self._posterior(mean / scale, precision * outer, share, unknown / scale**2)

    def _step(
        self, averages, noise, natural: tuple[np.ndarray, np.ndarray], alpha: float, old: np.ndarray, t: int
    ) -> tuple[np.ndarray, ...]:
        """For one output: mean and precision, the share of the mean that is signal, and variances that the view leaves out."""
        linear, law = natural
        prior = law if law.ndim == 1 else np.diagonal(law)
        if self.covariance == "full":
            view = precision_view(averages["precision"], noise["precision"], noise["linear"], alpha)
            precision = positive_definite(view + (np.diag(law) if law.ndim == 1 else law))
            released, viewed = np.diagonal(averages["precision"]), np.diagonal(precision)
        else:
            precision = prior + diagonal_view(averages["precision"], noise["linear"], alpha)
            released, viewed = averages["precision"], precision
        share, variance = noise_aware_moments(released, prior, noise["linear"])
        unknown = np.maximum(variance - 1.0 / viewed, 0.0) * (noise["linear"] > 0.0)
        if self.statistics == "paper":
            return _solve(precision, averages["linear"] + linear), precision, share, unknown
        gradient = averages["linear"] + linear - (law * old if law.ndim == 1 else law @ old)
        if self.covariance == "full":
            step = _solve(precision, gradient)
        else:
            step = diagonal_step(gradient, precision, averages["cross"], averages["weight"], noise["weight"])
        if self.is_private or self.plan_of_fit().sampling_rate < 1.0:  # shortened steps average over samples and noise
            step *= min(1.0, _FULL_STEPS / max(t, 1))
        return old + step, precision, share, unknown

    def step_size(self, t: int) -> float | dict[str, float]:
        """ρ_t of a fit that does not search: the ``schedule`` if there is one; 1 in a non-private full-batch fit with a full
        covariance, which is then textbook variational Bayes. Other residuals are averaged with max(2/(t + 1), 1/5), a
        step with momentum, and their precisions evenly, 1/t, in a private fit, with 2/(t + 1) in a non-private stochastic one,
        and not at all in a non-private full-batch one."""
        if self.schedule is not None:
            return self.schedule(t)
        if self._is_textbook():
            return 1.0
        recent = PolynomialAveraging(power=1.0)(t)
        others = 1.0 / t if self.is_private else 1.0 if self.plan_of_fit().sampling_rate == 1.0 else recent
        return dict.fromkeys(self.blocks(), others) | {"linear": max(recent, _LEAST_STEP)}

    def default_clip(self) -> float:
        """1 in units of the C that a search finds; in other fits a constant, in units in which a row has norm 1."""
        return 1.0 if self._searches else _CLIP_NORM

    @property
    def tolerance(self) -> float:
        """Far below the posterior's width; above the rounding of ``dtype``."""
        return 1e-6 if np.dtype(self.dtype) == np.float64 else 1e-5

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full batch, until the fit has settled."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=_MOST_STEPS[self.covariance])

    def clip_biases(self) -> bool:
        """A weight that ignores the label does not bias coefficients."""
        return False

    def posterior_parts(self, posterior) -> list[Part]:
        """Coefficients by name, and their prior precision if it is learnt."""
        if not (hasattr(posterior, "alpha_shape") and isinstance(posterior, Gaussian | DiagonalGaussian)):
            return super().posterior_parts(posterior)
        parts = coefficient_parts(self, posterior)
        return parts[:1] if self._is_flat else parts

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": released(self, "hence the posterior of the coefficients"),
            "declared_public": (
                f"max_norm = {self.max_norm or np.inf:g}: longer rows are scaled down to it",
                f"number of columns: {self.n_features_in_}",
                *self._declared(),
                *self._declared_known(),
                "prior and all other constructor arguments",
            ),
        }

    def bound(self, records: Records, posterior) -> float:
        """Evidence lower bound of these records and the coefficients, for non-private fits and tests: not private."""
        total = float(self.expected_statistics(records, posterior).bounds().sum())
        return total + self.likelihood.log_base_measure(records.y) - self._coefficient_prior().divergence(posterior)

    # -- the prior ----------------------------------------------------------------------------------------------

    @property
    def _is_given(self) -> bool:
        """Whether the prior is a Gaussian."""
        return isinstance(self.prior, Gaussian | DiagonalGaussian)

    @property
    def _knows_public(self) -> bool:
        """Whether the fit knows public records."""
        return "public_posterior_" in vars(self)

    @property
    def _is_flat(self) -> bool:
        """Whether the prior is the default one of a fit that searches: flat in the coordinates that it learns."""
        return self.prior is None and self._searches

    def _given_prior(self) -> float | Gamma | Gaussian | DiagonalGaussian:
        """``prior``, or its default."""
        return Gamma(1.0, 1.0) if self.prior is None else self.prior

    def _coefficient_prior(self, coordinates: Coordinates | None = None) -> CoefficientPrior:
        """The prior, which sits at the centre of these coordinates of the rows, without them at that of the design; of a fit
        that searches without what is flat in its coordinates."""
        settings, diagonal = (self.n_features_in_, bool(self.fit_intercept)), self.covariance == "diagonal"
        places = {"centre": None if coordinates is None else coordinates.shift, "spreads": vars(self).get("spreads_")}
        if self._is_given:
            return CoefficientPrior(None, *settings, KnownCoefficients.of(self.prior, diagonal=diagonal), **places)
        alpha = None if self._is_flat else self._given_prior()
        prior = CoefficientPrior(alpha, *settings, **places)
        if not self._knows_public:
            return prior
        known = KnownCoefficients.of(self.public_posterior_, diagonal=False)
        of_public = CoefficientPrior(self._given_prior(), *settings, centre=self.public_centre_)
        base = np.stack([of_public.matrix(alpha) for alpha in self.public_alpha_])
        known = KnownCoefficients(known.linear, known.precision - base)
        return CoefficientPrior(alpha, *settings, known, **places)

    def _start(self) -> tuple[np.ndarray, np.ndarray]:
        """Where a fit starts: mean of what is known, or 0, shape (n_outputs, d), and E[α]."""
        if self._knows_public:
            return np.atleast_2d(self.public_posterior_.mean), self._coefficient_prior().initial_alpha(self.n_outputs)
        mean = self.prior.mean if self._is_given else np.zeros((self.n_outputs, self._n_coefficients()))
        return np.atleast_2d(mean), self._coefficient_prior().initial_alpha(self.n_outputs)

    def _check_given_prior(self) -> None:
        """Raise ValueError if a given prior has another form than the coefficients; public facts only."""
        if not self._is_given:
            return
        if self.covariance == "diagonal" and not isinstance(self.prior, DiagonalGaussian):
            raise ValueError(
                'covariance="diagonal" needs a prior of independent coefficients: prior=vips.expfam.DiagonalGaussian(p.mean, '
                "1 / p.var) for a posterior p."
            )
        shape = (self.n_outputs, self._n_coefficients())
        if np.atleast_2d(self.prior.mean).shape != shape:
            raise ValueError(
                f"`prior` is of coefficients of shape {self.prior.mean.shape}, the model's have {shape}: one for each of "
                f"{self.n_features_in_} columns{', and the intercept last' if self.fit_intercept else ''}."
            )

    def _declared_known(self) -> tuple[str, ...]:
        """What the report says about prior and public records."""
        if self._is_given:
            return ("prior of the coefficients: a given Gaussian",)
        if not self._knows_public:
            return ()
        return (
            f"{self.public_records_[0]:,} public records, start and prior of the coefficients: nothing protects them",
        )

    # -- helpers ------------------------------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        """Number of linear predictors."""
        return self.likelihood.n_outputs

    def default_chunk_size(self) -> int:
        """So many records that the sum of a chunk, d × d numbers, and its Python, cost little in comparison."""
        return max(4096, 4 * self.n_columns, min(16_384, 2**19 // max(self.n_columns, 1)))

    def _kept_design(self, X) -> Callable:
        rows = self._design(X)
        return lambda: rows

    def _design(self, X):
        largest, centre = np.inf if self.max_norm is None else float(self.max_norm), self._centre
        if sp.issparse(X) and centre is not None:  # centred rows have no zeros
            X = X.toarray()
        rows = design_rows(X, largest, self._intercept_constant())
        if centre is not None:
            rows[:, : len(centre)] -= centre
        return rows

    @property
    def _centre(self) -> np.ndarray | None:
        """Centre of the columns of an ordinary fit, whose posterior is held around it; None if rows stay as they come."""
        return vars(self).get("centre_")

    def _declared(self) -> tuple[str, ...]:
        return ()

    def _n_coefficients(self) -> int:
        return self.n_features_in_ + bool(self.fit_intercept)

    def _ball(self) -> float:
        return 1.0 if self.max_norm is None else float(self.max_norm)

    def _intercept_constant(self) -> float:
        """Value of the constant column, which represents the intercept in the sum and counts in a record's norm."""
        if not self.fit_intercept:
            return 0.0
        return 1.0 if self.max_norm is None else _INTERCEPT_SHARE * float(self.max_norm)

    def _scales(self) -> dict[str, float]:
        """Residuals of a count with b trials are of the order √b, precisions of the order b."""
        scales, b = (_SCALES_FULL if self.covariance == "full" else _SCALES_DIAGONAL), self.likelihood.largest_shape
        trials = {name: np.sqrt(b) if name == "linear" else b for name in scales}
        scales = {name: scale * trials[name] * self._ball() ** POWER[name] for name, scale in scales.items()}
        return scales

    def _clip_norm(self) -> float:
        """C: public."""
        clip_norm = self.plan_of_fit().clip_norm
        return self.default_clip() if clip_norm is None else clip_norm

    def _is_textbook(self) -> bool:
        """Whether each step is an exact coordinate update."""
        return not self.is_private and self.plan_of_fit().sampling_rate == 1.0 and self.covariance == "full"

    def _units(self) -> np.ndarray:
        """Coefficient of each column of the design, per natural coefficient: the intercept's is intercept / constant."""
        units = np.ones(self._n_coefficients())
        if self.fit_intercept:
            units[-1] = 1.0 / self._intercept_constant()
        return units

    def _in_coordinates(self, posterior, sparse: bool) -> tuple[np.ndarray, np.ndarray]:
        """μ, and Σ in the form that :class:`RegressionStatistics` takes, in the coordinates of the design."""
        units, posterior = self._units(), posterior.around
        mean = np.atleast_2d(posterior.mean) * units
        if self.covariance == "diagonal":
            return mean, np.atleast_2d(posterior.var) * units**2
        if sparse:
            return mean, posterior.cov.reshape(-1, len(units), len(units)) * units[:, None] * units
        # Λ = LLᵀ becomes D⁻¹LLᵀD⁻¹ with D the units, and L⁻¹ becomes L⁻¹D
        return mean, posterior.inverse_factor.reshape(-1, len(units), len(units)) * units

    def _rows_and_law(self, X, posterior) -> tuple:
        """Rows as a posterior's steps see them, and μ and Σ in their coordinates."""
        if self.covariance == "diagonal" or posterior.search is None:
            rows = self._design(X)
            return rows, *self._in_coordinates(posterior, sp.issparse(rows))
        rows = self._moved(X, posterior.search.zooms.coordinates)
        units = self._units_of_rows(posterior.search.zooms.coordinates)
        inverses = posterior.around.inverse_factor.reshape(-1, len(units), len(units))
        return rows, np.atleast_2d(posterior.around.mean) / units, inverses / units

    def _posterior(self, mean: np.ndarray, precision: np.ndarray, share: np.ndarray, unknown: np.ndarray):
        """The posterior with these moments, in natural coordinates, and with q(α).

        ``share`` and ``unknown``, both of shape (n_outputs, d), correct E w² for noise: the share of the mean that is signal,
        and a variance that a view leaves out. Without noise they are 1 and 0. So a coefficient that noise hides carries no
        information about α, although noise moves it and short steps keep it near 0.
        """
        if self.covariance == "full":  # rescaling may have cost the last digits
            precision = np.stack([positive_definite(matrix) for matrix in precision])
        moments = (mean[0], precision[0]) if self.n_outputs == 1 else (mean, precision)
        if self.covariance == "diagonal":
            posterior = DiagonalCoefficientPosterior(*moments)
        else:
            posterior = CoefficientPosterior(*moments, centre=self._centre)
        variance = np.atleast_2d(posterior.around.var) + unknown
        alpha = self._coefficient_prior().alpha_posterior(share * mean, variance)
        posterior.alpha_shape, posterior.alpha_rate = alpha
        return posterior


def unseen_directions(
    indicators: Sequence[tuple[int, int, float]], d: int, *, has_intercept: bool = True
) -> np.ndarray:
    """All coefficients of each triple against the intercept, which is the last one; without it, against those of the first
    triple: no row sees them. Shape (d, number of them)."""
    directions, values = np.zeros((d, len(indicators))), [value for _, _, value in indicators]
    for direction, (first, last, _) in zip(directions.T, indicators, strict=True):
        direction[first:last] = 1.0
    if has_intercept:
        directions[-1] = np.negative(values)
        return directions
    return values[0] * directions[:, 1:] - np.outer(directions[:, 0], values[1:])


def _solve(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return cho_solve((cholesky(matrix), True), vector)
