"""Answers as codes: whole numbers from 0 on in every column, -1 for a missing answer. No value raises.

A column is declared by the number of its codes, or by a list of its categories. A value that is no code, or not in the list,
is a missing answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from vips._extras import imported
from vips.data._cell_values import as_categories
from vips.data._columns import column, columns_of

__all__ = [
    "LARGEST",
    "as_codes",
    "as_frame",
    "check_answerable",
    "check_order_of",
    "checked_categories",
    "found_categories",
    "is_range",
    "names_and_dtypes",
]

LARGEST = 100_000  # categories of a column
_NO_CATEGORIES = ("interval", "period", "decimal", "list", "struct", "binary")  # dtypes of pandas and Arrow


def check_order_of(source, declared: object, argument: str) -> None:
    """Raise ValueError if columns that are declared by name are not those of a source, in its order."""
    if isinstance(declared, Mapping) and list(declared) != list(source.feature_names or ()):
        raise ValueError(
            f"`{argument}` must name the columns of the source in its order: "
            f"{list(source.feature_names or ())}, got {list(declared)}."
        )


def names_and_dtypes(X) -> tuple[list, list[str]]:
    """Of the columns of a frame, as a fitted model keeps them."""
    return [name if isinstance(name, str | int) else str(name) for name in X.columns], [
        str(dtype) for dtype in X.dtypes
    ]


def checked_categories(name: object, declared: object) -> list:
    """The categories of one column: 0, 1, … for a number.

    Raises
    ------
    ValueError
        If they are no whole number from 1 on and no list of different strings and numbers.
    """
    if isinstance(declared, int | np.integer) and not isinstance(declared, bool) and 1 <= declared <= LARGEST:
        return list(range(int(declared)))
    if not isinstance(declared, list | tuple | np.ndarray) or not len(declared):  # what a file can hold
        raise ValueError(f"Column {name!r} is declared as {declared!r}: write a list of categories, or their number.")
    categories = [category.item() if isinstance(category, np.generic) else category for category in declared]
    known = as_categories(categories)
    if any(category is None for category in known):
        raise ValueError(f"Categories of column {name!r} must be strings or finite numbers.")
    if len(set(known)) != len(known):
        raise ValueError(f"Column {name!r} has a category twice.")
    return categories


def check_answerable(name: object, dtype, categories: Sequence) -> None:
    """Refuse a column of whose dtype no value is one of its categories: all answers would be missing.

    Raises
    ------
    TypeError
        From the dtype and the declared categories alone, not from values.
    """
    inner = getattr(getattr(dtype, "categories", None), "dtype", dtype)  # of a categorical column
    kind = getattr(inner, "kind", "O")
    of_words = kind in "UT" or "string" in str(inner) or str(inner) == "str"
    if kind in "SMmcV" or str(inner).startswith(_NO_CATEGORIES):
        raise TypeError(
            f"Column {name!r} has dtype {inner}, and no such value is a category: categories are strings and numbers. "
            'Convert it, or cut it into public groups with names: pandas.cut(column, bounds, labels=["low", "high"]).'
        )
    strings = [isinstance(category, str) for category in categories]
    if (kind in "biuf" and all(strings)) or (of_words and kind != "b" and not any(strings)):
        raise TypeError(
            f"Column {name!r} has dtype {inner}, but its categories are {'strings' if all(strings) else 'numbers'}, such as "
            f"{categories[0]!r}: no answer would be one of them. Declare its values, or convert the column."
        )


def is_range(categories: Sequence) -> bool:
    """Whether the categories are the codes 0, 1, … themselves."""
    return all(type(category) is int and category == i for i, category in enumerate(categories))


def found_categories(X) -> list[list]:
    """Categories that occur, column by column, in order: for fits that are not private, and read all values.

    Raises
    ------
    ValueError
        If a column holds no string and no finite number.
    """
    names = columns_of(X, range(X.shape[1]))
    categories = [_found(column(X, name)) for name in names]
    for name, listed in zip(names, categories, strict=True):
        if not listed:
            raise ValueError(
                f"Column {name!r} holds no answer: no string and no finite number. Leave it out, or declare it."
            )
    return categories


def _found(values) -> list:
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "kind", None) == "b":
        return [False, True]
    if hasattr(dtype, "categories"):
        listed = as_categories(list(dtype.categories))
        if all(category is not None for category in listed):
            return listed.tolist()
    there = {category for category in as_categories(values) if category is not None}
    return sorted(there, key=lambda category: (isinstance(category, str), category))


def as_codes(X, categories: Sequence[Sequence]) -> np.ndarray:
    """Codes of a data frame's or array's answers, each from its value alone: int32 of shape (n_records, n_columns)."""
    names = columns_of(X, range(X.shape[1]))
    codes = np.empty((len(X), len(names)), np.int32)
    for j, (name, listed) in enumerate(zip(names, categories, strict=True)):
        places = {category: i for i, category in enumerate(as_categories(list(listed)))}
        values = as_categories(column(X, name))
        codes[:, j] = np.fromiter((places.get(value, -1) for value in values), np.int32, len(values))
    return codes


def as_frame(codes: np.ndarray, names: Sequence, categories: Sequence[Sequence], dtypes: Sequence[str]):
    """The data frame of these answers, with columns of the given dtypes."""
    pd = imported("pandas", "A data frame")

    columns = {}
    for j, (name, listed, dtype) in enumerate(zip(names, categories, dtypes, strict=True)):
        values = np.empty(len(listed), dtype=object)
        values[:] = listed
        if dtype == "category":
            columns[name] = pd.Series(pd.Categorical.from_codes(codes[:, j], categories=values))
            continue
        columns[name] = pd.Series(values[codes[:, j]], dtype=object)
        with suppress(
            TypeError, ValueError, NotImplementedError
        ):  # categories that are no values of the dtype stay objects
            columns[name] = columns[name].astype(dtype)
    return pd.DataFrame(columns)
