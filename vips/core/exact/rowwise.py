"""Norms, dot products and matrix products whose every row depends on that row alone, to the last bit.

BLAS chooses a kernel, and with it the rounding, by the number of rows. So the last bits of one record's product would depend
on how many other records there are, and an iteration or a near-tie can amplify a last bit without bound. Each call of BLAS here
has the same number of rows, in C order: the last piece is filled up with zeros. Some BLAS libraries still round a row by its
place in the piece, or by its alignment; this module tests that once for each shape. Where the test fails, as it does in single
precision on many processors, our own kernel computes the product: the same operations in the same order for every row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from vips.core.exact.blas import for_blas, share_rows
from vips.core.exact.blas_threads import one_blas_thread
from vips.core.exact.lanes import WIDTH
from vips.core.exact.rowwise_kernels import TILE, multiply_double, multiply_single

__all__ = [
    "PIECE",
    "row_dots",
    "row_norms",
    "rowwise_product",
    "rowwise_squares",
    "scaled_rows",
    "strict_product",
    "zero_filled",
]

PIECE = 240  # rows of each call of BLAS: a multiple of the 8 or 12 rows that OpenBLAS kernels take at a time
_COLUMNS, _PANEL = 4096, 64  # of a call of einsum, of a product with a triangle
_SHIFTS = (1, 2, 5, 67)
_MUCH_WORK = 1e8  # multiplications; above, only one shift is tested

Compute = Callable[[np.ndarray, np.ndarray], np.ndarray]


def zero_filled(rows: np.ndarray, size: int) -> np.ndarray:
    """The rows, followed by rows of zeros up to a multiple of ``size``."""
    missing = -len(rows) % size
    return np.concatenate([rows, np.zeros((missing, rows.shape[1]), rows.dtype)]) if missing else rows


def row_norms(array: np.ndarray) -> np.ndarray:
    """L2 norms of the rows in float64, each a function of its row alone; NaN where an entry is not finite.

    Where squares could overflow or vanish they are taken relative to the largest entry.
    """
    # C order: sums over rows of any other depend, in their last bits, on how many rows there are
    rows = array.reshape(array.shape[0], int(np.prod(array.shape[1:]))).astype(np.float64, order="C", copy=False)
    if rows.shape[1] == 1:
        norms = np.abs(rows[:, 0])
        return np.where(norms < np.inf, norms, np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        squares = row_dots(rows, rows)
        norms = np.sqrt(squares)
        careful = np.flatnonzero(~((squares > 1e-200) & (squares < 1e200)))
        rows = rows[careful]
        largest = np.max(np.abs(rows), axis=1, initial=0.0)
        safe = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
        relative = rows / safe[:, None]
        norms[careful] = np.where(np.isfinite(largest), safe * np.sqrt(row_dots(relative, relative)), np.nan)
    return norms


def scaled_rows(X: np.ndarray, max_norm: float) -> np.ndarray:
    """Rows longer than ``max_norm`` are scaled down to it; each depends on its record alone."""
    norms = row_norms(X)
    long = np.flatnonzero(~(norms <= max_norm))
    if not len(long):
        return X
    X = X.copy()
    with np.errstate(invalid="ignore"):
        X[long] *= (max_norm / norms[long])[:, None]
    return X


def row_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Σ_j a_ij b_ij of two arrays of rows, each a function of its rows alone, to the last bit.

    In pieces of columns: NumPy splits a single row of more than 8,192 numbers where it does not split several rows.
    """
    dots = np.zeros(len(a))
    for first in range(0, a.shape[1], _COLUMNS):
        piece = slice(first, first + _COLUMNS)
        dots += np.einsum("ij,ij->i", a[:, piece], b[:, piece])
    return dots


