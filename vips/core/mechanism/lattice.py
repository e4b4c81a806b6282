"""The public lattice of discrete noise. Clipped records are rounded to it, so that sums are exact.

In floating point a sum depends on the order of its terms, so that one record's presence can change the rounding of the
others, beyond its own clipped share. Here every record is rounded first, to whole multiples of a public
``unit``: integer sums are exact, in any order and any chunks, and noise is added in integers.

===========  ==================================================================================================
symbol       meaning
===========  ==================================================================================================
d            coordinates of a record's vector (all blocks, isometric)
2^m          ``noise_steps``: standard deviation of the noise in units
g            ``unit`` = σ C / 2^m, in scaled isometric coordinates
===========  ==================================================================================================

Rounding moves a record of at most r rows, each of which is rounded, by at most r √d g / 2. With 2^m ≥ 2⁹ σ √d r that is at
most C / 2¹⁰, so that the rounded vector's norm is at most ``SENSITIVITY_FACTOR × C`` with room for the rounding of products and
weights (a few parts in 10¹⁵, or in 10⁷ in single precision: computed from the record alone).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vips.core.exact.compiled import compiled

if TYPE_CHECKING:
    from vips.core.sums import Block

__all__ = ["SENSITIVITY_FACTOR", "Lattice"]

SENSITIVITY_FACTOR = 1.0 + 2.0**-9
SMALLEST_EXPONENT, LARGEST_EXPONENT = 10, 29  # noise of at least 1,024 units; at most what the sampler's integers hold


@dataclass(frozen=True)
class Lattice:
    """Whole multiples of ``unit``; the noise has standard deviation ``noise_steps`` units."""

    unit: float
    noise_steps: int

    @classmethod
    def for_blocks(
        cls, blocks: Mapping[str, Block], noise_multiplier: float, clip_norm: float, rows_of_record: float = 1
    ) -> Lattice:
        """The coarsest lattice whose rounding stays within ``SENSITIVITY_FACTOR``. Public numbers only."""
        n_coordinates = sum(_n_coordinates(block) for block in blocks.values())
        needed = 2.0**9 * noise_multiplier * math.sqrt(n_coordinates) * rows_of_record
        exponent = max(SMALLEST_EXPONENT, math.ceil(math.log2(max(needed, 1.0))))
        if exponent > LARGEST_EXPONENT:
            raise ValueError(
                f'noise="discrete" cannot hold {n_coordinates} coordinates at noise_multiplier {noise_multiplier:g}'
                f"{f' and {rows_of_record:.4g} rows of a record' if rows_of_record > 1 else ''}: its "
                'lattice would need more than 2**29 steps per standard deviation. Use less noise per step, or noise="gaussian".'
            )
        return cls(noise_multiplier * clip_norm / 2**exponent, 2**exponent)

    def rounded(self, array: np.ndarray, block: Block) -> np.ndarray:
        """Records' statistics of one block, shape ``(..., *block.shape)``, in whole units of isometric coordinates (int64).

        A symmetric block is symmetrised first; both triangles hold the same coordinate, √2 times the entry.
        """
        return np.rint(_isometric(array, block) / (self.unit * block.scale)).astype(np.int64)

    def rounded_sum(self, array: np.ndarray, block: Block) -> np.ndarray:
        """Sum of :meth:`rounded` over the records, the first axis; the integers of each record are not stored."""
        total, array = np.zeros(block.shape, np.int64), _compact(_isometric(array, block))
        _add_rounded(array.reshape(len(array), total.size), self.unit * block.scale, total.reshape(-1))
        return total

    def rounded_outer_sum(self, left: np.ndarray, right: np.ndarray, block: Block) -> np.ndarray:
        """:meth:`rounded_sum` of a symmetric block with the matrices left rightᵀ, which are not stored.

        Parameters
        ----------
        left, right : ndarray of float64, shape (n_records, n_matrices, size)
        block : Block of shape (n_matrices, size, size), or (size, size) if there is one
        """
        total, unit = np.zeros(block.shape, np.int64), self.unit * block.scale
        of_matrices = total.reshape(left.shape[1], *block.shape[-2:])
        _add_rounded_outer(_compact(left), _compact(right), _isometry(block), unit, of_matrices)
        return total

    def values(self, units: np.ndarray, block: Block) -> np.ndarray:
        """Inverse of ``rounded``, for sums."""
        values = units * (self.unit * block.scale)
        return values / _isometry(block) if block.symmetric else values


@compiled(nogil=True, error_model="numpy")
def _add_rounded(array: np.ndarray, unit: float, total: np.ndarray) -> None:
    for n in range(array.shape[0]):
        for i in range(array.shape[1]):
            total[i] += np.int64(np.rint(array[n, i] / unit))


@compiled(nogil=True, error_model="numpy")
def _add_rounded_outer(
    left: np.ndarray, right: np.ndarray, isometry: np.ndarray, unit: float, total: np.ndarray
) -> None:
    for n in range(left.shape[0]):
        for k in range(left.shape[1]):
            of_left, of_right = left[n, k], right[n, k]
            for i in range(left.shape[2]):
                a, b, factors, row = of_left[i], of_right[i], isometry[i], total[k, i]
                for j in range(left.shape[2]):
                    row[j] += np.int64(np.rint(0.5 * (a * of_right[j] + of_left[j] * b) * factors[j] / unit))


def _compact(array: np.ndarray) -> np.ndarray:
    """In C order and writable: numba would compile its kernels anew for other arrays."""
    return np.require(array, requirements=["C", "W"])


def _isometric(array: np.ndarray, block: Block) -> np.ndarray:
    array = np.asarray(array, dtype=np.float64)
    return 0.5 * (array + np.swapaxes(array, -1, -2)) * _isometry(block) if block.symmetric else array


def _isometry(block: Block) -> np.ndarray:
    return np.where(np.eye(block.shape[-1], dtype=bool), 1.0, math.sqrt(2.0))


def _n_coordinates(block: Block) -> int:
    n = math.prod(block.shape)
    return n * (block.shape[-1] + 1) // (2 * block.shape[-1]) if block.symmetric else n
