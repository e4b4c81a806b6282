"""Expected statistics of sequences of symbols. A record is one whole sequence.

With γ_t the probabilities of the states at step t, and ξ_t those of the states at t - 1 and t:

===========  ===============  ======================================
block        shape            statistic
===========  ===============  ======================================
start        (K,)             γ_1
moves        (K, K)           Σ_t ξ_t
emissions    (K, n_symbols)   Σ_t γ_t eᵀ, e the indicator of x_t
===========  ===============  ======================================
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips._compute.threads import run_ranges
from vips.data import Sequences
from vips.models.markov import kernels
from vips.privacy import Lattice
from vips.statistics import Block, RecordStatistics

__all__ = ["SymbolStatistics", "first_shares", "inferred", "of_neighbours"]

_ROUNDING = 1.0 + 1e-9  # exceeds that of the sums of squares
_LEAST_STEPS = 2_000  # below it, one thread


def inferred(
    records: Sequences, start: np.ndarray, moves: np.ndarray, likely: np.ndarray, log_scale: np.ndarray
) -> tuple:
    """Probabilities of the states given each sequence, by the forward-backward algorithm.

    Parameters
    ----------
    records : Sequences
    start, moves : ndarray of shape (K,), (K, K)
        Of states, and of moves from the state in the row; they need not be normalised.
    likely : ndarray of shape (n_steps, K)
        In proportion to the probability of each step in each state.
    log_scale : ndarray of shape (n_steps,)
        Logarithm of that factor.

    Returns
    -------
    shares : ndarray of shape (n_steps, K)
    pairs : ndarray of shape (n_sequences, K, K)
    log_likelihood : ndarray of shape (n_sequences,)
    """
    n_steps, K = likely.shape
    shares, pairs = np.empty((n_steps, K)), np.empty((len(records), K, K))
    log_likelihood, back = np.empty(len(records)), np.ascontiguousarray(moves.T)

    def some(first: int, last: int) -> None:
        kernels.forward_backward(
            records.offsets, first, last, start, moves, back, likely, log_scale, shares, pairs, log_likelihood
        )

    run_ranges(some, records.offsets, least_work=_LEAST_STEPS)
    return shares, pairs, log_likelihood


def first_shares(records: Sequences, shares: np.ndarray) -> np.ndarray:
    """γ at the first step of each sequence, 0 for an empty one; shape (n_sequences, K)."""
    start, filled = np.zeros((len(records), shares.shape[1])), np.flatnonzero(np.diff(records.offsets))
    start[filled] = shares[records.offsets[filled]]
    return start


def of_neighbours(records: Sequences, classes: np.ndarray, shift: int) -> SymbolStatistics:
    """Statistics in which the state at a step is the class of the symbol before (``shift`` -1) or behind it (1).

    Parameters
    ----------
    classes : ndarray of shape (n_symbols, K)
        Of the symbols; rows sum to 1.
    """
    K, codes = classes.shape[1], np.ascontiguousarray(records.values[:, 0])
    shares, pairs = np.empty((len(codes), K)), np.empty((len(records), K, K))
    start = np.empty((len(records), K))

    def some(first: int, last: int) -> None:
        kernels.neighbours(codes, records.offsets, first, last, classes, shift, shares, pairs, start)

    run_ranges(some, records.offsets, least_work=_LEAST_STEPS)
    return SymbolStatistics(records, shares, pairs, start, len(classes))


class SymbolStatistics(RecordStatistics):
    """Statistics of a chunk of sequences.

    Parameters
    ----------
    records : Sequences
        One column of codes. What is no code is a missing step.
    shares, pairs, start : ndarray of shape (n_steps, K), (n_sequences, K, K), (n_sequences, K)
        γ, Σ ξ, and γ at the first step.
    n_symbols : int
    """

    sums_are_new = True

    def __init__(
        self, records: Sequences, shares: np.ndarray, pairs: np.ndarray, start: np.ndarray, n_symbols: int
    ) -> None:
        self._offsets, self._n_symbols = records.offsets, n_symbols
        self.shares, self._pairs, self._start = shares, pairs, start
        n_steps = len(records.values)
        codes = np.ascontiguousarray(records.values[:, 0])
        self._symbols, places = np.empty(n_steps, np.int64), np.empty(n_steps, np.int64)
        self._counts, self._sums = np.empty(len(records), np.int64), np.empty(shares.shape)

        def group(first: int, last: int) -> None:
            kernels.group_symbols(codes, self._offsets, n_symbols, first, last, self._symbols, places, self._counts)
            kernels.add_emissions(self._offsets, first, last, shares, places, self._counts, self._sums)

        run_ranges(group, self._offsets, least_work=_LEAST_STEPS)

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        squares = np.empty(len(self._counts))
        kernels.fill_squares(self._offsets, self._counts, self._sums, squares)
        total = squares / blocks["emissions"].scale ** 2
        for name, values in (("start", self._start), ("moves", self._pairs)):
            total += (values.reshape(len(values), -1) ** 2).sum(axis=1) / blocks[name].scale ** 2
        return np.sqrt(total) * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        present = np.flatnonzero(weights)
        some = weights[present]
        return {
            "start": some @ self._start[present],
            "moves": np.tensordot(some, self._pairs[present], axes=1),
            "emissions": self._by_symbol(np.asarray(weights, float), self._sums),
        }

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """A symbol's sum in a sequence is one entry of its share: it is rounded once."""
        present = weights != 0.0
        of_steps = np.repeat(np.where(present, weights, 0.0), np.diff(self._offsets))[:, None]
        is_sum = np.arange(len(self._sums)) < np.repeat(self._offsets[:-1] + self._counts, np.diff(self._offsets))
        sums = np.where(is_sum[:, None] & (of_steps != 0.0), of_steps * self._sums, 0.0)
        some = weights[present]
        return {
            "start": lattice.rounded(some[:, None] * self._start[present], blocks["start"]).sum(axis=0),
            "moves": lattice.rounded(some[:, None, None] * self._pairs[present], blocks["moves"]).sum(axis=0),
            "emissions": self._by_symbol(present.astype(np.int64), lattice.rounded(sums, blocks["emissions"])),
        }

    def _by_symbol(self, weights: np.ndarray, sums: np.ndarray) -> np.ndarray:
        total = np.zeros((self._n_symbols, sums.shape[1]), sums.dtype)
        kernels.add_by_symbol(self._offsets, self._counts, self._symbols, weights, sums, total)
        return np.ascontiguousarray(total.T)
