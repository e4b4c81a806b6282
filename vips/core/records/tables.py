"""Data frames and Arrow tables: the declared type of a column decides what it becomes, never a value."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

__all__ = ["from_arrow", "is_nullable_number", "suggestion_for", "with_numpy_numbers", "without_mask", "without_views"]


def from_arrow(values: Any) -> Any:
    """A table or column of polars, PyArrow or another library that exports Arrow streams, as a data frame or series of pandas.

    Anything else is returned as it is, pandas' own containers included.

    Raises
    ------
    ImportError
        If pandas or PyArrow is missing.
    TypeError
        If the table cannot be read.
    """
    if type(values).__name__ == "LazyFrame":
        raise TypeError("A LazyFrame holds no rows yet: pass X.collect().")
    exports = hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__")
    if not exports or hasattr(values, "iloc"):
        return values
    kind = type(values).__name__
    if type(values).__module__.partition(".")[0] == "polars":
        _check_polars(values)
    try:
        import pandas as pd
        import pyarrow as pa
    except ImportError as missing:
        raise ImportError(
            f"To read a {kind}, vips needs pandas and PyArrow: pip install pandas pyarrow. Or pass arrays: X.to_numpy()."
        ) from missing
    with suppress(Exception):  # its message may quote a value
        if hasattr(values, "columns"):
            # ArrowDtype keeps every type; pandas' NumPy types would depend on missing values
            table = pa.table(values)
            table = pa.Table.from_arrays(list(map(without_views, table.columns)), table.column_names)
            return table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
        column = values if isinstance(values, pa.Array) else pa.chunked_array(values)
        return pd.Series(pd.arrays.ArrowExtensionArray(without_views(column)))
    raise TypeError(f"The {kind} cannot be read as an Arrow table.")


def without_views(column: Any) -> Any:
    """An Arrow array, chunked or not, of types that all functions of Arrow take: those of polars' texts, views, few do.

    No text raises, whatever bytes it holds.
    """
    kind = _without_view(column.type)
    return column if kind == column.type else column.cast(kind)


def _without_view(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_view(kind.value_type), kind.ordered)
    return {"string_view": pa.large_string(), "binary_view": pa.large_binary()}.get(str(kind), kind)


def _check_polars(values: Any) -> None:
    """Raise TypeError for Python's own objects, of which Arrow would get the addresses."""
    dtypes = getattr(values, "schema", None) or {getattr(values, "name", ""): getattr(values, "dtype", None)}
    for name, dtype in dtypes.items():
        if str(dtype) == "Object":
            raise TypeError(
                f"Column {name!r} has polars' dtype Object: convert it to strings or numbers first, e.g. by "
                "map_elements(str, return_dtype=polars.String)."
            )


def without_mask(values: Any) -> Any:
    """A masked array as a plain one, in which hidden values are missing: NaN, NaT or None. Anything else as it is."""
    if not np.ma.isMA(values):
        return values
    hidden, kind = np.ma.getmaskarray(values), values.dtype.kind
    if kind in "mM":
        return np.where(hidden, np.array("NaT", dtype=values.dtype), values.data)
    missing: Any = np.nan if kind in "biuf" else None
    return np.where(hidden, missing, values.data)


def with_numpy_numbers(values: Any) -> Any:
    """A data frame or series with float64 in place of nullable numbers; missing ones are NaN.

    Every nullable, Arrow or sparse column of whole numbers, floats or booleans becomes float64, whether or not a value is
    missing. Whole numbers beyond 2^53 are rounded. Other columns stay as they are.
    """
    if not hasattr(values, "iloc") or not (hasattr(values, "dtypes") or hasattr(values, "dtype")):
        return values
    if values.ndim == 1:
        if not is_nullable_number(values.dtype):
            return values
        return type(values)(_floats(values), index=values.index, name=values.name)
    places = [j for j, dtype in enumerate(values.dtypes) if is_nullable_number(dtype)]
    if places:
        values = values.copy(deep=False)
    for j in places:
        values.isetitem(j, _floats(values.iloc[:, j]))
    return values


def is_nullable_number(dtype: Any) -> bool:
    """Whether this is one of pandas' own types of numbers or booleans: Int64, boolean, double[pyarrow], Sparse[float], …"""
    if type(dtype).__module__.partition(".")[0] != "pandas":
        return False
    return getattr(dtype, "kind", "O") in "biuf" or str(dtype).startswith("decimal")


def suggestion_for(dtype: Any, values: str, in_frame: bool) -> str:
    """What to write instead of a column that holds no numbers; it works for all values that the column can hold.

    ``values`` is the expression for them: "X", "X['day']", or "y" for labels; ``in_frame`` whether they are a column of a data
    frame, or a series.
    """
    kind = getattr(dtype, "kind", "O")
    if kind == "M":
        days = f"({values} - numpy.datetime64('2000-01-01')) / numpy.timedelta64(1, 'D')"
        if in_frame:
            since = "pandas.Timestamp('2000-01-01', tz='UTC')"
            days = f"(pandas.to_datetime({values}, utc=True) - {since}) / pandas.Timedelta(days=1)"
        return f"Dates become numbers as days since a public date, e.g. {days}."
    if kind == "m":
        days = f"pandas.to_timedelta({values}) / pandas.Timedelta(days=1)"
        days = days if in_frame else f"{values} / numpy.timedelta64(1, 'D')"
        return f"Durations become numbers when they are divided by a unit, e.g. {days}."
    if values == "y":
        numbers = (
            f"pandas.to_numeric({values}, errors='coerce').astype(float)" if in_frame else f"{values}.astype(float)"
        )
        return f"Declare words as `classes` of a classifier. Convert numbers kept as text or objects, e.g. {numbers}."
    if in_frame:
        return (
            "Encode categories with vips.preprocessing.TableEncoder and a public list of them. Convert numbers kept as text "
            f"or objects, e.g. pandas.to_numeric({values}, errors='coerce').astype(float)."
        )
    return f"Convert it first, e.g. {values}.astype(float)."


def _floats(series: Any) -> np.ndarray:
    return series.to_numpy(dtype=np.float64, na_value=np.nan)
