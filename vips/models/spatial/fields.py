"""Gaussian fields over areas, whose precision is sparse: matrices of blocks along the map.

    f ~ N(0, s² C(ρ)),   C(ρ)⁻¹ = Q ∝ D - ρW: of neighbours W and their numbers D, scaled so that C has variances of 1
    y = H (c + f) + e,   c ~ N(0, 3²),   Cov e = V = B - 2n² (I + Q₀)⁻¹,   Q₀ = C(0.9)⁻¹,   B and H diagonal

B - 2n² is the variance of counts, and 2n² (I - (I + Q₀)⁻¹) that of noise in them (``areas.py``). With K = (I + Q₀)/2 - n² B⁻¹,
Woodbury's identity says that V⁻¹ = B⁻¹ + n² B⁻¹ K⁻¹ B⁻¹; and f given c and y has the precision Λ = Q/s² + H V⁻¹ H, which is
what is left of

    J = | Q/s² + H²/B   n H/B |
        | n H/B           -K  |

without its second half. In an order in which neighbours are near, J has blocks along the diagonal and beside it only: its
determinant, solutions, and the diagonal of its inverse take n b² multiplications for blocks of b areas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from vips.core.exact.blas import cholesky, inverse_from_factor

__all__ = ["SMOOTHNESS", "STDS", "Fields", "Fits", "conditional"]

# Grid of ρ and s. Areas differ by a factor of about e^(2s).
SMOOTHNESS = np.array([0.0, 0.7, 0.9, 0.97, 0.99, 0.999])
STDS = np.linspace(0.1, 1.9, 10)
_OF_NOISE = 2  # place of Q₀
_INTERCEPT_STD = 3.0
_LEAST_BLOCK, _BYTES = 32, 2**26  # areas of a block; of the blocks that are factorised at a time


class _Blocks:
    """Symmetric matrices, factorised, with blocks on the diagonal, shape (n_blocks, ..., m, m), and beside it: ``below[k]`` is
    left of ``diagonal[k + 1]``."""

    def __init__(self, diagonal: np.ndarray, below: np.ndarray) -> None:
        self.inverses, self.factors, self.log_det = [], [], 0.0
        for k, block in enumerate(diagonal):
            complement = block - self.factors[-1] @ below[k - 1].mT if k else block
            self.log_det = self.log_det + np.linalg.slogdet(complement)[1]
            self.inverses.append(np.linalg.inv(complement))
            self.factors += [side @ self.inverses[-1] for side in below[k : k + 1]]

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Shape (..., n_blocks, m, n_right), as ``right`` is."""
        x = right.copy()
        for k, factor in enumerate(self.factors):
            x[..., k + 1, :, :] -= factor @ x[..., k, :, :]
        for k in reversed(range(len(self.inverses))):
            x[..., k, :, :] = self.inverses[k] @ x[..., k, :, :]
            if k < len(self.factors):
                x[..., k, :, :] -= self.factors[k].mT @ x[..., k + 1, :, :]
        return x

    def diagonal_of_inverse(self) -> np.ndarray:
        """Shape (..., n_blocks, m)."""
        inverse, parts = self.inverses[-1], []
        for k in reversed(range(len(self.inverses))):
            if k < len(self.factors):
                inverse = self.inverses[k] + self.factors[k].mT @ inverse @ self.factors[k]
            parts.append(np.diagonal(inverse, axis1=-2, axis2=-1))
        return np.stack(parts[::-1], axis=-2)


class Fits(NamedTuple):
    """c + f given y, in some cells of the grid."""

    cells: np.ndarray  # places of ρ and s, shape (n_cells, 2)
    means: np.ndarray  # shape (n_cells, n_areas), as the next two
    level: np.ndarray  # how f + c follows c: 1 - Λ⁻¹ H V⁻¹ H 1
    variances: np.ndarray  # diagonal of Λ⁻¹
    precision: np.ndarray  # of c, shape (n_cells,)
    evidence: np.ndarray  # logarithms, up to a constant that is the same for all; shape (n_cells,)


