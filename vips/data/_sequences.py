"""Ragged records: sequences of different lengths, which a fit treats as rows of a table whose rows are long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from vips.data._arrow_lists import steps_and_offsets
from vips.data._cell_values import as_numbers
from vips.data._columns import is_frame
from vips.data._groups import ids_and_numbers, runs_of_rows
from vips.data._order import dates_of, is_text_or_object, sortable
from vips.data._ragged import Ragged, divides, offsets_of
from vips.data._steps import numbers_of
from vips.data._tables import from_arrow

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

    def astype(self, dtype) -> Sequences:
        """With steps of another dtype."""
        return Sequences(self.values.astype(dtype), self.offsets)

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
        cls, frame, *, by: str, order: str | None = None, columns: str | Sequence[str], date_format: str | None = None
    ) -> Sequences:
        """Rows of a data frame or Arrow table, one sequence for each id.

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
            How dates are written where ``order`` is a column of text or objects, as for ``strptime``: "%d.%m.%Y", say.
        """
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        frame = from_arrow(frame)
        if not is_frame(frame):
            raise TypeError(f"`frame` must be a data frame or an Arrow table, got {type(frame).__name__}.")
        columns = [columns] if isinstance(columns, str) else list(columns)
        for name in (by, *([] if order is None else [order]), *columns):
            if not isinstance(name, Hashable):
                raise TypeError(
                    f"`by`, `order` and `columns` name columns of the frame, got a {type(name).__name__}. For ids in an array "
                    'of their own, write frame.assign(patient=ids) and by="patient".'
                )
            if name not in frame.columns:
                raise ValueError(f"The frame has no column {name!r}.")
        for name in columns:
            if not (
                is_numeric_dtype(frame[name].dtype) or is_bool_dtype(frame[name].dtype) or frame[name].dtype == object
            ):
                raise TypeError(
                    f"Column {name!r} has dtype {frame[name].dtype}: whether its values are numbers would depend on the "
                    f"records. Encode it first, e.g. frame[{name!r}].map(codes), or convert it by "
                    "pandas.to_numeric(..., errors='coerce')."
                )
        if order is not None:
            if date_format is None and is_text_or_object(frame[order].dtype):
                raise TypeError(
                    f"Column {order!r} has dtype {frame[order].dtype}, and dates sort otherwise than their texts. Say how they "
                    'are written, date_format="%d.%m.%Y", say; or convert numbers by '
                    f"pandas.to_numeric(frame[{order!r}], errors='coerce')."
                )
            keys, _ = sortable(frame[order] if date_format is None else dates_of(frame[order], date_format), len(frame))
            frame = frame.iloc[np.lexsort(keys.T[::-1])]
        rows, starts = runs_of_rows(ids_and_numbers(frame[by], len(frame))[1])
        values = np.column_stack([as_numbers(frame[name], "number") for name in columns])
        return cls(values if rows is None else values[rows], starts)

    @classmethod
    def from_arrow(cls, lists) -> Sequences:
        """An Arrow array, or chunked array, of lists of numbers, or of lists of lists of a fixed size, which are vectors.

        A null in a list is a missing step, a null list is empty.
        """
        return cls(*steps_and_offsets([lists]))
