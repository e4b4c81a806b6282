"""Pictures of Markov chains: moves between states, and what is seen in each state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable
from vips.models._sequence_plot import colour

__all__ = ["plot_emissions", "plot_transitions"]

_LEAST = 0.03  # probability of a move that is drawn
_BENT = 0.18  # curvature of arrows, so that those in both directions are seen


def plot_transitions(moves: np.ndarray, shares: np.ndarray, start: np.ndarray, names: Sequence[str], ax=None):
    """States on a circle, as large as their shares of the steps; arrows as wide as moves are probable.

    Parameters
    ----------
    moves, shares, start : ndarray of shape (K, K), (K,), (K,)
    names : sequence of K str
    """
    plt = imported("matplotlib.pyplot", "plot_transitions()")
    if ax is None:
        _, ax = plt.subplots(figsize=(5.5, 5.5), layout="constrained")
    angles = 0.5 * np.pi - 2.0 * np.pi * np.arange(len(moves)) / len(moves)
    places = np.column_stack([np.cos(angles), np.sin(angles)]) * (len(moves) > 1)
    radii = 0.12 + 0.09 * np.sqrt(shares / max(float(shares.max()), 1e-300))
    for i, j in zip(*np.nonzero(moves >= _LEAST), strict=True):
        if i != j:
            _arrow(ax, places[i], places[j], radii[i], radii[j], moves[i, j])
    for k, ((x, y), radius) in enumerate(zip(places, radii, strict=True)):
        ax.add_patch(plt.Circle((x, y), radius, facecolor=colour(k), edgecolor="0.2", zorder=3))
        ax.annotate(
            f"{names[k]}\nstays {100.0 * moves[k, k]:.0f} %",
            (x, y),
            ha="center",
            va="center",
            fontsize="x-small",
            color="black",  # on a pale circle, whatever the style of the figure
            zorder=4,
        )
        if start[k] >= _LEAST:
            side = "left" if x > 0.1 else "right" if x < -0.1 else "center"
            outside = (x * (1.0 + radius + 0.05), y * (1.0 + radius + 0.05))
            style = {"ha": side, "va": "center", "fontsize": "xx-small", "alpha": 0.8}
            ax.annotate(f"first: {100.0 * start[k]:.0f} %", outside, **style)
    ax.set_xlim(-1.6, 1.6)
    ax.set_ylim(-1.4, 1.4)
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def plot_emissions(values: np.ndarray, rows: Sequence[str], columns: Sequence[str], label: str, ax=None):
    """A table of shades: what is seen, in rows, by state, in columns.

    Parameters
    ----------
    values : ndarray of shape (n_rows, K)
        Probabilities from 0 to 1, or deviations around 0.
    rows, columns : sequence of str
    label : str
        Of the colours.
    """
    plt = imported("matplotlib.pyplot", "plot_emissions()")
    if ax is None:
        _, ax = plt.subplots(figsize=(2.6 + 0.62 * len(columns), 1.2 + 0.19 * len(rows)), layout="constrained")
    largest = max(float(np.abs(values).max(initial=0.0)), 1e-300)
    scale = {"cmap": "RdBu_r", "vmin": -largest} if (values < 0.0).any() else {"cmap": "Blues", "vmin": 0.0}
    shades = ax.imshow(values, **scale, vmax=largest, aspect="auto", interpolation="nearest")
    ax.set_xticks(np.arange(len(columns)), columns, fontsize="x-small")
    ax.xaxis.tick_top()
    ax.set_yticks(np.arange(len(rows)), [printable(str(row)) for row in rows], fontsize="x-small", **PLAIN_TEXT)
    ax.tick_params(length=0)
    ax.figure.colorbar(shades, ax=ax, label=label, shrink=0.6)
    return ax


def _arrow(ax, origin, target, radius, other, probability: float) -> None:
    direction = (target - origin) / np.linalg.norm(target - origin)
    ax.annotate(
        "",
        xy=target - direction * (other + 0.02),
        xytext=origin + direction * (radius + 0.02),
        arrowprops={
            "arrowstyle": "-|>", "color": _ink(), "alpha": float(0.25 + 0.75 * np.sqrt(probability)),
            "linewidth": 0.5 + 6.0 * probability, "connectionstyle": f"arc3,rad={_BENT}",
        },
    )  # fmt: skip
    normal = np.array([direction[1], -direction[0]])
    x, y = 0.5 * (origin + target) + normal * _BENT * 0.5 * np.linalg.norm(target - origin)
    ax.annotate(f"{100.0 * probability:.0f}", (x, y), fontsize="xx-small", alpha=0.85, ha="center", va="center")


def _ink() -> str:
    import matplotlib

    return matplotlib.rcParams["text.color"]
