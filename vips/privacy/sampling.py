"""Which records take part in a step."""

from __future__ import annotations

import numpy as np
from randomgen import AESCounter

__all__ = ["fixed_sample", "poisson_sample"]

_WORDS_PER_BLOCK = 2  # AES-128 encrypts a counter to two 64-bit words


def poisson_sample(start: int, stop: int, sampling_rate: float, key: int, step: int) -> np.ndarray:
    """Rows from ``start`` to ``stop`` that take part in one step, each independently with the same rate; ascending.

    Parameters
    ----------
    start, stop : int
        A range of rows. Private; it decides only which coins are thrown.
    sampling_rate : float
        q in (0, 1]; 1 takes every record. Coins are 64-bit integers below ⌊2⁶⁴ q⌋: a rate of at most q, never above.
    key : int
        Secret of the fit (128 bits). Amplification by sampling holds only while nobody can guess it.
    step : int
        A row's coin is a function of (key, step, row) alone, so that any range may be computed anywhere, or twice.

    Guarantees
    ----------
    Coins are disjoint parts of an AES-128 counter stream: whether a record is taken says nothing about another. The size
    of the sample is random: no batch size exists to be divided by.
    """
    if sampling_rate == 1.0:
        return np.arange(start, stop)
    return start + np.flatnonzero(_coins(start, stop, key, step) < np.uint64(int(sampling_rate * 2.0**64)))


def fixed_sample(n_records: int, batch_size: int, key: int, step: int) -> np.ndarray:
    """``batch_size`` of ``n_records`` (public) rows, uniformly without replacement; ascending.

    The rows with the smallest coins. Two of n coins are equal with probability below n²/2⁶⁵, and then order decides.
    """
    coins = _coins(0, n_records, key, step)
    return np.sort(np.argsort(coins, kind="stable")[:batch_size])


def _coins(start: int, stop: int, key: int, step: int) -> np.ndarray:
    """One 64-bit word for every row."""
    first, skipped = divmod(start, _WORDS_PER_BLOCK)
    return AESCounter(key=key, counter=(step << 64) + first).random_raw(skipped + stop - start)[skipped:]
