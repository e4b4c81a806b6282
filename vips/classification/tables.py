"""Tables of classes by cells, one for each column, released together with noise. No value raises.

=============  ======================================================  ==========================================
stated         cells                                                   learnt from noisy counts
=============  ======================================================  ==========================================
(low, high)    32 of equal width; near 0 finer ones, by factors of √2  nothing
a list         its categories                                          nothing
"number"       those of a public grid, eight for each factor of 2      between which of them the values lie
"date"         32 days each                                            the same
"category"     one for each category                                   which categories stand above a threshold
=============  ======================================================  ==========================================

Missing values have a cell of their own, and so have categories that a list does not name.

A record adds 1 to the cell of its class and value in every column, and 1 to the count of its class. A person with c_i rows in
cell i of a column adds c_i/‖c‖. So a record's vector over the tables of d columns has norm at most √(d + 1), whatever the
number of classes, and all tables are one release of a Gaussian mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vips.data._cell_values import as_categories, as_numbers, cells_of_categories, codes_of_categories
from vips.data._columns import as_table, column, columns_of, is_frame
from vips.data._dask import as_source
from vips.preprocessing._column_kinds import MISSING, OTHER, Number, kind_of_column
from vips.preprocessing._encoder import column_kind
from vips.preprocessing._grids import bounds_from_counts, cells_of, grid_of
from vips.preprocessing._learnt_columns import Counting, Persons, cells_that_get_noise, is_text

__all__ = [
    "ClassTable", "ColumnCells", "as_frame", "bounded", "class_counts", "columns_stated", "listed", "release_table",
]  # fmt: skip

_N_CELLS, _FINEST = 32, 2.0**-10  # of declared bounds; the finest cell near 0 in units of the others


@dataclass(frozen=True)
class ColumnCells:
    """Cells of one column, in an order in which neighbours are alike if the column holds numbers or dates.

    These have one edge more than cells: values beyond the first or the last edge are in the first or last cell. Other
    categories than those that are named are in the cell after them.
    """

    kind: str  # "number", "date" or "category"
    edges: tuple[float, ...] = ()
    categories: tuple = ()

    @property
    def n_cells(self) -> int:
        """Without the last cell, of missing values."""
        return len(self.categories) + 1 if self.kind == "category" else len(self.edges) - 1

    def codes(self, values) -> np.ndarray:
        """The cell of each value, ``n_cells`` if it is missing: int64 of shape (n_rows,)."""
        if self.kind == "category":
            places = {category: i for i, category in enumerate(self.categories)}
            return codes_of_categories(values, places, len(places), len(places) + 1)
        return cells_of(as_numbers(values, self.kind), self.edges)

    def positions(self, shares: np.ndarray) -> np.ndarray:
        """Where the cells of numbers are, by value and by rank, less the average: shape (2, n_cells), within [-2, 2].

        ``shares`` are those of the records, ≥ 0.
        """
        edges = np.array(self.edges)
        middles = 0.5 * edges[1:] + 0.5 * edges[:-1]
        half = 0.5 * edges[-1] - 0.5 * edges[0]
        weights = shares / max(shares.sum(), 1e-300)
        ranks = np.cumsum(weights) - 0.5 * weights
        positions = np.array([middles / half, 2.0 * ranks])
        return np.clip(positions - (positions @ weights)[:, None], -2.0, 2.0)


def bounded(low: float, high: float, kind: str = "number") -> ColumnCells:
    """Cells of a column between two public bounds."""
    width = (high - low) / _N_CELLS
    powers = width * np.exp2(np.arange(np.log2(_FINEST), 2.0, 0.5))  # a few large values beside many small ones
    near_zero = np.concatenate([-powers, powers])
    near_zero = near_zero[(near_zero > low) & (near_zero < high)]
    edges = np.union1d(np.linspace(low, high, _N_CELLS + 1), near_zero)
    return ColumnCells(kind, tuple(edges.tolist()))


def listed(categories: Sequence) -> ColumnCells:
    """Cells of public categories."""
    known = as_categories(list(categories))
    return ColumnCells("category", (), tuple(dict.fromkeys(category for category in known if category is not None)))


def as_frame(X):
    """A data frame of pandas. The columns of an array are named 0, 1, 2, … Errors are from container, dtype and shape."""
    X = as_table(X)
    if as_source(X) is not None or (is_frame(X) and not hasattr(X, "iloc")):
        raise TypeError(f"PrivateClassifier needs a table in memory, got {type(X).__name__}.")
    if is_frame(X):
        return X
    if X.dtype.kind == "c":
        raise ValueError("Complex data not supported.")
    import pandas as pd

    return pd.DataFrame(X, columns=range(X.shape[1]), copy=False)


def columns_stated(columns: Mapping | Sequence | None, X) -> dict[object, ColumnCells | str]:
    """Cells of the columns that are declared, and "number", "date" or "category" for those that are to be learnt.

    Only names and dtypes of the columns of the data frame X are read.
    """
    if columns is None:
        stated = dict.fromkeys(X.columns)
    elif isinstance(columns, Mapping) and columns:
        stated = dict(columns)
    elif isinstance(columns, list | tuple) and len(columns) == len(X.columns):
        stated = dict(zip(X.columns, columns, strict=True))
    else:
        raise TypeError(
            f"`columns` must be None, a mapping of column names, or a list with one entry for each of the {len(X.columns)} "
            f"columns, got {columns!r}."
        )
    columns_of(X, stated)
    if not stated:
        raise ValueError(f"0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    return {name: _cells(name, declaration, column(X, name).dtype) for name, declaration in stated.items()}


def _cells(name, stated, dtype) -> ColumnCells | str:
    kind = column_kind(repr(name), stated, dtype, in_frame=True)
    if kind != "declared":
        return kind
    declared = kind_of_column([False, True] if stated is None else stated, repr(name))
    if isinstance(declared, Number):
        return bounded(declared.low, declared.high, "date" if declared.is_date else "number")
    return listed([category for category in declared.categories if category not in (OTHER, MISSING)])


# -- tables --------------------------------------------------------------------------------------------------------


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
    values: object, stated: ColumnCells | str, place: np.ndarray, n_classes: int, counting: Counting
) -> ClassTable:
    """Count one column and add noise; what is learnt follows from the noisy counts alone.

    ``stated`` are cells, or what to learn. A category is released if its noisy counts' sum over the classes, divided by
    √n_classes, is above the threshold.
    """
    persons, with_noise = counting.persons, counting.with_noise
    if isinstance(stated, ColumnCells):
        counts = class_counts(stated.codes(values), stated.n_cells + 1, place, n_classes, persons)
        return ClassTable(stated, with_noise(counts))
    if stated == "category":
        return _learnt_categories(values, place, n_classes, counting)
    grid = grid_of(stated)
    codes = grid.cells(as_numbers(values, stated))
    noisy = with_noise(class_counts(codes, grid.n_cells + 1, place, n_classes, persons))
    std = counting.std * np.sqrt(n_classes)
    low, high = bounds_from_counts(noisy[:, :-1].sum(axis=0), std, grid, counting.quantiles, counting.n_columns)
    first, last = grid.between(low, high)
    edges = grid.edges[first : last + 1]
    return ClassTable(ColumnCells(stated, tuple(edges.tolist())), np.hstack([noisy[:, first:last], noisy[:, -1:]]))


def _learnt_categories(values, place: np.ndarray, n_classes: int, counting: Counting) -> ClassTable:
    """Every category in which a record weighs gets noise in every class. Which are released depends on these noisy counts."""
    categories, codes = cells_of_categories(values)
    counts = class_counts(codes, 1 + len(categories), place, n_classes, counting.persons, counting.most)
    drawn = cells_that_get_noise(counts)
    noisy = counting.with_noise(counts[:, drawn])
    stands_out = noisy.sum(axis=0) / np.sqrt(n_classes) > counting.cut
    rows = {categories[drawn[i] - 1]: noisy[:, i] for i in range(1, len(drawn)) if stands_out[i]}
    rows = {category: row for category, row in rows.items() if not isinstance(category, str) or is_text(category)}
    released = tuple(sorted(rows, key=lambda category: (isinstance(category, str), category)))
    counts = np.array([*(rows[category] for category in released), np.full(n_classes, np.nan), noisy[:, 0]]).T
    return ClassTable(ColumnCells("category", (), released), counts)
