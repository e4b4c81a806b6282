"""Sums over a sequence of vectors, in the coordinates of each state; see ``vips/models/_gaussians/transport.py``.

A step's image in the coordinates of state k is y_k = L_k⁻¹ (x - m_k). With γ_t the probabilities of the states at step t:

========  =======================================  ============================================
block     shape                                    statistic
========  =======================================  ============================================
count     (K,)                                     Σ_t h_t γ_tk
linear    (K, d)                                   Σ_t h_t γ_tk y_tk
second    full: (K, d, d); diag: (K, d)            Σ_t h_t γ_tk (y_tk y_tkᵀ - c I), or its diagonal
========  =======================================  ============================================

h_t weighs a step down whose own statistics are longer than those of one at its state, so that one step of a sequence cannot
take the place of all others; h = 1 without privacy. c is what y_i² is on average, so that the entries of ``second`` add up to
about 0: the norm of a sequence of T steps grows as √T, and not as T.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips._compute.blas import mirrored
from vips._compute.rowwise import row_dots
from vips._compute.threads import run_ranges
from vips.models._gaussians.kernels import TILE, add_moments, squares_of
from vips.models._gaussians.posterior import Tables
from vips.models.markov import kernels
from vips.privacy import Lattice
from vips.statistics import Block

__all__ = ["GaussianSums", "influence_of_steps", "sums_of_powers"]

_PIECE = 2_000_000  # numbers that are rounded at once
_LEAST_STEPS = 2_000  # below it, one thread


def sums_of_powers(X: np.ndarray, tables: Tables, power: int) -> np.ndarray:
    """Σ_i y_tki² of each step and state, shape (n_steps, K), or of fourth powers."""
    sums = np.empty((len(X), len(tables.shifts)))

    def fill(start: int, stop: int) -> None:
        squares_of(X, tables.rows, tables.shifts, power, start * TILE, min(stop * TILE, len(X)), sums)

    run_ranges(fill, np.arange(-(-len(X) // TILE) + 1) * TILE, least_work=_LEAST_STEPS)
    return sums


def influence_of_steps(
    X: np.ndarray, squares: np.ndarray, shares: np.ndarray, tables: Tables, blocks: Mapping[str, Block], largest: float
) -> np.ndarray:
    """h: 1, or ``largest`` over the norm of a step's own statistics with c = 0; shape (n_steps,)."""
    scales, weights = {name: block.scale for name, block in blocks.items()}, np.square(shares)
    fourth = sums_of_powers(X, tables, 4) if tables.covariance_type == "diag" else np.square(squares)
    norms = row_dots(weights, np.ones_like(weights)) / scales["count"] ** 2
    norms += row_dots(weights, squares) / scales["linear"] ** 2 + row_dots(weights, fourth) / scales["second"] ** 2
    return largest / np.maximum(np.sqrt(norms), largest)


