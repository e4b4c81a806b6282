"""Expected statistics of records of a sigmoid belief network, never formed per record.

With z̃ = z̄ - m, m a constant, and the symbols of ``vips/models/belief_networks/inference.py``:

==================  ===============  ==================================  ==============================================
block               shape            statistic                           norm
==================  ===============  ==================================  ==============================================
count               ()               1                                   1
hidden              (K,)             z̃                                   ‖z̃‖
visible             (J,)             r                                   ‖r‖
visible_precision   (J,)             ω                                   ‖ω‖
weights             (J, K)           r z̃ᵀ - (ω vᵀ) ∘ W̄                   ‖r‖²‖z̃‖² - 2 (r ∘ ω)ᵀW̄(z̃ ∘ v) + (ω²)ᵀW̄² v²
precision           (J, K)           ω z̄ᵀ                                ‖ω‖ ‖z̄‖
outer               (J, K, K)        ω_j E z zᵀ                          ‖ω‖² (‖z̄‖⁴ + 2 Σ z̄² v + Σ v²)
==================  ===============  ==================================  ==============================================

For ``weights`` and ``outer`` the table gives squared norms. The derivative of the bound with respect to W̄ is Σ_n of
``weights`` plus m times ``visible``; with respect to c̄ it is ``visible``. ``outer`` belongs to a full covariance only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from vips.core.exact.blas import product
from vips.core.exact.rowwise import row_dots, rowwise_product, strict_product
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import kernels
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form, Joint
from vips.core.sums.outer import Outer, Rows, RowSum, present

__all__ = ["NetworkStatistics", "packed_pairs"]

# Norms are sums of float64 terms; the norm of ``weights`` has a difference in it.
_ROUNDING, _CANCELLATION = 1.0 + 1e-9, 1e-12


class NetworkStatistics(Joint):
    """Statistics of a chunk of records.

    Parameters
    ----------
    omega, residual : ndarray of shape (n_records, J)
        ω and r.
    mean : ndarray of shape (n_records, K)
        z̄.
    weights : ndarray of shape (J, K)
        W̄.
    centre : float
        m.
    full : bool
        Whether the covariance is full.
    alone : bool
        Whether products are computed by kernels that treat each row by itself, instead of BLAS.

    Attributes
    ----------
    centred : ndarray of shape (n_records, K)
        z̃ of each record.
    """

    def __init__(
        self, omega: np.ndarray, residual: np.ndarray, mean: np.ndarray, weights: np.ndarray, centre: float,
        full: bool, alone: bool,
    ) -> None:  # fmt: skip
        z, self.centred = np.asarray(mean, np.float64), np.asarray(mean, np.float64) - centre
        of_omega, of_residual = (Rows(np.asarray(array, np.float64)) for array in (omega, residual))
        of_hidden, times = Rows(self.centred), strict_product if alone else rowwise_product
        self.derivatives = Derivatives(of_omega, of_residual, of_hidden, z, weights, times)
        super().__init__(
            RowSum("count", np.ones(len(z))),
            RowSum("hidden", of_hidden),
            RowSum("visible", of_residual),
            RowSum("visible_precision", of_omega),
            self.derivatives,
            Outer("precision", of_omega, z),
            *([UnitPairs(of_omega, z)] if full else []),
        )


class Derivatives(Form):
    """r z̃ᵀ - (ω vᵀ) ∘ W̄ of each record; ``times`` multiplies rows."""

    names = ("weights",)

    def __init__(self, omega: Rows, residual: Rows, hidden: Rows, z: np.ndarray, weights: np.ndarray, times: Callable):
        self._arrays = omega.values, residual.values, hidden.values, z * (1.0 - z)
        self._of_first, self._weights, self._times = (residual, hidden), weights, times

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        omega, residual, centred, var = self._arrays
        first = np.square(np.prod([rows.norms[0] for rows in self._of_first], axis=0))
        cross = self._times(centred * var, self._weights.T)
        second = self._times(np.square(var), np.square(self._weights).T)
        cross *= residual
        second *= omega
        of_var = row_dots(omega, second)
        squares = np.maximum(first - 2.0 * row_dots(omega, cross) + of_var, 0.0)
        return np.sqrt(squares + _CANCELLATION * (first + of_var)) * (_ROUNDING / blocks["weights"].scale)

    def of_units(self, units: slice) -> np.ndarray:
        """``visible`` and ``weights`` of visible units, record by record, shape (n_units, K + 1, n_records)."""
        omega, residual, centred, var = self._arrays
        of_residual, of_omega = residual[:, units].T[:, None], omega[:, units].T[:, None]
        weights = of_residual * centred.T - of_omega * (self._weights[units, :, None] * var.T)
        return np.concatenate([of_residual, weights], axis=1)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        weights, omega, residual, centred, var = present(weights, *self._arrays)
        column = weights[:, None]  # the narrower factors are multiplied by the weights
        return {"weights": product(residual.T, centred * column) - product(omega.T, var * column) * self._weights}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        weights, omega, residual, centred, var = present(weights, *self._arrays)
        total, unit = np.zeros(self._weights.shape), lattice.unit * blocks["weights"].scale
        kernels.add_rounded_outer(residual, centred, (omega, var, self._weights), weights, unit, total)
        return {"weights": total.astype(np.int64)}


class UnitPairs(Form):
    """ω_j E z zᵀ of each record."""

    names = ("outer",)

    def __init__(self, omega: Rows, z: np.ndarray) -> None:
        self._omega, self._z = omega, z

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        squares, var = np.square(self._z), self._z * (1.0 - self._z)
        of_pairs = np.sqrt(np.square(row_dots(self._z, self._z)) + row_dots(2.0 * squares + var, var))
        return self._omega.norms[0] * of_pairs * (_ROUNDING / blocks["outer"].scale)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        weights, omega, z = present(weights, self._omega.values, self._z)
        packed, n_hidden = packed_pairs(z), z.shape[1]
        of_squares = np.concatenate([[0], np.cumsum(np.arange(n_hidden, 1, -1))])  # places of z_k z_k
        packed[:, of_squares] = z  # E z² = E z
        return {"outer": unpacked(product((omega * weights[:, None]).T, packed), n_hidden)}


def unpacked(packed: np.ndarray, n_hidden: int) -> np.ndarray:
    """Symmetric matrices (J, K, K) from the rows of their upper triangles, (J, K (K + 1) / 2)."""
    matrices = np.empty((len(packed), n_hidden, n_hidden))
    kernels.unpack(packed, matrices)
    return matrices


def packed_pairs(z: np.ndarray) -> np.ndarray:
    """z_k z_l for k ≤ l, row by row of the upper triangle, shape (n_records, K (K + 1) / 2)."""
    n_hidden = z.shape[1]
    pairs = np.empty((len(z), n_hidden * (n_hidden + 1) // 2), z.dtype)
    start = 0
    for k in range(n_hidden):
        stop = start + n_hidden - k
        np.multiply(z[:, k:], z[:, k : k + 1], out=pairs[:, start:stop])
        start = stop
    return pairs
