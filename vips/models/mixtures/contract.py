"""Latent classes of a table: what models of categories alone, and of numbers and counts beside them, have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, choice, function_of_step, positive, whole
from vips._support.extras import imported
from vips._support.printable import strings_for_pandas
from vips._support.validation import check_integer
from vips.core.contract import scheduled, weighs_records
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.core.records.arrays import InMemoryData
from vips.core.records.source import DataSource
from vips.core.step_size import PolynomialAveraging
from vips.core.stream_plan import StreamPlan
from vips.core.sums import Block, RecordStatistics
from vips.core.sums.classes import ClassStatistics
from vips.expfam import Dirichlet, Draws
from vips.models import _typical as typical
from vips.models._denoising import posterior_mean
from vips.models._mixture import Mixture, block_of_squares, with_squares
from vips.models._starts import lost, warn_of_floor
from vips.models._variance_ratios import WITH_SQUARES
from vips.models.components import tables
from vips.models.components.categories import Categories, typical_answers
from vips.models.components.columns import KINDS, Columns
from vips.models.components.component import Frame, Kind, Named
from vips.models.components.declarations import Column, all_columns
from vips.models.components.numbers import LEAST_VARIANCE, Numbers
from vips.models.mixtures.posterior import ClassPosterior, ClassSimulator, inferred, matched_classes
from vips.parts import Part, last_of, warn_of_no_intervals
from vips.report.unread import Seen
from vips.report.words import described, whose

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["LIMIT", "LatentClasses", "dense_rows"]

LIMIT = 4.0  # standard deviations from the mean, of a number or count in a private fit
_LEAST_PRIOR = 1e-12  # of EM
_AVERAGING = PolynomialAveraging(power=3.0)


@arguments
class LatentClasses(Mixture):
    """Base of the models of latent classes, whose columns are independent given the class."""

    n_components: int = whole(default=10, kw_only=False)
    class_prior: float | None = positive(default=None)
    answer_prior: float = positive(default=1.0)
    inference: str = choice("vb", "em", default="vb")
    schedule: Callable[[int], float] | None = function_of_step("PolynomialAveraging()", default=None)
    on_invalid: str = "drop"

    name_of_score, name_of_components = "log likelihood", "classes"
    exact_rows = True
    _unlisted = ("argument", "readable_columns")
    argument: ClassVar[str]  # that declares the columns

    # -- the contract -------------------------------------------------------------------------------------------

    def check_features(self) -> None:
        """Raise ValueError if the records have another number of columns than are declared."""
        if self.n_features_in_ != len(self._declared()):
            raise ValueError(f"X has {self.n_features_in_} columns, but {len(self._declared())} are declared.")

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], ClassPosterior]:
        """The prior, and public draws from which the classes begin."""
        average = self.initial(rng)
        posterior = self.to_posterior(average, dict.fromkeys(average, 0.0), None)
        return average, replace(posterior, draws=rng.standard_normal(posterior.draws.shape))

    def step_size(self, t: int) -> float:
        """ρ of the steps t = 1, 2, … of the classes: 1 in the first. Then ``schedule(t)`` if there is one, 4/(t + 3) in a
        private fit, (1 + t)^(-0.6) in a non-private stochastic one, and 1 in a non-private full-batch one, which is textbook
        variational Bayes. A private fit of one class takes the plain average of all steps."""
        if self.n_components == 1 and self.schedule is None and self.is_private:
            return 1.0 / t
        return scheduled(self, t, _AVERAGING)

    def valid_records(self, records) -> np.ndarray:
        """All of them, unless an entry of a sparse matrix is in a column that does not exist: what is no value of its column is
        a missing cell."""
        return super().valid_records(records) if sp.issparse(records) else np.ones(records.shape[0], dtype=bool)

    def prepare(self, posterior: ClassPosterior) -> None:
        posterior.tables(self._columns(posterior.frame))

    def expected_statistics(self, records, posterior: ClassPosterior) -> RecordStatistics:
        columns, values = self._columns(posterior.frame), dense_rows(records)
        return with_squares(self, inferred(columns.rows(values), columns.places(values), posterior.tables(columns)))

    def to_posterior(self, average, noise_std, previous: ClassPosterior | None) -> ClassPosterior:
        """Prior and totals. Noisy totals are denoised first."""
        columns = self._columns(None if previous is None else previous.frame)
        totals = np.hstack([average["count"][:, None], average["cells"]])
        if noise_std["count"] > 0.0:
            totals[:, 0] = _private_sizes(average["count"], noise_std["count"])
            totals = columns.denoised(totals, np.full(totals.shape, noise_std["cells"]))
        if previous is not None:
            return self._posterior(totals, columns, previous.draws, previous.marginals)
        draws, marginals = np.zeros((self.n_components, columns.n_means)), np.zeros(columns.n_marginals)
        return self._posterior(totals, columns, draws, marginals)

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        declared = getattr(self, self.argument)
        if declared is None:
            raise NotImplementedError(f"`{self.argument}` is not given: nothing is known about the columns.")
        of = typical.members(n_records, self.n_components, rng)
        is_named = isinstance(declared, Mapping)
        cells = [kind.typical(values, of, self.n_components, rng) for kind, values in self._declared()]
        if not is_named:
            return np.column_stack(cells), None
        return imported("pandas", "records of named columns").DataFrame(dict(zip(declared, cells, strict=True))), None

    def max_record_norm(self) -> float:
        """Norm of a record that is surely in one class and has no missing cell, with numbers and counts as far from the mean as
        is counted."""
        return self._norm(self._columns(limit=LIMIT).largest_squares)

    def default_clip(self) -> float:
        """``clip_share`` times the norm of such a record, but with numbers and counts as far from the mean as on average."""
        return self.clip_share * self._norm(self._columns().usual_squares)

    def default_chunk_size(self) -> int:
        return 16_384

    def describe(self) -> dict:
        declared = self._declared()
        n_columns = {kind.words: sum(column.kind is kind for column in declared) for kind in KINDS}
        columns = ", ".join(f"{n} columns of {words}" for words, n in n_columns.items() if n)
        n_levels = sum(len(column.values) for column in declared if column.kind is Categories)
        return described(
            self,
            "hence the posterior of the classes",
            f"{columns}, {n_levels} categories in all" if n_levels else columns,
            "n_components, priors and all other constructor arguments",
        )

    def bound(self, records, posterior: ClassPosterior) -> float:
        """Evidence lower bound of these records and the parameters, for non-private fits and tests; log likelihood with EM."""
        columns = self._columns(posterior.frame)
        total = float(self._likelihood(dense_rows(records), columns, posterior).log_likelihood.sum())
        if self.inference == "em":
            return total
        prior = Dirichlet(np.full(self.n_components, self._class_prior()))
        return total - float(posterior.weights.kl(prior)) - columns.divergence(posterior.columns)

    # -- the match ----------------------------------------------------------------------------------------------

    def simulator(self) -> ClassSimulator:
        return ClassSimulator(self, self._columns(self.last_posterior_.frame, limit=np.inf), self._class_prior())

    def to_noise_aware_posterior(self) -> ClassPosterior:
        fitted = self.last_posterior_
        return matched_classes(self.match(), fitted, self._columns(fitted.frame), self.components)

    # -- comparisons --------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """Shares of the classes, means and precisions of numbers, rates of counts, and answers."""
        if not isinstance(posterior, ClassPosterior):
            return super().posterior_parts(posterior)
        classes = [f"class {k}" for k in range(len(posterior.draws))]
        parts = [Part("weights", posterior.weights, partial(last_of, classes), classes)]
        return parts + self._columns(posterior.frame).parts(posterior.columns, self._named(), "class")

    def counts_read(self) -> list[Seen]:
        """From counts of the answers, and of missing numbers and counts."""
        totals, noise, root = self.noisy_totals_.average, self.noisy_totals_.noise_std, np.sqrt(self.n_components)
        cells, size = totals["cells"].sum(axis=0), totals["count"].sum()
        named = [(repr(name), declared) for name, declared in self._named()]
        columns = self._columns(self.last_posterior_.frame)
        return columns.seen(cells, root * noise["cells"], size, root * noise["count"], named)

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
        check_integer("n_samples", n_samples, 0)
        rng, posterior, declared = as_generator(random_state), self.posterior_, self._declared()
        component = rng.choice(self.n_components, n_samples, p=self.weights_)
        cells = self._columns(posterior.frame).drawn(posterior.columns, component, rng)
        if hasattr(self, "column_dtypes_"):
            return tables.as_frame(cells, self.column_names_, declared, self.column_dtypes_), component
        return tables.as_array(cells, declared), component

    def class_profiles(self, level: float | None = None) -> pd.DataFrame:
        """Probabilities of the answers in each class, as a data frame: columns and categories by classes.

        Parameters
        ----------
        level : float, optional
            Adds intervals: the classes then have columns "mean", "lower" and "upper".

        Raises
        ------
        NotImplementedError
            With ``level``, if there are no intervals; it says why.
        """
        pd = imported("pandas", "class_profiles()")

        index = pd.MultiIndex.from_tuples(self._pairs(), names=["column", "category"])
        if level is None:
            return pd.DataFrame(self.components_.T, index=index)
        if reason := self.why_no_intervals():
            raise NotImplementedError(reason)
        values = np.stack([self.components_, *self.posterior_.columns["answers"].interval(level)], axis=-1)
        names = pd.MultiIndex.from_product([range(len(values)), ["mean", "lower", "upper"]], names=["class", None])
        return pd.DataFrame(np.moveaxis(values, 1, 0).reshape(len(index), -1), index=index, columns=names)

    def summary(self, n_answers: int = 3, level: float = 0.95) -> pd.DataFrame:
        """A table of the classes, the largest first.

        Parameters
        ----------
        n_answers : int
            Number of answers that are named for each class.
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            A row for each class, by its number. "share", and where intervals know the noise its "lower" and "upper"
            limit. Other fits with noise have "noise": the standard deviation of the share by the noise alone, which says
            nothing of who is in which class, nor of the clip. Where ``evidence()`` tells, "label": whether the class is real.
            "mean" and "std" of each number, and "mean" of each count, in the columns' units, means with their limits where
            shares have some. "typical answers": those that tell the class from everybody, ranked by p log(p / overall), each
            with its probability p in the class and, in brackets, over all classes.

        Raises
        ------
        ValueError
            If ``n_answers`` is not a positive integer.

        Warns
        -----
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        ConvergenceWarning
            If two classes of an ordinary fit are alike, or one holds no record and has no estimates, or nearly one value of a
            number.
        """
        pd = imported("pandas", "summary()")

        warn_of_no_intervals(self)
        check_integer("n_answers", n_answers)
        posterior = self.posterior_
        n_classes, columns = len(self.weights_), {"share": self.weights_}
        if isinstance(posterior.weights, Draws):
            columns["lower"], columns["upper"] = posterior.weights.interval(level)
        elif hasattr(self, "noisy_totals_"):
            total = max(float(posterior.weights.concentration.sum()), 1.0)
            columns["noise"] = np.full(n_classes, self.noisy_totals_.noise_std["count"] / total)
        labels = self._labels()
        columns |= {} if labels is None else {"label": labels}
        known = level if isinstance(posterior.weights, Draws) else None
        columns |= self._columns(posterior.frame).summary(posterior.columns, self._named(), known)
        if "answers" in posterior.columns:
            answers = typical_answers(posterior.columns["answers"], self._categories(), self.weights_, n_answers)
            columns["typical answers"] = strings_for_pandas(answers)
        table = pd.DataFrame(columns, index=pd.Index(range(n_classes), name="class"))
        if not hasattr(self, "noisy_totals_"):
            counts = posterior.weights.concentration - self._class_prior()
            is_empty = lost(self, "class", counts, self._columns(posterior.frame).features(posterior.columns))
            if (numbers := posterior.columns.get("numbers")) is not None:
                least = LEAST_VARIANCE + 0.5 * self._number_prior() / numbers.precision.shape
                instead = "Declare a category or a count, or a smaller number_prior."
                names = [name for name, _ in self._named_of(Numbers)]
                warn_of_floor("class", names, numbers.variance, least, is_empty, instead)
            for name in table.columns[1:]:
                table.loc[is_empty, name] = "" if name == "typical answers" else np.nan
        table = table.iloc[self._by_size()]
        return table.rename_axis(columns=whose(getattr(self, "privacy_", None)))

    def plot_profiles(self, columns: Sequence[str] | None = None, *, ax: Axes | None = None) -> Axes:
        """A picture of the classes: a column for each, the largest first, and a row for each answer, darker if more probable.

        Titles of classes give their share, and where ``evidence()`` tells, whether they are real.

        Parameters
        ----------
        columns : sequence of names, optional
            Columns of categories. None: all.
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            If a column does not exist.
        """
        from vips.models._pictures import plot_shades

        check_is_fitted(self, "last_posterior_")
        names, pairs = {name for name, _ in self._categories()}, self._pairs()
        shown = names if columns is None else set(map(str, columns))
        if not shown or shown - names:
            raise ValueError(f"`columns` must name columns of categories of the model, got {columns!r}.")
        places = [v for v, (name, _) in enumerate(pairs) if name in shown]
        words = [f"{pairs[v][0]} = {pairs[v][1]}" for v in places]
        order, labels = self._by_size(), self._labels()
        titles = [f"{k}: {100.0 * self.weights_[k]:.3g} %" + (f"\n{labels[k]}" if labels else "") for k in order]
        profiles, label = self.components_[np.ix_(order, places)].T, "probability in the class"
        ax = plot_shades(profiles, words, titles, label, ax, of="plot_profiles()", largest=1.0)
        for row in range(1, len(places)):
            if pairs[places[row]][0] != pairs[places[row - 1]][0]:
                ax.axhline(row - 0.5, color="0.4", linewidth=0.8)
        return ax

    @property
    def weights_(self) -> np.ndarray:
        """Shares of the classes, shape (n_components,)."""
        return self.posterior_.weights.mean

    @property
    def components_(self) -> np.ndarray:
        """Probabilities of the answers in each class, shape (n_components, n_levels)."""
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

    # -- columns ------------------------------------------------------------------------------------------------

    @property
    def declared_columns(self) -> object:
        """The argument that declares them."""
        return getattr(self, self.argument)

    @abstractmethod
    def _declared(self) -> list[Column]:
        """What each column of the table holds."""

    def _columns(self, frame: Frame | None = None, limit: float | None = None) -> Columns:
        """All columns. ``frame`` is that of those that have coordinates."""
        limit = (LIMIT if self.is_private else np.inf) if limit is None else limit
        return all_columns(self._declared(), partial(self._component, limit), frame)

    def _component(self, limit: float, kind: type[Kind], declared: list[Sequence]) -> Kind:
        """Columns of a kind, with the priors of the model."""
        prior = self._number_prior()
        if kind is Categories:
            prior = 0.0 if self.inference == "em" else float(self.answer_prior)
        return kind.of(declared, prior, limit)

    def _number_prior(self) -> float:
        """As how many records the priors of numbers and counts count; by default there are none of these."""
        return 0.0

    def _named(self) -> list[Named]:
        """Names of the columns, and what is declared of them."""
        return [(name, column.values) for name, column in zip(self.column_names(), self._declared(), strict=True)]

    def _categories(self) -> list[Named]:
        """Names and categories of the columns that have some."""
        return self._named_of(Categories)

    def _named_of(self, kind: type[Kind]) -> list[Named]:
        """The same of the columns of a kind."""
        return [named for named, column in zip(self._named(), self._declared(), strict=True) if column.kind is kind]

    def _pairs(self) -> list[tuple[str, object]]:
        """Column and category of each level."""
        return [(name, category) for name, listed in self._categories() for category in listed]

    # -- reading ------------------------------------------------------------------------------------------------

    def _labels(self) -> list[str] | None:
        """Whether each class is real, if that is known."""
        return None

    def _by_size(self) -> np.ndarray:
        return np.argsort(-self.weights_, kind="stable")

    # -- steps --------------------------------------------------------------------------------------------------

    def _blocks_of_classes(self) -> dict[str, Block]:
        cells = Block((self.n_components, self._columns().width))
        return {"count": Block((self.n_components,)), "cells": cells} | block_of_squares(self)

    def _norm(self, of_cells: float) -> float:
        """Norm of a record that is surely in one class, given the squares of its cells."""
        return float(np.sqrt((WITH_SQUARES**2 if weighs_records(self) else 1.0) + of_cells))

    def _posterior(self, totals: np.ndarray, columns: Columns, draws, marginals) -> ClassPosterior:
        return ClassPosterior(
            Dirichlet(self._class_prior() + np.maximum(totals[:, 0], 0.0)),
            columns=columns.posterior(totals),
            frame=columns.coordinates,
            draws=draws,
            marginals=marginals,
            plug_in=self.is_private or self.inference == "em",
        )

    def _n_free(self) -> int:
        return self.n_components - 1 + self.n_components * self._columns().n_free

    def _in_stream(self) -> bool:
        return isinstance(self.privacy, StreamPlan)

    def _class_prior(self) -> float:
        if self.inference == "em":
            return _LEAST_PRIOR
        return 1.0 / self.n_components if self.class_prior is None else float(self.class_prior)

    def _likelihood(self, values: np.ndarray, columns: Columns, posterior: ClassPosterior) -> ClassStatistics:
        """Statistics of records, whose log likelihood is whole."""
        statistics = inferred(columns.rows(values), columns.places(values), posterior.tables(columns))
        if columns.has_base:
            statistics.log_likelihood += columns.log_base(columns.cells(values))
        return statistics

    # -- tables -------------------------------------------------------------------------------------------------

    def _inferred(self, X) -> ClassStatistics:
        check_is_fitted(self, "last_posterior_")
        return self._inferred_from(self._values(X, reset=False))

    def _inferred_from(self, records) -> ClassStatistics:
        """At the means of the posterior."""
        posterior = replace(self.posterior_, plug_in=True)
        return self._likelihood(dense_rows(records), self._columns(posterior.frame, limit=np.inf), posterior)

    def _remember_categories(self, X) -> None:
        """Those of the records, before a fit; by default they are declared."""

    def check_source(self, source: DataSource) -> None:
        tables.check_source(source, self, self.readable_columns() if self.declared_columns is not None else ())

    def table_of(self, X, y) -> InMemoryData:
        return InMemoryData(self._values(X, reset=True))

    def readable_columns(self) -> list[Column]:
        """How the cells of each column are read."""
        return self._declared()

    def _values(self, X, reset: bool) -> np.ndarray:
        return tables.read_table(self, X, reset, self._remember_categories)


def dense_rows(records) -> np.ndarray:
    """Records as an array."""
    return sp.csr_array(records).toarray() if sp.issparse(records) else np.asarray(records)


def _private_sizes(count: np.ndarray, noise_std: float) -> np.ndarray:
    """Posterior means of noisy counts of the classes."""
    even = max(count.sum(), noise_std * np.sqrt(len(count))) / len(count)
    return posterior_mean(count[None], np.full((1, len(count)), noise_std), np.full((1, len(count)), even))[0]
