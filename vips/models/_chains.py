"""The forward-backward algorithm for Markov chains, on eight sequences at a time: one in each lane of a register.

Lanes are independent: a sequence's result does not depend on the others in its batch. Sequences of a batch are of about the
same length; lanes whose sequence has ended are computed on, and left out.
"""

from __future__ import annotations

import numpy as np

# numba's cache notices changes of this file only, not of the inlined functions of lanes.py: version 9af7140d
from vips._compute.compiled import compiled
from vips._compute.lanes import (
    WIDTH,
    if_negative,
    load,
    load_rows,
    multiply_add_once,
    narrow,
    spread,
    store,
    store_transposed,
    zeros,
)
from vips._compute.threads import run_ranges

__all__ = ["inferred"]

_TINY = {np.float64: 1e-290, np.float32: 1e-36}  # of a probability given the steps so far
_LEAST_SINGLE = 1e-18  # the product of two of them is a number in single precision
_LEAST_STEPS = 2_000  # below it, one thread

_jit = compiled(nogil=True, error_model="numpy")
_inner = compiled(nogil=True, error_model="numpy", no_cpython_wrapper=True)


def inferred(
    offsets: np.ndarray,
    start: np.ndarray,
    moves: np.ndarray,
    likely: np.ndarray,
    log_scale: np.ndarray,
    least: float = 0.0,
    dtype: type = np.float64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities of the states given each sequence.

    Parameters
    ----------
    offsets : ndarray of int64, shape (n_sequences + 1,)
    start, moves : ndarray of shape (K,), (K, K)
        Of states, and of moves from the state in the row; they need not be normalised.
    likely : ndarray of shape (n_steps, K)
        In proportion to the probability of each step in each state.
    log_scale : ndarray of shape (n_steps,)
        Logarithm of that factor.
    least : float
        Probabilities below it become 0 in ``shares``.
    dtype : {np.float64, np.float32}
        Of the recursion, and of what it returns but log likelihoods. In single precision all that is possible has at least
        10⁻¹⁸ times the probability of what is most probable.

    Returns
    -------
    shares : ndarray of shape (n_steps, K)
    pairs : ndarray of shape (n_sequences, K, K)
        Σ_t of the probabilities of the states at t - 1 and t.
    log_likelihood : ndarray of shape (n_sequences,)
    """
    n_steps, K = likely.shape
    lengths = np.diff(offsets)
    shares, pairs = np.empty((n_steps, K), dtype), np.empty((len(lengths), K, K), dtype)
    log_likelihood = np.empty(len(lengths))
    floor = _LEAST_SINGLE if dtype == np.float32 else 0.0
    start, moves = (
        np.where(chances > 0.0, np.maximum(chances, floor), 0.0).astype(dtype) for chances in (start, moves)
    )
    order = np.argsort(lengths, kind="stable")
    ends = np.append(np.arange(0, len(lengths), WIDTH), len(lengths))
    work = np.concatenate([[0], np.cumsum(lengths[order])])[ends]

    tiny, above = dtype(_TINY[dtype]), np.nextafter(dtype(least), dtype(-1.0))

    def infer_range(first: int, last: int) -> None:
        _forward_backward(
            order,
            offsets,
            first,
            last,
            start,
            moves,
            likely,
            floor,
            log_scale,
            above,
            tiny,
            shares,
            pairs,
            log_likelihood,
        )

    run_ranges(infer_range, work, least_work=_LEAST_STEPS)
    return shares, pairs, log_likelihood


@_jit
def _forward_backward(
    order, offsets, first, last, start, moves, likely, floor, log_scale, above, tiny, shares, pairs, log_likelihood
):
    """For groups ``first`` to ``last`` of eight sequences: P(state at t), shape (n_steps, K), 0 where it is not ``above``;
    Σ_t P(states at t - 1 and t), shape (n, K, K); and log likelihoods, shape (n,).

    ``likely[t, k]`` is in proportion to the probability of what is seen at step t in state k, with the logarithm of that factor
    in ``log_scale[t]``; what is below ``floor``, but not 0, counts as ``floor``. Group g has the sequences ``order[8 g]`` to
    ``order[8 g + 7]``, which ascend in length.
    """
    K = len(start)
    size = 1
    for g in range(first, last):
        n = order[min((g + 1) * WIDTH, len(order)) - 1]
        size = max(size, offsets[n + 1] - offsets[n])
    dtype = start.dtype
    # kernels read and write eight rows at a time, some of which may lie behind the last one
    seen, filtered = np.empty((size + WIDTH, K * WIDTH), dtype), np.empty((size + WIDTH, K * WIDTH), dtype)
    n_padded = -(-K // WIDTH) * WIDTH
    places, tile = np.empty(WIDTH, np.int64), np.empty(n_padded * WIDTH, dtype)
    totals, ended = np.empty((size, WIDTH), dtype), np.empty((size, WIDTH), dtype)
    ahead, behind, pair = np.empty(K * WIDTH, dtype), np.empty(K * WIDTH, dtype), np.empty((K, K * WIDTH), dtype)
    for g in range(first, last):
        members = order[g * WIDTH : (g + 1) * WIDTH]
        longest = offsets[members[-1] + 1] - offsets[members[-1]]
        _gather(members, offsets, likely, floor, longest, n_padded, places, seen, ended)
        _forward(start, moves, longest, seen, filtered, totals)
        _add_logs(members, offsets, totals, log_scale, log_likelihood)
        _backward(moves, longest, seen, filtered, totals, ended, tiny, ahead, behind, pair)
        _write(members, offsets, moves, longest, n_padded, filtered, pair, above, tile, shares, pairs)


@_inner
def _gather(members, offsets, likely, floor, longest, n_padded, places, seen, ended):
    """``seen[t, k, lane]``; 1 behind the end of a sequence, where ``ended`` is 1."""
    K = likely.shape[1]
    nothing, one, wide = zeros(seen, 1), spread(1.0, zeros(seen, 1)), zeros(likely, 1)
    for t in range(longest):
        last, n_ended = 0, 0
        for lane in range(WIDTH):
            step = offsets[members[lane]] + t if lane < len(members) else 0
            is_over = lane >= len(members) or step >= offsets[members[lane] + 1]
            ended[t, lane] = 1.0 if is_over else 0.0
            places[lane] = 0 if is_over else step * K
            last, n_ended = max(last, places[lane]), n_ended + is_over
        if last + n_padded <= likely.size:  # eight entries may be some of the next row, too, which overwrites them
            for k in range(0, K, WIDTH):
                rows = narrow(load_rows(likely, places, 0, k, wide), nothing)
                store_transposed(seen, (t * K + k) * WIDTH, WIDTH, rows)
        else:
            for lane in range(WIDTH):
                for k in range(K):
                    seen[t, k * WIDTH + lane] = likely[places[lane] // K, k]
        if n_ended > 0 or floor > 0.0:
            running = load(ended, t * WIDTH, nothing) * -1.0
            for place in range(t * K * WIDTH, (t + 1) * K * WIDTH, WIDTH):
                value = load(seen, place, nothing)
                store(seen, place, if_negative(running, one, if_negative(value * -1.0, max(value, floor), value)))


@_inner
def _forward(start, moves, longest, seen, filtered, totals):
    """P(state at t | what is seen up to t), and the factor by which each step was divided."""
    K = len(start)
    nothing, one = zeros(seen, 1), spread(1.0, zeros(seen, 1))
    for t in range(longest):
        total = nothing
        for k in range(K):
            if t == 0:
                value = spread(start[k], nothing)
            else:
                value = nothing
                for i in range(K):
                    before = load(filtered, ((t - 1) * K + i) * WIDTH, nothing)
                    value = multiply_add_once(before, spread(moves[i, k], nothing), value)
            value = multiply_add_once(value, load(seen, (t * K + k) * WIDTH, nothing), nothing)
            store(filtered, (t * K + k) * WIDTH, value)
            total = multiply_add_once(value, one, total)
        store(totals, t * WIDTH, total)
        inverse = one / total
        for k in range(K):
            place = (t * K + k) * WIDTH
            store(filtered, place, multiply_add_once(load(filtered, place, nothing), inverse, nothing))


@_inner
def _add_logs(members, offsets, totals, log_scale, log_likelihood):
    for lane in range(len(members)):
        a, b = offsets[members[lane]], offsets[members[lane] + 1]
        log_total, product = 0.0, 1.0
        for t in range(b - a):
            log_total += log_scale[a + t]
            product *= totals[t, lane]
            if not (product > 1e-100):
                log_total += np.log(product)
                product = 1.0
        log_likelihood[members[lane]] = log_total + np.log(product)


@_inner
def _backward(moves, longest, seen, filtered, totals, ended, tiny, ahead, behind, pair):
    """P(state at t | the whole sequence) in place of ``filtered``; and Σ_t of the products that ``moves`` turns into pairs.

    A state that is less probable than ``tiny`` given the steps so far cannot be the one: its share becomes 0, so that what
    follows from it later does not grow beyond all numbers.
    """
    K, largest = len(moves), 1.0 / tiny
    nothing, one = zeros(seen, 1), spread(1.0, zeros(seen, 1))
    minus = spread(-1.0, nothing)
    for place in range(K * WIDTH):
        behind[place] = 1.0
        for i in range(K):
            pair[i, place] = 0.0
    for t in range(longest - 1, 0, -1):
        is_ended = load(ended, t * WIDTH, nothing)
        inverse = multiply_add_once(is_ended, minus, one) / load(totals, t * WIDTH, nothing)
        for k in range(K):
            after = multiply_add_once(
                load(behind, k * WIDTH, nothing), load(seen, (t * K + k) * WIDTH, nothing), nothing
            )
            after = multiply_add_once(after, inverse, nothing)
            store(ahead, k * WIDTH, if_negative(largest - after, spread(largest, nothing), after))
        for i in range(K):
            place = ((t - 1) * K + i) * WIDTH
            before, value = load(filtered, place, nothing), is_ended
            for k in range(K):
                after = load(ahead, k * WIDTH, nothing)
                sums = load(pair, (i * K + k) * WIDTH, nothing)
                store(pair, (i * K + k) * WIDTH, multiply_add_once(before, after, sums))
                value = multiply_add_once(after, spread(moves[i, k], nothing), value)
            value = if_negative(tiny - before, value, nothing)
            store(behind, i * WIDTH, value)
            store(filtered, place, multiply_add_once(before, value, nothing))


@_inner
def _write(members, offsets, moves, longest, n_padded, filtered, pair, above, tile, shares, pairs):
    K, nothing, eight = len(moves), zeros(filtered, 1), zeros(filtered, 8)
    for t in range(longest):
        for k in range(0, K, WIDTH):
            rows = load(filtered, (t * K + k) * WIDTH, eight)
            store_transposed(tile, k, n_padded, if_negative(spread(above, eight) - rows, rows, eight))
        for lane in range(len(members)):
            step, end = offsets[members[lane]] + t, offsets[members[lane] + 1]
            if step * K + n_padded <= end * K:  # what is behind the row belongs to later steps of the sequence
                for k in range(0, K, WIDTH):
                    store(shares, step * K + k, load(tile, lane * n_padded + k, nothing))
            elif step < end:
                for k in range(K):
                    shares[step, k] = tile[lane * n_padded + k]
    for lane in range(len(members)):
        n = members[lane]
        for i in range(K):
            for k in range(K):
                is_empty = offsets[n + 1] == offsets[n]
                pairs[n, i, k] = 0.0 if is_empty else pair[i, k * WIDTH + lane] * moves[i, k]
