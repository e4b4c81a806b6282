"""Numba kernels of Gaussian components. Every record is computed by the same operations in the same order.

===========  ==================  =========================================================
symbol       name                meaning
===========  ==================  =========================================================
y_k          ``tile``            A_k x - c_k: the record in the coordinates of component k
A_k          ``rows[k]``         lower triangular, (d, d), the inverse of a Cholesky factor; or diagonal, (1, d)
c_k          ``shifts[k]``       A_k m_k
‖y_k‖²       ``squares[k]``
===========  ==================  =========================================================

Records are handled in tiles of ``TILE``, column by column, so that one instruction serves several records. Moments of a
component are packed: Σ r, Σ r y, and the lower triangle of Σ r y yᵀ row by row, or its diagonal.
"""

from __future__ import annotations

import numpy as np

# numba's cache notices changes of this file only, not of the inlined functions of lanes.py: version 9af7140d
from vips.core.exact.compiled import compiled
from vips.core.exact.lanes import (
    WIDTH,
    add_products,
    if_negative,
    load,
    load_rows,
    multiply_add_once,
    spread,
    store,
    store_transposed,
    times_power_of_two,
    widen,
    zeros,
)

__all__ = [
    "NOTHING",
    "TILE",
    "add_moments",
    "fill_densities",
    "fill_images",
    "fill_moments_of_runs",
    "fill_responsibilities",
    "fill_tied_squares",
]

_REGISTERS = 8
TILE = _REGISTERS * WIDTH
NOTHING = 1e-10  # smaller responsibilities are 0
# |x| less it is negative where x is 0, also where a process takes subnormal numbers, which are as good as 0 here, as 0
_LEAST = 2.2250738585072014e-308
_LEAST_LOG = -207.0  # of a density relative to the largest: about 10⁻⁹⁰
_LOG_2 = (0.693147180369123816490, 1.90821492927058770002e-10)  # the first has 32 bits, so that its multiples are exact
_TO_INTEGER = 6755399441055744.0  # 1.5 · 2⁵²: in the last bits of a sum with it stands the other number, rounded
_TAYLOR = tuple(1.0 / float(np.prod(np.arange(1.0, n + 1.0))) for n in range(12, -1, -1))

_jit = compiled(nogil=True, error_model="numpy")
_inner = compiled(nogil=True, error_model="numpy", no_cpython_wrapper=True)


@_inner
def _choose_run(first, last, chosen):
    """Rows ``first`` to ``last``, and -1 in places behind them."""
    for place in range(TILE):
        chosen[place] = first + place if first + place < last else -1


@_inner
def _gather(rows, chosen, places, columns):
    """The chosen rows, column by column; 0 where -1 stands for a row. For work: ``places`` (``WIDTH``,)."""
    m, n_rows = rows.shape[1], 0
    for place in range(TILE):
        n_rows += chosen[place] >= 0
    if m < WIDTH or n_rows < TILE:
        for place in range(TILE):
            row = chosen[place]
            for j in range(m):
                columns[j, place] = rows[row, j] if row >= 0 else 0.0
        return
    for begin in range(0, TILE, WIDTH):
        for i in range(WIDTH):
            places[i] = chosen[begin + i] * m
        for j in range(0, m, WIDTH):
            j = j if j + WIDTH < m else m - WIDTH  # the last eight columns overlap with those before
            store_transposed(columns, j * TILE + begin, TILE, widen(load_rows(rows, places, 0, j, zeros(rows, 1))))


@_inner
def _clear(columns, flaw):
    """``flaw`` is NaN for records of which a number is not finite, and else 0; all numbers of the former become 0."""
    nothing = zeros(columns, _REGISTERS)
    value = nothing
    for j in range(len(columns)):
        value = multiply_add_once(load(columns, j * TILE, nothing), nothing, value)
    store(flaw, 0, value)
    for j in range(len(columns)):
        store(columns, j * TILE, if_negative(value - 1.0, load(columns, j * TILE, nothing), nothing))


