"""Topics as small multiples for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips._support.printable import PLAIN_TEXT, printable
from vips.models.topics.words import TopicWords

__all__ = ["plot_topics"]

_N_COLUMNS = 5


def plot_topics(
    words: TopicWords, topics: Sequence[int], n_words: int, relevance: float, axes=None, labels=None
) -> np.ndarray:
    """Horizontal bars of the most relevant words; see ``ReadableTopics.plot_topics``."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plot_topics() needs matplotlib: pip install 'vips[plot]'. `top_words()` does not."
        ) from error
    top = words.top(n_words, relevance)
    if axes is None:
        n_columns = min(_N_COLUMNS, len(topics))
        n_rows = -(-len(topics) // n_columns)
        size = (2.4 * n_columns, n_rows * (0.7 + 0.2 * top.shape[1]))
        _, grid = plt.subplots(n_rows, n_columns, figsize=size, layout="constrained", squeeze=False)
        for unused in grid.ravel()[len(topics) :]:
            unused.remove()
        axes = grid.ravel()[: len(topics)]
    axes = np.ravel(np.asarray(axes, dtype=object))
    if len(axes) < len(topics):
        raise ValueError(f"There are {len(topics)} topics and only {len(axes)} axes.")
    for ax, topic in zip(axes, topics, strict=False):
        _draw(ax, words, topic, top[topic], None if labels is None else labels[topic])
    return axes[: len(topics)]


def _draw(ax, words: TopicWords, topic: int, shown: np.ndarray, label: str | None) -> None:
    places = np.arange(len(shown))[::-1]
    color = "0.55" if label == "noise" else "#20639b"
    ax.barh(places, words.probabilities[topic, shown], height=0.75, color=color)
    ax.barh(places, words.overall[shown], height=0.25, color="0.72")
    ax.set_yticks(places, [printable(words.names[v]) for v in shown], fontsize="small", **PLAIN_TEXT)
    share = f"{100.0 * words.shares[topic]:.3g} % of words"
    ax.set_title(f"topic {topic}: {share}" + ("" if label is None else f", {label}"), fontsize="medium")
    ax.set_xlabel("probability (grey: over all topics)", fontsize="x-small")
    ax.tick_params(axis="x", labelsize="x-small")
    ax.tick_params(axis="y", length=0)
    ax.locator_params(axis="x", nbins=3)
    ax.spines[["top", "right"]].set_visible(False)
