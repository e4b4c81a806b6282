"""Tables of classes by cells, one for each column, released together with noise.

A record adds 1 to the cell of its class and value in every column, and 1 to the count of its class. A person with c_i rows in
cell i of a column adds c_i/‖c‖. So a record's vector over the tables of d columns has norm at most √(d + 1), whatever the
number of classes, and all tables are one release of a Gaussian mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vips.classification.columns import ColumnCells
from vips.data._cell_values import as_numbers, cells_of_categories
from vips.data._columns import column
from vips.preprocessing._grids import bounds_from_counts, grid_of
from vips.preprocessing._histograms import Persons, cells_that_get_noise
from vips.preprocessing._learnt_columns import is_text

__all__ = ["ClassTable", "class_counts", "release_table"]


@dataclass(frozen=True)
class ClassTable:
    """Noisy counts of one column.

    Attributes
    ----------
    cells : ColumnCells
    counts : ndarray of shape (n_classes, n_cells + 1)
        The last column counts missing values. NaN in the cell of other categories, where categories were learnt.
    """

    cells: ColumnCells
    counts: np.ndarray


def class_counts(
    codes: np.ndarray, n_cells: int, place: np.ndarray, n_classes: int, persons: Persons, most: int | None = None
) -> np.ndarray:
    """Sums over records of their weights: exact and private, shape (n_classes, n_cells).

    ``codes`` are the rows' cells, ``place`` the places of their classes, ``n_classes`` for a label that is no class: such a row
    counts nowhere. For ``most`` see :meth:`Persons.totals`.
    """
    sums = persons.totals(place * np.int64(n_cells) + codes, (n_classes + 1) * n_cells, most)
    return sums.reshape(n_classes + 1, n_cells)[:n_classes]


def release_table(
    X: object, name: object, stated: ColumnCells | str, place: np.ndarray, n_classes: int, persons: Persons,
    with_noise: Callable[[np.ndarray], np.ndarray], std: float, cut: float, most: int | None, n_columns: int,
) -> ClassTable:  # fmt: skip
    """Count one column and add noise; what is learnt follows from the noisy counts alone.

    Arguments are those of :func:`vips.preprocessing._learnt_columns.learn_column`; ``stated`` are cells, or what to learn. A
    category is released if its noisy counts' sum over the classes, divided by √n_classes, is above ``cut``.
    """
    values = column(X, name)
    if isinstance(stated, ColumnCells):
        counts = class_counts(stated.codes(values), stated.n_cells + 1, place, n_classes, persons)
        return ClassTable(stated, with_noise(counts))
    if stated == "category":
        return _learnt_categories(values, place, n_classes, persons, with_noise, cut, most)
    grid = grid_of(stated)
    codes = grid.cells(as_numbers(values, stated))
    noisy = with_noise(class_counts(codes, grid.n_cells + 1, place, n_classes, persons))
    low, high = bounds_from_counts(noisy[:, :-1].sum(axis=0), std * np.sqrt(n_classes), grid, (0.0, 1.0), n_columns)
    first, last = grid.between(low, high)
    edges = grid.edges[first : last + 1]
    return ClassTable(ColumnCells(stated, tuple(edges.tolist())), np.hstack([noisy[:, first:last], noisy[:, -1:]]))


def _learnt_categories(values, place, n_classes, persons, with_noise, cut, most) -> ClassTable:
    """Every category in which a record weighs gets noise in every class. Which are released depends on these noisy counts."""
    categories, codes = cells_of_categories(values)
    counts = class_counts(codes, 1 + len(categories), place, n_classes, persons, most)
    drawn = cells_that_get_noise(counts)
    noisy = with_noise(counts[:, drawn])
    stands_out = noisy.sum(axis=0) / np.sqrt(n_classes) > cut
    rows = {categories[drawn[i] - 1]: noisy[:, i] for i in range(1, len(drawn)) if stands_out[i]}
    rows = {category: row for category, row in rows.items() if not isinstance(category, str) or is_text(category)}
    released = tuple(sorted(rows, key=lambda category: (isinstance(category, str), category)))
    counts = np.array([*(rows[category] for category in released), np.full(n_classes, np.nan), noisy[:, 0]]).T
    return ClassTable(ColumnCells("category", (), released), counts)
