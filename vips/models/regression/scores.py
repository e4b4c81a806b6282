"""Variance of the records' scores: what a sandwich A⁻¹ B A⁻¹ has between its curvatures.

The score of a record is s = Σ_rows r x. Its rows may depend on each other (visits of one patient do), and a weight w makes the
variance of its share, w² s sᵀ, differ from the curvature. Block "variance" sums the diagonal of w² s sᵀ by coefficient.

The engine multiplies a record's statistic by w. So the statistic is u (s_j)², where u = min(1, C/n) is the weight that a record
of norm n gets. Since u ‖s‖ ≤ C, its norm is at most C ‖s‖: with a scale of ``VARIANCE_SCALE`` times C it adds
‖s‖² / ``VARIANCE_SCALE``² to the squared norm of the record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from vips.privacy import Lattice
from vips.sums import Block, RecordStatistics

__all__ = ["VARIANCE_SCALE", "ScoredStatistics", "Scores"]

# Scale of the squared scores, in units of the clip norm: they lengthen a record's vector by at most 6 %.
VARIANCE_SCALE = 3.0


@dataclass(frozen=True)
class Scores:
    """Residuals of rows, and the rows themselves.

    Parameters
    ----------
    places : ndarray of shape (n,)
        Places of the rows in their chunk, ascending.
    rows : array or CSR of shape (n, d)
    residual : ndarray of shape (n, n_outputs)
    """

    places: np.ndarray
    rows: np.ndarray | sp.csr_array
    residual: np.ndarray

    def only(self, present: np.ndarray) -> Scores:
        """Without the rows of the chunk that are not ``present``."""
        here = present[self.places]
        return self if here.all() else Scores(self.places[here], self.rows[here], self.residual[here])


class ScoredStatistics(RecordStatistics):
    """Statistics with a block "variance", if ``clip_norm`` is given.

    Parameters
    ----------
    clip_norm : float or None
        C.
    blocks : dict of str to Block
    """

    def __init__(self, clip_norm: float | None, blocks: Mapping[str, Block]) -> None:
        self._clip_norm, self._blocks = clip_norm, blocks
        self._bounds, self._starts = None, None  # norms of the records, and where their rows start
        self._piece = None  # of a record in pieces: the weight, and all its scores in the last piece

    @abstractmethod
    def _row_norms(self, blocks: Mapping[str, Block]) -> np.ndarray: ...

    @abstractmethod
    def _scores(self) -> Sequence[Scores]:
        """The rows of the chunk, in one or several parts."""

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        self._starts, self._bounds = None, self._row_norms(blocks)
        return self._bounds

    def run_norms(self, norms: np.ndarray, blocks: Mapping[str, Block], starts: np.ndarray) -> np.ndarray:
        self._starts, self._bounds = starts, super().run_norms(norms, blocks, starts)
        return self._bounds

    def carry(self, carried, used: np.ndarray, weight: float, is_last: bool):
        if self._clip_norm is None:
            return None
        starts = np.array([0, len(used)])
        sums = [self._sums_of_runs(j, used, starts) for j in range(self._n_outputs())]
        total = sums if carried is None else [before + new for before, new in zip(carried, sums, strict=True)]
        self._piece = weight, total if is_last else None
        return total

    def _n_outputs(self) -> int:
        return self._scores()[0].residual.shape[1]

    def _squared_scores(self, weights: np.ndarray, rounded: Callable | None = None) -> dict[str, np.ndarray]:
        """Block "variance" of records of these weights; ``rounded`` rounds the share of each record to the lattice."""
        if self._clip_norm is None:
            return {}
        if self._piece is not None:
            weight, scores = self._piece
            if scores is None:  # counted with the last piece
                return {"variance": np.zeros(self._blocks["variance"].shape)}
            return _squares(scores, np.array([weight * weight]), rounded)
        bounds = self.norms(self._blocks) if self._bounds is None else self._bounds
        if self._starts is None and rounded is None:
            return self._squares_of_rows(weights, bounds)
        starts = np.arange(len(weights) + 1) if self._starts is None else self._starts
        present = weights[: starts[-1]] > 0.0
        record = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[present]
        factors = np.zeros(len(starts) - 1)
        factors[record] = weights[: starts[-1]][present]
        if self.sample_weights is not None:  # the scores have them
            factors[record] /= self.sample_weights[: starts[-1]][present]
        factors[record] *= np.minimum(1.0, self._clip_norm / bounds[record])
        return _squares((self._sums_of_runs(j, present, starts) for j in range(self._n_outputs())), factors, rounded)

    def _squares_of_rows(self, weights: np.ndarray, bounds: np.ndarray) -> dict[str, np.ndarray]:
        """The same of records of one row each: Σ_n f_n r_nj² x_n²."""
        factors = weights * np.minimum(1.0, self._clip_norm / bounds)
        if self.sample_weights is not None:  # the scores have them, and so have the records' weights
            factors = factors * self.sample_weights
        total, present = 0.0, weights > 0.0
        for part in (scores.only(present) for scores in self._scores()):
            of_squares = (factors[part.places, None] * np.square(part.residual)).T
            rows = part.rows
            if sp.issparse(rows):  # `power` copies the columns
                total += of_squares @ sp.csr_array((np.square(rows.data), rows.indices, rows.indptr), shape=rows.shape)
            else:
                total += np.dot(of_squares, np.square(rows))
        return {"variance": total[0] if len(total) == 1 else total}

    def _sums_of_runs(self, output: int, present: np.ndarray, starts: np.ndarray):
        """Scores of the records, Σ r x over their present rows, by the rows' weights; shape (n_records, d)."""
        return sum(_sums_of_runs(part, output, present, starts, self.sample_weights) for part in self._scores())

    def _rounded_squares(
        self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice
    ) -> dict[str, np.ndarray]:
        """The same in whole units of the lattice."""
        squares = self._squared_scores(
            weights, lambda shares: np.rint(shares / (lattice.unit * blocks["variance"].scale))
        )
        return {name: value.astype(np.int64) for name, value in squares.items()}


def _squares(scores: Iterable, factors: np.ndarray, rounded: Callable | None) -> dict[str, np.ndarray]:
    """Block "variance": Σ_i f_i s_i², for scores (n_records, d) of each output."""
    total = []
    for block in scores:
        if sp.issparse(block):
            shares = factors[np.repeat(np.arange(len(factors)), np.diff(block.indptr))] * np.square(block.data)
            shares = shares if rounded is None else rounded(shares)
            total.append(np.bincount(block.indices, shares, block.shape[1]))
        elif rounded is None:
            total.append(np.dot(factors, np.square(block)))
        else:
            total.append(rounded(factors[:, None] * np.square(block)).sum(axis=0))
    return {"variance": total[0] if len(total) == 1 else np.array(total)}


def _sums_of_runs(
    part: Scores, output: int, present: np.ndarray, starts: np.ndarray, sample_weights: np.ndarray | None
):
    """Σ r x over the present rows of each record, shape (n_records, d); SciPy adds a record's rows in order."""
    starts = np.searchsorted(part.places, starts)
    inside = np.searchsorted(part.places, len(present))
    here = present[part.places[:inside]]
    rows = np.flatnonzero(here)
    indptr = np.concatenate([[0], np.cumsum(here)])[starts]
    residual = part.residual[rows, output]
    if sample_weights is not None:
        residual = residual * sample_weights[part.places[rows]]
    runs = sp.csr_array((residual, rows, indptr), shape=(len(starts) - 1, part.rows.shape[0]))
    return runs @ part.rows
