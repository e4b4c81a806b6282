"""What rows are ordered by: a column of numbers or dates, as pairs of floats that sort as its values do.

A double does not hold every 64-bit integer, and a column of whole numbers becomes one of doubles where one is missing. So a
number is two doubles that hold either exactly, and files whose columns differ in this way have one order.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np

from vips.core.records.groups import arrow_values
from vips.core.records.tables import is_nullable_number
from vips.data._cell_values import date_of, each_cell

__all__ = ["dates_of", "is_text_or_object", "sortable", "units_of", "values_of"]

_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_CONVERT = (
    "Convert it first: dates by pandas.to_datetime(..., format='%d.%m.%Y', errors='coerce'), numbers by "
    "pandas.to_numeric(..., errors='coerce')."
)
_SECONDS_PER_UNIT = {"m": 60, "h": 3600, "D": 86_400, "W": 604_800}


def sortable(values: object, n_rows: int) -> tuple[np.ndarray, str | None]:
    """Keys that sort as the values do, and what kind of values they are.

    A container or type that has no such order, or another number of rows, raises TypeError or ValueError: public facts.

    Returns
    -------
    keys : ndarray of float64, shape (n_rows, 2)
        The first column sorts, the second decides ties. What is missing is NaN, which sorts last.
    kind : {"numbers", "dates", "dates with a time zone", "times"} or None
        Values of two kinds are not to be compared. None if the type holds missing values only.
    """
    keys, kind = _keys(values)
    if keys.shape != (n_rows, 2):
        raise ValueError("X and `order` have different numbers of rows.")
    return keys, kind


def values_of(keys: np.ndarray, kind: str | None, is_whole: bool):
    """What the keys of :func:`sortable` stand for, to the microsecond; dates with a time zone in UTC. ``is_whole``: as int64,
    if all are there and fit. A date beyond its range is NaT."""
    highs, lows = keys.T
    is_number = kind in ("numbers", None)
    unit = 2**32 if is_number else 10**6
    limit = 2**63 // unit
    is_there = (-limit <= highs) & (highs < limit)
    if is_number:
        return _joined(highs, lows, unit) if is_whole and is_there.all() else highs * units_of(kind) + lows
    with np.errstate(invalid="ignore"):
        microseconds = _joined(highs, np.rint(lows * 1e6), unit)
    microseconds[~is_there] = np.iinfo(np.int64).min  # NaT
    values = microseconds.view("m8[us]" if kind == "times" else "M8[us]")
    if kind != "dates with a time zone":
        return values
    import pandas as pd

    return pd.DatetimeIndex(values, tz="UTC")


def units_of(kind: str | None) -> float:
    """What 1 in the first column of the keys is in units of the second."""
    return 2.0**32 if kind in ("numbers", None) else 1.0


def _joined(highs: np.ndarray, lows: np.ndarray, unit: int) -> np.ndarray:
    return highs.astype(np.int64) * unit + lows.astype(np.int64)


def is_text_or_object(dtype) -> bool:
    """Whether a column of that dtype holds texts, or anything."""
    from pandas.api.types import is_object_dtype, is_string_dtype

    return not hasattr(dtype, "categories") and (is_object_dtype(dtype) or is_string_dtype(dtype))


def dates_of(values, date_format: str) -> np.ndarray:
    """The dates of a series of text or objects, in UTC, cell by cell; NaT for what is neither a date nor written like that.

    Reading all of them at once, a cell with a time zone or nanoseconds of its own would change what others become.
    """
    if not is_text_or_object(values.dtype):
        raise TypeError(f"`date_format` is for a column of text or objects, got dtype {values.dtype}: leave it out.")
    return np.array([_in_utc(date_of(value, [date_format])) for value in each_cell(values)], dtype="M8[us]")


def _in_utc(when: date | None) -> np.datetime64:
    with suppress(Exception):
        is_zoned = isinstance(when, datetime) and when.tzinfo is not None
        return np.datetime64(when.astimezone(UTC).replace(tzinfo=None) if is_zoned else when, "us")
    return np.datetime64("NaT", "us")


def _keys(values: object) -> tuple[np.ndarray, str | None]:
    arrow = arrow_values(values)
    if arrow is not None:
        return _of_arrow(arrow)
    dtype = getattr(values, "dtype", None)
    if not (isinstance(values, np.ndarray) or hasattr(values, "to_numpy")):
        raise TypeError(f"`order` must be an array or a series, got {type(values).__name__}.")
    if hasattr(dtype, "categories"):  # their type decides: that of the values may depend on whether one is missing
        keys, kind = _keys(dtype.categories)
        codes = np.asarray(getattr(values, "cat", values).codes)
        return np.vstack([keys, [[np.nan, np.nan]]])[codes], kind
    if hasattr(dtype, "tz"):
        return _of_dates(np.asarray(values, dtype=f"M8[{dtype.unit}]")), "dates with a time zone"
    if is_nullable_number(dtype):
        exact = {"f": np.float64, "u": np.uint64}.get(dtype.kind, np.int64)
        return _without(_of_numbers(values.to_numpy(dtype=exact, na_value=0)), np.asarray(values.isna())), "numbers"
    array = np.asarray(values)
    if array.dtype.kind not in "biufmM":
        raise TypeError(f"`order` must hold numbers or dates, got dtype {array.dtype}. {_CONVERT}")
    kind = {"m": "times", "M": "dates"}.get(array.dtype.kind, "numbers")
    keys = _of_numbers(array) if kind == "numbers" else _of_dates(array)
    return _without(keys, np.ma.getmaskarray(values)) if np.ma.isMA(values) else keys, kind


def _without(keys: np.ndarray, missing: np.ndarray) -> np.ndarray:
    keys[missing] = np.nan
    return keys


def _of_numbers(values: np.ndarray) -> np.ndarray:
    """Multiples of 2³², and the rest, which has the sign of the number. Both are exact."""
    if values.dtype.kind == "f":
        with np.errstate(all="ignore"):
            values = values.astype(np.float64)
        highs = np.trunc(values / 2**32)
        with np.errstate(invalid="ignore"):
            lows = np.where(np.isinf(values), 0.0, values - highs * 2**32)
    else:
        values = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
        highs, lows = values >> 32, values & 0xFFFFFFFF
        is_cut = (values < 0) & (lows > 0)  # towards zero, as for floats
        highs, lows = highs + is_cut, lows.astype(np.float64) - is_cut * 2.0**32
    return np.stack([highs, lows], axis=-1).astype(np.float64, copy=False)


def _of_dates(values: np.ndarray) -> np.ndarray:
    """Seconds, and the fraction of one."""
    unit, step = np.datetime_data(values.dtype)
    if unit in ("Y", "M") and values.dtype.kind == "M":
        values, unit, step = values.astype("M8[M]").astype("M8[D]"), "D", 1
    if unit not in _UNITS_PER_SECOND | _SECONDS_PER_UNIT:
        raise TypeError(f"`order` must hold numbers or dates, got dtype {values.dtype}.")
    counts = values.astype(values.dtype.newbyteorder("=")).view(np.int64)
    per_second = _UNITS_PER_SECOND.get(unit)
    if per_second is None:
        keys = np.stack([counts * (float(step) * _SECONDS_PER_UNIT[unit]), np.zeros(len(counts))], axis=-1)
    else:
        seconds, remainder = np.divmod(counts, per_second)
        keys = np.stack([seconds * float(step), remainder * float(step) / per_second], axis=-1)
    return _without(keys, np.isnat(values))


def _of_arrow(values) -> tuple[np.ndarray, str | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, values.type
    if types.is_dictionary(kind):
        return _of_arrow(values.cast(kind.value_type))
    if types.is_null(kind):
        return np.full((len(values), 2), np.nan), None
    if types.is_floating(kind):
        return _of_numbers(np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))), "numbers"
    missing = np.asarray(values.is_null())
    if types.is_integer(kind) or types.is_boolean(kind):
        whole = pa.uint64() if types.is_uint64(kind) else pa.int64()
        return _without(_of_numbers(np.asarray(pc.fill_null(values.cast(whole), 0))), missing), "numbers"
    if types.is_decimal(kind):
        return _of_decimals(values.to_pylist()), "numbers"
    if not (types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind) or types.is_duration(kind)):
        raise TypeError(f"`order` must hold numbers or dates, got type {kind}. {_CONVERT}")
    unit = {"date32[day]": "D", "date64[ms]": "ms"}.get(str(kind)) or kind.unit
    counts = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    of_day = types.is_time(kind) or types.is_duration(kind)
    keys = _of_dates(np.asarray(pc.fill_null(counts, 0)).view(f"{'m' if of_day else 'M'}8[{unit}]"))
    kind = "times" if of_day else "dates with a time zone" if getattr(kind, "tz", None) else "dates"
    return _without(keys, missing), kind


def _of_decimals(values: list[Decimal | None]) -> np.ndarray:
    """As for other numbers, to the precision of the second double."""
    keys = np.full((len(values), 2), np.nan)
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            high = int(value / 2**32)  # towards zero, as for floats
            key[:] = high, value - high * 2**32
    return keys
