"""Sums by squared weights, and ratios of released variances to those that records of weight 1, each of one row, would have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.core.sums import Block, BySquaredWeights, DenseStatistics, Form, Joint

__all__ = ["SQUARES", "SQUARES_SCALE", "WITH_SQUARES", "CountedSquares", "matched_blocks", "variance_ratios"]

SQUARES = "count_by_squares"  # block of :class:`CountedSquares`
# Scale of a block by squared weights, over that of the same block by weights; and how much longer it makes a record's vector.
SQUARES_SCALE = 3.0
WITH_SQUARES = float(np.hypot(1.0, 1.0 / SQUARES_SCALE))
# Least ratio of the scores' variance to the curvature.
_LEAST_RATIO = 0.02


def variance_ratios(noisy: np.ndarray, noise_std: float, curvature: np.ndarray) -> np.ndarray:
    """Ratios R of variances, of scores or counts, to their curvature, from noisy variances.

    Ratios are taken as draws around a common value. Its variance is estimated by moments, and each ratio is its
    posterior mean: without noise the ratio itself, and the common value where noise hides it.

    Parameters
    ----------
    noisy : ndarray of shape (d,)
    noise_std : float
    curvature : ndarray of shape (d,)
        Diagonal of H, positive.

    Returns
    -------
    ndarray of shape (d,)
        At least ``_LEAST_RATIO``.
    """
    ratios, information = noisy / curvature, (curvature / curvature.max()) ** 2
    common = (information * ratios).sum() / information.sum()
    noise = (noise_std / curvature) ** 2
    excess = (information * ((ratios - common) ** 2 - noise)).sum() / information.sum()
    share = max(excess, 0.0) / (max(excess, 0.0) + noise + 1e-300)
    return np.maximum(common + share * (ratios - common), _LEAST_RATIO)


def matched_blocks(blocks: Mapping[str, Block]) -> dict[str, Block]:
    """Without that of squared weights, which says how much the others vary."""
    return {name: block for name, block in blocks.items() if name != SQUARES}


class CountedSquares(Joint):
    """Statistics with a block "count" of shares in components, and in block ``SQUARES`` these shares by squared weights.

    Parameters
    ----------
    statistics : Form
        With ``shares`` of shape (n_records, K), and what a record adds to "count", ``counted``, of the same shape.
    """

    def __init__(self, statistics: Form) -> None:
        self.shares = statistics.shares
        super().__init__(statistics, BySquaredWeights(DenseStatistics({SQUARES: statistics.counted})))
