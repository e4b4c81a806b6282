"""Tables of numbers, counts and answers as numbers and codes: codes from 0 on, -1 for a missing answer. No value raises.

A column is declared by public bounds, by a range of counts, by a list of its categories or by the number of its codes. A value
that is none of its column is a missing cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from vips._support.extras import imported
from vips.data._cell_values import as_categories, as_numbers, codes_of_categories, refuse_unread
from vips.data._columns import column, columns_of
from vips.data._declared_dtypes import check_holds_categories, check_holds_numbers
from vips.models.components.categories import Categories
from vips.models.components.declarations import Column

__all__ = [
    "as_array",
    "as_frame",
    "check_cells",
    "check_dtypes",
    "check_order_of",
    "codes_of",
    "found_categories",
    "is_range",
    "largest_codes",
    "names_and_dtypes",
    "values_of",
]

_LARGEST = 100_000  # categories of a column


def check_order_of(source, declared: object, argument: str) -> None:
    """Raise ValueError if columns that are declared by name are not those of a source, in its order."""
    if isinstance(declared, Mapping) and list(declared) != list(source.feature_names or ()):
        raise ValueError(
            f"`{argument}` must name the columns of the source in its order: "
            f"{list(source.feature_names or ())}, got {list(declared)}."
        )


def names_and_dtypes(X) -> tuple[list, list[str]]:
    """Names and dtypes of the columns of a frame, as a fitted model keeps them."""
    return [name if isinstance(name, str | int) else str(name) for name in X.columns], [
        str(dtype) for dtype in X.dtypes
    ]


def check_dtypes(X, names: Sequence, columns: Sequence[Column]) -> None:
    """Refuse columns of dtypes that hold no such values: all cells would be missing.

    Raises
    ------
    TypeError
        From the dtypes and the declared columns alone, not from values.
    """
    for name, (kind, values) in zip(names, columns, strict=True):
        dtype, title = column(X, name).dtype, repr(name)
        if kind is Categories:
            check_holds_categories(dtype, title, values)
        else:
            check_holds_numbers(dtype, title, f"X[{title}]", in_frame=True)


def is_range(categories: Sequence) -> bool:
    """Whether the categories are the codes 0, 1, … themselves."""
    return isinstance(categories, range) or all(
        type(category) is int and category == i for i, category in enumerate(categories)
    )


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


def largest_codes(X: np.ndarray) -> list[range]:
    """Codes up to the largest of each column, for fits that are not private.

    Raises
    ------
    ValueError
        If a number is infinite, or neither a code nor -1 nor NaN.
    """
    given = X[~np.isnan(X)] if X.dtype.kind == "f" else X
    if not ((given >= -1) & (given == np.floor(given)) & (given < _LARGEST)).all():
        raise ValueError(
            f"X must hold codes: whole numbers from 0 to {_LARGEST - 1:,}, or NaN or -1 for missing answers."
        )
    largest = np.fmax.reduce(X, axis=0, initial=0) if X.dtype.kind == "f" else X.max(axis=0, initial=0)
    return [range(int(code) + 1) for code in largest]


# -- values -----------------------------------------------------------------------------------------------------


def values_of(X, names: Sequence, columns: Sequence[Column]) -> np.ndarray:
    """Numbers, and codes with -1 for what is no category; each from its value alone."""
    return np.column_stack([
        codes_of(column(X, name), values) if kind is Categories else as_numbers(column(X, name), "number")
        for name, (kind, values) in zip(names, columns, strict=True)
    ])  # fmt: skip


def check_cells(X, names: Sequence, columns: Sequence[Column], values: np.ndarray) -> None:
    """In an ordinary fit a cell that is neither missing nor what its column is declared to hold is a mistake.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        What :func:`values_of` gives, or X if it holds numbers and codes.

    Raises
    ------
    ValueError
        It names the column and a cell.
    """
    for name, (kind, declared), read in zip(names, columns, values.T, strict=True):
        is_read, what = kind.reads(read, declared), f"no {kind.cell}"
        if kind is Categories:
            what = f"none of its categories, such as {declared[0]!r}"
            if is_range(declared):  # -1 is a missing code
                is_read |= as_numbers(column(X, name), "number") == -1
        refuse_unread(name, column(X, name), is_read, what)


def codes_of(answers, categories: Sequence) -> np.ndarray:
    """Codes of a column of answers, each from its value alone: int32."""
    places = {category: i for i, category in enumerate(as_categories(list(categories)))}
    return codes_of_categories(answers, places, -1, -1).astype(np.int32)


def as_array(cells: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Numbers and codes; objects, if categories are no codes."""
    answers = [(j, values) for j, (kind, values) in enumerate(columns) if kind is Categories]
    if all(is_range(values) for _, values in answers):
        return cells.astype(np.int64) if len(answers) == len(columns) else cells
    table = cells.astype(object)
    for j, values in answers:
        table[:, j] = _categories_of(cells[:, j], values)
    return table


def as_frame(cells: np.ndarray, names: Sequence, columns: Sequence[Column], dtypes: Sequence[str]):
    """The data frame of these cells, with columns of the given dtypes."""
    pd = imported("pandas", "A data frame")

    table = {}
    for values, name, (kind, declared), dtype in zip(cells.T, names, columns, dtypes, strict=True):
        if kind is not Categories:
            table[name] = _with_dtype(pd.Series(values), dtype)
        elif dtype == "category":
            table[name] = pd.Series(pd.Categorical.from_codes(values.astype(np.int64), categories=_objects(declared)))
        else:
            table[name] = _with_dtype(pd.Series(_categories_of(values, declared), dtype=object), dtype)
    return pd.DataFrame(table)


def _with_dtype(series, dtype: str) -> Any:
    """A column of this dtype, rounded if numbers become whole; as it is, if it holds no values of the dtype."""
    with suppress(TypeError, ValueError, NotImplementedError):
        is_rounded = series.dtype == float and "int" in dtype.lower()
        return (series.round() if is_rounded else series).astype(dtype)
    return series


def _categories_of(codes: np.ndarray, categories: Sequence) -> np.ndarray:
    return _objects(categories)[codes.astype(np.int64)]


def _objects(values: Sequence) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
