"""Start of the states: from released counts of neighbouring symbols.

Under a hidden Markov model, the probability that symbol y follows symbol x is

    P(x, y) = Σ_ij B(i, x) M(i, j) B(j, y)        M(i, j): probability that states i and j follow each other

a factorisation of one table (Hsu, Kakade and Zhang, 2012, learn from the same table by its singular vectors). Where symbols are
few, the first steps release the table, and everything else is computed from it: EM from many starts, of which the best is kept.

Where what is seen are counts, in bins, B has a rate for each state and column. The table then has a part that is the same in
all cells, which takes up what denoising leaves of the noise: else a state would stand for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from vips.models.components.counts import Counts

__all__ = ["rates_of_pairs", "states_of_pairs"]

_RESTARTS, _ITERATIONS, _FURTHER = 10, 500, 5_000
_FEWER, _MORE = 100, 1_000  # iterations where states have rates
_SETTLED = 1e-6  # change of a rate
_EVEN = 0.1  # share of the part that is the same in all cells, at first
_SPREAD = 1.0  # of the first B around the frequencies of the symbols, on the scale of logarithms
_LEAST = 1e-12


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


def rates_of_pairs(
    pairs: np.ndarray, allowed: np.ndarray, columns: Counts, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Most likely moves and Poisson rates given counts of neighbouring bins, of all pairs of columns.

    Parameters
    ----------
    pairs : ndarray of shape (n_bins, n_bins)
        Denoised counts, ≥ 0; bins are those of all columns, one after the other.
    allowed : ndarray of bool, shape (K, K)
        Moves that exist.
    columns : Counts
    rng : Generator
        Of restarts: the counts are released already.

    Returns
    -------
    moves : ndarray of shape (K, K)
        M; entries sum to 1.
    rates : ndarray of shape (K, n_columns)
    """
    pairs = (pairs + _LEAST) / (pairs + _LEAST).sum()
    marginals = 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
    starts = ((_first_moves(allowed, rng), columns.some_rates(marginals, len(allowed), rng)) for _ in range(_RESTARTS))
    return _best(partial(_fitted_rates, pairs, columns), starts, _FEWER, _MORE)


def _best(fit: Callable, starts: Iterable[tuple], n_iterations: int, n_further: int) -> tuple[np.ndarray, np.ndarray]:
    """The most likely one of the fits from these starts, fitted further."""
    best = max((fit(*start, n_iterations) for start in starts), key=lambda fitted: fitted[0])
    return fit(*best[1:], n_further)[1:]


def _fitted_rates(
    pairs: np.ndarray, columns: Counts, moves: np.ndarray, rates: np.ndarray, n_iterations: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log likelihood, M and rates by EM."""
    even = _EVEN
    for _ in range(n_iterations):
        emissions = np.maximum(columns.in_bins(rates), _LEAST) / columns.n_columns
        before, behind = moves @ emissions, moves.T @ emissions
        chance = (1.0 - even) * (emissions.T @ before) + even / pairs.size
        ratio = (1.0 - even) * pairs / chance
        last, rates = rates, columns.rates_of_bins(emissions * (before @ ratio.T + behind @ ratio), rates)
        moves = moves * (emissions @ ratio @ emissions.T)
        even = float(np.clip(1.0 - moves.sum(), 0.0, 1.0 - _EVEN))
        moves /= moves.sum()
        if np.abs(rates - last).max() < _SETTLED:
            break
    return float((pairs * np.log(chance)).sum()), moves, rates


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
