"""Which rows belong to one person: ids, and runs of rows with one id.

Two ids are equal if their canonical bytes are, whatever their types: one record can turn a column of numbers into one of text,
and persons who became others would count twice. So 7, 7.0, Decimal(7), "7" and b"7" are one id, and "007" and "7.0" are two
others. A row belongs to nobody if its id is missing, or is no whole number, text, bytes, UUID or tuple of these, or is a float
that may stand for several whole numbers; a private fit leaves such a row out. Containers whose type cannot hold ids are
refused: that is a public fact.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from decimal import Decimal
from numbers import Integral
from typing import Any
from uuid import UUID

import numpy as np

from vips.core.records.tables import without_views

__all__ = [
    "arrow_values",
    "canonical_id",
    "check_groups_of_source",
    "check_ids",
    "group_numbers",
    "ids_and_numbers",
    "name_of",
    "runs_of_rows",
]

_LARGEST_FLOAT = 2.0**53  # from here on, a float may stand for several whole numbers
_EXACT_FLOATS = ("float64", "Float64", "double")  # of NumPy, pandas and Arrow; others round whole numbers
_MOST_DIGITS = 640  # of numbers that Python writes as text whatever its settings
_NO_IDS = "Ids must be whole numbers, strings or bytes, but these have {}: convert them to int64 or strings."


def canonical_id(value: Any) -> bytes | None:
    """Bytes that are equal for equal ids, in every container and process; None for what is not an id. Raises for no value."""
    with suppress(Exception):
        if isinstance(value, str):
            return str.encode(value, "utf-8", "surrogatepass")
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(memoryview(value))
        if _is_whole(value):
            return str(int(value)).encode() if abs(int(value)) < 10**_MOST_DIGITS else None
        if isinstance(value, UUID):
            return str.encode(str(value))
        if isinstance(value, tuple):
            parts = [canonical_id(part) for part in value]
            if None not in parts:
                return b"".join(b"%d:%b" % (len(part), part) for part in parts if part is not None)
    return None


def _is_whole(value: Any) -> bool:
    """Whether this is a number that stands for one whole number: a float32 of 2²⁴ may be the id 2²⁴ + 1."""
    if isinstance(value, np.timedelta64):  # to Python an integer
        return False
    if isinstance(value, float):
        return -_LARGEST_FLOAT < value < _LARGEST_FLOAT and value.is_integer()
    if isinstance(value, Decimal):
        return value.is_finite() and value.adjusted() < _MOST_DIGITS and value == value.to_integral_value()
    return isinstance(value, Integral | np.bool_)


def group_numbers(groups: Any, n_rows: int) -> np.ndarray:
    """Numbers of the ids of all rows, counted from 0 in the order of their first rows; -1 for a row of nobody.

    A container, type or length that cannot hold ids raises TypeError or ValueError: public facts.
    """
    return ids_and_numbers(groups, n_rows)[1]


def ids_and_numbers(groups: Any, n_rows: int) -> tuple[Iterable[bytes | None], np.ndarray]:
    """The different canonical ids, in the order of their first rows, and :func:`group_numbers`."""
    check_ids(groups)
    if len(groups) != n_rows:
        raise ValueError("X and groups have different numbers of rows.")
    arrow = arrow_values(groups)
    with np.errstate(all="ignore"):
        if arrow is not None:
            return _numbers_of_ids(_ids_of_arrow(arrow), n_rows)
        dtype = getattr(groups, "dtype", None)
        is_plain = isinstance(dtype, np.dtype) and dtype.kind in "biufSU" and not isinstance(groups, np.ma.MaskedArray)
        return (
            _numbers_of_values(np.asarray(groups)) if is_plain else _numbers_of_ids(map(canonical_id, groups), n_rows)
        )


def runs_of_rows(numbers: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Bring the rows of each person together; numbers are as :func:`group_numbers` gives them.

    Returns
    -------
    order : ndarray of int64, or None
        Rows by person, the rows of one person in their order; without the rows of nobody. None leaves the rows as they are.
    starts : ndarray of int64, shape (n_groups + 1,)
        Person i has the rows ``order[starts[i]:starts[i + 1]]``.
    """
    present = np.flatnonzero(numbers >= 0)
    order = present[np.argsort(numbers[present], kind="stable")]
    lengths = np.bincount(numbers[present])
    starts = np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64)
    return (None if np.array_equal(order, np.arange(len(numbers))) else order), starts


def name_of(groups: Any) -> str | None:
    """The name of a series or a column of ids, if files can hold it."""
    name = groups if isinstance(groups, str) else getattr(groups, "name", None)
    if not (isinstance(name, str) and name):
        return None
    with suppress(UnicodeEncodeError):
        name.encode()
        return name
    return None


