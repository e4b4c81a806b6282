"""The figure of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from vips._printable import PLAIN_TEXT, printable
from vips.comparison.movement import Mover

__all__ = ["plot_movers"]


def plot_movers(movers: Sequence[Mover], level: float, title: str, ax=None):
    """Differences of posterior means, sorted, with intervals ± z √(σ² + σ'²); the figure."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install 'vips[plot]'. `movers()` does not.") from error
    movers = sorted(movers, key=lambda mover: mover.difference)
    if ax is None:
        ax = Figure(figsize=(7.0, 1.2 + 0.25 * len(movers)), layout="constrained").subplots()
    half_widths = ndtri(0.5 + 0.5 * level) * np.hypot([m.private_std for m in movers], [m.baseline_std for m in movers])
    places = np.arange(len(movers))
    ax.errorbar(
        [m.difference for m in movers], places, xerr=half_widths, fmt="o", markersize=4, linewidth=1, color="#20639b"
    )
    ax.axvline(0.0, color="0.7", linewidth=1, zorder=0)
    ax.set_yticks(places, [printable(m.name) for m in movers], **PLAIN_TEXT)
    ax.set_xlabel(f"posterior mean, private minus baseline; {100.0 * level:g} % interval")
    ax.set_title(f"{title}\ncomputed from {movers[0].source}", fontsize="medium", **PLAIN_TEXT)
    return ax.figure
