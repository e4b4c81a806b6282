"""Sums by squared weights, and ratios of released variances to those that records of weight 1, each of one row, would have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips._compute.rowwise import row_norms
from vips.privacy import Lattice
from vips.sums import Block, RecordStatistics

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


class CountedSquares(RecordStatistics):
    """Statistics with a block "count" of shares in components, and in block ``SQUARES`` these shares by squared weights.

    Parameters
    ----------
    statistics : RecordStatistics
        With ``shares`` of shape (n_records, K), whose rows have norm 1 at most.
    """

    sums_are_new = True

    def __init__(self, statistics: RecordStatistics) -> None:
        self._statistics, self.shares = statistics, statistics.shares

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        of_squares = row_norms(self.shares) / blocks[SQUARES].scale
        return np.hypot(self._statistics.norms(matched_blocks(blocks)), of_squares) * (1.0 + 1e-9)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        counted = self._statistics.weighted_sum(self._squared(weights))["count"]
        return self._statistics.weighted_sum(weights) | {SQUARES: counted}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        matched = matched_blocks(blocks)
        scaled = matched | {"count": blocks[SQUARES]}
        counted = self._statistics.rounded_sum(self._squared(weights), scaled, lattice)["count"]
        return self._statistics.rounded_sum(weights, matched, lattice) | {SQUARES: counted}

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """w_n s_n of each record, by block that is matched."""
        return self._statistics.weighted(weights)

    def _squared(self, weights: np.ndarray) -> np.ndarray:
        return weights if self.sample_weights is None else weights * self.sample_weights
