"""What an encoder learns about one column: a declaration, as :class:`~vips.preprocessing.TableEncoder` takes it.

=================  ==============================================================  ==================================
kind               released                                                        declaration
=================  ==============================================================  ==================================
"number", "date"   noisy counts of all cells of a public grid, of missing values   ``(low, high)``, and ``MISSING``
                   and of cells that cannot be read                                if the latter two are frequent
"category"         noisy counts above a threshold, and of missing values           a list, ``OTHER``, ``MISSING``
=================  ==============================================================  ==================================

A record is one row, or all rows of a person, and weighs at most 1 in the cells of a column. In a column, a person with c_i rows
in cell i adds c_i / ‖c‖ to cell i: a vector of norm 1, like the one of a single row. k columns together have norm √k at most,
which is the sensitivity of all their counts.

A cell that nobody else has is released if weight + noise > τ. A record has at most M such cells, each of weight at most 1, so

    P(any of them is released) ≤ 1 - Φ((τ - 1)/s)^M = δ        for  τ = 1 + s Φ⁻¹((1 - δ)^(1/M)),  s = std of the noise

with equality for a record that is one row and has M new cells. (Wilkins, Kifer, Zhang and Karrer, 2024, for weights of 1.)
Bounding every weight of a person by 1 costs at most 1 in τ, whatever the worst split of its norm is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from vips.core.plan import PrivacyPlan
from vips.core.records.groups import runs_of_rows
from vips.core.records.ragged import places
from vips.data._cell_values import are_unread, as_numbers, cells_of_categories
from vips.parts import STANDS_OUT
from vips.preprocessing._column_kinds import MISSING, OTHER
from vips.preprocessing._grids import Grid, bounds_from_counts, grid_of

__all__ = ["MOST_CATEGORIES", "Counting", "LearntColumn", "Persons", "cells_that_get_noise", "is_text", "learn_column"]

# Most categories of a column to which one person contributes: the most frequent ones.
MOST_CATEGORIES = 32


class LearntColumn(NamedTuple):
    """From noisy counts: what to declare, and the share of cells that could not be read, if it stands out from the noise."""

    declaration: tuple | list
    unread: float | None = None


@dataclass(frozen=True)
class Counting:
    """How the cells of all columns of one release are counted.

    Parameters
    ----------
    persons : Persons
    with_noise : function of an array
        Adds noise of standard deviation ``std`` to every count.
    std : float
    cut : float
        Threshold of categories.
    most : int or None
        Most categories of one person in a column, if records are persons.
    n_columns : int
    quantiles : (float, float)
        See :func:`bounds_from_counts`.
    """

    persons: Persons
    with_noise: Callable[[np.ndarray], np.ndarray]
    std: float
    cut: float
    most: int | None
    n_columns: int
    quantiles: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def of(
        cls, persons: Persons, plan: PrivacyPlan | None, delta: float, kinds: Collection, release: Callable
    ) -> Counting:
        """For columns of these kinds: a plan and δ of the threshold, None for exact counts; ``release`` is the charge's."""
        most = MOST_CATEGORIES if persons.are_persons else None
        if plan is None:
            return cls(persons, np.asarray, 0.0, 0.0, most, len(kinds))
        most = most and min(most, plan.max_rows_per_group or most)
        n_categories, std = sum(kind == "category" for kind in kinds), plan.noise_std()
        cut = threshold(delta, std, (most or 1) * n_categories) if n_categories else math.inf

        def with_noise(totals: np.ndarray) -> np.ndarray:
            return release(plan, {"counts": totals})["counts"]

        return cls(persons, with_noise, std, cut, most, len(kinds))


