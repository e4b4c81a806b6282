"""Latent class analysis: mixtures of independent categorical columns.

    w ~ Dirichlet(α, …, α),   θ_kj ~ Dirichlet(η, …, η)          K classes, column j with L_j categories
    z_n | w ~ Categorical(w),   x_nj | z_n ~ Categorical(θ_z_n,j)

Missing answers are left out of a record's likelihood, which is exact if they are missing at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vips._random_state import RandomStateLike, as_generator
from vips._validation import check_choice, check_integer, check_number, check_schedule
from vips.data import DataSource, InMemoryData, as_source
from vips.data._checks import check_dtype
from vips.data._columns import as_table, column, columns_of, is_frame
from vips.data._tables import from_arrow
from vips.expfam import Dirichlet
from vips.model import ConjugateExponentialModel
from vips.models._clusters import Clusters
from vips.models.mixtures.class_statistics import ClassStatistics
from vips.models.mixtures.kernels import find_places
from vips.models.mixtures.posterior import (
    ClassPosterior,
    drawn_codes,
    marginal_counts,
    private_counts,
    start_at,
    starts_of,
)
from vips.models.mixtures.reading import ReadableClasses
from vips.models.mixtures.table import (
    as_codes,
    as_frame,
    check_answerable,
    check_order_of,
    checked_categories,
    found_categories,
    is_range,
    names_and_dtypes,
)
from vips.parts import Part
from vips.phases import FitPhase
from vips.privacy import PrivacyBudget, PrivacyPlan, StreamPlan
from vips.statistics import Block
from vips.step_size import PolynomialAveraging

__all__ = ["LatentClassAnalysis"]

_SPREAD = 0.5  # of the first tables around the marginals, on the scale of logarithms
_CLIP = 0.7  # of the largest norm
_MARGINALS = ("records", "marginals")  # blocks of the first phase
_NO_PRIOR = 1e-12  # of EM
_AVERAGING = PolynomialAveraging(power=3.0)


class LatentClassAnalysis(ReadableClasses, Clusters, DensityMixin, ConjugateExponentialModel):
    """Latent classes of a table of categories, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_components : int
        K, the number of classes.
    categories : mapping, sequence or None
        Of each column: a list of its categories, or n for the codes 0 to n - 1. A mapping by name of the columns of a data
        frame, whose other columns are left out; or one entry for each column. Required by a private fit: categories read from
        the records reveal rare ones. None: those that occur; of an array of numbers, codes up to the largest.
    class_prior : float or None
        α; None is 1/K.
    answer_prior : float
        η.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by EM, which ignores both priors. E-steps of private fits take posterior means
        with either.
    privacy : PrivacyBudget, PrivacyPlan, StreamPlan or None
        None is a non-private fit, until it has settled. The first step counts the answers in each column, and classes
        begin around them, so a plan needs several steps. A StreamPlan is for :meth:`partial_fit`.
    schedule : RobbinsMonro, callable or None
        Step sizes of the classes' steps, as a function of 2, 3, …; that of the first is 1. None: see :meth:`step_size`.
    clip_share : float
        Clip norm of a plan without one, as a share of :meth:`max_record_norm`.
    on_invalid : {"drop", "raise"}
        What is done with entries of a sparse source in columns that do not exist. No value is invalid: what is no category is
        a missing answer.
    random_state : int, Generator, RandomState or None
        Seeds the classes' start, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : ClassPosterior
        ``weights``, and ``answers``, one Dirichlet of shape (K, L_j) for each column.
    weights_ : ndarray of shape (n_components,)
        Shares of the classes.
    components_ : ndarray of shape (n_components, n_levels)
        Probabilities of the answers in each class, column after column.
    categories_ : list of lists
        Categories of each column.
    privacy_ : PrivacyReport
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of fits to data frames whose names are strings.

    Privacy
    -------
    Unit: one row of X. Relation: add or remove one. Released: the noisy totals of every step, hence the posterior and the
    records that ``sample`` draws. Public by declaration: the columns, their categories and dtypes, and all constructor
    arguments. Not covered: choosing any of them by looking at these records; :meth:`predict`, :meth:`predict_proba` and
    :meth:`score_samples`, which read the records that they are given, and add no noise.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import LatentClassAnalysis, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> likes = rng.random((4000, 6)) < np.where(rng.random((4000, 1)) < 0.4, 0.9, 0.2)
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=15)
    >>> model = LatentClassAnalysis(2, categories=[2] * 6, privacy=plan, random_state=0).fit(likes)
    >>> bool(abs(model.weights_.min() - 0.4) < 0.1)
    True
    >>> model.sample(3, random_state=0)[0].shape
    (3, 6)
    """

    unit = "one row of X"
    name_of_score = "log likelihood"
    ignores_labels = True
    exact_rows = True
    adds_up = True
    planned_steps = 60
    tolerance = 1e-3

    def __init__(
        self,
        n_components: int = 10,
        *,
        categories: Mapping | Sequence | None = None,
        class_prior: float | None = None,
        answer_prior: float = 1.0,
        inference: str = "vb",
        privacy: PrivacyBudget | PrivacyPlan | StreamPlan | None = None,
        schedule: Callable[[int], float] | None = None,
        clip_share: float = _CLIP,
        on_invalid: str = "drop",
        random_state: object = None,
    ) -> None:
        self.n_components = n_components
        self.categories = categories
        self.class_prior = class_prior
        self.answer_prior = answer_prior
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
        for name in ("class_prior", "answer_prior"):
            if name == "answer_prior" or self.class_prior is not None:
                check_number(name, getattr(self, name), 1e-12, 1e12, "a number between 1e-12 and 1e12")
        check_number("clip_share", self.clip_share, 0.0, 1.0, "above 0, and at most 1", open_low=True)
        check_choice("inference", self.inference, ("vb", "em"))
        check_schedule(self.schedule, "PolynomialAveraging()")
        if self.categories is not None:
            self._declared()
        elif self.is_private:
            raise ValueError(
                "`categories` is required for a private fit: reading them from the records would reveal rare ones. Pass the "
                'public categories of each column, e.g. LatentClassAnalysis(categories={"sex": ["f", "m"], ...}, ...), or '
                "the numbers of codes."
            )
        elif self._in_stream():
            raise ValueError("`categories` is required for a stream: later batches may hold others.")

    def check_features(self) -> None:
        if self.n_features_in_ != len(self._levels()):
            raise ValueError(f"X has {self.n_features_in_} columns, but {len(self._levels())} are declared.")

    def blocks(self) -> dict[str, Block]:
        return self._blocks_of_marginals() | self._blocks_of_classes()

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], ClassPosterior]:
        """All classes alike, with draws that say how far their first tables are from the marginals."""
        shape = (self.n_components, sum(self._levels()))
        spread = _SPREAD if self.n_components > 1 else 0.0
        draws = spread * rng.standard_normal(shape)
        alike = Dirichlet(np.ones(self.n_components))
        return self.initial(rng), ClassPosterior(
            alike, np.ones(shape), tuple(self._levels()), draws, False, self._plugs_in()
        )

    def phases(self, n_steps: int) -> list[FitPhase]:
        """One step counts the marginals, around which the classes begin; then come the steps of the classes.

        A stream, whose batches are summed in one total, has no step of the marginals: its first batch is in all classes alike.
        """
        n_first = 1 if self._blocks_of_marginals() else 0
        marginals = FitPhase(
            "marginals",
            n_first,
            blocks=self._blocks_of_marginals(),
            statistics="_marginal_statistics",
            update=self._first_classes,
            step_size=lambda s: 1.0,
            released="noisy counts of the answers",
        )
        classes = FitPhase(
            "classes",
            n_steps - n_first,
            blocks=self._blocks_of_classes(),
            step_size=self.step_size,
            released="noisy counts of classes and of their answers",
        )
        return [marginals, classes]

    def valid_records(self, records) -> np.ndarray:
        """All of them, unless an entry of a sparse matrix is in a column that does not exist."""
        return super().valid_records(records) if sp.issparse(records) else np.ones(records.shape[0], dtype=bool)

    def prepare(self, posterior: ClassPosterior) -> None:
        posterior.tables()

    def expected_statistics(self, records, posterior: ClassPosterior) -> ClassStatistics:
        return ClassStatistics(self._places(records), *posterior.tables())

    def _marginal_statistics(self, records, posterior: ClassPosterior) -> ClassStatistics:
        """Of a single class."""
        return ClassStatistics(self._places(records), np.zeros(1), np.zeros((sum(self._levels()), 1)), _MARGINALS)

    def _first_classes(self, average, noise_std, previous: ClassPosterior) -> ClassPosterior:
        """Classes around the marginals."""
        n_records, answers = (average[name] for name in _MARGINALS)
        return self._around(n_records[0], answers[0], noise_std["marginals"], previous)

    def to_posterior(self, average, noise_std, previous: ClassPosterior | None) -> ClassPosterior:
        """Concentrations are prior + totals. Noisy totals are denoised first (``posterior.py``). In the first batch of a stream
        every record is in all classes alike; then classes begin around its marginals."""
        count, answers = average["count"], average["answers"]
        if previous is not None and not previous.has_begun:
            noise = np.sqrt(self.n_components) * noise_std["answers"]
            return self._around(count.sum(), answers.sum(axis=0), noise, previous)
        if noise_std["answers"] > 0.0:
            count, answers = private_counts(count, answers, noise_std)
        return self._posterior(count, answers, np.zeros(answers.shape) if previous is None else previous.start)

    def step_size(self, t: int) -> float:
        """ρ of the steps t = 1, 2, … of the classes: 1 in the first. Then ``schedule(t)`` if there is one, 4/(t + 3) in a
        private fit, (1 + t)^(-0.6) in a non-private stochastic one, and 1 in a non-private full-batch one, which is textbook
        variational Bayes. A private fit of one class takes the plain average of all steps."""
        if self.n_components == 1 and self.schedule is None and self.is_private:
            return 1.0 / t
        return self.scheduled(t, _AVERAGING)

    def max_record_norm(self) -> float:
        """√(1 + number of columns), the norm of a record that is surely in one class and has answered every question."""
        return float(np.sqrt(1.0 + len(self._levels())))

    def default_clip(self) -> float:
        """``clip_share`` times :meth:`max_record_norm`."""
        return self.clip_share * self.max_record_norm()

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full-batch steps until the classes have settled, at most 500."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=500)

    def default_chunk_size(self) -> int:
        return 4096

    def describe(self) -> dict:
        return {
            "unit": self.unit,
            "released": self.released("hence the posterior of shares and answers of the classes"),
            "declared_public": (
                f"{len(self._levels())} columns with {sum(self._levels())} categories",
                "n_components, priors and all other constructor arguments",
            ),
        }

    def bound(self, records, posterior: ClassPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        total = float(self.expected_statistics(records, posterior).log_likelihood.sum())
        return total if self.inference == "em" else total - posterior.divergence(*self._priors())

    # -- comparisons --------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """Shares of the classes, and answers, column by column."""
        if not isinstance(posterior, ClassPosterior):
            return super().posterior_parts(posterior)
        classes = [f"class {k}" for k in range(len(posterior.concentration))]
        parts = [Part("weights", posterior.weights, partial(_weight, classes), classes)]
        for name, categories, answers in zip(self.column_names(), self._known(), posterior.answers, strict=True):
            words = [str(category) for category in categories]
            parts.append(Part(f"answers: {name}", answers, partial(_answer, name, words), words))
        return parts

    def components(self, posterior: ClassPosterior) -> tuple[np.ndarray, str]:
        """Classes are matched by the probabilities of their answers."""
        return posterior.profiles, "hellinger"

    def in_order(self, posterior: ClassPosterior, order: np.ndarray) -> ClassPosterior:
        return posterior.in_order(order)

    def score_ranges(self) -> dict[str, tuple[float, float]]:
        """Per record: from twice that of answers drawn uniformly to 0."""
        return {"log_likelihood": (-2.0 * float(np.log(np.maximum(self._levels(), 2)).sum()), 0.0)}

    def record_scores(self, records, name: str) -> np.ndarray:
        """Log likelihood of each record."""
        return self._inferred_from(self._places(records)).log_likelihood

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
            What was fitted: a data frame of pandas with the same names, dtypes and categories, or codes. No answer is missing.
        component : ndarray of shape (n_samples,)
            Class of each record.
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 0)
        rng = as_generator(random_state)
        codes, component = drawn_codes(self.weights_, self.components_, self._levels(), n_samples, rng)
        if hasattr(self, "column_dtypes_"):
            return as_frame(codes, self.column_names_, self.categories_, self.column_dtypes_), component
        return codes if all(map(is_range, self.categories_)) else _values(codes, self.categories_), component

    @property
    def weights_(self) -> np.ndarray:
        """Shares of the classes, shape (n_components,)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.weights.mean

    @property
    def components_(self) -> np.ndarray:
        """Probabilities of the answers in each class, shape (n_components, n_levels)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.profiles

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

    # -- helpers ------------------------------------------------------------------------------------------------

    def _in_stream(self) -> bool:
        return isinstance(self.privacy, StreamPlan)

    def _blocks_of_marginals(self) -> dict[str, Block]:
        """None with one class, whose totals are the marginals."""
        if self.n_components == 1 or self._in_stream():
            return {}
        return dict(zip(_MARGINALS, (Block((1,)), Block((1, sum(self._levels())))), strict=True))

    def _blocks_of_classes(self) -> dict[str, Block]:
        return {"count": Block((self.n_components,)), "answers": Block((self.n_components, sum(self._levels())))}

    def _plugs_in(self) -> bool:
        return self.is_private or self.inference == "em"

    def _around(self, n_records: float, answers: np.ndarray, noise: float, previous: ClassPosterior) -> ClassPosterior:
        """Classes of equal size around these marginals."""
        marginals = marginal_counts(answers, noise, previous.levels)
        count = np.full(self.n_components, max(float(n_records), 0.0) / self.n_components)
        return self._posterior(count, start_at(marginals, previous.start), previous.start)

    def _posterior(self, count: np.ndarray, answers: np.ndarray, start: np.ndarray) -> ClassPosterior:
        class_prior, answer_prior = self._priors()
        weights, concentration = (np.maximum(totals, 0.0) for totals in (count, answers))
        return ClassPosterior(
            Dirichlet(class_prior + weights),
            answer_prior + concentration,
            tuple(self._levels()),
            start,
            True,
            self._plugs_in(),
        )

    def _priors(self) -> tuple[float, float]:
        if self.inference == "em":
            return _NO_PRIOR, _NO_PRIOR
        return (1.0 / self.n_components if self.class_prior is None else float(self.class_prior)), float(
            self.answer_prior
        )

    def _declared(self) -> list[list]:
        """Categories of the declared columns."""
        if isinstance(self.categories, Mapping) and self.categories:
            return [checked_categories(name, declared) for name, declared in self.categories.items()]
        is_list = isinstance(self.categories, Sequence | np.ndarray) and not isinstance(self.categories, str)
        if not is_list or not len(self.categories):
            raise ValueError(
                "`categories` must be a mapping of names of columns, or a list with one entry for each column, got "
                f"{self.categories!r}."
            )
        return [checked_categories(j, declared) for j, declared in enumerate(self.categories)]

    def _finds_categories(self) -> bool:
        return self.categories is None and not self.is_private

    def _known(self) -> list[list]:
        known = self.__dict__.get("categories_")
        return self._declared() if known is None else known

    def _levels(self) -> list[int]:
        return [len(listed) for listed in self._known()]

    def _places(self, records) -> np.ndarray:
        """Levels counted over all columns, -1 for missing answers."""
        records = sp.csr_array(records).toarray() if sp.issparse(records) else np.asarray(records)
        levels = np.array(self._levels())
        places = np.empty((len(records), len(levels)), np.int32)
        find_places(records, levels, starts_of(levels), places)
        return places

    def _inferred(self, X) -> ClassStatistics:
        """At the means of the posterior."""
        check_is_fitted(self)
        return self._inferred_from(self._places(self._codes(X, reset=False)))

    def _inferred_from(self, places: np.ndarray) -> ClassStatistics:
        return ClassStatistics(places, *self.posterior_.log_means())

    def records_of(self, X, y) -> DataSource:
        X = from_arrow(X)
        source = as_source(X, None)
        if source is not None and not isinstance(source, InMemoryData):
            if self.categories is None or not all(map(is_range, self._declared())):
                raise TypeError(
                    f"A {type(source).__name__} holds codes: declare the number of codes of each column, as in "
                    "categories=[3, 2, 5]."
                )
            check_order_of(source, self.categories, "categories")
            self.categories_ = self._declared()
        return super().records_of(X, None)

    def table_of(self, X, y) -> InMemoryData:
        return InMemoryData(self._codes(X, reset=True))

    def _codes(self, X, reset: bool) -> np.ndarray:
        """Codes of a table. A private fit reads no value before, and none raises."""
        X = from_arrow(X)
        if isinstance(X, DataSource):
            return self._validated(X)  # raises
        if is_frame(X):
            return self._codes_of_frame(X, reset)
        if isinstance(self.categories, Mapping):
            columns_of(as_table(X), self.categories)  # raises: an array has no names
        may_read = not (reset and self.is_private)
        if may_read:
            X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
        else:
            X = as_table(X)
            validate_data(self, X, skip_check_array=True)
        if X.dtype.kind in "OUT":
            return self._looked_up(X, reset)
        check_dtype(X, "X")
        if reset:
            self.categories_ = _largest_codes(X) if self._finds_categories() else self._declared()
            self.check_features()
        return X if all(map(is_range, self.categories_)) else as_codes(X, self.categories_)

    def _codes_of_frame(self, X, reset: bool) -> np.ndarray:
        if not hasattr(X, "iloc"):
            raise TypeError(f"LatentClassAnalysis needs a table in memory, got {type(X).__name__}.")
        if isinstance(self.categories, Mapping):
            X = X[columns_of(X, self.categories)]
        validate_data(self, X, skip_check_array=True, reset=reset)
        codes = self._looked_up(X, reset)
        if reset:
            self.column_names_, self.column_dtypes_ = names_and_dtypes(X)
        return codes

    def _looked_up(self, X, reset: bool) -> np.ndarray:
        if reset:
            self.categories_ = found_categories(X) if self._finds_categories() else self._declared()
            self.check_features()
            names = columns_of(X, range(X.shape[1]))
            for name, listed in zip(names, self.categories_, strict=True):
                check_answerable(name, column(X, name).dtype, listed)
        return as_codes(X, self.categories_)


def _largest_codes(X: np.ndarray) -> list[list]:
    """Codes up to the largest of each column, for fits that are not private.

    Raises
    ------
    ValueError
        If a number is infinite, or neither a code nor -1 nor NaN.
    """
    given = X[~np.isnan(X)] if X.dtype.kind == "f" else X
    if not ((given >= -1) & (given == np.floor(given)) & (given < 100_000)).all():
        raise ValueError("X must hold codes: whole numbers from 0 to 99,999, or NaN or -1 for missing answers.")
    largest = np.fmax.reduce(X, axis=0, initial=0) if X.dtype.kind == "f" else X.max(axis=0, initial=0)
    return [list(range(int(code) + 1)) for code in largest]


def _values(codes: np.ndarray, categories: Sequence[Sequence]) -> np.ndarray:
    """Categories in place of codes, as objects."""
    table = np.empty(codes.shape, dtype=object)
    for j, listed in enumerate(categories):
        for i, category in enumerate(listed):
            table[codes[:, j] == i, j] = category
    return table


def _weight(classes: list[str], index: tuple[int, ...]) -> str:
    return classes[index[-1]]


def _answer(name: str, words: list[str], index: tuple[int, ...]) -> str:
    return f"class {index[0]}: {name} = {words[index[1]]}"
