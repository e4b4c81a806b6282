"""Ragged records: sequences of different lengths, which a fit treats as rows of a table whose rows are long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vips._support.validation import check_integer
from vips.core.records.groups import ids_and_numbers, runs_of_rows
from vips.core.records.ragged import Ragged, divides, offsets_of, places
from vips.core.records.tables import from_arrow
from vips.data._arrow_lists import steps_and_offsets
from vips.data._cell_values import are_unread, as_numbers
from vips.data._columns import is_frame, names_like
from vips.data._order import dates_of, is_text_or_object, sortable, units_of
from vips.data._step_index import StepIndex, distance_of, index_of_ids, spaced
from vips.data._steps import numbers_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Sequences"]


class Sequences(Ragged):
    """Sequences below each other in one array, and where each of them begins. A sequence is one record.

    Parameters
    ----------
    values : ndarray of shape (n_steps,) or (n_steps, n_features)
        Steps of all sequences, one sequence after the other: codes, or vectors.
    offsets : ndarray of int, shape (n_sequences + 1,)
        Sequence i has the steps ``offsets[i]`` to ``offsets[i + 1]``.

    Attributes
    ----------
    values : ndarray of shape (n_steps, n_features)
    offsets : ndarray of int64, shape (n_sequences + 1,)
    lengths : ndarray of int64, shape (n_sequences,)
    shape : tuple
        (n_sequences, n_features).
    ids : pandas.Index of length n_sequences, or None
        Where the sequences are from a data frame.

    Raises
    ------
    TypeError, ValueError
        If ``values`` are no numbers, or the offsets do not divide them.

    See Also
    --------
    Sequences.from_list, Sequences.from_lengths, Sequences.from_frame, Sequences.from_arrow

    Examples
    --------
    >>> import numpy as np
    >>> from vips.data import Sequences
    >>> visits = Sequences.from_list([np.array([0, 2, 1]), np.array([2])])
    >>> visits.lengths
    array([3, 1])
    >>> visits[[1]].values.ravel()
    array([2.])
    """

    index_of_steps: StepIndex | None = None

    def __init__(self, values: np.ndarray, offsets: np.ndarray) -> None:
        values, offsets = np.asarray(numbers_of(values) if np.ma.isMA(values) else values), np.asarray(offsets)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or values.dtype.kind not in "biuf":
            raise TypeError(
                "The values of sequences must be an array of numbers with a row for each step, got "
                f"{values.ndim} dimensions of dtype {values.dtype}."
            )
        if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
            raise TypeError("`offsets` must be a one-dimensional array of integers, one more than there are sequences.")
        if not values.dtype.isnative or (values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8)):
            values = values.astype(np.float64)  # for which kernels are compiled
        if not divides(offsets, len(values)):
            raise ValueError("`offsets` must ascend from 0 to the number of steps.")
        super().__init__(values, None, np.diff(offsets.astype(np.int64)))

    @property
    def ids(self) -> pd.Index | None:
        """Ids of the sequences of a data frame, shape (n_sequences,)."""
        return None if self.index_of_steps is None else self.index_of_steps.ids

    def astype(self, dtype) -> Sequences:
        """With steps of another dtype."""
        return self._of_frame(Sequences(self.values.astype(dtype), self.offsets), self.index_of_steps)

    def __getitem__(self, index: slice | np.ndarray | Sequence[int]) -> Sequences:
        """Some of the sequences, as NumPy indexes them."""
        steps = self.index_of_steps
        chosen = index if steps is None or isinstance(index, slice) else np.arange(len(self))[index]
        return self._of_frame(super().__getitem__(chosen), None if steps is None else steps[chosen])

    def first(self, n_values: int | None) -> Sequences:
        """At most the first ``n_values`` steps of each sequence; None: all."""
        steps = self.index_of_steps
        return self._of_frame(super().first(n_values), None if steps is None else steps.first(n_values))

    def copy(self) -> Sequences:
        """With arrays of its own."""
        return self._of_frame(super().copy(), self.index_of_steps)

    def __getstate__(self) -> dict:
        """What a pickle holds: these sequences, and no others of their storage."""
        return super().__getstate__() | {"index_of_steps": self.index_of_steps}

    @staticmethod
    def _of_frame(sequences: Sequences, steps: StepIndex | None) -> Sequences:
        sequences.index_of_steps = steps
        return sequences

    def __repr__(self) -> str:
        return f"<Sequences of {self.shape[1]} columns, {self.dtype}>"  # their number is private

    # -- from other containers ----------------------------------------------------------------------------------------

    @classmethod
    def from_list(cls, sequences: Sequence[object], n_features: int | None = None) -> Sequences:
        """A list of arrays, lists or frames, each of shape (length,) or (length, n_features).

        Steps are float64. None, NA, NaN, what a mask hides and what is no number are missing. A sequence of another width, or
        without one, becomes one missing step; one without rows is empty.

        Without ``n_features`` there are as many columns as most arrays have. One sequence can decide that if two widths are
        as frequent, or if no other array has columns: pass ``n_features`` before a private fit.
        """
        arrays = list(map(numbers_of, sequences))
        tables = [array[:, None] if array is not None and array.ndim == 1 else array for array in arrays]
        width = n_features
        if width is None:
            shapes = [array.shape for array in arrays if array is not None]
            widths = Counter(shape[1] if len(shape) == 2 else 1 for shape in shapes if shape != (0,))
            width = max(widths, key=lambda candidate: (widths[candidate], -candidate), default=1)
        empty, missing = np.empty((0, width)), np.full((1, width), np.nan)
        tables = [
            missing if table is None else table if table.shape[1] == width else missing if len(table) else empty
            for table in tables
        ]
        with np.errstate(all="ignore"):
            return cls(np.concatenate([empty, *tables], dtype=np.float64), offsets_of([len(table) for table in tables]))

    @classmethod
    def from_lengths(cls, values: np.ndarray, lengths: np.ndarray) -> Sequences:
        """Steps below each other, and the length of each sequence, as hmmlearn takes them."""
        lengths = np.asarray(lengths)
        if lengths.ndim != 1 or (lengths.dtype.kind not in "iu" and len(lengths)):
            raise TypeError("`lengths` must be a one-dimensional array of integers.")
        if (lengths < 0).any() or lengths.sum() != len(values):
            raise ValueError("`lengths` must not be negative, and must add up to the number of rows of X.")
        return cls(values, offsets_of(lengths))

    @classmethod
    def from_frame(
        cls,
        frame,
        *,
        by: str,
        order: str | None = None,
        columns: str | Sequence[str],
        date_format: str | None = None,
        every: object = None,
        max_length: int = 1000,
    ) -> Sequences:
        """Rows of a data frame or Arrow table, one sequence for each id.

        Models take the steps of a sequence as equally spaced, whatever their times are. ``every`` makes them so. The sequences
        keep ids and times: states and forecasts of a model come back as data frames with both in the index.

        Parameters
        ----------
        frame : data frame
        by : str
            Column of ids: of persons, or stays. Rows without an id are left out.
        order : str, optional
            Column of numbers or dates that orders the rows of a sequence; rows that tie stay in their order, and those without
            a number or date come last. None: as they are.
        columns : str or list of str
            Columns of numbers. Encode categories first, e.g. ``frame["event"].map(codes)``; what is missing is a missing step.
        date_format : str, optional
            How dates are written where ``order`` is a column of text or objects, as for ``strptime``: "%d.%m.%Y", say. Objects
            that are dates are taken as they are. A row whose date is written in another way is left out, because its place in
            the sequence is unknown; ordinary fits refuse such sequences.
        every : number, timedelta or str, optional
            Distance of two steps in ``order``, a public one: a number for numbers; for dates a timedelta, or words that pandas
            reads, such as "7D". Slots of time are counted from the first row of each sequence, and a row falls into the
            nearest one. A slot without a row is a missing step. If several rows fall into one, each column has its last number
            there. Rows without a time are left out.
        max_length : int
            With ``every`` the most slots of a sequence, a public number: rows beyond are left out. Not less than the
            ``max_length`` of the model, which is 1000 by default, too.
        """
        frame, columns = from_arrow(frame), [columns] if isinstance(columns, str) else list(columns)
        _check_columns(frame, by, order, columns)
        check_integer("max_length", max_length)
        if order is None and every is not None:
            raise ValueError("`every` is a distance in time: pass the column of times as `order`.")
        keys, kind = (np.zeros((len(frame), 2)), "numbers") if order is None else _times(frame[order], date_format)
        is_whole = order is None or getattr(frame[order].dtype, "kind", "O") in "biu"
        distance = None if every is None else distance_of(every, kind)
        if distance is not None:
            is_whole = is_whole and distance.is_integer()
            keys[~np.isfinite(keys).all(axis=1)] = np.nan
        is_unread = np.zeros(len(frame), bool)
        if order is not None and date_format is not None:
            is_unread = are_unread(frame[order], np.isnan(keys[:, 0]))
        rows, offsets = _rows_of_persons(frame[by], keys)
        values, keys = np.column_stack([as_numbers(frame[name], "number") for name in columns])[rows], keys[rows]
        ids, names = index_of_ids(frame[by], rows[offsets[:-1]]), (by, "step" if order is None else order)
        is_read = ~is_unread[rows]
        values, keys, offsets = values[is_read], keys[is_read], np.append(0, np.cumsum(is_read))[offsets]
        if order is None:
            keys[:, 1] = places(np.diff(offsets))
        if distance is not None:
            values, keys, offsets = spaced(values, keys, offsets, distance, units_of(kind), max_length)
        sequences, times = cls(values, offsets), Ragged(keys, None, np.diff(offsets))
        return cls._of_frame(
            sequences, StepIndex(ids, times, kind, is_whole, names, columns, distance, int(is_unread.sum()))
        )

    @classmethod
    def from_arrow(cls, lists) -> Sequences:
        """An Arrow array, or chunked array, of lists of numbers, or of lists of lists of a fixed size, which are vectors.

        A null in a list is a missing step, a null list is empty.
        """
        return cls(*steps_and_offsets([lists]))


def _check_columns(frame, by: str, order: str | None, columns: list[str]) -> None:
    """Raise TypeError or ValueError unless the frame has these columns, once, of dtypes that can hold numbers."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype, is_object_dtype

    if not is_frame(frame):
        raise TypeError(f"`frame` must be a data frame or an Arrow table, got {type(frame).__name__}.")
    for name in (by, *([] if order is None else [order]), *columns):
        if not isinstance(name, Hashable):
            raise TypeError(
                f"`by`, `order` and `columns` name columns of the frame, got a {type(name).__name__}. For ids in an array "
                'of their own, write frame.assign(patient=ids) and by="patient".'
            )
        if name not in frame.columns:
            raise ValueError(f"The frame has no column {name!r}.{names_like(name, frame.columns)}")
        if list(frame.columns).count(name) > 1:
            raise ValueError(f"The frame has several columns {name!r}: give each another name.")
    for name in columns:
        dtype = frame[name].dtype
        if not (is_numeric_dtype(dtype) or is_bool_dtype(dtype) or is_object_dtype(dtype)):
            raise TypeError(
                f"Column {name!r} has dtype {dtype}: whether its values are numbers would depend on the records. Encode it "
                f"first, e.g. frame[{name!r}].map(codes), or convert it by pandas.to_numeric(..., errors='coerce')."
            )


def _rows_of_persons(ids, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows by person, those of one person in the order of their keys, and where each person begins; without rows of nobody."""
    by_time = np.lexsort(keys.T[::-1])
    rows, offsets = runs_of_rows(ids_and_numbers(ids.iloc[by_time], len(ids))[1])
    return by_time if rows is None else by_time[rows], offsets


def _times(column, date_format: str | None) -> tuple[np.ndarray, str | None]:
    """Keys of a column of times that sort as these do, and of what kind they are."""
    if date_format is None and is_text_or_object(column.dtype):
        cells = f"frame[{column.name!r}]"
        objects = (
            f"Dates that are objects: pandas.to_datetime({cells}, errors='coerce'). " if column.dtype == object else ""
        )
        raise TypeError(
            f"Column {column.name!r} has dtype {column.dtype}, which may hold dates or numbers: texts of both sort otherwise. "
            f'Texts of dates: say how they are written, date_format="%d.%m.%Y", say. {objects}Numbers, and no dates, which '
            f"would be lost: pandas.to_numeric({cells}, errors='coerce')."
        )
    return sortable(column if date_format is None else dates_of(column, date_format), len(column))
