"""Numba kernels of Gaussian mixtures. Every record is computed by the same operations in the same order.

===========  ==================  =========================================================
symbol       name                meaning
===========  ==================  =========================================================
y_k          ``tile``            A_k x - c_k: the record in the coordinates of component k
A_k          ``rows[k]``         lower triangular, (d, d), the inverse of a Cholesky factor; or diagonal, (1, d)
c_k          ``shifts[k]``       A_k m_k
‖y_k‖²       ``squares[n, k]``
===========  ==================  =========================================================

Records are handled in tiles of ``TILE``, column by column, so that one instruction serves several records.
"""

from __future__ import annotations

import numpy as np

# numba's cache notices changes of this file only, not of the inlined functions of lanes.py: version 46f60c9a
from vips._compute.compiled import compiled
from vips._compute.lanes import WIDTH, add_products, load, multiply_add_once, spread, store, total, zeros

__all__ = ["NOTHING", "TILE", "add_moments", "images", "responsibilities", "squares_of"]

_REGISTERS = 4
_PIECE = _REGISTERS * WIDTH
TILE = 4 * _PIECE
NOTHING = 1e-10  # smaller responsibilities are 0
_FAR = -40.0  # logarithm of what is certainly nothing

_jit = compiled(nogil=True, error_model="numpy")


@_jit
def _gather(X, chosen, columns):
    """The chosen rows, column by column; places without a row are 0."""
    n, d = len(chosen), X.shape[1]
    for place in range(n):
        for j in range(d):
            columns[j, place] = X[chosen[place], j]
    columns[:, n:] = 0.0


@_jit
def _fill(columns, A, shift, tile):
    """y of each record: ``tile[i]`` = Σ_{j ≤ i} A_ij x_j - c_i; of a diagonal A, A_i x_i - c_i."""
    d = len(columns)
    like = zeros(columns, _REGISTERS)
    for start in range(0, TILE, _PIECE):
        for i in range(d):
            value = spread(-shift[i], like)
            if len(A) == d:
                for j in range(i + 1):
                    value = multiply_add_once(spread(A[i, j], like), load(columns, j * TILE + start, like), value)
            else:
                value = multiply_add_once(spread(A[0, i], like), load(columns, i * TILE + start, like), value)
            store(tile, i * TILE + start, value)


@_jit
def _squares(tile, power, sums):
    """Σ_i y_i² of each record, or Σ_i y_i⁴."""
    like = zeros(tile, _REGISTERS)
    nothing = zeros(tile, _REGISTERS)
    for start in range(0, TILE, _PIECE):
        value = nothing
        for i in range(len(tile)):
            y = load(tile, i * TILE + start, like)
            if power == 4:
                y = multiply_add_once(y, y, nothing)
            value = multiply_add_once(y, y, value)
        store(sums, start, value)


@_jit
def squares_of(X, rows, shifts, power, start, stop, squares):
    """Σ_i y_nki² of records ``start`` to ``stop``; the sum of fourth powers if ``power`` is 4."""
    d = X.shape[1]
    columns, tile, sums = np.empty((d, TILE)), np.empty((d, TILE)), np.empty(TILE)
    for first in range(start, stop, TILE):
        last = min(first + TILE, stop)
        _gather(X, np.arange(first, last), columns)
        for k in range(len(rows)):
            _fill(columns, rows[k], shifts[k], tile)
            _squares(tile, power, sums)
            squares[first:last, k] = sums[: last - first]


@_jit
def images(X, rows, shifts, values):
    """y_nk of all records, shape (n_records, K, d)."""
    n, d = X.shape
    columns, tile = np.empty((d, TILE)), np.empty((d, TILE))
    for first in range(0, n, TILE):
        last = min(first + TILE, n)
        _gather(X, np.arange(first, last), columns)
        for k in range(len(rows)):
            _fill(columns, rows[k], shifts[k], tile)
            values[first:last, k] = tile[:, : last - first].T


@_jit
def _weighted(tile, shares, weighted):
    """Each y times its record's share."""
    like = zeros(tile, _REGISTERS)
    nothing = zeros(tile, _REGISTERS)
    for start in range(0, TILE, _PIECE):
        share = load(shares, start, like)
        for i in range(len(tile)):
            y = load(tile, i * TILE + start, like)
            store(weighted, i * TILE + start, multiply_add_once(y, share, nothing))


@_jit
def _dot(a, i, b, j):
    """Σ over the records of a tile of a_i b_j."""
    like, value = zeros(a, _REGISTERS), zeros(a, 1)
    for start in range(0, TILE, _PIECE):
        value = add_products(load(a, i * TILE + start, like), load(b, j * TILE + start, like), value)
    return total(value)


