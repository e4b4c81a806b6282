"""Expected statistics of records of a Gaussian mixture, in the coordinates of each component; never formed per record.

A record's image in the coordinates of component k is y_k = L_k⁻¹ (x - m_k), where m_k is the component's mean, and L_k a
Cholesky factor of its covariance. With responsibilities r_k and precision factors u_k (1 unless components are Student-t):

========  =====================  ===================================  ==============================================
block     shape                  statistic                            square of its norm
========  =====================  ===================================  ==============================================
count     (K,)                   r_k                                  Σ r_k²
weight    (K,), Student-t only   r_k u_k                              Σ (r_k u_k)²
tail      (K,), learnt only      r_k E[log u_k - u_k]                 Σ of squares
linear    (K, d)                 r_k u_k y_k                          Σ (r_k u_k)² ‖y_k‖²
second    full: (K, d, d)        r_k u_k y_k y_kᵀ                     Σ (r_k u_k)² ‖y_k‖⁴
\\         diag: (K, d)           r_k u_k y_k²                         Σ (r_k u_k)² Σ_i y_ki⁴
\\         spherical: (K,)        r_k u_k ‖y_k‖²                       Σ (r_k u_k)² ‖y_k‖⁴
\\         tied: (d, d)           Σ_k r_k u_k y_k y_kᵀ                 Σ_jk r_j u_j r_k u_k (y_jᵀ y_k)²
========  =====================  ===================================  ==============================================

A record at its component has about the same norm in every component. In a private fit, a record of more than that norm is
weighted down to it: a function of the record alone, for which ``vips/models/_gaussians/denoising.py`` corrects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import digamma, gammaln

from vips.core.exact.rowwise import row_dots
from vips.core.exact.threads import run_ranges
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import gaussian_kernels as kernels
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form

__all__ = ["MixtureStatistics", "Tables"]

_ROUNDING = 1.0 + 4e-9  # exceeds that of the sums of squares
_PIECE = 2_000_000  # numbers that are rounded at once
_NAMES = ("count", "weight", "linear", "second")  # of the blocks whose norms a kernel takes


@dataclass(frozen=True)
class Tables:
    """What an E-step needs: log p(x, k) = constant_k - ½ (‖y_k‖² + excess_k) - ½ d log 2π, y_k = rows_k x - shifts_k."""

    covariance_type: str
    rows: np.ndarray
    shifts: np.ndarray
    constants: np.ndarray
    excess: np.ndarray
    tail: np.ndarray

    @cached_property
    def log_constants(self) -> np.ndarray:
        """Logarithm of what stands before exp(-½ distance), or before (1 + distance / tail)^(-½ (tail + d)); shape (K,)."""
        d = self.shifts.shape[1]
        if not self.tail.any():
            return self.constants - 0.5 * d * np.log(2.0 * np.pi)
        half = 0.5 * (self.tail + d)
        return self.constants + gammaln(half) - gammaln(0.5 * self.tail) - 0.5 * d * np.log(np.pi * self.tail)

    def log_factors(self, factors: np.ndarray) -> np.ndarray:
        """E[log u - u], from E[u]; shape (n_records, K)."""
        half = 0.5 * (self.tail + self.shifts.shape[1])
        return digamma(half) - np.log(half) + np.log(factors) - factors

    def unpacked(self, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts, first and second moments, shapes (..., K), (..., K, d) and (..., K, d, d), or diagonals,
        from those that kernels pack, shape (..., K, n_packed)."""
        d = self.shifts.shape[1]
        places = np.arange(d)
        if self.covariance_type in ("full", "tied"):
            row, column = np.maximum.outer(places, places), np.minimum.outer(places, places)
            places = row * (row + 1) // 2 + column
        return moments[..., 0], moments[..., 1 : 1 + d], moments[..., 1 + d :][..., places]

    @property
    def n_packed(self) -> int:
        """Number of packed moments of a component."""
        d = self.shifts.shape[1]
        return 1 + d + (d * (d + 1) // 2 if self.rows.shape[1] == d else d)


class MixtureStatistics(Form):
    """Statistics of a chunk of records.

    Parameters
    ----------
    X : ndarray of float64, shape (n_records, d)
    tables : Tables
        Of the posterior.
    largest : float
        Norm down to which a record is weighted; ``inf`` if there is no such bound. Public.

    Attributes
    ----------
    shares : ndarray of shape (n_records, K)
        r.
    log_likelihood : ndarray of shape (n_records,)
        log Σ_k exp E log p(x, k).
    """

    def __init__(self, X: np.ndarray, tables: Tables, blocks: Mapping[str, Block], largest: float = np.inf) -> None:
        self._X = np.require(X, requirements=["C", "W"])  # numba would compile its kernels anew for read-only arrays
        self._tables, self._blocks, self.names = tables, blocks, tuple(blocks)
        n, n_components, work = len(X), len(tables.shifts), tables.rows.size
        self._shares = np.empty((n_components, n))
        self._factors = np.empty((n_components if tables.tail.any() else 0, n))
        self._log_scale, self._totals, norms = np.empty(n), np.empty(n), np.empty(n)
        scales = np.array([blocks[name].scale if name in blocks else np.inf for name in _NAMES])
        if tables.covariance_type == "tied":
            scales[-1] = np.inf

        def fill(start: int, stop: int) -> None:
            kernels.fill_responsibilities(
                self._X, tables.rows, tables.shifts, tables.log_constants, tables.excess, tables.tail, scales**-2.0,
                tables.covariance_type == "diag", start * kernels.TILE, min(stop * kernels.TILE, n),
                self._shares, self._factors, self._log_scale, self._totals, norms,
            )  # fmt: skip

        run_ranges(fill, np.arange(-(-n // kernels.TILE) + 1) * work * kernels.TILE)
        if "tail" in blocks:
            norms += row_dots(self._tails(), self._tails()) / blocks["tail"].scale ** 2
        if tables.covariance_type == "tied":
            norms += self._tied_squares() / blocks["second"].scale ** 2
        self._norms = np.sqrt(norms) * _ROUNDING
        self._influence = None
        if np.isfinite(largest):
            self._influence = largest / np.maximum(self._norms, largest)
            self._norms = np.minimum(self._norms, largest * _ROUNDING)

    @cached_property
    def shares(self) -> np.ndarray:
        return np.ascontiguousarray(self._shares.T)

    @property
    def counted(self) -> np.ndarray:
        """What each record adds to block "count", shape (n_records, K)."""
        return self._bounded(np.ones(len(self._X)))[:, None] * self.shares

    @cached_property
    def log_likelihood(self) -> np.ndarray:
        return self._log_scale + np.log(self._totals)

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        return self._norms

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        weights, tables = self._bounded(weights), self._tables
        n_components = len(tables.shifts)
        count, moments = np.zeros(n_components), np.zeros((n_components, tables.n_packed))

        def add(first: int, last: int) -> None:
            kernels.add_moments(
                self._X, tables.rows, tables.shifts, weights, self._shares, self._factors, first, last, count, moments
            )

        run_ranges(add, np.arange(n_components + 1) * len(self._X))
        weight, linear, second = tables.unpacked(moments)
        if tables.covariance_type in ("tied", "spherical"):
            second = second.sum(axis=0 if tables.covariance_type == "tied" else 1)
        total = {"count": count, "weight": weight, "linear": linear, "second": second}
        if "tail" in self._blocks:
            present = np.flatnonzero(weights)
            total["tail"] = weights[present] @ self._tails()[present]
        return {name: total[name] for name in self._blocks}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        total = {name: np.zeros(block.shape, np.int64) for name, block in blocks.items()}
        weighted, present = self._bounded(weights)[:, None] * self.shares, np.flatnonzero(weights)
        size = max(1, _PIECE // (self._tables.rows[0].size * len(self._tables.shifts)))
        for start in range(0, len(present), size):
            rows = present[start : start + size]
            formed, images = self._formed(rows, weighted[rows])
            if self._tables.covariance_type == "full":
                total["second"] += lattice.rounded_outer_sum(formed["linear"], images, blocks["second"])
            else:
                formed["second"] = self._second(formed["linear"], images)
            for name, shares in formed.items():
                total[name] += lattice.rounded_sum(shares, blocks[name])
        return total

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        formed, images = self._formed(np.arange(len(weights)), self._bounded(weights)[:, None] * self.shares)
        return formed | {"second": self._second(formed["linear"], images)}

    # -- helpers ------------------------------------------------------------------------------------------------

    def _tails(self) -> np.ndarray:
        """r_k E[log u_k - u_k] of each record."""
        return self.shares * self._tables.log_factors(np.ascontiguousarray(self._factors.T))

    def _tied_squares(self) -> np.ndarray:
        n, tables, squares = len(self._X), self._tables, np.empty(len(self._X))
        weights = self._shares * self._factors if len(self._factors) else self._shares

        def fill(start: int, stop: int) -> None:
            first, last = start * kernels.TILE, min(stop * kernels.TILE, n)
            kernels.fill_tied_squares(self._X, tables.rows, tables.shifts, weights, first, last, squares)

        run_ranges(fill, np.arange(-(-n // kernels.TILE) + 1) * tables.rows.size * kernels.TILE)
        return squares

    def _bounded(self, weights: np.ndarray) -> np.ndarray:
        """The weights, less for long records; 0 for defective ones."""
        if self._influence is not None:
            weights = weights * self._influence
        return np.where(np.isnan(self._norms), 0.0, weights)

    def _formed(self, rows: np.ndarray, shares: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Statistics of each of these records but block "second", and y_k."""
        tables, formed = self._tables, {"count": shares}
        images = np.empty((len(rows), *tables.shifts.shape))
        kernels.fill_images(self._X[rows], tables.rows, tables.shifts, images)
        if len(self._factors):
            factors = self._factors.T[rows]
            if "tail" in self._blocks:
                formed["tail"] = shares * tables.log_factors(factors)
            formed["weight"] = shares = shares * factors
        formed["linear"] = shares[:, :, None] * images
        return formed, images

    def _second(self, linear: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Block "second" of each record, from r_k u_k y_k and y_k."""
        kind, (n, n_components, d) = self._tables.covariance_type, images.shape
        if kind == "tied":
            second = np.zeros((n, d, d))
            for k in range(n_components):
                second += linear[:, k, :, None] * images[:, k, None, :]
            return second
        if kind == "full":
            return linear[:, :, :, None] * images[:, :, None, :]
        if kind == "diag":
            return linear * images
        return row_dots(linear.reshape(-1, d), images.reshape(-1, d)).reshape(n, n_components)
