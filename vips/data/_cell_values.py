"""Reads the columns of a table for a private encoder: numbers, days since 1970, or categories. No value raises.

============  ====================================================  ======================================
kind          dtypes that have it, if nothing is declared           what a row's value becomes
============  ====================================================  ======================================
"number"      integers, floats                                      float, NaN if missing or infinite
"date"        dates and times                                       days since 1970-01-01 as a float, or NaN
"category"    strings, objects, pandas categoricals                 a string, an integer or a float, or None
"flag"        booleans                                              the same; True and False are public
============  ====================================================  ======================================
"""

from __future__ import annotations

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from numbers import Integral, Real
from reprlib import repr as repr_of  # of a cell of any length
from unicodedata import normalize

import numpy as np

from vips.core.records.tables import is_nullable_number

__all__ = [
    "are_unread", "as_categories", "as_numbers", "category_of", "cells_of_categories", "codes_of_categories", "date_of",
    "day_of", "each_cell", "is_missing", "is_text", "kind_of", "number_of", "one_form", "refuse_unread",
]  # fmt: skip

_KINDS = {"b": "flag", "i": "number", "u": "number", "f": "number", "M": "date"}
# Dtypes of pandas and Arrow whose cells are texts or objects; those of "null" are all missing.
_OF_CELLS = ("str", "string", "large_string", "string_view", "category", "dictionary", "null")
_LARGEST = 2**64
_TEXT_OF_NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kind_of(dtype) -> str | None:
    """The kind of a column of that dtype, of NumPy, pandas or Arrow; None if no kind fits."""
    name, of_numpy = str(dtype), isinstance(dtype, np.dtype)
    if is_text(dtype) or (of_numpy and dtype.kind == "O") or re.split(r"[\[<]", name)[0] in _OF_CELLS:
        return "category"
    if name.startswith(("date32", "date64")):
        return "date"
    if not of_numpy and not is_nullable_number(dtype) and getattr(dtype, "kind", "O") != "M":
        return None  # periods, intervals, lists
    return "number" if name.startswith("decimal") else _KINDS.get(getattr(dtype, "kind", None))


def is_text(dtype) -> bool:
    """Whether a column of this dtype holds texts alone."""
    return getattr(dtype, "kind", "") in ("U", "T") or str(dtype).partition("[")[0] in _OF_CELLS[:4]


def as_numbers(values, kind: str) -> np.ndarray:
    """A column of numbers or dates as float64 of shape (n_rows,); NaN for what is missing, infinite or of another type."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        numbers = _days(values) if kind == "date" else _floats(values)
        return np.where(np.isfinite(numbers), numbers, np.nan)


def as_categories(values) -> np.ndarray:
    """A column of categories as an object array of shape (n_rows,): strings, integers, finite floats; None for all else.

    Values that are equal in Python (1, 1.0 and True) become the same category, so that none of them depends on a record.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.fromiter(map(category_of, each_cell(values)), object, len(values))


def cells_of_categories(values) -> tuple[list, np.ndarray]:
    """The categories that occur, and the cell of each row: 0 for missing, then one for each category. Private."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        different, rows = _different(values)
    places = defaultdict(count(1).__next__, {None: 0})
    cells = np.fromiter(map(places.__getitem__, as_categories(different)), np.int64, len(different))
    return list(places)[1:], cells if rows is None else cells[rows]


def codes_of_categories(values, places: Mapping, other: int, missing: int) -> np.ndarray:
    """What ``places`` has for each row's category, ``other`` if it has nothing; int64 of shape (n_rows,)."""
    categories, cells = cells_of_categories(values)
    return np.array([missing, *(places.get(category, other) for category in categories)], np.int64)[cells]


def _different(values) -> tuple:
    """The different cells of a column of text in Arrow, and the place of each row's among them; other columns as they are.

    Objects are not compared: equal ones may be different categories, and what they do is theirs.
    """
    if "Arrow" in type(getattr(values, "array", None)).__name__ and is_text(values.dtype):
        with suppress(Exception):
            rows, different = values.factorize(use_na_sentinel=False)
            return different, rows
    return values, None


def _floats(values) -> np.ndarray:
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    if getattr(dtype, "kind", "O") in "biuf":  # nullable dtypes of pandas
        with suppress(Exception):
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.fromiter(map(number_of, each_cell(values)), np.float64, len(values))


def _days(values) -> np.ndarray:
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "kind", "O") == "M":
        with suppress(Exception):
            times = values.to_numpy() if hasattr(values, "to_numpy") else values
            if times.dtype.kind == "M":
                seconds = times.astype("datetime64[s]")
                return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86400.0)
    return np.fromiter(map(day_of, each_cell(values)), np.float64, len(values))


