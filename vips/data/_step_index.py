"""Whose steps are whose, and when they were: what sequences keep of their data frame, and the frames in which it comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vips.core.records.ragged import Ragged, places
from vips.data._order import values_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StepIndex", "forecast_frame", "index_of_ids", "step_frame"]


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


def forecast_frame(X: object, values: np.ndarray):
    """The same of the steps after the end of each sequence, from an array of shape (n_sequences, n_steps, n_columns)."""
    index = getattr(X, "index_of_steps", None)
    return values if index is None else _frame(values, index.of_forecasts(values.shape[1]), index.columns)


def _frame(values: np.ndarray, index: pd.MultiIndex, names: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(values.reshape(len(index), len(names)), index, list(names))
