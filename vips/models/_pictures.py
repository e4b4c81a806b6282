"""Pictures of fitted models, which draw the components or states of several families."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable

__all__ = ["plot_ellipses", "plot_sequences", "plot_shades", "plot_transitions"]

_LEAST = 0.03  # probability of a move that is drawn
_BENT = 0.18  # curvature of arrows, so that those in both directions are seen
_MASSES = (0.5, 0.9)  # of a Gaussian component, inside its ellipses


def plot_shades(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    ax=None,
    *,
    of: str,
    largest: float = 0.0,
):
    """A table of shades: what is seen, in rows, by state or class, in columns.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Probabilities from 0 to 1, or deviations around 0.
    rows, columns : sequence of str
    label : str
        Of the colours.
    of : str
        The method that draws.
    largest : float
        Value of the darkest colour; 0: the largest one there is.
    """
    plt = imported("matplotlib.pyplot", of)
    if ax is None:
        _, ax = plt.subplots(figsize=(2.6 + 0.62 * len(columns), 1.2 + 0.19 * len(rows)), layout="constrained")
    largest = largest or max(float(np.abs(values).max(initial=0.0)), 1e-300)
    scale = {"cmap": "RdBu_r", "vmin": -largest} if (values < 0.0).any() else {"cmap": "Blues", "vmin": 0.0}
    shades = ax.imshow(values, **scale, vmax=largest, aspect="auto", interpolation="nearest")
    ax.set_xticks(np.arange(len(columns)), columns, fontsize="x-small")
    ax.xaxis.tick_top()
    ax.set_yticks(np.arange(len(rows)), [printable(str(row)) for row in rows], fontsize="x-small", **PLAIN_TEXT)
    ax.tick_params(length=0)
    ax.figure.colorbar(shades, ax=ax, label=label, shrink=0.6)
    return ax


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
        ax.add_patch(plt.Circle((x, y), radius, facecolor=_colour(k), edgecolor="0.2", zorder=3))
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


def plot_ellipses(
    means: np.ndarray, covariances: np.ndarray, weights: np.ndarray, names: Sequence[str], records=None, ax=None
):
    """Ellipses that hold a half and nine tenths of each component; see ``BayesianGaussianMixture.plot_components``.

    Parameters
    ----------
    means, covariances, weights : ndarray of shape (K, 2), (K, 2, 2), (K,)
    names : sequence of two str
    records : ndarray of shape (n_records, 2), optional
    """
    plt = imported("matplotlib.pyplot", "plot_components()")
    from matplotlib.patches import Ellipse

    if ax is None:
        _, ax = plt.subplots(figsize=(5.0, 4.5), layout="constrained")
    if records is not None:
        ax.scatter(*records.T, s=2, color="0.75", linewidths=0, rasterized=True)
    largest = max(float(weights.max()), 1e-300)
    for k, (mean, covariance, weight) in enumerate(zip(means, covariances, weights, strict=True)):
        values, vectors = np.linalg.eigh(covariance)
        angle = float(np.degrees(np.arctan2(vectors[1, -1], vectors[0, -1])))
        for mass in _MASSES:
            # the squared distance is χ² with 2 degrees of freedom
            height, width = 2.0 * np.sqrt(np.maximum(values, 0.0) * -2.0 * np.log(1.0 - mass))
            strength = 0.25 + 0.75 * float(weight) / largest
            ax.add_patch(Ellipse(mean, width, height, angle=angle, fill=False, color="C0", alpha=strength))
        ax.annotate(f"{k}: {100.0 * weight:.3g} %", mean, ha="center", va="center", fontsize="x-small")
    ax.set_xlabel(printable(names[0]), **PLAIN_TEXT)
    ax.set_ylabel(printable(names[1]), **PLAIN_TEXT)
    ax.autoscale_view()
    return ax


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
        row[: len(path)] = [_colour(k) for k in path] if len(path) else row[:0]
    ax.imshow(picture, aspect="auto", interpolation="nearest")
    handles = [plt.Rectangle((0, 0), 1, 1, color=_colour(k)) for k in range(len(names))]
    ax.legend(handles, names, fontsize="x-small", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    ax.set_xlabel("step")
    ax.set_ylabel("sequence")
    ax.set_yticks([])
    return ax


def _colour(k: int) -> tuple[float, float, float]:
    """Colour of state ``k``: pale, so that black text can be read on it."""
    import matplotlib

    return tuple(0.25 + 0.75 * value for value in matplotlib.colormaps["tab20"](k % 20)[:3])


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
