"""Matrix products by NumPy in fixed pieces, and factorisations by LAPACK.

Our own threads share the pieces of a product, and each calls BLAS with one thread: the pieces, and so the rounding, do not
depend on the number of threads. BLAS has threads too, but they spin for a while after each product and keep other threads from
the processors: a step of a belief network took longer with two of them than with one. Factorisations of small matrices use one
thread, because more of them wait for each other longer than they compute.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg.lapack import dpotri, dtrtri

from vips.core.exact.blas_threads import all_blas_threads, one_blas_thread
from vips.core.exact.threads import run_ranges

__all__ = [
    "cholesky",
    "eigh",
    "for_blas",
    "gram",
    "inverse_from_factor",
    "lower_inverse",
    "mirrored",
    "product",
    "share_rows",
    "threads_for",
]

_SMALL = 400  # columns
# Rows (or columns) of each call of BLAS: it chooses a kernel by their number, and the rounding depends on the kernel.
_PIECE, _LARGE_PIECE = 256, 512
# Sums take rows in blocks that stay in the cache, and more than a few panels of columns panel by panel.
_BLOCK, _PANEL = 1024, 128
_IS_ABOVE = ~np.tri(_PANEL, dtype=bool)
_LEAST_WORK = 20_000_000  # multiplications


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B, shape (n, m), arrays of shape (n, k) and (k, m), in single precision if A is."""
    (n, k), m = a.shape, b.shape[1]
    if b.shape[0] != k:
        raise ValueError(f"The shapes of the arrays do not fit together: {a.shape} and {b.shape}.")
    dtype = np.float32 if a.dtype == np.float32 else np.float64
    if not (a.size and b.size):
        return np.zeros((n, m), dtype)
    out, by_rows = np.empty((n, m), dtype), n >= _PIECE or m == 1
    length, size = (n, _LARGE_PIECE if n > 8 * _PIECE else _PIECE) if by_rows else (m, _PIECE)
    size = 8 * size if m == 1 else size
    a, b = (a, for_blas(b, dtype)) if by_rows else (for_blas(a, dtype), b)

    def multiply(first: int, last: int) -> None:
        for start in range(first * size, min(last * size, length), size):
            part = slice(start, start + size)
            if by_rows:
                np.matmul(for_blas(a[part], dtype), b, out=out[part])
            else:
                np.matmul(a, for_blas(b[:, part], dtype), out=out[:, part])

    _share(multiply, np.arange(-(-length // size) + 1) * (n * k * m // length * size))
    return out


def gram(rows: np.ndarray) -> np.ndarray:
    """XᵀX, shape (d, d), for rows of shape (n, d): half the work of a product."""
    n, d = rows.shape
    total = np.zeros((d, d))
    if d > 2 * _PANEL:
        ends = np.minimum(np.arange(-(-d // _PANEL) + 1) * _PANEL, d)

        def fill(first: int, last: int) -> None:
            for start, stop in itertools.pairwise(ends[first : last + 1]):
                for block in _blocks(rows):
                    panel = block[:, start:stop]
                    total[start:stop, start:stop] += panel.T @ panel  # NumPy does half the work if both are one array
                    total[start:stop, :start] += panel.T @ block[:, :start]

        _share(fill, n * ends**2 // 2)
    else:
        blocks = _blocks(rows)
        shares = np.zeros((len(blocks), d, d))

        def add(first: int, last: int) -> None:
            for i in range(first, last):
                np.dot(blocks[i].T, blocks[i], out=shares[i])  # for a small result `matmul` holds the interpreter lock

        _share(add, np.arange(len(blocks) + 1) * (_BLOCK * d * d // 2))
        for share in shares:
            total += share
    return mirrored(total)


def for_blas(array: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """The array, or a copy that NumPy gives to BLAS: other orders of memory take loops of its own, many times slower."""
    array = np.asarray(array, dtype)
    readable = array.itemsize in array.strides and min(array.strides) > 0
    return array if readable else np.ascontiguousarray(array)


def share_rows(compute: Callable[[slice], None], n_rows: int, size: int, work_of_row: int) -> None:
    """Call ``compute`` on slices of ``size`` rows, but for the last, in several threads if the work is worth it."""

    def compute_some(first: int, last: int) -> None:
        for start in range(first * size, min(last * size, n_rows), size):
            compute(slice(start, min(start + size, n_rows)))

    _share(compute_some, np.arange(-(-n_rows // size) + 1) * (size * work_of_row))


def _share(compute: Callable[[int, int], None], cumulative_work: np.ndarray) -> None:
    def compute_alone(first: int, last: int) -> None:
        with one_blas_thread():
            compute(first, last)

    with one_blas_thread():
        run_ranges(compute_alone, cumulative_work, parts_per_thread=4, least_work=_LEAST_WORK)


def _blocks(rows: np.ndarray) -> list[np.ndarray]:
    return [for_blas(rows[start : start + _BLOCK], np.float64) for start in range(0, len(rows), _BLOCK)]


def cholesky(matrix: np.ndarray) -> np.ndarray:
    """Lower triangular L with LLᵀ the matrix.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite to rounding.
    """
    with threads_for(matrix):
        return np.linalg.cholesky(matrix)


def lower_inverse(factor: np.ndarray) -> np.ndarray:
    """L⁻¹ for lower triangular L."""
    with threads_for(factor):
        return _checked(dtrtri(factor.T, lower=0)).T


def inverse_from_factor(factor: np.ndarray) -> np.ndarray:
    """(LLᵀ)⁻¹ for lower triangular L."""
    with threads_for(factor):
        return mirrored(_checked(dpotri(factor.T, lower=0)).T)


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, and eigenvectors by columns of a symmetric matrix."""
    with threads_for(matrix):
        return np.linalg.eigh(matrix)


def mirrored(lower: np.ndarray) -> np.ndarray:
    """A symmetric matrix from its lower triangle, in place."""
    for start in range(0, len(lower), _PANEL):
        panel = lower[start : start + _PANEL]
        stop = start + len(panel)
        lower[:start, start:stop] = panel[:, :start].T
        square = panel[:, start:stop]
        np.copyto(square, square.T, where=_IS_ABOVE[: len(panel), : len(panel)])
    return lower


@contextmanager
def threads_for(matrix: np.ndarray) -> Iterator[None]:
    """All threads for large matrices; one for small ones, whose threads wait for each other longer than they compute."""
    with all_blas_threads() if len(matrix) > _SMALL else one_blas_thread():
        yield


def _checked(answer: tuple[np.ndarray, int]) -> np.ndarray:
    matrix, info = answer
    if info != 0:
        raise np.linalg.LinAlgError("The matrix is singular to working precision.")
    return matrix
