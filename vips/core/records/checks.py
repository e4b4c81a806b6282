"""What a private fit may know of its data beforehand: container, dtype, number of columns. Never a value."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp

from vips.core.records.arrays import InMemoryData
from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import Ragged
from vips.core.records.tables import from_arrow, is_nullable_number, suggestion_for, with_numpy_numbers, without_mask
from vips.exceptions import SourceError

__all__ = ["check_container", "check_data", "check_dtype", "checked_csr", "open_checked", "refuse_dates", "whole_csr"]


def check_data(X: Any, y: Any = None) -> InMemoryData:
    """Wrap ``X`` (and ``y``) for a private fit, looking at public facts only: container, dtype, number of columns.

    Values are not looked at: whether a record is valid is decided per record, later, and changes nothing but that
    record's contribution.

    Raises
    ------
    TypeError
        If the dtype is not boolean, integer or real, or the container is not a table of numbers.
    ValueError
        If the dtype is complex, ``X`` is not two-dimensional, or ``y`` has another number of rows.
    """
    # A plain array: a matrix or masked array would index and compare differently, for some records only.
    X, y = without_mask(X), without_mask(y)
    X = checked_csr(X) if sp.issparse(X) else np.asarray(X if isinstance(X, np.ndarray) else _to_array(X, "X"))
    check_dtype(X, "X")
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: X has one row per record.")
    if y is not None:
        y = np.asarray(y if isinstance(y, np.ndarray) else _to_array(y, "y"))
        check_dtype(y, "y")
        if y.shape[:1] != X.shape[:1]:
            raise ValueError("X and y have different numbers of rows.")
    return InMemoryData(X, y)


def open_checked(name: str, X: Any, y: Any, n_features: int) -> OpenPartition:
    """An opened partition, after the same checks and one of its width. A SourceError names it, and the public fact."""
    try:
        if isinstance(X, Ragged):
            check_dtype(X, "the array of steps")
        else:
            X, y = check_data(X, y).arrays
    except (TypeError, ValueError) as error:
        raise SourceError(f"{name}: {error}") from None
    if X.shape[1] != n_features:
        raise SourceError(f"{name} has {X.shape[1]} columns, the data source has {n_features}.")
    return OpenPartition(X, y)


def checked_csr(X: Any) -> Any:
    """A sparse matrix as CSR whose row pointers are in order. The columns of its entries are not checked.

    Arrays that do not form a matrix of its format raise ValueError. SciPy would not notice, and read and write beyond them.
    """
    kind = f"a {X.format.upper()} matrix"
    if X.format in ("csr", "csc", "bsr"):
        X.check_format(full_check=False)
        if (np.diff(X.indptr) < 0).any():
            raise ValueError(f"X is not {kind}: its indptr decreases.")
    if X.format in ("csc", "coo"):
        rows = X.indices if X.format == "csc" else X.coords[0]
        if len(rows) and not 0 <= rows.min() <= rows.max() < X.shape[0]:
            raise ValueError(f"X is not {kind}: an entry is in a row that does not exist.")
    return X.tocsr()


def whole_csr(X: Any) -> Any:
    """A sparse matrix as CSR, with all entries in rows and columns that exist; anything else unchanged.

    For data whose values may be checked: predictions, and fits that are not private. In a private fit an entry in a column that
    does not exist makes its record defective.

    Raises
    ------
    ValueError
        If the arrays do not form such a matrix.
    """
    if not sp.issparse(X):
        return X
    X = checked_csr(X)
    if len(X.indices) and not 0 <= X.indices.min() <= X.indices.max() < X.shape[-1]:
        raise ValueError(f"X has entries in columns that do not exist: it has {X.shape[-1]} columns, counted from 0.")
    return X


def check_container(values: Any, name: str) -> None:
    """Raise TypeError for lists and the like: their dtype depends on their values."""
    if isinstance(values, Ragged):
        raise TypeError(f"{name} holds sequences, of which this model takes none: it takes rows of a table.")
    if not (isinstance(values, np.ndarray) or hasattr(values, "to_numpy")):
        instead = f"{name}.collect()" if hasattr(values, "collect") else f"numpy.asarray({name}, dtype=float)"
        declared = "Declare words as `classes` of a classifier. " if name == "y" else ""
        raise TypeError(
            f"A private fit needs {name} as an array, CSR matrix or data frame, got {type(values).__name__}: its dtype "
            f"would depend on its values. {declared}Convert numbers first, e.g. {instead}."
        )


def _to_array(values: Any, name: str) -> np.ndarray:
    """The array of a data frame, series or Arrow table, whose dtypes are declared."""
    values = from_arrow(values)
    check_container(values, name)
    if getattr(values, "ndim", 1) == 1:
        declared = [values.dtype]
        _check_column(values.dtype, name, name)
    else:
        declared = list(values.dtypes)
        for key, dtype in zip(values.columns, declared, strict=True):
            _check_column(dtype, f"column {key!r} of {name}", f"{name}[{key!r}]")
    # pandas' own numbers become float64, and booleans beside numbers are numbers, whatever the values
    declared = [np.dtype(float) if is_nullable_number(dtype) else dtype for dtype in declared]
    with suppress(Exception):  # its message may quote a value
        return with_numpy_numbers(values).to_numpy(dtype=np.result_type(*declared) if declared else float)
    raise TypeError(f"{name} cannot be read as an array of numbers with one row per record.")


def _check_column(dtype: Any, title: str, values: str) -> None:
    """Raise unless a column of a data frame, or a series, holds numbers by its dtype; complex ones are found later."""
    if is_nullable_number(dtype) or (isinstance(dtype, np.dtype) and dtype.kind in "biufc"):
        return
    raise TypeError(
        f"A private fit needs numbers, but {title} has dtype {dtype}: converting it would let an error depend on a record. "
        f"{suggestion_for(dtype, values, in_frame=True)}"
    )


def refuse_dates(X: Any) -> None:
    """Raise TypeError for dates and durations, in fits that are not private: NumPy's own errors suggest nothing."""
    in_frame = hasattr(X, "dtypes") and hasattr(X, "columns")
    columns = zip(X.columns, X.dtypes, strict=True) if in_frame else [(None, getattr(X, "dtype", None))]
    for key, dtype in columns:
        if getattr(dtype, "kind", "O") in "mM":
            title, values = (f"column {key!r} of X", f"X[{key!r}]") if in_frame else ("X", "X")
            raise TypeError(f"{title} has dtype {dtype}. {suggestion_for(dtype, values, in_frame)}")


def check_dtype(array: Any, name: str) -> None:
    """Raise unless NumPy and SciPy compute with this dtype in every case: another could fail for some records only."""
    dtype = array.dtype
    if dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {dtype}, and a private fit needs real numbers.")
    if not (dtype.isnative and (dtype.kind in "biu" or dtype in (np.float32, np.float64))):
        raise TypeError(
            f"A private fit needs numbers (booleans, integers, float32 or float64 in native byte order), but {name} has "
            f"dtype {dtype}: converting it would let an error depend on a record. "
            f"{suggestion_for(dtype, name, in_frame=False)}"
        )
