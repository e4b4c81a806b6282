"""Expected statistics of sequences of symbols. A record is one whole sequence.

With γ_t the probabilities of the states at step t, and ξ_t those of the states at t - 1 and t:

===========  ===============  ======================================
block        shape            statistic
===========  ===============  ======================================
start        (K,)             γ_1
moves        (K, K)           Σ_t ξ_t
emissions    (K, n_symbols)   Σ_t γ_t eᵀ, e the indicator of x_t
pairs        (n, n)           in the first steps, where symbols are few: counts of neighbouring symbols; of vectors and
                              counts: of neighbouring bins, of all pairs of columns
===========  ===============  ======================================
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips._compute.threads import run_ranges
from vips.data import Sequences
from vips.models.components.bins import Bins
from vips.models.markov import kernels
from vips.privacy import Lattice
from vips.sums import Block, RecordStatistics

__all__ = [
    "Moves",
    "RowSums",
    "SequenceStatistics",
    "SymbolSums",
    "first_shares",
    "of_neighbours",
    "of_pairs",
    "of_pairs_of_bins",
]

_ROUNDING = 1.0 + 1e-9  # exceeds that of the sums of squares
_LEAST_STEPS = 2_000  # below it, one thread


def first_shares(records: Sequences, shares: np.ndarray) -> np.ndarray:
    """γ at the first step of each sequence, 0 for an empty one; shape (n_sequences, K)."""
    start, filled = np.zeros((len(records), shares.shape[1])), np.flatnonzero(np.diff(records.offsets))
    start[filled] = shares[records.offsets[filled]]
    return start


def of_pairs(records: Sequences, n_symbols: int, blocks: Mapping[str, Block]) -> SequenceStatistics:
    """Counts of neighbouring symbols, in block ``pairs``: a pair of codes is one code."""
    codes = np.empty(len(records.values), np.int64)
    kernels.fill_pairs(np.ascontiguousarray(records.values[:, 0]), records.offsets, n_symbols, codes)
    counted = SymbolSums("pairs", codes, records.offsets, np.ones((len(codes), 1)), n_symbols**2)
    return SequenceStatistics([counted], blocks)


def of_pairs_of_bins(
    cells: np.ndarray, offsets: np.ndarray, bins: Bins, blocks: Mapping[str, Block]
) -> SequenceStatistics:
    """Counts, in block ``pairs``, of the bins of all columns at a step and of all columns at the next one.

    Parameters
    ----------
    cells : ndarray of shape (n_steps, n_columns)
        NaN where one is missing.
    """
    d, n_bins, codes = cells.shape[1], int(bins.starts[-1]), bins.codes(cells)
    codes = np.where(codes >= 0, codes + bins.starts[:-1], -1)
    most = np.minimum(np.maximum(np.diff(offsets) - 1, 0) * d**2, n_bins**2)  # different pairs of a sequence
    places = np.concatenate([[0], np.cumsum(most)])
    counts, pairs, sums = np.empty(len(most), np.int64), np.empty(places[-1], np.int64), np.empty((places[-1], 1))

    def fill_range(first: int, last: int) -> None:
        table = np.zeros(n_bins**2, np.int64)
        kernels.count_pairs(codes, offsets, n_bins, places, first, last, table, pairs, counts, sums)

    run_ranges(fill_range, offsets, least_work=_LEAST_STEPS)
    return SequenceStatistics([SumsOfSymbols("pairs", places, pairs, counts, sums, n_bins**2)], blocks)


def of_neighbours(records: Sequences, classes: np.ndarray, shift: int) -> tuple[Moves, SymbolSums]:
    """Moves and emissions where the state at a step is the class of the symbol before (``shift`` -1) or behind it (1).

    Parameters
    ----------
    classes : ndarray of shape (n_symbols, K)
        Of the symbols; rows sum to 1.
    """
    K, codes, classes = classes.shape[1], np.ascontiguousarray(records.values[:, 0]), np.ascontiguousarray(classes)
    shares, pairs = np.empty((len(codes), K)), np.empty((len(records), K, K))
    start = np.empty((len(records), K))

    def fill_range(first: int, last: int) -> None:
        kernels.neighbours(codes, records.offsets, first, last, classes, shift, shares, pairs, start)

    run_ranges(fill_range, records.offsets, least_work=_LEAST_STEPS)
    return Moves(start, pairs), SymbolSums("emissions", codes, records.offsets, shares, len(classes))


class SequenceStatistics(RecordStatistics):
    """Statistics of a chunk of sequences, which consist of parts.

    Parameters
    ----------
    parts : list of objects
        With methods ``squares(blocks)``, the squared norms of shape (n_sequences,), ``weighted_sum(weights)``,
        ``weighted(weights)`` and ``rounded_sum(weights, blocks, lattice)``.
    blocks : dict of str to Block
        Of the model.
    """

    sums_are_new = True

    def __init__(self, parts: list, blocks: Mapping[str, Block]) -> None:
        self._parts, self._blocks = parts, blocks

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        return np.sqrt(sum(part.squares(blocks) for part in self._parts)) * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        weights = np.asarray(weights, float)
        sums = (part.weighted_sum(weights) for part in self._parts)
        return {name: value.reshape(self._blocks[name].shape) for total in sums for name, value in total.items()}

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """w_n s_n of each record by block."""
        of_records = (part.weighted(weights) for part in self._parts)
        return {
            name: values.reshape(len(weights), *self._blocks[name].shape)
            for part in of_records
            for name, values in part.items()
        }

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        sums = (part.rounded_sum(weights, blocks, lattice) for part in self._parts)
        return {name: value.reshape(blocks[name].shape) for total in sums for name, value in total.items()}


class RowSums:
    """Blocks of which each sequence has an array.

    Parameters
    ----------
    arrays : dict of str to ndarray
        By block, of shape (n_sequences, *block.shape).
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = dict(arrays)

    def squares(self, blocks: Mapping[str, Block]) -> np.ndarray:
        return sum(
            np.square(values.reshape(len(values), -1), dtype=np.float64).sum(axis=1) / blocks[name].scale ** 2
            for name, values in self._arrays.items()
        )

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        present = np.flatnonzero(weights)
        return {name: np.tensordot(weights[present], values[present], axes=1) for name, values in self._arrays.items()}

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return {name: _times(weights, values) for name, values in self._arrays.items()}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        present = np.flatnonzero(weights)
        total = {}
        for name, values in self._arrays.items():
            shares = _times(weights[present], values[present])
            total[name] = lattice.rounded_sum(shares, blocks[name])
        return total


