"""A table of declared columns, released once: the counts of all pairs of answers, and everything that follows from them.

A record has one level in each column: h holds their indicators. With public numbers c_j of the columns, and x = (c_j h_j),

    T = x xᵀ / (Σ c_j²)²

counts each pair of levels, with a norm of 1 for every record: one sum, one clip, one release. Noise in the table of columns j
and k is smaller the larger c_j c_k; c_j⁶ is the number of levels, so that the noise of small tables is smaller.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, whole
from vips._support.extras import imported
from vips._support.printable import listed
from vips._support.validation import check_choice, check_integer, check_level, levels_to_user
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.core.phases import FitPhase, plain_average, unchanged
from vips.core.plan import PrivacyPlan
from vips.core.records.arrays import InMemoryData
from vips.core.records.source import DataSource
from vips.core.stream_plan import StreamPlan
from vips.core.sums import Block, BySquaredWeights, DenseStatistics, Joint, Quadratic
from vips.data._declared_dtypes import MISSING, OTHER
from vips.exceptions import PrivacyWarning
from vips.expfam import DiagonalGaussian
from vips.model import ConjugateExponentialModel
from vips.models._variance_ratios import SQUARES_SCALE, WITH_SQUARES
from vips.models.components import tables
from vips.models.components.declarations import columns_declared
from vips.models.tables.columns import Answers, Bins, column_of
from vips.models.tables.logistic import N_ROWS, logistic
from vips.models.tables.mixture import Mixture, fitted
from vips.models.tables.pairs import MANY, Pairs
from vips.models.tables.regression import linear
from vips.models.tables.rules import Rule, obeying, rules_declared
from vips.parts import Part, last_of
from vips.report.report import rows_like_one
from vips.report.unread import Seen, off_bound
from vips.report.words import described, whose

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PairCounts", "PrivateTable"]

_MOST_CELLS = 10_000_000
_EXAMPLE = '{"age": (18, 90), "smoker": ["no", "yes"]}'
_GRID_WEIGHT = 0.15  # of the step that counts numbers, over that of pairs
_LEAST_VARIANCE = 1e-12  # of a column, below which it has no correlation
_MOST_NOISE = 0.5  # deviation of the noise in a correlation, above which it is hidden
_LEAST_OFF = 0.05  # share of the numbers that are not at a bound, below which few may be read
# Share of the variance of middles that is within bins, above which effects have a warning, and above which none; of two bins
# that hold half each it is a third.
_COARSE, _LOST = 0.1, 0.3
_APART = 5.0  # deviations, beyond which answers are not missing at random
_STANDS_OUT = 3.5  # deviations of noise, above which missing cells are seen


@dataclass(frozen=True)
class PairCounts:
    """Totals of a fit, and the noise in them.

    Parameters
    ----------
    totals : ndarray of shape (d, d)
        Σ x xᵀ.
    noise_std : float
        Deviation of diagonal entries; all others have noise_std/√2.
    squares : float
        Σ w² of the records' weights w over Σ w; 1 without weights.
    grid : ndarray of shape (n_cells,)
        Numbers in finer bins, column after column; 0 where no step has counted them.
    grid_noise : float
        Deviation of the noise in each.
    """

    totals: np.ndarray
    noise_std: float
    squares: float
    grid: np.ndarray
    grid_noise: float

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        of_sums = {"totals": self.totals, "noise_std": np.array(self.noise_std), "squares": np.array(self.squares)}
        return of_sums | {"grid": self.grid, "grid_noise": np.array(self.grid_noise)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> PairCounts:
        """Inverse of :meth:`to_arrays`."""
        grid = arrays["grid"], float(arrays["grid_noise"])
        return cls(arrays["totals"], float(arrays["noise_std"]), float(arrays["squares"]), *grid)

    @staticmethod
    def check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
        """Raise ValueError for arrays of a file that no fit has."""
        is_finite = all(np.isfinite(array).all() for array in arrays.values())
        is_positive = all((arrays[name] >= 0.0).all() for name in ("noise_std", "squares", "grid_noise"))
        if not (is_finite and is_positive):
            raise ValueError("its counts are none")


@arguments
class PrivateTable(ConjugateExponentialModel):
    """All cross tables of two columns from one release, with what follows: shares, means, regressions, synthetic rows.

    What is a sum of pairs is exact but for noise of known size, and has intervals for any number of analyses. Synthetic rows
    are drawn from mixtures that were fitted to the pairs; they cost no budget.

    Parameters
    ----------
    columns : mapping of name to declaration, or list of declarations
        By name for data frames; columns that are not named are left out. A declaration is

        - a list of categories (strings and numbers, each once). "(other)" among them stands for all other values. Without it,
          numbers alone are numbers in means and regressions;
        - ``(low, high)``, two numbers or two dates, which are divided into ``n_bins`` bins of one width; whole ones hold whole
          numbers. Or a tuple of edges, ``(0, 18, 65, 100)``; an edge that stands twice, as in ``(0, 0, 1000, 100000)``, is a
          bin of this number alone. Numbers beyond the ends count as these.

        "(missing)" as a category, or at the end of a tuple, makes a missing cell one of the answers. Elsewhere missing cells
        are counted, too, but shares are those of records with an answer, and no synthetic row lacks one.
    n_bins : int
        Of a column of numbers that is declared by two bounds.
    outcome : name of a column, optional
        Whose tables are to have less noise, at the price of all others: the target of regressions, say.
    rules : list of mapping
        Each names two columns and answers that no record has together: ``{"smoker": ["no"], "cigarettes": "(answered)"}``, or
        ``{"age": (0, 15), "married": ["yes"]}`` with a range of edges. A row that breaks one counts as missing in both columns,
        and no synthetic row breaks one.
    missing : mapping of name to values, optional
        Values that stand for a missing cell: ``{"income": (98, 99)}``.
    privacy : PrivacyBudget, PrivacyPlan, StreamPlan or None
        None is an ordinary fit. One full-batch step is enough.
    on_invalid : {"drop", "raise"}
        Has no effect: what cannot be read is a missing cell.
    random_state : int, Generator, RandomState or None
        Seeds the sampling of ordinary fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : PairCounts
        The released totals, and the noise in them.
    privacy_ : PrivacyReport
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    *Privacy.*
    Unit: one row. Relation: add or remove one. Released: noisy counts of all pairs of answers, and of single answers, in every
    step. Public by declaration: all constructor arguments. Which cells exist follows from these alone, and each has noise.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips import PrivacyBudget, PrivateTable
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(18, 91, 20_000)
    >>> smoker = np.where(rng.random(20_000) < 0.4 - 0.003 * age, "yes", "no")
    >>> people = pd.DataFrame({"age": age, "smoker": smoker})
    >>> columns = {"age": (18, 90), "smoker": ["no", "yes"]}
    >>> table = PrivateTable(columns=columns, privacy=PrivacyBudget(epsilon=1.0, delta=1e-6)).fit(people)
    >>> share = table.shares("smoker").loc["yes"]
    >>> bool(share["lower"] < np.mean(smoker == "yes") < share["upper"])
    True
    >>> effect = table.regress("smoker", ["age"]).loc["age"]
    >>> bool(effect["upper"] < 0.0)  # older people smoke less
    True
    >>> table.sample(3, random_state=0).columns.tolist()
    ['age', 'smoker']
    """

    columns: Mapping | Sequence | None = None
    n_bins: int = whole(default=10, low=2, high=1000)
    outcome: object = None
    rules: Sequence = ()
    missing: Mapping | None = None
    on_invalid: str = "drop"

    unit = "one row of X"
    argument = "columns"
    ignores_labels = True
    adds_up = True
    exact_rows = True
    reads_tables = True
    settings_of_meaning = ("columns", "n_bins", "missing", "rules")
    _unlisted = ("argument", "readable_columns")

    # -- the contract -------------------------------------------------------------------------------------------

    @property
    def planned_steps(self) -> int:
        """One for numbers in finer bins, if there are any, and one for pairs: further ones would release the same counts."""
        return 2 if self.columns and self._binned() else 1

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        widths, names = self._widths(), self._names()
        n_cells = (widths.sum() ** 2 - np.square(widths).sum()) // 2
        if n_cells > _MOST_CELLS:
            raise ValueError(
                f"The columns have {n_cells:,} pairs of answers, more than {_MOST_CELLS:,}: declare fewer."
            )
        if self.outcome is not None and self.outcome not in names:
            raise ValueError(f"`outcome` is {self.outcome!r}, which is no declared column.")
        self._rules()

    def check_features(self) -> None:
        """Raise ValueError if the records have another number of columns than are declared."""
        if self.n_features_in_ != len(self._names()):
            raise ValueError(f"X has {self.n_features_in_} columns, but {len(self._names())} are declared.")

    def blocks(self) -> dict[str, Block]:
        d, size = int(self._widths().sum()), float(np.square(self._factors()).sum())
        blocks = {"pairs": Block((d, d), symmetric=True, scale=size)}
        if self._binned() and not isinstance(self.privacy, StreamPlan) and self.plan_of_fit().n_steps > 1:
            blocks["grid"] = Block((self._n_cells(),), scale=float(np.sqrt(len(self._binned()))))
        return blocks | ({"squares": Block((1,), scale=SQUARES_SCALE)} if self._sums_squares else {})

    def phases(self, n_steps: int) -> list[FitPhase]:
        """In a fit of several steps one that counts numbers in finer bins, from which follow averages of bins. Then pairs."""
        blocks = list(self.blocks())
        n_first = int("grid" in blocks and n_steps > 1)
        squares = ", and the sum of squared weights" if self._sums_squares else ""
        grid = FitPhase(
            "grid",
            n_first,
            weight=_GRID_WEIGHT,
            blocks=["grid"],
            statistics="_grid_statistics",
            update=unchanged,
            end=self._with_grid,
            step_size=plain_average,
            released="noisy counts of numbers in finer bins",
        )
        pairs = FitPhase(
            "pairs",
            n_steps - n_first,
            blocks=[name for name in blocks if name != "grid"],
            step_size=plain_average,
            released=f"noisy counts of all pairs of answers of two columns{squares}",
        )
        return [grid, pairs]

    def valid_records(self, records) -> np.ndarray:
        """All of them: what cannot be read is a missing cell."""
        return np.ones(records.shape[0], dtype=bool)

    def expected_statistics(self, records, posterior: PairCounts) -> Joint:
        levels = self._levels(np.asarray(records, dtype=np.float64))
        factors = self._factors()
        rows = np.zeros((len(levels), int(self._widths().sum())))
        rows[np.arange(len(levels))[:, None], levels] = factors
        squares = DenseStatistics({"squares": np.ones((len(levels), 1))})
        return Joint(Quadratic("pairs", rows), *([BySquaredWeights(squares)] if self._sums_squares else []))

    def _grid_statistics(self, records, posterior: PairCounts) -> DenseStatistics:
        """Indicators of the cells of the grid; a missing number has none."""
        values, indicators = np.asarray(records, dtype=np.float64), []
        for place, column in self._binned().items():
            cells = np.eye(len(column.grid.labels))[:, :-1]
            indicators.append(cells[column.grid.levels(values[:, place])])
        return DenseStatistics({"grid": np.hstack(indicators)})

    def _with_grid(self, average, noise_std, previous: PairCounts) -> PairCounts:
        return replace(previous, grid=np.array(average["grid"]), grid_noise=float(noise_std["grid"]))

    def to_posterior(self, average, noise_std, previous) -> PairCounts:
        """The totals, and the ratio of squared weights to weights."""
        grid = (np.zeros(self._n_cells()), 0.0) if previous is None else (previous.grid, previous.grid_noise)
        totals, squares = 0.5 * (average["pairs"] + average["pairs"].T), 1.0
        if "squares" in average:
            size = max(self._pairs_of(totals, float(noise_std["pairs"])).size, 1.0)
            squares = max(float(average["squares"][0]), 0.0) / size
        return PairCounts(totals, float(noise_std["pairs"]), max(squares, 1e-6), *grid)

    def to_noise_aware_posterior(self) -> PairCounts:
        return self.last_posterior_

    def max_record_norm(self) -> float:
        """That of every record."""
        return WITH_SQUARES if self._sums_squares else 1.0

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Full-batch steps."""
        return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=self.planned_steps)

    def default_chunk_size(self) -> int:
        """About 30 MB of rows."""
        if not self.columns:
            return 1024
        return max(64, 4_000_000 // max(int(self._widths().sum()), self._n_cells()))

    def describe(self) -> dict:
        n_levels = sum(len(column.labels) for column in self.readable_columns())
        return described(
            self,
            "hence shares, means, regressions and synthetic rows",
            f"{len(self._names())} columns with {n_levels} answers in all, missing cells included",
            "columns, n_bins, rules and all other constructor arguments",
        )

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, None]:
        columns = self.readable_columns()
        levels = [rng.choice(len(column.labels) - 1, n_records) for column in columns]
        return self._as_table([column.drawn(level, rng) for column, level in zip(columns, levels, strict=True)]), None

    # -- comparisons --------------------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """Shares of the answers of each column."""
        if not isinstance(posterior, PairCounts):
            return super().posterior_parts(posterior)
        pairs, names = self._pairs_of(posterior.totals, posterior.noise_std), self._level_names()
        size = max(pairs.size, 1.0)
        shares = np.clip(pairs.margins / size, 0.0, 1.0)
        variance = np.square(pairs.margin_std() / size) + np.maximum(shares * (1.0 - shares), 1.0 / size) / size
        return [Part("shares", DiagonalGaussian(shares, 1.0 / variance), partial(last_of, names), names)]

    def counts_read(self) -> list[Seen]:
        """From the counts of single answers; those of categories one by one where cells could not be read, and those of numbers
        that are not all at a bound."""
        posterior, seen = self.last_posterior_, []
        pairs = self._pairs_of(posterior.totals, posterior.noise_std)
        std, size_std = pairs.margin_std(), float(np.sqrt(pairs.size_var))
        for name, column, first in zip(self._names(), self._columns_of(posterior), self._starts(), strict=False):
            missing = first + column.missing
            at = np.setdiff1d(first + np.arange(len(column.labels)), missing)
            counts, deviations, values = pairs.margins[at], std[at], ()
            if isinstance(column, Answers) and pairs.margins[missing] > _STANDS_OUT * std[missing]:
                values = [None if label == OTHER else label for label in column.labels if label != MISSING]
            else:
                counts, deviations = counts.sum(keepdims=True), np.sqrt(np.square(deviations).sum(keepdims=True))
            kind = "category" if isinstance(column, Answers) else "date" if column.is_date else "number"
            shown = {"are_independent": False, "may_be_missing": column.has_missing}
            seen.append(read := Seen(repr(name), kind, counts, deviations, pairs.size, size_std, values, **shown))
            if isinstance(column, Bins) and column.counts:
                inner = np.array(column.counts)
                beyond = column.noise_std * np.sqrt(len(inner))
                low, high = (column.text_of(column.edges[i]) for i in (0, -1))
                ends = {f"above {low}": inner[1:], f"below {high}": inner[:-1]}.items()
                seen += [off_bound(read, side, of.sum(keepdims=True), beyond, _LEAST_OFF) for side, of in ends]
        return seen

    # -- methods for users --------------------------------------------------------------------------------------

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Shares of the answers of all columns: see :meth:`shares`."""
        pd = imported("pandas", "summary()")

        frames = {name: self.shares(name, level) for name in self._names()}
        return pd.concat(frames, names=["column", "answer"]).rename_axis(columns=whose(self.privacy_))

    def shares(self, column, level: float = 0.95) -> pd.DataFrame:
        """Shares of the answers of a column, of records that have one.

        Parameters
        ----------
        column : name, or place
        level : float
            Of the intervals, which know the noise, and that the records are a sample.

        Returns
        -------
        pandas.DataFrame
            A row for each answer, with "share", "lower" and "upper".
        """
        pd = imported("pandas", "shares()")

        check_level(level)
        place = self._place(column)
        at, declared = self._answered(place), self._learnt_columns()[place]
        rows = np.zeros((len(at), int(self._widths().sum())))
        rows[np.arange(len(at)), at] = 1.0
        index = pd.Index([declared.labels[i] for i in self._answers_of(place)], name="answer")
        shares, total, noise = self._ratios(rows, rows.sum(axis=0))
        std = np.sqrt(noise + self._sampling(shares, total))
        return self._framed(_limits("share", shares, std, _quantile(level), 0.0, 1.0), index)

    def pairs(self, row, column, level: float = 0.95) -> pd.DataFrame:
        """Shares of the pairs of answers of two columns, of records that have both.

        Parameters
        ----------
        row, column : names, or places
        level : float

        Returns
        -------
        pandas.DataFrame
            A row for each pair, with "share", "lower" and "upper".
        """
        pd = imported("pandas", "pairs()")

        check_level(level)
        j, k = self._place(row), self._place(column)
        if j == k:
            raise ValueError(f"`row` and `column` are both {row!r}: name two columns.")
        columns, table, z = self._learnt_columns(), self._pairs().of_columns(j, k), _quantile(level)
        is_answer = np.outer(*(np.isin(np.arange(len(columns[i].labels)), self._answers_of(i)) for i in (j, k)))
        total = max(float(table[is_answer].sum()), 1.0)
        shares = table[is_answer] / total
        noise = [
            self._pairs().variance_of(j, k, cell - share * is_answer)
            for cell, share in zip(_cells(is_answer), shares, strict=True)
        ]
        std = np.sqrt(np.array(noise) / total**2 + self._sampling(shares, total))
        labels = [[columns[i].labels[place] for place in self._answers_of(i)] for i in (j, k)]
        index = pd.MultiIndex.from_product(labels, names=[str(self._names()[i]) for i in (j, k)])
        return self._framed(_limits("share", shares, std, z, 0.0, 1.0), index)

    def means(self, level: float = 0.95) -> pd.DataFrame:
        """Means of the columns of numbers, and of those of two answers, whose second one counts as 1.

        A number counts as the average of its bin, where a fit has counted in finer bins, else as the middle.

        Returns
        -------
        pandas.DataFrame
            A row for each column, with "mean", "lower" and "upper".
        """
        pd = imported("pandas", "means()")

        check_level(level)
        numbers = {name: self._numbers(place) for place, name in enumerate(self._names())}
        numbers = {name: row for name, row in numbers.items() if row is not None}
        if not numbers:
            raise ValueError("No column holds numbers, or two answers: means of others are their `shares`.")
        results = [self._mean(self._place(name), level) for name in numbers]
        joined = {key: np.concatenate([result[key] for result in results]) for key in ("mean", "lower", "upper")}
        return self._framed(joined, pd.Index(list(numbers), name="column"))

    def correlations(self, level: float = 0.95) -> pd.DataFrame:
        """Correlations of all pairs of columns of numbers, of records that have both: see :meth:`means`.

        Returns
        -------
        pandas.DataFrame
            A row for each pair, with "correlation", "lower" and "upper": NaN where noise hides how a column varies.
        """
        pd = imported("pandas", "correlations()")

        check_level(level)
        names, z = self._names(), _quantile(level)
        places = [place for place in range(len(names)) if self._numbers(place) is not None]
        lost = self._lost_in_bins(places)
        rows = {(j, k): self._correlation(j, k) for j, k in combinations(places, 2)}
        values, std = np.array(list(rows.values())).reshape(-1, 2).T
        is_lost = np.array([bool({j, k} & set(lost)) for j, k in rows], dtype=bool)
        values, std = np.where(is_lost, np.nan, values), np.where(is_lost, np.nan, std)
        index = pd.MultiIndex.from_tuples([(names[j], names[k]) for j, k in rows], names=["column", "other"])
        return self._framed(_limits("correlation", values, std, z, -1.0, 1.0), index)

    def regress(
        self, target, features: Sequence | None = None, level: float = 0.95, *, kind: str = "linear"
    ) -> pd.DataFrame:
        """A regression of a column on others, whose intervals know the noise.

        Parameters
        ----------
        target : name, or place
            A column of numbers, or of two answers, whose second one counts as 1: effects are then differences of shares.
        features : list of names or places, optional
            None: all other columns. Numbers count as the middles of their bins, with squares corrected for the width.
            Categories are compared with the one that was released as the most frequent. Sums of two columns are those of
            records with both answers, as if others were missing completely at random.
        level : float
        kind : {"linear", "logistic"}
            Least squares; or log odds of the second of two answers, which take a few seconds.

        Returns
        -------
        pandas.DataFrame
            A row for each feature, and "(intercept)", with "effect", "lower" and "upper"; no limits, and no effect, where noise
            hides it, or columns that vary together.

        Warns
        -----
        PrivacyWarning
            If effects are hidden, or many records have no answer: it names them.
        """
        pd = imported("pandas", "regress()")

        check_level(level)
        place, z = self._place(target), _quantile(level)
        goal = self._numbers(place)
        check_choice("kind", kind, ("linear", "logistic"))
        if goal is None or (kind == "logistic" and isinstance(self._learnt_columns()[place], Bins)):
            holds, needs = ("numbers", "") if goal is not None else ("more than two categories", "numbers, or ")
            raise ValueError(f"Column {target!r} holds {holds}: a {kind} regression needs {needs}two answers.")
        if isinstance(features, str):
            raise TypeError(f"`features` must be a list of columns: [{features!r}], say.")
        others = [self._place(name) for name in (features if features is not None else self._names())]
        others = [j for j in others if j != place or features is not None]
        if place in others or not others or len(set(others)) < len(others):
            raise ValueError(f"`features` must name other columns than {target!r}, at least one, and each once.")
        numeric = [j for j in [*others, place] if self._numbers(j) is not None]
        lost = self._lost_in_bins(numeric)
        is_counted = self._counted([*others, place])
        pairs = self._pairs().among(is_counted)
        rows, of_columns, names, centre = self._features(pairs, is_counted, others)
        within = np.concatenate([column.within for column in self._learnt_columns()])
        asked = pairs, rows, of_columns, goal, place, within, self._records_like_one()
        if kind == "linear":
            effects = linear(*asked)
        else:
            drawn = self._mixture_of_fit().drawn(N_ROWS, self._starts(), np.random.default_rng(0))
            effects = logistic(*asked, drawn + self._starts()[:-1])
        effects = effects.from_origin(centre)
        is_hidden = effects.is_hidden | np.isin([*of_columns, -1], lost) | (place in lost)
        if self._are_selected(pairs, [*others, place]) and kind == "logistic":
            is_hidden[:] = True
        is_hidden[-1] |= is_hidden[:-1].all() or bool(set(lost) & set(of_columns))
        values, std = (
            np.where(is_hidden, np.nan, numbers)
            for numbers in (effects.estimate, np.sqrt(np.maximum(np.diag(effects.covariance), 0.0)))
        )
        _warn_of_hidden([name for name, hidden in zip(names, effects.is_hidden, strict=False) if hidden])
        index = pd.Index([*names, "(intercept)"], name="feature")
        return self._framed(_limits("effect", values, std, z, -np.inf, np.inf), index)

    def sample(self, n_samples: int = 1, random_state: RandomStateLike = None, *, given: Mapping | None = None) -> Any:
        """Synthetic rows, as private as the fit.

        They are drawn from mixtures that were fitted to the pairs, with numbers as the finer bins have counted them, and
        uniform within. Analyses of synthetic rows do not know the noise, so that their intervals do not hold: use the tables
        themselves.

        Parameters
        ----------
        n_samples : int
        random_state : int, Generator, RandomState or None
        given : mapping of name to answer, optional
            Rows that have these answers, of the categories or labels of ``shares``.

        Returns
        -------
        data frame, or ndarray of shape (n_samples, n_columns)
            What was fitted, without missing cells but where "(missing)" is declared.
        """
        check_is_fitted(self, "last_posterior_")
        check_integer("n_samples", n_samples, 0)
        rng, starts, columns = as_generator(random_state), self._starts(), self._learnt_columns()
        mixture = self._mixture_of_fit()
        if given:
            mixture = mixture.given([self._level(name, answer) for name, answer in given.items()], starts)
        levels = mixture.drawn(n_samples, starts, rng)
        return self._as_table([column.drawn(level, rng) for column, level in zip(columns, levels.T, strict=True)])

    def to_html(self, path: str | os.PathLike, *, title: str = "Private table", level: float = 0.95) -> None:
        """Write a page for readers of the release: one HTML file that needs no network.

        It begins with the guarantee, says which answers noise hides and which rules hold, and lists shares, means and cross
        tables of up to 400 cells with their limits.

        Parameters
        ----------
        path : str or path
            An existing file is replaced when the new one is complete.
        title : str
        level : float
            Of the limits.

        Raises
        ------
        ImportError
            Without Jinja2 or pandas.
        OSError
            If the file cannot be written; an existing file is then unchanged.
        """
        check_is_fitted(self, "last_posterior_")
        check_level(level)
        for library in ("jinja2", "pandas"):
            imported(library, "to_html()")
        from vips.models.tables.page import write_table

        missing = self._unanswered(np.concatenate([self._answered(place) for place in range(len(self._names()))]))
        write_table(path, self, self._pairs(), missing, title, level)

    @property
    def has_numbers(self) -> bool:
        """Whether a column holds numbers, or two answers."""
        return any(self._numbers(place) is not None for place in range(len(self._names())))

    def column_names(self) -> list[str]:
        """Names of the columns, or x0, x1, … where there are none."""
        return [str(name) if isinstance(name, str) else f"x{name}" for name in self._names()]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags

    # -- columns ------------------------------------------------------------------------------------------------

    @property
    def declared_columns(self) -> object:
        """The argument that declares them."""
        return self.columns

    def readable_columns(self) -> list[Answers | Bins]:
        """How the cells of each column are read."""
        nothing = {
            name: tuple(values) if isinstance(values, list | tuple | set) else (values,)
            for name, values in (self.missing or {}).items()
        }

        def column_named(name: object, declared: object) -> Answers | Bins:
            return column_of(declared, repr(name), self.n_bins, nothing.pop(name, ()))

        columns = columns_declared("columns", self.columns, column_named, _EXAMPLE)
        if nothing:
            raise ValueError(f"`missing` names {next(iter(nothing))!r}, which is no declared column.")
        return columns

    def check_source(self, source: DataSource) -> None:
        tables.check_source(source, self, self.readable_columns())

    def table_of(self, X, y) -> InMemoryData:
        return InMemoryData(tables.read_table(self, X, reset=True))

    def _binned(self) -> dict[int, Bins]:
        """Columns of numbers, by place."""
        return {place: column for place, column in enumerate(self.readable_columns()) if isinstance(column, Bins)}

    def _n_cells(self) -> int:
        return sum(len(column.grid.bounds) for column in self._binned().values())

    def _cells_by_column(self, cells: np.ndarray) -> list[np.ndarray]:
        stops = np.cumsum([len(column.grid.bounds) for column in self._binned().values()])
        return np.split(cells, stops[:-1]) if len(stops) else []

    def _learnt_columns(self) -> list[Answers | Bins]:
        """Columns with the counts in finer bins."""
        check_is_fitted(self, "last_posterior_")
        return self.once("columns", lambda: self._columns_of(self.last_posterior_))

    def _columns_of(self, posterior: PairCounts) -> list[Answers | Bins]:
        columns = self.readable_columns()
        if posterior.grid.any():
            for (place, column), counts in zip(
                self._binned().items(), self._cells_by_column(posterior.grid), strict=True
            ):
                columns[place] = replace(column, counts=tuple(counts), noise_std=posterior.grid_noise)
        return columns

    def _names(self) -> list:
        return list(self.columns) if isinstance(self.columns, Mapping) else list(range(len(self.columns or ())))

    def _place(self, name) -> int:
        """The place of a column."""
        check_is_fitted(self, "last_posterior_")
        if name not in self._names():
            raise ValueError(
                f"There is no column {name!r}: the columns are {listed([repr(name) for name in self._names()])}."
            )
        return self._names().index(name)

    def _level(self, name, answer) -> int:
        """Place of an answer among the levels of all columns."""
        place = self._place(name)
        labels = self._learnt_columns()[place].labels
        if answer not in labels:
            raise ValueError(
                f"Column {name!r} has no answer {answer!r}: its answers are {listed([repr(label) for label in labels])}."
            )
        return int(self._starts()[place]) + labels.index(answer)

    def _widths(self) -> np.ndarray:
        """Number of levels of each column."""
        return np.array([len(column.labels) for column in self.readable_columns()])

    def _starts(self) -> np.ndarray:
        """First level of each column, and the number of all, shape (n_columns + 1,)."""
        return np.concatenate([[0], np.cumsum(self._widths())])

    def _level_names(self) -> list[str]:
        columns = zip(self.column_names(), self._learnt_columns(), strict=True)
        return [f"{name}: {label}" for name, column in columns for label in column.labels]

    def _factors(self) -> np.ndarray:
        """c_j."""
        squares = self._widths() ** (1.0 / 3.0)
        if self.outcome is not None:
            place = self._names().index(self.outcome)
            squares[place] = np.sqrt(squares[place] * max(squares.sum() - squares[place], squares[place]))
        return np.sqrt(squares)

    def _rules(self) -> list[Rule]:
        return rules_declared(self.rules, dict(zip(self._names(), self.readable_columns(), strict=True)))

    def _levels(self, values: np.ndarray) -> np.ndarray:
        """Levels of records, counted over all columns, shape (n_records, n_columns)."""
        columns, starts = self.readable_columns(), self._starts()[:-1]
        levels = np.column_stack([column.levels(cells) for column, cells in zip(columns, values.T, strict=True)])
        missing = starts + np.array([column.missing for column in columns])
        return obeying(levels + starts, self._rules(), missing)

    @property
    def _sums_squares(self) -> bool:
        """Whether there are weights, so that the variance of sums is that of their squares."""
        return self.plan_of_fit().max_weight is not None

    def _as_table(self, cells: list[np.ndarray]) -> Any:
        """A data frame with the names and dtypes of the fitted one; an array if that was one."""
        if not isinstance(self.columns, Mapping) and not hasattr(self, "column_dtypes_"):
            are_numbers = all(column.dtype.kind == "f" for column in cells)
            return (
                np.column_stack(cells) if are_numbers else np.column_stack([column.astype(object) for column in cells])
            )
        pd = imported("pandas", "A data frame")

        names = getattr(self, "column_names_", self._names())
        dtypes = getattr(self, "column_dtypes_", [None] * len(cells))
        return pd.DataFrame({
            name: series if dtype is None else tables.with_dtype(series, dtype)
            for name, series, dtype in zip(names, map(pd.Series, cells), dtypes, strict=True)
        })  # fmt: skip

    # -- what follows from the counts ---------------------------------------------------------------------------

    def _pairs(self) -> Pairs:
        """The tables of the fit, brought into agreement."""
        check_is_fitted(self, "last_posterior_")
        posterior = self.posterior_
        return self.once("pairs", lambda: self._pairs_of(posterior.totals, posterior.noise_std))

    def _pairs_of(self, totals: np.ndarray, noise_std: float) -> Pairs:
        squares, column = np.square(self._factors()), np.repeat(np.arange(len(self._widths())), self._widths())
        var = 1.0 / np.outer(squares, squares)
        var *= np.where(np.eye(len(squares), dtype=bool), 1.0, 0.5)
        factors = np.sqrt(squares)[column]
        return Pairs.of(totals / np.outer(factors, factors), column, var, noise_std**2)

    def _mixture_of_fit(self) -> Mixture:
        return self.once("mixture", self._mixture)

    def _mixture(self) -> Mixture:
        """Fitted to the pairs; a level of missing cells that is not declared is none of its answers."""
        mixture = fitted(self._pairs(), self._rules(), np.random.default_rng(0))
        chances, starts = mixture.chances.copy(), self._starts()
        for first, column in zip(starts, self._learnt_columns(), strict=False):
            if not column.has_missing:
                chances[:, first + column.missing] = 0.0
        sums = np.add.reduceat(chances, starts[:-1], axis=1)
        shares = mixture.shares * (sums > 0.0).all(axis=1)
        if not shares.any():
            raise ValueError("No row can obey all rules: leave one of them out.")
        column = self._pairs().column
        return Mixture(shares / shares.sum(), chances / np.where(sums > 0.0, sums, 1.0)[:, column])

    def _records_like_one(self) -> float:
        """How many records tell no more than one, by rows of persons and weights."""
        return self.posterior_.squares * rows_like_one(self.privacy_)

    def _sampling(self, shares: np.ndarray, total: float) -> np.ndarray:
        """Variance of shares of so many records, which are a sample."""
        n = max(total / self._records_like_one(), 1.0)
        inside = np.clip(shares, 1.0 / n, 1.0 - 1.0 / n) if n > 2.0 else np.full(len(shares), 0.5)
        return inside * (1.0 - inside) / n

    def _correlation(self, j: int, k: int) -> tuple[float, float]:
        """The correlation of two columns, and its deviation by noise and by sampling, from the influence of each cell on it."""
        pairs, columns = self._pairs(), self._learnt_columns()
        table = pairs.of_columns(j, k)
        is_number = np.outer(~np.isnan(columns[j].numbers), ~np.isnan(columns[k].numbers))
        u, v = np.meshgrid(np.nan_to_num(columns[j].numbers), np.nan_to_num(columns[k].numbers), indexing="ij")
        total = max(float(table[is_number].sum()), 1.0)
        shares = np.where(is_number, table, 0.0) / total
        u, v = u - (shares * u).sum(), v - (shares * v).sum()
        within = shares.sum(axis=1) @ columns[j].within, shares.sum(axis=0) @ columns[k].within
        variances = (shares * u**2).sum() - within[0], (shares * v**2).sum() - within[1]
        if min(variances) <= _LEAST_VARIANCE:
            return np.nan, np.nan
        u, v = u / np.sqrt(variances[0]), v / np.sqrt(variances[1])
        value = (shares * u * v).sum()
        influence = np.where(is_number, u * v - 0.5 * value * (u**2 + v**2), 0.0)
        noise = pairs.variance_of(j, k, influence) / total**2
        sampling = self._records_like_one() * max((shares * influence**2).sum(), 0.0) / total
        return (value, np.sqrt(noise + sampling)) if noise < _MOST_NOISE**2 else (np.nan, np.nan)

    def _framed(self, columns: Mapping[str, np.ndarray], index) -> pd.DataFrame:
        """A data frame, which says whose shares and effects it is about where persons have several rows."""
        return imported("pandas", "A table").DataFrame(columns, index=index).rename_axis(columns=whose(self.privacy_))

    def _answers_of(self, place: int) -> np.ndarray:
        """Places of the answers of a column among its levels."""
        return self._answered(place) - self._starts()[place]

    def _answered(self, place: int, without_nan: bool = False) -> np.ndarray:
        """Places of the answers of a column among all levels."""
        column = self._learnt_columns()[place]
        is_answer = np.arange(len(column.labels)) != column.missing
        if column.has_missing and not without_nan:
            is_answer[:] = True
        if without_nan and column.numbers is not None:
            is_answer &= ~np.isnan(column.numbers)
        return self._starts()[place] + np.flatnonzero(is_answer)

    def _numbers(self, place: int) -> np.ndarray | None:
        """What each level counts in a column, shape (d,), 0 for what is no number; None without numbers."""
        column, row = self._learnt_columns()[place], np.zeros(int(self._widths().sum()))
        if column.numbers is None:
            return None
        at = self._answered(place, without_nan=True)
        row[at] = column.numbers[at - self._starts()[place]]
        return row

    def _lost_in_bins(self, places: Sequence[int]) -> list[int]:
        """Columns with so much of their variance within bins, about which nothing is known, that they get no effect. It warns
        of those, and of others with less."""
        lost = {}
        for place in places:
            column, at = self._learnt_columns()[place], self._answered(place, without_nan=True)
            levels = at - self._starts()[place]
            counts = self._pairs().margins[at]
            counts = np.where(counts > _STANDS_OUT * self._pairs().margin_std()[at], counts, 0.0)
            shares, middles = counts / max(counts.sum(), 1.0), column.numbers[levels]
            within, variance = shares @ column.within[levels], shares @ np.square(middles - shares @ middles)
            # the variance of middles holds that within bins (Sheppard)
            lost[place] = within / max(variance, 1e-6 * within, 1e-300)
        coarse = [repr(self._names()[place]) for place, share in lost.items() if share > _COARSE]
        if coarse and not self.privacy_.only_noise:
            warnings.warn(
                f"Bins are coarse for {listed(coarse)}: numbers count as the middles of bins, which limits do not know. "
                "Declare nearer bounds, edges such as (0, 10, 20, 50, 1000), or a larger n_bins.",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )
        return [place for place, share in lost.items() if share > _LOST]

    def _counted(self, places: Sequence[int]) -> np.ndarray:
        """Levels that a regression on these columns counts, shape (d,): it warns where many records have others."""
        is_counted = np.zeros(int(self._widths().sum()), dtype=bool)
        for place in range(len(self._names())):
            has_numbers = place in places and self._learnt_columns()[place].numbers is not None
            is_counted[self._answered(place, without_nan=has_numbers)] = True
        missing = self._unanswered(is_counted)
        if many := [f"{self._names()[place]!r} ({missing[place]:.0%})" for place in places if missing[place] > MANY]:
            warnings.warn(
                f"Records without an answer are left out of sums as if they were missing at random: {listed(many)}.",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )
        return is_counted

    def _unanswered(self, answers: np.ndarray) -> np.ndarray:
        """Share of the records at none of these levels (places or a mask), for each column."""
        pairs, others = self._pairs(), self._pairs().margins.copy()
        others[answers] = 0.0
        return np.bincount(pairs.column, others) / max(pairs.size, 1.0)

    def _are_selected(self, pairs: Pairs, places: Sequence[int]) -> bool:
        """Whether records with an answer in one of these columns differ in another one from those with one there: rows of their
        tables then miss the margins by more than noise and chance do. It warns of that."""
        apart = {}
        for j, k in permutations(places, 2):
            rows, margins = pairs.of_columns(j, k).sum(axis=1), pairs.margins[pairs.column == j]
            noise = (pairs.column == k).sum() * pairs.cell_var[j, k] + pairs.margin_var[j] + 1.0
            chance = self._records_like_one() * np.maximum(margins, 0.0) * max(pairs.raised[k] - 1.0, 0.0)
            apart[j, k] = float(np.abs((rows - margins) / np.sqrt(noise + chance)).max())
        names = [f"{self._names()[k]!r} by {self._names()[j]!r}" for (j, k), by in apart.items() if by > _APART]
        if names and not self.privacy_.only_noise:
            warnings.warn(
                f"Answers are not missing at random: whether there is one of {listed(names)}. Sums of two columns are then of "
                "different people, so that effects may be off, and log odds are not given. Declare "
                "'(missing)' as an answer, or leave the column out.",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )
        return bool(names)

    def _features(
        self, pairs: Pairs, is_counted: np.ndarray, places: Sequence[int]
    ) -> tuple[np.ndarray, list[int], list[str], np.ndarray]:
        """Rows of features and of the constant; columns and names of the features, and what was taken off each."""
        columns, names = self._learnt_columns(), self.column_names()
        rows, of_columns, titles = [], [], []
        for place in places:
            column, at = columns[place], self._answered(place)
            numbers = self._numbers(place)
            if numbers is not None:
                rows.append(numbers)
                of_columns.append(place)
                titles.append(names[place])
                continue
            usual = at[np.argmax(pairs.margins[at])]
            for level in at[at != usual]:
                rows.append(np.eye(1, len(pairs.column), level)[0])
                of_columns.append(place)
                answer, other = (column.labels[i - self._starts()[place]] for i in (level, usual))
                titles.append(f"{names[place]}: {answer} vs {other}")
        features = np.array(rows)
        centre = features @ pairs.margins / max(pairs.size, 1.0)
        is_own = is_counted & (pairs.column == np.array(of_columns)[:, None])
        return np.vstack([features - centre[:, None] * is_own, is_counted / len(columns)]), of_columns, titles, centre

    def _ratios(self, rows: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """Sums over one column divided by the sum over its answers; that sum; and the variance of the noise.

        Parameters
        ----------
        rows : ndarray of shape (q, d)
            What each level counts.
        base : ndarray of shape (d,)
            1 for each level that is an answer.
        """
        pairs = self._pairs()
        total = max(float(base @ pairs.margins), 1.0)
        values = rows @ pairs.margins / total
        off = rows - values[:, None] * base
        return values, total, pairs.variances(off, np.full_like(off, 1.0 / len(self._widths()))) / total**2

    def _mean(self, place: int, level: float) -> dict[str, np.ndarray]:
        """The mean of a column and its limits, which know how far averages of bins are known."""
        column, margins = self._learnt_columns()[place], self._pairs().margins
        at = self._answered(place, without_nan=True)
        levels = at - self._starts()[place]
        row, base = np.zeros((1, len(margins))), np.zeros(len(margins))
        row[0, at], base[at] = column.averages[levels], 1.0
        value, total, noise = self._ratios(row, base)
        shares = np.maximum(margins[at], 0.0) / total
        spread = shares @ (np.square(column.averages[levels] - value) + column.within[levels])
        variance = noise + self._records_like_one() * spread / total + np.square(shares) @ column.unknown[levels]
        ends = column.averages[levels] if isinstance(column, Answers) else np.array(column.edges)
        return _limits("mean", value, np.sqrt(variance), _quantile(level), ends.min(), ends.max())


def _cells(is_answer: np.ndarray) -> Iterator[np.ndarray]:
    """For each answered cell of a table the table with a 1 there."""
    for place in zip(*np.nonzero(is_answer), strict=True):
        cell = np.zeros(is_answer.shape)
        cell[place] = 1.0
        yield cell


def _quantile(level: float) -> float:
    return float(ndtri(0.5 + 0.5 * level))


def _limits(name: str, values, std, z: float, low, high) -> dict[str, np.ndarray]:
    """An estimate below what is possible does not narrow its limits."""
    values = np.clip(values, low, high)
    return {name: values, "lower": np.maximum(values - z * std, low), "upper": np.minimum(values + z * std, high)}


def _warn_of_hidden(names: list[str]) -> None:
    if names:
        warnings.warn(
            f"Noise, or columns that vary together, hide effects: {listed(names)}. They have no limits. Fewer features, more "
            "records, a larger epsilon, or outcome= help.",
            PrivacyWarning,
            stacklevel=levels_to_user(),
        )
