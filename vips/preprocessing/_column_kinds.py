"""What a column is declared to be, and the features of its cells. For how these are read see ``data/_declared_dtypes.py``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from numbers import Real

import numpy as np
import scipy.sparse as sp

from vips._support.printable import listed
from vips.data._cell_values import as_numbers, category_of, day_of, is_missing
from vips.data._declared_dtypes import (
    MISSING,
    OTHER,
    check_holds_categories,
    check_holds_numbers,
    codes_among,
    refuse_bounds_in_list,
)
from vips.parts import FeatureTotals
from vips.report.unread import Seen

__all__ = ["MISSING", "OTHER", "Categories", "Number", "distinct", "kind_of_column", "names_of_columns"]

# Mean square of numbers in [-1, 1] below which a column may be called unread: they are near the middle of the bounds.
_LEAST_SQUARE = 0.01
_MOST_NAMED = 30  # categories of a column in a report


@dataclass(frozen=True)
class Number:
    """A number between bounds becomes one between -1 and 1, after clipping; a missing one becomes 0, the middle.

    Parameters
    ----------
    low, high : float
    is_date : bool
        Whether it counts days since 1970-01-01.
    has_missing : bool
        Whether a second feature says that the number is missing. One of the two is 0.
    average : float, optional
        What a missing number becomes, if the second feature is not to say so.
    """

    low: float
    high: float
    is_date: bool = False
    has_missing: bool = False
    average: float | None = None

    categories = None

    @property
    def n_features(self) -> int:
        return 1 + self.has_missing

    def __str__(self) -> str:
        return " to ".join(map(self.text_of, (self.low, self.high)))

    @property
    def middle(self) -> str:
        """What a missing number becomes, in words."""
        return self.text_of(0.5 * (self.low + self.high))

    def text_of(self, number: float) -> str:
        """A number of the column in the words in which its bounds are declared."""
        if not self.is_date:
            return f"{number:.15g}"
        is_day = number == int(number)
        return str(np.datetime64(int(number), "D") if is_day else np.datetime64(round(number * 86400), "s"))

    def check(self, dtype, title: str, where: str, in_frame: bool) -> None:
        """Raise TypeError or ValueError for a dtype that cannot hold such numbers."""
        check_holds_numbers(dtype, title, where, in_frame, self.is_date)

    def fill(self, values, features: np.ndarray) -> None:
        """Write into zeros of shape (n_rows, n_features)."""
        numbers = as_numbers(values, "date" if self.is_date else "number")
        missing = np.isnan(numbers)
        with np.errstate(all="ignore"):
            shares = (np.clip(numbers, self.low, self.high) - self.low) / (self.high - self.low)
            features[:, 0] = np.where(missing, self.average or 0.0, 2.0 * shares - 1.0)
        if self.has_missing and self.average is None:
            features[:, 1] = missing

    def averaged(self, totals: FeatureTotals) -> Number:
        """The same column, where a missing number becomes the records' average, unless a feature learnt what missing means."""
        if self.has_missing and totals.stand_out[1]:
            return self
        return replace(self, average=float(np.clip(totals.means[0], -1.0, 1.0)))

    def counts_read(self, title: str, totals: FeatureTotals) -> Seen:
        """What was read: by the feature of missing numbers, else by squares, which are 0 for these and for the middle."""
        kind, size = "date" if self.is_date else "number", (totals.size, totals.size_std)
        if not self.has_missing:
            return Seen(title, kind, totals.squares, totals.noise_std, *size, least=_LEAST_SQUARE, may_be_missing=True)
        counts, std = totals.size - totals.squares[1:], totals.noise_std[1:] + totals.size_std
        return Seen(title, kind, counts, std, *size, may_be_missing=True)

    def sparse_features(self, values) -> sp.csr_array:
        """Shape (n_rows, n_features)."""
        features = np.zeros((len(values), self.n_features))
        self.fill(values, features)
        return sp.csr_array(features)


