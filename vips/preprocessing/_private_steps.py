"""Steps before a private model: fitting them, and transforming the rows.

1. The steps are fitted to the table without its rows. They learn from no record, and their errors depend on public facts only,
   so these are raised unchanged.
2. The rows are transformed, without warnings. A step that keeps its promise does not raise. If another step raises, the class
   and place of the error are shown, but not its message, which could quote a record.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from sklearn import config_context

from vips._printable import class_and_place
from vips.data import DataSource, as_source, check_data, rows_without
from vips.data._checks import check_container, checked_csr
from vips.data._columns import is_frame
from vips.data._tables import from_arrow, with_numpy_numbers
from vips.preprocessing._allowed_steps import OF_TEXTS, is_passthrough
from vips.preprocessing._documents import as_documents, text_of
from vips.preprocessing._guarded_steps import guard, unguard

__all__ = ["fit_and_transform"]


def fit_and_transform(steps: Iterable[tuple[str, object]], X):
    """Fit the steps without looking at a record, and transform the rows.

    Parameters
    ----------
    steps : iterable of (name, step)
        Allowed before a private model (``_allowed_steps``). They are fitted in place.
    X : array, sparse matrix, data frame, Arrow table or Dask collection of shape (n_records, n_columns)
        For a step that counts words, a list, array or series of n_records strings.

    Returns
    -------
    array, CSR matrix, data frame or Dask collection of shape (n_records, n_features)
        ``X`` itself where no step does anything.

    Raises
    ------
    TypeError, ValueError, or whatever a step raises for a table without rows
        From public facts, before a value is read.
    RuntimeError
        If a step raises because of a value, or its result has another form than its result for no rows. A step that treats each
        row alone, in the same way for all values, does neither.
    """
    steps = [(name, step) for name, step in steps if not is_passthrough(step)]
    if not steps:
        return X
    if type(steps[0][1]) in OF_TEXTS:
        return _transformed_texts(steps, X)
    return _fitted_and_transformed(steps, _readable(X))


def _transformed_texts(steps: list[tuple[str, object]], X):
    """As for a table. An empty document stands at the end, because some steps refuse none at all."""
    documents = np.array([*map(text_of, as_documents(X)), ""], dtype=object)
    return _fitted_and_transformed(steps, documents)[:-1]


def _fitted_and_transformed(steps: list[tuple[str, object]], X):
    for _, step in steps:
        guard(step)
    expected = _fit_without_rows(steps, X)
    transformed = _transformed(steps, X)
    if _form(transformed) != _form(expected) or not _same_number_of_rows(transformed, X):
        raise RuntimeError(
            "The steps before the private model return another number of rows, or other columns or dtypes, than for a "
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
            "Write the transformed records to files, and fit the model to the files."
        )
    if as_source(X) is not None:  # a Dask collection
        return X
    X = from_arrow(X)
    check_container(X, "X")
    return np.asarray(X) if isinstance(X, np.ndarray) else with_numpy_numbers(X)


def _without_torn_rows(X):
    """Replace rows with entries in columns that do not exist: NaN (0 in a matrix of whole numbers) in the first column. When
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
    """Fit the steps in place to the table without its rows; their result, checked as the model will check it."""
    X = _without_rows(X)
    for name, step in steps:
        try:
            X = step.fit_transform(X)
        except Exception as error:
            error.add_note(
                f"Step {name!r} is before a private model, so it was fitted to X[:0], the table without its rows. A function "
                "must accept this table, because it is private whether there is any record."
            )
            raise
    if as_source(X) is not None:
        return X
    try:
        check_data(X)
    except (TypeError, ValueError) as error:
        error.add_note("Here X is the output of the pipeline's steps, the input of the private model.")
        raise
    return X


def _without_rows(X):
    if isinstance(X, np.ndarray) and X.ndim == 1:
        return X[-1:]  # of texts, the empty one
    if sp.issparse(X):
        return type(X)((0, X.shape[1]), dtype=X.dtype)
    if as_source(X) is not None and is_frame(X):
        return X.head(0, compute=False)
    return X.iloc[:0] if hasattr(X, "iloc") else X[:0]


def _transformed(steps: list[tuple[str, object]], X):
    """The rows after all steps. Warnings are suppressed, because they could reveal a record."""
    with warnings.catch_warnings(), config_context(assume_finite=True), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, step in steps:
            problem = None
            try:
                X = step.transform(X)
            except Exception as error:
                problem = class_and_place(error)
            if problem:  # raised outside `except`, so that the original error is not attached
                raise RuntimeError(
                    f"Step {name!r} raised {problem}. Its message is not shown, because it may quote a record: try the step "
                    "on public data. Before a private model a step must not raise, whatever a record holds."
                )
    return X


def _form(X) -> tuple:
    """The facts that a model checks: container, columns and dtypes."""
    if is_frame(X):
        return type(X), list(X.columns), list(X.dtypes)
    return type(X), getattr(X, "shape", ())[1:], getattr(X, "dtype", None)


def _same_number_of_rows(one, other) -> bool:
    """True also for Dask collections, whose number of rows is unknown."""
    numbers = [X.shape[0] for X in (one, other) if as_source(X) is None]
    return len(set(numbers)) <= 1
