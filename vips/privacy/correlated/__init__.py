"""Noise that is correlated over batches: linear mechanisms on discounted prefix sums."""

from vips.privacy.correlated.strategy import Independent, Strategy
from vips.privacy.correlated.toeplitz import BufferedToeplitz, SquareRoot, fitted_toeplitz
from vips.privacy.correlated.tree import BinaryTree

__all__ = ["BinaryTree", "BufferedToeplitz", "Independent", "SquareRoot", "Strategy", "fitted_toeplitz"]
