"""A picture of a mixture's components: ellipses in two columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable

__all__ = ["plot_ellipses"]

_MASSES = (0.5, 0.9)  # of a Gaussian component, inside its ellipses


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
