"""The binary tree: each total is a sum of at most log2 T + 1 noisy nodes (Dwork et al., 2010; Chan, Shi and Song, 2011)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vips.core.correlated.strategy import Strategy

__all__ = ["BinaryTree"]


class BinaryTree(Strategy):
    """Node (h, b) holds batches b 2^h + 1 to (b + 1) 2^h, discounted to the last of them; C has a row for each node.

    A total is the sum of the nodes of the binary digits of t, discounted to t. Buffers hold the noise in these nodes, by level.
    """

    @property
    def n_levels(self) -> int:
        """Levels with a whole node."""
        return self.n_batches.bit_length()

    @property
    def n_buffers(self) -> int:
        return self.n_levels

    def carried(self, t: int, buffers: np.ndarray) -> np.ndarray:
        return -self.decay * buffers[: _level(t) + 1].sum(axis=0)  # of the nodes that the new one replaces

    def keep(self, t: int, fresh: np.ndarray, w: np.ndarray, buffers: np.ndarray) -> None:
        buffers *= self.decay
        buffers[: _level(t)] = 0.0
        buffers[_level(t)] = fresh

    def rounding(self) -> float:
        return 0.0 if self.decay == 1.0 else super().rounding()  # sums of whole numbers are whole

    def sensitivity(self, participation: int = 1) -> float:
        """Sensitivity of an undiscounted tree, which discounts only make smaller: √ of the largest Σ n² over nodes with n of
        k batches each."""
        k = min(int(participation), self.n_batches)
        return float(np.sqrt(_squares(self.n_levels, k) - k * k))  # there is no node above the levels

    def deviations(self) -> np.ndarray:
        t, total, end = np.arange(1, self.n_batches + 1), np.zeros(self.n_batches), np.zeros(self.n_batches, np.int64)
        for level in reversed(range(self.n_levels)):
            is_set = (t >> level) & 1 == 1
            end[is_set] += 2**level
            total += is_set * self.decay ** (2.0 * (t - end))
        return np.sqrt(total)


def _level(t: int) -> int:
    """Level of the node that ends at t."""
    return (t & -t).bit_length() - 1


@lru_cache(maxsize=65_536)
def _squares(height: int, k: int) -> int:
    """Largest Σ n² over the nodes of a whole tree of 2^height leaves, k of which are marked: those of one subtree after the
    other."""
    if k == 0 or height == 0:
        return k * k
    left = min(k, 2 ** (height - 1))
    return k * k + _squares(height - 1, left) + _squares(height - 1, k - left)
