"""Latent classes of a table of numbers, counts and categories.

    w ~ Dirichlet(α, …, α),   z_n | w ~ Categorical(w)         K classes
    x_nj | z_n ~ normal, Poisson, or categorical               by the kind of column j (``vips/models/components``)

Missing cells are left out of a record's likelihood, which is exact if they are missing at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vips._compute.blas import eigh
from vips._compute.rowwise import rowwise_product
from vips._extras import imported
from vips._printable import printable, strings_for_pandas
from vips._random_state import RandomStateLike, as_generator
from vips._validation import check_choice, check_integer, check_number, check_schedule
from vips.data import DataSource, InMemoryData, as_source
from vips.data._cell_values import as_numbers
from vips.data._checks import check_dtype
from vips.data._columns import as_table, column, columns_of, is_frame
from vips.data._tables import from_arrow
from vips.expfam import Dirichlet, Gamma
from vips.model import ConjugateExponentialModel
from vips.models._clusters import Clusters
from vips.models._denoising import posterior_mean
from vips.models.components.categories import Categories
from vips.models.components.columns import Columns
from vips.models.components.component import Frame, check_rates
from vips.models.components.counts import Counts
from vips.models.components.kernels import fill_shares
from vips.models.components.numbers import NormalGamma, Numbers
from vips.models.components.statistics import RowStatistics
from vips.models.mixtures.table import (
    as_codes,
    as_frame,
    check_answerable,
    check_order_of,
    checked_categories,
    is_range,
    names_and_dtypes,
)
from vips.parts import Part, indexed, last_of
from vips.phases import FitPhase, plain_average, unchanged
from vips.privacy import PrivacyBudget, PrivacyPlan
from vips.statistics import Block, DenseStatistics
from vips.step_size import PolynomialAveraging

__all__ = ["MixedLatentClassAnalysis", "MixedPosterior"]

_FIRST_STEPS = 4  # with the marginals, and with the moments, at most
_MOST_MEANS, _SPREAD = (
    1_000,
    0.5,
)  # where classes begin in the directions of the moments; else, how far from the marginals
_ITERATIONS, _TURNS = 20, 200  # of the directions
_LEAST = 1e-12  # of a probability, before its logarithm
_LIMIT = 4.0  # standard deviations from the mean, of a number or count in a private fit
_CLIP = 1.0  # of the norm of a record whose numbers and counts are one standard deviation from the mean
_LEAST_PRIOR = 1e-12  # of EM
_PLACES = {"count": slice(0, 1), "cells": slice(1, None)}
_AVERAGING = PolynomialAveraging(power=3.0)


@dataclass(frozen=True, repr=False)
class MixedPosterior:
    """Posterior of the shares of the classes, and of what each class says about the columns of each kind.

    Parameters
    ----------
    weights : Dirichlet
        ``concentration`` of shape (K,).
    numbers : NormalGamma or None
        Of the columns of numbers, in the coordinates of ``frame``.
    counts : Gamma or None
        Rates of the columns of counts.
    answers : tuple of Dirichlet
        For each column of categories, ``concentration`` of shape (K, L_j).
    frame : Frame
        Public coordinates of the columns of numbers, and of those of counts after them.
    draws : ndarray of shape (K, n_means)
        Public, from which classes begin.
    marginals : ndarray of shape (n_bins,)
        Denoised counts in the bins of all columns.
    plug_in : bool
        Whether E-steps take the means, as EM and private fits do, instead of expected logarithms.
    """

    weights: Dirichlet
    numbers: NormalGamma | None
    counts: Gamma | None
    answers: tuple[Dirichlet, ...]
    frame: Frame
    draws: np.ndarray
    marginals: np.ndarray
    plug_in: bool

    def __repr__(self) -> str:
        n_numbers = 0 if self.numbers is None else self.numbers.mean.shape[1]
        n_counts = 0 if self.counts is None else self.counts.shape.shape[1]
        return (
            f"<MixedPosterior of {len(self.draws)} classes, {n_numbers} columns of numbers, {n_counts} of counts, "
            f"{len(self.answers)} of categories>"
        )

    def of_parts(self) -> tuple:
        """Posteriors of the kinds of columns that there are."""
        kinds = (self.numbers, self.counts, self.answers or None)
        return tuple(posterior for posterior in kinds if posterior is not None)

    def in_order(self, order: np.ndarray) -> MixedPosterior:
        """The same classes in another order."""
        arrays = self.to_arrays()
        of_classes = {name: value[order] for name, value in arrays.items() if name not in _OF_COLUMNS}
        return MixedPosterior.from_arrays(arrays | of_classes)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        numbers = {} if self.numbers is None else self.numbers.to_arrays()
        counts = {} if self.counts is None else self.counts.to_arrays()
        tables = [part.concentration for part in self.answers]
        arrays = {"weights": self.weights.concentration, "draws": self.draws, "marginals": self.marginals}
        arrays |= {f"numbers_{name}": value for name, value in numbers.items()}
        arrays |= {f"counts_{name}": value for name, value in counts.items()}
        arrays |= {"answers": np.hstack([np.empty((len(self.draws), 0)), *tables])}
        levels = np.array([table.shape[1] for table in tables], np.int64)
        return arrays | {"levels": levels, "plug_in": np.array(self.plug_in)} | vars(self.frame)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> MixedPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
        numbers, counts = (
            {name.removeprefix(kind): value for name, value in arrays.items() if name.startswith(kind)}
            for kind in ("numbers_", "counts_")
        )
        levels, frame = arrays["levels"], Frame(arrays["centre"], arrays["scale"])
        if levels.dtype.kind not in "iu" or levels.sum() != arrays["answers"].shape[1] or (levels < 1).any():
            raise ValueError("the posterior's numbers of levels do not fit to its answers")
        frame.check()
        rates = Gamma.from_arrays(counts) if counts else None
        if rates is not None:
            check_rates(rates)
        is_finite = np.isfinite(arrays["draws"]).all() and np.isfinite(arrays["marginals"]).all()
        if not is_finite or arrays["plug_in"].dtype.kind != "b":
            raise ValueError("the posterior's start is none")
        return cls(
            Dirichlet(arrays["weights"]),
            NormalGamma.from_arrays(numbers) if numbers else None,
            rates,
            tuple(map(Dirichlet, np.split(arrays["answers"], np.cumsum(levels)[:-1], axis=1))) if len(levels) else (),
            frame,
            arrays["draws"],
            arrays["marginals"],
            bool(arrays["plug_in"]),
        )

    def check_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Whether arrays of a file are those of a posterior like this one.

        Raises
        ------
        ValueError
            If the columns have other numbers of levels, which may have the same sum.
        """
        own = np.array([part.concentration.shape[1] for part in self.answers])
        if not np.array_equal(arrays.get("levels", own), own):
            raise ValueError("the posterior's 'levels' are not the model's")