def is_missing(value: object) -> bool:
    """Whether a cell says that it holds nothing: None, NA, NaT, NaN."""
    with suppress(Exception):
        is_no_value = value is None or type(value).__name__ in ("NAType", "NaTType")
        return is_no_value or bool(np.isscalar(value) and value != value)
    return False


def are_unread(values, is_nothing: np.ndarray) -> np.ndarray:
    """Which of the cells without a value hold something that could not be read: neither missing nor an empty text."""
    nothing = np.flatnonzero(is_nothing)
    unread, cells = np.zeros(len(is_nothing), dtype=bool), each_cell(values) if len(nothing) else ()
    unread[nothing] = [not (is_missing(cells[i]) or _is_empty(cells[i])) for i in nothing]
    return unread


def _is_empty(value: object) -> bool:
    with suppress(Exception):
        return not str.__len__(value)
    return False


def refuse_unread(name: object, values, is_read: np.ndarray, what: str) -> None:
    """Raise ValueError in an ordinary fit for a cell that is neither missing nor read; a private one counts it as missing."""
    unread = () if is_read.all() else np.flatnonzero(are_unread(values, ~is_read))
    if len(unread):
        raise ValueError(
            f"Column {name!r} holds {repr_of(each_cell(values)[unread[0]])}, which is {what}: mend it, declare it, or write "
            "None or NaN if it is missing."
        )


def number_of(value: object) -> float:
    """A cell as a number; NaN for what is none. A text like " -12.5e3 " is a number, one like "<5", "1,000" or "nan" is not."""
    with suppress(Exception):
        if isinstance(value, str):
            text = str.__str__(value)  # of a subclass, too, whose own methods stay unused
            return float(text) if _TEXT_OF_NUMBER.fullmatch(text) else math.nan
        if isinstance(value, Real | Decimal | np.bool_):
            return float(value)
    return math.nan


def date_of(value: object, formats: Sequence[str] = ()) -> date | None:
    """A cell as a date, or a date with a time; None for what is none.

    A text is read by the first of the formats that fits, without the blanks around it; without formats, if it is in ISO 8601.
    """
    with suppress(Exception):
        if isinstance(value, np.datetime64) and isinstance(value.astype("M8[s]").item(), date):  # else beyond the range
            value = value.astype("M8[us]").item()
        if isinstance(value, str):
            value = _date_of_text(str.strip(value), formats)
        if isinstance(value, date) and not is_missing(value):
            return value
    return None


def _date_of_text(text: str, formats: Sequence[str]) -> datetime | None:
    if not formats:
        return datetime.fromisoformat(text)
    for date_format in formats:
        with suppress(ValueError):
            return datetime.strptime(text, date_format)
    return None


def day_of(value: object) -> float:
    """Days since 1970 of a cell that is a date, as :func:`date_of` reads it. Without a zone it is UTC."""
    day = date_of(value)
    with suppress(Exception):
        if isinstance(day, datetime):
            zoned = day if day.tzinfo is not None else day.replace(tzinfo=UTC)
            return float((zoned - _EPOCH).total_seconds() / 86400.0)
        if day is not None:
            return float(day.toordinal() - _EPOCH.toordinal())
    return math.nan


def category_of(value: object) -> str | int | float | None:
    """A cell as a category, or None. Values that are equal in Python are one category."""
    kind = type(value)  # of Python itself: nothing of another class runs, and most cells are of these
    if kind is str:
        return one_form(value)
    if kind is int:
        return value if abs(value) < _LARGEST else None
    with suppress(Exception):
        if isinstance(value, str):
            return one_form(str.__str__(value))
        if isinstance(value, Integral | np.bool_):
            number = int(value)
            return number if not isinstance(value, np.timedelta64) and abs(number) < _LARGEST else None
        if isinstance(value, Real | Decimal) and math.isfinite(number := float(value)):
            return int(number) if number.is_integer() else number
    return None


def one_form(text: str) -> str:
    """The text with accents as part of their letters, and not behind them (Unicode's NFC): to people these are one text."""
    return text if text.isascii() else normalize("NFC", text)


def each_cell(values) -> Iterable:
    """The values of a column. Iterating over a PyArrow column fails at a value that Python does not have: it becomes None."""
    with suppress(Exception):
        is_text = type(getattr(values, "dtype", None)).__name__ == "StringDtype"  # pandas iterates over it slowly
        return values.to_numpy(dtype=object).tolist() if is_text else list(values)
    cells: list = [None] * len(values)
    for i in range(len(values)):
        with suppress(Exception):
            cells[i] = getattr(values, "iloc", values)[i]
    return cells
