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

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from vips.core.exact.compiled import aligned
from vips.core.exact.lanes import WIDTH
from vips.core.exact.rowwise import row_dots
from vips.core.exact.threads import run_ranges
from vips.core.mechanism.lattice import Lattice
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form
from vips.core.sums.gaussian_kernels import TILE, fill_moments_of_runs
from vips.core.sums.gaussians import Tables

__all__ = ["GaussianSums"]

_NAMES = ("count", "linear", "second")
_PIECE = 4_000_000  # numbers that are held at once
_RUN = 256  # steps that are added up one after the other
_LEAST_STEPS = 2_000  # below it, one thread
_ROUNDING = 1.0 + 1e-9  # exceeds that of the sums of squares


class GaussianSums(Form):
    """Moments of the steps of each sequence in states that are Gaussian.

    Norms and sums are of the same numbers: the moments of each sequence.

    Parameters
    ----------
    X : ndarray of shape (n_steps, d)
    offsets : ndarray of int64, shape (n_sequences + 1,)
    shares : ndarray of shape (n_steps, K)
        γ_tk; zeros at missing steps.
    centre : float
        c.
    largest : float
        h_t is 1, or ``largest`` over the norm of a step's own statistics with c = 0.
    """

    names = _NAMES

    def __init__(
        self, X: np.ndarray, offsets: np.ndarray, shares: np.ndarray, tables: Tables, blocks: Mapping[str, Block],
        centre: float, largest: float,
    ) -> None:  # fmt: skip
        self._X, self._shares, self._tables, self._centre, self._largest = X, shares, tables, centre, largest
        self._inverses = np.array([blocks[name].scale ** -2.0 for name in _NAMES])
        lengths = np.diff(offsets)
        n_runs = np.maximum(-(-lengths // _RUN), 1)
        self._first_runs = np.concatenate([[0], np.cumsum(n_runs)])
        place = np.arange(self._first_runs[-1]) - np.repeat(self._first_runs[:-1], n_runs)
        self._starts = np.repeat(offsets[:-1], n_runs) + place * _RUN
        self._lengths = np.minimum(np.repeat(offsets[1:], n_runs) - self._starts, _RUN)
        self._moments: np.ndarray | None = None

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        tables, n_states = self._tables, len(self._tables.shifts)
        of_count, of_linear, of_second = tables.unpacked(np.arange(tables.n_packed))
        weights = np.empty(tables.n_packed)
        weights[of_count], weights[of_linear] = (blocks[name].scale ** -2.0 for name in _NAMES[:2])
        times = np.bincount(of_second.ravel(), minlength=len(weights))
        weights = np.where(times > 0, times * blocks["second"].scale ** -2.0, weights)
        weights = np.tile(weights, n_states)
        squares = np.concatenate([row_dots(moments * weights, moments) for _, moments in self._pieces()])
        return np.sqrt(squares) * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        total = np.zeros(len(self._tables.shifts) * self._tables.n_packed)
        for rows, moments in self._pieces():
            present = np.flatnonzero(weights[rows])
            total += weights[rows][present] @ (moments if len(present) == len(moments) else moments[present])
        return self._by_block(total)

    def weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return self._by_block(np.concatenate([weights[rows, None] * moments for rows, moments in self._pieces()]))

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        total = {name: np.zeros(blocks[name].shape, np.int64) for name in _NAMES}
        for rows, moments in self._pieces():
            present = np.flatnonzero(weights[rows])
            for name, values in self._by_block(weights[rows][present, None] * moments[present]).items():
                total[name] += lattice.rounded_sum(values, blocks[name])
        return total

    # -- helpers ------------------------------------------------------------------------------------------------

    def _by_block(self, moments: np.ndarray) -> dict[str, np.ndarray]:
        packed = moments.reshape(*moments.shape[:-1], len(self._tables.shifts), self._tables.n_packed)
        return dict(zip(_NAMES, self._tables.unpacked(packed), strict=True))

    def _pieces(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Ranges of sequences, and the packed moments of each sequence, one row each; kept if there is one range."""
        n, size = len(self._first_runs) - 1, len(self._tables.shifts) * self._tables.n_packed
        if self._moments is not None:
            yield slice(0, n), self._moments
            return
        cuts = np.arange(0, self._first_runs[-1], max(1, _PIECE // size))
        edges = np.unique([0, *np.searchsorted(self._first_runs, cuts), n])
        for first, last in itertools.pairwise(edges):
            moments = self._of_sequences(first, last)
            if last - first == n:
                self._moments = moments
            yield slice(first, last), moments

    def _of_sequences(self, first: int, last: int) -> np.ndarray:
        tables, runs = self._tables, slice(self._first_runs[first], self._first_runs[last])
        starts, lengths = self._starts[runs], self._lengths[runs]
        moments = np.empty((len(lengths), len(tables.shifts), tables.n_packed))
        order = np.argsort(lengths, kind="stable")
        work = np.concatenate([[0], np.cumsum(lengths[order])])[np.append(np.arange(0, len(order), WIDTH), len(order))]

        K, d = tables.shifts.shape

        def fill(start: int, stop: int) -> None:
            fill_moments_of_runs(
                self._X, self._shares, tables.rows, tables.shifts, starts, lengths, order, self._largest, self._inverses,
                self._centre, start, stop, aligned((K + 1, d, TILE)), aligned((3, K, TILE)), aligned(TILE),
                np.empty(TILE, np.int64), np.empty(WIDTH, np.int64), aligned((K * tables.n_packed, WIDTH)), moments,
            )  # fmt: skip

        run_ranges(fill, work, least_work=_LEAST_STEPS)
        rows: np.ndarray = moments.reshape(len(lengths), -1)
        if len(lengths) > last - first:
            rows = np.add.reduceat(rows, self._first_runs[first:last] - runs.start)
        return rows
