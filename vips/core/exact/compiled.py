"""Compiled functions, which numba keeps in a file where it finds a place to write one, and memory for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from vips._support.kept_kernels import with_cache

__all__ = ["FASTMATH", "aligned", "compiled"]

# Products may be fused and sums reordered; NaN and inf keep their meaning, because bad records rely on it.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

_LINE = 64  # bytes of a line of a cache


def compiled(**settings: Any) -> Callable[[Callable], Callable]:
    """``numba.njit`` with a cache, or without one: in a package that cannot be written, for a user without a home."""
    settings = {"no_cfunc_wrapper": True} | settings  # takes time, and nobody calls it
    return lambda function: with_cache(function, settings)


def aligned(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> np.ndarray:
    """An array, not filled in, whose first entry begins a line of the cache: a register's entries are then in one line, and not
    in two, which takes longer."""
    kind, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else shape
    n_bytes = math.prod(shape) * kind.itemsize
    memory = np.empty(n_bytes + _LINE, np.uint8)
    first = -memory.__array_interface__["data"][0] % _LINE
    return memory[first : first + n_bytes].view(kind).reshape(shape)