@dataclass(frozen=True)
class Categories:
    """A category becomes an indicator; a value that is none of them becomes zeros, or ``OTHER``, or ``MISSING``.

    Parameters
    ----------
    categories : tuple
        Strings, numbers, truth values. ``OTHER`` and ``MISSING`` among them stand for all other values and for missing ones.
    average : tuple of float
        What a value that is none of them becomes; empty for zeros.
    empty : tuple
        ``OTHER`` or ``MISSING``, if values of theirs are to become that, too.
    """

    categories: tuple
    average: tuple[float, ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def n_features(self) -> int:
        return len(self.categories)

    def __str__(self) -> str:
        return listed([str(category) for category in self.categories], _MOST_NAMED)

    def check(self, dtype, title: str, where: str, in_frame: bool) -> None:
        """Raise TypeError or ValueError if no value of a column of this dtype could match."""
        named = [category for category in self.categories if category not in (OTHER, MISSING)]
        check_holds_categories(dtype, title, named)

    def codes(self, values) -> np.ndarray:
        """Position of each value among the categories, -1 if it has none; shape (n_rows,)."""
        return codes_among(values, self.categories, dict.fromkeys(self.empty, -1))

    def fill(self, values, features: np.ndarray) -> None:
        """Write into zeros of shape (n_rows, n_categories)."""
        codes = self.codes(values)
        known = np.flatnonzero(codes >= 0)
        features[known, codes[known]] = 1.0
        if self.average:
            features[codes < 0] = self.average

    def sparse_features(self, values) -> sp.csr_array:
        """Shape (n_rows, n_categories)."""
        average = sp.csr_array(np.atleast_2d(self.average or np.zeros(self.n_features)))
        return sp.vstack([sp.eye_array(self.n_features), average], format="csr")[self.codes(values)]

    def counts_read(self, title: str, totals: FeatureTotals) -> Seen:
        """Counts of the categories, of which those of missing values are none."""
        is_read = np.array([category != MISSING for category in self.categories])
        values = [None if category == OTHER else category for category in self.categories if category != MISSING]
        counts, std, may_be_missing = totals.squares[is_read], totals.noise_std[is_read], not is_read.all()
        size = totals.size, totals.size_std
        return Seen(title, "category", counts, std, *size, values, are_independent=False, may_be_missing=may_be_missing)

    def averaged(self, totals: FeatureTotals) -> Categories:
        """The same column, where a value that says nothing becomes the average of the categories, by their records.

        Such are values that are none of the categories, and those of ``OTHER`` and ``MISSING`` where no records can be told
        from noise: there, noise alone has made the coefficient.
        """
        is_rest = np.array([category in (OTHER, MISSING) for category in self.categories])
        is_seen = totals.stand_out
        records = np.where(is_seen, totals.squares, 0.0) if is_seen.any() else np.where(is_rest, 0.0, 1.0)
        shares = records / (records.sum() or 1.0)
        empty = tuple(np.array(self.categories, dtype=object)[is_rest & ~is_seen])
        return replace(self, average=tuple(shares.tolist()), empty=empty)


def kind_of_column(declared, title: str, is_date: bool = False) -> Number | Categories:
    """What a declaration says about the column ``title``; ``is_date`` says that numbers are days since 1970. TypeError or
    ValueError if it is neither a pair of bounds nor a list of categories."""
    if isinstance(declared, tuple) and len(declared) in (2, 3) and declared[2:] in ((), (MISSING,)):
        bounds = declared[:2]
        if all(map(_is_number, bounds)):
            return _number(bounds, title, is_date, len(declared) == 3)
        if all(isinstance(bound, date | np.datetime64) and not is_missing(bound) for bound in bounds):
            return _number(tuple(map(day_of, bounds)), title, True, len(declared) == 3)
    if isinstance(declared, list):
        refuse_bounds_in_list(declared[:2] if declared[2:] == [MISSING] else declared, title)
        return _categories(declared, title)
    raise TypeError(
        f"Column {title} is declared as {declared!r}: write a tuple of two numbers or dates, (low, high), for a numeric "
        "column, and a list of categories, [...], for any other."
    )


def _is_number(bound) -> bool:
    return isinstance(bound, Real) and not isinstance(bound, bool | np.bool_ | np.timedelta64)


def _number(pair: tuple, title: str, is_date: bool, has_missing: bool) -> Number:
    low, high = map(float, pair)
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"The bounds of column {title} must be finite, with low < high, got {pair!r}.")
    return Number(low, high, is_date, has_missing)


def _categories(values: list, title: str) -> Categories:
    if not values:
        raise TypeError(f"The categories of column {title} must be a list with at least one entry, got {values!r}.")
    for value in values:
        if category_of(value) is None:
            raise ValueError(
                f"The categories of column {title} must be strings or finite numbers, got {value!r}. Missing values have no "
                f'category: their indicators are all zero. To give them one, add the category "{MISSING}".'
            )
    if len({category_of(value) for value in values}) != len(values):
        raise ValueError(f"The categories of column {title} hold a value twice.")
    return Categories(tuple(values))


def distinct(names: Sequence[str], precise: Sequence[str]) -> list[str]:
    """The names, where they differ. A name that occurs several times gives way to its precise form, or else to a number.

    Examples
    --------
    >>> distinct(["job_b_c", "job_b_c", "age"], ["job='b_c'", "job_b='c'", "age"])
    ["job='b_c'", "job_b='c'", 'age']
    """
    counts = Counter(names)
    wanted = [full if counts[name] > 1 else name for name, full in zip(names, precise, strict=True)]
    taken, result = set(), []
    for name in wanted:
        number, candidate = 2, name
        while candidate in taken or (number > 2 and candidate in wanted):
            candidate, number = f"{name} ({number})", number + 1
        taken.add(candidate)
        result.append(candidate)
    return result


def names_of_columns(columns: Iterable[tuple[object, object]]) -> list[str]:
    """Names of the features of columns: ``age`` for a number, ``age_missing`` behind it, ``job_nurse`` for a category.

    Columns are pairs of name and kind: see ``_column_kinds.py``.
    """
    names, precise = [], []
    for column, kind in columns:
        if kind.categories is None:
            names += [str(column), f"{column}_missing"][: kind.n_features]
            precise += [str(column), f"{column} is missing"][: kind.n_features]
        else:
            names += [f"{column}_{category}" for category in kind.categories]
            precise += [f"{column}={category!r}" for category in kind.categories]
    return distinct(names, precise)
