"""Tables of numbers, counts and answers as numbers and codes: codes from 0 on, -1 for a missing answer. No value raises.

A column is declared by public bounds, by a range of counts, by a list of its categories or by the number of its codes. A value
that is none of its column is a missing cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from sklearn.utils.validation import validate_data

from vips._support.extras import imported
from vips.core.contract import Contract
from vips.core.records.checks import check_dtype
from vips.core.records.source import DataSource
from vips.core.records.tables import from_arrow
from vips.data._cell_values import as_categories, refuse_unread
from vips.data._columns import as_table, column, columns_of, is_frame
from vips.models.components.categories import Categories
from vips.models.components.declarations import Column, is_range

__all__ = [
    "as_array",
    "as_frame",
    "check_source",
    "found_categories",
    "largest_codes",
    "read_table",
    "with_dtype",
]

_LARGEST = 100_000  # categories of a column


class Readable(Protocol):
    """A declared column.

    Attributes
    ----------
    takes_codes : bool
        Whether numbers of an array are its cells as they are.
    wrong : str
        What a cell is that cannot be read, in words.
    """

    takes_codes: bool
    wrong: str

    def check(self, dtype, title: str, where: str) -> None:
        """Raise TypeError or ValueError for a dtype that cannot hold such cells, from the dtype alone."""

    def read(self, cells) -> np.ndarray:
        """Numbers or codes, each from its own cell alone."""

    def is_read(self, values: np.ndarray, cells) -> np.ndarray:
        """Which cells, read as these values, are as declared."""


def check_source(source: DataSource, model: Contract, columns: Sequence[Readable]) -> None:
    """Raise TypeError or ValueError if the columns of a source are not declared as codes, in its order."""
    argument, declared = model.argument, model.declared_columns
    if declared is None or not all(column.takes_codes for column in columns):
        raise TypeError(
            f"A {type(source).__name__} holds numbers and codes: declare the number of codes of each column of categories "
            f"in `{argument}`, as in [3, 2, 5]."
        )
    if isinstance(declared, Mapping) and list(declared) != list(source.feature_names or ()):
        raise ValueError(
            f"`{argument}` must name the columns of the source in its order: "
            f"{list(source.feature_names or ())}, got {list(declared)}."
        )


def read_table(model: Contract, X, reset: bool, remember: Callable[[Any], None] = lambda X: None) -> np.ndarray:
    """Numbers and codes of a table of the model's declared columns. A private fit reads no value before, and none raises.

    Parameters
    ----------
    model
        With ``declared_columns``, and ``readable_columns()`` that follow from them.
    X : data frame, or array
    reset : bool
        Whether a fit begins: names and dtypes are remembered, and cells of an ordinary fit checked.
    remember : callable, optional
        Takes the table of a fit before its columns are asked for.
    """
    X, by_name = from_arrow(X), model.declared_columns
    if isinstance(X, DataSource):
        return model.read_rows(X)  # raises
    if is_frame(X) and not hasattr(X, "iloc"):
        raise TypeError(f"{type(model).__name__} needs a table in memory, got {type(X).__name__}.")
    if not is_frame(X) and not (reset and model.is_private):
        X = validate_data(model, X, reset=reset, dtype=None, ensure_all_finite=False)
    X = as_table(X)
    names = columns_of(X, by_name if isinstance(by_name, Mapping) else range(X.shape[1]))
    X = X[names] if is_frame(X) else X
    validate_data(model, X, skip_check_array=True, reset=reset)
    holds_numbers = not is_frame(X) and X.dtype.kind not in "OUT"
    if holds_numbers:
        check_dtype(X, "X")
    if reset:
        remember(X)
        model.check_features()
        for name, declared in zip(names, model.readable_columns(), strict=True):
            declared.check(column(X, name).dtype, repr(name), f"X[{name!r}]")
        if is_frame(X):
            model.column_names_, model.column_dtypes_ = names_and_dtypes(X)
    columns = model.readable_columns()
    if holds_numbers and all(declared.takes_codes for declared in columns):
        values = X
    else:
        values = np.column_stack([
            declared.read(column(X, name)) for name, declared in zip(names, columns, strict=True)
        ])  # fmt: skip
    if reset and not model.is_private:
        for name, declared, read in zip(names, columns, values.T, strict=True):
            is_read, what = declared.is_read(read, column(X, name)), declared.wrong
            refuse_unread(name, column(X, name), is_read, what)
    return values


def names_and_dtypes(X) -> tuple[list, list[str]]:
    """Names and dtypes of the columns of a frame, as a fitted model keeps them."""
    return [name if isinstance(name, str | int) else str(name) for name in X.columns], [
        str(dtype) for dtype in X.dtypes
    ]


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
            table[name] = with_dtype(pd.Series(values), dtype)
        elif dtype == "category":
            table[name] = pd.Series(pd.Categorical.from_codes(values.astype(np.int64), categories=_objects(declared)))
        else:
            table[name] = with_dtype(pd.Series(_categories_of(values, declared), dtype=object), dtype)
    return pd.DataFrame(table)


def with_dtype(series, dtype: str) -> Any:
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