@_inner
def _fill(columns, A, shift, tile):
    """y of each record: ``tile[i]`` = Σ_{j ≤ i} A_ij x_j - c_i; of a diagonal A, A_i x_i - c_i."""
    d, like = len(columns), zeros(columns, _REGISTERS)
    for i in range(d):
        value = spread(-shift[i], like)
        if len(A) == d:
            for j in range(i + 1):
                value = multiply_add_once(spread(A[i, j], like), load(columns, j * TILE, like), value)
        else:
            value = multiply_add_once(spread(A[0, i], like), load(columns, i * TILE, like), value)
        store(tile, i * TILE, value)


@_inner
def _squares(tile, by_column, k, squares, sizes):
    """‖y‖² of each record, and ‖y yᵀ‖, which is the same, or with ``by_column`` the square of the norm of its diagonal."""
    nothing = zeros(tile, _REGISTERS)
    value, of_fourth = nothing, nothing
    for i in range(len(tile)):
        y = load(tile, i * TILE, nothing)
        value = multiply_add_once(y, y, value)
        if by_column:
            square = multiply_add_once(y, y, nothing)
            of_fourth = multiply_add_once(square, square, of_fourth)
    store(squares, k * TILE, value)
    store(sizes, k * TILE, of_fourth if by_column else value)


@_jit
def fill_images(X, rows, shifts, images):
    """y_nk of all records, shape (n_records, K, d)."""
    n, d = X.shape
    columns, tile, chosen = np.empty((d, TILE)), np.empty((d, TILE)), np.empty(TILE, np.int64)
    places = np.empty(WIDTH, np.int64)
    for first in range(0, n, TILE):
        _choose_run(first, n, chosen)
        _gather(X, chosen, places, columns)
        for k in range(len(rows)):
            _fill(columns, rows[k], shifts[k], tile)
            for place in range(min(TILE, n - first)):
                for i in range(d):
                    images[first + place, k, i] = tile[i, place]


@_inner
def _exponentials(values):
    """exp of numbers from -207 to 0, in place: 2ⁿ times Taylor's sum at x - n log 2, where |x - n log 2| ≤ ½ log 2."""
    like = zeros(values, _REGISTERS)
    to_integer = spread(_TO_INTEGER, like)
    for row in range(len(values)):
        x = max(load(values, row * TILE, like), _LEAST_LOG)
        last_bits = multiply_add_once(x, spread(1.4426950408889634, like), to_integer)
        n = last_bits - to_integer
        x = multiply_add_once(n, spread(-_LOG_2[0], like), x)
        x = multiply_add_once(n, spread(-_LOG_2[1], like), x)
        y = spread(1.0 / 6227020800.0, like)
        for coefficient in _TAYLOR:
            y = multiply_add_once(x, y, spread(coefficient, like))
        store(values, row * TILE, times_power_of_two(y, last_bits))


@_inner
def _fill_densities(columns, rows, shifts, constants, excess, tail, by_column, tile, squares, sizes, values, top):
    """exp of log p(x, k) - ``top``, the largest of each record."""
    d, K, nothing = len(columns), len(constants), zeros(columns, _REGISTERS)
    minus_half, largest = spread(-0.5, nothing), spread(-np.inf, nothing)
    for k in range(K):
        _fill(columns, rows[k], shifts[k], tile)
        _squares(tile, by_column, k, squares, sizes)
        if by_column:
            for place in range(TILE):
                sizes[k, place] = np.sqrt(sizes[k, place])
        distances = load(squares, k * TILE, nothing) + excess[k]
        store(values, k * TILE, multiply_add_once(distances, minus_half, nothing) + constants[k])
        if tail[k] > 0.0:
            for place in range(TILE):
                distance = squares[k, place] + excess[k]
                values[k, place] = constants[k] - 0.5 * (tail[k] + d) * np.log1p(distance / tail[k])
        largest = max(load(values, k * TILE, nothing), largest)
    store(top, 0, largest)
    for k in range(K):
        store(values, k * TILE, load(values, k * TILE, nothing) - largest)
    _exponentials(values)


