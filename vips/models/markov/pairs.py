"""Start of the states: from released counts of neighbouring symbols.

Under a hidden Markov model, the probability that symbol y follows symbol x is

    P(x, y) = Σ_ij B(i, x) M(i, j) B(j, y)        M(i, j): probability that states i and j follow each other

a factorisation of one table (Hsu, Kakade and Zhang, 2012, learn from the same table by its singular vectors). Where symbols are
few, the first steps release the table, and everything else is computed from it: EM from many starts, of which the best is kept.

Where what is seen are counts or numbers, in bins, B follows from a rate, or a mean and a deviation, for each state and column.
The table then has a part that is the same in all cells, which takes up what denoising leaves of the noise: else a state would
stand for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.special import ndtr, ndtri

from vips.models.components.bins import Bins
from vips.models.components.counts import Counts

__all__ = ["NormalsInBins", "bins_of_pairs", "scale_of_counts", "states_of_bins", "states_of_pairs"]

_BINS, _BINS_OF_COLUMN = 18, 6
_RESTARTS, _ITERATIONS, _FURTHER = 10, 500, 5_000
_FEWER, _MORE = 100, 1_000  # iterations where states have rates
_SETTLED = 1e-6  # change of a rate
_EVEN = 0.1  # share of the part that is the same in all cells, at first
_SPREAD = 1.0  # of the first B around the frequencies of the symbols, on the scale of logarithms
_LEAST = 1e-12
_NARROWEST, _WIDEST = 0.05, 10.0  # deviation of a state, in those of all steps; also the most distant mean


def bins_of_pairs(n_columns: int) -> int:
    """Most bins of a column whose neighbours are counted: few, because noise is the same in each cell of the table."""
    return int(np.clip(_BINS // n_columns, 2, _BINS_OF_COLUMN))


def scale_of_counts(typical_length: int, order: int, sizes: Sequence[int]) -> float:
    """About the norm of a sequence's counts of bins (order 1) or neighbouring ones (2), of all columns or pairs of them."""
    share = np.mean(1.0 / np.array(sizes)) ** order  # of a bin, or a pair of them
    return float(np.sqrt(typical_length * (1.0 + typical_length * share)) * len(sizes) ** (0.5 * order))


