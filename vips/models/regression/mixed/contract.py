"""The contract of mixed effects: a person's rows are one record, and some effects are the person's own.

    ψ_ij = x_ijᵀ β + u_ijᵀ z_i,    z_i ~ N(0, Ω),    u: some columns of x
    y_ij | ψ_ij ∝ exp(κ ψ) / (2 cosh(ψ/2))^b,    b and κ of y: see ``likelihoods.py``
    β ~ N(0, I/α),  logarithms of deviations under Ω and what lies below the diagonal of its factor ~ N(0, 2²)

E-step: p(z_i | y_i) about its mode, by quadrature. Blocks: the ``score`` of a person's marginal likelihood, its
``information``, and ``squares`` of scores for intervals. With averages ḡ and Ā in coordinates of the present parameters θ, and
prior precisions Λ, θ ← θ + (Ā + Λ)⁻¹ (ḡ - Λθ), and ``transport`` takes the averages along: ḡ - Ā Δθ. A variational E-step
with q(β) q(z) is biased: its variances of effects are far too small (docs/mixed_effects.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from numbers import Integral
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from vips._support.arguments import arguments, number
from vips._support.validation import check_max_norm
from vips.core.contract import released
from vips.core.exact.threads import run_ranges
from vips.core.phases import FitPhase, plain_average, unchanged
from vips.core.plan import PrivacyPlan
from vips.core.records.arrays import InMemoryData
from vips.core.records.groups import ids_and_numbers
from vips.core.records.partition import Records, Runs
from vips.core.records.source import DataSource
from vips.core.step_size import PolynomialAveraging
from vips.core.sums import Block, DenseStatistics
from vips.data._grouped import with_numbers_of_persons
from vips.model import ConjugateExponentialModel
from vips.models._centred import means_and_spreads, seen
from vips.models._coefficient_tables import check_indicators
from vips.models._coordinates import CONSTANT, SUMS_OF_ZOOMS, Zooms, number_of_zooms
from vips.models.regression.contract import unseen_directions
from vips.models.regression.likelihoods import Likelihood
from vips.models.regression.mixed.kernels import add_moments, person_moments
from vips.models.regression.mixed.posterior import INTERCEPT, Frame, MixedPosterior
from vips.models.regression.statistics import design_rows
from vips.report.words import OF_ONE_PERSON

__all__ = ["MixedRegression", "long_tailed"]

_SCORES = "noisy sums of scores, information and squares of scores of persons"
_MOST_FEATURES, _MOST_EFFECTS = 60, 3
_N_NODES = (9, 7, 5)  # of the quadrature along each axis, for 1, 2, 3 effects
_CLIP_NORM = 1.5
# Parts of the clip norm that score, information and squares may have: a point of the unit sphere.
_PARTS = (0.85, 0.37, 0.37)
# Scales of squares, and of moments of zooms, over the clip norm.
_SQUARES, _MOMENTS = 1.5, 2.4
# Deviations of noise in variances of wide windows, and in that of the last zoom, before they are compared; and the ratio above
# which a column's tail is long: windows of persons differ less than those of rows.
_DOUBTS, _LONG = (3.0, 2.0), 1.35
# f₁ and f₂ of a person's weight, and sets of labels that are drawn for a person: see `kernels.py`.
_SIZE, _N_SIMULATED = (5.0, 2.0), 2
# Prior precisions of coefficients where none is given, for rows of norm 1; of the intercept; and of η.
_FLAT, _INTERCEPT_PRECISION, _ETA_PRECISION = 0.02, 0.01, 0.25
# Longest step of b and of η, and the range of η.
_LONGEST = (4.0, 0.7)
_LEAST_ETA, _LARGEST_ETA = -5.0, 3.0
# Rows of a person that count in the average outcome, and the part of the clip norm that it may have.
_ROWS_OF_OUTCOME, _PART_OF_OUTCOME = 6.0, 0.5
# Steps of a fit for each one of a zoom, and for each one that approaches; first ones, which leave η as it is.
_STEPS_PER_ZOOM, _STEPS_PER_APPROACH, _STEPS_PER_HELD = 20, 2, 10
# Weight of steps that approach, and the least η in them: near 0 totals tell little about deviations.
_NEAR_WEIGHT, _LEAST_ETA_NEAR, _LEAST_RECENT = 0.5, -1.0, 0.7
_FEWEST_STEPS = 6
_MOST_STEPS = 200  # of an ordinary fit
_LEAST_ROWS = 200  # for which a second thread saves time
# Least eigenvalue of information that is told from noise, over the noise in eigenvalues; range of a score's released variance
# over its information.
_STANDS_OUT, _RATIOS = 2.0, (0.25, 10.0)


@arguments
class MixedRegression(ConjugateExponentialModel):
    """The methods that the engine calls. A subclass has a :class:`Likelihood`, and stores the arguments."""

    random_effects: Sequence[str | int] = ("intercept",)
    max_norm: float | None = None
    indicators: Sequence[tuple[int, int, float]] | None = None
    prior: float | None = number(1e-10, 1e10, "a precision between 1e-10 and 1e10", default=None)
    on_invalid: str = "drop"

    unit = "one row of X with its label"
    needs_labels = True
    takes_one_label = True  # False where a number of the person's id stands beside each
    reads_persons = True
    exact_rows = True
    exact_noise = ("information",)
    tolerance = 1e-6
    settings_of_meaning = ("random_effects",)
    fit_intercept = True  # always
    _unlisted = ("check_effects", "fit_intercept", "likelihood")
    _has_words = False  # whether numbers of persons' ids stand in the second column of y, during a private fit
    _beside = ()
    # Dispersion and largest count of labels that are counts, for draws of labels.
    _drawn_as = (0.0, 1.0)
    _information_scale = 0.8  # over the clip norm
    # What a label says, what labels may be, in words, and the intercept of rows whose κ is so large on average: log odds, or
    # log mean.
    likelihood: ClassVar[Likelihood]
    _declared: ClassVar[Callable[[], tuple[str, ...]]]
    _intercept_at: ClassVar[Callable[[float], float]]

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        check_max_norm(self.max_norm, self.is_private, "longer rows are scaled down to it")
        check_indicators(self.indicators)
        self.check_effects()
        if self.plan_of_fit().max_weight is not None:
            raise ValueError(f"{type(self).__name__} takes no weights: leave `max_weight` out.")

    def check_effects(self) -> None:
        """Raise ValueError unless ``random_effects`` lists columns."""
        effects = self.random_effects
        is_list = isinstance(effects, Sequence | np.ndarray) and not isinstance(effects, str)
        well_formed = is_list and all(isinstance(name, str | Integral) for name in effects)
        if not well_formed or not 1 <= len(set(effects)) == len(effects) <= _MOST_EFFECTS:
            raise ValueError(
                f'`random_effects` must list one to {_MOST_EFFECTS} different columns, by name or place, or "intercept": '
                f'("intercept", "age"), say. Got {effects!r}.'
            )

    def records_of(self, X, y) -> DataSource:
        """As in the base class; in a private fit with numbers of the persons' ids beside the labels, where persons have ids."""
        records, ids = super().records_of(X, y), self.beside.groups
        numbered = with_numbers_of_persons(records) if self.is_private else None
        if self.is_private and ids is not None and isinstance(records, InMemoryData):
            X, y = records.arrays
            numbers = words_of_ids(ids, records.n_records)
            numbered = InMemoryData(X, np.column_stack([y, numbers])).divided_like(records)
        self._has_words, self.takes_one_label = numbered is not None, numbered is None
        return numbered or records

    def use_plan(self, plan: PrivacyPlan | None) -> None:
        super().use_plan(plan)
        if plan is None:
            vars(self).pop("_has_words", None)

    def begin(self, records: DataSource) -> None:
        """Look for the centre of the columns, and their spreads: products of far or small ones have no digits left."""
        means, spreads = means_and_spreads(self, records, lambda chunk: self._rows(chunk.X))
        if means is not None:
            self.centre_, self.spreads_ = means, spreads

    def check_features(self) -> None:
        if not 1 <= self.n_features_in_ <= _MOST_FEATURES:
            raise ValueError(
                f"X has {self.n_features_in_} columns, and {type(self).__name__} takes 1 to {_MOST_FEATURES}, since it "
                "releases a matrix of their products for persons. Leave columns out, or fit a model without random effects."
            )
        check_indicators(self.indicators, self.n_features_in_)
        self._places_of_effects()

    def check_values(self, X, y) -> None:
        if np.isnan(self.likelihood.terms(y)[0]).any():
            raise ValueError(f"y must hold whole numbers from 0 to {self.likelihood.largest}.")
        places = self._places_of_effects()
        for place in places[places != INTERCEPT]:
            if X[:, [place]].max() == X[:, [place]].min():
                raise ValueError(
                    f"`random_effects` names {self.column_names()[place]!r}, which has one value in all rows: effects of it "
                    'cannot be told from those of the "intercept".'
                )

    def _places_of_effects(self) -> np.ndarray:
        """Columns of ``random_effects``, shape (q,); ValueError for one that there is not."""
        names = self.column_names()
        known = {key: k for k, name in enumerate(names) for key in (k, name)} | {"intercept": INTERCEPT}
        for effect in self.random_effects:
            if effect not in known:
                raise ValueError(f"`random_effects` names {effect!r}, which is no column of X: {', '.join(names)}.")
        places = np.array([known[effect] for effect in self.random_effects], np.int64)
        if len(np.unique(places)) < len(places):
            raise ValueError(f"`random_effects` names a column twice: {self.random_effects!r}.")
        return places

    def blocks(self) -> dict[str, Block]:
        d, p, clip = self.n_features_in_ + 1, self._n_parameters(), self._clip_norm()
        largest, unit = (value if np.isfinite(value) else 1.0 for value in (self.likelihood.largest_linear, clip))
        outcome = _ROWS_OF_OUTCOME * largest  # of a person in the first phase, or what hardly any has
        return {
            "score": Block((p,)),
            "information": Block((p, p), symmetric=True, scale=self._information_scale * unit),
            "squares": Block((p,), scale=_SQUARES * unit),
            "moments": Block((d, d), symmetric=True, scale=_MOMENTS * unit),
            "outcome": Block((), scale=outcome / (_PART_OF_OUTCOME * min(clip, _CLIP_NORM))),
        }

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Coordinates of the columns, by zooms; steps that come near; and those whose scores count."""
        blocks = [name for name in self.blocks() if name not in ("moments", "outcome")]
        n_zooms, length = self._n_zooms(n_steps), max(n_steps // _STEPS_PER_ZOOM, 1)
        left = n_steps - n_zooms * length
        n_near = left // _STEPS_PER_APPROACH if self.is_private else 0
        zoom = FitPhase(
            "zoom", length, blocks=("moments",), statistics="_moments", update=unchanged, end=self._zoomed,
            step_size=plain_average, released=SUMS_OF_ZOOMS,
        )  # fmt: skip
        last = replace(
            zoom, name="last zoom", blocks=("moments", "outcome"), statistics="_moments_and_outcomes",
            released=f"{SUMS_OF_ZOOMS}, and of the target",
        )  # fmt: skip
        scores = {"blocks": blocks, "released": _SCORES}
        return [
            *[zoom] * (n_zooms - 1),
            *[last] * min(n_zooms, 1),
            FitPhase("approach", n_near, _NEAR_WEIGHT, update=self._approached, step_size=_near, **scores),
            FitPhase("estimates", left - n_near, step_size=self._rho, **scores),
        ]

    def _n_zooms(self, n_steps: int) -> int:
        """One, which finds where the intercept starts, without noise: columns are centred already."""
        return 0 if n_steps < _FEWEST_STEPS else number_of_zooms(n_steps) if self.is_private else 1

    def _rho(self, s: int) -> float:
        is_textbook = not self.is_private and self.plan_of_fit().sampling_rate == 1.0
        return 1.0 if is_textbook else PolynomialAveraging(power=1.0)(s)

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], MixedPosterior]:
        return self.initial(rng), self._first_posterior()

    def _first_posterior(self) -> MixedPosterior:
        d, mean = self.n_features_in_, np.zeros(self._n_parameters())
        centre, spreads = seen(self, "centre_", np.zeros(d)), seen(self, "spreads_", np.ones(d))
        frame = Frame(Zooms.beginning(centre, 1.0 / spreads, d), self._ball(), self._places_of_effects())
        return MixedPosterior(mean, np.diag(1.0 / self._prior_precision(frame).diagonal()), frame)

    def expected_statistics(self, records: Runs | Records, posterior: MixedPosterior) -> DenseStatistics:
        starts, x, u, terms, words = self._by_person(records, posterior.frame)
        n, p, clip = len(starts) - 1, len(posterior.parameters), self._clip_norm()
        arrays = {"score": np.zeros((n, p)), "information": np.zeros((n, p, p)), "squares": np.zeros((n, p))}
        scales = 1.0, self._information_scale * clip, _SQUARES * clip
        limits = tuple(part * scale * clip for part, scale in zip(_PARTS, scales, strict=True))
        factor, (places, columns) = posterior.factor, np.tril_indices(u.shape[1])
        eta = places, columns, np.where(places == columns, factor.diagonal()[places], 1.0)
        settings = (posterior.parameters[: x.shape[1]], factor, eta, *_quadrature(u.shape[1]), *self._drawn_as)
        rows = x, u, np.column_stack([x, words]).view(np.uint64), *terms

        def compute(first: int, last: int) -> None:
            person_moments(
                *rows, starts[first : last + 1], *settings, _N_SIMULATED, np.uint64(posterior.step), _SIZE, limits,
                *(array[first:last] for array in arrays.values()),
            )  # fmt: skip

        run_ranges(compute, starts, least_work=_LEAST_ROWS)
        return DenseStatistics(arrays)

    def _moments(self, records: Runs | Records, posterior: MixedPosterior) -> DenseStatistics:
        """Σ_j x_j x_jᵀ of each person."""
        return DenseStatistics({"moments": self._moments_and_outcomes(records, posterior).arrays["moments"]})

    def _moments_and_outcomes(self, records: Runs | Records, posterior: MixedPosterior) -> DenseStatistics:
        """The same, and Σ_j κ_j."""
        starts, x, _, (_, linear, _), _ = self._by_person(records, posterior.frame)
        n, d, limit = len(starts) - 1, x.shape[1], _MOMENTS * self._clip_norm() ** 2
        total, outcome = np.zeros((n, d, d)), np.zeros(n)
        add_moments(x, linear, starts, limit, _ROWS_OF_OUTCOME, total, outcome)
        return DenseStatistics({"moments": total, "outcome": outcome})

    def _zoomed(self, average, noise_std, previous: MixedPosterior) -> MixedPosterior:
        """The posterior after a zoom: rows are in new coordinates. After the last one the intercept is that of the average
        outcome."""
        d, before, mean = self.n_features_in_, previous.frame, previous.parameters.copy()
        n_zooms, std = self._n_zooms(self.plan_of_fit().n_steps), float(noise_std["moments"])
        zooms = before.zooms.after(average["moments"], std, before.zooms.aim(n_zooms), True, _DOUBTS)
        is_last = zooms.n_zooms == n_zooms
        if is_last:
            mean[d] = self._intercept_at(float(average["outcome"]) / zooms.count) / CONSTANT
        frame = Frame(zooms, before.ball, before.columns)
        return MixedPosterior(mean, previous.parameters_cov, frame, previous.step + is_last)

    def _approached(self, average, noise_std, previous: MixedPosterior) -> MixedPosterior:
        """As :meth:`to_posterior`; the first steps leave η as it is, which tells little as long as b is far away."""
        hold = previous.step < self.plan_of_fit().n_steps // _STEPS_PER_HELD + 1
        return self.to_posterior(average, noise_std, previous, _LEAST_ETA_NEAR, hold)

    def to_posterior(
        self, average, noise_std, previous: MixedPosterior | None, least: float = _LEAST_ETA, hold: bool = False
    ) -> MixedPosterior:
        """θ + (Ā + Λ)⁻¹ (ḡ - Λθ), whose covariance is (Ā + Λ)⁻¹: of noisy totals taken at face value.

        η is at least ``least``, or as before with ``hold``.
        """
        previous = self._first_posterior() if previous is None else previous
        d, theta = previous.n_shared, previous.parameters
        prior = self._prior_precision(previous.frame)
        score, information = self._seen(average, previous.frame)
        precision, _ = _positive(information + prior, noise_std["information"])
        gradient = score - prior @ theta
        move = np.zeros(len(theta))
        free = slice(d if hold else None)
        move[free] = np.linalg.solve(precision[free, free], gradient[free])
        longest = max(np.linalg.norm(move[:d]) / _LONGEST[0], np.abs(move[d:]).max() / _LONGEST[1])
        theta = theta + move / max(longest, 1.0)
        theta[d:] = np.clip(theta[d:], least, _LARGEST_ETA)
        return MixedPosterior(theta, np.linalg.inv(precision), previous.frame, previous.step + 1)

    def transport(self, average, noise_std, previous: MixedPosterior, posterior: MixedPosterior):
        """Scores at the next parameters, by the released information."""
        if previous.frame is not posterior.frame:
            return average, noise_std
        move = posterior.parameters - previous.parameters
        spread = 0.5 * (np.square(move) + move @ move) * np.square(noise_std["information"])
        score = average["score"] - average["information"] @ move
        return average | {"score": score}, noise_std | {"score": np.sqrt(np.square(noise_std["score"]) + spread)}

    def to_noise_aware_posterior(self) -> MixedPosterior:
        """The same mean, with the covariance of noisy scores: A⁻¹ (V + N) A⁻¹, V from squares of scores, N the noise."""
        posterior, totals, plan = self.last_posterior_, self.noisy_totals_, self.privacy_.plan
        (_, information), noise = self._seen(totals.average, posterior.frame), totals.noise_std
        prior = self._prior_precision(posterior.frame)
        precision, hidden = _positive(information + prior, noise["information"])
        if hidden.any():
            d, names = self.n_features_in_ + 1, [*self.column_names(), "the intercept", "the deviations"]
            share = np.append(hidden[:d], hidden[d:].sum())  # of each parameter that lies in such directions
            most = ", ".join(names[k] for k in np.flatnonzero(share >= 0.5 * share.max()))
            raise NotImplementedError(
                f"Noise may be as large as all that was released about {most}. A larger ε or more persons would show it; fewer "
                "columns, categories or random effects would show the others."
            )
        diagonal = np.maximum(np.diagonal(precision), 1e-300)
        ratio = np.sqrt(np.clip(totals.average["squares"] / diagonal, *_RATIOS))
        variance = ratio[:, None] * precision * ratio
        step_std = plan.noise_multiplier * plan.clip_norm / plan.sampling_rate
        sampled = (1.0 / plan.sampling_rate - 1.0) * np.min(np.square(noise["score"])) / step_std**2
        inverse = np.linalg.inv(precision)
        of_noise = np.diag(np.square(noise["score"]) * np.ones(len(ratio)))
        cov = inverse @ ((1.0 + sampled) * variance + of_noise) @ inverse
        return MixedPosterior(posterior.parameters, cov, posterior.frame, posterior.step)

    def default_clip(self) -> float:
        """Public constant: of coordinates in which rows have a norm of about 1, whatever labels are."""
        return _CLIP_NORM

    def clip_for(self, max_rows: int | None) -> float:
        """The same for any number of rows, which only says how many are read."""
        return self.default_clip()

    def clip_biases(self) -> bool:
        """A clip whose expectation is taken off does not bias coefficients."""
        return False

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full batches, until the fit has settled."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=_MOST_STEPS)

    def default_chunk_size(self) -> int:
        """So many rows that information of as many persons takes 64 MiB."""
        return int(np.clip(2**23 // self._n_parameters() ** 2, 256, 8192))

    def valid_records(self, records: Records) -> np.ndarray:
        shape, linear = self.likelihood.terms(self._labels_apart(records.y)[0])
        valid = super().valid_records(Records(records.X, np.zeros(len(records.y))))
        return valid & np.isfinite(shape).all(axis=1) & np.isfinite(linear).all(axis=1)

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": released(self, "hence the posterior of coefficients and deviations"),
            "declared_public": (
                f"max_norm = {self.max_norm or np.inf:g}: longer rows are scaled down to it",
                f"random_effects = {', '.join(map(str, self.random_effects))}: {OF_ONE_PERSON}",
                f"number of columns: {self.n_features_in_}",
                *self._declared(),
                "prior and all other constructor arguments",
            ),
        }

    # -- helpers ------------------------------------------------------------------------------------------------

    def _labels_apart(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels, with exposures beside them if there are any; and numbers of the persons' ids, 0 where there are none."""
        if not self._has_words:
            return y, np.zeros(len(y))
        return y[:, 0] if y.shape[1] == 2 else y[:, ::2], np.ascontiguousarray(y[:, 1], np.float64)

    def _by_person(self, records: Runs | Records, frame: Frame) -> tuple:
        """Where each person's rows begin, or each row as a person; x and u; b, κ and offset of each row; numbers of ids."""
        runs = records if isinstance(records, Runs) else Runs(records, np.arange(records.shape[0] + 1))
        y, words = self._labels_apart(runs.rows.y)
        shape, linear = self.likelihood.terms(y)
        offset = np.broadcast_to(self.likelihood.offsets(y), shape.shape)
        terms = [np.array(term[:, 0]) for term in (shape, linear, offset)]  # own memory: one type for the kernels
        return runs.starts, *frame.design(self._rows(runs.rows.X)), terms, words

    def _n_parameters(self) -> int:
        """Number of entries of b, and of the lower triangle of L."""
        q = len(self.random_effects)
        return self.n_columns + 1 + q * (q + 1) // 2

    def _ball(self) -> float:
        return 1.0 if self.max_norm is None else float(self.max_norm)

    def _clip_norm(self) -> float:
        """C: public; without privacy ∞, and scales are of no matter."""
        return self.plan_of_fit().clip_norm or _CLIP_NORM

    def _rows(self, X) -> np.ndarray:
        """Rows of norm at most 1."""
        rows = X.toarray() if sp.issparse(X) else X
        return design_rows(rows, float(self.max_norm or np.inf), 0.0) / self._ball()

    def _seen(self, average, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Score and information without the noise in directions that no row sees: all coefficients of ``indicators`` against
        the intercept. There the information is the average one, so that the coefficients stay where they are."""
        score, information = average["score"], average["information"]
        if not (self.indicators and self.is_private):
            return score, information
        natural = unseen_directions(self.indicators, self.n_features_in_ + 1)
        unseen = np.zeros((len(score), len(self.indicators)))
        unseen[: len(natural)] = np.linalg.qr(np.linalg.solve(frame.to_natural(), natural))[0]
        outer = unseen @ unseen.T
        seen = np.eye(len(score)) - outer
        return seen @ score, seen @ information @ seen + outer * np.trace(information) / len(score)

    def _prior_precision(self, frame: Frame) -> np.ndarray:
        """Λ, shape (p, p), in coordinates of the fit."""
        if self.prior is not None:
            slopes = float(self.prior) * (frame.scale / frame.ball) ** 2
        elif self.max_norm is None:  # of columns of any unit
            slopes = np.full(len(frame.scale), _FLAT / len(frame.scale))
        else:
            slopes = _FLAT * np.minimum(frame.scale, 1.0) ** 2
        shared = np.append(slopes, _INTERCEPT_PRECISION * CONSTANT**2)  # of the intercept at the centre
        return np.diag(np.append(shared, np.full(self._n_parameters() - len(shared), _ETA_PRECISION)))


def _near(s: int) -> dict[str, float]:
    """ρ of steps far from each other: the last score alone, and an average of the others."""
    recent = max(PolynomialAveraging(power=1.0)(s), _LEAST_RECENT)
    return {"score": 1.0, "information": recent, "squares": recent}


def long_tailed(model: MixedRegression) -> np.ndarray:
    """Columns a part of whose variance is in few rows, which weigh less in scores, shape (n_features,)."""
    return model.last_posterior_.frame.zooms.long_tailed(_LONG)


def words_of_ids(groups, n_rows: int) -> np.ndarray:
    """A number from 0 to 1 for each row, a function of its id alone, the same for equal ids; 0 for a row of nobody."""
    ids, numbers = ids_and_numbers(groups, n_rows)
    words = [int.from_bytes(blake2b(one, digest_size=8).digest(), "little") / 2.0**64 for one in ids]
    return np.append(words, 0.0)[numbers]


def _positive(matrix: np.ndarray, std: float) -> tuple[np.ndarray, np.ndarray]:
    """The matrix with eigenvalues at least as large as the noise in them; and how much of each axis lies in directions of
    eigenvalues that noise may have made, shape (p,)."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    least = max(float(np.max(std)) * np.sqrt(len(values)), 1e-9 * np.abs(values).max())
    hidden = np.square(vectors[:, values < _STANDS_OUT * least]).sum(axis=1)
    return (vectors * np.maximum(np.abs(values), least)) @ vectors.T, hidden


@lru_cache(maxsize=8)
def _quadrature(q: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Hermite nodes for N(0, I), shape (n_nodes, q), and logarithms of their weights."""
    axes = np.polynomial.hermite_e.hermegauss(_N_NODES[q - 1])
    nodes, weights = (np.stack(np.meshgrid(*[axis] * q, indexing="ij"), axis=-1).reshape(-1, q) for axis in axes)
    return nodes, np.log(weights).sum(axis=1)
