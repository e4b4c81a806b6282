"""The forward-backward algorithm for Markov chains, on eight sequences at a time: one in each lane of a register.

Lanes are independent: a sequence's result does not depend on the others in its batch. Sequences of a batch are of about the
same length; lanes whose sequence has ended are computed on, and left out.
"""

from __future__ import annotations

import numpy as np

# numba's cache notices changes of this file only, not of the inlined functions of lanes.py: version 9af7140d
from vips.core.exact.compiled import aligned, compiled
from vips.core.exact.lanes import (
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
from vips.core.exact.threads import run_ranges

__all__ = ["inferred", "plugs_in"]

_TINY = {np.float64: 1e-290, np.float32: 1e-36}  # of a probability given the steps so far
_LEAST_SINGLE = 1e-18  # the product of two of them is a number in single precision
_LEAST_STEPS = 2_000  # below it, one thread

_jit = compiled(nogil=True, error_model="numpy")
_inner = compiled(nogil=True, error_model="numpy", no_cpython_wrapper=True)


def plugs_in(model) -> bool:
    """Whether E-steps take posterior means."""
    return model.is_private or model.inference == "em"


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
    dtype = np.dtype(dtype).type
    shares, pairs = aligned((n_steps, K), dtype), np.empty((len(lengths), K, K), dtype)
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
        longest = order[max(ends[last] - 1, 0) : ends[last]]  # or nothing
        size, wide = lengths[longest].max(initial=1), K * WIDTH
        # the kernel reads and writes eight rows at a time, some of which may lie behind the last one; numba compiles what makes
        # arrays for longer, so that it is done here
        seen, filtered = aligned((size + WIDTH, wide), dtype), aligned((size + WIDTH, wide), dtype)
        totals, ended, tile = (aligned((n, WIDTH), dtype) for n in (size, size, -(-K // WIDTH) * WIDTH))
        pair = aligned((K + 2, wide), dtype)
        _forward_backward(
            order, offsets, first, last, start, moves, likely, floor, log_scale, above, tiny,
            np.empty(WIDTH, np.int64), seen, filtered, totals, ended, tile, pair, shares, pairs, log_likelihood,
        )  # fmt: skip

    run_ranges(infer_range, work, least_work=_LEAST_STEPS)
    return shares, pairs, log_likelihood


@_jit
def _forward_backward(
    order, offsets, first, last, start, moves, likely, floor, log_scale, above, tiny, places, seen, filtered, totals, ended,
    tile, pair, shares, pairs, log_likelihood,
):  # fmt: skip
    """For groups ``first`` to ``last`` of eight sequences: P(state at t), shape (n_steps, K), 0 where it is not ``above``;
    Σ_t P(states at t - 1 and t), shape (n, K, K); and log likelihoods, shape (n,).

    ``likely[t, k]`` is in proportion to the probability of what is seen at step t in state k, with the logarithm of that factor
    in ``log_scale[t]``; what is below ``floor``, but not 0, counts as ``floor``. Group g has the sequences ``order[8 g]`` to
    ``order[8 g + 7]``, which ascend in length.
    """
    for g in range(first, last):
        a, b = g * WIDTH, (g + 1) * WIDTH
        b = b if b < len(order) else len(order)
        longest = offsets[order[b - 1] + 1] - offsets[order[b - 1]]
        _gather(order, a, b, offsets, likely, floor, longest, len(tile), places, seen, ended)
        _forward(start, moves, longest, seen, filtered, totals)
        _add_logs(order, a, b, offsets, totals, log_scale, log_likelihood)
        _backward(moves, longest, seen, filtered, totals, ended, tiny, pair)
        _write(order, a, b, offsets, moves, longest, filtered, pair, above, tile, shares, pairs)


@_inner
def _gather(order, begin, end, offsets, likely, floor, longest, n_padded, places, seen, ended):
    """``seen[t, k, lane]``; 1 behind the end of a sequence, where ``ended`` is 1."""
    K = likely.shape[1]
    nothing, one, wide = zeros(seen, 1), spread(1.0, zeros(seen, 1)), zeros(likely, 1)
    for t in range(longest):
        last, n_ended = 0, 0
        for lane in range(WIDTH):
            place, is_over = 0, True
            if begin + lane < end:
                n = order[begin + lane]
                is_over = offsets[n] + t >= offsets[n + 1]
                place = 0 if is_over else (offsets[n] + t) * K
            places[lane], ended[t, lane] = place, 1.0 if is_over else 0.0
            last, n_ended = place if place > last else last, n_ended + is_over
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
def _add_logs(order, begin, end, offsets, totals, log_scale, log_likelihood):
    for lane in range(end - begin):
        n = order[begin + lane]
        a, b = offsets[n], offsets[n + 1]
        log_total, product = 0.0, 1.0
        for t in range(b - a):
            log_total += log_scale[a + t]
            product *= totals[t, lane]
            if not (product > 1e-100):
                log_total += np.log(product)
                product = 1.0
        log_likelihood[n] = log_total + np.log(product)


@_inner
def _backward(moves, longest, seen, filtered, totals, ended, tiny, pair):
    """P(state at t | the whole sequence) in place of ``filtered``; and Σ_t of the products that ``moves`` turns into pairs.

    A state that is less probable than ``tiny`` given the steps so far cannot be the one: its share becomes 0, so that what
    follows from it later does not grow beyond all numbers.
    """
    K, largest = len(moves), 1.0 / tiny
    ahead, behind = K * K, (K + 1) * K
    nothing, one = zeros(seen, 1), spread(1.0, zeros(seen, 1))
    minus = spread(-1.0, nothing)
    for place in range(K * WIDTH):
        for i in range(K + 1):
            pair[i, place] = 0.0
        pair[K + 1, place] = 1.0
    for t in range(longest - 1, 0, -1):
        is_ended = load(ended, t * WIDTH, nothing)
        inverse = multiply_add_once(is_ended, minus, one) / load(totals, t * WIDTH, nothing)
        for k in range(K):
            after = load(pair, (behind + k) * WIDTH, nothing)
            after = multiply_add_once(after, load(seen, (t * K + k) * WIDTH, nothing), nothing)
            after = multiply_add_once(after, inverse, nothing)
            store(pair, (ahead + k) * WIDTH, if_negative(largest - after, spread(largest, nothing), after))
        for i in range(K):
            place = ((t - 1) * K + i) * WIDTH
            before, value = load(filtered, place, nothing), is_ended
            for k in range(K):
                after = load(pair, (ahead + k) * WIDTH, nothing)
                sums = load(pair, (i * K + k) * WIDTH, nothing)
                store(pair, (i * K + k) * WIDTH, multiply_add_once(before, after, sums))
                value = multiply_add_once(after, spread(moves[i, k], nothing), value)
            value = if_negative(tiny - before, value, nothing)
            store(pair, (behind + i) * WIDTH, value)
            store(filtered, place, multiply_add_once(before, value, nothing))


@_inner
def _write(order, begin, end, offsets, moves, longest, filtered, pair, above, tile, shares, pairs):
    K, n_padded, nothing, eight = len(moves), len(tile), zeros(filtered, 1), zeros(filtered, 8)
    for t in range(longest):
        for k in range(0, K, WIDTH):
            rows = load(filtered, (t * K + k) * WIDTH, eight)
            store_transposed(tile, k, n_padded, if_negative(spread(above, eight) - rows, rows, eight))
        for lane in range(end - begin):
            n = order[begin + lane]
            step, stop = offsets[n] + t, offsets[n + 1]
            if step * K + n_padded <= stop * K:  # what is behind the row belongs to later steps of the sequence
                for k in range(0, K, WIDTH):
                    store(shares, step * K + k, load(tile, lane * n_padded + k, nothing))
            elif step < stop:
                for k in range(K):
                    place = lane * n_padded + k
                    shares[step, k] = tile[place // WIDTH, place % WIDTH]
    for lane in range(end - begin):
        n = order[begin + lane]
        for i in range(K):
            for k in range(K):
                is_empty = offsets[n + 1] == offsets[n]
                pairs[n, i, k] = 0.0 if is_empty else pair[i, k * WIDTH + lane] * moves[i, k]
