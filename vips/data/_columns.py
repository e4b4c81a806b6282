"""Tables in memory, as data frames or arrays, and their columns by name or place. No value is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from vips.data._tables import from_arrow, without_mask

__all__ = ["as_table", "column", "columns_of", "is_frame"]


def columns_of(X, declared: Mapping | Sequence) -> list:
    """Keys of the declared columns of ``X``: names in a data frame, positions in an array.

    Parameters
    ----------
    X : data frame or ndarray of shape (n_records, n_columns)
    declared : mapping or sequence
        A mapping by column name, which needs a data frame and may leave columns out; or one entry per column.
    """
    names = list(X.columns) if is_frame(X) else list(range(X.shape[1]))
    if not isinstance(declared, Mapping):
        if len(declared) != len(names):
            raise ValueError(f"{len(declared)} columns are declared, but X has {len(names)}.")
        wanted = names
    elif not is_frame(X):
        raise TypeError(
            "Columns are declared by name, but X is an array, whose columns have none. Pass a data frame, or declare a "
            "list with one entry per column."
        )
    else:
        wanted = list(declared)
    there = Counter(names)
    for name in wanted:
        if there[name] != 1:
            raise ValueError(f"Column {name!r} is declared, but X has {there[name]} columns of that name.")
    return wanted


def column(X, key):
    """One column of a data frame or array."""
    return X[key] if is_frame(X) else X[:, key]


def is_frame(X) -> bool:
    """Whether ``X`` is a data frame, whose columns have their own names and dtypes."""
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def as_table(X):
    """A data frame of pandas, or a plain array: matrices and masked arrays are indexed differently."""
    X = from_arrow(X)
    if is_frame(X):
        return X
    if sp.issparse(X):
        raise TypeError("Sparse input is not supported: pass a data frame or a dense array.")
    if not isinstance(X, np.ndarray):
        raise TypeError(
            f"X must be a data frame or a NumPy array, got {type(X).__name__}: the dtype of anything else would depend on "
            "its values. Convert it first, e.g. numpy.asarray(X, dtype=float)."
        )
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead: X has one row per record. Reshape your data."
        )
    return np.asarray(without_mask(X))
