"""What the script of the page draws, as JSON.

It holds only words that can be shown: those among the most relevant of some topic at some place of the slider. How a word is
shared between topics decides radii of circles, which one character tells well enough: so the file stays small.

The map is classical multidimensional scaling of the topics' Jensen-Shannon distances,

    d(a, b)² = H((a + b)/2) - H(a)/2 - H(b)/2,    H the entropy in bits

A distance is between 0 and 1, and can be embedded into a Euclidean space without loss: no eigenvalue is negative.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from vips._support.printable import printable
from vips.models.topics.words import TopicWords

__all__ = ["RADII", "Layout", "distances", "place", "values_as_json"]

# Radii of circles from 0 to 1.
RADII = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def values_as_json(fits: Sequence[TopicWords], n_words: int) -> str:
    """Values of one or two fits, whose topics are in one order.

    Returns
    -------
    str
        ASCII. "words" are the words that are shown, "topics" for each topic the places of its words among these, and for each
        fit: "shares" of the topics, "overall" frequencies of the words, "radii" of the topics of each word, and
        "probabilities" of the words of each topic.
    """
    words_by_topic = zip(*(fit.ever_on_top(n_words) for fit in fits), strict=True)
    of_topics = [np.unique(np.concatenate(parts)) for parts in words_by_topic]
    shown = np.unique(np.concatenate(of_topics))
    values = {
        "n_words": n_words,
        "radii": RADII,
        "words": [printable(fits[0].names[v]) for v in shown],
        "topics": [np.searchsorted(shown, words).tolist() for words in of_topics],
        "fits": [
            {
                "shares": _rounded(fit.shares),
                "overall": _rounded(fit.overall[shown]),
                "radii": _as_letters(fit.of_word[:, shown]),
                "probabilities": [_rounded(fit.probabilities[k, words]) for k, words in enumerate(of_topics)],
            }
            for fit in fits
        ],
    }
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def _rounded(numbers: np.ndarray) -> list[float]:
    return [float(f"{number:.5g}") for number in numbers]


def _as_letters(shares: np.ndarray) -> list[str]:
    """Each column as a string, with a letter for the radius of each circle whose area is that share."""
    letters = np.frombuffer(RADII.encode("ascii"), dtype=np.uint8)
    places = np.rint(np.sqrt(shares.T) * (len(RADII) - 1)).astype(np.intp)
    return [row.tobytes().decode("ascii") for row in letters[places]]


# -- the map -------------------------------------------------------------------------------------------------------


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
