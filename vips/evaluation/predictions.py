"""Probabilities of private rows: whatever a row holds, it causes no error and changes no other row's probabilities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from vips._support.no_warnings import without_warnings
from vips.core.exact.blas_threads import one_blas_thread
from vips.core.exact.rowwise import PIECE
from vips.core.records.checks import checked_csr
from vips.core.records.partition import rows_without
from vips.core.records.tables import from_arrow, without_mask
from vips.data._dask import as_source

__all__ = ["check_predictions", "probabilities", "table_in_memory"]

# Rows of each call of the model. All calls have as many, since the rounding of BLAS depends on that number.
_N_TOGETHER = 2 * PIECE


def table_in_memory(X):
    """X as an array, a CSR matrix or a data frame of pandas; raises TypeError or ValueError from public facts."""
    X = without_mask(from_arrow(X))
    if sp.issparse(X):
        return checked_csr(X)
    if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
        return X
    if as_source(X) is not None or not isinstance(X, np.ndarray) or X.ndim != 2:
        raise TypeError(
            f"X must be an array, CSR matrix or data frame in memory, one row a record, got {type(X).__name__}."
        )
    return np.asarray(X)


def check_predictions(predict: Callable, X, n_classes: int) -> None:
    """Raise what the model raises for a row of zeros and missing texts in a table like X, of which no value is read."""
    row = _stand_in(X)
    try:
        shape = np.shape(predict(_rows(row, np.zeros(_N_TOGETHER, np.intp))))
    except Exception as error:
        error.add_note("`evaluate` asked for a row of zeros and missing texts, before it reads a private row.")
        raise
    if shape != (_N_TOGETHER, n_classes):
        raise ValueError(f"`predict_proba` must give {n_classes} probabilities for each row, got shape {shape}.")


def probabilities(predict: Callable, X, n_classes: int) -> np.ndarray:
    """Probabilities of each class, shape (n_rows, n_classes); NaN for a row that has none.

    Parameters
    ----------
    predict : function
        From rows to probabilities.
    X : ndarray, CSR matrix or data frame
    n_classes : int

    Guarantees
    ----------
    If ``predict`` takes each row by itself, the result for a row depends on it and on its place in a call.
    """
    out = np.full((X.shape[0], n_classes), np.nan)
    usable = np.arange(len(out))
    if sp.issparse(X):  # compiled code would read beyond the end of an array
        usable = np.flatnonzero(rows_without((X.indices < 0) | (X.indices >= X.shape[1]), X.indptr))

    def predict_all() -> None:
        with one_blas_thread(), np.errstate(all="ignore"):
            for first in range(0, len(usable), _N_TOGETHER):
                rows = usable[first : first + _N_TOGETHER]
                _predict(predict, X, rows, np.arange(len(rows)), out)

    without_warnings(predict_all)
    out[~((out >= 0.0) & (out <= 1.0 + 1e-9)).all(axis=1)] = np.nan
    return out


def _predict(predict: Callable, X, rows: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """Fill ``out`` at ``rows[places]``.

    Other places of a call hold a copy of the first of these rows, and every row stays in its place. Where the model raises,
    each half by itself: what remains without a prediction are the rows at which it raises.
    """
    together = np.full(_N_TOGETHER, rows[places[0]])
    together[places] = rows[places]
    try:
        out[rows[places]] = np.asarray(predict(_rows(X, together)), dtype=np.float64)[places]
    except Exception:  # it depends on a record
        if len(places) > 1:
            for half in np.array_split(places, 2):
                _predict(predict, X, rows, half, out)


def _rows(X, rows: np.ndarray):
    return X.iloc[rows].reset_index(drop=True) if hasattr(X, "iloc") else X[rows]


def _stand_in(X):
    """A row in a container like X: zeros, and missing values in columns of other dtypes."""
    if not hasattr(X, "iloc"):
        return type(X)((1, X.shape[1]), dtype=X.dtype) if sp.issparse(X) else np.zeros((1, X.shape[1]), X.dtype)
    import pandas as pd

    is_number = [getattr(dtype, "kind", "O") in "biuf" for dtype in X.dtypes]
    columns = [
        pd.Series([0 if number else None], dtype=dtype) for number, dtype in zip(is_number, X.dtypes, strict=True)
    ]
    row = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=[0])
    row.columns = X.columns
    return row
