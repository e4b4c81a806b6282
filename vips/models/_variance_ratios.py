"""Sums by squared weights, and ratios of released variances to those that records of weight 1, each of one row, would have."""

from __future__ import annotations

import numpy as np

__all__ = ["SQUARES_SCALE", "WITH_SQUARES", "variance_ratios"]

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