@_jit
def fill_densities(
    X, rows, shifts, constants, excess, tail, by_column, start, stop, tiles, by_state, by_place, chosen, places, likely,
    log_scale, is_missing,
):  # fmt: skip
    """Densities of steps ``start`` to ``stop``, over the largest of each step, at least 10⁻⁹⁰, and its logarithm; 0 where the
    constant is -inf. A step of which a number is not finite is missing: it has 1 in place of densities.

    For work: ``tiles`` (2, d, ``TILE``), ``by_state`` (3, K, ``TILE``), ``by_place`` (2, ``TILE``), ``chosen`` (``TILE``,),
    ``places`` (``WIDTH``,).
    """
    K, columns, values, top, flaw = len(shifts), tiles[0], by_state[2], by_place[0], by_place[1]
    for first in range(start, stop, TILE):
        _choose_run(first, stop, chosen)
        _gather(X, chosen, places, columns)
        _clear(columns, flaw)
        _fill_densities(
            columns, rows, shifts, constants, excess, tail, by_column, tiles[1], by_state[0], by_state[1], values, top
        )
        for place in range(TILE):
            n = chosen[place]
            if n < 0:
                break
            is_missing[n] = flaw[place] != 0.0
            log_scale[n] = 0.0 if is_missing[n] else top[place]
            for k in range(K):
                value = values[k, place] if constants[k] > -np.inf else 0.0
                likely[n, k] = 1.0 if is_missing[n] and constants[k] > -np.inf else value


@_jit
def fill_responsibilities(
    X, rows, shifts, constants, excess, tail, inverses, by_column, start, stop, shares, factors, log_scale, totals, norms,
):  # fmt: skip
    """r_nk and E[u_nk] of records ``start`` to ``stop``, shape (K, n_records), and log Σ_k exp E log p(x_n, k) in two parts:
    ``log_scale`` and what ``totals`` is the exponential of.

    ``factors`` has no entries where components are Gaussian. ``norms``: Σ_k of r², (r u)², (r u)² ‖y‖² and (r u)² ‖y yᵀ‖², or
    with ``by_column`` that of its diagonal, each times its number in ``inverses``; NaN if a number is not finite.
    """
    (K, d), flat = shifts.shape, (len(shifts), TILE)
    columns, tile, chosen = np.empty((d, TILE)), np.empty((d, TILE)), np.empty(TILE, np.int64)
    places = np.empty(WIDTH, np.int64)
    squares, sizes, values = np.empty(flat), np.empty(flat), np.empty(flat)
    top, total, norm, factor = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.ones(TILE)
    of_count, of_weight, of_linear, of_second = inverses[0], inverses[1], inverses[2], inverses[3]
    for first in range(start, stop, TILE):
        last = min(TILE, stop - first)
        _choose_run(first, stop, chosen)
        _gather(X, chosen, places, columns)
        _clear(columns, norm)
        _fill_densities(columns, rows, shifts, constants, excess, tail, by_column, tile, squares, sizes, values, top)
        for place in range(TILE):
            total[place] = 0.0
        for k in range(K):
            for place in range(TILE):
                total[place] += values[k, place]
        for k in range(K):
            if tail[k] > 0.0:
                for place in range(TILE):
                    factor[place] = (tail[k] + d) / (tail[k] + squares[k, place] + excess[k])
                for place in range(last):
                    factors[k, first + place] = factor[place]
            for place in range(TILE):
                share = values[k, place] / total[place]
                share = share if share >= NOTHING else 0.0
                values[k, place] = share
                norm[place] += share * share * of_count
                share *= factor[place]
                size = share * sizes[k, place]  # squares of very small and very large numbers would not be numbers
                norm[place] += share * share * of_weight + share * (share * squares[k, place]) * of_linear
                norm[place] += size * size * of_second
            for place in range(last):
                shares[k, first + place] = values[k, place]
        for place in range(last):
            n = first + place
            log_scale[n], totals[n], norms[n] = top[place], total[place], norm[place]


