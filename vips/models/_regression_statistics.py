"""Expected statistics of regression records: r_nj x_n and ω_nj x_n x_nᵀ, never formed per record.

===================  =================================================================================
symbol               meaning
===================  =================================================================================
x_n (d,)             design row: features, scaled into the public ball, and the intercept's constant
ψ_nj, c_nj           x_nᵀ μ_j and √E (x_nᵀ w_j)²
b_nj, κ_nj           Pólya-Gamma shape and linear coefficient of the likelihood: e^(κψ) E[e^(-ωψ²/2)], ω ~ PG(b, 0)
ω_nj                 E[ω | b, c] = b tanh(c/2) / (2c)
r_nj                 κ - ω ψ, the residual (κ itself with statistics as in the paper)
===================  =================================================================================

Squared norm of a record: ‖x‖² Σ_j r_j² + ‖x xᵀ‖² Σ_j ω_j², where ‖x xᵀ‖ is ‖x‖², or √Σ_i x_i⁴ for a diagonal precision. A
diagonal one has two more blocks, ω x and ω: (‖x‖² + 1) Σ_j ω_j².
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk, dtrsm

from vips._threads import run_ranges
from vips.expfam import polya_gamma_mean
from vips.model import Block, RecordStatistics, row_norms
from vips.models import _regression_kernels as kernels
from vips.privacy import Lattice

__all__ = ["RegressionStatistics", "design_rows"]

# Norms are float64 sums over at most a few thousand products of positive terms.
_ROUNDING = 1.0 + 1e-9


def design_rows(X, feature_norm: float, intercept: float, sparse: bool):
    """Rows scaled into the ball of radius ``feature_norm``, with a constant column if ``intercept`` is not 0.

    Parameters
    ----------
    X : array or CSR of shape (n_records, n_features)
    feature_norm, intercept : float
        Public.
    sparse : bool
        Give CSR for an array, too.

    Returns
    -------
    float64 array, or CSR with sorted, unrepeated columns, of shape (n_records, n_features + 1 or n_features)
        A row depends on that row of X alone. A row whose norm overflows is NaN.
    """
    if sp.issparse(X) or sparse:
        return _sparse_design(X, feature_norm, intercept)
    n_records, n_features = X.shape
    rows = np.empty((n_records, n_features + (intercept != 0.0)))
    rows[:, :n_features] = X
    rows[:, n_features:] = intercept
    norms = row_norms(rows[:, :n_features])
    long = np.flatnonzero(~(norms <= feature_norm))
    if len(long):
        rows[long, :n_features] *= _shrinkage(norms[long], feature_norm)[:, None]
    return rows


def _sparse_design(X, feature_norm: float, intercept: float) -> sp.csr_array:
    X = sp.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    n_records, n_features = X.shape
    data = X.data.astype(np.float64)
    norms = np.empty(n_records)
    kernels.row_norms(X.indptr, data, norms)
    long = ~(norms <= feature_norm)
    if long.any():
        data *= np.repeat(np.where(long, _shrinkage(norms, feature_norm), 1.0), np.diff(X.indptr))
    if intercept == 0.0:
        return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)
    ends = X.indptr[1:]
    return sp.csr_array(
        (
            np.insert(data, ends, intercept),
            np.insert(X.indices, ends, n_features),
            X.indptr + np.arange(n_records + 1, dtype=X.indptr.dtype),
        ),
        shape=(n_records, n_features + 1),
    )


def _shrinkage(norms: np.ndarray, feature_norm: float) -> np.ndarray:
    """F / ‖x‖, NaN where the norm is not finite: such a row counts for nothing."""
    return np.where(np.isfinite(norms), feature_norm / norms, np.nan)


class RegressionStatistics(RecordStatistics):
    """E-step of a chunk of records.

    Parameters
    ----------
    rows : array or CSR of shape (n_records, d)
        From :func:`design_rows`.
    shape, linear : array of shape (n_records, n_outputs)
        b and κ. Where b is 0 the output has no term for this record.
    mean : ndarray of shape (n_outputs, d)
        μ, in the coordinates of ``rows``.
    spread : ndarray of shape (n_outputs, d, d) or (n_outputs, d)
        Of the posterior in the same coordinates: variances (n_outputs, d); for an array of rows the Cholesky factors L of
        the precisions, for CSR rows the covariances Σ.
    centred : bool
        Whether the linear statistic is the residual.
    dtype : float32 or float64
        Of the quadratic forms over CSR rows.
    """

    def __init__(self, rows, shape, linear, mean, spread, centred: bool, dtype) -> None:
        self._rows = rows
        self._diagonal = spread.ndim == 2
        self.predictor = rows @ mean.T  # ψ
        self.variance = self._forms(spread, np.dtype(dtype))  # x'Σx
        self.tilt = np.hypot(self.predictor, np.sqrt(self.variance))  # c
        self.precision = polya_gamma_mean(self.tilt, shape)  # ω
        self.residual = linear - self.precision * self.predictor if centred else linear  # r

    def _forms(self, spread: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """x_nᵀ Σ_j x_n, shape (n_records, n_outputs)."""
        rows = self._rows
        if self._diagonal:
            return (rows * rows) @ spread.T
        if not sp.issparse(rows):
            return np.stack([_squared_solution(factor, rows) for factor in spread], axis=1)
        forms = np.empty((len(spread), rows.shape[0]), dtype)
        data, spread = rows.data.astype(dtype, copy=False), spread.astype(dtype, copy=False)
        for covariance, form in zip(spread, forms, strict=True):

            def compute(first: int, last: int, covariance=covariance, form=form) -> None:
                kernels.quadratic_forms(rows.indptr, rows.indices, data, covariance, first, last, form)

            run_ranges(compute, rows.indptr)
        return np.maximum(forms.T.astype(np.float64), 0.0)

    def norms(self, blocks: Mapping[str, Block]) -> np.ndarray:
        if sp.issparse(self._rows):
            squares = np.square(self._rows.data)
            length, fourth = (_row_sums(values, self._rows.indptr) for values in (squares, np.square(squares)))
        else:
            squares = np.square(self._rows)
            length = squares.sum(axis=1)
            fourth = np.einsum("ij,ij->i", squares, squares) if self._diagonal else None
        scale = {name: block.scale for name, block in blocks.items()}
        outer = np.sqrt(fourth) if self._diagonal else length
        norms = np.hypot(
            np.sqrt(length) * _row_norms(self.residual) / scale["linear"],
            outer * _row_norms(self.precision) / scale["precision"],
        )
        if self._diagonal:
            common = np.hypot(np.sqrt(length) / scale["cross"], 1.0 / scale["weight"])
            norms = np.hypot(norms, common * _row_norms(self.precision))
        return norms * _ROUNDING

    def weighted_sum(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        rows, weights, residual, precision = self._present(weights)
        linear = (rows.T @ (weights[:, None] * residual)).T
        weighted = weights[:, None] * precision
        if self._diagonal:
            sums = {"precision": ((rows * rows).T @ weighted).T, "cross": (rows.T @ weighted).T}
            return self._shaped({"linear": linear, "weight": weighted.sum(axis=0)} | sums)
        outer = np.zeros((precision.shape[1], rows.shape[1], rows.shape[1]))
        for j, total in enumerate(outer):
            if sp.issparse(rows):
                self._add_outer(rows, weighted[:, j], total)
            else:
                scaled = rows * np.sqrt(weighted[:, j])[:, None]
                total += dsyrk(1.0, scaled.T, lower=0)
        return self._shaped({"linear": linear, "precision": _from_triangles(outer, lower=sp.issparse(rows))})

    def rounded_sum(self, weights: np.ndarray, blocks: Mapping[str, Block], lattice: Lattice) -> dict[str, np.ndarray]:
        """Needs CSR rows: their E-step is a function of each record alone, to the last bit."""
        rows, weights, residual, precision = self._present(weights)
        indptr, columns, n_columns = rows.indptr, rows.indices, rows.shape[1]
        record = np.repeat(np.arange(rows.shape[0]), np.diff(indptr))
        unit = {name: lattice.unit * block.scale for name, block in blocks.items()}

        def rounded(values: np.ndarray, factors: np.ndarray, name: str) -> np.ndarray:
            shares = [np.rint(values * (weights * factor)[record] / unit[name]) for factor in factors.T]
            return np.array([np.bincount(columns, share, n_columns) for share in shares]).astype(np.int64)

        linear = rounded(rows.data, residual, "linear")
        if self._diagonal:
            squares = rounded(np.square(rows.data), precision, "precision")
            cross = rounded(rows.data, precision, "cross")
            weight = np.rint(weights[:, None] * precision / unit["weight"]).sum(axis=0).astype(np.int64)
            return self._shaped({"linear": linear, "precision": squares, "cross": cross, "weight": weight})
        outer = np.zeros((precision.shape[1], n_columns, n_columns))  # whole numbers far below 2⁵³
        for j, total in enumerate(outer):
            self._add_outer(rows, weights * precision[:, j], total, unit["precision"])
        return self._shaped({"linear": linear, "precision": _from_triangles(outer, lower=True).astype(np.int64)})

    def bounds(self, shape, linear) -> np.ndarray:
        """Evidence lower bound of each record given q(w): Σ_j κψ - b log 2 - b log cosh(c/2), shape (n_records,).

        The augmented likelihood less KL(PG(b, c) ‖ PG(b, 0)) = b log cosh(c/2) - c² ω / 2, at the optimal c.
        """
        log_two_cosh = 0.5 * self.tilt + np.log1p(np.exp(-self.tilt))
        return (linear * self.predictor - shape * log_two_cosh).sum(axis=1)

    def _shaped(self, sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One output has no axis for it."""
        return {name: value[0] if self.residual.shape[1] == 1 else value for name, value in sums.items()}

    def _present(self, weights: np.ndarray):
        present = np.flatnonzero(weights)
        if len(present) == len(weights):
            return self._rows, weights, self.residual, self.precision
        return self._rows[present], weights[present], self.residual[present], self.precision[present]

    @staticmethod
    def _add_outer(rows, weights, total, unit: float | None = None) -> None:
        """Add Σ_n w_n x_n x_nᵀ to the lower triangle of ``total``."""
        arguments = (rows.indptr, rows.indices, rows.data, weights)

        def add(first: int, last: int) -> None:
            if unit is None:
                kernels.add_outer(*arguments, first, last, total)
            else:
                kernels.add_outer_rounded(*arguments, unit, first, last, total)

        work = np.bincount(rows.indices, minlength=rows.shape[1])
        run_ranges(add, np.concatenate([[0], np.cumsum(work)]), parts_per_thread=1)


def _squared_solution(factor: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """‖L⁻¹ x_n‖² for lower triangular L: half the work of x_nᵀ Σ x_n."""
    if not len(rows):
        return np.empty(0)
    solved = dtrsm(1.0, factor.T, rows.T, lower=0, trans_a=1)  # (d, n_records), without a copy of either
    return np.einsum("ij,ij->j", solved, solved)


def _row_norms(array: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(array).sum(axis=1))


def _row_sums(values: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Of CSR data. A row's sum is a function of that row alone; that of an empty one is 0, whatever the next row holds."""
    return np.where(np.diff(indptr) > 0, np.add.reduceat(np.append(values, 0.0), indptr[:-1]), 0.0)


def _from_triangles(matrices: np.ndarray, lower: bool) -> np.ndarray:
    """Symmetric matrices from one of their triangles, in place."""
    d = matrices.shape[-1]
    for matrix in matrices:
        for i in range(d):
            if lower:
                matrix[:i, i] = matrix[i, :i]
            else:
                matrix[i, :i] = matrix[:i, i]
    return matrices