_OF_COLUMNS = ("levels", "centre", "scale", "marginals", "plug_in")  # all other arrays have a row for each class


class MixedLatentClassAnalysis(Clusters, DensityMixin, ConjugateExponentialModel):
    """Latent classes of a table of numbers, counts and categories, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_components : int
        K, the number of classes.
    columns : mapping or sequence
        Of each column: a tuple (low, high) of public bounds for a number, which is cut to them; ``range(n)`` for a count, where
        larger ones count as n - 1; a list of categories, or n for the codes 0 to n - 1. A mapping by name of the columns of a
        data frame, whose other columns are left out; or one entry for each column. Required: what is read from the records
        reveals the rarest of them.
    class_prior : float or None
        α; None is 1/K.
    answer_prior : float
        Concentration of the Dirichlet prior of answers.
    number_prior : float
        As how many records, that are like all records together, the prior of a number's mean and variance and of a count's
        rate counts.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by EM, which ignores the priors. E-steps of private fits take posterior means
        with either.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled. The first steps release marginals and second moments, at which classes
        begin, so a plan needs several steps.
    schedule : RobbinsMonro, callable or None
        Step sizes of the classes' steps, as a function of 2, 3, …; that of the first is 1. None: see :meth:`step_size`.
    clip_share : float
        Clip norm of a plan without one, as a share of the norm of a record whose numbers and counts are as far from the mean
        as records are on average.
    on_invalid : {"drop", "raise"}
        No value is invalid: what is no value of its column is a missing cell.
    random_state : int, Generator, RandomState or None
        Seeds the classes' start, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : MixedPosterior
    weights_ : ndarray of shape (n_components,)
        Shares of the classes.
    privacy_ : PrivacyReport
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of fits to data frames whose names are strings.

    Privacy
    -------
    Unit: one row of X. Relation: add or remove one. Released: the noisy totals of every step, hence the posterior and the
    records that ``sample`` draws. Public by declaration: the columns, their bounds, categories and dtypes, and all constructor
    arguments. Not covered: choosing any of them by looking at these records; :meth:`predict`, :meth:`predict_proba` and
    :meth:`score_samples`, which read the records that they are given, and add no noise.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import MixedLatentClassAnalysis, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> retired = rng.random(6000) < 0.4
    >>> table = pd.DataFrame({
    ...     "age": np.where(retired, rng.normal(75, 6, 6000), rng.normal(40, 10, 6000)),
    ...     "visits": rng.poisson(np.where(retired, 8, 2)),
    ...     "income": np.where(rng.random(6000) < np.where(retired, 0.9, 0.1), "pension", "wage"),
    ... })
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=40)
    >>> columns = {"age": (18, 100), "visits": range(31), "income": ["wage", "pension"]}
    >>> model = MixedLatentClassAnalysis(2, columns=columns, privacy=plan, random_state=0).fit(table)
    >>> bool(abs(np.sort(model.summary()["mean age"]) - [40, 75]).max() < 3)
    True
    """

    unit = "one row of X"
    name_of_score = "log likelihood"
    ignores_labels = True
    exact_rows = True
    planned_steps = 60
    tolerance = 1e-3

    def __init__(
        self,
        n_components: int = 10,
        *,
        columns: Mapping | Sequence | None = None,
        class_prior: float | None = None,
        answer_prior: float = 1.0,
        number_prior: float = 1.0,
        inference: str = "vb",
        privacy: PrivacyBudget | PrivacyPlan | None = None,
        schedule: Callable[[int], float] | None = None,
        clip_share: float = _CLIP,
        on_invalid: str = "drop",
        random_state: object = None,
    ) -> None:
        self.n_components = n_components
        self.columns = columns
        self.class_prior = class_prior
        self.answer_prior = answer_prior
        self.number_prior = number_prior
        self.inference = inference
        self.privacy = privacy
        self.schedule = schedule
        self.clip_share = clip_share
        self.on_invalid = on_invalid
        self.random_state = random_state

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        check_integer("n_components", self.n_components)
        for name in ("class_prior", "answer_prior", "number_prior"):
            if name != "class_prior" or self.class_prior is not None:
                check_number(name, getattr(self, name), 1e-12, 1e12, "a number between 1e-12 and 1e12")
        check_number("clip_share", self.clip_share, 0.0, 10.0, "above 0, and at most 10", open_low=True)
        check_choice("inference", self.inference, ("vb", "em"))
        check_schedule(self.schedule, "PolynomialAveraging()")
        self._declared()

    def check_features(self) -> None:
        """Raise ValueError if the records have another number of columns than are declared."""
        if self.n_features_in_ != len(self._declared()):
            raise ValueError(f"X has {self.n_features_in_} columns, but {len(self._declared())} are declared.")

    def blocks(self) -> dict[str, Block]:
        return self._blocks_of_marginals() | self._blocks_of_moments() | self._blocks_of_classes()

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], MixedPosterior]:
        """The prior, and public draws from which the classes begin."""
        average = self.initial(rng)
        posterior = self.to_posterior(average, dict.fromkeys(average, 0.0), None)
        return average, replace(posterior, draws=rng.standard_normal(posterior.draws.shape))

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Marginals of all columns; second moments, which say in which directions classes differ; and then the classes."""
        is_exact = not self.is_private and self._plan().sampling_rate == 1.0
        n_first = 1 if is_exact else max(min(_FIRST_STEPS, n_steps // 8), 1)
        n_second = min(n_first if self._blocks_of_moments() else 0, n_steps - n_first)
        average = {"update": unchanged, "step_size": plain_average}
        marginals = FitPhase(
            "marginals",
            n_first,
            blocks=self._blocks_of_marginals(),
            statistics="_marginal_statistics",
            end=self._classes_of_marginals,
            released="noisy counts of answers, and of numbers and counts in public bins",
            **average,
        )
        moments = FitPhase(
            "moments",
            n_second,
            blocks=self._blocks_of_moments(),
            statistics="_moment_statistics",
            end=self._classes_of_moments,
            released="noisy second moments of answers, numbers and counts",
            **average,
        )
        classes = FitPhase(
            "classes",
            n_steps - n_first - n_second,
            blocks=self._blocks_of_classes(),
            step_size=self.step_size,
            released="noisy counts of classes and of their answers, and noisy moments of their numbers and counts",
        )
        return [marginals, moments, classes]

    def step_size(self, t: int) -> float:
        """ρ of the steps t = 1, 2, … of the classes: 1 in the first. Then ``schedule(t)`` if there is one, 4/(t + 3) in a
        private fit, (1 + t)^(-0.6) in a non-private stochastic one, and 1 in a non-private full-batch one, which is textbook
        variational Bayes. A private fit of one class takes the plain average of all steps."""
        if self.n_components == 1 and self.schedule is None and self.is_private:
            return 1.0 / t
        return self.scheduled(t, _AVERAGING)

    def valid_records(self, records) -> np.ndarray:
        """All of them: what is no value of its column is a missing cell."""
        return np.ones(records.shape[0], dtype=bool)

    def expected_statistics(self, records, posterior: MixedPosterior) -> RowStatistics:
        columns = self._columns(posterior.frame)
        return _statistics(columns, columns.cells(np.asarray(records)), posterior)

    def _marginal_statistics(self, records, posterior: MixedPosterior) -> DenseStatistics:
        """Indicators of the bins of all columns."""
        columns = self._columns()
        return DenseStatistics({"marginals": columns.bins.indicators(columns.cells(np.asarray(records)))})

    def _moment_statistics(self, records, posterior: MixedPosterior) -> RowStatistics:
        """Products of all pairs of means."""
        columns = self._columns(posterior.frame)
        means = np.ascontiguousarray(columns.statistics(columns.cells(np.asarray(records)))[:, columns.means])
        return RowStatistics(means, means, {"moments": slice(None)}, np.zeros(len(means)))

    def _classes_of_marginals(self, average, noise_std, previous: MixedPosterior) -> MixedPosterior:
        """Coordinates in which all records have mean 0 and variance 1, and classes that differ by draws alone."""
        columns = self._columns()
        marginals = columns.bins.counts(average["marginals"], noise_std["marginals"])
        spread = 0.0 if self.n_components == 1 else _SPREAD
        return self._begun(columns.framed(marginals), marginals, spread * previous.draws, previous)

    def _classes_of_moments(self, average, noise_std, previous: MixedPosterior) -> MixedPosterior:
        """Classes that differ in the directions in which records vary together, turned so that they fit the marginals best."""
        columns, marginals, K = self._columns(previous.frame), previous.marginals, self.n_components
        size = self._size(columns, marginals)
        means = columns.begun(size, marginals, np.zeros((1, len(columns.means))))[0, 1 + columns.means] / size
        moments = average["moments"] / size - np.outer(means, means)
        directions = _directions(moments, columns.columns_of_means(), K - 1)
        rng, best = np.random.default_rng(np.abs(previous.draws).view(np.uint64).sum()), None
        for _ in range(_TURNS):
            turned = np.linalg.qr(np.hstack([np.ones((K, 1)), rng.standard_normal((K, K - 1))]))[0][:, 1:]
            begun = self._begun(
                columns, marginals, np.sqrt(K) * turned[:, : directions.shape[1]] @ directions.T, previous
            )
            fit = marginals @ np.log(np.maximum(columns.chances(begun.of_parts()).mean(axis=0), _LEAST))
            best = max(best or (fit, begun), (fit, begun), key=lambda one: one[0])
        return best[1]

    def _begun(self, columns: Columns, marginals, offsets, previous: MixedPosterior) -> MixedPosterior:
        """Classes of equal size around the marginals."""
        totals = columns.begun(self._size(columns, marginals), marginals, offsets)
        return self._posterior(totals, self._frame_of(columns), previous.draws, marginals)

    def _size(self, columns: Columns, marginals: np.ndarray) -> float:
        """Number of records: that of the cells in the column with most of them."""
        return max(float(np.add.reduceat(marginals, columns.bins.starts[:-1]).max()), 1.0)

    def to_posterior(self, average, noise_std, previous: MixedPosterior | None) -> MixedPosterior:
        """Prior and totals. Noisy totals are denoised first."""
        frame = self._frame_of(self._columns()) if previous is None else previous.frame
        totals = np.hstack([average["count"][:, None], average["cells"]])
        draws, marginals = self._no_start() if previous is None else (previous.draws, previous.marginals)
        if noise_std["count"] > 0.0:
            totals[:, 0] = _private_sizes(average["count"], noise_std["count"])
            std = np.full(totals.shape, noise_std["cells"])
            totals = self._columns(frame).denoised(totals, std)
        return self._posterior(totals, frame, draws, marginals)

    def max_record_norm(self) -> float:
        """Of a record that is surely in one class, with numbers and counts as far from the mean as is counted."""
        return self._norm(np.square(_LIMIT) + 0.5 * np.square(np.square(_LIMIT) - 1.0), np.square(_LIMIT))

    def default_clip(self) -> float:
        """``clip_share`` times the norm of a record whose numbers and counts are as far from the mean as on average."""
        return self.clip_share * self._norm(2.0, 1.0)

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full-batch steps until the classes have settled, at most 500."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=500)

    def default_chunk_size(self) -> int:
        return 2048

    def describe(self) -> dict:
        kinds = {tuple: "numbers within public bounds", range: "counts", list: "categories"}
        there = [f"{len(self._places_of(kind))} columns of {words}" for kind, words in kinds.items()]
        return {
            "unit": self.unit,
            "released": self.released("hence the posterior of the classes"),
            "declared_public": (", ".join(there), "n_components, priors and all other constructor arguments"),
        }

    def bound(self, records, posterior: MixedPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        columns = self._columns(posterior.frame)
        cells = columns.cells(np.asarray(records))
        total = float((_statistics(columns, cells, posterior).log_likelihood + columns.log_base(cells)).sum())
        if self.inference == "em":
            return total
        prior = Dirichlet(np.full(self.n_components, self._class_prior()))
        return total - float(posterior.weights.kl(prior)) - columns.divergence(posterior.of_parts())

    # -- comparisons --------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """Shares of the classes, means and variances of numbers, rates of counts, and answers."""
        if not isinstance(posterior, MixedPosterior):
            return super().posterior_parts(posterior)
        names, kinds = self.column_names(), self._declared()
        classes = [f"class {k}" for k in range(len(posterior.draws))]
        parts = [Part("weights", posterior.weights, partial(last_of, classes), classes)]
        numbers, counts = ([names[j] for j in self._places_of(kind)] for kind in (tuple, range))
        if posterior.numbers is not None:
            parts.append(Part("means", posterior.numbers.means, partial(indexed, "mean"), numbers))
            parts.append(Part("precisions", posterior.numbers.precision, partial(indexed, "precision"), numbers))
        if posterior.counts is not None:
            parts.append(Part("rates", posterior.counts, partial(indexed, "rate"), counts))
        for j, answers in zip(self._places_of(list), posterior.answers, strict=True):
            words = [str(category) for category in kinds[j]]
            parts.append(Part(f"answers: {names[j]}", answers, partial(indexed, names[j]), words))
        return parts

    def components(self, posterior: MixedPosterior) -> tuple[np.ndarray, str]:
        """Classes are matched by means of numbers in standard deviations, and by roots of rates and of probabilities."""
        features = [np.sqrt(answers.mean) for answers in posterior.answers]
        if posterior.counts is not None:
            features.insert(0, np.sqrt(posterior.counts.mean))
        if posterior.numbers is not None:
            features.insert(0, posterior.numbers.mean)
        return np.hstack(features), "euclidean"

    def in_order(self, posterior: MixedPosterior, order: np.ndarray) -> MixedPosterior:
        return posterior.in_order(order)

    # -- methods for users --------------------------------------------------------------------------------------

    def sample(self, n_samples: int = 1, random_state: RandomStateLike = None) -> tuple[Any, np.ndarray]:
        """Synthetic records of the model at the means of the posterior; from a private fit, as private as the fit.

        Parameters
        ----------
        n_samples : int
        random_state : int, Generator, RandomState or None

        Returns
        -------
        X : data frame, or ndarray of shape (n_samples, n_features_in_)
            What was fitted: a data frame of pandas with the same names, dtypes and categories, or numbers and codes. No cell is
            missing, and numbers are within their bounds.
        component : ndarray of shape (n_samples,)
            Class of each record.
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 0)
        rng, posterior = as_generator(random_state), self.posterior_
        component = rng.choice(self.n_components, n_samples, p=self.weights_)
        cells = self._columns(posterior.frame).drawn(posterior.of_parts(), component, rng)
        return self._as_table(cells), component

    def summary(self, n_answers: int = 3) -> Any:
        """A table of the classes, the largest first, in the columns' units.

        Parameters
        ----------
        n_answers : int
            Number of answers that are named for each class.

        Returns
        -------
        pandas.DataFrame
            A row for each class, by its number. "share". Of fits with noise, "noise": the standard deviation of the share by
            the noise alone. "mean" and "std" of each number, and "mean" of each count. "typical answers": those that tell the
            class from everybody, ranked by p log(p / overall), each with its probability p in the class and, in brackets, over
            all classes.

        Raises
        ------
        ValueError
            If ``n_answers`` is not a positive integer.
        """
        pd = imported("pandas", "summary()")

        check_is_fitted(self, "posterior_")
        check_integer("n_answers", n_answers)
        order, posterior, names = np.argsort(-self.weights_, kind="stable"), self.posterior_, self.column_names()
        table = {"share": self.weights_}
        if hasattr(self, "noisy_totals_"):
            total = max(float(posterior.weights.concentration.sum()), 1.0)
            table["noise"] = np.full(len(order), self.noisy_totals_.noise_std["count"] / total)
        if posterior.numbers is not None:
            means, deviations = self._numbers(posterior.frame).in_units(posterior.numbers)
            for i, j in enumerate(self._places_of(tuple)):
                table |= {f"mean {names[j]}": means[:, i], f"std {names[j]}": deviations[:, i]}
        for i, j in enumerate(self._places_of(range)):
            table[f"mean {names[j]}"] = posterior.counts.mean[:, i]
        if posterior.answers:
            table["typical answers"] = strings_for_pandas([self._typical(k, n_answers) for k in range(len(order))])
        return pd.DataFrame(table, index=pd.Index(range(len(order)), name="class")).iloc[order]

    @property
    def weights_(self) -> np.ndarray:
        """Shares of the classes, shape (n_components,)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.weights.mean

    def column_names(self) -> list[str]:
        """Names of the columns, or x0, x1, … where there are none."""
        names = getattr(self, "column_names_", None)
        return super().column_names() if names is None else [str(name) for name in names]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    # -- columns --------------------------------------------------------------------------------------------------

    def _declared(self) -> list[tuple | range | list]:
        """Of each column: a pair of bounds, a range of counts, or a list of categories."""
        is_named = isinstance(self.columns, Mapping)
        is_list = isinstance(self.columns, Sequence | np.ndarray) and not isinstance(self.columns, str)
        if not (is_named or is_list) or not len(self.columns):
            raise ValueError(
                "`columns` must be a mapping of names of columns, or a list with one entry for each column: "
                'MixedLatentClassAnalysis(columns={"age": (18, 100), "visits": range(51), "sex": ["f", "m"]}, ...), say. '
                f"Got {self.columns!r}."
            )
        items = self.columns.items() if is_named else enumerate(self.columns)
        return [_kind_of(name, declared) for name, declared in items]

    def _places_of(self, kind: type) -> list[int]:
        """Which columns are of that kind."""
        return [j for j, declared in enumerate(self._declared()) if isinstance(declared, kind)]

    def _columns(self, frame: Frame | None = None, limit: float | None = None) -> Columns:
        """All columns: numbers, counts, categories. ``frame`` is that of numbers and counts."""
        numbers, counts, categories = map(self._places_of, (tuple, range, list))
        limit = (_LIMIT if self.is_private else np.inf) if limit is None else limit
        parts, places = [], []
        if numbers:
            parts.append(self._numbers(frame, limit))
            places.append(tuple(numbers))
        if counts:
            parts.append(self._counts(frame, limit))
            places.append(tuple(counts))
        if categories:
            declared, prior = self._declared(), 0.0 if self.inference == "em" else float(self.answer_prior)
            parts.append(Categories(tuple(len(declared[j]) for j in categories), prior))
            places.append(tuple(categories))
        return Columns(tuple(parts), tuple(places))

    def _numbers(self, frame: Frame | None, limit: float = np.inf) -> Numbers:
        bounds = [self._declared()[j] for j in self._places_of(tuple)]
        of_numbers = None if frame is None else Frame(frame.centre[: len(bounds)], frame.scale[: len(bounds)])
        prior = 0.0 if self.inference == "em" else float(self.number_prior)
        low, high = (tuple(map(float, ends)) for ends in zip(*bounds, strict=True))
        return Numbers(low, high, prior, limit, of_numbers)

    def _counts(self, frame: Frame | None, limit: float) -> Counts:
        largest = tuple(self._declared()[j][-1] for j in self._places_of(range))
        prior = 0.0 if self.inference == "em" else float(self.number_prior)
        if frame is None:
            return Counts(largest, prior, prior, limit)
        of_counts = Frame(frame.centre[-len(largest) :], frame.scale[-len(largest) :])
        return Counts(largest, prior * of_counts.centre, prior, limit, of_counts)

    # -- steps ----------------------------------------------------------------------------------------------------

    def _blocks_of_marginals(self) -> dict[str, Block]:
        columns = self._columns()
        scale = float(np.sqrt(columns.n_columns)) / self.default_clip()
        return {"marginals": Block((sum(columns.bins.sizes),), scale=scale)}

    def _blocks_of_moments(self) -> dict[str, Block]:
        """None with one class, and where they would be very many."""
        columns = self._columns()
        n = len(columns.means)
        if self.n_components == 1 or n > _MOST_MEANS:
            return {}
        return {"moments": Block((n, n), symmetric=True, scale=columns.n_columns / self.default_clip())}

    def _blocks_of_classes(self) -> dict[str, Block]:
        return {"count": Block((self.n_components,)), "cells": Block((self.n_components, self._columns().width))}

    def _frame_of(self, columns: Columns) -> Frame:
        """Coordinates of all numbers and counts."""
        frames = [part.coordinates for part in columns.parts if not isinstance(part, Categories)]
        centres, scales = [frame.centre for frame in frames], [frame.scale for frame in frames]
        return Frame(np.concatenate([np.empty(0), *centres]), np.concatenate([np.empty(0), *scales]))

    def _no_start(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws and marginals of a posterior that is read from totals."""
        columns = self._columns()
        return np.zeros((self.n_components, len(columns.means))), np.zeros(sum(columns.bins.sizes))

    def _posterior(self, totals: np.ndarray, frame: Frame, draws: np.ndarray, marginals: np.ndarray) -> MixedPosterior:
        columns, of_kind = self._columns(frame), {}
        for part, posterior in zip(columns.parts, columns.posterior(totals), strict=True):
            of_kind[type(part)] = posterior
        return MixedPosterior(
            Dirichlet(self._class_prior() + np.maximum(totals[:, 0], 0.0)),
            of_kind.get(Numbers),
            of_kind.get(Counts),
            of_kind.get(Categories, ()),
            frame,
            draws,
            marginals,
            self.is_private or self.inference == "em",
        )

    def _class_prior(self) -> float:
        if self.inference == "em":
            return _LEAST_PRIOR
        return 1.0 / self.n_components if self.class_prior is None else float(self.class_prior)

    def _norm(self, of_number: float, of_count: float) -> float:
        """Of a record that is surely in one class, given the squared statistics of a number and of a count."""
        numbers, counts, categories = (len(self._places_of(kind)) for kind in (tuple, range, list))
        return float(np.sqrt(1.0 + numbers * of_number + counts * of_count + categories))

    # -- tables ---------------------------------------------------------------------------------------------------

    def _inferred(self, X) -> RowStatistics:
        """At the means of the posterior."""
        check_is_fitted(self)
        return self._inferred_from(self._values(X, reset=False))

    def _inferred_from(self, values: np.ndarray) -> RowStatistics:
        posterior = replace(self.posterior_, plug_in=True)
        columns = self._columns(posterior.frame, limit=np.inf)
        cells = columns.cells(values)
        statistics = _statistics(columns, cells, posterior)
        statistics.log_likelihood += columns.log_base(cells)
        return statistics

    def records_of(self, X, y) -> DataSource:
        X = from_arrow(X)
        source = as_source(X, None)
        if source is not None and not isinstance(source, InMemoryData):
            if not self._takes_codes():
                raise TypeError(
                    f"A {type(source).__name__} holds numbers and codes: declare the number of codes of each column of "
                    "categories, as in columns=[(0, 1), 3, range(10)]."
                )
            check_order_of(source, self.columns, "columns")
        return super().records_of(X, None)

    def table_of(self, X, y) -> InMemoryData:
        return InMemoryData(self._values(X, reset=True))

    def _takes_codes(self) -> bool:
        """Whether the categories of all columns are codes."""
        return all(is_range(declared) for declared in self._declared() if isinstance(declared, list))

    def _values(self, X, reset: bool) -> np.ndarray:
        """Numbers and codes of a table. A private fit reads no value before, and none raises."""
        X = from_arrow(X)
        if isinstance(X, DataSource):
            return self._validated(X)  # raises
        if not is_frame(X) and not (reset and self.is_private):
            X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
        X = as_table(X)
        names = columns_of(X, self.columns if isinstance(self.columns, Mapping) else range(X.shape[1]))
        X = X[names] if is_frame(X) else X
        validate_data(self, X, skip_check_array=True, reset=reset)
        holds_numbers = not is_frame(X) and X.dtype.kind not in "OUT"
        if holds_numbers:
            check_dtype(X, "X")
        if reset:
            self.check_features()
            self._check_dtypes(X, names)
        if holds_numbers and self._takes_codes():
            return X
        return np.column_stack([_values_of(X, *of_column) for of_column in zip(names, self._declared(), strict=True)])

    def _check_dtypes(self, X, names: list) -> None:
        """Refuse columns of dtypes that hold no such values, and remember those of a frame."""
        for name, declared in zip(names, self._declared(), strict=True):
            dtype = column(X, name).dtype
            if isinstance(declared, list):
                check_answerable(name, dtype, declared)
                continue
            try:
                check_answerable(name, dtype, [0])
            except TypeError:
                raise TypeError(
                    f"Column {name!r} has dtype {dtype}, and is declared as {declared!r}: no value of it would be a number. "
                    "Convert the column, or declare its categories."
                ) from None
        if is_frame(X):
            self.column_names_, self.column_dtypes_ = names_and_dtypes(X)

    def _as_table(self, cells: np.ndarray) -> Any:
        """Cells as what was fitted."""
        declared, of_categories = self._declared(), self._places_of(list)
        codes = cells[:, of_categories].astype(np.int64)
        if not hasattr(self, "column_dtypes_"):
            if self._takes_codes():
                return cells
            table = cells.astype(object)
            for i, j in enumerate(of_categories):
                table[:, j] = np.array([*declared[j], None], dtype=object)[codes[:, i]]
            return table
        names, dtypes = self.column_names_, self.column_dtypes_
        frame = as_frame(codes, *([listed[j] for j in of_categories] for listed in (names, declared, dtypes)))
        for j in (*self._places_of(tuple), *self._places_of(range)):
            frame[names[j]] = _as_dtype(cells[:, j], dtypes[j])
        return frame[names]

    def _typical(self, k: int, n: int) -> str:
        names, declared, found = self.column_names(), self._declared(), []
        for j, answers in zip(self._places_of(list), self.posterior_.answers, strict=True):
            overall, chances = self.weights_ @ answers.mean, answers.mean[k]
            gains = chances * np.log(np.maximum(chances, 1e-300) / np.maximum(overall, 1e-300))
            found += [
                (-gain, j, f"{names[j]} = {category} {p:.2f} ({q:.2f})")
                for gain, category, p, q in zip(gains, declared[j], chances, overall, strict=True)
                if gain > 0.0
            ]
        return "; ".join(printable(words) for _, _, words in sorted(found)[:n])


