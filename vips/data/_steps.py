"""The steps of one sequence as numbers, from what people have: lists, arrays, masked arrays, frames, tables of Arrow.

What a cell means depends on the cell alone: a number (a truth value, a Decimal) is that number; None, NA, NaN and what a mask
hides are missing; everything else is unreadable, and missing, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from vips.core.records.tables import from_arrow, without_mask
from vips.data._cell_values import as_numbers, is_missing

__all__ = ["check_readable", "numbers_of", "unread_cells"]


def numbers_of(values: object) -> np.ndarray | None:
    """Steps as numbers, NaN where a cell is missing or unreadable.

    Returns
    -------
    ndarray of shape (n_steps,) or (n_steps, n_columns), or None
        None for what is no table of cells, such as rows of different lengths. Arrays of numbers keep their dtype.
    """
    if type(values) is np.ndarray and values.ndim in (1, 2) and values.dtype.kind in "biuf":
        return values
    with suppress(Exception), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        values = from_arrow(values)
        if hasattr(values, "iloc"):
            columns = [values] if values.ndim == 1 else [values.iloc[:, j] for j in range(values.shape[1])]
            numbers = [as_numbers(column, "number") for column in columns]
            array = numbers[0] if values.ndim == 1 else np.stack(numbers, axis=1)
        else:
            array = np.asarray(_array(values))  # whose methods are NumPy's own
        if array.dtype.kind in "OUST":
            array = as_numbers(array.astype(object).ravel(), "number").reshape(array.shape)
        if array.ndim in (1, 2) and array.dtype.kind in "biuf":
            return array
    return None


def check_readable(sequences: Sequence[object], width: int | None = None) -> None:
    """Raise ValueError for a cell that is neither a number nor missing, and for a sequence of another width: in ordinary fits,
    and after a fit."""
    for i, values in enumerate(sequences):
        numbers = numbers_of(values)
        if numbers is None:
            raise ValueError(
                f"Sequence {i} of X is no table of numbers with a row for each step: pass arrays of shape (n_steps,) or "
                "(n_steps, n_features)."
            )
        if width is not None and len(numbers) and numbers.size != len(numbers) * width:
            wanted = "(n_steps,), with one number or code for each step" if width == 1 else f"(n_steps, {width})"
            raise ValueError(f"Sequence {i} of X has shape {numbers.shape}: pass arrays of shape {wanted}.")
        for cell in unread_cells(values, numbers):
            raise ValueError(
                f"Sequence {i} of X holds {cell!r}, which is no number: encode it, or write None or NaN for a missing step."
            )


def unread_cells(values: object, numbers: np.ndarray) -> Iterator[object]:
    """Yield the cells of a sequence that are neither missing nor among its numbers, those of :func:`numbers_of`."""
    if (isinstance(values, np.ndarray) and values.dtype.kind in "biuf") or not np.isnan(numbers).any():
        return
    cells = np.asarray(_array(from_arrow(values)), dtype=object)
    for place in np.argwhere(np.isnan(numbers)):
        cell, is_infinite = cells[tuple(place)], False
        with suppress(Exception):  # a cell can be anything
            is_infinite = cell in (np.inf, -np.inf)
        if not is_missing(cell) and not is_infinite:
            yield cell


def _array(values: object) -> np.ndarray:
    """An array of cells, without what a mask hides; of a list of rows, one that is missing is a row of missing cells."""
    if isinstance(values, np.ndarray):
        return without_mask(values)
    try:
        array = np.asarray(values)
    except ValueError:  # not all rows are of one length
        (width,) = {len(row) for row in values if not is_missing(row)}
        return np.array([[None] * width if is_missing(row) else list(row) for row in values], dtype=object)
    return np.asarray(values, dtype=object) if array.dtype.kind in "US" else array  # of numbers beside a text
