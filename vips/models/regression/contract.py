"""The contract of regressions with a Pólya-Gamma augmentation: statistics, posterior, clip, bound.

    likelihood of a record    Π_j  exp(κ_j ψ_j) / (2 cosh(ψ_j/2))^b_j,   ψ_j = x'w_j + intercept_j        (b, κ: of y)
    w_j | α_j ~ N(0, I/α_j),  α_j ~ Gamma(a₀, b₀),  intercept_j at the columns' centre ~ N(0, 10²)

    The identity E exp(-ω ψ²/2) = cosh(ψ/2)^-b for ω ~ PG(b, 0) makes the model conjugate:
    Σ_j⁻¹ = E[α_j] I + Σ_n ω_nj x_n x_n',    Σ_j⁻¹ μ_j = Σ_n κ_nj x_n                                (textbook update)

Statistics are centred at the current posterior: blocks ``linear`` Σ_n r_nj x_n with the residual r = κ - ω ψ, and
``precision`` Σ_n ω_nj x_n x_n'. With averages ḡ and P of their totals, and m the previous μ,
μ = m + (P + E[α])⁻¹ (ḡ - E[α] m). Without noise this is the textbook update; noise in P slows the iteration down but does not
move its fixed point. Private fits also sum ``variance`` (``scores.py``).

Polson, Scott and Windle (2013); private: section 5 of Park et al. (arXiv:1611.00340).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve, solve_triangular

from vips._compute.blas import cholesky
from vips._validation import check_choice, check_dtype_of_computation, check_max_norm, check_schedule
from vips.data import DataSource, Records, rows_without
from vips.expfam import DiagonalGaussian, Gamma, Gaussian, polya_gamma_mean
from vips.model import ConjugateExponentialModel
from vips.models._centred import means_and_spreads
from vips.models._coefficients import coefficient_parts
from vips.models._definite import positive_definite
from vips.models.regression.coordinates import Coordinates
from vips.models.regression.denoising import (
    diagonal_step,
    diagonal_view,
    near_public,
    noise_aware_moments,
    precision_view,
)
from vips.models.regression.likelihoods import Likelihood
from vips.models.regression.matching import (
    Prior,
    ReleasedGradients,
    RowLaw,
    best_prior,
    clip_weights,
    independent_law,
    matched,
    weighted_law,
)
from vips.models.regression.posterior import CoefficientPosterior, DiagonalCoefficientPosterior, KeptSteps
from vips.models.regression.prior import CoefficientPrior, KnownCoefficients
from vips.models.regression.statistics import (
    RegressionStatistics,
    better_as_csr,
    count_entries,
    design_rows,
    factors_of_labels,
)
from vips.parts import Part
from vips.phases import FitPhase
from vips.privacy import PrivacyBudget, PrivacyPlan
from vips.step_size import PolynomialAveraging
from vips.sums import Block
from vips.sums.regressions import VARIANCE_SCALE, Lengths, PartedStatistics

__all__ = ["POWER", "AugmentedRegression", "check_indicators", "unseen_directions"]


# Share of `max_norm` that the intercept's constant has in the sum.
_INTERCEPT_SHARE = 0.25
# Clip norm and block scales, in units in which a row has norm at most 1. docs/logistic.md says how they were chosen.
_CLIP_NORM = {"unbiased": 0.5, "clipped": 0.3}
_SCALES_FULL = {"linear": 1.0, "precision": 0.7}
_SCALES_DIAGONAL = {"linear": 1.0, "precision": 0.2, "cross": 0.5, "weight": 1.0}
POWER = {"linear": 1, "precision": 2, "cross": 1, "weight": 0, "variance": 2}  # of the rows' unit in each block
# Noisy steps up to this number have full length; later ones are shortened as 1/t.
_FULL_STEPS = 20
# Maximum number of points that are kept, with the totals there; steps next to each other share one where there are more.
_MOST_KEPT = 64
# Precision of directions that no row sees, for rows of norm 1.
_UNSEEN = 10.0
# Largest number of columns whose next coefficients match all gradients, and which are moved: with more, fits to few records
# predict worse.
_MOST_MATCHED = 40
# Steps of a fit for each one in which it learns coordinates, and the fewest steps of a fit that does.
_STEPS_PER_LEARNING, _FEWEST_STEPS = 10, 5
# Mean squares of the rows' norms that are possible without an intercept, whose column says how many rows there are.
_SQUARES = (1.0, 0.5, 0.25, 0.125, 0.0625)
# Hardly any moved row is so many times longer than one as it comes.
_LONGER = 100.0
# Rounds of Gauss-Newton after a step.
_ROUNDS = 3
# Weights of public records among which a fit chooses; with 0 it is a fit without them.
WEIGHTS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0)
# Logarithm of the least ratio of probabilities for which the first weight is left.
_LEAST_GAIN = 5.0
# A weight that falls by more than this factor makes α start anew.
_MOST_CHANGE = 5.0
# Steps of an ordinary fit that does not settle before.
_MOST_STEPS = {"full": 1000, "diagonal": 4000}
# Least step size of the residuals: about the last five totals are averaged.
_LEAST_STEP = 0.2


class AugmentedRegression(ConjugateExponentialModel):
    """The methods that the engine calls. A subclass has a :class:`Likelihood`.

    :class:`~vips.BayesianLogisticRegression` documents the arguments.
    """

    unit = "one row of X with its label"
    needs_labels = True
    takes_one_label = True
    settings_of_meaning: tuple[str, ...] = ("fit_intercept",)
    exact_rows = True
    _unlisted = ("likelihood", "matched_moments", "moved", "n_outputs", "released_gradients")

    def __init__(
        self,
        *,
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
        self.privacy = privacy
        self.max_norm = max_norm
        self.fit_intercept = fit_intercept
        self.indicators = indicators
        self.prior = prior
        self.covariance = covariance
        self.statistics = statistics
        self.influence = influence
        self.schedule = schedule
        self.on_invalid = on_invalid
        self.dtype = dtype
        self.random_state = random_state

    @property
    @abstractmethod
    def likelihood(self) -> Likelihood:
        """What a label says."""

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the data are read."""
        check_max_norm(self.max_norm, self.is_private, "longer rows are scaled down to it")
        CoefficientPrior.check(self._given_prior())
        check_choice("covariance", self.covariance, ("full", "diagonal"))
        check_choice("statistics", self.statistics, ("centred", "paper"))
        check_choice("influence", self.influence, ("unbiased", "clipped"))
        if self.covariance == "diagonal" and self.statistics == "paper":
            raise ValueError('statistics="paper" needs covariance="full": a diagonal one cannot undo Σ_n κ_n x_n.')
        check_dtype_of_computation(self.dtype)
        check_indicators(self.indicators)
        check_schedule(self.schedule, "PolynomialAveraging()")

    def check_features(self) -> None:
        if self.n_features_in_ < 1:
            raise ValueError("X has no columns.")
        check_indicators(self.indicators, self.n_features_in_)
        self._check_given_prior()

    def blocks(self) -> dict[str, Block]:
        d, outputs = self._n_coefficients(), () if self.n_outputs == 1 else (self.n_outputs,)
        scale = self._scales()
        if self.covariance == "full":
            shapes = {"linear": (*outputs, d), "precision": (*outputs, d, d)}
        else:
            shapes = {"linear": (*outputs, d), "precision": (*outputs, d), "cross": (*outputs, d), "weight": outputs}
        if self._sums_variance():
            shapes["variance"] = (*outputs, d)
        return {
            name: Block(shape, symmetric=name == "precision" and self.covariance == "full", scale=scale[name])
            for name, shape in shapes.items()
        }

    def initial(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Totals of no record: the first posterior is the prior. But under a wide prior (the intercept's) every record would
        look nearly certain, and a first step other than the textbook's would be far too long. There Σ starts with a variance of
        1 for a row of norm ``max_norm``."""
        initial = {name: np.zeros(block.shape) for name, block in self.blocks().items()}
        if self._is_textbook():
            return initial
        prior = self._coefficient_prior()
        if prior.known is not None:
            return initial
        wanting = np.maximum(self._ball() ** 2 - prior.precision(prior.initial_alpha(1)[0]) / self._units() ** 2, 0.0)
        initial["precision"] += np.diag(wanting) if self.covariance == "full" else wanting
        return initial

    def begin(self, records: DataSource) -> None:
        """Look for the centre of the columns, where the intercept's prior sits; and for their spreads, in whose units the
        coefficients have the default prior unless ``max_norm`` states a unit."""
        if self._is_given:
            return
        means, spreads = means_and_spreads(self, records, lambda chunk: self._design(chunk.X)[0])
        if means is not None and self.fit_intercept and self.covariance == "full":
            self.centre_ = means[: self.n_features_in_]
        if spreads is not None and self.prior is None and self.max_norm is None:
            self.spreads_ = spreads[: self.n_features_in_]

    def valid_records(self, records: Records) -> np.ndarray:
        shape, linear = self.likelihood.terms(records.y)
        valid = super().valid_records(Records(records.X, np.zeros(len(records.y))))
        valid &= np.isfinite(shape).all(axis=1) & np.isfinite(linear).all(axis=1)
        if sp.issparse(records.X):  # a column that does not exist would be read beyond the end of an array
            columns = records.X.indices
            valid &= rows_without((columns < 0) | (columns >= self.n_features_in_), records.X.indptr)
        return valid

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Where coordinates are learnt, a tenth of the steps for them: their totals are dropped."""
        n_first = self._n_learning(n_steps)
        return [
            FitPhase("coordinates", n_first, end=self.moved),
            FitPhase("coefficients", n_steps - n_first, step_size=self.rho),
        ]

    def expected_statistics(self, records: Records, posterior) -> RegressionStatistics | PartedStatistics:
        X, terms = records.X, self.likelihood.terms(records.y)
        scores = self._score_settings() | {"offset": self.likelihood.offsets(records.y)}
        if sp.issparse(X) or posterior.coordinates.move or self._centre is not None:  # centred rows have no zeros
            return self._statistics(X, terms, posterior, **scores)
        # hardened noise needs an E-step whose bits depend on the record alone, which BLAS does not promise
        n_stored = count_entries(X)
        second = better_as_csr(n_stored, X.shape[1]) | self.plan_of_fit().rounds_records
        if second.all():
            return self._statistics(X, terms, posterior, n_stored, **scores)
        if not second.any():
            return self._statistics(X, terms, posterior, **scores)
        offset = np.broadcast_to(scores.pop("offset"), (len(second), 1))
        parts = [
            self._statistics(X[rows], [term[rows] for term in terms], posterior, counts, offset=offset[rows])
            for rows, counts in ((~second, None), (second, n_stored[second]))
        ]
        return PartedStatistics(second, parts, **scores)

    def _statistics(self, X, terms, posterior, n_stored: np.ndarray | None = None, **scores) -> RegressionStatistics:
        rows, lengths = self._design(X, n_stored)
        if posterior.coordinates.move:
            rows, lengths = posterior.coordinates.rows(rows.toarray() if sp.issparse(rows) else rows)
            rows = sp.csr_array(rows) if self.plan_of_fit().rounds_records else rows
        steps = self._keeps_steps()
        at = (self._point(posterior), None) if steps else self._in_coordinates(posterior, sp.issparse(rows))
        return RegressionStatistics(
            rows,
            lengths,
            *terms,
            *at,
            centred=self.statistics == "centred",
            diagonal=self.covariance == "diagonal",
            dtype=self.dtype,
            labels=self._labels_of_norms(),
            **scores,
        )

    def _score_settings(self) -> dict[str, object]:
        return {"clip_norm": self._clip_norm(), "blocks": self.blocks()} if self._sums_variance() else {}

    def _labels_of_norms(self) -> tuple[np.ndarray, np.ndarray] | None:
        """b and κ of the labels over which norms are maximised; None where nothing is clipped, or by the record's own label."""
        labels = self.likelihood.extreme_labels()
        if self.influence == "clipped" or np.isinf(self._clip_norm()) or not np.isfinite(labels).all():
            return None
        return self.likelihood.terms(labels)

    def to_posterior(self, average, noise_std, previous) -> Any:
        """After noisy steps with residuals, a full covariance and few columns: what matches all released gradients, see
        ``matching.py``. Otherwise Σ⁻¹ = E[α] + P and μ = previous μ + Σ (ḡ - E[α] previous μ), P made positive definite:
        ``denoising.py``."""
        kept = self._kept(average, previous)
        if previous is not None and self._matches():
            posterior = self._matched(average, noise_std, previous, kept)
        else:
            posterior = self._stepped(average, noise_std, previous)
            posterior.public = np.ones(self.n_outputs) if self._knows_public else None
        posterior.step, posterior.kept = 0 if previous is None else previous.step + 1, kept
        if previous is not None:
            posterior.coordinates = previous.coordinates
        return posterior

    def moved(self, average, noise_std, previous) -> CoefficientPosterior:
        """The posterior after the first phase, with the coordinates that it has released; its totals are dropped."""
        posterior = self.to_posterior(average, noise_std, previous)
        of_all = np.reshape(average["precision"], (-1, *posterior.cov.shape[-2:])).sum(axis=0)
        std = noise_std["precision"] * np.sqrt(self.n_outputs)
        posterior.coordinates = Coordinates.learnt(of_all, std, self._intercept_constant(), self._ball())
        posterior.kept = KeptSteps.none(posterior.kept.points.shape)
        return posterior

    def _n_learning(self, n_steps: int) -> int:
        """Number of first steps after which rows are centred and scaled by released numbers.

        0 without an intercept, which takes up what centring takes away; of many columns, since centred rows have no zeros; and
        where a clip that looks at labels cuts no row as it comes, so that coefficients are not biased.
        """
        few, cuts = self.n_features_in_ <= _MOST_MATCHED, self._clip_norm() < self.max_record_norm()
        able = self._matches() and self.fit_intercept and self.schedule is None
        learns = able and few and n_steps >= _FEWEST_STEPS and (self.influence == "unbiased" or cuts)
        return max(n_steps // _STEPS_PER_LEARNING, 1) if learns else 0

    def _matches(self) -> bool:
        """Whether the next coefficients are those that match the released gradients.

        With more columns predictions are better after steps with momentum, whose raised precisions shrink what noise hides;
        intervals are those of the matched gradients there, too. With a known prior, what noise hides stays at its mean.
        """
        knows = self._is_given or self._knows_public
        return self._keeps_steps() and self.covariance == "full" and (knows or self.n_features_in_ <= _MOST_MATCHED)

    def _keeps_steps(self) -> bool:
        """Whether steps are noisy, and release gradients of the likelihood."""
        return self.is_private and self.statistics == "centred"

    def _kept(self, average, previous) -> KeptSteps:
        """What the steps released until now."""
        n_steps = self.plan_of_fit().n_steps if self._keeps_steps() else 0
        shape = (self.n_outputs, min(n_steps, _MOST_KEPT), self._n_coefficients())
        if previous is None or not n_steps:
            return KeptSteps.none(shape)
        t = previous.step + 1
        if previous.coordinates.move:
            t -= self._n_learning(n_steps)
        rho = self.step_size(t)
        rho = rho if isinstance(rho, dict) else dict.fromkeys(average, rho)
        place, point = (t - 1) // -(-n_steps // _MOST_KEPT), self._point(previous)
        return previous.kept.after(place, point, np.atleast_2d(average["linear"]), rho["linear"], rho["precision"])

    def _matched(self, average, noise_std, previous, kept: KeptSteps) -> CoefficientPosterior:
        """The posterior after a step that was computed at ``previous``."""
        steps = self.released_gradients(self.plan_of_fit(), average, noise_std, kept, previous.coordinates)
        alpha, public = previous.alpha_shape / previous.alpha_rate, previous.public
        if self._knows_public:
            public, alpha = self._weights_of_public(steps, previous.coordinates, alpha, public)
        weights = np.ones(self.n_outputs) if public is None else public
        mean, precision = self.matched_moments(steps, previous, alpha, weights, _ROUNDS)
        posterior = self._posterior(mean, precision, np.ones(mean.shape), np.zeros(mean.shape))
        posterior.public = public
        return posterior

    def matched_moments(
        self, steps: list[ReleasedGradients], posterior, alpha: np.ndarray, public: np.ndarray, n_rounds: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means (n_outputs, d) and precisions of the coefficients that match these steps; begins at ``posterior``."""
        to_rows, moments = self._to_rows(posterior.coordinates), []
        known = posterior.step > 0
        for j, (mean, cov) in enumerate(zip(np.atleast_2d(posterior.mean), self._covariances(posterior), strict=True)):
            prior = self._prior_of(posterior.coordinates, j, alpha[j], public[j])
            spread = np.diagonal(to_rows @ cov @ to_rows.T) * known
            moments.append(matched(steps[j], prior, to_rows @ mean, spread, n_rounds))
        means = [solve_triangular(to_rows, mean, lower=True) for mean, _ in moments]
        return np.array(means), np.array([to_rows.T @ precision @ to_rows for _, precision in moments])

    def _to_rows(self, coordinates: Coordinates) -> np.ndarray:
        """T, shape (d, d), lower triangular: T w are coefficients of rows of norm 1 in these coordinates, w natural ones."""
        return coordinates.coefficients(np.diag(self._units() * self._ball()), self._intercept_constant()).T

    def released_gradients(
        self, plan: PrivacyPlan, average, noise_std, kept: KeptSteps, coordinates: Coordinates
    ) -> list[ReleasedGradients]:
        """What was released for each output, in coordinates in which rows have norm 1. Computed from released values only: of
        several laws of the offset, and of lengths that nothing tells, the one under which gradients fit together best."""
        knows_number = self.fit_intercept or self.covariance == "diagonal"
        squares = (1.0,) if knows_number else _SQUARES
        laws = [(*law, square) for law in self.likelihood.laws_of_offset() for square in squares]
        arguments = plan, average, noise_std, kept, coordinates
        first = self._gradients_under(*laws[0], *arguments)
        if len(laws) == 1 or len(first[0].counts) < 2:
            return first
        candidates = [first, *(self._gradients_under(*law, *arguments) for law in laws[1:])]
        return min(candidates, key=lambda steps: sum(step.scatter(step.match()[1])[0] for step in steps))

    def _gradients_under(
        self,
        offset: float,
        spread: float,
        square: float,
        plan: PrivacyPlan,
        average,
        noise_std,
        kept: KeptSteps,
        coordinates: Coordinates,
    ) -> list[ReleasedGradients]:
        ball = self._ball()
        noise = {name: std / ball ** POWER[name] for name, std in noise_std.items()}
        averages = [self._average_of(average, j) for j in range(self.n_outputs)]
        laws_of_rows = (self._row_law(average, noise, j, coordinates) for j, average in enumerate(averages))
        weighted, left = zip(*laws_of_rows, strict=True)
        weighted = [
            replace(law, count=law.count / square, cov=law.cov * square, offset=offset, spread=spread)
            for law in weighted
        ]
        # the first points are far from the root, unless a phase before ended near it
        used = kept.used(0 if coordinates.move else 2 if self._matches() else len(kept.counts))
        points, centre = kept.points[:, used] * ball, kept.centre * ball
        laws = [law.unweighted(at) for law, at in zip(weighted, centre, strict=True)]
        noise_of_step = plan.noise_std() * self.blocks()["linear"].scale / plan.sampling_rate / ball
        return [
            ReleasedGradients(
                points[j],
                kept.totals[j, used] / ball,
                kept.counts[used],
                self._clip_weights(laws, points, centre, plan.clip_norm),
                noise_of_step,
                plan.sampling_rate,
                laws[j],
                left[j],
                weighted[j].squares.sum(),
                (averages[j]["variance"], noise["variance"]) if "variance" in noise else None,
            )
            for j in range(self.n_outputs)
        ]

    def _average_of(self, average, j: int) -> dict[str, np.ndarray]:
        """Averages of one output, in coordinates in which rows have norm 1."""
        averages = {name: np.asarray(value) / self._ball() ** POWER[name] for name, value in average.items()}
        return averages if self.n_outputs == 1 else {name: value[j] for name, value in averages.items()}

    def _row_law(self, average, noise, j: int, coordinates: Coordinates) -> tuple[RowLaw, np.ndarray]:
        """Law of one output's rows. Where public records are known, private ones are taken to be like them unless it shows."""
        constant = self._intercept_constant() / self._ball()
        if self._knows_public and self.covariance == "full":
            natural = solve_triangular(self._to_rows(coordinates), np.eye(self._n_coefficients()), lower=True)
            public = natural.T @ self._coefficient_prior().known.precision[j] @ natural
            return weighted_law(near_public(average["precision"], noise["precision"], public), 0.0, constant)
        if self.covariance == "full":
            return weighted_law(average["precision"], noise["precision"], constant)
        return independent_law(average, noise, constant)

    def _clip_weights(self, laws: list[RowLaw], points: np.ndarray, centre: np.ndarray, clip_norm: float) -> np.ndarray:
        """Mean clip weights at the points, over that at ``centre``."""
        labels = self._labels_of_norms()
        if labels is None or self.covariance == "diagonal":
            return np.ones(points.shape[1])
        scale = {name: value / self._ball() ** POWER[name] for name, value in self._scales().items()}

        def norms(predictor: np.ndarray, length: float) -> np.ndarray:
            lengths = np.full(len(predictor), length)
            factors = factors_of_labels(predictor, np.abs(predictor), labels)
            norms = Lengths(lengths, lengths**2).largest_norms(factors, scale)
            return np.maximum(norms, clip_norm)

        return clip_weights(laws, points, centre, norms)

    def _prior_of(self, coordinates: Coordinates, j: int, alpha: float, public: float) -> Prior:
        """Prior of one output, in the coordinates of :meth:`_to_rows`."""
        to_rows = self._to_rows(coordinates)
        linear, precision = self._coefficient_prior(coordinates).natural(j, alpha, public)
        precision = np.diag(precision) if precision.ndim == 1 else precision
        natural = solve_triangular(to_rows, np.eye(len(to_rows)), lower=True)
        return Prior(natural.T @ precision @ natural, natural.T @ linear)

    def _weights_of_public(self, steps, coordinates, alpha, last) -> tuple[np.ndarray, np.ndarray]:
        """Weights of public records, the most probable ones of ``WEIGHTS``, and E[α]: where a weight falls much, that of the
        start, since α of public records without effects would keep all coefficients small."""
        weights, alpha, start = last.copy(), alpha.copy(), self._coefficient_prior().initial_alpha(1)[0]
        at = self._start()[0] @ self._to_rows(coordinates).T
        for j in range(self.n_outputs):
            settings = [(alpha[j], weight) for weight in WEIGHTS] + [(start, 0.0)]
            priors = [self._prior_of(coordinates, j, *setting) for setting in settings]
            weights[j] = (*WEIGHTS, 0.0)[best_prior(steps[j], priors, at[j], _LEAST_GAIN)]
            if weights[j] < last[j] / _MOST_CHANGE:
                alpha[j] = start
        return weights, alpha

    def _stepped(self, average, noise_std, previous) -> Any:
        ball, scale = self._ball(), self._units() * self._ball()  # from here on, units in which rows have norm 1
        noise = {name: noise_std[name] / ball ** POWER[name] for name in noise_std}
        prior, (start, alpha), t = replace(self._coefficient_prior(), unseen=None), self._start(), 0
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
        """ρ_t: the ``schedule`` if there is one, but for residuals that are matched, which are not averaged; 1 in a non-private
        full-batch fit with a full covariance, which is then textbook variational Bayes. Precisions beside matched residuals
        are averaged with 2/(t + 1), so that later steps count more. Other residuals are averaged with max(2/(t + 1), 1/5), a
        step with momentum, and their precisions evenly, 1/t, in a private fit, with 2/(t + 1) in a non-private stochastic one,
        and not at all in a non-private full-batch one."""
        recent = PolynomialAveraging(power=1.0)(t)
        if self._matches():
            rho = recent if self.schedule is None else self.schedule(t)
            return (rho if isinstance(rho, dict) else dict.fromkeys(self.blocks(), rho)) | {"linear": 1.0}
        if self.schedule is not None:
            return self.schedule(t)
        if self._is_textbook():
            return 1.0
        others = 1.0 / t if self.is_private else 1.0 if self.plan_of_fit().sampling_rate == 1.0 else recent
        steps = dict.fromkeys(self.blocks(), others) | {"linear": max(recent, _LEAST_STEP)}
        return steps | ({"variance": recent} if self._sums_variance() else {})

    def default_clip(self) -> float:
        """Public constant, in units in which a row has norm at most 1; see docs/logistic.md for how it was chosen."""
        return _CLIP_NORM[self.influence]

    def clip_for(self, max_rows: int | None) -> float:
        """For persons whose rows are to weigh alike, a norm that never binds: it would bind for those with many rows."""
        return super().clip_for(None) if max_rows is None else max_rows * self.max_record_norm()

    def max_record_norm(self) -> float:
        """Norm of a row of norm ``max_norm`` (and the intercept's constant) as it comes, over all outputs; ``inf`` without a
        ``max_norm``.

        At c, ``|ω ψ| ≤ ω c = b tanh(c/2) / 2``, so ``|r| ≤ |κ| + b tanh(c/2) / 2``: the largest joint norm over c.
        """
        if self.max_norm is None:
            return np.inf
        length = np.hypot(self.max_norm, self._intercept_constant())
        scale, b = self._scales(), self.likelihood.largest_shape
        c = np.linspace(0.0, 60.0, 6001)
        omega = polya_gamma_mean(c, b)
        centre = c if self.statistics == "centred" else self.likelihood.largest_offset
        residual = self.likelihood.largest_linear + omega * centre
        in_variance = 1.0 + self._sums_variance() / VARIANCE_SCALE**2
        squares = (
            in_variance * (residual * length / scale["linear"]) ** 2 + (omega * length**2 / scale["precision"]) ** 2
        )
        if self.covariance == "diagonal":
            squares += omega**2 * ((length / scale["cross"]) ** 2 + scale["weight"] ** -2.0)
        return float(np.sqrt(self.n_outputs * squares.max()) * (1.0 + 1e-4))  # between the points of the grid

    @property
    def tolerance(self) -> float:
        """Far below the posterior's width; above the rounding of ``dtype``."""
        return 1e-6 if np.dtype(self.dtype) == np.float64 else 1e-5

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full batch, until the fit has settled."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=_MOST_STEPS[self.covariance])

    def clip_biases(self) -> bool:
        """A weight that ignores the label does not bias coefficients."""
        return self.influence == "clipped" and super().clip_biases()

    def posterior_parts(self, posterior) -> list[Part]:
        """Coefficients by name, and their prior precision if it is learnt."""
        if not (hasattr(posterior, "alpha_shape") and isinstance(posterior, Gaussian | DiagonalGaussian)):
            return super().posterior_parts(posterior)
        return coefficient_parts(self, posterior)

    def largest_norm_in_fit(self) -> float:
        """Rows that are moved may be longer: they are scaled to a length of about 1, whatever their columns."""
        return self.max_record_norm() * (_LONGER if self._n_learning(self.plan_of_fit().n_steps) else 1.0)

    def describe(self) -> dict:
        n_first = self._n_learning(self.plan_of_fit().n_steps)
        moved = f"; after step {n_first}, of columns that these have centred and scaled" if n_first else ""
        return {
            "unit": self.unit,
            "released": (
                f"noisy sums of products of the columns with the target and with each other, in every step{moved}",
                "hence the posterior of the coefficients",
            ),
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
    def _learns_alpha(self) -> bool:
        """Whether the precision of the coefficients is learnt."""
        return isinstance(self._given_prior(), Gamma)

    def _given_prior(self) -> float | Gamma | Gaussian | DiagonalGaussian:
        """``prior``, or its default."""
        return Gamma(1.0, 1.0) if self.prior is None else self.prior

    def _coefficient_prior(self, coordinates: Coordinates | None = None) -> CoefficientPrior:
        """The prior, which sits at the centre of these coordinates of the rows; without them at that of the design."""
        settings, diagonal = (self.n_features_in_, bool(self.fit_intercept)), self.covariance == "diagonal"
        places = {"unseen": self._unseen(), "centre": None if coordinates is None else coordinates.shift}
        places["spreads"] = vars(self).get("spreads_")
        if self._is_given:
            return CoefficientPrior(None, *settings, KnownCoefficients.of(self.prior, diagonal=diagonal), **places)
        prior = CoefficientPrior(self._given_prior(), *settings, **places)
        if not self._knows_public:
            return prior
        known = KnownCoefficients.of(self.public_posterior_, diagonal=False)
        of_public = replace(prior, unseen=None, centre=self.public_centre_)
        base = np.stack([of_public.matrix(alpha) for alpha in self.public_alpha_])
        return CoefficientPrior(
            self._given_prior(), *settings, KnownCoefficients(known.linear, known.precision - base), **places
        )

    def _unseen(self) -> np.ndarray | None:
        """Precision of the directions that no row sees: coefficients of ``indicators`` together against the intercept, or,
        where there is none, against those of another column.

        Noise in the precision would let a fit wander there, and fill intervals. It says nothing of effects, and yields to rows
        in which all of them are zero.
        """
        if not (self._keeps_steps() and self.covariance == "full" and self.indicators):
            return None
        scale = self._units() * self._ball()
        directions = unseen_directions(self.indicators, len(scale), has_intercept=bool(self.fit_intercept))
        directions = np.linalg.qr(directions * scale[:, None])[0]
        return _UNSEEN * (directions @ directions.T) * np.outer(scale, scale)

    def _start(self) -> tuple[np.ndarray, np.ndarray]:
        """Where a fit starts: mean of what is known, or 0, shape (n_outputs, d), and E[α]."""
        if self._knows_public:
            return np.atleast_2d(self.public_posterior_.mean), self.public_alpha_
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

    def _design(self, X, n_stored: np.ndarray | None = None):
        largest, centre = np.inf if self.max_norm is None else float(self.max_norm), self._centre
        if centre is None:
            return design_rows(X, largest, self._intercept_constant(), n_stored)
        rows, lengths = design_rows(X.toarray() if sp.issparse(X) else X, largest, self._intercept_constant())
        rows[:, : len(centre)] -= centre
        return rows, lengths

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
        if self._sums_variance():
            scales["variance"] = VARIANCE_SCALE * self._clip_norm() * scales["linear"] ** 2
        return scales

    def _clip_norm(self) -> float:
        """C: public."""
        clip_norm = self.plan_of_fit().clip_norm
        return _CLIP_NORM[self.influence] if clip_norm is None else clip_norm

    def _sums_variance(self) -> bool:
        """Whether the variance of the scores is released, for the noise-aware posterior."""
        return self.is_private and self.influence == "unbiased" and self.statistics == "centred"

    def _is_textbook(self) -> bool:
        """Whether each step is an exact coordinate update."""
        return not self.is_private and self.plan_of_fit().sampling_rate == 1.0 and self.covariance == "full"

    def _units(self) -> np.ndarray:
        """Coefficient of each column of the design, per natural coefficient: the intercept's is intercept / constant."""
        units = np.ones(self._n_coefficients())
        if self.fit_intercept:
            units[-1] = 1.0 / self._intercept_constant()
        return units

    def _point(self, posterior) -> np.ndarray:
        """μ in the coordinates of the rows of the next step, shape (n_outputs, d)."""
        mean = np.atleast_2d(posterior.mean) * self._units()
        return posterior.coordinates.coefficients(mean, self._intercept_constant())

    def _covariances(self, posterior) -> np.ndarray:
        """Σ of each output, shape (n_outputs, d, d)."""
        return posterior.cov.reshape(-1, *posterior.cov.shape[-2:])

    def _in_coordinates(self, posterior, sparse: bool) -> tuple[np.ndarray, np.ndarray]:
        """μ, and Σ in the form that :class:`RegressionStatistics` takes, in the coordinates of the design."""
        units, posterior = self._units(), posterior.around
        mean = np.atleast_2d(posterior.mean) * units
        if self.covariance == "diagonal":
            return mean, np.atleast_2d(posterior.var) * units**2
        if sparse:
            return mean, self._covariances(posterior) * units[:, None] * units
        # Λ = LLᵀ becomes D⁻¹LLᵀD⁻¹ with D the units, and L⁻¹ becomes L⁻¹D
        return mean, posterior.inverse_factor.reshape(-1, len(units), len(units)) * units

    def _posterior(self, mean: np.ndarray, precision: np.ndarray, share: np.ndarray, unknown: np.ndarray):
        """The posterior with these moments, in natural coordinates, and with q(α) updated from ``share`` and ``unknown``."""
        if self.covariance == "full":  # rescaling may have cost the last digits
            precision = np.stack([positive_definite(matrix) for matrix in precision])
        posterior = self._held(*((mean[0], precision[0]) if self.n_outputs == 1 else (mean, precision)))
        alpha = self._coefficient_prior().alpha_posterior(posterior, share, unknown)
        posterior.alpha_shape, posterior.alpha_rate = alpha
        return posterior

    def _held(self, mean: np.ndarray, precision: np.ndarray, *learnt):
        """A posterior of the coefficients of rows as the design has them, and what a step passes on besides."""
        if self.covariance == "diagonal":
            return DiagonalCoefficientPosterior(mean, precision, *learnt)
        return CoefficientPosterior(mean, precision, *learnt, centre=self._centre)


def check_indicators(indicators, n_features: int | None = None) -> None:
    """Raise ValueError unless these are triples (first, last, value), of so many columns."""
    try:
        well_formed = all(
            isinstance(first + last, int) and np.isfinite(value) for first, last, value in indicators or ()
        )
    except (TypeError, ValueError):
        well_formed = False
    if not well_formed:
        raise ValueError(
            "`indicators` must be triples (first, last, value) of columns of which each row has exactly one, or None: those of "
            f"a TableEncoder are its `indicators`. Got {indicators!r}."
        )
    if n_features is not None and not all(0 <= first < last <= n_features for first, last, _ in indicators or ()):
        raise ValueError(f"`indicators` are not among the {n_features} columns of X: {indicators!r}.")


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
