"""Checks of y in fits of models that predict one number or label for each row: of public facts only."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning

from vips.data import DataSource, as_source

__all__ = ["one_for_each_row", "source_with_targets"]


def source_with_targets(model, X, y) -> DataSource | None:
    """The data source that X is, or None for a table.

    Raises
    ------
    ValueError
        If there is no y.
    """
    source = as_source(X, y)
    if (y is None) if source is None else not source.has_labels:
        raise ValueError(f"{type(model).__name__} requires y to be passed, but the target y is None.")
    return source


def one_for_each_row(y, what: str):
    """y of a private fit, of which a single column is taken as an array of one dimension.

    Parameters
    ----------
    y : object
        Anything but an array, a series or a data frame is returned as it is, and refused later, whatever it holds.
    what : str
        What a row has one of, for the error.

    Warns
    -----
    DataConversionWarning
        If y is a column.
    """
    if isinstance(y, np.ndarray) or hasattr(y, "to_numpy"):
        if y.ndim == 2 and y.shape[1] == 1:
            y = np.asarray(y)[:, 0] if isinstance(y, np.ndarray) else y.iloc[:, 0]
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected: write y.ravel(), or y[name] for a data frame.",
                DataConversionWarning,
                stacklevel=_levels_to_user(),
            )
        if y.ndim != 1:
            raise ValueError(f"y must have one {what} for each row of X, shape (n_records,), got {y.ndim} dimensions.")
    elif sp.issparse(y):
        raise TypeError("A private fit needs y as an array or series, got a sparse matrix.")
    return y


def _levels_to_user() -> int:
    """``stacklevel`` that makes a warning of the caller point at the first line outside vips."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("vips."):
        level, frame = level + 1, frame.f_back
    return level
