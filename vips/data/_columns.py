"""Tables in memory, as data frames or arrays, and their columns by name or place. No value is read."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from vips._support.printable import listed
from vips._support.validation import levels_to_user
from vips.core.records.tables import from_arrow, without_mask
from vips.exceptions import PrivacyWarning

__all__ = ["as_table", "column", "columns_of", "is_frame", "names_like", "names_of", "warn_of_undeclared"]

_MOST_NAMED = 10


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
            count = f"{there[name]} columns of that name"
            raise ValueError(f"Column {name!r} is declared, but X has {count}.{names_like(name, names)}")
    return wanted


def names_like(name: object, names: Iterable) -> str:
    """What an error about a missing column adds: names that differ in blanks around them or in case alone, and no others.

    Where a file has no line of names, others are the cells of a record.
    """
    others = [repr(other) for other in names if other != name and _folded(other) == _folded(name)]
    return f" There is {listed(others)}." if others else ""


def names_of(*others: object) -> tuple:
    """Names of what a fit takes beside X, such as a series of labels, ids or weights."""
    return tuple(getattr(other, "name", None) for other in others)


def warn_of_undeclared(X, declared: object, beside: tuple) -> None:
    """Warn of columns of a frame that a mapping leaves out, by public names alone; ``beside`` are names to leave out, too."""
    if isinstance(declared, Mapping) and hasattr(X, "columns"):
        named = {*declared, *beside}
        names = X.columns if is_frame(X) else getattr(X, "column_names", ())  # Arrow's columns are no names
        if left_out := [repr(name) for name in names if name not in named]:
            warnings.warn(
                f"X has columns that are not declared, and which the fit leaves out: {listed(left_out, _MOST_NAMED)}. Declare "
                "them, or pass X without them.",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )


def _folded(name: object) -> str:
    return str(name).strip().casefold()


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
        instead = "pandas.DataFrame(X" if isinstance(X, Mapping) else "numpy.asarray(X"
        raise TypeError(
            f"X must be a data frame or a NumPy array, got {type(X).__name__}: the dtype of anything else would depend on "
            f"its values. Convert it to cells that are read one by one, e.g. {instead}, dtype=object)."
        )
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead: X has one row per record. Reshape your data."
        )
    return np.asarray(without_mask(X))