def rowwise_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B, shape (n, m), for arrays of shape (n, k) and (k, m); in single precision if A is.

    Guarantees
    ----------
    Row i is a function of row i of A and of B, to the last bit: not of the number of rows, their order, the memory they lie
    in, or the number of threads.
    """
    a, b = _checked(a, b)
    (n, k), m = a.shape, b.shape[1]
    if m == 1:
        return _product_with_column(a, np.ascontiguousarray(b[:, 0]))
    if not _is_rowwise(_multiply, k, m, a.dtype, b.flags.c_contiguous):
        return strict_product(a, b)
    out = np.empty((n, m), a.dtype)
    share_rows(lambda rows: _on_whole_piece(_multiply, a[rows], b, out[rows]), n, PIECE, k * m)
    return out


def strict_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As :func:`rowwise_product`, without BLAS: every entry adds its terms from the first to the last."""
    a, b = _checked(a, b)
    (n, k), m = a.shape, b.shape[1]
    width = WIDTH * (2 if a.dtype == np.float32 else 1)
    kernel = multiply_single if a.dtype == np.float32 else multiply_double
    panels = np.zeros((-(-m // width), k, width), a.dtype)
    for i, panel in enumerate(panels):
        columns = b[:, i * width : (i + 1) * width]
        panel[:, : columns.shape[1]] = columns
    out = np.empty((n, len(panels) * width), a.dtype)

    def multiply(rows: slice) -> None:
        piece, stop = a[rows], (rows.stop - rows.start) // TILE * TILE
        kernel(piece[:stop], panels, out[rows][:stop])
        if stop < len(piece):
            images = np.empty((TILE, out.shape[1]), a.dtype)
            kernel(zero_filled(piece[stop:], TILE), panels, images)
            out[rows][stop:] = images[: len(piece) - stop]

    share_rows(multiply, n, PIECE, k * m)
    return out[:, :m] if m == out.shape[1] else np.ascontiguousarray(out[:, :m])


def rowwise_squares(lower: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """‖L x_n‖², shape (n,), for lower triangular L of shape (d, d) and rows of shape (n, d): half the work of a product.

    Guarantees
    ----------
    As :func:`rowwise_product`.
    """
    rows, _ = _checked(np.asarray(rows, np.float64), np.asarray(lower).T)
    n, d = rows.shape
    lower, out = np.ascontiguousarray(np.tril(lower), np.float64), np.empty((n, 1))
    if not _is_rowwise(_squares, d, d, rows.dtype, True):
        images = strict_product(rows, lower.T)
        return row_dots(images, images)
    share_rows(lambda part: _on_whole_piece(_squares, rows[part], lower, out[part]), n, PIECE, d * d // 2)
    return out[:, 0]


def _checked(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in C order, in the precision of the computation."""
    a = np.ascontiguousarray(a, np.float32 if a.dtype == np.float32 else np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"The shapes of the arrays do not fit together: {a.shape} and {b.shape}.")
    return a, for_blas(b, a.dtype)


def _product_with_column(a: np.ndarray, column: np.ndarray) -> np.ndarray:
    out = np.zeros((len(a), 1), a.dtype)

    def add_dots(rows: slice) -> None:
        for first in range(0, len(column), _COLUMNS):
            piece = slice(first, first + _COLUMNS)
            out[rows, 0] += np.einsum("ij,j->i", a[rows, piece], column[piece])

    share_rows(add_dots, len(a), 8 * PIECE, len(column))
    return out


def _on_whole_piece(compute: Compute, rows: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
    """Write ``compute(rows, other)`` into ``out``, computed on a whole piece."""
    out[:] = compute(zero_filled(rows, PIECE), other)[: len(out)]


def _multiply(rows: np.ndarray, b: np.ndarray) -> np.ndarray:
    return rows @ b


def _squares(rows: np.ndarray, lower: np.ndarray) -> np.ndarray:
    squares = np.zeros(len(rows))
    for stop in range(_PANEL, len(lower) + _PANEL, _PANEL):
        images = rows[:, :stop] @ lower[stop - _PANEL : stop, :stop].T  # to the right there are zeros
        squares += row_dots(images, images)
    return squares[:, None]


@lru_cache(maxsize=4096)
def _is_rowwise(compute: Compute, k: int, m: int, dtype: np.dtype, in_order_of_c: bool) -> bool:
    """Whether a row of random numbers gives the same result at every place in a piece, and at every alignment."""
    if not (k and m):
        return True
    rng = np.random.default_rng(0)
    rows, other = rng.standard_normal((PIECE, k)).astype(dtype), rng.standard_normal((k, m)).astype(dtype)
    other = other if in_order_of_c else np.asfortranarray(other)
    shifts = _SHIFTS if PIECE * k * m < _MUCH_WORK else _SHIFTS[:1]
    with one_blas_thread():
        product, memory = compute(rows, other), np.empty(rows.size + max(_SHIFTS), dtype)
        for shift in shifts:
            moved = memory[shift : shift + rows.size].reshape(rows.shape)
            moved[:] = np.roll(rows, shift, axis=0)
            if not np.array_equal(np.roll(product, shift, axis=0), compute(moved, other)):
                return False
    return True