class Moves(RowSums):
    """First states and moves of each sequence.

    Parameters
    ----------
    start, pairs : ndarray of shape (n_sequences, K), (n_sequences, K, K)
        γ at the first step, and Σ ξ.
    """

    def __init__(self, start: np.ndarray, pairs: np.ndarray) -> None:
        super().__init__({"start": start, "moves": pairs})


class SumsOfSymbols:
    """A sum for each different symbol of a sequence.

    Parameters
    ----------
    name : str
        Of the block, of shape (K, n_symbols), or another one of that size.
    offsets : ndarray of int64, shape (n_sequences + 1,)
        Where the symbols of each sequence are, and perhaps other places after them.
    symbols, counts : ndarray of int64, shape (n_places,), (n_sequences,)
        Those of a sequence, ascending, and how many there are.
    sums : ndarray of shape (n_places, K)
    n_symbols : int
    """

    def __init__(
        self,
        name: str,
        offsets: np.ndarray,
        symbols: np.ndarray,
        counts: np.ndarray,
        sums: np.ndarray,
        n_symbols: int,
    ) -> None:
        self._name, self._offsets, self._n_symbols = name, offsets, n_symbols
        self._symbols, self._counts, self._sums = symbols, counts, sums

    def squares(self, blocks: Mapping[str, Block]) -> np.ndarray:
        squares = np.empty(len(self._counts))
        kernels.fill_squares(self._offsets, self._counts, self._sums, squares)
        return squares / blocks[self._name].scale ** 2

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return {self._name: self._by_symbol(weights, self._sums)}

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        owners, is_sum = self._owners_of_sums()
        sums = np.zeros((len(weights), self._sums.shape[1], self._n_symbols))
        sums[owners[is_sum], :, self._symbols[is_sum]] = weights[owners[is_sum], None] * self._sums[is_sum]
        return {self._name: sums}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """A symbol's sum in a sequence is one entry of its share: it is rounded once."""
        present = weights != 0.0
        owners, is_sum = self._owners_of_sums()
        of_steps = np.where(present, weights, 0.0)[owners][:, None]
        sums = np.where(is_sum[:, None] & (of_steps != 0.0), of_steps * self._sums, 0.0)
        rounded = lattice.rounded(sums, blocks[self._name])
        return {self._name: self._by_symbol(present.astype(np.int64), rounded)}

    def _owners_of_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The sequence of each step, and whether a sum of a symbol stands there."""
        owners = np.repeat(np.arange(len(self._counts)), np.diff(self._offsets))
        return owners, np.arange(len(owners)) < (self._offsets[:-1] + self._counts)[owners]

    def _by_symbol(self, weights: np.ndarray, sums: np.ndarray) -> np.ndarray:
        total = np.zeros((self._n_symbols, sums.shape[1]), sums.dtype)
        kernels.add_by_symbol(self._offsets, self._counts, self._symbols, weights, sums, total)
        return np.ascontiguousarray(total.T)


class SymbolSums(SumsOfSymbols):
    """Sums of shares by symbol of each sequence.

    Parameters
    ----------
    name : str
        As in :class:`SumsOfSymbols`.
    codes : ndarray of shape (n_steps,)
        What is no code is a missing step.
    offsets : ndarray of int64, shape (n_sequences + 1,)
    shares : ndarray of shape (n_steps, K)
        Of each step.
    n_symbols : int
    """

    def __init__(self, name: str, codes: np.ndarray, offsets: np.ndarray, shares: np.ndarray, n_symbols: int) -> None:
        symbols, places = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        counts, sums = np.empty(len(offsets) - 1, np.int64), np.empty(shares.shape, np.float64)

        def group(first: int, last: int) -> None:
            place_of = np.full(n_symbols, -1, np.int64)
            kernels.group_symbols(codes, offsets, first, last, place_of, symbols, places, counts)
            kernels.add_emissions(offsets, first, last, shares, places, counts, sums)

        run_ranges(group, offsets, least_work=_LEAST_STEPS)
        super().__init__(name, offsets, symbols, counts, sums, n_symbols)


def _times(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Each record's array times its weight."""
    return weights.reshape(-1, *[1] * (values.ndim - 1)) * values
