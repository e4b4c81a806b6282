"""Rows on their way to a private model.

1. The steps are fitted to the table without its rows. They learn from no record, and their errors follow from public facts:
   these are shown as they are.
2. The rows are transformed, without warnings. A step that keeps its promise does not raise. Of any other error the class and
   place are shown, and not the message, which could quote a record.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from sklearn import config_context

from vips._unquoted import class_and_place
from vips.data import DataSource, as_source, check_data, rows_without
from vips.data._checks import check_container, checked_csr
from vips.preprocessing._allowed_steps import is_passthrough
from vips.preprocessing._declared import is_frame
from vips.preprocessing._guarded_steps import guard, unguard

__all__ = ["fit_and_transform"]


def fit_and_transform(steps: Iterable[tuple[str, object]], X):
    """Fit the steps without looking at a record, and transform the rows.

    Parameters
    ----------
    steps : iterable of (name, step)
        Allowed before a private model (``_allowed_steps``). They are fitted in place.
    X : array, sparse matrix, data frame or Dask collection of shape (n_records, n_columns)

    Returns
    -------
    array, CSR matrix, data frame or Dask collection of shape (n_records, n_features)
        ``X`` itself where no step does anything.

    Raises
    ------
    TypeError, ValueError, or whatever a step raises for a table without rows
        From public facts, before a value is looked at.
    RuntimeError
        If a step raises because of a value, or its result is of another form than it is for no rows. A step that treats each
        row alone, in the same way whatever its values, does neither.
    """
    steps = [(name, step) for name, step in steps if not is_passthrough(step)]
    if not steps:
        return X
    X = _readable(X)
    for _, step in steps:
        guard(step)
    expected = _fit_without_rows(steps, X)
    transformed = _transformed(steps, X)
    if _form(transformed) != _form(expected) or not _same_number_of_rows(transformed, X):
        raise RuntimeError(
            "The steps before the private model give another number of rows, or other columns or dtypes, than they do for a "
            "table without rows, so that these may depend on values. A function must treat each row alone, and fix its dtype "
            "and width, e.g. numpy.asarray(..., dtype=float).reshape(len(X), n_columns)."
        )
    for _, step in steps:
        unguard(step)
    return transformed


def _readable(X):
    """``X`` in a container that steps can read without an error, whatever its values are."""
    if sp.issparse(X):
        return _without_torn_rows(checked_csr(X))
    if isinstance(X, DataSource):
        raise TypeError(
            f"Steps before a private model take arrays, CSR matrices, data frames or Dask collections, got {type(X).__name__}. "
            "Write the transformed records to files, and fit the model to these."
        )
    if as_source(X) is not None:  # a Dask collection
        return X
    check_container(X, "X")
    return np.asarray(X) if isinstance(X, np.ndarray) else X


def _without_torn_rows(X):
    """A row with an entry in a column that does not exist becomes NaN (0 in a matrix of whole numbers), in its first column:
    selecting columns, SciPy would read and write beyond its arrays."""
    torn = ~rows_without((X.indices < 0) | (X.indices >= X.shape[1]), X.indptr)
    if not torn.any():
        return X
    if X.shape[1] == 0:
        return type(X)(X.shape, dtype=X.dtype)
    entries = np.repeat(torn, np.diff(X.indptr))
    indices, data = X.indices.copy(), X.data.copy()
    indices[entries], data[entries] = 0, np.nan if data.dtype.kind == "f" else 0
    return type(X)((data, indices, X.indptr), shape=X.shape)


def _fit_without_rows(steps: list[tuple[str, object]], X):
    """What the steps, fitted in place, make of the table without its rows; checked as the model will check it."""
    X = _without_rows(X)
    for name, step in steps:
        try:
            X = step.fit_transform(X)
        except Exception as error:
            error.add_note(
                f"Step {name!r} stands before a private model: it was fitted to X[:0], the table without its rows. A function "
                "must take that, too, because it is private whether there is any record."
            )
            raise
    if as_source(X) is not None:
        return X
    try:
        check_data(X)
    except (TypeError, ValueError) as error:
        error.add_note("X is here what the steps of the pipeline give to the private model.")
        raise
    return X


def _without_rows(X):
    if sp.issparse(X):
        return type(X)((0, X.shape[1]), dtype=X.dtype)
    if as_source(X) is not None and is_frame(X):
        return X.head(0, compute=False)
    return X.iloc[:0] if hasattr(X, "iloc") else X[:0]


def _transformed(steps: list[tuple[str, object]], X):
    """The rows after all steps. Warnings, like errors, could tell of a record."""
    with warnings.catch_warnings(), config_context(assume_finite=True), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, step in steps:
            problem = None
            try:
                X = step.transform(X)
            except Exception as error:
                problem = class_and_place(error)
            if problem:  # raised outside of `except`, so that the original is not carried along
                raise RuntimeError(
                    f"Step {name!r} raised {problem}. What it says is not shown, because it may quote a record: try the step "
                    "on public data. Before a private model a step must not raise, whatever a record holds."
                )
    return X


def _form(X) -> tuple:
    """What a model checks: container, columns and dtypes."""
    if is_frame(X):
        return type(X), list(X.columns), list(X.dtypes)
    return type(X), getattr(X, "shape", ())[1:], getattr(X, "dtype", None)


def _same_number_of_rows(one, other) -> bool:
    """Of Dask collections the number is not known."""
    numbers = [X.shape[0] for X in (one, other) if as_source(X) is None]
    return len(set(numbers)) <= 1
