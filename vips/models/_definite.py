"""Symmetric matrices with their eigenvalues raised: what rounding or noise made indefinite becomes positive definite."""

from __future__ import annotations

import numpy as np

from vips.core.exact.blas import cholesky, eigh, gram

__all__ = ["floored", "positive_definite"]


def positive_definite(matrix: np.ndarray) -> np.ndarray:
    """A symmetric matrix that is positive definite but for rounding; if it is not, its eigenvalues are raised.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)

    Returns
    -------
    ndarray of shape (d, d)
        Eigenvalues of at least 10⁻¹² of the largest entry if the matrix has no Cholesky factor, else the matrix.
    """
    matrix = 0.5 * (matrix + matrix.T)
    try:
        cholesky(matrix)
    except np.linalg.LinAlgError:
        return floored(matrix, max(1e-12 * np.abs(matrix).max(), 1e-300))
    return matrix


def floored(matrix: np.ndarray, least: float, share: float = 0.0) -> np.ndarray:
    """A symmetric matrix with its eigenvalues raised to ``least``, and to a share of the largest.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
    least : float
        At least 0.
    share : float

    Returns
    -------
    ndarray of shape (d, d)
    """
    values, vectors = eigh(0.5 * (matrix + matrix.T))
    raised = np.maximum(values, max(least, share * values.max()))
    return gram(np.ascontiguousarray((vectors * np.sqrt(raised)).T))
