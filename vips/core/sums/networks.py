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

from collections.abc import Mapping
from typing import Any

import numpy as np

from vips.core.exact.blas import product
from vips.core.exact.rowwise import row_dots, row_norms, rowwise_product, strict_product
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import kernels
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form

__all__ = ["NetworkStatistics", "packed_pairs"]

# Norms are sums of float64 terms; the norm of ``weights`` has a difference in it.
_ROUNDING, _CANCELLATION = 1.0 + 1e-9, 1e-12
_NAMES = "count", "hidden", "visible", "visible_precision", "weights", "precision"


class NetworkStatistics(Form):
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
    """

    def __init__(
        self, omega: np.ndarray, residual: np.ndarray, mean: np.ndarray, weights: np.ndarray, centre: float,
        full: bool, alone: bool,
    ) -> None:  # fmt: skip
        self.names = _NAMES + ("outer",) * full
        self._omega, self._residual, self._z = (np.asarray(array, np.float64) for array in (omega, residual, mean))
        self._weights, self._full = weights, full
        self._times = strict_product if alone else rowwise_product
        self._centred, self._var = self._z - centre, self._z * (1.0 - self._z)

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        omega, z, centred = row_norms(self._omega), row_norms(self._z), row_norms(self._centred)
        norms = {
            "count": np.ones(len(z)),
            "hidden": centred,
            "visible": row_norms(self._residual),
            "visible_precision": omega,
            "weights": self._weights_norms(),
            "precision": omega * z,
        }
        if self._full:
            norms["outer"] = omega * self._outer_norms()
        joint: Any = 0.0
        for name, block in blocks.items():
            joint = np.hypot(joint, norms[name] / block.scale)
        return joint * _ROUNDING

    def _weights_norms(self) -> np.ndarray:
        first = np.square(row_norms(self._residual) * row_norms(self._centred))
        cross = self._times(self._centred * self._var, self._weights.T)
        second = self._times(np.square(self._var), np.square(self._weights).T)
        cross *= self._residual
        second *= self._omega
        second = row_dots(self._omega, second)
        squares = first - 2.0 * row_dots(self._omega, cross) + second
        return np.sqrt(np.maximum(squares, 0.0) + _CANCELLATION * (first + second))

    def _outer_norms(self) -> np.ndarray:
        """‖z̄ z̄ᵀ + diag v‖."""
        squares = np.square(self._z)
        return np.sqrt(np.square(row_dots(self._z, self._z)) + row_dots(2.0 * squares + self._var, self._var))

    @property
    def centred(self) -> np.ndarray:
        """z̃ of each record, shape (n_records, K)."""
        return self._centred

    def of_units(self, units: slice) -> np.ndarray:
        """``visible`` and ``weights`` of visible units, record by record, shape (n_units, K + 1, n_records)."""
        residual, omega = self._residual[:, units].T[:, None], self._omega[:, units].T[:, None]
        weights = residual * self._centred.T - omega * (self._weights[units, :, None] * self._var.T)
        return np.concatenate([residual, weights], axis=1)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        weights, omega, residual, z, centred, var = self._present(weights)
        column, n_hidden = weights[:, None], z.shape[1]  # the narrower factors are multiplied by the weights
        both = product(omega.T, np.hstack([z, var]) * column)
        sums = {
            "count": weights.sum(),
            "hidden": weights @ centred,
            "visible": product(residual.T, column)[:, 0],
            "visible_precision": product(omega.T, column)[:, 0],
            "weights": product(residual.T, centred * column) - both[:, n_hidden:] * self._weights,
            "precision": both[:, :n_hidden],
        }
        if not self._full:
            return sums
        packed = packed_pairs(z)
        of_squares = np.concatenate([[0], np.cumsum(np.arange(n_hidden, 1, -1))])  # places of z_k z_k
        packed[:, of_squares] = z  # E z² = E z
        return sums | {"outer": unpacked(product((omega * column).T, packed), n_hidden)}

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """As in the base class, but faster with a diagonal covariance."""
        if self._full:
            return super().rounded_sum(weights, blocks, lattice)
        weights, omega, residual, z, centred, var = self._present(weights)
        shape = blocks["weights"].shape

        def outer(left: np.ndarray, right: np.ndarray, correction: tuple | None, name: str) -> np.ndarray:
            total = np.zeros(shape)
            unit = lattice.unit * blocks[name].scale
            kernels.add_rounded_outer(left, right, correction, weights, unit, total)
            return total.astype(np.int64)

        def rounded(values: np.ndarray, name: str) -> np.ndarray:
            shares = weights.reshape(-1, *[1] * (values.ndim - 1)) * values
            return lattice.rounded_sum(shares, blocks[name])

        return {
            "count": rounded(np.ones(len(weights)), "count"),
            "hidden": rounded(centred, "hidden"),
            "visible": rounded(residual, "visible"),
            "visible_precision": rounded(omega, "visible_precision"),
            "weights": outer(residual, centred, (omega, var, self._weights), "weights"),
            "precision": outer(omega, z, None, "precision"),
        }

    def _present(self, weights: np.ndarray) -> tuple[np.ndarray, ...]:
        """Arrays of the records whose weight is not 0."""
        arrays = weights, self._omega, self._residual, self._z, self._centred, self._var
        present = np.flatnonzero(weights)
        return arrays if len(present) == len(weights) else tuple(array[present] for array in arrays)


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