@_jit
def fill_tied_squares(X, rows, shifts, weights, start, stop, squares):
    """‖Σ_k w_nk y_nk y_nkᵀ‖² = Σ_jk (z_jᵀ z_k)², z = √w y, of records ``start`` to ``stop``, with w of shape (K, n_records)."""
    K, d = shifts.shape
    columns, tiles, chosen = np.empty((d, TILE)), np.empty((K * d, TILE)), np.empty(TILE, np.int64)
    products, roots, places = np.empty((1, TILE)), np.zeros(TILE), np.empty(WIDTH, np.int64)
    nothing = zeros(columns, _REGISTERS)
    for first in range(start, stop, TILE):
        last = min(TILE, stop - first)
        _choose_run(first, stop, chosen)
        _gather(X, chosen, places, columns)
        for place in range(last):
            squares[first + place] = 0.0
        for j in range(K):
            _fill(columns, rows[j], shifts[j], tiles[j * d : (j + 1) * d])
            for place in range(last):
                roots[place] = np.sqrt(weights[j, first + place])
            for i in range(j * d, (j + 1) * d):
                for place in range(TILE):
                    tiles[i, place] *= roots[place]
            for k in range(j + 1):
                value = nothing
                for i in range(d):
                    z = load(tiles, (j * d + i) * TILE, nothing)
                    value = multiply_add_once(z, load(tiles, (k * d + i) * TILE, nothing), value)
                store(products, 0, value)
                times = 1.0 if j == k else 2.0
                for place in range(last):
                    squares[first + place] += times * products[0, place] * products[0, place]


@_inner
def _add_tile(tile, is_full, shares, k, lanes, start):
    """Add the packed moments of a tile's records, eight sums each: one for each lane of a register.

    What is added is y times its record's share; 0, and 0 in place of y, where the share is 0."""
    d, like, one = len(tile), zeros(tile, _REGISTERS), zeros(tile, 1)
    ones, share = spread(1.0, like), load(shares, k * TILE, like)
    place = start * WIDTH
    store(lanes, place, add_products(share, ones, load(lanes, place, one)))
    second = place + (1 + d) * WIDTH
    for i in range(d):
        y = if_negative(abs(share) - _LEAST, like, load(tile, i * TILE, like))
        weighted = multiply_add_once(y, share, like)
        place += WIDTH
        store(lanes, place, add_products(weighted, ones, load(lanes, place, one)))
        if not is_full:
            store(lanes, second, add_products(weighted, y, load(lanes, second, one)))
            second += WIDTH
            continue
        store(tile, i * TILE, y)
        for j in range(i + 1):
            store(lanes, second, add_products(weighted, load(tile, j * TILE, like), load(lanes, second, one)))
            second += WIDTH


@_jit
def add_moments(X, rows, shifts, weights, shares, factors, first, last, count, moments):
    """Add Σ_n w_nk, and packed moments with the weights w_nk u_nk, for components ``first`` to ``last``.

    w_nk is weight times share, of shape (K, n_records); records for which it is 0 are left out.
    """
    n, d = X.shape
    columns, tile, places = np.empty((d, TILE)), np.empty((d, TILE)), np.empty(WIDTH, np.int64)
    portions, chosen, lanes = np.empty((1, TILE)), np.empty(n + TILE, np.int64), np.empty((moments.shape[1], WIDTH))
    for k in range(first, last):
        n_chosen = 0
        for row in range(n):
            chosen[n_chosen] = row
            n_chosen += (weights[row] != 0.0) & (shares[k, row] != 0.0)
        for place in range(n_chosen, n_chosen + TILE):
            chosen[place] = -1
        for e in range(len(lanes)):
            for lane in range(WIDTH):
                lanes[e, lane] = 0.0
        for begin in range(0, n_chosen, TILE):
            rows_of_tile = chosen[begin : begin + TILE]
            _gather(X, rows_of_tile, places, columns)
            for place in range(TILE):
                row = rows_of_tile[place]
                portion = weights[row] * shares[k, row] if row >= 0 else 0.0
                count[k] += portion
                portions[0, place] = portion * factors[k, row] if len(factors) and row >= 0 else portion
            _fill(columns, rows[k], shifts[k], tile)
            _add_tile(tile, rows.shape[1] == d, portions, 0, lanes, 0)
        for e in range(len(lanes)):
            for lane in range(WIDTH):
                moments[k, e] += lanes[e, lane]


