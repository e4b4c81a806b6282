"""Expected statistics of regression records: r_nj x_n and ω_nj x_n x_nᵀ, never formed per record.

===================  =================================================================================
symbol               meaning
===================  =================================================================================
x_n (d,)             design row: features, scaled into the public ball, and the intercept's constant
ψ_nj, c_nj           x_nᵀ μ_j + o_n and √E (x_nᵀ w_j + o_n)²; o_n is the offset of the likelihood, 0 but for counts
b_nj, κ_nj           Pólya-Gamma shape and linear coefficient of the likelihood: e^(κψ) E[e^(-ωψ²/2)], ω ~ PG(b, 0)
ω_nj                 E[ω | b, c] = b tanh(c/2) / (2c)
r_nj                 κ - ω ψ, the residual (κ - ω o with statistics as in the paper)
===================  =================================================================================

Squared norm of a record: ‖x‖² Σ_j r_j² + ‖x xᵀ‖² Σ_j ω_j², where ‖x xᵀ‖ is ‖x‖², or √Σ_i x_i⁴ for a diagonal precision. With a
diagonal precision there are two more blocks, ω x and ω, which add (‖x‖² + 1) Σ_j ω_j².
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from vips._compute.blas import gram, mirrored, product
from vips._compute.rowwise import row_norms, rowwise_product, rowwise_squares
from vips._compute.threads import run_ranges
from vips.expfam import polya_gamma_mean
from vips.models.regression import kernels
from vips.models.regression.norms import Lengths
from vips.models.regression.scores import ScoredStatistics, Scores
from vips.privacy import Lattice
from vips.sums import Block

__all__ = ["PartedStatistics", "RegressionStatistics", "better_as_csr", "count_entries", "design_rows", "outer_sums"]

# A row of an array with a smaller share of non-zero entries is handled as CSR. This is decided row by row: the two ways round
# differently, and the rounding of a row must not depend on other rows.
_SPARSE_BELOW = 0.25
# Least number of stored entries for which a second thread saves time.
_LEAST_WORK = 200_000
# Norms are float64 sums of positive terms; a row that was scaled to norm F has that norm up to a few roundings.
_ROUNDING = 1.0 + 4e-9


def design_rows(X, max_norm: float, intercept: float, n_stored: np.ndarray | None = None):
    """Rows scaled into the ball of radius ``max_norm``, with a constant column if ``intercept`` is not 0.

    Parameters
    ----------
    X : array or CSR of shape (n_records, n_features)
    max_norm, intercept : float
        Public.
    n_stored : ndarray of shape (n_records,), optional
        Number of non-zero entries of each row of an array, from :func:`count_entries`: the result is then CSR.

    Returns
    -------
    rows : float64 array, or CSR with sorted, unrepeated columns, of shape (n_records, n_features + 1 or n_features)
        A row depends on that row of X alone. A row whose norm overflows is NaN.
    lengths : ndarray of shape (n_records,)
        Norms of ``rows``, to rounding.
    """
    if sp.issparse(X) or n_stored is not None:
        return _sparse_design(X, n_stored, max_norm, intercept)
    n_records, n_features = X.shape
    rows, X = np.empty((n_records, n_features + (intercept != 0.0))), np.ascontiguousarray(X, np.float64)
    kernels.copy_beside(X, intercept, rows)
    norms = row_norms(X)
    long = np.flatnonzero(~(norms <= max_norm))
    if len(long):
        finite = np.isfinite(norms[long])
        rows[long, :n_features] *= np.where(finite, max_norm / norms[long], np.nan)[:, None]
        norms[long] = np.where(finite, max_norm, np.nan)
    return rows, np.hypot(norms, intercept)


def count_entries(X: np.ndarray) -> np.ndarray:
    """Number of non-zero entries of each row of an array."""
    counts = np.empty(len(X), np.int64)
    kernels.count_stored(X, counts)
    return counts


def better_as_csr(n_stored: np.ndarray, n_features: int) -> np.ndarray:
    """Whether each row is handled faster as CSR."""
    return n_stored < _SPARSE_BELOW * n_features


def _sparse_design(X, n_stored, max_norm: float, intercept: float) -> tuple[sp.csr_array, np.ndarray]:
    n_records, n_features = X.shape
    if sp.issparse(X):
        X = sp.csr_array(X)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        n_stored = np.diff(X.indptr)
    constant = intercept != 0.0
    indptr = np.concatenate([[0], np.cumsum(n_stored + constant)])
    columns, values = np.empty(indptr[-1] + 1, np.int64), np.empty(indptr[-1] + 1)
    if sp.issparse(X):
        kernels.copy_rows(X.indptr, X.indices, X.data, indptr, columns, values)
    else:
        kernels.fill_rows(X, indptr, columns, values)
    columns, values, lengths = columns[:-1], values[:-1], np.empty(n_records)
    kernels.finish_rows(indptr, columns, values, max_norm, intercept, n_features, lengths)
    return sp.csr_array((values, columns, indptr), shape=(n_records, n_features + constant)), lengths


class PartedStatistics(ScoredStatistics):
    """Statistics of two kinds of rows: where ``second`` is True, those of ``parts[1]``, else those of ``parts[0]``."""

    def __init__(self, second: np.ndarray, parts: Sequence[RegressionStatistics], clip_norm=None, blocks=None) -> None:
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


class RegressionStatistics(ScoredStatistics):
    """E-step of a chunk of records.

    Parameters
    ----------
    rows, lengths : array or CSR of shape (n_records, d), ndarray of shape (n_records,)
        From :func:`design_rows`.
    shape, linear : array of shape (n_records, n_outputs)
        b and κ. Where b is 0 the output has no term for this record.
    mean : ndarray of shape (n_outputs, d)
        μ, in the coordinates of ``rows``.
    spread : ndarray of shape (n_outputs, d, d) or (n_outputs, d), or None
        Of the posterior in the same coordinates: variances (n_outputs, d); for an array of rows the inverses of the
        precisions' Cholesky factors L, for CSR rows the covariances Σ. None for 0: residuals are then gradients of the
        likelihood at μ.
    centred, diagonal : bool
        Whether the linear statistic is the residual; whether only the diagonal of the precision is summed.
    dtype : float32 or float64
        Of the quadratic forms over CSR rows.
    offset : float or ndarray of shape (n_records, 1)
        o.
    labels : (ndarray, ndarray) of shape (n_labels, n_outputs), optional
        b and κ of labels, among which is one with the largest norm for every x. None: norms are of the records' own labels.
    clip_norm, blocks : optional
        See :class:`ScoredStatistics`.
    """

    def __init__(
        self, rows, lengths, shape, linear, mean, spread, *, centred: bool, dtype, diagonal: bool,
        offset=0.0, labels=None, clip_norm=None, blocks=None,
    ) -> None:  # fmt: skip
        super().__init__(clip_norm, blocks)
        self._rows, self._lengths, self._shape, self._linear = rows, lengths, shape, linear
        self._diagonal, self._labels = diagonal, labels
        self.predictor = _times_rowwise(rows, mean.T) + offset  # ψ
        self.variance = self._forms(spread, np.dtype(dtype))  # x'Σx
        self.tilt = np.hypot(self.predictor, np.sqrt(self.variance))  # c
        self.precision = polya_gamma_mean(self.tilt, shape)  # ω
        self._centre = self.predictor if centred else np.broadcast_to(offset, self.predictor.shape)
        self.residual = linear - self.precision * self._centre  # r

    def _forms(self, spread: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
        """x_nᵀ Σ_j x_n, shape (n_records, n_outputs)."""
        rows = self._rows
        if spread is None:
            return np.zeros(self.predictor.shape)
        if self._diagonal:
            return _times_rowwise(rows * rows, spread.T)
        if not sp.issparse(rows):
            return np.stack([rowwise_squares(inverse, rows) for inverse in spread], axis=1)
        forms = np.empty((len(spread), rows.shape[0]), dtype)
        data, spread = rows.data.astype(dtype, copy=False), spread.astype(dtype, copy=False)
        for covariance, form in zip(spread, forms, strict=True):

            def compute(first: int, last: int, covariance=covariance, form=form) -> None:
                kernels.quadratic_forms(rows.indptr, rows.indices, data, covariance, first, last, form)

            run_ranges(compute, rows.indptr, parts_per_thread=2, least_work=_LEAST_WORK)
        return np.maximum(forms.T.astype(np.float64), 0.0)

    def rows_and_residual(self) -> tuple[np.ndarray, np.ndarray]:
        """x_n, and r_nj."""
        return self._rows, self.residual

    def _scores(self) -> list[Scores]:
        return [Scores(np.arange(self._rows.shape[0]), self._rows, self.residual)]

    def _row_norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        scale = {name: block.scale for name, block in blocks.items()}
        lengths = Lengths(self._lengths, self._outer_norms())
        if self._labels is None:
            return lengths.norms(self.residual, self.precision, scale) * _ROUNDING
        return lengths.largest_norms(self._centre, self.tilt, self._labels, scale) * _ROUNDING

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

    def bounds(self) -> np.ndarray:
        """Evidence lower bound of each record given q(w): Σ_j κψ - b log 2 - b log cosh(c/2), shape (n_records,).

        The augmented likelihood less KL(PG(b, c) ‖ PG(b, 0)) = b log cosh(c/2) - c² ω / 2, at the optimal c.
        """
        log_two_cosh = 0.5 * self.tilt + np.log1p(np.exp(-self.tilt))
        return (self._linear * self.predictor - self._shape * log_two_cosh).sum(axis=1)

    def _shaped(self, sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Sums of one output without the axis of outputs."""
        return {name: value[0] if self.residual.shape[1] == 1 else value for name, value in sums.items()}

    def _present(self, weights: np.ndarray):
        present = np.flatnonzero(weights)
        if len(present) == len(weights):
            return self._rows, weights, self.residual, self.precision
        return self._rows[present], weights[present], self.residual[present], self.precision[present]


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


def _times_rowwise(matrix, other: np.ndarray) -> np.ndarray:
    """Product whose rows depend on that row of ``matrix`` alone, to the last bit; SciPy adds a row's entries in order."""
    return matrix @ other if sp.issparse(matrix) else rowwise_product(matrix, other)


def _times(matrix, other: np.ndarray) -> np.ndarray:
    return matrix @ other if sp.issparse(matrix) else product(matrix, other)
