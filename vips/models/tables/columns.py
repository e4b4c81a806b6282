"""What each column of a table is declared to hold, and the level of each of its cells.

A level is an answer, or a bin of numbers or dates. Every column has a level for cells that are missing or cannot be read: each
record has one level in each column, whatever it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from numbers import Integral, Real

import numpy as np

from vips.data._cell_values import as_categories, as_numbers, category_of, day_of
from vips.data._declared_dtypes import (
    MISSING,
    OTHER,
    check_holds_categories,
    check_holds_numbers,
    codes_among,
    refuse_bounds_in_list,
)

__all__ = ["Answers", "Bins", "column_of"]

_FINER = 20  # bins of the grid for each bin
_SEEN = 2.0  # deviations of noise that a bin is taken to hold at least


@dataclass(frozen=True)
class Answers:
    """A column of categories.

    Parameters
    ----------
    categories : tuple
        Strings and numbers, each once. ``OTHER`` among them stands for all other values, ``MISSING`` for missing ones.
    nothing : tuple
        Further values that stand for a missing cell.
    """

    categories: tuple
    nothing: tuple = ()

    @property
    def has_missing(self) -> bool:
        """Whether a missing cell is one of the answers."""
        return MISSING in self.categories

    @property
    def labels(self) -> tuple:
        """What the levels are; the last one of a column without ``MISSING`` holds what was not read."""
        return self.categories if self.has_missing else (*self.categories, MISSING)

    @property
    def missing(self) -> int:
        """The level of a cell that holds nothing that can be read."""
        return self.labels.index(MISSING)

    @property
    def takes_codes(self) -> bool:
        """Whether the categories are the codes 0, 1, … themselves."""
        return self._named == list(range(len(self._named)))

    @property
    def _named(self) -> list:
        return [category for category in self.categories if category not in (OTHER, MISSING)]

    @cached_property
    def numbers(self) -> np.ndarray | None:
        """What each level counts in means and regressions, NaN for ``MISSING``: numbers are themselves; of two answers the
        first is 0, the second 1. None for other categories, and where ``OTHER`` is among them, which is no number."""
        are_numbers = all(isinstance(category, Real) for category in self._named)
        if OTHER in self.categories or not (are_numbers or len(self._named) == 2):
            return None
        numbers = map(float, self._named) if are_numbers else (0.0, 1.0)
        values = dict(zip(self._named, numbers, strict=True))
        return np.array([values.get(label, math.nan) for label in self.labels])

    @property
    def wrong(self) -> str:
        """What a cell is that cannot be read, in words."""
        return f"none of its categories, such as {self.categories[0]!r}"

    @property
    def averages(self) -> np.ndarray | None:
        """The same: an answer is known."""
        return self.numbers

    @property
    def within(self) -> np.ndarray:
        """Variance of the numbers of a level: 0."""
        return np.zeros(len(self.labels))

    unknown = within

    def check(self, dtype, title: str, where: str) -> None:
        """Raise TypeError or ValueError if no value of a column of this dtype could match."""
        check_holds_categories(dtype, title, self._named)

    def read(self, cells) -> np.ndarray:
        """Codes of the cells, -1 for what is missing or cannot be read."""
        nothing = dict.fromkeys([*map(category_of, self.nothing), MISSING], -1)
        return codes_among(cells, self.categories, nothing).astype(np.float64)

    def is_read(self, values: np.ndarray, cells) -> np.ndarray:
        """Which of the cells, read as these codes, are answers, or stand for a missing one."""
        nothing = {*map(category_of, self.nothing), MISSING}
        return (values >= 0) | np.array([category in nothing for category in as_categories(cells)], dtype=bool)

    def levels(self, codes: np.ndarray) -> np.ndarray:
        """Levels of codes, each from its own alone."""
        is_code = (codes >= 0) & (codes < len(self.categories)) & (codes == np.floor(codes))
        return np.where(is_code, codes, self.missing).astype(np.int64)

    def drawn(self, levels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Cells at these levels: objects; None where nothing is known."""
        values = np.empty(len(self.labels), dtype=object)
        values[:] = [None if label == MISSING else label for label in self.labels]
        return values[levels]

    def places(self, answers: object, title: str) -> np.ndarray:
        """The levels that a rule names, shape (n_levels,), bool; ``"(answered)"`` stands for all but ``MISSING``."""
        listed = answers if isinstance(answers, list | tuple | set) else [answers]
        if "(answered)" in listed:
            return np.array([label != MISSING for label in self.labels])
        if unknown := [answer for answer in listed if answer not in self.labels]:
            raise ValueError(f"Column {title} has no answer {unknown[0]!r}; it has {list(self.labels)}.")
        return np.array([label in listed for label in self.labels])


