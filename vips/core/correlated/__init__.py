"""Noise that is correlated over batches: linear mechanisms on discounted prefix sums."""

from vips.core.correlated.strategy import Independent, Strategy
from vips.core.correlated.toeplitz import BufferedToeplitz, SquareRoot, fitted_toeplitz
from vips.core.correlated.tree import BinaryTree

__all__ = ["BinaryTree", "BufferedToeplitz", "Independent", "SquareRoot", "Strategy", "fitted_toeplitz"]
