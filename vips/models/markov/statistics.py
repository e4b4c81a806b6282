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

import numpy as np

from vips.core.exact.threads import run_ranges
from vips.core.sums import DenseStatistics
from vips.core.sums.runs import SumsOfSymbols, SymbolSums
from vips.data._sequences import Sequences
from vips.models.components.bins import Bins
from vips.models.markov import kernels

__all__ = ["first_shares", "moves_of", "of_neighbours", "of_pairs", "of_pairs_of_bins"]

_LEAST_STEPS = 2_000  # below it, one thread


def first_shares(records: Sequences, shares: np.ndarray) -> np.ndarray:
    """γ at the first step of each sequence, 0 for an empty one; shape (n_sequences, K)."""
    start, filled = np.zeros((len(records), shares.shape[1])), np.flatnonzero(np.diff(records.offsets))
    start[filled] = shares[records.offsets[filled]]
    return start


def moves_of(start: np.ndarray, pairs: np.ndarray) -> DenseStatistics:
    """First states and moves of each sequence: γ at the first step, (n_sequences, K), and Σ ξ, (n_sequences, K, K)."""
    return DenseStatistics({"start": start, "moves": pairs})


def of_pairs(records: Sequences, n_symbols: int) -> SymbolSums:
    """Counts of neighbouring symbols, in block ``pairs``: a pair of codes is one code."""
    codes = np.empty(len(records.values), np.int64)
    kernels.fill_pairs(np.ascontiguousarray(records.values[:, 0]), records.offsets, n_symbols, codes)
    ones, shape = np.ones((len(codes), 1)), (n_symbols, n_symbols)
    return SymbolSums("pairs", codes, records.offsets, ones, n_symbols**2, shape)


def of_pairs_of_bins(cells: np.ndarray, offsets: np.ndarray, bins: Bins) -> SumsOfSymbols:
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
    return SumsOfSymbols("pairs", places, pairs, counts, sums, n_bins**2, (n_bins, n_bins))


def of_neighbours(records: Sequences, classes: np.ndarray, shift: int) -> tuple[DenseStatistics, SymbolSums]:
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
    return moves_of(start, pairs), SymbolSums("emissions", codes, records.offsets, shares, len(classes))