def _statistics(columns: Columns, cells: np.ndarray, posterior: MixedPosterior) -> RowStatistics:
    """Statistics of rows, whose ``log_likelihood`` lacks what all classes share."""
    rows = np.hstack([np.ones((len(cells), 1)), columns.statistics(cells)])
    natural, weights = columns.natural(posterior.of_parts(), posterior.plug_in), posterior.weights
    natural[:, 0] += np.log(np.maximum(weights.mean, 1e-300)) if posterior.plug_in else weights.expected_log
    scores = rowwise_product(rows, natural.T)
    shares, log_likelihood = np.empty_like(scores), np.empty(len(scores))
    fill_shares(scores, shares, log_likelihood)
    return RowStatistics(rows, shares, _PLACES, log_likelihood)


def _directions(moments: np.ndarray, columns: np.ndarray, n: int) -> np.ndarray:
    """Largest eigenvectors times roots of eigenvalues, shape (n_means, at most n), of moments between different columns.

    Those within a column are not of the classes alone: in their place come those that the directions imply.
    """
    within, moments, vectors = columns[:, None] == columns, moments.copy(), np.zeros((len(moments), 0))
    for _ in range(_ITERATIONS):
        moments[within] = (vectors @ vectors.T)[within]
        values, vectors = eigh(moments)
        vectors = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, -n:]
    return vectors


