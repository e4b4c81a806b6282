"""Labels: of a private fit, one for each row, as numbers, by public facts alone; of an ordinary one, none missing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning

from vips._support.validation import levels_to_user
from vips.core.records.checks import check_container
from vips.data._cell_values import each_cell, is_missing, kind_of, one_form

__all__ = ["label_codes", "one_for_each_row", "refuse_blanks"]


def one_for_each_row(y, what: str, name: str = "y"):
    """y of a private fit, of which a single column is taken as an array of one dimension, with a warning.

    Anything but an array, a series or a data frame is returned as it is, and refused later, whatever it holds. ``what`` is what
    a row has one of, and ``name`` that of the argument, for the error.
    """
    if isinstance(y, np.ndarray) or hasattr(y, "to_numpy"):
        if y.ndim == 2 and y.shape[1] == 1:
            y = np.asarray(y)[:, 0] if isinstance(y, np.ndarray) else y.iloc[:, 0]
            warnings.warn(
                f"A column-vector {name} was passed when a 1d array was expected: write {name}.ravel(), or {name}[column] of a "
                "data frame.",
                DataConversionWarning,
                stacklevel=levels_to_user(),
            )
        if y.ndim != 1:
            raise ValueError(
                f"{name} must have one {what} for each row of X, shape (n_records,), got {y.ndim} dimensions."
            )
    elif sp.issparse(y):
        raise TypeError(f"A private fit needs {name} as an array or series, got a sparse matrix.")
    return y


def refuse_blanks(y) -> None:
    """Raise ValueError if a label of text or of an object is missing; of numbers scikit-learn says so."""
    is_column, dtype = isinstance(y, list | tuple) or getattr(y, "ndim", 0) == 1, getattr(y, "dtype", np.dtype(object))
    may_lack_some = kind_of(dtype) == "category" and getattr(dtype, "kind", "O") not in "SU"
    if is_column and may_lack_some and any(map(is_missing, each_cell(y))):
        raise ValueError("Labels in y are missing: leave these rows out of X and y.")


def label_codes(y, classes: Sequence[str]) -> np.ndarray:
    """Position of each label among the declared classes; NaN for every other value, whatever it is.

    The conversion of a private label may not depend on other records, or raise. A container or a dtype that holds no strings
    raises TypeError: public facts.
    """
    if not isinstance(y, list | tuple):
        check_container(y, "y")
    if kind_of(getattr(y, "dtype", np.dtype(object))) != "category":
        raise TypeError(f"`classes` are strings, but y has dtype {y.dtype}. Declare the labels as they are in y.")
    position = {one_form(str(label)): float(code) for code, label in enumerate(classes)}
    codes = np.full(len(y), np.nan)
    for i, label in enumerate(each_cell(y)):
        with suppress(Exception):
            codes[i] = position.get(one_form(label), np.nan) if isinstance(label, str) else np.nan
    return codes
