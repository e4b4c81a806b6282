"""A matrix product in registers: four rows and a panel of columns at a time, from the first term to the last.

Every entry of the result takes the same operations in the same order, each rounded as IEEE 754 says, wherever its row lies.
"""

from __future__ import annotations

import numba

# numba looks for changes in this file only, and not in what it inlines of lanes.py: version 9af7140d
from vips.core.exact.compiled import compiled
from vips.core.exact.lanes import load, multiply_add_once, spread, store, zeros

TILE = 4

_jit = compiled(nogil=True, error_model="numpy")


@numba.njit(nogil=True, error_model="numpy", inline="always")
def _multiply(a, panels, out, nothing):
    """``out`` of shape (n, n_panels · width) from ``a`` (n, k), n a multiple of 4, and ``panels`` (n_panels, k, width)."""
    n_panels, n_terms, width = panels.shape
    for p in range(n_panels):
        for n in range(0, len(a), 4):
            sum0, sum1, sum2, sum3 = nothing, nothing, nothing, nothing
            row0, row1, row2, row3 = a[n], a[n + 1], a[n + 2], a[n + 3]
            start = p * n_terms * width
            for k in range(n_terms):
                terms = load(panels, start + k * width, nothing)
                sum0 = multiply_add_once(spread(row0[k], nothing), terms, sum0)
                sum1 = multiply_add_once(spread(row1[k], nothing), terms, sum1)
                sum2 = multiply_add_once(spread(row2[k], nothing), terms, sum2)
                sum3 = multiply_add_once(spread(row3[k], nothing), terms, sum3)
            line, place = out.shape[1], n * out.shape[1] + p * width
            store(out, place, sum0)
            store(out, place + line, sum1)
            store(out, place + 2 * line, sum2)
            store(out, place + 3 * line, sum3)


@_jit
def multiply_single(a, panels, out):
    """Product of float32, panels of 16 columns."""
    _multiply(a, panels, out, zeros(panels, 2))


@_jit
def multiply_double(a, panels, out):
    """Product of float64, panels of 8 columns."""
    _multiply(a, panels, out, zeros(panels, 1))
