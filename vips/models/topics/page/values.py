"""What the script of the page draws, as JSON.

It holds only words that can be shown: those among the most relevant of some topic at some place of the slider. How a word is
shared between topics decides radii of circles, which one character tells well enough: so the file stays small.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from vips._support.printable import printable
from vips.models.topics.words import TopicWords

__all__ = ["RADII", "values_as_json"]

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
