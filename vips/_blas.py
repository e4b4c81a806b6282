"""Matrix products and factorisations, all from SciPy's BLAS.

NumPy and SciPy wheels each bring a BLAS of their own, with threads of its own that spin while they wait: used in turns on
matrices of a hundred columns, they slow each other down several times. Factorisations of small matrices use one thread: they
wait for each other more than they compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import numpy as np
from scipy.linalg.blas import dgemm, dgemv, dsyrk, dtrmm, sgemm, sgemv
from scipy.linalg.lapack import dpotrf, dpotri, dsyevd, dtrtri
from threadpoolctl import ThreadpoolController

__all__ = [
    "at_most_threads",
    "cholesky",
    "eigh",
    "gram",
    "inverse_from_factor",
    "lower_inverse",
    "mirrored",
    "product",
    "squared_images",
]


_SMALL = 400  # columns


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B, shape (n, m), arrays of shape (n, k) and (k, m), both float64 or float32; A, the large one, is not copied."""
    if not (a.size and b.size):
        return np.zeros((a.shape[0], b.shape[1]), a.dtype)
    gemm, gemv = (sgemm, sgemv) if a.dtype == np.float32 else (dgemm, dgemv)
    by_columns = a.flags.f_contiguous  # BLAS stores by columns: (A B)' = B'A'
    if b.shape[1] == 1:
        return gemv(1.0, a if by_columns else a.T, np.ascontiguousarray(b[:, 0]), trans=not by_columns)[:, None]
    return gemm(1.0, b.T, a if by_columns else a.T, trans_b=by_columns).T


def gram(rows: np.ndarray) -> np.ndarray:
    """XᵀX, shape (d, d), for rows of shape (n, d): half the work of a product."""
    d = rows.shape[1]
    total = np.zeros((d, d), order="F")
    for block in _blocks(rows):
        total = dsyrk(1.0, block.T, beta=1.0, c=total, lower=0, overwrite_c=1)
    return mirrored(total.T)


def squared_images(lower: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """‖L x_n‖² of rows of shape (n, d), for lower triangular L: half the work of a product."""
    squares = [np.zeros(0)]
    for block in _blocks(rows):
        images = dtrmm(1.0, lower.T, block.T, lower=0, trans_a=1)
        squares.append(np.einsum("ij,ij->j", images, images))
    return np.concatenate(squares)


def _blocks(rows: np.ndarray) -> list[np.ndarray]:
    """Few enough rows at a time to stay in the cache."""
    return [rows[start : start + 1024] for start in range(0, len(rows), 1024)]


def cholesky(matrix: np.ndarray) -> np.ndarray:
    """Lower triangular L with LLᵀ the matrix.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite to rounding.
    """
    with _threads_for(matrix):
        upper, info = dpotrf(matrix.T, lower=0)
    if info != 0:
        raise np.linalg.LinAlgError("The matrix is not positive definite.")
    return upper.T


def lower_inverse(factor: np.ndarray) -> np.ndarray:
    """L⁻¹ for lower triangular L."""
    with _threads_for(factor):
        return _checked(dtrtri(factor.T, lower=0)).T


def inverse_from_factor(factor: np.ndarray) -> np.ndarray:
    """(LLᵀ)⁻¹ for lower triangular L."""
    with _threads_for(factor):
        return mirrored(_checked(dpotri(factor.T, lower=0)).T)


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, and eigenvectors by columns of a symmetric matrix."""
    with _threads_for(matrix):
        values, vectors, info = dsyevd(matrix)
    if info != 0:
        raise np.linalg.LinAlgError("The eigenvalues did not converge.")
    return values, vectors


def mirrored(lower: np.ndarray) -> np.ndarray:
    """A symmetric matrix from its lower triangle, in place."""
    for i in range(1, len(lower)):
        lower[:i, i] = lower[i, :i]
    return lower


def at_most_threads(n: int) -> AbstractContextManager:
    """Inside, BLAS of this process uses at most ``n`` threads. One thread at a time has a say in this, the first to ask."""
    return _pools().limit(limits=n, user_api="blas")


@contextmanager
def _threads_for(matrix: np.ndarray) -> Iterator[None]:
    if len(matrix) > _SMALL:
        yield
    else:
        with at_most_threads(1):
            yield


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


def _checked(answer: tuple[np.ndarray, int]) -> np.ndarray:
    matrix, info = answer
    if info != 0:
        raise np.linalg.LinAlgError("The matrix is singular to working precision.")
    return matrix