def learn_column(values, kind: str, counting: Counting) -> Callable[[], LearntColumn]:
    """Count the cells of a column and add noise; the result computes what is released from the noisy counts alone."""
    persons = counting.persons
    if kind != "category":
        grid = grid_of(kind)
        numbers = as_numbers(values, kind)
        cells = grid.cells(numbers) + are_unread(values, np.isnan(numbers))  # the last cell is theirs
        noisy = counting.with_noise(persons.totals(cells, grid.n_cells + 2))
        return lambda: _learnt_numbers(noisy, grid, counting)
    categories, cells = cells_of_categories(values)
    totals = persons.totals(cells, 1 + len(categories), counting.most)
    drawn = cells_that_get_noise(totals)
    missing, *counts = counting.with_noise(totals[drawn])
    released = [categories[cell - 1] for cell, count in zip(drawn[1:], counts, strict=True) if count > counting.cut]
    return lambda: LearntColumn(_learnt_categories(released, missing, counting.std))


def _learnt_numbers(noisy: np.ndarray, grid: Grid, counting: Counting) -> LearntColumn:
    counts, missing, unread = noisy[:-2], noisy[-2], noisy[-1]
    bounds = tuple(bounds_from_counts(counts, counting.std, grid, counting.quantiles, counting.n_columns))
    std, share = counting.std, None
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


# -- records and their cells ---------------------------------------------------------------------------------------


class Persons:
    """The records of a table, and what each of them adds to the counts of a column.

    ``numbers`` are those of the rows' persons, -1 for a row of nobody, which is left out. None: every row is a record. Rows of
    a person beyond the first ``max_rows`` are left out.

    Guarantees
    ----------
    - ``totals`` is a sum over records of vectors that depend on that record's rows only, with norm at most 1, up to rounding.
    - One record has weight in at most ``most`` cells.
    """

    def __init__(self, numbers: np.ndarray | None, max_rows: int | None = None) -> None:
        self._rows, self._persons, self.are_persons = None, None, numbers is not None
        if numbers is None:
            return
        order, starts = runs_of_rows(numbers)
        rows = np.arange(len(numbers)) if order is None else order
        place = places(np.diff(starts))
        self._rows = rows if max_rows is None else rows[place < max_rows]
        self._persons = numbers[self._rows]

    def totals(self, cells: np.ndarray, n_cells: int, most: int | None = None) -> np.ndarray:
        """Sum over records of their weights in each of ``n_cells`` cells; ``cells`` are those of the rows in one column.

        Cells of a person beyond the ``most`` most frequent ones are left out; of equal ones, those that come first stay.
        """
        if self._rows is None:
            return np.bincount(cells, minlength=n_cells).astype(np.float64)
        pairs = self._persons * np.int64(n_cells) + cells[self._rows]
        pairs, seen_at, counts = np.unique(pairs, return_index=True, return_counts=True)
        persons, cells = pairs // n_cells, pairs % n_cells
        if most is not None:
            order = np.lexsort((seen_at, -counts, persons))
            persons, cells, counts = persons[order], cells[order], counts[order]
            rank = np.arange(len(persons)) - np.searchsorted(persons, persons)
            persons, cells, counts = (column[rank < most] for column in (persons, cells, counts))
        squares = np.bincount(persons, counts.astype(np.float64) ** 2)
        weights = counts / np.sqrt(squares[persons])
        return np.bincount(cells, weights, minlength=n_cells)


def cells_that_get_noise(totals: np.ndarray) -> np.ndarray:
    """Places, on the last axis, of missing values and of all categories in which a record weighs something.

    The totals, of shape (..., 1 + n_categories), are exact and private. The first cell holds missing values.

    Guarantees
    ----------
    A category that only rows without weight have (rows of nobody, rows or categories beyond a person's bound, rows of no
    class) gets no noise, so that it cannot pass the threshold. One record adds at most ``most`` categories.
    """
    weighed = totals.reshape(-1, totals.shape[-1]).any(axis=0)
    weighed[0] = True
    return np.flatnonzero(weighed)


def threshold(delta: float, std: float, n_new: int) -> float:
    """τ above which a noisy count is released, for records with at most ``n_new`` cells of their own; rounded up."""
    tail = -math.expm1(math.log1p(-delta) / n_new)  # 1 - (1 - δ)^(1/M)
    return math.nextafter(1.0 - std * float(ndtri(tail)), math.inf)