def _private_sizes(count: np.ndarray, noise_std: float) -> np.ndarray:
    """Posterior means of noisy counts of the classes."""
    even = max(count.sum(), noise_std * np.sqrt(len(count))) / len(count)
    return posterior_mean(count[None], np.full((1, len(count)), noise_std), np.full((1, len(count)), even))[0]


def _kind_of(name: object, declared: object) -> tuple | range | list:
    """A pair of bounds, a range of counts, or a list of categories.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    if isinstance(declared, range):
        if declared.start != 0 or declared.step != 1 or len(declared) < 2:
            raise ValueError(
                f"Column {name!r} is declared as {declared!r}: write range(n), n ≥ 2, for counts up to n - 1."
            )
        return declared
    if isinstance(declared, tuple):
        ends = [float(end) for end in declared if isinstance(end, Real)]
        if not (len(declared) == len(ends) == 2 and ends[0] > -1e100 and ends[0] + 1e-30 < ends[1] < 1e100):
            raise ValueError(f"Column {name!r} is declared as {declared!r}: bounds of a number are a pair (low, high).")
        return declared
    return checked_categories(name, declared)


def _values_of(X, name: object, declared: tuple | range | list) -> np.ndarray:
    """Numbers of a column, or codes with -1 for what is no category; each from its value alone."""
    if isinstance(declared, list):
        return as_codes(X[[name]] if is_frame(X) else X[:, [name]], [declared])[:, 0]
    return as_numbers(column(X, name), "number")


def _as_dtype(values: np.ndarray, dtype: str) -> Any:
    """A column of numbers in the dtype that was fitted, rounded if it is one of whole numbers."""
    series = imported("pandas", "A data frame").Series(values)
    with suppress(TypeError, ValueError, NotImplementedError):
        return series.astype(dtype) if "int" not in dtype.lower() else series.round().astype(dtype)
    return series
