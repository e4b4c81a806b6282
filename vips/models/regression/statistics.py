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

``vips/core/sums/regressions.py`` has their norms and sums.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from vips.core.exact.rowwise import row_norms, rowwise_product, rowwise_squares
from vips.core.exact.threads import run_ranges
from vips.core.sums.outer import Rows, outer_sums
from vips.core.sums.regressions import RegressionSums
from vips.expfam import polya_gamma_mean
from vips.models.regression import kernels

__all__ = ["RegressionStatistics", "design_rows", "factors_of_labels", "times_rowwise", "variances"]

# Least number of stored entries for which a second thread saves time.
_LEAST_WORK = 200_000


def design_rows(X, max_norm: float, intercept: float):
    """Rows scaled into the ball of radius ``max_norm``, with a constant column if ``intercept`` is not 0.

    Parameters
    ----------
    X : array or CSR of shape (n_records, n_features)
    max_norm, intercept : float
        Public.

    Returns
    -------
    float64 array or CSR of shape (n_records, n_features + 1 or n_features)
        CSR rows have sorted, unrepeated columns. A row depends on that row of X alone. A row whose norm overflows is NaN.
    """
    if sp.issparse(X):
        return _sparse_design(X, max_norm, intercept)
    n_records, n_features = X.shape
    rows, X = np.empty((n_records, n_features + (intercept != 0.0))), np.ascontiguousarray(X, np.float64)
    kernels.copy_beside(X, intercept, rows)
    norms = row_norms(X)
    long = np.flatnonzero(~(norms <= max_norm))
    if len(long):
        finite = np.isfinite(norms[long])
        rows[long, :n_features] *= np.where(finite, max_norm / norms[long], np.nan)[:, None]
    return rows


def _sparse_design(X, max_norm: float, intercept: float) -> sp.csr_array:
    X = sp.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    (n_records, n_features), constant = X.shape, intercept != 0.0
    indptr = np.concatenate([[0], np.cumsum(np.diff(X.indptr) + constant)])
    columns, values = np.empty(indptr[-1], np.int64), np.empty(indptr[-1])
    kernels.copy_rows(X.indptr, X.indices, X.data, indptr, columns, values)
    kernels.finish_rows(indptr, columns, values, max_norm, intercept, n_features)
    return sp.csr_array((values, columns, indptr), shape=(n_records, n_features + constant))


class RegressionStatistics(RegressionSums):
    """E-step of a chunk of records.

    Parameters
    ----------
    rows : array or CSR of shape (n_records, d)
        From :func:`design_rows`.
    shape, linear : array of shape (n_records, n_outputs)
        b and κ. Where b is 0 the output has no term for this record.
    mean : ndarray of shape (n_outputs, d)
        μ, in the coordinates of ``rows``.
    variance : float or ndarray of shape (n_records, n_outputs)
        xᵀΣx, from :func:`variances`. 0: residuals are then gradients of the likelihood at μ.
    centred, diagonal : bool
        Whether the linear statistic is the residual; whether only the diagonal of the precision is summed.
    offset : float or ndarray of shape (n_records, 1)
        o.
    labels : (ndarray, ndarray) of shape (n_labels, n_outputs), optional
        b and κ of labels, among which is one with the largest norm for every x. None: norms are of the records' own labels.
    """

    def __init__(
        self,
        rows,
        shape,
        linear,
        mean,
        variance,
        *,
        centred: bool = True,
        diagonal: bool = False,
        offset=0.0,
        labels=None,
    ) -> None:
        self._shape, self._linear, self.variance = shape, linear, variance
        self.predictor = times_rowwise(rows, mean.T) + offset  # ψ
        self.tilt = np.hypot(self.predictor, np.sqrt(self.variance))  # c
        precision = polya_gamma_mean(self.tilt, shape)  # ω
        centre = self.predictor if centred else np.broadcast_to(offset, self.predictor.shape)
        others = [] if labels is None else factors_of_labels(centre, self.tilt, labels)
        pairs = zip((linear - precision * centre, precision), *others, strict=True)
        super().__init__(Rows(rows), *(Rows(*of_all) for of_all in pairs), diagonal=diagonal)

    def information(self) -> np.ndarray:
        """Information of the labels at μ, b σ'(ψ), shape (n_records, n_outputs)."""
        p = expit(self.predictor)
        return self._shape * p * (1.0 - p)

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """Σ w b σ'(ψ) x xᵀ, shape (n_outputs, d, d)."""
        return outer_sums(self.rows, weights[:, None] * self.information())

    def bounds(self) -> np.ndarray:
        """Evidence lower bound of each record given q(w): Σ_j κψ - b log 2 - b log cosh(c/2), shape (n_records,).

        The augmented likelihood less KL(PG(b, c) ‖ PG(b, 0)) = b log cosh(c/2) - c² ω / 2, at the optimal c.
        """
        log_two_cosh = 0.5 * self.tilt + np.log1p(np.exp(-self.tilt))
        return (self._linear * self.predictor - self._shape * log_two_cosh).sum(axis=1)


def factors_of_labels(centre: np.ndarray, tilt: np.ndarray, labels) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """r and ω of each label: the norm of a record is the largest over them.

    A clip that looks at the residual cuts surprising labels off, and makes slopes too steep. If the norm that is reported
    is the largest over all labels, the engine's weight is a function of x and released values, and the weighted residual
    w(x) (y - p) x has mean zero at the true coefficients. For two labels this is the conditionally unbiased score of
    bounded influence of Künsch, Stefanski and Carroll (1989): of all functions of y with conditional mean 0 and norm at
    most C, it has the largest slope.

    Parameters
    ----------
    centre, tilt : ndarray of shape (n_records, n_outputs)
        What ω is multiplied with in the residual κ - ω centre, and c.
    labels : (ndarray, ndarray) of shape (n_labels, n_outputs)
        b and κ.
    """
    unit = polya_gamma_mean(tilt, 1.0)
    for shape, linear in zip(*labels, strict=True):
        precision = shape * unit
        yield linear - precision * centre, precision


def variances(rows, spread: np.ndarray, dtype: type) -> np.ndarray:
    """x_nᵀ Σ_j x_n, shape (n_records, n_outputs).

    Parameters
    ----------
    rows : array or CSR of shape (n_records, d)
    spread : ndarray of shape (n_outputs, d, d) or (n_outputs, d)
        Variances (n_outputs, d); for an array of rows the inverses of the precisions' Cholesky factors L, for CSR rows the
        covariances Σ.
    dtype : float32 or float64
        Of the quadratic forms over CSR rows.
    """
    if spread.ndim == 2:
        return times_rowwise(rows * rows, spread.T)
    if not sp.issparse(rows):
        return np.stack([rowwise_squares(inverse, rows) for inverse in spread], axis=1)
    forms = np.empty((len(spread), rows.shape[0]), dtype)
    data, spread = rows.data.astype(dtype, copy=False), spread.astype(dtype, copy=False)
    for covariance, form in zip(spread, forms, strict=True):

        def compute(first: int, last: int, covariance=covariance, form=form) -> None:
            kernels.quadratic_forms(rows.indptr, rows.indices, data, covariance, first, last, form)

        run_ranges(compute, rows.indptr, parts_per_thread=2, least_work=_LEAST_WORK)
    return np.maximum(forms.T.astype(np.float64), 0.0)


def times_rowwise(matrix, other: np.ndarray) -> np.ndarray:
    """Product whose rows depend on that row of ``matrix`` alone, to the last bit; SciPy adds a row's entries in order."""
    return matrix @ other if sp.issparse(matrix) else rowwise_product(matrix, other)
