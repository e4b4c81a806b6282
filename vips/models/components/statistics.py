"""Sums over the rows of a record of shares times statistics: what a record adds to the totals of the components.

    s_n = Σ_t γ_t ⊗ (1, T(x_t))        t over the rows of record n, γ_t the shares of the components

The first of the numbers of a row is 1, for the counts of the components; the others are those of its columns. Each block
takes some of them: its statistic has shape (K, number of these), or (K,) for the first alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips._compute.rowwise import row_dots
from vips._compute.threads import run_ranges
from vips.models.components.kernels import fill_sums
from vips.privacy import Lattice
from vips.sums import Block

__all__ = ["ComponentSums"]

_PIECE = 500_000  # numbers that are formed at once
_LEAST_STEPS = 2_000  # below it, one thread


class ComponentSums:
    """Statistics of records of several rows.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, width)
        1, T(x_t); finite.
    shares : ndarray of shape (n_rows, K)
        γ_t.
    offsets : ndarray of int64, shape (n_records + 1,)
        Where each record begins.
    places : dict of str to slice
        Columns of ``rows`` that each block takes.
    """

    def __init__(self, rows: np.ndarray, shares: np.ndarray, offsets: np.ndarray, places: Mapping[str, slice]) -> None:
        self.rows, self.shares, self.offsets, self.places = rows, shares, offsets, places

    def squares(self, blocks: Mapping[str, Block]) -> np.ndarray:
        """Squared norm of each record, shape (n_records,)."""
        squares = np.empty(len(self.offsets) - 1)
        for first, last in self._pieces():
            formed = self._formed(first, last)
            squares[first:last] = sum(
                row_dots(part, part) / blocks[name].scale ** 2
                for name, place in self.places.items()
                for part in [formed[:, :, place].reshape(last - first, -1)]
            )
        return squares

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Σ_n w_n s_n by block. A record of weight 0 is left out."""
        of_rows = np.repeat(np.asarray(weights, np.float64), np.diff(self.offsets))
        rows, shares, present = self.rows, self.shares, of_rows != 0.0
        if not present.all():
            rows, shares, of_rows = rows[present], shares[present], of_rows[present]
        total = (of_rows[:, None] * shares).T @ rows
        return {name: _shaped(total[:, place], place) for name, place in self.places.items()}

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """w_n s_n of each record by block."""
        formed = weights[:, None, None] * self._formed(0, len(weights))
        return {name: formed[:, :, place] for name, place in self.places.items()}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """Σ_n of each record's w_n s_n, rounded to the lattice."""
        total = {name: np.zeros(blocks[name].shape, np.int64) for name in self.places}
        for first, last in self._pieces():
            present = first + np.flatnonzero(weights[first:last])
            formed = weights[present, None, None] * self._formed(first, last)[present - first]
            for name, place in self.places.items():
                shares = np.ascontiguousarray(formed[:, :, place]).reshape(len(present), *blocks[name].shape)
                total[name] += lattice.rounded_sum(shares, blocks[name])
        return total

    def _pieces(self) -> list[tuple[int, int]]:
        """First and last record of each piece."""
        n_records, size = len(self.offsets) - 1, max(1, _PIECE // (self.shares.shape[1] * self.rows.shape[1]))
        return [(first, min(first + size, n_records)) for first in range(0, n_records, size)]

    def _formed(self, first: int, last: int) -> np.ndarray:
        """s_n of these records, shape (last - first, K, width)."""
        sums = np.empty((last - first, self.shares.shape[1], self.rows.shape[1]))

        def fill(start: int, stop: int) -> None:
            fill_sums(self.rows, self.shares, self.offsets, first + start, first + stop, sums[start:stop])

        run_ranges(fill, self.offsets[first : last + 1] - self.offsets[first], least_work=_LEAST_STEPS)
        return sums


def _shaped(total: np.ndarray, place: slice) -> np.ndarray:
    return total[:, 0] if place == slice(0, 1) else total