class Fields:
    """All fields of the grid over a map, whose ``borders``, shape (n_areas, n_areas), are 1 where two areas are neighbours.

    Attributes
    ----------
    centred_variances : ndarray of shape (n_smoothness, n_areas)
        Of an area's distance from the average, for s = 1.
    noise, noise_of_sum : ndarray of shape (n_areas,), float
        Variances of noise in counts, and in the sum of all counts, for n = 1.
    """

    def __init__(self, borders: np.ndarray) -> None:
        borders = sp.csr_array(borders)
        self.n = borders.shape[0]
        self._order = np.asarray(reverse_cuthill_mckee(borders, symmetric_mode=True))
        near = borders[self._order][:, self._order].tocoo()
        self._width = min(self.n, max(_LEAST_BLOCK, int(np.abs(near.coords[0] - near.coords[1]).max(initial=0))))
        self._n_blocks = -(-self.n // self._width)
        matrices = [conditional(borders, smoothness) for smoothness in SMOOTHNESS]
        plain = _Blocks(*self._cut(matrices))
        stds = np.sqrt(self._joined(plain.diagonal_of_inverse()))
        row_sums = self._solved(plain, 1.0 / stds) / stds
        self.centred_variances = 1.0 - 2.0 * row_sums / self.n + row_sums.sum(axis=1, keepdims=True) / self.n**2
        self._log_dets = plain.log_det + 2.0 * np.log(stds).sum(axis=1)
        scales = map(sp.diags_array, stds)
        self._precisions = [sp.csr_array(s @ matrix @ s) for matrix, s in zip(matrices, scales, strict=True)]
        self._diagonal, self._below = self._cut(self._precisions)
        self._half = 0.5 * (np.eye(self._width) + self._diagonal[:, _OF_NOISE])
        self._half_below = 0.5 * self._below[:, _OF_NOISE]
        half = _Blocks(self._half, self._half_below)
        self.noise = 2.0 - self._joined(half.diagonal_of_inverse())
        self.noise_of_sum = 2.0 * self.n - self._solved(half, np.ones(self.n)).sum()

    def fits(self, cells: np.ndarray, slope, varies, noise: float, residual) -> Fits:
        """Fits of y = ``residual`` in ``cells``, shape (n_cells, 2), for H = ``slope``, counts of variances ``varies``, and
        n = ``noise``."""
        b = varies + 2.0 * noise**2
        white, cross = self._blocks_of(slope**2 / b), self._blocks_of(noise * slope / b)
        minus_k = self._blocks_of(noise**2 / b)[..., None] * np.eye(self._width) - self._half
        seen = np.stack([residual, slope], axis=1) / b[:, None]
        right = self._blocks_of(seen.T)
        through = _Blocks(minus_k, -self._half_below).solve(np.moveaxis(right, 0, -1))
        seen = slope * (seen.T - noise**2 / b * self._joined(np.moveaxis(through, -1, 0)))  # H V⁻¹ (y, H 1)
        size = max(1, _BYTES // (128 * self._n_blocks * self._width**2))
        pieces = [cells[first : first + size] for first in range(0, len(cells), size)]
        parts = [self._fits(part, white, cross, minus_k, seen) for part in pieces]
        return Fits(*map(np.concatenate, zip(*parts, strict=True)))

    def _fits(self, cells, white, cross, minus_k, seen) -> Fits:
        places, squares, w = cells[:, 0], STDS[cells[:, 1]] ** 2, self._width
        diagonal, below = (
            np.zeros((len(blocks), len(cells), 2 * w, 2 * w)) for blocks in (self._diagonal, self._below)
        )
        diagonal[..., :w, :w] = self._diagonal[:, places] / squares[:, None, None] + white[:, None, :, None] * np.eye(w)
        diagonal[..., :w, w:] = diagonal[..., w:, :w] = cross[:, None, :, None] * np.eye(w)
        diagonal[..., w:, w:] = minus_k[:, None]
        below[..., :w, :w] = self._below[:, places] / squares[:, None, None]
        below[..., w:, w:] = -self._half_below[:, None]
        joint = _Blocks(diagonal, below)
        right = np.zeros((len(cells), self._n_blocks, 2 * w, 2))
        right[:, :, :w] = np.moveaxis(self._blocks_of(seen), 0, -1)
        solved = self._joined(np.moveaxis(joint.solve(right)[:, :, :w], -1, 0))
        (of_residual, of_slope), (by_residual, by_slope) = solved, seen
        precision = by_slope.sum() - of_slope @ by_slope + _INTERCEPT_STD**-2.0
        intercept = (by_residual.sum() - of_residual @ by_slope) / precision
        log_dets = self._n_blocks * w * np.log(squares) - self._log_dets[places] + joint.log_det
        evidence = -0.5 * (log_dets + np.log(precision) - of_residual @ by_residual - intercept**2 * precision)
        level = 1.0 - of_slope
        variances = self._joined(joint.diagonal_of_inverse()[..., :w])
        return Fits(cells, of_residual + intercept[:, None] * level, level, variances, precision, evidence)

    def covariances(self, fits: Fits, slope, varies, noise: float):
        """Covariances of c + f in each cell, one after the other; shape (n_areas, n_areas)."""
        half = 0.5 * (np.eye(self.n) + self._precisions[_OF_NOISE].toarray())
        of_counts = np.diag(varies + 2.0 * noise**2) - noise**2 * inverse_from_factor(cholesky(half))
        given = slope[:, None] * inverse_from_factor(cholesky(of_counts)) * slope
        for i, (place, std) in enumerate(fits.cells):
            precision = self._precisions[place].toarray() / STDS[std] ** 2 + given
            yield inverse_from_factor(cholesky(precision)) + np.outer(fits.level[i], fits.level[i] / fits.precision[i])

    # -- blocks -------------------------------------------------------------------------------------------------

    def _blocks_of(self, values: np.ndarray) -> np.ndarray:
        """Values of areas, shape (..., n_areas), as blocks, shape (..., n_blocks, width), and zeros beyond."""
        padded = np.zeros((*values.shape[:-1], self._n_blocks * self._width))
        padded[..., : self.n] = values[..., self._order]
        return padded.reshape(*values.shape[:-1], self._n_blocks, self._width)

    def _joined(self, blocks: np.ndarray) -> np.ndarray:
        """Inverse of :meth:`_blocks_of`."""
        values = np.empty((*blocks.shape[:-2], self.n))
        values[..., self._order] = blocks.reshape(*blocks.shape[:-2], -1)[..., : self.n]
        return values

    def _solved(self, matrices: _Blocks, values: np.ndarray) -> np.ndarray:
        """Solutions, shape (..., n_areas), as ``values`` are."""
        return self._joined(matrices.solve(self._blocks_of(values)[..., None])[..., 0])

    def _cut(self, matrices: Sequence[sp.csr_array]) -> tuple[np.ndarray, np.ndarray]:
        """Blocks of matrices over areas, on the diagonal and below it, both of shape (n_blocks or less, n_matrices, width,
        width). Beyond the last area is a unit matrix."""
        w, n = self._width, self._n_blocks
        beyond = sp.eye_array(n * w - self.n)
        padded = [sp.block_diag([matrix[self._order][:, self._order], beyond], format="csr") for matrix in matrices]
        places = [(k, k) for k in range(n)] + [(k + 1, k) for k in range(n - 1)]
        blocks = [[m[i * w : (i + 1) * w, k * w : (k + 1) * w].toarray() for m in padded] for i, k in places]
        return np.array(blocks[:n]), np.reshape(blocks[n:], (n - 1, len(padded), w, w))


def conditional(borders: sp.csr_array, smoothness: float) -> sp.csr_array:
    """D - ρW: each area's value has mean ρ times the average of its neighbours' given these. With ρ = 0 areas are independent,
    as are areas without neighbours."""
    return sp.csr_array(sp.diags_array(np.maximum(borders.sum(axis=1), 1.0)) - smoothness * borders)
