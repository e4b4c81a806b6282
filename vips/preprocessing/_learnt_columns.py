"""What a private encoder learns about one column, and how it then prepares the column for :class:`TableEncoder`.

=============  =========================================  =============================================================
kind           released                                   prepared column
=============  =========================================  =============================================================
"number",      noisy counts of all cells of a public      the number; if missing, the middle of the bounds
"date"         grid, and of missing values
"missing"      noisy count of missing values              as a number; its bounds are declared
"category"     noisy counts above a threshold, and of     the category, ``OTHER`` for one that was not released,
               missing values                             ``MISSING``
=============  =========================================  =============================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vips.data._cell_values import as_categories, as_numbers, kind_of
from vips.preprocessing._grids import DAYS, NUMBERS, Grid, bounds_from_counts
from vips.preprocessing._histograms import Persons, cells_that_get_noise

__all__ = ["MISSING", "OTHER", "Learnt", "cells_of_categories", "is_text", "learn_column", "prepared"]

OTHER, MISSING = "(other)", "(missing)"
_PRESENT = 3.0  # standard deviations of noise above which missing values get an indicator


@dataclass(frozen=True)
class Learnt:
    """What was learnt about a column: released values.

    Attributes
    ----------
    declared : (float, float) or list
        As :class:`TableEncoder` takes it.
    has_missing : bool
        Whether a number's column has an indicator of missing values. (For a category, ``MISSING`` is in the list.)
    """

    declared: tuple[float, float] | list
    has_missing: bool = False


def learn_column(
    values,
    kind: str,
    persons: Persons,
    with_noise: Callable[[np.ndarray], np.ndarray],
    std: float,
    *,
    cut: float,
    most: int | None,
    quantiles: tuple[float, float],
    n_columns: int,
    declared: tuple[float, float] | list | None = None,
) -> Callable[[], Learnt]:
    """Count the cells of a column and add noise; the result computes what is released from the noisy counts alone.

    Parameters
    ----------
    values : column of a data frame
    kind : {"number", "date", "category", "missing"}
    persons : Persons
    with_noise : function of an array
        Noise of standard deviation ``std`` on every count.
    cut : float
        Threshold of categories.
    most : int or None
        Most categories of one person.
    quantiles, n_columns
        See :func:`bounds_from_counts`.
    declared : (float, float)
        Bounds of a column of which only missing values are counted.
    """
    if kind == "missing":
        is_missing = np.isnan(as_numbers(values, number_or_date(values)))
        noisy = with_noise(persons.totals(is_missing.astype(np.int64), 2))
        return lambda: Learnt(declared, bool(noisy[1] > _PRESENT * std))
    if kind != "category":
        grid = _grid(kind)
        totals = persons.totals(grid.cells(as_numbers(values, kind)), grid.n_cells + 1)
        noisy = with_noise(totals)
        return lambda: _learnt_numbers(noisy, std, grid, quantiles, n_columns)
    categories, cells = cells_of_categories(as_categories(values))
    totals = persons.totals(cells, 1 + len(categories), most)
    drawn = cells_that_get_noise(totals)
    noisy = with_noise(totals[drawn])
    released = [categories[cell - 1] for cell, count in zip(drawn[1:], noisy[1:], strict=True) if count > cut]
    missing = noisy[0]
    return lambda: _learnt_categories(released, missing, std)


def number_or_date(values) -> str:
    """The kind of a column whose bounds are declared, by its dtype."""
    return "date" if kind_of(values.dtype) == "date" else "number"


def prepared(values, kind: str, learnt: Learnt) -> tuple[np.ndarray, np.ndarray | None]:
    """A column for :class:`TableEncoder`, and which rows are missing (numbers with an indicator only)."""
    if kind == "category":
        categories = as_categories(values)
        known = set(learnt.declared) - {OTHER, MISSING}
        as_other = [MISSING if value is None else value if value in known else OTHER for value in categories]
        result = np.empty(len(as_other), dtype=object)
        result[:] = as_other
        return result, None
    numbers = as_numbers(values, number_or_date(values) if kind == "missing" else kind)
    missing, (low, high) = np.isnan(numbers), learnt.declared
    numbers = np.where(missing, low + 0.5 * (high - low), numbers)
    return numbers, missing if learnt.has_missing else None


def _learnt_numbers(
    noisy: np.ndarray, std: float, grid: Grid, quantiles: tuple[float, float], n_columns: int
) -> Learnt:
    bounds = bounds_from_counts(noisy[:-1], std, grid, quantiles, n_columns)
    return Learnt(bounds, bool(noisy[-1] > _PRESENT * std))


def _learnt_categories(released: list, missing: float, std: float) -> Learnt:
    numbers = sorted(category for category in released if not isinstance(category, str))
    strings = (category for category in released if isinstance(category, str))
    words = sorted(string for string in strings if string not in (OTHER, MISSING) and is_text(string))
    return Learnt([*numbers, *words, OTHER, *([MISSING] if missing > _PRESENT * std else [])])


def is_text(word: str) -> bool:
    """Whether a string can be written: half a surrogate pair cannot."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def cells_of_categories(values: np.ndarray) -> tuple[list, np.ndarray]:
    """The categories that occur, and the cell of each row: 0 for missing, then one for each category. Private."""
    places: dict = {}
    cells = np.fromiter(
        (0 if value is None else 1 + places.setdefault(value, len(places)) for value in values), np.int64, len(values)
    )
    return list(places), cells


def _grid(kind: str) -> Grid:
    return DAYS if kind == "date" else NUMBERS
