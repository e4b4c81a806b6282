"""Sums of regressions: scores, information, and the variance of the records' scores.

The variance is what a sandwich A⁻¹ B A⁻¹ has between its curvatures.

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

from vips._compute.blas import gram, mirrored, product
from vips._compute.rowwise import row_norms
from vips._compute.threads import run_ranges
from vips.privacy import Lattice
from vips.privacy.mechanism.clipping import clip_weights
from vips.sums import kernels
from vips.sums.blocks import Block
from vips.sums.forms import RecordStatistics

__all__ = [
    "VARIANCE_SCALE",
    "Lengths",
    "PartedStatistics",
    "RegressionSums",
    "ScoredStatistics",
    "Scores",
    "outer_sums",
]

# Least number of stored entries for which a second thread saves time.
_LEAST_WORK = 200_000
# Norms are float64 sums of positive terms; a row that was scaled to norm F has that norm up to a few roundings.
_ROUNDING = 1.0 + 4e-9

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
        factors[record] *= clip_weights(bounds, self._clip_norm)[record]
        return _squares((self._sums_of_runs(j, present, starts) for j in range(self._n_outputs())), factors, rounded)

    def _squares_of_rows(self, weights: np.ndarray, bounds: np.ndarray) -> dict[str, np.ndarray]:
        """The same of records of one row each: Σ_n f_n r_nj² x_n²."""
        factors = weights * clip_weights(bounds, self._clip_norm)
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


@dataclass(frozen=True)
class Lengths:
    """What a record's norm needs to know of its row x.

    Parameters
    ----------
    of_row : ndarray of shape (n_records,)
        ‖x‖.
    of_square : ndarray of shape (n_records,)
        ‖x xᵀ‖ = ‖x‖², or the norm √Σ_i x_i⁴ of its diagonal if only that is summed.
    """

    of_row: np.ndarray
    of_square: np.ndarray

    def norms(self, residual: np.ndarray, precision: np.ndarray, scale: Mapping[str, float]) -> np.ndarray:
        """Joint norm of records with these r and ω, both (n_records, n_outputs), over the blocks in ``scale``."""
        score, length = self.of_row * row_norms(residual), row_norms(precision)
        norms = np.hypot(score / scale["linear"], self.of_square * length / scale["precision"])
        if "variance" in scale:
            norms = np.hypot(norms, score / (scale["linear"] * VARIANCE_SCALE))
        if "cross" in scale:
            norms = np.hypot(norms, np.hypot(self.of_row / scale["cross"], 1.0 / scale["weight"]) * length)
        return norms

    def largest_norms(self, factors: Iterable[tuple[np.ndarray, np.ndarray]], scale: Mapping[str, float]) -> np.ndarray:
        """The largest of these norms over the pairs r and ω."""
        norms = np.zeros(len(self.of_row))
        for residual, precision in factors:
            norms = np.maximum(norms, self.norms(residual, precision, scale))
        return norms


class RegressionSums(ScoredStatistics):
    """r_j x and ω_j x xᵀ of each record, never formed per record.

    Squared norm of a record: ‖x‖² Σ_j r_j² + ‖x xᵀ‖² Σ_j ω_j², where ‖x xᵀ‖ is ‖x‖², or √Σ_i x_i⁴ if only the diagonal of
    ω x xᵀ is summed. Then there are two more blocks, ω x and ω, which add (‖x‖² + 1) Σ_j ω_j².

    Parameters
    ----------
    rows : array or CSR of shape (n_records, d)
        x.
    lengths : ndarray of shape (n_records,)
        ‖x‖.
    residual, precision : ndarray of shape (n_records, n_outputs)
        r and ω.
    diagonal : bool
    largest : callable, optional
        The pairs r and ω over which the norm of a record is the largest. None: norms are of the record's own.
    clip_norm, blocks : optional
        See :class:`ScoredStatistics`.
    """

    def __init__(
        self, rows, lengths, residual, precision, diagonal: bool, largest=None, clip_norm=None, blocks=None
    ) -> None:
        super().__init__(clip_norm, blocks)
        self._rows, self._lengths, self._diagonal, self._largest = rows, lengths, diagonal, largest
        self.residual, self.precision = residual, precision

    def rows_and_residual(self) -> tuple[np.ndarray, np.ndarray]:
        """x_n, and r_nj."""
        return self._rows, self.residual

    def _scores(self) -> list[Scores]:
        return [Scores(np.arange(self._rows.shape[0]), self._rows, self.residual)]

    def _row_norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        scale = {name: block.scale for name, block in blocks.items()}
        lengths = Lengths(self._lengths, self._outer_norms())
        if self._largest is None:
            return lengths.norms(self.residual, self.precision, scale) * _ROUNDING
        return lengths.largest_norms(self._largest(), scale) * _ROUNDING

    def _outer_norms(self) -> np.ndarray:
        """‖x xᵀ‖, or the norm of its diagonal if only the diagonal is summed."""
        if not self._diagonal:
            return np.square(self._lengths)
        if not sp.issparse(self._rows):
            return row_norms(np.square(self._rows))
        sums = np.empty(self._rows.shape[0])
        kernels.row_sums(self._rows.indptr, np.square(np.square(self._rows.data)), sums)
        return np.sqrt(sums)

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        squares = self._squared_scores(weights)
        rows, weights, residual, precision = self._present(weights)
        linear = _times(rows.T, weights[:, None] * residual).T
        weighted = weights[:, None] * precision
        if self._diagonal:
            sums = {"precision": _times((rows * rows).T, weighted).T, "cross": _times(rows.T, weighted).T}
            return self._shaped({"linear": linear, "weight": weighted.sum(axis=0)} | sums) | squares
        return self._shaped({"linear": linear, "precision": outer_sums(rows, weighted)}) | squares

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """As in the base class, but faster for CSR rows, whose E-step is a function of each record alone, to the last bit."""
        if not sp.issparse(self._rows):
            return super().rounded_sum(weights, blocks, lattice) | self._rounded_squares(weights, blocks, lattice)
        squares = self._rounded_squares(weights, blocks, lattice)
        rows, weights, residual, precision = self._present(weights)
        indptr, columns, n_columns = rows.indptr, rows.indices, rows.shape[1]
        record = np.repeat(np.arange(rows.shape[0]), np.diff(indptr))
        unit = {name: lattice.unit * block.scale for name, block in blocks.items()}

        def rounded(values: np.ndarray, factors: np.ndarray, name: str) -> np.ndarray:
            shares = [np.rint(values * (weights * factor)[record] / unit[name]) for factor in factors.T]
            return np.array([np.bincount(columns, share, n_columns) for share in shares]).astype(np.int64)

        linear = rounded(rows.data, residual, "linear")
        if self._diagonal:
            second = rounded(np.square(rows.data), precision, "precision")
            cross = rounded(rows.data, precision, "cross")
            weight = np.rint(weights[:, None] * precision / unit["weight"]).sum(axis=0).astype(np.int64)
            sums = {"linear": linear, "precision": second, "cross": cross, "weight": weight}
            return self._shaped(sums) | squares
        outer = [_outer_sum(rows, weights * column, unit["precision"]).astype(np.int64) for column in precision.T]
        return self._shaped({"linear": linear, "precision": np.stack(outer)}) | squares

    def _shaped(self, sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Sums of one output without the axis of outputs."""
        return {name: value[0] if self.residual.shape[1] == 1 else value for name, value in sums.items()}

    def _present(self, weights: np.ndarray):
        present = np.flatnonzero(weights)
        if len(present) == len(weights):
            return self._rows, weights, self.residual, self.precision
        return self._rows[present], weights[present], self.residual[present], self.precision[present]


