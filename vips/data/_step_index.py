"""Whose steps are whose, and when they were: what sequences keep of their data frame, and the frames in which it comes back.

**Steps at equal distances in time.** Gaps become missing steps, and what falls into one slot becomes one step. Slot k of a
sequence is at the time of its first step plus ``k * every``, and a step falls into the nearest slot, halfway into the later
one. So the slots of a sequence depend on its own steps alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from vips.core.records.ragged import Ragged, offsets_of, places
from vips.data._order import values_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StepIndex", "distance_of", "forecast_frame", "index_of_ids", "is_in_slots", "spaced", "step_frame"]


@dataclass(frozen=True)
class StepIndex:
    """Ids of sequences, and times of their steps.

    Parameters
    ----------
    ids : pandas.Index of length n_sequences
    times : Ragged
        A row for each sequence, whose values are the keys of :func:`vips.data._order.sortable`, shape (2,).
    kind : str or None
        Of the times, as ``sortable`` says.
    is_whole : bool
        Whether times are whole numbers by their type.
    names : tuple of two str
        Of the columns of ids and of times.
    columns : list of str
        Of the steps.
    distance : float or None
        Of two steps, as a number or in seconds. None: steps are where they are.
    n_unread : int
        Rows of the frame that were left out because their time is no date.
    """

    ids: pd.Index
    times: Ragged
    kind: str | None
    is_whole: bool
    names: tuple
    columns: list
    distance: float | None
    n_unread: int = 0

    def __getitem__(self, chosen: np.ndarray) -> StepIndex:
        """The index of the chosen sequences."""
        return replace(self, ids=self.ids[chosen], times=self.times[chosen])

    def first(self, n_steps: int | None) -> StepIndex:
        """The index of the first steps of each sequence."""
        return replace(self, times=self.times.first(n_steps))

    def of_steps(self) -> pd.MultiIndex:
        """Id and time of each step."""
        return self._index(self.times.lengths, self.times.values, self.names[1])

    def of_forecasts(self, n_steps: int) -> pd.MultiIndex:
        """Id and time of each step after the end: times go on by ``distance``, or count the steps ahead."""
        counts = np.full(len(self.ids), n_steps)
        ahead = places(counts) + 1.0
        if self.distance is None:
            return self._index(counts, np.stack([0.0 * ahead, ahead], axis=-1), "steps ahead", "numbers", True)
        has_steps, ends = self.times.lengths > 0, np.full((len(counts), 2), np.nan)
        ends[has_steps] = self.times.values[self.times.offsets[1:][has_steps] - 1]
        times = np.repeat(ends, n_steps, axis=0)
        times[:, 1] += ahead * self.distance
        return self._index(counts, times, self.names[1])

    def _index(self, lengths, times, name, kind: str | None = None, is_whole: bool | None = None) -> pd.MultiIndex:
        import pandas as pd

        values = values_of(times, kind or self.kind, self.is_whole if is_whole is None else is_whole)
        return pd.MultiIndex.from_arrays([self.ids.repeat(lengths), values], names=[self.names[0], name])


def index_of_ids(column: pd.Series, rows: np.ndarray) -> pd.Index:
    """The ids in these rows of their column, as they are there."""
    import pandas as pd

    return pd.Index(column.array.take(rows), dtype=column.dtype, tupleize_cols=False)


def step_frame(X: object, values: np.ndarray, names: Sequence[str] | None = None):
    """A value, or a row of values, for each step of X, as a data frame if X is of one; X is what users passed for sequences.

    ``names`` are those of the columns of the frame; None: those of the steps.
    """
    index = getattr(X, "index_of_steps", None)
    return values if index is None else _frame(values, index.of_steps(), index.columns if names is None else names)


def is_in_slots(X: object) -> bool:
    """Whether X is of steps in slots of time, many of which may be missing."""
    return getattr(getattr(X, "index_of_steps", None), "distance", None) is not None


def forecast_frame(X: object, values: np.ndarray):
    """The same of the steps after the end of each sequence, from an array of shape (n_sequences, n_steps, n_columns)."""
    index = getattr(X, "index_of_steps", None)
    return values if index is None else _frame(values, index.of_forecasts(values.shape[1]), index.columns)


def _frame(values: np.ndarray, index: pd.MultiIndex, names: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(values.reshape(len(index), len(names)), index, list(names))


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
        import pandas as pd

        distance = math.nan
        with suppress(ValueError, TypeError):
            distance = math.nan if is_number else pd.Timedelta(every).total_seconds()
        example = 'as "7D", "12h" or a timedelta, where `order` holds dates. Months differ in length: number them'
    if not 0.0 < distance < math.inf:
        raise ValueError(f"`every` must be a positive distance, {example}; got {every!r}.")
    return distance


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
