"""What an encoder learns about one column: a declaration, as :class:`~vips.preprocessing.TableEncoder` takes it.

=================  ==============================================================  ==================================
kind               released                                                        declaration
=================  ==============================================================  ==================================
"number", "date"   noisy counts of all cells of a public grid, of missing values   ``(low, high)``, and ``MISSING``
                   and of cells that cannot be read                                if the latter two are frequent
"category"         noisy counts above a threshold, and of missing values           a list, ``OTHER``, ``MISSING``
=================  ==============================================================  ==================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vips.data._cell_values import are_unread, as_numbers, cells_of_categories
from vips.parts import STANDS_OUT
from vips.preprocessing._column_kinds import MISSING, OTHER
from vips.preprocessing._grids import Grid, bounds_from_counts, grid_of
from vips.preprocessing._histograms import Persons, cells_that_get_noise

__all__ = ["LearntColumn", "is_text", "learn_column"]


class LearntColumn(NamedTuple):
    """From noisy counts: what to declare, and the share of cells that could not be read, if it stands out from the noise."""

    declaration: tuple | list
    unread: float | None = None


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
) -> Callable[[], LearntColumn]:
    """Count the cells of a column and add noise; the result computes what is released from the noisy counts alone.

    Parameters
    ----------
    with_noise : function of an array
        Adds noise of standard deviation ``std`` to every count.
    cut, most : float, int or None
        Threshold of categories, and most categories of one person, if records are persons.
    quantiles, n_columns
        See :func:`bounds_from_counts`.
    """
    if kind != "category":
        grid = grid_of(kind)
        numbers = as_numbers(values, kind)
        cells = grid.cells(numbers) + are_unread(values, np.isnan(numbers))  # the last cell is theirs
        noisy = with_noise(persons.totals(cells, grid.n_cells + 2))
        return lambda: _learnt_numbers(noisy, std, grid, quantiles, n_columns)
    categories, cells = cells_of_categories(values)
    totals = persons.totals(cells, 1 + len(categories), most)
    drawn = cells_that_get_noise(totals)
    noisy = with_noise(totals[drawn])
    released = [categories[cell - 1] for cell, count in zip(drawn[1:], noisy[1:], strict=True) if count > cut]
    missing = noisy[0]
    return lambda: LearntColumn(_learnt_categories(released, missing, std))


def _learnt_numbers(
    noisy: np.ndarray, std: float, grid: Grid, quantiles: tuple[float, float], n_columns: int
) -> LearntColumn:
    counts, missing, unread = noisy[:-2], noisy[-2], noisy[-1]
    bounds = tuple(bounds_from_counts(counts, std, grid, quantiles, n_columns))
    share = None
    if unread > STANDS_OUT * std:
        first, last = grid.between(*bounds)
        n_cells = max(counts[first:last].sum() + missing + unread, unread)
        share = float(unread / n_cells)
    is_frequent = missing + unread > STANDS_OUT * std * math.sqrt(2.0)
    return LearntColumn((*bounds, MISSING) if is_frequent else bounds, share)


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
