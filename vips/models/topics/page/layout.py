"""Places of topics on a map: classical multidimensional scaling of their Jensen-Shannon distances.

    d(a, b)² = H((a + b)/2) - H(a)/2 - H(b)/2,    H the entropy in bits

The distance is between 0 and 1, and can be embedded into a Euclidean space without loss: no eigenvalue is negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

__all__ = ["Layout", "distances", "place"]


@dataclass(frozen=True)
class Layout:
    """Topics in the plane.

    Attributes
    ----------
    points : ndarray of shape (n_topics, 2)
        Centred; distances between points are at most those of the topics.
    share : float
        Of the sum of squared distances, how much the plane shows: from 0 to 1.
    """

    points: np.ndarray
    share: float


def distances(topics: np.ndarray) -> np.ndarray:
    """Jensen-Shannon distances between rows, which sum to 1; shape (n_topics, n_topics)."""
    entropies = _entropy(topics)
    squares = np.zeros((len(topics), len(topics)))
    for i, topic in enumerate(topics[:-1]):
        later = slice(i + 1, None)
        squares[i, later] = _entropy(0.5 * (topic + topics[later])) - 0.5 * (entropies[i] + entropies[later])
    return np.sqrt(np.maximum(squares + squares.T, 0.0))


def place(distance: np.ndarray) -> Layout:
    """The plane that shows most of the squared distances. Signs are fixed by the largest coordinate, which is positive."""
    n = len(distance)
    centre = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ np.square(distance) @ centre)
    values = np.maximum(values, 0.0)
    points = np.zeros((n, 2))
    for axis, column in enumerate(np.argsort(-values, kind="stable")[:2]):
        vector = vectors[:, column]
        points[:, axis] = np.sqrt(values[column]) * vector * np.sign(vector[np.abs(vector).argmax()])
    total = values.sum()
    return Layout(points, float(np.sort(values)[-2:].sum() / total) if total > 0.0 else 1.0)


def _entropy(rows: np.ndarray) -> np.ndarray:
    return -xlogy(rows, rows).sum(axis=-1) / np.log(2.0)
