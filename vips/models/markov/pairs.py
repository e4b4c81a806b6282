"""Start of the states: from released counts of neighbouring symbols, or bins of columns.

Under a hidden Markov model, the probability that symbol y follows symbol x is

    P(x, y) = Σ_ij B(i, x) M(i, j) B(j, y)        M(i, j): probability that states i and j follow each other

a factorisation of one table (Hsu, Kakade and Zhang, 2012, learn from the same table by its singular vectors). Where symbols are
few, the first steps release the table, and everything else is computed from it: EM from several starts, of which the best is
kept.

Where what is seen are counts or numbers, in bins, B follows from what each state is like: a rate, or a mean and a deviation.
The table has a part that is the same in all cells, which takes up what denoising leaves of the noise: else a state would stand
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from vips.models.components.component import Component

__all__ = ["bins_of_pairs", "scale_of_counts", "states_of_bins"]

_BINS, _BINS_OF_COLUMN = 18, 6
_RESTARTS, _ITERATIONS, _FURTHER = 10, 100, 1_000
_SETTLED = 1e-6  # change of a rate
_EVEN = 0.1  # share of the part that is the same in all cells, at first
_LEAST = 1e-12


def bins_of_pairs(n_columns: int) -> int:
    """Most bins of a column whose neighbours are counted: few, because noise is the same in each cell of the table."""
    return int(np.clip(_BINS // n_columns, 2, _BINS_OF_COLUMN))


def scale_of_counts(typical_length: int, order: int, sizes: Sequence[int]) -> float:
    """About the norm of a sequence's counts of bins (order 1) or neighbouring ones (2), of all columns or pairs of them."""
    share = np.mean(1.0 / np.array(sizes)) ** order  # of a bin, or a pair of them
    return float(np.sqrt(typical_length * (1.0 + typical_length * share)) * len(sizes) ** (0.5 * order))


def states_of_bins(
    pairs: np.ndarray, allowed: np.ndarray, columns: Component, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Most likely moves, and rates or normals of the columns, given counts of neighbouring bins, of all pairs of columns.

    Parameters
    ----------
    pairs : ndarray of shape (n_bins, n_bins)
        Denoised counts, ≥ 0; bins are those of all columns, one after the other.
    allowed : ndarray of bool, shape (K, K)
        Moves that exist.
    columns : Component
        In bins.
    rng : Generator
        Of restarts: the counts are released already.

    Returns
    -------
    moves : ndarray of shape (K, K)
        M; entries sum to 1.
    values : ndarray of shape (K, n_values)
        What states are like.
    """
    pairs = (pairs + _LEAST) / (pairs + _LEAST).sum()
    marginals = 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
    starts = [(_first_moves(allowed, rng), columns.some_values(marginals, len(allowed), rng)) for _ in range(_RESTARTS)]
    return _best(partial(_fitted_values, pairs, columns), starts, _ITERATIONS, _FURTHER)


def _best(fit: Callable, starts: Sequence[tuple], n_iterations: int, n_further: int) -> tuple[np.ndarray, np.ndarray]:
    """The most likely one of the fits from these starts, which are fitted side by side, fitted further."""
    likelihood, *fitted = fit(*(np.stack(arrays) for arrays in zip(*starts, strict=True)), n_iterations)
    best = [np.argmax(likelihood)]
    _, moves, others = fit(*(arrays[best] for arrays in fitted), n_further)
    return moves[0], others[0]


def _fitted_values(
    pairs: np.ndarray, columns: Component, moves: np.ndarray, values: np.ndarray, n_iterations: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log likelihoods, M and what states are like, by EM, each from its start: M has the shape (n_starts, K, K)."""
    n_starts, K = moves.shape[:2]
    even, values = np.full((n_starts, 1, 1), _EVEN), values.reshape(n_starts * K, -1)
    for _ in range(n_iterations):
        emissions = np.maximum(columns.in_bins(values), _LEAST).reshape(n_starts, K, -1) / columns.n_columns
        before, behind = moves @ emissions, _transposed(moves) @ emissions
        chance = (1.0 - even) * (_transposed(emissions) @ before) + even / pairs.size
        ratio = (1.0 - even) * pairs / chance
        counts = emissions * (before @ _transposed(ratio) + behind @ ratio)
        last, values = values, columns.values_of_bins(counts.reshape(n_starts * K, -1), values)
        moves = moves * (emissions @ ratio @ _transposed(emissions))
        total = moves.sum(axis=(1, 2), keepdims=True)
        even, moves = np.minimum(np.maximum(1.0 - total, 0.0), 1.0 - _EVEN), moves / total
        if np.abs(values - last).max() < _SETTLED:
            break
    return (pairs * np.log(chance)).sum(axis=(1, 2)), moves, values.reshape(n_starts, K, -1)


def _transposed(matrices: np.ndarray) -> np.ndarray:
    return matrices.swapaxes(1, 2)


def _first_moves(allowed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """M, most of it on the diagonal."""
    K = len(allowed)
    moves = allowed * (rng.dirichlet(np.ones(K * K)).reshape(K, K) + 0.5 * np.eye(K) / K)
    return moves / moves.sum()