def states_of_pairs(pairs: np.ndarray, allowed: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Most likely moves and emissions given counts of neighbouring symbols.

    Parameters
    ----------
    pairs : ndarray of shape (n_symbols, n_symbols)
        Denoised counts, ≥ 0.
    allowed : ndarray of bool, shape (K, K)
        Moves that exist.
    rng : Generator
        Of restarts: the counts are released already.

    Returns
    -------
    moves : ndarray of shape (K, K)
        M; entries sum to 1.
    emissions : ndarray of shape (K, n_symbols)
        B; rows sum to 1.
    """
    pairs = (pairs + _LEAST) / (pairs + _LEAST).sum()
    starts = (_start(pairs, allowed, rng) for _ in range(_RESTARTS))
    return _best(partial(_fitted, pairs), starts, _ITERATIONS, _FURTHER)


def states_of_bins(
    pairs: np.ndarray, allowed: np.ndarray, columns: Counts | NormalsInBins, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Most likely moves, and rates or normals of the columns, given counts of neighbouring bins, of all pairs of columns.

    Parameters
    ----------
    pairs : ndarray of shape (n_bins, n_bins)
        Denoised counts, ≥ 0; bins are those of all columns, one after the other.
    allowed : ndarray of bool, shape (K, K)
        Moves that exist.
    columns : Counts or NormalsInBins
    rng : Generator
        Of restarts: the counts are released already.

    Returns
    -------
    moves : ndarray of shape (K, K)
        M; entries sum to 1.
    values : ndarray of shape (K, n_columns, ...)
        What states are like.
    """
    pairs = (pairs + _LEAST) / (pairs + _LEAST).sum()
    marginals = 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
    starts = ((_first_moves(allowed, rng), columns.some_values(marginals, len(allowed), rng)) for _ in range(_RESTARTS))
    return _best(partial(_fitted_values, pairs, columns), starts, _FEWER, _MORE)


@dataclass(frozen=True)
class NormalsInBins:
    """Columns that are normal in each state, in bins that hold as much each of a standard normal column.

    Parameters
    ----------
    n_columns, n_bins : int
        Of each column.
    """

    n_columns: int
    n_bins: int

    @cached_property
    def bins(self) -> Bins:
        edges = ndtri(np.linspace(0.0, 1.0, self.n_bins + 1))
        return Bins((edges,) * self.n_columns, (0.0,) * self.n_columns)

    def in_bins(self, normals: np.ndarray) -> np.ndarray:
        """Probabilities of the bins, column after column, under means and deviations of shape (K, n_columns, 2)."""
        return np.diff(ndtr(self._places(normals)), axis=2).reshape(len(normals), -1)

    def values_of_bins(self, counts: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """The next means and deviations by EM, given counts in the bins of each state, shape (K, n_columns × n_bins)."""
        places, counts = self._places(normals), counts.reshape(len(counts), self.n_columns, -1) + _LEAST
        density, finite = np.exp(-0.5 * np.square(places)) / np.sqrt(2.0 * np.pi), np.clip(places, -40.0, 40.0)
        inside = np.maximum(np.diff(ndtr(places), axis=2), _LEAST)
        first = -np.diff(density, axis=2) / inside  # mean of the bin's part of a standard normal, and of its square
        second = np.maximum(1.0 - np.diff(finite * density, axis=2) / inside, np.square(first))
        shares = counts / counts.sum(axis=2, keepdims=True)
        shift = (shares * first).sum(axis=2)
        spread = (shares * second).sum(axis=2) - np.square(shift)
        mean = normals[:, :, 0] + normals[:, :, 1] * shift
        deviation = normals[:, :, 1] * np.sqrt(np.maximum(spread, 0.0))
        return np.stack([np.clip(mean, -_WIDEST, _WIDEST), np.clip(deviation, _NARROWEST, _WIDEST)], axis=2)

    def some_values(self, marginals: np.ndarray, n_states: int, rng: np.random.Generator) -> np.ndarray:
        """Normals of states, whose means are each drawn from the marginals."""
        means = np.empty((n_states, self.n_columns))
        middles = ndtri((np.arange(self.n_bins) + 0.5) / self.n_bins)
        for j, chances in enumerate(marginals.reshape(self.n_columns, -1)):
            means[:, j] = rng.choice(middles, n_states, p=chances / chances.sum())
        means += 0.2 * rng.standard_normal(means.shape)
        return np.stack([means, np.full_like(means, 0.5)], axis=2)

    def _places(self, normals: np.ndarray) -> np.ndarray:
        """Of the edges, in deviations of each state; shape (K, n_columns, n_bins + 1)."""
        return (self.bins.edges[0] - normals[:, :, :1]) / normals[:, :, 1:]


def _best(fit: Callable, starts: Iterable[tuple], n_iterations: int, n_further: int) -> tuple[np.ndarray, np.ndarray]:
    """The most likely one of the fits from these starts, fitted further."""
    best = max((fit(*start, n_iterations) for start in starts), key=lambda fitted: fitted[0])
    return fit(*best[1:], n_further)[1:]


def _fitted_values(
    pairs: np.ndarray, columns: Counts | NormalsInBins, moves: np.ndarray, values: np.ndarray, n_iterations: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log likelihood, M and what states are like, by EM."""
    even = _EVEN
    for _ in range(n_iterations):
        emissions = np.maximum(columns.in_bins(values), _LEAST) / columns.n_columns
        before, behind = moves @ emissions, moves.T @ emissions
        chance = (1.0 - even) * (emissions.T @ before) + even / pairs.size
        ratio = (1.0 - even) * pairs / chance
        last, values = values, columns.values_of_bins(emissions * (before @ ratio.T + behind @ ratio), values)
        moves = moves * (emissions @ ratio @ emissions.T)
        even = float(np.clip(1.0 - moves.sum(), 0.0, 1.0 - _EVEN))
        moves /= moves.sum()
        if np.abs(values - last).max() < _SETTLED:
            break
    return float((pairs * np.log(chance)).sum()), moves, values


def _first_moves(allowed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """M, most of it on the diagonal."""
    K = len(allowed)
    moves = allowed * (rng.dirichlet(np.ones(K * K)).reshape(K, K) + 0.5 * np.eye(K) / K)
    return moves / moves.sum()


def _start(pairs: np.ndarray, allowed: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """M, most of it on the diagonal, and B around the frequencies of the symbols."""
    K, frequencies = len(allowed), 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
    moves = _first_moves(allowed, rng)
    emissions = frequencies * np.exp(_SPREAD * rng.standard_normal((K, len(pairs))))
    return moves, emissions / emissions.sum(axis=1, keepdims=True)


def _fitted(
    pairs: np.ndarray, moves: np.ndarray, emissions: np.ndarray, n_iterations: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log likelihood, M and B by EM."""
    frequencies = pairs.sum(axis=0)
    for _ in range(n_iterations):
        before, behind = moves @ emissions, moves.T @ emissions
        chance = np.maximum(emissions.T @ before, 1e-300)
        ratio = pairs / chance
        moves, emissions = (
            moves * (emissions @ ratio @ emissions.T),
            emissions * (before @ ratio.T + behind @ ratio) + _LEAST * frequencies,
        )
        moves /= moves.sum()
        emissions /= emissions.sum(axis=1, keepdims=True)
    return float((pairs * np.log(chance)).sum()), moves, emissions
