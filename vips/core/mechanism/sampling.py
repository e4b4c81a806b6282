"""Which records take part in a step.

A record is addressed by (partition, row), and its coin of a step is one 64-bit word of an AES-128 counter stream under the
secret key of the fit: AES(key, counter) is 128 bits, two coins, and the counter of a coin is

    ========  ==========  ===========  ============
    bits      0 … 31      32 … 63      64 … 127
    hold      row // 2    partition    step
    ========  ==========  ===========  ============

Each field is checked to fit. So (step, partition, row // 2) ↦ counter is one-to-one; consecutive rows of one partition have
consecutive counters, which never run into the next field; and the parity of the row selects the half of the block. No two
coins of a fit share bits, and to anyone without the key they are independent, as far as AES is secure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from randomgen import AESCounter

__all__ = ["PoissonCoins", "poisson_sample"]

_WORDS_PER_BLOCK = 2  # AES-128 encrypts a counter to two 64-bit words
_LIMITS = {"row": 2**33, "partition": 2**32, "step": 2**64}


def poisson_sample(start: int, stop: int, sampling_rate: float, key: int, step: int, partition: int) -> np.ndarray:
    """Rows from ``start`` to ``stop`` of a partition that take part in one step, each independently with one rate; ascending.

    Parameters
    ----------
    start, stop : int
        A range of rows. Private; it decides only which coins are drawn.
    sampling_rate : float
        q in (0, 1]; 1 takes every record. A record is taken if its 64-bit coin is below ⌊2⁶⁴ q⌋: at a rate never above q.
    key : int
        Secret key of the fit (128 bits). Amplification by sampling holds only while nobody can guess it.
    step, partition : int
        A row's coin is a function of (key, step, partition, row) alone, so that any range may be computed anywhere, or twice.

    Guarantees
    ----------
    Coins are disjoint parts of an AES-128 counter stream: whether one record is taken says nothing about another. The size
    of the sample is random, so that no batch size exists to divide by.
    """
    if sampling_rate == 1.0:
        return np.arange(start, stop)
    return start + np.flatnonzero(_coins(start, stop, key, step, partition) < np.uint64(int(sampling_rate * 2.0**64)))


@dataclass(frozen=True)
class PoissonCoins:
    """The coins of one partition in one step. Holds the key, so only workers get it, which see the records anyway."""

    sampling_rate: float
    key: int = field(repr=False)
    step: int
    partition: int

    def rows(self, n_records: int) -> np.ndarray:
        """Which of the partition's rows take part: see :func:`poisson_sample`."""
        return poisson_sample(0, n_records, self.sampling_rate, self.key, self.step, self.partition)


def _coins(start: int, stop: int, key: int, step: int, partition: int) -> np.ndarray:
    """One 64-bit word for every row."""
    for name, value in (("row", stop - 1), ("partition", partition), ("step", step)):
        if value >= _LIMITS[name]:
            raise ValueError(f"Sampling covers at most {_LIMITS[name]} {name}s, got {name} {value}.")
    first, skipped = divmod(start, _WORDS_PER_BLOCK)
    counter = (step << 64) + (partition << 32) + first
    return AESCounter(key=key, counter=counter).random_raw(skipped + stop - start)[skipped:]
