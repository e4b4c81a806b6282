"""Bounds of a column from noisy counts on a public grid.

Numbers: cells whose edges are ±2^(j/8), and one cell for 0. They assume no unit and no scale. Dates: cells of 32 days. The
counts have noise of known size, so that a tail which noise alone explains can be told from one that holds records:

1. *core*: cells, or runs of adjacent cells, whose noisy sum no noise explains;
2. *edges*: the core grows while the cells next to it hold more than noise;
3. *quantiles*: between these edges, the noisy cumulative counts cut the tails off.

All of it is computed from noisy counts and public numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

__all__ = ["DAYS", "NUMBERS", "Grid", "bounds_from_counts", "cells_of", "grid_of"]

_PER_OCTAVE, _OCTAVES = 8, 64  # cells per factor of 2; magnitudes from 2^-64 to 2^64
_FALSE_CORE = 1e-3  # probability that noise alone makes a core in some column
_EDGE = 3.0  # standard deviations above which a neighbour of the core belongs to it
_NEAR_ZERO = 0.2  # the smaller of two bounds of one sign becomes 0 below this share of the larger


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells on the line, in ascending order; values beyond the first and the last edge are in the first and the last cell.

    Attributes
    ----------
    edges : ndarray of shape (n_cells + 1,)
    shown : ndarray of shape (n_cells + 1,)
        The edges as bounds: those of the cell of 0 are 0.
    widths : tuple of int
        Lengths of the runs of cells that are looked at together, ascending. A long run could stretch the bounds.
    fallback : (float, float)
        Bounds for a column whose counts are noise only.
    """

    edges: np.ndarray
    shown: np.ndarray
    widths: tuple[int, ...]
    fallback: tuple[float, float]

    @property
    def n_cells(self) -> int:
        return len(self.edges) - 1

    def cells(self, values: np.ndarray) -> np.ndarray:
        """Cell of each value; ``n_cells`` for NaN."""
        return cells_of(values, self.edges)

    def between(self, low: float, high: float) -> tuple[int, int]:
        """Places of two shown edges: the cells between these bounds are those from the first one to before the last one."""
        return np.searchsorted(self.shown, low), np.searchsorted(self.shown, high, side="right") - 1


def cells_of(values: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """The cell between ascending edges of each value, also of those beyond them; the number of cells for NaN."""
    n_cells = len(edges) - 1
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n_cells - 1)
    return np.where(np.isnan(values), n_cells, places)


def _numbers() -> Grid:
    positive = np.exp2(np.arange(-_OCTAVES * _PER_OCTAVE, _OCTAVES * _PER_OCTAVE + 1) / _PER_OCTAVE)
    edges = np.concatenate([-positive[::-1], positive])
    return Grid(edges, np.where(np.abs(edges) == positive[0], 0.0, edges), (1, 2, 4, 8), (0.0, 1.0))


def _days() -> Grid:
    edges = np.arange(-62080.0, 84000.0, 32.0)  # the years 1800 to 2199
    return Grid(edges, edges, (1, 2, 4, 8, 16, 32, 64, 128), (0.0, 36525.0))


NUMBERS, DAYS = _numbers(), _days()


def grid_of(kind: str) -> Grid:
    """The grid of a column of this kind, "number" or "date"."""
    return DAYS if kind == "date" else NUMBERS


def bounds_from_counts(
    noisy: np.ndarray, std: float, grid: Grid, quantiles: tuple[float, float], n_columns: int = 1
) -> tuple[float, float]:
    """Bounds of a column, low < high: the grid's fallback if noise alone explains the counts.

    The counts have independent noise of standard deviation ``std``. ``quantiles`` are their shares below the lower and below
    the upper bound, and ``n_columns`` is the number of columns for which this is done.
    """
    span = _core(noisy, std, grid.widths, n_columns)
    if span is None or grid.shown[span[0]] == grid.shown[span[1]]:  # noise only, or nothing but zeros
        return grid.fallback
    first, last = _grown(noisy, std, grid.widths, *span)
    inside = noisy[first:last]
    total = inside.sum()
    from_left = np.flatnonzero(np.cumsum(inside) >= quantiles[0] * total)
    from_right = np.flatnonzero(np.cumsum(inside[::-1]) >= (1.0 - quantiles[1]) * total)
    low = first + (from_left[0] if len(from_left) else 0)
    high = last - (from_right[0] if len(from_right) else 0)
    if low >= high:
        low, high = first, last
    return _with_zero(float(grid.shown[low]), float(grid.shown[high]), grid)


def _with_zero(low: float, high: float, grid: Grid) -> tuple[float, float]:
    """The bounds, or bounds that end at 0 where that makes them little longer: small values are in many cells with few records
    each, whose noise hides them."""
    if grid is NUMBERS and 0.0 < low <= _NEAR_ZERO * high:
        low = 0.0
    if grid is NUMBERS and 0.0 > high >= _NEAR_ZERO * low:
        high = 0.0
    return (low, high) if low < high else grid.fallback


def _core(noisy: np.ndarray, std: float, widths: tuple[int, ...], n_columns: int) -> tuple[int, int] | None:
    """First and last place of all runs that noise does not explain. A run is taken only if no part of it is."""
    n_tests = n_columns * len(noisy) * len(widths)
    level = -ndtri(_FALSE_CORE / n_tests) * std
    before = np.concatenate([[0.0], np.cumsum(noisy)])
    taken = np.zeros(len(noisy) + 1, dtype=np.int64)  # number of cells before a place that are in a run
    span = None
    for width in (size for size in widths if size <= len(noisy)):
        sums = before[width:] - before[:-width]
        starts = np.flatnonzero((sums > level * np.sqrt(width)) & (taken[width:] == taken[:-width]))
        if not len(starts):
            continue
        run = int(starts[0]), int(starts[-1]) + width
        span = run if span is None else (min(span[0], run[0]), max(span[1], run[1]))
        marks = np.zeros(len(noisy) + 1, dtype=np.int64)
        np.add.at(marks, starts, 1)
        np.add.at(marks, starts + width, -1)
        covered = (np.cumsum(marks)[:-1] > 0) | (np.diff(taken) > 0)
        taken = np.concatenate([[0], np.cumsum(covered)])
    return span


def _grown(noisy: np.ndarray, std: float, widths: tuple[int, ...], first: int, last: int) -> tuple[int, int]:
    """The core and its neighbours on both sides, as long as they hold more than noise. Runs are short beside the core, so that
    a run in which noise happens to be large does not stretch it by much."""
    widths = tuple(width for width in widths if width <= max(1, (last - first) // 4))
    grown = last + _growth(noisy[last:], std, widths)
    return first - _growth(noisy[:first][::-1], std, widths), grown


def _growth(outside: np.ndarray, std: float, widths: tuple[int, ...]) -> int:
    """How many cells follow that belong to the core."""
    place = 0
    while True:
        runs = (width for width in widths if place + width <= len(outside))
        step = next((w for w in runs if outside[place : place + w].sum() > _EDGE * std * np.sqrt(w)), 0)
        if not step:
            return place
        place += step