@_jit
def _exponentials(values):
    """exp of numbers from -40 to 0, in place, to 1e-13: (Taylor's sum at x/64)^64, which serves several numbers at a time."""
    for i in range(len(values)):
        x = values[i] if values[i] > _FAR else _FAR
        x *= 0.015625
        y = 1.0 + x * (1.0 / 14.0)
        y = 1.0 + x * (1.0 / 13.0) * y
        y = 1.0 + x * (1.0 / 12.0) * y
        y = 1.0 + x * (1.0 / 11.0) * y
        y = 1.0 + x * (1.0 / 10.0) * y
        y = 1.0 + x * (1.0 / 9.0) * y
        y = 1.0 + x * (1.0 / 8.0) * y
        y = 1.0 + x * (1.0 / 7.0) * y
        y = 1.0 + x * (1.0 / 6.0) * y
        y = 1.0 + x * (1.0 / 5.0) * y
        y = 1.0 + x * (1.0 / 4.0) * y
        y = 1.0 + x * (1.0 / 3.0) * y
        y = 1.0 + x * (1.0 / 2.0) * y
        y = 1.0 + x * y
        y *= y
        y *= y
        y *= y
        y *= y
        y *= y
        values[i] = y * y


@_jit
def responsibilities(squares, constants, excess, tail, n_columns, start, stop, shares, factors, log_likelihood, sums):
    """r_nk, E[u_nk] and log Σ_k exp E log p(x_n, k) of records ``start`` to ``stop``, from ‖y_nk‖².

    ``sums[n]``: Σ_k r², Σ_k (r u)², Σ_k (r u)² ‖y‖² and Σ_k (r u)² ‖y‖⁴. ``factors`` has no entries where components are
    Gaussian.
    """
    n_components = len(constants)
    for n in range(start, stop):
        row, top = shares[n], -np.inf
        for k in range(n_components):
            distance = squares[n, k] + excess[k]
            if tail[k] > 0.0:
                row[k] = constants[k] - 0.5 * (tail[k] + n_columns) * np.log1p(distance / tail[k])
                factors[n, k] = (tail[k] + n_columns) / (tail[k] + distance)
            else:
                row[k] = constants[k] - 0.5 * distance
            top = max(top, row[k])
        for k in range(n_components):
            row[k] -= top
        log_likelihood[n] = top
    _exponentials(shares[start:stop].reshape(-1))
    for n in range(start, stop):
        row, sums_of_record, total = shares[n], sums[n], 0.0
        for k in range(n_components):
            total += row[k]
        log_likelihood[n] += np.log(total)
        inverse = 1.0 / total
        sums_of_record[:] = 0.0
        for k in range(n_components):
            share = row[k] * inverse
            share = share if share >= NOTHING else 0.0
            row[k] = share
            sums_of_record[0] += share * share
            if tail[k] > 0.0:
                share *= factors[n, k]
            square = share * squares[n, k]
            sums_of_record[1] += share * share
            sums_of_record[2] += share * square
            sums_of_record[3] += square * square


@_jit
def add_moments(X, rows, shifts, weights, shares, factors, first, last, count, weight, linear, second):
    """Add sums of w_nk, and of w_nk u_nk times 1, y and y yᵀ, for components ``first`` to ``last``.

    w_nk is weight times share; records for which it is 0 are left out. ``second`` has the shape of ``rows``: (K, d, d), of
    which the lower triangle is written, or (K, 1, d) for the diagonal only.
    """
    n, d = X.shape
    columns, tile, weighted = np.empty((d, TILE)), np.empty((d, TILE)), np.empty((d, TILE))
    share, chosen, ones = np.empty((1, TILE)), np.empty(TILE, np.int64), np.ones((1, TILE))
    for k in range(first, last):
        n_chosen = 0
        for row in range(n + 1):
            if row < n and weights[row] != 0.0 and shares[row, k] != 0.0:
                chosen[n_chosen] = row
                portion = weights[row] * shares[row, k]
                count[k] += portion
                if len(factors):
                    portion *= factors[row, k]
                    weight[k] += portion
                share[0, n_chosen] = portion
                n_chosen += 1
            if n_chosen == TILE or (row == n and n_chosen > 0):
                _gather(X, chosen[:n_chosen], columns)
                share[0, n_chosen:] = 0.0
                _fill(columns, rows[k], shifts[k], tile)
                _weighted(tile, share, weighted)
                for i in range(d):
                    linear[k, i] += _dot(weighted, i, ones, 0)
                    if second.shape[1] == d:
                        for j in range(i + 1):
                            second[k, i, j] += _dot(weighted, i, tile, j)
                    else:
                        second[k, 0, i] += _dot(weighted, i, tile, i)
                n_chosen = 0
