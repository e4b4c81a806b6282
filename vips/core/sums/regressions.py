"""Sums of regressions: scores, information, and squares of scores, which a sandwich A⁻¹ B A⁻¹ has between its curvatures.

The score of a record is s = Σ_rows r x. Its rows may depend on each other (visits of one patient do), and a weight w makes the
variance of its share, w² s sᵀ, differ from the curvature. Block "squares" sums the diagonal of c w² s sᵀ by coefficient, with a
released number c: scores and information come divided by it.

Here w is the weight of the record in the sum: u = min(1, C/n) for a record of norm n, or less in a fit with weights of records.
So a record adds w v, where v has c w s² in this block, and n must bound the norm of v. It does: c w ‖s²‖ is at most c ‖s‖²,
since w ≤ 1, and at most c C ‖s‖, since w ‖s‖ ≤ C. The first grows with the square of a person's scores: only where the norm of
the whole record is known, it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from vips.core.exact.rowwise import PIECE
from vips.core.mechanism.lattice import Lattice
from vips.core.sums.blocks import Block
from vips.core.sums.forms import Form, Joint, sums_of_runs
from vips.core.sums.outer import Outer, Quadratic, Rows, RowSum, times

__all__ = ["SQUARES_SCALE", "RegressionSums", "SquaresOfShares"]

# Scale of the squared scores over the clip norm: beside a score of that norm, theirs is a third of c times as much.
SQUARES_SCALE = 3.0
_UNSCALED = Block(())


class SquaresOfShares(Form):
    """c (w s)², by entry, of what each record adds to an outer sum, w s.

    Parameters
    ----------
    name : str
    scores : Outer
    unit : float
        c.
    largest : float
        The longest w s: the clip norm, times the scale of the scores' block.
    """

    def __init__(self, name: str, scores: Outer, unit: float, largest: float) -> None:
        self.names, self._scores, self._unit, self._largest = (name,), scores, unit, largest
        self.starts: np.ndarray | None = None  # where the rows of each record start, if it may have several
        self._carried: list[Any] | None = None  # of a record in pieces: in the last piece its share, before that none

    def lengths(self, blocks: Mapping[str, Block]) -> np.ndarray:
        return self.norms_at(self.of_scores(), blocks, is_whole=True)

    def of_scores(self) -> np.ndarray:
        """‖s‖ of each row for each label, which adds up over the rows of a record."""
        return self._scores.lengths(dict.fromkeys(self._scores.names, _UNSCALED))

    def norms_at(self, scores: np.ndarray, blocks: Mapping[str, Block], is_whole: bool) -> np.ndarray:
        """Norms of squares, from norms of scores; norms of a record's parts add up to a bound."""
        bound = self._largest * scores
        squares = np.minimum(bound, np.square(scores)) if is_whole else bound
        return squares * (self._unit / blocks[self.names[0]].scale)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        if self.starts is None and self._carried is None:
            rows, shares = self._scores.shares(weights)
            return self._shaped(list(times(_squared(rows).T, np.square(shares)).T))
        return self._shaped([_sum_of_squares(share) for share in self._shares(weights)])

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        units = self._unit / (lattice.unit * blocks[self.names[0]].scale)
        rounded = [_sum_of_squares(share, lambda squares: np.rint(units * squares)) for share in self._shares(weights)]
        return {self.names[0]: np.array(rounded).reshape(blocks[self.names[0]].shape).astype(np.int64)}

    def carry(self, carried: Any, weights: np.ndarray, is_last: bool) -> Any:
        self._carried = None
        total = self._shares(weights, np.array([0, len(weights)]))
        if carried is not None:
            total = [before + share for before, share in zip(carried, total, strict=True)]
        self._carried = total if is_last else [share[:0] for share in total]
        return total

    def _shares(self, weights: np.ndarray, starts: np.ndarray | None = None) -> list[Any]:
        """w s of the records, of shape (n_records, d), for each factor; SciPy adds a record's rows in order."""
        if self._carried is not None:
            return self._carried
        starts = self.starts if starts is None else starts
        starts = np.arange(len(weights) + 1) if starts is None else starts
        rows, shares = self._scores.shares(weights)
        indptr, columns = np.searchsorted(np.flatnonzero(weights), starts), np.arange(len(shares))
        shape = len(starts) - 1, len(shares)
        return [sp.csr_array((share, columns, indptr), shape=shape) @ rows for share in shares.T]

    def _shaped(self, squares: list[np.ndarray]) -> dict[str, np.ndarray]:
        (total,) = self._scores.shaped(self._unit * np.array(squares)).values()
        return {self.names[0]: total}