def check_groups_of_source(source: Any, groups: Any, records: str = "X") -> None:
    """Raise ValueError or TypeError if a data source holds persons already, or cannot promise that all rows of a person are in
    one partition. ``records`` is how the call names the source.
    """
    if source.has_groups:
        raise ValueError(
            f"The source holds persons already, by {source.group_name or 'their ids'}: call fit without `groups`. For "
            "other persons, write another folder with vips.data.regroup."
        )
    if not hasattr(source, "grouped"):
        by = repr(groups) if isinstance(groups, str) else "groups"
        raise TypeError(
            f"{type(source).__name__} cannot promise that all rows of a person are in one partition, so that `groups` would "
            "protect parts of persons. Bring the rows of each person together first, and fit to the result without "
            f'`groups`: vips.data.regroup({records}, by={by}, to="a_new_folder").'
        )


def check_ids(groups: Any) -> None:
    """Raise TypeError or ValueError for a container or dtype that cannot hold ids. Reads no value."""
    unordered = isinstance(groups, str | bytes | Mapping | Set)
    if unordered or not (hasattr(groups, "__len__") and hasattr(groups, "__iter__")):
        raise TypeError(
            f"`groups` must hold one id for each row of X, in an array, a series or a list, got a {type(groups).__name__}."
        )
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(f"`groups` must have one id for each row of X, shape (n_rows,), got {groups.ndim} dimensions.")
    dtype = getattr(groups, "dtype", None)
    for kind in (dtype, getattr(getattr(dtype, "categories", None), "dtype", None)):
        is_other = str(kind).startswith(("period", "interval", "datetime", "timedelta", "date"))
        is_rounded = getattr(kind, "kind", "O") == "f" and not any(word in str(kind) for word in _EXACT_FLOATS)
        if getattr(kind, "kind", "O") in "mMcV" or is_other or is_rounded:
            raise TypeError(_NO_IDS.format(f"dtype {kind}"))


def arrow_values(groups: Any) -> Any:
    """The Arrow array in an Arrow, pandas or polars container; None for any other."""
    values = getattr(groups, "array", groups)
    if type(values).__module__.startswith("pyarrow") and hasattr(values, "type"):
        return without_views(values)
    if "Arrow" in type(values).__name__ and hasattr(values, "__arrow_array__"):
        return without_views(values.__arrow_array__())
    if type(groups).__module__.startswith("polars") and str(groups.dtype) != "Object":  # in Arrow, addresses of objects
        return groups.to_arrow()
    return None


def _ids_of_arrow(values: Any) -> Iterator[bytes | None]:
    """Canonical ids. Text is read as bytes: it need not be valid, and an error would depend on a row."""
    import pyarrow as pa

    types, kind = pa.types, values.type
    if types.is_dictionary(kind):
        _check_arrow_type(kind.value_type)
        return _ids_of_dictionaries(values.chunks if isinstance(values, pa.ChunkedArray) else [values])
    _check_arrow_type(kind)
    if types.is_string(kind) or types.is_large_string(kind):
        values = values.cast(pa.large_binary())
    return map(canonical_id, values.to_pylist())


def _ids_of_dictionaries(chunks: Any) -> Iterator[bytes | None]:
    for chunk in chunks:
        ids = list(_ids_of_arrow(chunk.dictionary))
        for place in chunk.indices.to_pylist():
            yield ids[place] if place is not None and 0 <= place < len(ids) else None


def _check_arrow_type(kind: Any) -> None:
    from pyarrow import types

    usable = (
        types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary,
        types.is_integer, types.is_boolean, types.is_float64, types.is_decimal, types.is_null,
    )  # fmt: skip
    if not any(is_usable(kind) for is_usable in usable):
        raise TypeError(_NO_IDS.format(f"type {kind}"))


def _numbers_of_ids(ids: Iterator[bytes | None], n_rows: int) -> tuple[Iterable[bytes | None], np.ndarray]:
    number_of_key: dict[bytes, int] = {}
    numbers = (-1 if key is None else number_of_key.setdefault(key, len(number_of_key)) for key in ids)
    return number_of_key, np.fromiter(numbers, np.int64, n_rows)


def _numbers_of_values(values: np.ndarray) -> tuple[Iterable[bytes | None], np.ndarray]:
    """As :func:`_numbers_of_ids`, for an array of numbers, strings or bytes."""
    valid: Any = np.ones(len(values), bool)
    if values.dtype.kind == "f":
        valid = (np.abs(values) < _LARGEST_FLOAT) & (values == np.rint(values))
    elif values.dtype.kind == "U" and values.dtype.itemsize:
        code_points = np.ascontiguousarray(values).view(f"{values.dtype.byteorder}u4")
        code_points = code_points.reshape(len(values), values.dtype.itemsize // 4)
        valid = (code_points <= sys.maxunicode).all(axis=1)  # others are no text: Python raises where it reads them
    different, first, inverse = np.unique(values[valid], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(first), np.int64)
    place[order] = np.arange(len(first))
    numbers = np.full(len(values), -1, np.int64)
    numbers[valid] = place[inverse]
    return map(canonical_id, different[order]), numbers
