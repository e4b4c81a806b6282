"""Sequences coloured by their states, which models of several families draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips._support.extras import imported

__all__ = ["colour", "plot_sequences"]


def plot_sequences(model, X, lengths, names: Sequence[str], ax=None):
    """A line for each sequence, whose steps have the colours of their most probable states.

    Parameters
    ----------
    model : SequenceModel
        With ``predict``.
    X, lengths
        Sequences, as for ``fit``.
    names : sequence of str
        Of all states.
    """
    plt, sequences = imported("matplotlib.pyplot", "plot_sequences()"), model.sequences_of(X, lengths)
    states = np.split(model.predict(sequences), sequences.offsets[1:-1])
    if ax is None:
        _, ax = plt.subplots(figsize=(7.0, 1.0 + 0.16 * len(states)), layout="constrained")
    longest = max((len(path) for path in states), default=0)
    picture = np.ones((len(states), longest, 3))
    for row, path in zip(picture, states, strict=True):
        row[: len(path)] = [colour(k) for k in path] if len(path) else row[:0]
    ax.imshow(picture, aspect="auto", interpolation="nearest")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour(k)) for k in range(len(names))]
    ax.legend(handles, names, fontsize="x-small", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    ax.set_xlabel("step")
    ax.set_ylabel("sequence")
    ax.set_yticks([])
    return ax


def colour(k: int) -> tuple[float, float, float]:
    """Colour of state ``k``: pale, so that black text can be read on it."""
    import matplotlib

    return tuple(0.25 + 0.75 * value for value in matplotlib.colormaps["tab20"](k % 20)[:3])