class PartedStatistics(ScoredStatistics):
    """Statistics of two kinds of rows: where ``second`` is True, those of ``parts[1]``, else those of ``parts[0]``."""

    def __init__(self, second: np.ndarray, parts: Sequence[RegressionSums], clip_norm=None, blocks=None) -> None:
        super().__init__(clip_norm, blocks)
        self._parts = [(np.flatnonzero(~second), parts[0]), (np.flatnonzero(second), parts[1])]
        self._n_rows = len(second)

    def _row_norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        return self._scattered([part.norms(blocks) for _, part in self._parts])

    def _scores(self) -> list[Scores]:
        return [Scores(places, *part.rows_and_residual()) for places, part in self._parts]

    def bounds(self) -> np.ndarray:
        """Bounds of the records, from their parts."""
        return self._scattered([part.bounds() for _, part in self._parts])

    def _scattered(self, values: list[np.ndarray]) -> np.ndarray:
        result = np.empty(self._n_rows)
        for (places, _), value in zip(self._parts, values, strict=True):
            result[places] = value
        return result

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        first, second = (part.weighted_sum(weights[places]) for places, part in self._parts)
        return {name: first[name] + second[name] for name in first} | self._squared_scores(weights)

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        of_parts = {name: block for name, block in blocks.items() if name != "variance"}
        first, second = (part.rounded_sum(weights[places], of_parts, lattice) for places, part in self._parts)
        return {name: first[name] + second[name] for name in first} | self._rounded_squares(weights, blocks, lattice)


def outer_sums(rows, weights: np.ndarray) -> np.ndarray:
    """Σ_n w_nj x_n x_nᵀ, shape (n_outputs, d, d), for weights ≥ 0 of shape (n_records, n_outputs)."""
    if sp.issparse(rows):
        return np.stack([_outer_sum(rows, weights_of_output) for weights_of_output in weights.T])
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


def _times(matrix, other: np.ndarray) -> np.ndarray:
    return matrix @ other if sp.issparse(matrix) else product(matrix, other)
