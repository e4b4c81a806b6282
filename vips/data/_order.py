"""What rows are ordered by: a column of numbers or dates, as numbers that sort."""

from __future__ import annotations

import numpy as np

from vips.data._groups import arrow_values
from vips.data._tables import is_nullable_number

__all__ = ["sortable"]


def sortable(values: object, n_rows: int) -> tuple[np.ndarray, str]:
    """Numbers that sort as the values do, and the type of the values.

    Returns
    -------
    numbers : ndarray of shape (n_rows,)
        int64 for whole numbers and dates, in units of their type; else float64. What is missing sorts last.
    kind : str
        Numbers of two types are not to be compared.

    Raises
    ------
    TypeError, ValueError
        For a container or type that has no such order, or another number of rows: public facts.
    """
    arrow = arrow_values(values)
    if arrow is None and not (isinstance(values, np.ndarray) or hasattr(values, "to_numpy")):
        raise TypeError(f"`order` must be an array or a series, got {type(values).__name__}.")
    if is_nullable_number(getattr(values, "dtype", None)):
        values, arrow = values.to_numpy(dtype=np.float64, na_value=np.nan), None
    numbers, kind = _of_array(np.asarray(values)) if arrow is None else _of_arrow(arrow)
    if numbers.shape != (n_rows,):
        raise ValueError("X and `order` have different numbers of rows.")
    return numbers, str(kind)


def _of_array(values: np.ndarray) -> tuple[np.ndarray, object]:
    dtype = values.dtype
    if dtype.kind in "mM":  # NaT is the least integer
        return np.where(
            np.isnat(values), np.iinfo(np.int64).max, values.astype(dtype.newbyteorder("=")).view(np.int64)
        ), dtype
    if dtype.kind in "bi" or (dtype.kind == "u" and dtype.itemsize < 8):
        return values.astype(np.int64), np.int64
    if dtype.kind in "uf":
        return values.astype(np.float64), np.float64
    raise TypeError(f"`order` must hold numbers or dates, got dtype {dtype}.")


def _of_arrow(values) -> tuple[np.ndarray, object]:
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, values.type
    if types.is_floating(kind):
        return values.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64
    if types.is_integer(kind) or types.is_boolean(kind):
        values, kind = values.cast(pa.int64(), safe=False), np.int64
    elif types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind) or types.is_duration(kind):
        values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    else:
        raise TypeError(f"`order` must hold numbers or dates, got type {kind}.")
    return np.asarray(pc.fill_null(values, np.iinfo(np.int64).max)), kind