class GaussianSums:
    """Part of :class:`~vips.models.markov.statistics.SequenceStatistics` for states that are Gaussian.

    Parameters
    ----------
    X : ndarray of shape (n_steps, d)
        Zeros at missing steps.
    offsets : ndarray of int64, shape (n_sequences + 1,)
    shares : ndarray of shape (n_steps, K)
        h_t γ_tk; zeros at missing steps.
    tables : Tables
    centre : float
        c.
    bounds_norms : bool
        Whether a bound takes the place of norms: enough for a fit that clips nothing, which asks whether they are finite.
    """

    def __init__(
        self,
        X: np.ndarray,
        offsets: np.ndarray,
        shares: np.ndarray,
        tables: Tables,
        centre: float,
        bounds_norms: bool = False,
    ) -> None:
        self._X, self._offsets, self._shares, self._tables, self._centre = X, offsets, shares, tables, centre
        self._bounds_norms = bounds_norms

    def squares(self, blocks: Mapping[str, Block]) -> np.ndarray:
        squares, tables = np.empty(len(self._offsets) - 1), self._tables
        scales = np.array([blocks[name].scale for name in ("count", "linear", "second")])
        if self._bounds_norms:
            return self._bound(scales)

        def fill(first: int, last: int) -> None:
            kernels.gaussian_squares(
                self._X,
                self._offsets,
                tables.rows,
                tables.shifts,
                self._shares,
                self._centre,
                scales,
                first,
                last,
                squares,
            )

        run_ranges(fill, self._offsets, least_work=_LEAST_STEPS)
        return squares

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        (n_states, d), tables = self._tables.shifts.shape, self._tables
        count, nothing, linear = np.zeros(n_states), np.zeros(n_states), np.zeros((n_states, d))
        second, of_steps = np.zeros((n_states, *tables.rows.shape[1:])), np.repeat(weights, np.diff(self._offsets))
        without = np.empty((0, n_states))

        def add(first: int, last: int) -> None:
            add_moments(
                self._X,
                tables.rows,
                tables.shifts,
                of_steps,
                self._shares,
                without,
                first,
                last,
                count,
                nothing,
                linear,
                second,
            )

        run_ranges(add, np.arange(n_states + 1) * len(self._X))
        if tables.covariance_type == "full":
            second = np.stack([mirrored(matrix) for matrix in second])
        return {"count": count, "linear": linear, "second": self._centred(second, count)}

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        names, statistics = ("count", "linear", "second"), self._formed(0, len(weights))
        return {
            name: weights.reshape(-1, *[1] * (values.ndim - 1)) * values
            for name, values in zip(names, statistics, strict=True)
        }

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        names, (n_states, d) = ("count", "linear", "second"), self._tables.shifts.shape
        total = {name: np.zeros(blocks[name].shape, np.int64) for name in names}
        size = max(1, _PIECE // (n_states * d * (2 + self._tables.rows.shape[1])))
        for start in range(0, len(weights), size):
            statistics = self._formed(start, min(start + size, len(weights)))
            present = np.flatnonzero(weights[start : start + size])
            for name, values in zip(names, statistics, strict=True):
                weighted = weights[start + present].reshape(-1, *[1] * (values.ndim - 1)) * values[present]
                weighted = weighted.reshape(len(weighted), *blocks[name].shape)
                total[name] += lattice.rounded(weighted, blocks[name]).sum(axis=0)
        return total

    # -- helpers ------------------------------------------------------------------------------------------------

    def _bound(self, scales: np.ndarray) -> np.ndarray:
        """Steps times what one step may be, whose ‖y‖ is at most ‖A‖ ‖x‖ + ‖shift‖ for each state."""
        tables, longest = self._tables, np.empty(len(self._offsets) - 1)
        kernels.fill_longest(self._X, self._offsets, longest)
        of_states = np.sqrt(np.square(tables.rows).sum(axis=(1, 2)).max())
        y = of_states * longest + np.sqrt(np.square(tables.shifts).sum(axis=1).max())
        second = np.square(y) + self._centre * np.sqrt(self._X.shape[1])
        return np.square(np.diff(self._offsets) * (1.0 / scales[0] + y / scales[1] + second / scales[2]))

    def _formed(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Statistics of each of these sequences."""
        tables, (n_states, d) = self._tables, self._tables.shifts.shape
        shapes = (n_states,), (n_states, d), (n_states, tables.rows.shape[1], d)
        statistics = tuple(np.zeros((last - first, *shape)) for shape in shapes)
        kernels.gaussian_sums(
            self._X, self._offsets, tables.rows, tables.shifts, self._shares, self._centre, first, last, *statistics
        )
        return statistics

    def _centred(self, second: np.ndarray, count: np.ndarray) -> np.ndarray:
        if self._tables.covariance_type == "full":
            return second - self._centre * count[:, None, None] * np.eye(second.shape[1])
        return second[:, 0] - self._centre * count[:, None]
