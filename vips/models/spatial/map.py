"""Maps of rates: areas in the colour of their rate, and hatched where noise hides them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import Voronoi

from vips._support.extras import imported

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["cells_around", "map_of"]

_MARGIN = 0.05  # around coordinates, relative to their range


def map_of(rates: pd.DataFrame, outlines: Mapping | None, coordinates, ax: Axes | None) -> Axes:
    """Draw a table of rates; see ``SpatialCounts.plot``."""
    plt = imported("matplotlib.pyplot", "plot()")
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Patch, Polygon

    if outlines is None and coordinates is None:
        raise ValueError("Areas without `coordinates` need `outlines`: a mapping of their names to corners.")
    shapes = cells_around(coordinates) if outlines is None else [outlines[name] for name in rates.index]
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 5.0), layout="constrained")
    colours, values, are_hidden = plt.get_cmap("viridis"), rates["rate"].to_numpy(), rates["hidden by"] != ""
    norm = LogNorm(values.min() / 1.01, values.max() * 1.01)
    for shape, value, hidden in zip(shapes, values, are_hidden, strict=True):
        look = {"hatch": "////", "edgecolor": "0.85"} if hidden else {"edgecolor": "white"}
        ax.add_patch(Polygon(shape, facecolor=colours(norm(value)), linewidth=0.6, **look))
    ax.autoscale_view()
    ax.set_aspect("equal")
    ax.set_axis_off()
    bar = ax.figure.colorbar(plt.cm.ScalarMappable(norm, colours), ax=ax, label="rate", shrink=0.8, format="%.2g")
    bar.ax.yaxis.set_minor_formatter("{x:.2g}")
    if are_hidden.any():
        hatched = Patch(facecolor="0.6", edgecolor="0.85", hatch="////", label="hidden: more than half is left open")
        ax.legend(handles=[hatched], loc="upper center", bbox_to_anchor=(0.5, 0.02), frameon=False)
    return ax


def cells_around(coordinates) -> list[np.ndarray]:
    """Corners of the cells around points, within a rectangle, at whose sides points are mirrored."""
    points = np.asarray(coordinates, dtype=np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = _MARGIN * np.maximum(high - low, 1e-9)
    low, high = low - margin, high + margin
    mirrored = [points]
    for axis, side in ((axis, side) for axis in (0, 1) for side in (low, high)):
        other = points.copy()
        other[:, axis] = 2.0 * side[axis] - other[:, axis]
        mirrored.append(other)
    voronoi = Voronoi(np.concatenate(mirrored))
    return [voronoi.vertices[voronoi.regions[region]] for region in voronoi.point_region[: len(points)]]
