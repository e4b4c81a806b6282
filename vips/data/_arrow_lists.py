"""Arrow columns of lists as steps below each other, and where each list begins. PyArrow is imported on use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips.core.records.ragged import offsets_of

__all__ = ["floats_of", "steps_and_offsets", "width_of"]


def width_of(kind) -> int | None:
    """Numbers of one step in a list of this Arrow type; None for a type that is no list of numbers or of vectors."""
    from pyarrow import types

    if not (types.is_list(kind) or types.is_large_list(kind)):
        return None
    step, width = kind.value_type, 1
    if types.is_fixed_size_list(step):
        step, width = step.value_type, step.list_size
    return width if width and (types.is_integer(step) or types.is_floating(step)) else None


def steps_and_offsets(columns: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Steps of all lists, shape (n_steps, n_features), NaN for a null; and where each list begins, shape (n_rows + 1,).

    The columns, Arrow arrays or chunked arrays of lists, stand side by side: the lists in one row are columns of one sequence.
    If they have different lengths, it is empty. A column of another type, a public fact, raises TypeError.
    """
    if not all(hasattr(column, "type") for column in columns):
        raise TypeError(
            f"An Arrow array is needed, got {type(columns[0]).__name__}: of a series in Arrow's memory, pyarrow.array(series)."
        )
    widths = [width_of(column.type) for column in columns]
    if None in widths:
        raise TypeError(
            "Sequences need lists of integers or floating-point numbers, or lists of such lists of a fixed size; the column "
            f"has type {columns[widths.index(None)].type}."
        )
    # chunk by chunk: Arrow would raise where combined chunks have 2³¹ steps
    parts = [[_steps_and_lengths(chunk) for chunk in getattr(column, "chunks", [column])] for column in columns]
    lengths = [np.concatenate([np.zeros(0, np.int64), *(counts for _, counts in chunks)]) for chunks in parts]
    if len({len(counts) for counts in lengths}) != 1:
        raise ValueError("The columns of sequences have different numbers of rows.")
    agree = np.all([counts == lengths[0] for counts in lengths], axis=0)
    steps = [
        np.concatenate([np.zeros((0, n)), *(rows for rows, _ in chunks)])
        for n, chunks in zip(widths, parts, strict=True)
    ]
    if not agree.all():
        steps = [values[np.repeat(agree, counts)] for values, counts in zip(steps, lengths, strict=True)]
    offsets = offsets_of(np.where(agree, lengths[0], 0))
    return steps[0] if len(steps) == 1 else np.concatenate(steps, axis=1), offsets


def _steps_and_lengths(lists) -> tuple[np.ndarray, np.ndarray]:
    lists.validate(full=True)  # of Arrow's own memory: `flatten` would read beyond it
    lengths = np.where(np.asarray(lists.is_null()), 0, np.diff(lists.offsets.to_numpy())).astype(np.int64)
    steps, width = lists.flatten(), width_of(lists.type)
    if hasattr(steps.type, "list_size"):  # `flatten` would drop vectors that are null
        missing, first = np.asarray(steps.is_null()), steps.offset * width
        numbers = floats_of(steps.values.slice(first, len(steps) * width)).reshape(-1, width)
        return np.where(missing[:, None], np.nan, numbers) if missing.any() else numbers, lengths
    return floats_of(steps)[:, None], lengths


def floats_of(numbers) -> np.ndarray:
    """An Arrow column as float64, NaN for a null. The conversion depends on the type alone, not on values."""
    return np.asarray(numbers.cast("float64", safe=False))
