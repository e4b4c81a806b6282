"""Which records take part in a step."""

from __future__ import annotations

import numpy as np

__all__ = ["poisson_sample"]


def poisson_sample(n_records: int, sampling_rate: float, key: int, step: int, partition: int) -> np.ndarray:
    """Indices of the records of one partition that take part in one step, each independently with the same rate.

    Parameters
    ----------
    n_records : int
        Records in the partition. Private; it decides only how many coins are thrown.
    sampling_rate : float
        q in (0, 1]; 1 takes every record.
    key : int
        Secret of the fit (128 bits). Amplification by sampling holds only while nobody can guess it.
    step, partition : int
        The coins are a function of (key, step, partition), so that a partition may be computed anywhere, or twice.

    Guarantees
    ----------
    Coins of different records, steps and partitions come from disjoint parts of keyed streams: whether a record is
    taken says nothing about another. The size of the sample is random: no batch size exists to be divided by.
    """
    if sampling_rate == 1.0:
        return np.arange(n_records)
    coins = np.random.default_rng(np.random.SeedSequence(key, spawn_key=(step, partition)))
    return np.flatnonzero(coins.random(n_records) < sampling_rate)
