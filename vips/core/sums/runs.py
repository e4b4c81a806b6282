"""Sums over runs of rows: a record is a sequence, or one row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.core.exact.rowwise import row_dots
from vips.core.exact.threads import run_ranges
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import kernels
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form

__all__ = ["ComponentSums", "SumsOfSymbols", "SymbolSums"]

_ROUNDING = 1.0 + 1e-9  # exceeds that of the sums of squares
_PIECE = 500_000  # numbers that are formed at once
_LEAST_STEPS = 2_000  # below it, one thread


class ComponentSums(Form):
    """Σ_t γ_t ⊗ (1, T(x_t)) of each record: t over its rows, γ_t the shares of the components.

    The first of the numbers of a row is 1, for the counts of the components; the others are those of its columns. Each block
    takes some of them: its statistic has shape (K, number of these), or (K,) for the first alone.

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
        self.names = tuple(places)

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        squares = np.empty(len(self.offsets) - 1)
        for first, last in self._pieces():
            formed = self._formed(first, last)
            squares[first:last] = sum(
                row_dots(part, part) / blocks[name].scale ** 2
                for name, place in self.places.items()
                for part in [formed[:, :, place].reshape(last - first, -1)]
            )
        return np.sqrt(squares) * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        of_rows = np.repeat(np.asarray(weights, np.float64), np.diff(self.offsets))
        rows, shares, present = self.rows, self.shares, of_rows != 0.0
        if not present.all():
            rows, shares, of_rows = rows[present], shares[present], of_rows[present]
        total = (of_rows[:, None] * shares).T @ rows
        of_first = slice(0, 1)  # has shape (K,)
        return {name: total[:, 0] if place == of_first else total[:, place] for name, place in self.places.items()}

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        formed = weights[:, None, None] * self._formed(0, len(weights))
        return {name: formed[:, :, place] for name, place in self.places.items()}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
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
            kernels.fill_sums(self.rows, self.shares, self.offsets, first + start, first + stop, sums[start:stop])

        run_ranges(fill, self.offsets[first : last + 1] - self.offsets[first], least_work=_LEAST_STEPS)
        return sums


class SumsOfSymbols(Form):
    """A sum of shares for each different symbol of a sequence.

    Parameters
    ----------
    name : str
        Of the block.
    offsets : ndarray of int64, shape (n_sequences + 1,)
        Where the symbols of each sequence are, and perhaps other places after them.
    symbols, counts : ndarray of int64, shape (n_places,), (n_sequences,)
        Those of a sequence, ascending, and how many there are.
    sums : ndarray of shape (n_places, K)
    n_symbols : int
    shape : tuple of int, optional
        Of the block, if it is not (K, n_symbols).
    """

    def __init__(
        self, name: str, offsets: np.ndarray, symbols: np.ndarray, counts: np.ndarray, sums: np.ndarray,
        n_symbols: int, shape: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        self.names, self._offsets, self._n_symbols = (name,), offsets, n_symbols
        self._shape = (sums.shape[1], n_symbols) if shape is None else shape
        self._symbols, self._counts, self._sums = symbols, counts, sums

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        squares = np.empty(len(self._counts))
        kernels.fill_squares(self._offsets, self._counts, self._sums, squares)
        return np.sqrt(squares) / blocks[self.names[0]].scale * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return {self.names[0]: self._by_symbol(np.asarray(weights, np.float64), self._sums)}

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        owners, is_sum = self._owners_of_sums()
        sums = np.zeros((len(weights), self._sums.shape[1], self._n_symbols))
        sums[owners[is_sum], :, self._symbols[is_sum]] = weights[owners[is_sum], None] * self._sums[is_sum]
        return {self.names[0]: sums.reshape(len(sums), *self._shape)}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """A symbol's sum in a sequence is one entry of its share: it is rounded once."""
        present = weights != 0.0
        owners, is_sum = self._owners_of_sums()
        of_steps = np.where(present, weights, 0.0)[owners][:, None]
        sums = np.where(is_sum[:, None] & (of_steps != 0.0), of_steps * self._sums, 0.0)
        rounded = lattice.rounded(sums, blocks[self.names[0]])
        return {self.names[0]: self._by_symbol(present.astype(np.int64), rounded)}

    def _owners_of_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The sequence of each step, and whether a sum of a symbol stands there."""
        owners = np.repeat(np.arange(len(self._counts)), np.diff(self._offsets))
        return owners, np.arange(len(owners)) < (self._offsets[:-1] + self._counts)[owners]

    def _by_symbol(self, weights: np.ndarray, sums: np.ndarray) -> np.ndarray:
        total = np.zeros((self._n_symbols, sums.shape[1]), sums.dtype)
        kernels.add_by_symbol(self._offsets, self._counts, self._symbols, weights, sums, total)
        return np.ascontiguousarray(total.T).reshape(self._shape)


class SymbolSums(SumsOfSymbols):
    """Sums of shares by symbol of each sequence. ``name``, ``n_symbols`` and ``shape`` are as in :class:`SumsOfSymbols`.

    Parameters
    ----------
    codes : ndarray of shape (n_steps,)
        What is no code is a missing step.
    offsets : ndarray of int64, shape (n_sequences + 1,)
    shares : ndarray of shape (n_steps, K)
        Of each step.
    """

    def __init__(
        self, name: str, codes: np.ndarray, offsets: np.ndarray, shares: np.ndarray, n_symbols: int,
        shape: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        symbols, places = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        counts, sums = np.empty(len(offsets) - 1, np.int64), np.empty(shares.shape, np.float64)

        def group(first: int, last: int) -> None:
            place_of = np.full(n_symbols, -1, np.int64)
            kernels.group_symbols(codes, offsets, first, last, place_of, symbols, places, counts)
            kernels.add_emissions(offsets, first, last, shares, places, counts, sums)

        run_ranges(group, offsets, least_work=_LEAST_STEPS)
        super().__init__(name, offsets, symbols, counts, sums, n_symbols, shape)