class RegressionSums(Joint):
    """r_j x and ω_j x xᵀ of each record, and perhaps more; with ``clip_norm``, squares of records' scores, too.

    Parameters
    ----------
    rows : Rows of shape (n_records, d)
        x.
    residual, precision : Rows of shape (n_records, n_outputs)
        r and ω.
    diagonal : bool
        Whether only the diagonal of ω x xᵀ is summed; then there are two more blocks, ω x and ω.
    bends : bool
        Whether block "bends" sums r x xᵀ.
    tilts : ndarray of shape (n_records,), optional
        h between 0 and 1, which no label changes, if block "tilt" sums h r x.
    spread : (float, float), optional
        A factor and a limit, for block "spread", ‖x‖ (r_j², ω_j), r and ω times this factor, r within this limit: the ratio of
        its sums is the variance of residuals. A clip divides by about ‖x‖, so long rows have their part.
    clip_norm : float, optional
        C, if squares are summed; then the scale of block "linear" is 1.
    unit : float
        c.
    """

    def __init__(
        self, rows: Rows, residual: Rows, precision: Rows, *, diagonal: bool = False, bends: bool = False,
        tilts: np.ndarray | None = None, spread: tuple[float, float] | None = None, clip_norm: float | None = None,
        unit: float = 1.0,
    ) -> None:  # fmt: skip
        self.rows, self.residual, self.precision = rows.values, residual.values, precision.values
        if self.residual.shape[1] == 1:  # blocks of one output have no axis of outputs
            residual, precision = (factors.mapped(lambda values: values[:, 0]) for factors in (residual, precision))
        scores = Outer("linear", residual, rows)
        forms: list[Form] = [scores]
        if diagonal:
            forms += [Outer("precision", precision, _squared(self.rows)), Outer("cross", precision, rows)]
            forms += [RowSum("weight", precision)]
        else:
            forms += [Quadratic("precision", rows, factors=precision)]
        if bends:
            forms += [Quadratic("bends", rows, factors=residual)]
        if tilts is not None:
            forms += [Outer("tilt", residual.mapped(lambda r: (tilts * r.T).T), rows)]
        if spread is not None:
            forms += [RowSum("spread", _spread(rows.norms[0], residual, precision, *spread))]
        self._squares = None if clip_norm is None else SquaresOfShares("squares", scores, unit, clip_norm)
        super().__init__(*forms, *([] if self._squares is None else [self._squares]))

    def run_norms(self, norms: np.ndarray, blocks: Mapping[str, Block], starts: np.ndarray) -> np.ndarray:
        if self._squares is not None:
            self._squares.starts = starts
        used, is_long = norms > 0.0, np.diff(starts) > PIECE
        whole = self._joint(
            [sums_of_runs(np.where(used, part.max(axis=0), 0.0), starts) for part in self._parts(blocks)], blocks, True
        )
        return np.where(is_long, self._sums_over_runs(norms, blocks, starts), whole) if is_long.any() else whole

    def piece_norm(self, norms: np.ndarray, blocks: Mapping[str, Block]) -> float:
        return float(self._sums_over_runs(norms, blocks, np.array([0, len(norms)]))[0])

    def carry(self, carried: Any, weights: np.ndarray, is_last: bool) -> Any:
        return None if self._squares is None else self._squares.carry(carried, weights, is_last)

    def _sums_over_runs(self, norms: np.ndarray, blocks: Mapping[str, Block], starts: np.ndarray) -> np.ndarray:
        """Norms that add up where a record has more rows than these."""
        of_rows = self._joint(self._parts(blocks), blocks, False).max(axis=0)
        return sums_of_runs(np.where(norms > 0.0, of_rows, 0.0), starts)

    def _parts(self, blocks: Mapping[str, Block]) -> list[np.ndarray]:
        """Norms of the rows by form and label, which add up over the rows of a record: of squares, norms of scores."""
        return [form.of_scores() if form is self._squares else form.lengths(blocks) for form in self.forms]

    def _joint(self, parts: list[np.ndarray], blocks: Mapping[str, Block], is_whole: bool) -> np.ndarray:
        squares = [] if self._squares is None else [self._squares.norms_at(parts.pop(), blocks, is_whole)]
        return reduce(np.hypot, [*parts, *squares])


def _spread(lengths: np.ndarray, residual: Rows, precision: Rows, factor: float, limit: float) -> Rows:
    def pairs(r: np.ndarray, w: np.ndarray) -> np.ndarray:
        return (lengths * np.stack([np.square(np.clip(factor * r, -limit, limit)), factor * w], axis=-1).T).T

    return residual.mapped(pairs, precision)


def _squared(rows: Any) -> Any:
    return rows.power(2) if sp.issparse(rows) else np.square(rows)


def _sum_of_squares(rows: Any, rounded: Callable = np.asarray) -> np.ndarray:
    if not sp.issparse(rows):
        return rounded(np.square(rows)).sum(axis=0)
    return np.bincount(rows.indices, rounded(np.square(rows.data)), rows.shape[1])
