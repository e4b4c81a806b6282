"""Profiles of classes as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable

__all__ = ["plot_profiles"]


def plot_profiles(profiles: np.ndarray, pairs: Sequence[tuple[str, object]], titles: Sequence[str], ax=None):
    """Probabilities of answers as shades; see ``LatentClasses.plot_profiles``.

    Parameters
    ----------
    profiles : ndarray of shape (n_classes, n_answers)
    pairs : sequence of n_answers pairs
        Column and category.
    titles : sequence of n_classes str
    """
    plt = imported("matplotlib.pyplot", "plot_profiles()")
    if ax is None:
        size = (2.6 + 0.62 * len(titles), 1.2 + 0.19 * len(pairs))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    shades = ax.imshow(profiles.T, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    ax.set_xticks(np.arange(len(titles)), titles, fontsize="x-small")
    ax.xaxis.tick_top()
    words = [printable(f"{name} = {category}") for name, category in pairs]
    ax.set_yticks(np.arange(len(pairs)), words, fontsize="x-small", **PLAIN_TEXT)
    for row in range(1, len(pairs)):
        if pairs[row][0] != pairs[row - 1][0]:
            ax.axhline(row - 0.5, color="0.4", linewidth=0.8)
    ax.tick_params(length=0)
    ax.figure.colorbar(shades, ax=ax, label="probability in the class", shrink=0.6)
    return ax
