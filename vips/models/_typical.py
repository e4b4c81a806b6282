"""Draws for ``typical_records``: plain guesses of parameters, and records of them."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from vips.models.components.matching.simulator import levels_at

__all__ = ["apart", "members", "moves", "n_columns", "persons", "rows", "vectors", "within"]

_STAYS, _STD, _REACH = 0.8, 0.15, 0.7  # probability, and parts of the largest norm
_PLACES = 8  # for each point, to choose from


def n_columns(model, n_features: int | None) -> int:
    """``n_features``, which must be known.

    Raises
    ------
    NotImplementedError
        If it is None.
    """
    if n_features is None:
        raise NotImplementedError(
            f"{type(model).__name__} does not declare its columns: say how many there are, n_features=, or give records that "
            "resemble the private ones, like=, generated or public."
        )
    return n_features


def rows(norm: float | None, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of independent numbers with norms of at most ``norm``, shape (n, d), and a predictor of deviation 1."""
    X = (1.0 if norm is None else norm) * rng.uniform(-1.0, 1.0, (n, d)) / np.sqrt(d)
    predictor = X @ rng.standard_normal(d)
    return X, predictor / max(float(predictor.std()), 1e-12)


def persons(n: int, rng: np.random.Generator) -> np.ndarray:
    """Ids of n persons of one to eight rows, shape (n_rows,)."""
    return np.repeat(np.arange(n), rng.integers(1, 9, n))


def members(n: int, n_components: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of components of unequal shares, shape (n,)."""
    return rng.choice(n_components, n, p=rng.dirichlet(np.full(n_components, 8.0)))


def apart(low: float, high: float, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Points between these bounds, shape (n, d): each is the farthest of many from those before."""
    places = rng.uniform(low, high, (_PLACES * n, d))
    chosen = places[:1]
    for _ in range(n - 1):
        chosen = np.vstack([chosen, places[np.argmax(cdist(places, chosen).min(axis=1))]])
    return chosen


def vectors(norm: float | None, of: np.ndarray, n_components: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Vectors around the means of these components, which are apart, shape (len(of), d)."""
    means = apart(-_REACH, _REACH, n_components, d, rng)
    return (1.0 if norm is None else norm) / np.sqrt(d) * (means[of] + _STD * rng.standard_normal((len(of), d)))


def within(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A level for each row of probabilities, shape (len(p),)."""
    return levels_at(rng.random(len(p)), p)


def moves(n_states: int) -> np.ndarray:
    """Probabilities of the next state, of states that mostly stay, shape (n_states, n_states)."""
    stays = np.eye(n_states)
    return _STAYS * stays + (1.0 - _STAYS) * (1.0 - stays) / (n_states - 1) if n_states > 1 else stays
