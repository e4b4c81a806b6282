"""A picture of series and of what follows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable

__all__ = ["plot_forecast"]


def plot_forecast(
    series: np.ndarray, means: np.ndarray, lower: np.ndarray, upper: np.ndarray, names: Sequence[str], ax=None
):
    """Columns of one sequence, and means and intervals of the steps after it.

    Parameters
    ----------
    series : ndarray of shape (n_steps, n_columns)
        NaN is a gap.
    means, lower, upper : ndarray of shape (n_later, n_columns)
    names : sequence of n_columns str
    """
    plt = imported("matplotlib.pyplot", "plot_forecast()")
    if ax is None:
        _, ax = plt.subplots(figsize=(7.0, 3.2), layout="constrained")
    n = len(series)
    later = np.arange(n, n + len(means))
    for j, name in enumerate(names):
        colour = f"C{j % 10}"
        ax.plot(np.arange(n), series[:, j], ".", color=colour, markersize=4)
        ax.plot(later, means[:, j], color=colour, label=printable(str(name)))
        ax.fill_between(later, lower[:, j], upper[:, j], color=colour, alpha=0.2, linewidth=0)
    ax.axvline(n - 0.5, color="gray", linewidth=0.8, linestyle=":")
    ax.set_xlabel("step")
    legend = ax.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    for text in legend.get_texts():
        text.set(**PLAIN_TEXT)
    return ax
