"""Start of the states, from released counts: of neighbouring symbols, or bins of columns; or of many symbols.

Under a hidden Markov model, the probability that symbol y follows symbol x is

    P(x, y) = Σ_ij B(i, x) M(i, j) B(j, y)        M(i, j): probability that states i and j follow each other

a factorisation of one table (Hsu, Kakade and Zhang, 2012, learn from the same table by its singular vectors). Where symbols are
few, the first steps release the table, and everything else is computed from it: EM from several starts, of which the best is
kept.

Where what is seen are counts or numbers, in bins, B follows from what each state is like: a rate, or a mean and a deviation.
The table has a part that is the same in all cells, which takes up what denoising leaves of the noise: else a state would stand
for it.

**Classes of symbols that stand in the same contexts.** States that begin at random around the frequencies of the symbols do
not learn under noise. So where symbols are many, the first steps count, for each symbol, the classes of its neighbours: to the
left and to the right in turn. Symbols with like neighbours form the next classes::

    step 0   frequencies of the symbols                        classes: the K - 1 most frequent symbols, and all others
    step 1   classes of the symbols to the left
    step 2   classes of the symbols to the right               classes: mixture of the profiles of both steps
    step 3   … and so on, each with the classes of the step before
    last     moves between the final classes, and first ones   states

Each step costs what any other does, and everything else is computed from released numbers. It is a noisy power method (Hardt
and Price, 2014) on the table of neighbours, with classes (Brown et al., 1992) in place of eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from vips.models.components.component import Component

__all__ = ["bins_of_pairs", "classes_of_symbols", "first_classes", "scale_of_counts", "states_of_bins"]

_BINS, _BINS_OF_COLUMN = 18, 6
_RESTARTS, _ITERATIONS, _FURTHER = 10, 100, 1_000
_SETTLED = 1e-6  # change of a rate
_EVEN = 0.1  # share of the part that is the same in all cells, at first
_LEAST = 1e-12
_RESTARTS_OF_CLASSES, _ITERATIONS_OF_CLASSES = 4, 40
_UNLIKE = 0.3  # standard deviation of a symbol's profile around its class's, as a share of the latter


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


def first_classes(counts: np.ndarray, n_classes: int) -> np.ndarray:
    """A class for each of the most frequent symbols, and one for all others: shape (n_symbols, n_classes)."""
    order = np.argsort(-counts, kind="stable")
    classes = np.zeros((len(counts), n_classes))
    classes[order, np.minimum(np.arange(len(counts)), n_classes - 1)] = 1.0
    return classes


def classes_of_symbols(
    profiles: np.ndarray, counts: np.ndarray, noise_std: float, n_classes: int, rng: np.random.Generator
) -> np.ndarray:
    """Probabilities of classes given the noisy profiles of the symbols, from a mixture whose components are classes.

    Parameters
    ----------
    profiles : ndarray of shape (n_contexts, n_symbols)
        Noisy counts of the neighbours' classes.
    counts : ndarray of shape (n_symbols,)
        Frequencies, ≥ 0.
    noise_std : float
        Of the noise in a profile.
    n_classes : int
    rng : Generator
        Of restarts: the numbers are released already.

    Returns
    -------
    classes : ndarray of shape (n_symbols, n_classes)
        Rows sum to 1. A symbol whose profile is hidden by noise has the shares of the classes.
    """
    best = max(
        (_mixture(profiles, counts, noise_std, n_classes, rng) for _ in range(_RESTARTS_OF_CLASSES)),
        key=lambda fit: fit[0],
    )
    return best[1].T


def _mixture(profiles, counts, noise_std, n_classes, rng) -> tuple[float, np.ndarray]:
    """Log likelihood, and responsibilities of shape (n_classes, n_symbols), by EM from a random start."""
    # of a typical entry: it says how much a symbol tells about the profile of its class
    typical = counts / n_classes
    precision = counts / (noise_std**2 + typical + (_UNLIKE * typical) ** 2 + 1.0)
    rates = _distant(profiles, counts, precision, n_classes, rng)
    shares = np.full(n_classes, 1.0 / n_classes)
    for _ in range(_ITERATIONS_OF_CLASSES):
        logs = np.repeat(np.log(shares)[:, None], len(counts), axis=1)
        for rate, profile in zip(rates.T, profiles, strict=True):
            mean = rate[:, None] * counts
            variance = noise_std**2 + mean + (_UNLIKE * mean) ** 2 + 1e-3
            logs -= 0.5 * ((profile - mean) ** 2 / variance + np.log(variance))
        largest = logs.max(axis=0)
        members = np.exp(logs - largest)
        total = members.sum(axis=0)
        members /= total
        shares = (members.sum(axis=1) + 0.1) / (len(counts) + 0.1 * n_classes)
        weights = members * precision
        rates = np.maximum(weights @ profiles.T / (weights @ counts + 1e-9)[:, None], 1e-6)
    return float((largest + np.log(total)).sum()), members


def _distant(profiles, counts, precision, n_classes, rng) -> np.ndarray:
    """Rates of symbols whose profiles lie apart, drawn as k-means++ draws centres, shape (n_classes, n_contexts)."""
    known = np.argsort(-counts, kind="stable")[: max(20 * n_classes, 1)]
    rates, weights = (profiles[:, known] / np.maximum(counts[known], 1.0)).T, counts[known] * precision[known]
    chance, distance, chosen = counts[known] + 1e-9, np.full(len(known), np.inf), []
    for _ in range(n_classes):
        chosen.append(rng.choice(len(known), p=chance / chance.sum()))
        distance = np.minimum(distance, weights * ((rates - rates[chosen[-1]]) ** 2).sum(axis=1))
        chance = distance + 1e-9
    return np.maximum(rates[chosen], 1e-4)
