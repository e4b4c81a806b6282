"""Counts of cells in which one record weighs at most 1 per column, and the threshold that hides rare cells.

A record is one row, or all rows of a person. In a column, a person with c_i rows in cell i adds c_i / ‖c‖ to cell i: a vector
of norm 1, like that of a single row. k columns together have norm √k at most, which is the sensitivity of all their counts.

A cell that nobody else has is released if weight + noise > τ. A record has at most M such cells, each of weight at most 1, so

    P(any of them is released) ≤ 1 - Φ((τ - 1)/s)^M = δ        for  τ = 1 + s Φ⁻¹((1 - δ)^(1/M)),  s = std of the noise

with equality for a record that is one row and has M new cells. (Wilkins, Kifer, Zhang and Karrer, 2024, for weights of 1.)
Bounding every weight of a person by 1 costs at most 1 in τ, whatever the worst split of its norm is.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from vips.core.records.groups import runs_of_rows
from vips.core.records.ragged import places

__all__ = ["MOST_CATEGORIES", "Persons", "cells_that_get_noise", "threshold"]

# Most categories of a column to which one person contributes: the most frequent ones.
MOST_CATEGORIES = 32


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
        self._rows, self._persons = None, None
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
