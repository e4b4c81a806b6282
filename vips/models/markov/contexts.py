"""Start of the states: classes of symbols that stand in the same contexts, from released totals.

States that begin at random around the frequencies of the symbols do not learn under noise. So the first steps count, for
each symbol, the classes of its neighbours: to the left and to the right in turn. Symbols with like neighbours form the next
classes::

    step 0   frequencies of the symbols                        classes: the K - 1 most frequent symbols, and all others
    step 1   classes of the symbols to the left
    step 2   classes of the symbols to the right               classes: mixture of the profiles of both steps
    step 3   … and so on, each with the classes of the step before
    last     moves between the final classes, and first ones   states

Each step costs what any other does, and everything else is computed from released numbers. It is a noisy power method (Hardt
and Price, 2014) on the table of neighbours, with classes (Brown et al., 1992) in place of eigenvectors.
"""

from __future__ import annotations

import numpy as np

__all__ = ["classes_of_symbols", "first_classes"]

_RESTARTS, _ITERATIONS = 4, 40
_UNLIKE = 0.3  # standard deviation of a symbol's profile around its class's, as a share of the latter


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
        (_mixture(profiles, counts, noise_std, n_classes, rng) for _ in range(_RESTARTS)), key=lambda fit: fit[0]
    )
    return best[1].T


def _mixture(profiles, counts, noise_std, n_classes, rng) -> tuple[float, np.ndarray]:
    """Log likelihood, and responsibilities of shape (n_classes, n_symbols), by EM from a random start."""
    # of a typical entry: it says how much a symbol tells about the profile of its class
    typical = counts / n_classes
    precision = counts / (noise_std**2 + typical + (_UNLIKE * typical) ** 2 + 1.0)
    rates = _distant(profiles, counts, precision, n_classes, rng)
    shares = np.full(n_classes, 1.0 / n_classes)
    for _ in range(_ITERATIONS):
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
