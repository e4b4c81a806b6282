"""Which dtypes can hold what a column is declared to hold: the one table of declarations × dtypes.

=========================  ==========================================  =====================================================
declared                   dtypes that are read                        a cell
=========================  ==========================================  =====================================================
numbers                    booleans, numbers, decimals, text, objects  a number, also of a text like "12.5"
dates                      dates, times, text, objects                 a date, also of a text in ISO 8601
categories                 all but dates; text needs text or           equal to one of them; 1, 1.0 and True are equal
                           objects, numbers need no text
=========================  ==========================================  =====================================================

A column of another dtype is refused, by its dtype alone; what a categorical holds depends on records and decides nothing. A
cell that cannot be read is missing, like None, NA, NaN and what a mask hides. Each cell is read alone: no other cell, and no
other record, changes what it means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from numbers import Real

import numpy as np

from vips.core.records.tables import is_nullable_number, suggestion_for
from vips.data._cell_values import category_of, codes_of_categories, is_text, kind_of

__all__ = ["MISSING", "OTHER", "check_holds_categories", "check_holds_numbers", "codes_among", "refuse_bounds_in_list"]

# Categories of all other values, and of missing ones.
OTHER, MISSING = "(other)", "(missing)"


def check_holds_numbers(dtype, title: str, where: str, in_frame: bool, is_date: bool = False) -> None:
    """Raise TypeError or ValueError for a dtype that cannot hold numbers, or dates.

    ``where`` is an expression for the column, and ``in_frame`` whether that is one of a data frame.
    """
    kind, what = kind_of(dtype), "dates" if is_date else "numbers"
    _refuse_complex(dtype, title)
    if kind in (("number", "flag") if is_date else ("date",)):
        dates = "two dates, e.g. (datetime.date(2020, 1, 1), datetime.date(2029, 12, 31))"
        other = "two numbers, e.g. (0, 100)" if is_date else dates
        raise TypeError(f"Column {title} has bounds that are {what}, but its dtype is {dtype}: write {other}.")
    if kind is None:
        raise TypeError(
            f"Column {title} has bounds, but its dtype is {dtype}. {suggestion_for(dtype, where, in_frame)}"
        )


def check_holds_categories(dtype, title: str, categories: Collection) -> None:
    """Raise TypeError or ValueError if no value of a column of this dtype could be one of the categories."""
    _refuse_complex(dtype, title)
    whole = isinstance(dtype, np.dtype) or is_nullable_number(dtype)
    whole = whole and dtype.kind in "biu"  # not floats: readers use them for missing values
    if whole and categories and all(isinstance(category, str) for category in categories):
        raise TypeError(
            f"Column {title} holds numbers ({dtype}), but its categories are strings, so that no value would match. "
            "Declare numbers, or convert the column to strings."
        )
    if is_text(dtype) and categories and not any(isinstance(category, str) for category in categories):
        raise TypeError(
            f"Column {title} holds text ({dtype}), but its categories are numbers, so that no value would match. "
            f"Declare strings, such as {str(next(iter(categories)))!r}."
        )
    if kind_of(dtype) in (None, "date"):
        raise TypeError(f"Column {title} has categories, but its dtype is {dtype}: convert it to strings first.")


def codes_among(values, categories: Sequence, others: Mapping[object, int]) -> np.ndarray:
    """Position of each value among the categories, -1 if it has none; shape (n_rows,). ``OTHER`` and ``MISSING`` among them
    stand for all other values and for missing ones. ``others`` are positions of further categories.
    """
    places = {category_of(category): i for i, category in enumerate(categories)} | others
    other, missing = places.pop(OTHER, -1), places.pop(MISSING, -1)
    return codes_of_categories(values, places, other, missing)


def refuse_bounds_in_list(declared: Sequence, title: str) -> None:
    """Raise TypeError for a list of two dates, or of two ascending numbers that are not consecutive integers: bounds may be
    meant, and as categories nearly all values would be missing."""
    if len(declared) != 2:
        return
    low, high = declared
    are_dates = all(isinstance(end, date | np.datetime64) for end in declared)
    if not are_dates:
        if not all(isinstance(end, Real) and not isinstance(end, bool | np.bool_) for end in declared):
            return
        if not low < high or (high - low == 1 and low == np.floor(low)):
            return
    instead = "" if are_dates else f" For two categories write the larger one first: [{high!r}, {low!r}]."
    raise TypeError(
        f"Column {title} is declared as the list [{low!r}, {high!r}], of two categories. Bounds are a tuple: write "
        f"({low!r}, {high!r}).{instead}"
    )


def _refuse_complex(dtype, title: str) -> None:
    if getattr(dtype, "kind", "O") == "c":
        raise ValueError(f"Complex data not supported: column {title} has dtype {dtype}.")
