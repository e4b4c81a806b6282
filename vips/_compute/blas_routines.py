"""SciPy's BLAS by its C entry points, which let other threads run.

``scipy.linalg.blas`` holds the interpreter lock while it computes, so that threads which each sum a share would take turns.
Arrays are in order of C; BLAS reads them by columns, as their transposes.
"""

from __future__ import annotations

import ctypes

import numpy as np
from scipy import LowLevelCallable
from scipy.linalg import cython_blas

__all__ = ["gemm", "gemv", "syrk", "trmm"]

_LARGEST = 2**31 - 1  # number that BLAS takes
_REAL = {np.dtype(np.float32): ("s", ctypes.c_float), np.dtype(np.float64): ("d", ctypes.c_double)}


def gemm(a: np.ndarray, b: np.ndarray, out: np.ndarray, beta: float = 0.0) -> None:
    """``out = A B + beta out``, of shape (n, m), whose precision is that of the computation.

    Arrays in order of C or Fortran, and ranges of their rows or columns, are not copied; ``out`` is such rows or columns in
    order of C.
    """
    (n, k), m = a.shape, b.shape[1]
    a, a_order, a_leading = _ordered(a, out.dtype)
    b, b_order, b_leading = _ordered(b, out.dtype)
    target, order, leading = _ordered(out, out.dtype)
    _check(b.shape[0] == k and out.shape == (n, m) and target is out and order == b"N")
    # (A B)' = B'A'
    _call("gemm", out.dtype, b_order, a_order, m, n, k, 1.0, b, b_leading, a, a_leading, beta, out, leading)


def gemv(a: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """``out = A x``, contiguous of shape (n,), whose precision is that of the computation."""
    _check(x.shape == a.shape[1:] and out.shape == a.shape[:1] and out.flags.c_contiguous)
    a, order, leading = _ordered(a, out.dtype)
    x = np.ascontiguousarray(x, out.dtype)
    rows, columns = a.shape[::-1] if order == b"N" else a.shape
    _call("gemv", out.dtype, b"T" if order == b"N" else b"N", rows, columns, 1.0, a, leading, x, 1, 0.0, out, 1)


def syrk(rows: np.ndarray, total: np.ndarray) -> None:
    """Add XᵀX to the lower triangle of ``total``, of shape (d, d), float64; arrays as in :func:`gemm`."""
    n, d = rows.shape
    rows, rows_order, rows_leading = _ordered(rows, np.dtype(np.float64))
    target, order, leading = _ordered(total, np.dtype(np.float64))
    _check(total.shape == (d, d) and target is total and order == b"N")
    _call("syrk", total.dtype, b"U", rows_order, d, n, 1.0, rows, rows_leading, 1.0, total, leading)


def trmm(lower: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """L x_n, shape (n, d), float64, for rows of shape (n, d) and lower triangular L."""
    images, lower = np.array(rows, np.float64, order="C"), np.ascontiguousarray(lower, np.float64)
    n, d = images.shape
    _check(lower.shape == (d, d))
    _call("trmm", images.dtype, b"L", b"U", b"T", b"N", d, n, 1.0, lower, max(1, d), images, max(1, d))
    return images


def _check(shapes_fit: bool) -> None:
    """BLAS itself would read beyond the end."""
    if not shapes_fit:
        raise ValueError("The shapes of the arrays do not fit together.")


def _ordered(array: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, bytes, int]:
    """The array, or a copy; what BLAS has to do to see its transpose, nothing if it is in order of C; from line to line."""
    array = np.asarray(array, dtype)
    (down, right), (n, m), size = array.strides, array.shape, array.itemsize
    if array.flags.c_contiguous:
        return array, b"N", max(1, m)
    if array.flags.f_contiguous:
        return array, b"T", max(1, n)
    # A table of more rows than BLAS counts, in order of Fortran, is copied: what a refusal depends on would be private.
    if right == size and m * size <= down <= _LARGEST * size and down % size == 0:
        return array, b"N", down // size
    if down == size and n * size <= right <= _LARGEST * size and right % size == 0:
        return array, b"T", right // size
    return np.ascontiguousarray(array), b"N", max(1, m)


def _call(name: str, dtype: np.dtype, *arguments) -> None:
    letter, real = _REAL[dtype]
    routine, integer = _ROUTINES[letter + name]
    kinds = {bytes: ctypes.c_char, int: integer, float: real}

    def pointer(value):
        if isinstance(value, np.ndarray):
            return ctypes.c_void_p(value.ctypes.data)
        if isinstance(value, int) and value > _LARGEST:
            raise ValueError(f"BLAS takes matrices of at most {_LARGEST} rows or columns.")
        return ctypes.byref(kinds[type(value)](value))

    routine(*map(pointer, arguments))


def _found(name: str) -> tuple:
    """A C function, all of whose arguments are pointers, and its type of integers."""
    found = LowLevelCallable.from_cython(cython_blas, name)
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    address = pointer_of(found.function, found.signature.encode())
    return ctypes.CFUNCTYPE(None)(address), ctypes.c_int if " int *" in found.signature else ctypes.c_int64


# At once: what is imported on the way must not be in a thread while another one forks.
_ROUTINES = {name: _found(name) for name in ("sgemm", "dgemm", "sgemv", "dgemv", "dsyrk", "dtrmm")}
