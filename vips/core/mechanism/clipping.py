"""How much of each record enters the sum."""

from __future__ import annotations

import numpy as np

__all__ = ["clip_weights"]

# Beyond this, C / norm could be subnormal and too coarse for weight × norm ≤ C.
LARGEST_NORM = 1e150


def clip_weights(norms: np.ndarray, clip_norm: float) -> np.ndarray:
    """Weights that scale records into the L2 ball of radius ``clip_norm``: ``min(1, C / norm)``.

    Parameters
    ----------
    norms : ndarray of shape (n_records,)
        Norm of each record's statistics, all blocks jointly; never less than the true norm.
    clip_norm : float
        C > 0. ``inf`` leaves finite records unchanged.

    Returns
    -------
    ndarray of shape (n_records,), float64
        Entry i is a function of ``norms[i]`` alone.

    Guarantees
    ----------
    - weight × norm is at most ``clip_norm``, up to one rounding.
    - A record whose norm is negative, not finite or above 1e150 gets weight 0: ``RecordStatistics.weighted_sum`` treats it as
      absent.
    - Nothing is raised and nothing is reported: both would reveal something about a record.
    """
    norms = np.asarray(norms, dtype=np.float64)
    weights = np.ones(norms.shape)
    over = norms > clip_norm
    weights[over] = clip_norm / norms[over]
    largest = LARGEST_NORM if np.isfinite(clip_norm) else np.inf
    weights[~((norms >= 0.0) & (norms < largest))] = 0.0
    return weights
