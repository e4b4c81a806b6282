"""Sums of regressions: scores, information, and the squares of the records' scores.

The squares are what a sandwich A⁻¹ B A⁻¹ has between its curvatures.

The score of a record is s = Σ_rows r x. Its rows may depend on each other (visits of one patient do), and a weight w makes the
variance of its share, w² s sᵀ, differ from the curvature. Block "squares" sums the diagonal of c w² s sᵀ by coefficient, with a
released number c: scores and information come divided by it.

The engine multiplies a record's statistic by w. So the statistic is c u (s_j)², where u = min(1, C/n) is the weight that a
record of norm n gets; in a fit with weights of records w may be smaller than u. Its norm is at most c ‖s‖², since u ≤ 1, and at
most c C ‖s‖, since u ‖s‖ ≤ C in units of the block of scores. The first grows with the square of a person's scores: only where
the norm of the whole record is known, it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from vips.core.exact.blas import gram, mirrored, product
from vips.core.exact.rowwise import PIECE, row_norms
from vips.core.exact.threads import run_ranges
from vips.core.mechanism.clipping import clip_weights
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import kernels
from vips.core.sums.blocks import Block
from vips.core.sums.forms import RecordStatistics

__all__ = ["SQUARES_SCALE", "RegressionSums", "joint_norm", "outer_sums"]

# Least number of stored entries for which a second thread saves time.
_LEAST_WORK = 200_000
# Norms are float64 sums of positive terms; a row that was scaled to norm F has that norm up to a few roundings.
_ROUNDING = 1.0 + 4e-9

# Scale of the squared scores over the clip norm: beside a score of that norm, theirs is a third of c times as much.
SQUARES_SCALE = 3.0


def joint_norm(
    score: np.ndarray, others: np.ndarray, scale: float, scale_of_squares: float | None, clip_norm: float | None,
    is_whole: bool,
) -> np.ndarray:  # fmt: skip
    """Joint norm of records whose score has this norm, and whose blocks without scores have that.

    Parameters
    ----------
    score, others : ndarray of shape (n_records,)
    scale : float
        Of the block of scores.
    scale_of_squares : float or None
        Of the block of squares, over c; None without one.
    clip_norm : float
    is_whole : bool or ndarray of shape (n_records,)
        Whether ``score`` is that of the whole record: c ‖s‖² is then a bound of the norm of squares, too.
    """
    linear = score / scale
    if scale_of_squares is None or clip_norm is None:
        return np.hypot(linear, others)
    bound = clip_norm * scale * score / scale_of_squares
    squares = np.where(is_whole, np.minimum(bound, np.square(score) / scale_of_squares), bound)
    return np.hypot(np.hypot(linear, squares), others)


class RegressionSums(RecordStatistics):
    """r_j x and ω_j x xᵀ of each record, never formed per record; with ``clip_norm``, squares of records' scores, too.

    Squared norm of a record without squares: ‖x‖² Σ_j r_j² + ‖x xᵀ‖² Σ_j ω_j², where ‖x xᵀ‖ is ‖x‖², or √Σ_i x_i⁴ if only the
    diagonal of ω x xᵀ is summed. Then there are two more blocks, ω x and ω, which add (‖x‖² + 1) Σ_j ω_j².

    Parameters
    ----------
    rows : array or CSR of shape (n_records, d)
        x.
    lengths : ndarray of shape (n_records,)
        ‖x‖.
    residual, precision : ndarray of shape (n_records, n_outputs)
        r and ω.
    diagonal : bool
    bends : bool
        Whether block "bends" sums r x xᵀ.
    tilts : ndarray of shape (n_records,), optional
        h between 0 and 1, which no label changes, if block "tilt" sums h r x.
    largest : callable, optional
        The pairs r and ω over which the norm of a record is the largest. None: norms are of the record's own.
    clip_norm : float, optional
        C, if squares are summed.
    unit : float
        c.
    """

    def __init__(
        self, rows: Any, lengths: np.ndarray, residual: np.ndarray, precision: np.ndarray, *, diagonal: bool = False,
        bends: bool = False, tilts: np.ndarray | None = None,
        largest: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]] | None = None,
        clip_norm: float | None = None, unit: float = 1.0,
    ) -> None:  # fmt: skip
        self.rows, self._lengths, self._diagonal, self._largest = rows, lengths, diagonal, largest
        self._bends, self._tilts, self._of_spread = bends, tilts, (0.0, 0.0)
        self.residual, self.precision, self._clip_norm, self._unit = residual, precision, clip_norm, unit
        self._bounds: Any = None  # norms of the records
        self._starts: np.ndarray | None = None  # where their rows start
        # of a record in pieces: the weight, and all its scores in the last piece
        self._piece: tuple[float, list[Any] | None] | None = None

    def with_spread(self, factor: float, limit: float) -> RegressionSums:
        """With block "spread", ‖x‖ (r_j², ω_j) of each row, r and ω times this factor, r within this limit: the ratio of its
        sums is the variance of residuals, by rows and by weights. A clip divides by about ‖x‖, so long rows have their part."""
        self._of_spread = factor, limit
        return self

    # -- norms --------------------------------------------------------------------------------------------------

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        parts: Any = 0.0
        norms: Any = 0.0
        additive: Any = 0.0
        for residual, precision in self._largest() if self._largest else [(self.residual, self.precision)]:
            of_pair = self._parts_of_norms(residual, precision, blocks)
            norms = np.maximum(norms, self._joint(of_pair, blocks, True))
            additive = np.maximum(additive, self._joint(of_pair, blocks, False))
            parts = np.maximum(parts, of_pair)
        if self._largest:  # the sum reads the record's own r and ω: without numbers it has no norm
            norms = np.where(np.isfinite(self.residual + self.precision).all(axis=1), norms, np.nan)
        self._starts, self._parts, self._bounds = None, np.vstack([parts, additive * _ROUNDING]), norms * _ROUNDING
        return self._bounds

    def run_norms(self, norms: np.ndarray, blocks: Mapping[str, Block], starts: np.ndarray) -> np.ndarray:
        *parts, additive = self._sums_of_parts(norms > 0.0, starts)
        whole = self._joint(np.stack(parts), blocks, True) * _ROUNDING
        self._starts, self._bounds = starts, np.where(np.diff(starts) <= PIECE, whole, additive * _ROUNDING)
        return self._bounds

    def piece_norm(self, norms: np.ndarray, blocks: Mapping[str, Block]) -> float:
        return float(self._sums_of_parts(norms > 0.0, np.array([0, len(norms)]))[2, 0])

    def _joint(self, parts: np.ndarray, blocks: Mapping[str, Block], is_whole: bool) -> np.ndarray:
        of_squares = None if self._clip_norm is None else blocks["squares"].scale / self._unit
        score, others = parts
        return joint_norm(score, others, blocks["linear"].scale, of_squares, self._clip_norm, is_whole)

    def _parts_of_norms(self, residual: np.ndarray, precision: np.ndarray, blocks: Mapping[str, Block]) -> np.ndarray:
        """‖s‖, and the joint norm of the blocks without scores, of rows with these r and ω; shape (2, n_records)."""
        length = row_norms(precision)
        others = self._outer_norms() * length / blocks["precision"].scale
        if "bends" in blocks:
            others = np.hypot(others, self._outer_norms() * row_norms(residual) / blocks["bends"].scale)
        if self._tilts is not None:
            others = np.hypot(others, self._tilts * self._lengths * row_norms(residual) / blocks["tilt"].scale)
        if "spread" in blocks:
            of_row = np.linalg.norm(self._pairs(residual, precision), axis=(1, 2)) * self._lengths
            others = np.hypot(others, of_row / blocks["spread"].scale)
        if self._diagonal:
            of_row = self._lengths / blocks["cross"].scale
            others = np.hypot(others, np.hypot(of_row, 1.0 / blocks["weight"].scale) * length)
        return np.stack([self._lengths * row_norms(residual), others])

    def _sums_of_parts(self, used: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Sums over the used rows of each run of the largest parts of their norms, and of norms that add up where a record has
        more rows than these; shape (3, n_runs)."""
        parts, filled = np.where(used, self._parts[:, : len(used)], 0.0), np.diff(starts) > 0
        sums = np.zeros((3, len(starts) - 1))
        if filled.any():  # `reduceat` gives an empty run the entry behind it
            sums[:, filled] = np.add.reduceat(parts[:, : starts[-1]], starts[:-1][filled], axis=1)
        return sums

    def _outer_norms(self) -> np.ndarray:
        """‖x xᵀ‖, or the norm of its diagonal if only the diagonal is summed."""
        if not self._diagonal:
            return np.square(self._lengths)
        if not sp.issparse(self.rows):
            return row_norms(np.square(self.rows))
        sums = np.empty(self.rows.shape[0])
        kernels.row_sums(self.rows.indptr, np.square(np.square(self.rows.data)), sums)
        return np.sqrt(sums)

    # -- sums ---------------------------------------------------------------------------------------------------

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        squares = self._squared_scores(weights) | self._spread(weights)
        rows, weights, residual, precision, tilts = self._present(weights)
        scores, weighted = weights[:, None] * residual, weights[:, None] * precision
        sums = {"linear": _times(rows.T, scores).T}
        if tilts is not None:
            sums["tilt"] = _times(rows.T, tilts[:, None] * scores).T
        if self._diagonal:
            sums |= {"precision": _times((rows * rows).T, weighted).T, "cross": _times(rows.T, weighted).T}
            return self._shaped(sums | {"weight": weighted.sum(axis=0)} | squares)
        sums["precision"] = outer_sums(rows, weighted)
        if self._bends:
            sums["bends"] = outer_sums(rows, scores, signed=True)
        return self._shaped(sums | squares)

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """As in the base class, but faster for CSR rows, whose E-step is a function of each record alone, to the last bit."""
        unit = {name: lattice.unit * block.scale for name, block in blocks.items()}
        squares = self._squared_scores(weights, lambda shares: np.rint(shares / unit["squares"]))
        squares |= self._spread(weights, lambda shares: np.rint(shares / unit["spread"]))
        squares = {name: value.astype(np.int64) for name, value in squares.items()}
        if not sp.issparse(self.rows):
            return super().rounded_sum(weights, blocks, lattice) | self._shaped(squares)
        rows, weights, residual, precision, tilts = self._present(weights)
        indptr, columns, n_columns = rows.indptr, rows.indices, rows.shape[1]
        record = np.repeat(np.arange(rows.shape[0]), np.diff(indptr))

        def rounded(values: np.ndarray, factors: np.ndarray, name: str) -> np.ndarray:
            shares = [np.rint(values * (weights * factor)[record] / unit[name]) for factor in factors.T]
            return np.array([np.bincount(columns, share, n_columns) for share in shares]).astype(np.int64)

        total = {"linear": rounded(rows.data, residual, "linear")}
        if tilts is not None:
            total["tilt"] = rounded(rows.data, tilts[:, None] * residual, "tilt")
        if self._diagonal:
            second = rounded(np.square(rows.data), precision, "precision")
            cross = rounded(rows.data, precision, "cross")
            weight = np.rint(weights[:, None] * precision / unit["weight"]).sum(axis=0).astype(np.int64)
            return self._shaped(total | {"precision": second, "cross": cross, "weight": weight} | squares)
        factors = {"precision": precision} | ({"bends": residual} if self._bends else {})
        for name, values in factors.items():
            shares = [_outer_sum(rows, weights * column, unit[name]) for column in values.T]
            total[name] = np.stack(shares).astype(np.int64)
        return self._shaped(total | squares)

    def carry(self, carried: Any, used: np.ndarray, weight: float, is_last: bool) -> Any:
        if self._clip_norm is None:
            return None
        new = self._scores_of_runs(used, np.array([0, len(used)]))
        total = new if carried is None else [before + other for before, other in zip(carried, new, strict=True)]
        self._piece = weight, total if is_last else None
        return total

    def _squared_scores(self, weights: np.ndarray, rounded: Callable | None = None) -> dict[str, np.ndarray]:
        """Block "squares" of records of these weights, shape (n_outputs, d); ``rounded`` rounds the share of each record."""
        if self._clip_norm is None:
            return {}
        if self._piece is not None:
            weight, scores = self._piece
            if scores is None:  # counted with the last piece
                return {"squares": np.zeros((self.residual.shape[1], self.rows.shape[1]))}
            return _squares(scores, np.array([self._unit * weight * weight]), rounded)
        clipped = clip_weights(self._bounds, self._clip_norm)
        if self._starts is None and rounded is None:
            return self._squares_of_rows(self._unit * weights * clipped)
        starts = np.arange(len(weights) + 1) if self._starts is None else self._starts
        present = weights[: starts[-1]] > 0.0
        record = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[present]
        factors = np.zeros(len(starts) - 1)
        factors[record] = weights[: starts[-1]][present]
        if self.sample_weights is not None:  # the scores have them
            factors[record] /= self.sample_weights[: starts[-1]][present]
        factors[record] *= self._unit * clipped[record]
        return _squares(self._scores_of_runs(present, starts), factors, rounded)

    def _spread(self, weights: np.ndarray, rounded: Callable | None = None) -> dict[str, np.ndarray]:
        """Block "spread" of rows of these weights, shape (n_outputs, 2); ``rounded`` rounds the share of each row."""
        if not self._of_spread[0]:
            return {}
        present = np.flatnonzero(weights)
        pairs = self._pairs(self.residual[present], self.precision[present])
        shares = (weights * self._lengths)[present, None, None] * pairs
        return {"spread": (shares if rounded is None else rounded(shares)).sum(axis=0)}

    def _pairs(self, residual: np.ndarray, precision: np.ndarray) -> np.ndarray:
        factor, limit = self._of_spread
        return np.stack([np.square(np.clip(factor * residual, -limit, limit)), factor * precision], axis=-1)

    def _squares_of_rows(self, factors: np.ndarray) -> dict[str, np.ndarray]:
        """The same of records of one row each: Σ_n f_n r_nj² x_n²."""
        if self.sample_weights is not None:  # the scores have them, and so have the records' weights
            factors = factors * self.sample_weights
        rows, factors, residual, *_ = self._present(factors)
        if sp.issparse(rows):
            rows = sp.csr_array((np.square(rows.data), rows.indices, rows.indptr), shape=rows.shape)
        else:
            rows = np.square(rows)
        return {"squares": _times(rows.T, factors[:, None] * np.square(residual)).T}

    def _scores_of_runs(self, present: np.ndarray, starts: np.ndarray) -> list:
        """Scores of the records by output, Σ r x over their present rows, by the rows' weights, of shape (n_records, d); SciPy
        adds a record's rows in order."""
        rows = np.flatnonzero(present)
        indptr, scores = np.concatenate([[0], np.cumsum(present)])[starts], []
        for residual in self.residual[rows].T:
            if self.sample_weights is not None:
                residual = residual * self.sample_weights[rows]
            runs = sp.csr_array((residual, rows, indptr), shape=(len(starts) - 1, self.rows.shape[0]))
            scores.append(runs @ self.rows)
        return scores

    def _shaped(self, sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Sums of one output without the axis of outputs."""
        return {name: value[0] if self.residual.shape[1] == 1 else value for name, value in sums.items()}

    def _present(self, weights: np.ndarray) -> Any:
        present = np.flatnonzero(weights)
        arrays = self.rows, weights, self.residual, self.precision, self._tilts
        return arrays if len(present) == len(weights) else [None if a is None else a[present] for a in arrays]


def _squares(scores: Iterable, factors: np.ndarray, rounded: Callable | None) -> dict[str, np.ndarray]:
    """Block "squares": Σ_i f_i s_i², for scores (n_records, d) of each output."""
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
    return {"squares": np.array(total)}


def outer_sums(rows: Any, weights: np.ndarray, signed: bool = False) -> np.ndarray:
    """Σ_n w_nj x_n x_nᵀ, shape (n_outputs, d, d), for weights of shape (n_records, n_outputs): ≥ 0, unless they are signed."""
    if sp.issparse(rows):
        return np.stack([_outer_sum(rows, weights_of_output) for weights_of_output in weights.T])
    if signed:
        return np.stack([product(rows.T, rows * weights_of_output[:, None]) for weights_of_output in weights.T])
    return np.stack([gram(rows * np.sqrt(weights_of_output)[:, None]) for weights_of_output in weights.T])


def _outer_sum(rows: sp.csr_array, weights: np.ndarray, unit: float | None = None) -> np.ndarray:
    """Σ_n w_n x_n x_nᵀ; with a ``unit``, each record's share in whole units: sums far below 2⁵³ are exact."""
    d = rows.shape[1]
    total = np.zeros((d, d))
    arguments = (rows.indptr, rows.indices, rows.data, np.ascontiguousarray(weights))

    def add(first: int, last: int) -> None:
        kernels.add_outer(*arguments, unit, first, last, total)

    work = np.bincount(rows.indices, minlength=d)
    run_ranges(add, np.concatenate([[0], np.cumsum(work)]), parts_per_thread=2, least_work=_LEAST_WORK)
    return mirrored(total)


def _times(matrix: Any, other: np.ndarray) -> np.ndarray:
    return matrix @ other if sp.issparse(matrix) else product(matrix, other)
