"""E-step of sigmoid belief networks: hidden units of each record, from that record alone.

===================  =================================================================================
symbol               meaning
===================  =================================================================================
z̄_nk, v_nk           E z_nk, and the variance z̄ (1 - z̄)
ψ_nj                 w̄_jᵀ z̄_n + c̄_j; its variance over z, w and c is ``variance``
ω_nj                 E[ω | √E ψ²] of the Pólya-Gamma variable of y_nj
r_nj                 y - ½ - ω ψ, the residual
===================  =================================================================================

    logit z̄_k = b̄_k + Σ_j [ r_j w̄_jk - ω_j (Σ_j z̄)_k + (z̄_k - ½) ω_j E w_jk² ]

with Σ_j the covariance of w_j: the exact mean-field update of one unit given the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from vips.core.exact.blas_threads import one_blas_thread
from vips.core.exact.rowwise import PIECE, rowwise_product, strict_product, zero_filled
from vips.core.exact.threads import run_ranges
from vips.core.sums.networks import NetworkStatistics
from vips.models.belief_networks import kernels

__all__ = ["HiddenUnits", "dense_rows", "infer"]

# Number of units that are updated between two products with the coupling.
_BLOCK = 16


@dataclass(frozen=True)
class HiddenUnits:
    """Hidden units of a chunk of records: arrays of shape (n_records, K) and (n_records, J), as in the table above."""

    y: np.ndarray
    mean: np.ndarray
    predictor: np.ndarray
    variance: np.ndarray
    omega: np.ndarray
    residual: np.ndarray

    def rows(self, rows: slice) -> HiddenUnits:
        """Views of some records."""
        arrays = self.y, self.mean, self.predictor, self.variance, self.omega, self.residual
        return HiddenUnits(*(array[rows] for array in arrays))

    def statistics(self, weights: np.ndarray, centre: float, full: bool, alone: bool) -> NetworkStatistics:
        """What the records add to the sums; arguments as in :class:`~vips.core.sums.NetworkStatistics`."""
        return NetworkStatistics(self.omega, self.residual, self.mean, weights, centre, full, alone)

    def bounds(self, posterior) -> np.ndarray:
        """Evidence lower bound of each record given the parameters' posterior, shape (n_records,).

        Σ_j (y - ½) ψ - log 2 cosh(½ √E ψ²)  +  Σ_k (z̄ - ½) b̄ - log 2 cosh(½ √E b²)  +  H(z): the Pólya-Gamma
        variables are integrated out.
        """
        tilt = np.sqrt(np.square(self.predictor, dtype=np.float64) + self.variance)
        visible = (self.y - 0.5) * self.predictor - _log_two_cosh(tilt)
        bias = posterior.hidden_bias
        z = np.clip(self.mean.astype(np.float64), 1e-300, 1.0)
        entropy = -z * np.log(z) - (1.0 - z) * np.log1p(-np.minimum(z, 1.0 - 1e-16))
        hidden = (z - 0.5) * bias.mean - _log_two_cosh(np.sqrt(bias.mean**2 + bias.var)) + entropy
        return visible.sum(axis=1) + hidden.sum(axis=1)


def dense_rows(records, dtype: np.dtype) -> np.ndarray:
    """Records as a dense array of the given dtype."""
    if sp.issparse(records):
        return sp.csr_array(records).astype(dtype).toarray()
    return np.ascontiguousarray(records, dtype=dtype)


def infer(
    y: np.ndarray, posterior, max_iter: int, observed: np.ndarray | None = None, alone: bool = False
) -> HiddenUnits:
    """Hidden units of a chunk of records.

    Parameters
    ----------
    y : float array of shape (n_records, J)
        Its dtype is that of the computation.
    posterior : NetworkPosterior
    max_iter : int
        Updates of each unit; every record starts at σ(b̄).
    observed : bool array of shape (n_records, J), optional
        Entries to infer from; all of them by default.
    alone : bool
        Use kernels in place of BLAS (slower). Either way, each row of the result is a function of that row of ``y`` alone, to
        the last bit; with kernels this does not depend on the behaviour of BLAS.

    Returns
    -------
    HiddenUnits
        ω and r belong to the last z̄, and are 0 where not observed.
    """
    times = strict_product if alone else rowwise_product
    n_records = len(y)
    observed = None if observed is None else np.ascontiguousarray(observed, dtype=y.dtype)
    # always the same number of rows at a time: rounding in NumPy and BLAS then does not depend on the number of records
    y, observed = zero_filled(y, PIECE), None if observed is None else zero_filled(observed, PIECE)
    units = HiddenUnits(
        y, np.empty((len(y), posterior.coupling.shape[0]), y.dtype), *(np.empty_like(y) for _ in range(4))
    )
    arrays, spread = posterior.arrays(y.dtype), posterior.spread(y.dtype)

    def work(first: int, last: int) -> None:
        for start in range(first * PIECE, min(last * PIECE, len(y)), PIECE):
            rows = slice(start, start + PIECE)
            _infer_rows(units.rows(rows), arrays, spread, max_iter, None if observed is None else observed[rows], times)

    with one_blas_thread():  # our threads divide the records
        run_ranges(work, np.arange(-(-len(y) // PIECE) + 1))
    return units.rows(slice(n_records))


def _infer_rows(units: HiddenUnits, arrays, spread, max_iter: int, observed: np.ndarray | None, times) -> None:
    """Fill all arrays of ``units`` but y, in place."""
    weights, bias, log_odds, bias_var, coupling = arrays
    y, z = units.y, units.mean
    share = np.ones(len(y), y.dtype) if observed is None else observed.mean(axis=1, dtype=y.dtype)
    z[:] = 1.0 / (1.0 + np.exp(-log_odds))
    for last in [False] * max_iter + [True]:
        predictor, variance = times(z, weights.T), spread.of_predictor(z, times)
        kernels.residuals(y, bias, bias_var, predictor, variance, observed, units.omega, units.residual)
        if not last:
            field = times(units.residual, weights)
            field += log_odds
            field += spread.of_field(units.omega, z, times)
            _sweep(field, coupling, share, z, times)
    units.predictor[:], units.variance[:] = predictor, variance


def _sweep(field, coupling, share, z, times) -> None:
    """One update of every unit, in place: one after the other, a block at a time."""
    n_hidden = z.shape[1]
    for first in range(0, n_hidden, _BLOCK):
        current, later = slice(first, first + _BLOCK), slice(first + _BLOCK, n_hidden)
        # copies: the kernel writes into `units`, and z must keep the old values
        units, block, inner = (
            np.array(part, order="C") for part in (z[:, current], field[:, current], coupling[current, current])
        )
        kernels.sweep(block, inner, share, units)
        moved = (units - z[:, current]) * share[:, None]
        z[:, current] = units
        if later.start < n_hidden:
            field[:, later] -= times(moved, np.ascontiguousarray(coupling[current, later]))


def _log_two_cosh(tilt: np.ndarray) -> np.ndarray:
    """log 2 cosh(c/2) for c ≥ 0."""
    return 0.5 * tilt + np.log1p(np.exp(-tilt))
