"""What an encoder learns about one column: a declaration, as :class:`~vips.preprocessing.TableEncoder` takes it.

=================  ==============================================================  ==================================
kind               released                                                        declaration
=================  ==============================================================  ==================================
"number", "date"   noisy counts of all cells of a public grid, and of missing      ``(low, high)``, and ``MISSING``
                   values                                                          if missing values are frequent
"category"         noisy counts above a threshold, and of missing values           a list, ``OTHER``, ``MISSING``
=================  ==============================================================  ==================================
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vips.data._cell_values import as_categories, as_numbers
from vips.parts import STANDS_OUT
from vips.preprocessing._column_kinds import MISSING, OTHER
from vips.preprocessing._grids import DAYS, NUMBERS, Grid, bounds_from_counts
from vips.preprocessing._histograms import Persons, cells_that_get_noise

__all__ = ["cells_of_categories", "is_text", "learn_column"]


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
) -> Callable[[], tuple | list]:
    """Count the cells of a column and add noise; the result computes what is released from the noisy counts alone.

    Parameters
    ----------
    values : column of a data frame
    kind : {"number", "date", "category"}
    persons : Persons
    with_noise : function of an array
        Noise of standard deviation ``std`` on every count.
    cut : float
        Threshold of categories.
    most : int or None
        Most categories of one person.
    quantiles, n_columns
        See :func:`bounds_from_counts`.
    """
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


def _learnt_numbers(noisy: np.ndarray, std: float, grid: Grid, quantiles: tuple[float, float], n_columns: int) -> tuple:
    bounds = tuple(bounds_from_counts(noisy[:-1], std, grid, quantiles, n_columns))
    return (*bounds, MISSING) if noisy[-1] > STANDS_OUT * std else bounds


def _learnt_categories(released: list, missing: float, std: float) -> list:
    numbers = sorted(category for category in released if not isinstance(category, str))
    strings = (category for category in released if isinstance(category, str))
    words = sorted(string for string in strings if string not in (OTHER, MISSING) and is_text(string))
    return [*numbers, *words, OTHER, *([MISSING] if missing > STANDS_OUT * std else [])]


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
