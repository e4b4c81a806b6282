"""Steps at equal distances in time: gaps become missing steps, and what falls into one slot becomes one step.

Slot k of a sequence is at the time of its first step plus ``k * every``, and a step falls into the nearest slot, halfway into
the later one. So the slots of a sequence depend on its own steps alone.
"""

from __future__ import annotations

import math
from contextlib import suppress
from numbers import Real

import numpy as np

from vips.core.records.ragged import offsets_of, places

__all__ = ["distance_of", "spaced"]


def distance_of(every: object, kind: str | None) -> float:
    """The distance of two steps as a number, or in seconds where times have a unit: ``kind`` is that of ``sortable``."""
    is_number = isinstance(every, Real | np.bool_) and not isinstance(every, np.timedelta64)  # which is an integer, too
    distance = math.inf
    if kind in ("numbers", None):
        is_usable = is_number and not isinstance(every, bool | np.bool_)
        example = "as 1 or 0.5, where `order` holds numbers"
        with suppress(OverflowError):  # of a whole number that no float holds
            distance = float(every) if is_usable else math.nan
    else:
        distance = math.nan if is_number else _seconds(every)
        example = 'as "7D", "12h" or a timedelta, where `order` holds dates. Months differ in length: number them'
    if not 0.0 < distance < math.inf:
        raise ValueError(f"`every` must be a positive distance, {example}; got {every!r}.")
    return distance


def _seconds(every: object) -> float:
    import pandas as pd

    try:
        return pd.Timedelta(every).total_seconds()
    except (ValueError, TypeError):
        return math.nan


def spaced(
    values: np.ndarray, keys: np.ndarray, offsets: np.ndarray, distance: float, unit: float, max_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, keys and offsets of the sequences with a step in each slot, from the first one to the last one there.

    Parameters
    ----------
    keys : ndarray of float64, shape (n_steps, 2)
        Finite times of the steps, ascending in each sequence; NaN is no time, and comes last.
    offsets : ndarray of int64, shape (n_sequences + 1,)
        No sequence is empty.
    distance, unit : float
        Two slots differ by ``distance``, two times by ``unit`` for each 1 of the first key.

    Guarantees
    ----------
    - A sequence of the result depends on that sequence alone, and has at most ``max_length`` steps. Nothing is raised.
    - A column of a slot is its last number that is not missing. Steps without a time, or beyond the slots, are left out.
    """
    lengths = np.diff(offsets)
    starts, owners = keys[offsets[:-1]], np.repeat(np.arange(len(lengths)), lengths)
    with np.errstate(all="ignore"):
        slots = np.floor((keys - starts[owners]) @ [unit, 1.0] / distance + 0.5)
        kept = np.flatnonzero(slots < max_length)
    owners, slots = owners[kept], slots[kept].astype(np.int64)
    is_end = _is_last(owners)
    n_slots = np.zeros(len(lengths), np.int64)
    n_slots[owners[is_end]] = slots[is_end] + 1
    offsets = offsets_of(n_slots)
    times, steps = np.repeat(starts, n_slots, axis=0), np.full((offsets[-1], values.shape[1]), np.nan)
    with np.errstate(all="ignore"):
        times[:, 1] += places(n_slots) * distance
    targets = offsets[owners] + slots
    is_last = _is_last(targets)
    times[targets[is_last]] = keys[kept[is_last]]
    for j in range(values.shape[1]):
        is_there = ~np.isnan(values[kept, j])
        is_last = _is_last(targets[is_there])
        steps[targets[is_there][is_last], j] = values[kept[is_there][is_last], j]
    return steps, times, offsets


def _is_last(numbers: np.ndarray) -> np.ndarray:
    """Whether each of these ascending numbers is the last one of its value."""
    return np.append(numbers[1:] != numbers[:-1], np.ones(min(len(numbers), 1), bool))
