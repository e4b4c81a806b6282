"""What the holder of a table sees before it is declared: how cells are read, and which are not. Not private."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from vips._support.printable import listed, printable
from vips.data._cell_values import are_unread, as_categories, as_numbers, category_of, each_cell, is_missing, kind_of
from vips.data._columns import as_table, column, columns_of
from vips.data._sequences import Sequences
from vips.data._step_index import StepIndex
from vips.data._steps import numbers_of, unread_cells
from vips.preprocessing._column_kinds import MISSING, OTHER, Categories, Number, kind_of_column
from vips.preprocessing._encoder import column_kind

__all__ = ["ColumnReading", "Inspection", "inspect"]

_MOST_EXAMPLES, _LONGEST = 5, 60  # characters
_SMALL_PART = 0.3
_MOST_CATEGORIES = 12  # that are listed as a suggestion
_MIDDLE = 'Missing or unread cells count as {}, the middle, in regressions; "(missing)" behind the bounds gives them a feature.'
_NOTHING = "No cell is read: convert the column to numbers, texts or dates, or leave it out."


@dataclass(frozen=True)
class ColumnReading:
    """How the cells of a column are read.

    Attributes
    ----------
    name : object
    dtype : str
    declared : str
        What the column is taken as.
    n_read, n_missing : int
        Cells that are read, and those that are empty.
    unread : dict of str to int
        Cells that are neither, with how often they occur; they count as missing, or as no category.
    n_beyond : int
        Numbers beyond the bounds, which become the bound.
    says : str
        What to declare, or what to look at.
    """

    name: object
    dtype: str
    declared: str
    n_read: int
    n_missing: int
    unread: dict[str, int]
    n_beyond: int
    says: str

    def __str__(self) -> str:
        parts = [f"{self.n_read:,} read", f"{self.n_missing:,} missing"]
        if self.n_beyond:
            parts.append(f"{self.n_beyond:,} beyond the bounds")
        if self.unread:
            parts.append(f"{sum(self.unread.values()):,} not read: {_examples(self.unread)}")
        name = str(self.name) if str(self.name) == str(self.name).strip() else repr(self.name)
        lines = [f"{name} ({self.dtype}), {self.declared}: {'; '.join(parts)}", *([self.says] if self.says else [])]
        return "\n    ".join(map(printable, lines))


@dataclass(frozen=True)
class Inspection:
    """What a table holds, for its holder alone: see :func:`vips.inspect`."""

    columns: tuple[ColumnReading, ...]

    def __str__(self) -> str:
        return "\n".join([
            "Not private: for your eyes.",
            *map(str, self.columns),
            "What you declare because of this page is not covered by ε.",
        ])  # fmt: skip

    __repr__ = __str__


def inspect(X, columns: Mapping | Sequence | None = None) -> Inspection:
    """How the cells of a table are read by :class:`~vips.preprocessing.TableEncoder`, and which are not.

    It reads all values, adds no noise and charges nothing: for the holder of the data, before a private fit, in which no error
    may tell that a cell could not be read.

    Parameters
    ----------
    X : data frame, Arrow table or ndarray of shape (n_rows, n_columns); sequences; or texts
        A list, or ``Sequences``, is read as models of sequences read it; a list or a series of strings as texts.
    columns : mapping or list; of sequences an integer or a range; optional
        Declarations, as of ``TableEncoder`` or ``PrivateTable``; or as of ``MixedLatentClassAnalysis``, an integer n for codes
        below n and ``range(n)`` for counts, as which all steps of sequences are read then. None takes every column by its
        dtype.

    Returns
    -------
    Inspection
        Print it.

    Raises
    ------
    TypeError, ValueError
        For a declaration or a dtype that an encoder would refuse, too.

    Examples
    --------
    >>> import pandas as pd, vips
    >>> table = pd.DataFrame({"crp": ["3.5", "<5", "12", None], "ward": ["A", "B", "b", "A"]})
    >>> print(vips.inspect(table, {"crp": (0, 500), "ward": ["A", "B"]}))
    Not private: for your eyes.
    crp (str), a number from 0 to 500: 2 read; 1 missing; 1 not read: '<5' (1)
        Missing or unread cells count as 250, the middle, in regressions; "(missing)" behind the bounds gives them a feature.
    ward (str), one of 2 categories: 3 read; 0 missing; 1 not read: 'b' (1)
    What you declare because of this page is not covered by ε.
    """
    is_single = isinstance(X, list | tuple | Sequences) or getattr(X, "ndim", 2) == 1
    if is_single and (columns is None or isinstance(columns, Integral | range)):
        are_texts = [isinstance(item, str | bytes) for item in each_cell(X)]
        of_texts = 2 * sum(are_texts) >= max(len(are_texts), 1)
        if of_texts:
            return Inspection(_of_texts(X, are_texts))
        return Inspection((*_of_sequences(list(X), columns), *_of_times(getattr(X, "index_of_steps", None))))
    X = as_table(X)
    named = columns if isinstance(columns, Mapping) else columns and dict(enumerate(columns))
    keys = columns_of(X, columns) if columns else columns_of(X, [None] * X.shape[1])
    declared = list(named.values()) if columns else [None] * len(keys)
    names = list(named) if columns else keys
    return Inspection(tuple(
        _reading(name, column(X, key), declaration) for name, key, declaration in zip(names, keys, declared, strict=True)
    ))  # fmt: skip


def _reading(name, values, declared) -> ColumnReading:
    dtype = getattr(values, "dtype", None)
    if isinstance(declared, range):
        return _of_counts(name, values, declared)
    if isinstance(declared, Integral):
        return _of_categories(name, values, Categories(tuple(range(declared))))
    if isinstance(declared, tuple):
        declared = _bounds_of(declared)
    if declared is not None:
        column_kind(repr(name), declared, dtype, in_frame=True)  # raises what an encoder would
    learnt = declared if isinstance(declared, str) else kind_of(dtype) if declared is None else None
    if learnt == "category" and declared is None:
        learnt = next((kind for kind in ("number", "date") if _are_mostly(values, kind)), learnt)
    if learnt in ("number", "date"):
        return _of_numbers(name, values, learnt, None)
    if learnt is not None or declared is None:
        return _of_categories(name, values, None, is_stated=declared is not None)
    kind = kind_of_column(declared, repr(name))
    if isinstance(kind, Number):
        return _of_numbers(name, values, "date" if kind.is_date else "number", kind)
    return _of_categories(name, values, kind)


def _bounds_of(edges: tuple) -> tuple:
    """The ends of edges, and whether a missing cell is an answer."""
    inner = edges[: len(edges) - (edges[-1:] == (MISSING,))]
    return edges if len(inner) < 3 else (inner[0], inner[-1], *edges[len(inner) :])


def _of_numbers(name, values, kind: str, bounds: Number | None) -> ColumnReading:
    numbers = as_numbers(values, kind)
    missing, unread = _not_read(values, np.isnan(numbers))
    seen, what = numbers[~np.isnan(numbers)], "date" if kind == "date" else "number"
    n_beyond, says, declared = 0, "", f"a {what}, by its cells"
    if len(seen):
        low, high = float(seen.min()), float(seen.max())
        between = Number(math.floor(low), math.ceil(high), True) if kind == "date" else Number(low, high)
        holds = f"Holds {what}s from {between}"
    if bounds is None and len(seen):
        says = f"{holds}: declare (low, high), the possible range and not that of these records."
    elif bounds is not None:
        n_beyond = int(np.sum((seen < bounds.low) | (seen > bounds.high)))
        declared = f"a {what} from {bounds}"
        if len(seen) < len(numbers) and not bounds.has_missing:
            says = _MIDDLE.format(bounds.middle)
        elif len(seen) and high - low < _SMALL_PART * (bounds.high - bounds.low):
            says = f"{holds}, a small part of the declared range: less is lost to noise with nearer bounds of what is possible."
    return ColumnReading(name, str(getattr(values, "dtype", "")), declared, len(seen), missing, unread, n_beyond, says)


def _of_categories(name, values, kind: Categories | None, is_stated: bool = False) -> ColumnReading:
    categories = as_categories(values)
    dtype = str(getattr(values, "dtype", ""))
    missing, unread = _not_read(values, np.array([category is None for category in categories], dtype=bool))
    known = Counter(category for category in categories if category is not None)
    if kind is None:
        common = listed([repr(category) for category, _ in known.most_common()], _MOST_CATEGORIES)
        bounds = "" if is_stated else ", or bounds if these are numbers or dates"
        says = f"Holds {common}: declare the list of all possible ones{bounds}." if known else _NOTHING
        what = "a category, by its cells" if is_stated or known else "no number, date or category"
        return ColumnReading(name, dtype, what, known.total(), missing, unread, 0, says)
    position, has_other = dict.fromkeys(map(category_of, kind.categories)), OTHER in kind.categories
    others, says = Counter(), ""
    for category, count in known.items():
        if category not in position:
            others[str(category)] += count
    if not has_other:
        unread = Counter(unread) + others
    elif others:
        says = f"{sum(others.values()):,} count as {OTHER}: {_examples(others)}"
    n_read, n_named = len(categories) - missing - sum(unread.values()), len(position.keys() - {OTHER, MISSING})
    return ColumnReading(name, dtype, f"one of {n_named} categories", n_read, missing, unread, 0, says)


def _of_counts(name, values, counts: range) -> ColumnReading:
    numbers = as_numbers(values, "number")
    is_count = (numbers >= 0) & (numbers == np.floor(numbers))
    missing, unread = _not_read(values, ~is_count)
    n_beyond, dtype = int(np.sum(numbers[is_count] > counts[-1])), str(getattr(values, "dtype", ""))
    return ColumnReading(name, dtype, f"a count up to {counts[-1]}", int(is_count.sum()), missing, unread, n_beyond, "")


def _of_texts(documents, are_texts: list[bool]) -> tuple[ColumnReading]:
    missing, unread = _not_read(documents, ~np.array(are_texts))
    says = 'Texts are strings: of a list of words, write " ".join(words).' if unread else ""
    return (ColumnReading("texts", type(documents).__name__, "a text each", sum(are_texts), missing, unread, 0, says),)


def _of_sequences(sequences: Sequence, declared: int | range | None) -> tuple[ColumnReading, ...]:
    """Sequences of a list, of which one that is no table of steps, or of another width, is a single missing step; and cells."""
    width = Sequences.from_list(sequences).shape[1]
    unread, cells, numbers, n_read, n_numbers, n_cells = Counter(), Counter(), [], 0, 0, 0
    for values in sequences:
        steps = numbers_of(values)
        if steps is None:
            unread.update([] if is_missing(values) else [f"a {type(values).__name__}"])
            continue
        n_columns = steps.shape[1] if steps.ndim == 2 else 1
        if len(steps) and n_columns != width:
            unread[f"{n_columns} columns"] += 1
        else:
            n_read, n_numbers, n_cells = n_read + 1, n_numbers + int(np.isfinite(steps).sum()), n_cells + steps.size
            cells.update(map(_shown, unread_cells(values, steps)))
            numbers += [] if declared is None else steps[np.isfinite(steps)].tolist()
    what = f"{width} column{'s' * (width > 1)}, as most have"
    says = "Each that is not read counts as one missing step." if unread else ""
    n_missing = len(sequences) - n_read - unread.total(), n_cells - n_numbers - cells.total()
    of_steps, n_beyond, words = "numbers", 0, "Words are no steps: give each a code." if cells else ""
    if declared is not None:
        of_numbers = _reading("steps", np.array(numbers), declared)
        of_steps, n_numbers, n_beyond = of_numbers.declared, of_numbers.n_read, of_numbers.n_beyond
        cells.update(of_numbers.unread)
    return (
        ColumnReading("sequences", "list", what, n_read, n_missing[0], dict(unread), 0, says),
        ColumnReading("their steps", "cells", of_steps, n_numbers, n_missing[1], dict(cells), n_beyond, words),
    )


def _of_times(steps: StepIndex | None) -> tuple[ColumnReading, ...]:
    """Rows of a frame that have no place in their sequences, because their time was not read."""
    if steps is None or not steps.n_unread:
        return ()
    is_there = np.isfinite(steps.times.values[:, 0])
    n_read, unread = int(is_there.sum()), {"not as `date_format` says": steps.n_unread}
    says = "Each row whose date is not read is left out."
    return (ColumnReading(steps.names[1], "text", "a date", n_read, len(is_there) - n_read, unread, 0, says),)


def _examples(cells: dict[str, int]) -> str:
    """The most frequent ones, with their numbers."""
    common = sorted(cells.items(), key=lambda pair: -pair[1])
    return listed([f"{cell!r} ({count:,})" for cell, count in common], _MOST_EXAMPLES)


def _not_read(values, is_nothing: np.ndarray) -> tuple[int, dict[str, int]]:
    """How many of the cells without a value are missing, and the others."""
    cells = each_cell(values)
    others = Counter(_shown(cells[i]) for i in np.flatnonzero(are_unread(values, is_nothing)))
    return int(is_nothing.sum()) - others.total(), dict(others)


def _shown(cell: object) -> str:
    with suppress(Exception):  # a cell can be anything
        text = str(cell)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"<{type(cell).__name__}>"


def _are_mostly(values, kind: str) -> bool:
    cells = [cell for cell in each_cell(values) if not is_missing(cell)]
    return np.count_nonzero(~np.isnan(as_numbers(cells, kind))) > 0.5 * len(cells)
