"""Which rows belong to one person: ids, and runs of rows with one id.

Two ids are equal if their canonical bytes are: 1, 1.0 and True are one id, "1" and b"1" are two others. A row belongs to nobody
if its id is missing, or is neither a whole number nor text nor bytes; a private fit leaves such a row out.
"""

from __future__ import annotations

from contextlib import suppress
from numbers import Integral

import numpy as np

__all__ = ["canonical_id", "first_rows", "group_numbers", "name_of", "runs_of_rows"]


def canonical_id(value: object) -> bytes | None:
    """Bytes that are equal for equal ids, in every container and process; None for what is not an id. Raises for no value."""
    with suppress(Exception):
        if isinstance(value, str):
            return b"s" + str.encode(value, "utf-8", "surrogatepass")
        if isinstance(value, bytes | bytearray | memoryview):
            return b"b" + bytes(value)
        if isinstance(value, Integral | np.bool_):
            return b"i%d" % int(value)
        if isinstance(value, float | np.floating) and float(value).is_integer():
            return b"i%d" % int(value)
    return None


def runs_of_rows(groups: object, n_rows: int) -> tuple[np.ndarray | None, np.ndarray]:
    """Bring the rows of each id together.

    Parameters
    ----------
    groups : array, series or sequence of length n_rows
    n_rows : int

    Returns
    -------
    order : ndarray of int64, or None
        Rows by id, ids in the order of their first rows, the rows of one id in their order; without the rows of nobody. None
        leaves the rows as they are.
    starts : ndarray of int64, shape (n_groups + 1,)
        Group i has the rows ``order[starts[i]:starts[i + 1]]``.

    Raises
    ------
    TypeError, ValueError
        For a container or length that cannot hold ids: public facts.
    """
    codes = group_numbers(groups, n_rows)
    present = np.flatnonzero(codes >= 0)
    order = present[np.argsort(codes[present], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes[present]))]).astype(np.int64)
    return (None if np.array_equal(order, np.arange(n_rows)) else order), starts


def first_rows(order: np.ndarray | None, starts: np.ndarray, most: int | None) -> tuple[np.ndarray | None, np.ndarray]:
    """``order`` and ``starts`` with at most ``most`` rows of each group, its first ones."""
    lengths = np.diff(starts)
    if most is None or not (lengths > most).any():
        return order, starts
    kept = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths) < most
    order = np.flatnonzero(kept) if order is None else order[kept]
    return order, np.concatenate([[0], np.cumsum(np.minimum(lengths, most))])


def name_of(groups: object) -> str | None:
    """The name of a series of ids."""
    name = getattr(groups, "name", None)
    return name if isinstance(name, str) and name else None


def group_numbers(groups: object, n_rows: int) -> np.ndarray:
    """Numbers of the ids of all rows, counted from 0 in the order of their first rows; -1 for a row of nobody."""
    return _codes(_values(groups), n_rows)


def _values(groups: object) -> np.ndarray:
    """The ids in an array of one of NumPy's types, or of objects."""
    if isinstance(groups, str | bytes) or not (hasattr(groups, "__len__") and hasattr(groups, "__iter__")):
        raise TypeError(
            f"`groups` must hold one id for each row of X, in an array, a series or a list, got {groups!r:.80}."
        )
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(f"`groups` must have one id for each row of X, shape (n_rows,), got {groups.ndim} dimensions.")
    dtype = getattr(groups, "dtype", None)
    if getattr(dtype, "kind", "O") in "mMcV":
        raise TypeError(
            f"Ids must be whole numbers, strings or bytes, but groups have dtype {dtype}: convert them to strings."
        )
    if isinstance(dtype, np.dtype) and dtype.kind in "biufSU":
        return np.asarray(groups)
    values = np.empty(len(groups), dtype=object)
    for i, item in enumerate(groups.to_pylist() if hasattr(groups, "to_pylist") else groups):
        values[i] = item
    return values


def _codes(values: np.ndarray, n_rows: int) -> np.ndarray:
    if len(values) != n_rows:
        raise ValueError("X and groups have different numbers of rows.")
    if values.dtype.kind == "O":
        numbers: dict[bytes, int] = {}
        ids = map(canonical_id, values)
        return np.fromiter(
            (-1 if each is None else numbers.setdefault(each, len(numbers)) for each in ids), np.int64, len(values)
        )
    codes = np.full(len(values), -1, np.int64)
    valid = (
        np.isfinite(values) & (values == np.rint(values)) if values.dtype.kind == "f" else np.ones(len(values), bool)
    )
    _, first, inverse = np.unique(values[valid], return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first, kind="stable")] = np.arange(len(first))
    codes[valid] = place[inverse]
    return codes