@_jit
def fill_moments_of_runs(
    X, shares, rows, shifts, starts, lengths, order, largest, inverses, centre, first, last, tiles, by_state, norm, chosen,
    places, lanes, moments,
):  # fmt: skip
    """Packed moments of runs of steps in each state, shape (n_runs, K, n_entries), with ‖y‖² - ``centre`` in place of y_i².

    A step's shares are those in ``shares``, shape (n_steps, K), times h: 1, or ``largest`` over the norm of the step's own
    moments, of which ``inverses`` has the squares of the inverse scales. Group g has the runs ``order[8 g]`` to
    ``order[8 g + 7]``, which ascend in length, one in each lane. For work: ``tiles`` (K + 1, d, ``TILE``), ``by_state``
    (3, K, ``TILE``), ``norm`` and ``chosen`` (``TILE``,), ``places`` (``WIDTH``,), ``lanes`` (K n_entries, ``WIDTH``).
    """
    K, d = shifts.shape
    is_full, n_entries = rows.shape[1] == d, moments.shape[2]
    columns, portions, squares, sizes = tiles[K], by_state[0], by_state[1], by_state[2]
    nothing, of_square, of_size = zeros(tiles, _REGISTERS), inverses[1], inverses[2]
    for g in range(first, last):
        stop = (g + 1) * WIDTH
        stop = stop if stop < len(order) else len(order)
        for e in range(len(lanes)):
            store(lanes, e * WIDTH, zeros(lanes, 1))
        for begin in range(0, lengths[order[stop - 1]], _REGISTERS):
            for lane in range(WIDTH):
                run, n_left = 0, 0
                if g * WIDTH + lane < stop:
                    run = order[g * WIDTH + lane]
                    n_left = lengths[run] - begin
                for t in range(_REGISTERS):
                    chosen[t * WIDTH + lane] = starts[run] + begin + t if t < n_left else -1
            _gather(X, chosen, places, columns)
            _gather(shares, chosen, places, portions)
            store(norm, 0, nothing)
            for k in range(K):
                if not _has_shares(portions, k):
                    continue
                _fill(columns, rows[k], shifts[k], tiles[k])
                if largest < np.inf:
                    _squares(tiles[k], not is_full, k, squares, sizes)
                    size, share = load(sizes, k * TILE, nothing), load(portions, k * TILE, nothing)
                    length = multiply_add_once(load(squares, k * TILE, nothing), spread(of_square, nothing), nothing)
                    size = multiply_add_once(size, size, nothing) if is_full else size
                    length = length + inverses[0] + multiply_add_once(size, spread(of_size, nothing), nothing)
                    length = multiply_add_once(multiply_add_once(share, share, nothing), length, nothing)
                    length = if_negative(abs(share) - _LEAST, nothing, length)
                    store(norm, 0, load(norm, 0, nothing) + length)
            if largest < np.inf:
                for place in range(TILE):
                    length = np.sqrt(norm[place])
                    norm[place] = largest / (largest if largest > length else length)
                for k in range(K):
                    share = load(portions, k * TILE, nothing)
                    store(portions, k * TILE, multiply_add_once(share, load(norm, 0, nothing), nothing))
            for k in range(K):
                if _has_shares(portions, k):
                    _add_tile(tiles[k], is_full, portions, k, lanes, k * n_entries)
        for lane in range(stop - g * WIDTH):
            run = order[g * WIDTH + lane]
            for k in range(K):
                for e in range(n_entries):
                    moments[run, k, e] = lanes[k * n_entries + e, lane]
                e = d
                for i in range(d):
                    e += i + 1 if is_full else 1
                    moments[run, k, e] -= centre * moments[run, k, 0]


@_inner
def _has_shares(portions, k):
    """Whether a share is not 0."""
    n_present = 0
    for place in range(TILE):
        n_present += portions[k, place] != 0.0
    return n_present > 0