@dataclass(frozen=True)
class Bins:
    """A column of numbers, or of dates as days since 1970, in bins.

    Parameters
    ----------
    edges : tuple of float
        Ascending. A bin holds its lower edge, the last one its upper edge, too; an edge that stands twice is a bin of this
        number alone. Numbers beyond the ends count as these.
    is_date, is_whole, has_missing : bool
        Whether they are days; whether the numbers are whole ones; whether a missing cell is one of the answers.
    nothing : tuple
        Numbers that stand for a missing cell.
    counts : tuple of float
        Noisy numbers in the bins of ``grid``, where a fit has counted them; empty where it has not.
    noise_std : float
        Of the noise in each.
    """

    edges: tuple[float, ...]
    is_date: bool = False
    is_whole: bool = False
    has_missing: bool = False
    nothing: tuple = ()
    counts: tuple[float, ...] = ()
    noise_std: float = 0.0

    takes_codes = True

    @property
    def wrong(self) -> str:
        """What a cell is that cannot be read, in words."""
        return "no date" if self.is_date else "no number"

    @cached_property
    def bounds(self) -> np.ndarray:
        """Least number of each bin, and where the bin ends; shape (n_bins, 2). The end of a bin of whole numbers is none of its
        numbers."""
        bounds = np.array(list(pairwise(self.edges)))
        if self.is_whole:
            bounds[-1, 1] += 1.0
            is_single = bounds[:-1, 0] == bounds[:-1, 1]
            bounds[1:, 0] += is_single
            bounds[:-1, 1] += is_single
        return bounds

    @cached_property
    def labels(self) -> tuple:
        """What the levels are, the last one for what is missing or cannot be read."""
        return (*(self._label(low, end - 1.0 if self.is_whole else end) for low, end in self.bounds), MISSING)

    def _label(self, low: float, high: float) -> str:
        return self.text_of(low) if low == high else f"{self.text_of(low)} to {self.text_of(high)}"

    def text_of(self, number: float) -> str:
        """A number of the column in the words of its bounds."""
        return str(np.datetime64(math.floor(number), "D")) if self.is_date else f"{number:.15g}"

    @property
    def missing(self) -> int:
        """The level of a cell that holds nothing that can be read."""
        return len(self.bounds)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The middle of each bin, NaN for the level of missing cells."""
        return np.append(self.bounds.mean(axis=1) - 0.5 * self.is_whole, math.nan)

    @cached_property
    def averages(self) -> np.ndarray:
        """What a number of each bin is on average, NaN for the level of missing cells."""
        return np.append(self._places[0], math.nan)

    @cached_property
    def unknown(self) -> np.ndarray:
        """Variance of what is not known of ``averages``, 0 for the level of missing cells."""
        return np.append(self._places[1], 0.0)

    @cached_property
    def within(self) -> np.ndarray:
        """Variance of the numbers of each bin, as if they were even, 0 for the level of missing cells."""
        return np.append((np.square(np.diff(self.bounds, axis=1)[:, 0]) - self.is_whole) / 12.0, 0.0)

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """The posterior of the average of each bin, from the counts in its cells: its mean and variance. Before they are known
        it may be anywhere in the bin."""
        middles, widths = self.bounds.mean(axis=1) - 0.5 * self.is_whole, np.diff(self.bounds, axis=1)[:, 0]
        prior = np.square(widths - self.is_whole) / 12.0
        if not self.counts:
            return middles, prior
        numbers, counts = self.grid.numbers[:-1], np.array(self.counts)
        bins = self.levels(numbers)
        off = numbers - middles[bins]
        sums, moments = (np.bincount(bins, values, len(middles)) for values in (counts, counts * off))
        least = _SEEN * self.noise_std * np.sqrt(np.bincount(bins, minlength=len(middles)))
        sizes = np.maximum(sums, np.maximum(least, 1.0))
        squares = np.bincount(bins, np.square(off - (moments / sizes)[bins]), len(middles))
        hidden = 1.0 - np.clip(sums / sizes, 0.0, 1.0)  # share of the numbers that are less than noise
        noise = self.noise_std**2 * squares / sizes**2 + np.square(hidden) * prior
        known = prior / np.maximum(prior + noise, 1e-300)
        half = 0.5 * np.maximum(widths - self.is_whole, 0.0)
        return middles + np.clip(known * moments / sizes, -half, half), known * noise

    def check(self, dtype, title: str, where: str) -> None:
        """Raise TypeError or ValueError for a dtype that cannot hold such numbers."""
        check_holds_numbers(dtype, title, where, in_frame=True, is_date=self.is_date)

    def read(self, cells) -> np.ndarray:
        """Numbers, NaN for what is missing or cannot be read."""
        numbers = as_numbers(cells, "date" if self.is_date else "number")
        return np.where(np.isin(numbers, self.nothing), math.nan, numbers) if self.nothing else numbers

    def is_read(self, values: np.ndarray, cells) -> np.ndarray:
        """Which of the cells, read as these values, are numbers, or stand for a missing one."""
        return ~np.isnan(values) | np.isin(as_numbers(cells, "number"), self.nothing)

    def levels(self, numbers: np.ndarray) -> np.ndarray:
        """Levels of numbers, each from its own alone."""
        edges, is_number = np.array(self.edges), np.isfinite(numbers)
        inside = np.clip(np.where(is_number, numbers, edges[0]), edges[0], edges[-1])
        places = np.searchsorted(edges[1:-1], inside, side="right")
        before = np.maximum(places - 1, 0)
        places -= (places > 0) & (edges[before] == edges[before + 1]) & (inside == edges[before])
        return np.where(is_number, places, self.missing)

    def drawn(self, levels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Numbers, or dates, of the bins of these levels: of their cells by their counts, and uniform within; NaN or NaT where
        nothing is known."""
        return self.grid._uniform(self._cells_of(levels, rng), rng) if self.counts else self._uniform(levels, rng)

    def _cells_of(self, levels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A cell of the grid for each level, the last one for missing cells."""
        bins = self.levels(self.grid.numbers[:-1])
        sizes = np.bincount(bins, minlength=len(self.bounds))
        counts = np.array(self.counts)
        total = np.bincount(bins, counts, len(self.bounds))
        is_seen = total > _SEEN * self.noise_std * np.sqrt(sizes)
        counts = np.where(is_seen[bins], np.maximum(counts, 0.0), 1.0)
        cumulative = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 1e-12))])
        first = np.searchsorted(bins, np.arange(len(self.bounds) + 1))
        of = np.minimum(levels, len(self.bounds) - 1)
        low, high = cumulative[first[of]], cumulative[first[of + 1]]
        cells = np.searchsorted(cumulative, low + rng.random(len(levels)) * (high - low), side="right") - 1
        cells = np.clip(cells, first[of], first[of + 1] - 1)
        return np.where(levels == self.missing, len(self.grid.bounds), cells)

    def _uniform(self, levels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        low, end = np.vstack([self.bounds, [math.nan, math.nan]])[levels].T
        numbers = low + rng.random(len(levels)) * (end - low)
        if self.is_whole:
            numbers = np.floor(numbers)
        if not self.is_date:
            return numbers
        days = np.nan_to_num(numbers).astype(np.int64).astype("M8[D]").astype("M8[ns]")
        days[np.isnan(numbers)] = np.datetime64("NaT")
        return days

    @cached_property
    def grid(self) -> Bins:
        """Finer bins, in which a fit counts numbers."""
        edges = [self.edges[0]]
        bins = list(pairwise(self.edges))
        for i, (low, high) in enumerate(bins):
            if low == high:
                edges.append(high)
            elif i == len(bins) - 1:
                edges += _even_edges(low, high, _FINER, self.is_whole)[1:]
            else:
                finer = np.linspace(low, high, _FINER + 1)[1:]
                edges += sorted(set(np.floor(finer)) - {low}) if self.is_whole else list(finer)
        return replace(self, edges=tuple(map(float, edges)), counts=())

    def places(self, answers: object, title: str) -> np.ndarray:
        """The levels that a rule names, shape (n_levels,), bool: bins of a range (low, high), whose ends are edges;
        ``"(answered)"`` for all bins, ``"(missing)"`` for the level of missing cells."""
        if answers in ("(answered)", ["(answered)"]):
            return np.arange(len(self.labels)) < self.missing
        if answers in (MISSING, [MISSING]):
            return np.arange(len(self.labels)) == self.missing
        ends = tuple(map(_number_of, answers)) if isinstance(answers, tuple) and len(answers) == 2 else ()
        if not ends or not set(ends) <= set(self.edges) or not ends[0] < ends[1]:
            raise ValueError(
                f"A rule names a part of column {title} by a range (low, high) of its edges, got {answers!r}: its edges are "
                f"{', '.join(map(self.text_of, self.edges))}. Declare further ones as a tuple: (low, …, high)."
            )
        return np.append((self.bounds[:, 0] >= ends[0]) & (self.bounds[:, 1] <= ends[1]), False)


def column_of(declared: object, title: str, n_bins: int, nothing: tuple = ()) -> Answers | Bins:
    """What a declaration says about the column ``title``.

    Parameters
    ----------
    n_bins : int
        Of a column of numbers that is declared by two bounds.
    nothing : tuple
        Values that stand for a missing cell.

    Raises
    ------
    TypeError, ValueError
        If it is neither a list of categories nor a tuple of ascending numbers or dates.
    """
    if isinstance(declared, list | range):
        return _answers(list(declared), title, nothing)
    if isinstance(declared, tuple):
        has_missing = declared[-1:] == (MISSING,)
        ends = declared[: len(declared) - has_missing]
        numbers = [_number_of(end) for end in ends]
        if len(numbers) >= 2 and all(map(math.isfinite, numbers)):
            return _bins(numbers, ends, title, n_bins, has_missing, nothing)
    raise TypeError(
        f"Column {title} is declared as {declared!r}: write (low, high) or a tuple of edges, (0, 18, 65, 100), for numbers and "
        'dates, which may end in "(missing)", and a list of categories, [...], for any other.'
    )


def _number_of(end: object) -> float:
    if isinstance(end, date | np.datetime64):
        return day_of(end)
    is_number = isinstance(end, Real) and not isinstance(end, bool | np.bool_ | np.timedelta64)
    return float(end) if is_number else math.nan


def _bins(numbers: list[float], ends: Sequence, title: str, n_bins: int, has_missing: bool, nothing: tuple) -> Bins:
    are_dates = [isinstance(end, date | np.datetime64) for end in ends]
    if any(are_dates) != all(are_dates):
        raise TypeError(f"The edges of column {title} are dates or numbers, not both, got {tuple(ends)!r}.")
    steps = np.diff(numbers)
    if (steps < 0.0).any() or not numbers[0] < numbers[-1] or ((steps[1:] == 0.0) & (steps[:-1] == 0.0)).any():
        raise ValueError(f"The edges of column {title} must ascend, each at most twice, got {tuple(ends)!r}.")
    is_whole = all(are_dates) or all(isinstance(end, Integral) for end in ends)
    if len(numbers) == 2:
        numbers = _even_edges(*numbers, n_bins, is_whole)
    column = Bins(tuple(map(float, numbers)), all(are_dates), is_whole, has_missing, nothing)
    if column.is_whole and (column.bounds[:, 0] >= column.bounds[:, 1]).any():
        raise ValueError(
            f"A bin of column {title} holds no whole number: behind an edge that stands twice the next is at least two more, "
            f"as in (0, 0, 2, 5). Got {tuple(ends)!r}."
        )
    if not all(math.isfinite(_number_of(value)) for value in nothing):
        raise ValueError(f"`missing` of column {title} must hold numbers, as the column does, got {nothing!r}.")
    return column


def _even_edges(low: float, high: float, n_bins: int, is_whole: bool) -> list[float]:
    """Edges of bins that are alike, or hold whole numbers, each at least one."""
    if not is_whole:
        return list(np.linspace(low, high, n_bins + 1))
    edges = np.unique(np.floor(np.linspace(low, high + 1.0, n_bins + 1)))
    return [*edges[:-1], high]  # which the last bin holds


def _answers(values: list, title: str, nothing: tuple) -> Answers:
    refuse_bounds_in_list(values, title)
    known = [category_of(value) for value in values]
    if not values or any(category is None for category in known):
        raise ValueError(f"The categories of column {title} must be strings or finite numbers, got {values!r}.")
    if len(set(known)) != len(known):
        raise ValueError(f"The categories of column {title} hold a value twice.")
    if twice := [value for value in nothing if category_of(value) in known]:
        raise ValueError(f"Column {title} has {twice[0]!r} as a category, and in `missing`: leave it out of one.")
    return Answers(tuple(value.item() if isinstance(value, np.generic) else value for value in values), nothing)
