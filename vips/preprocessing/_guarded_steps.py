"""scikit-learn's steps, guarded for a private fit.

A guarded step accepts a table without rows. It refuses by its dtype every input that could fail for some values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import Binarizer, Normalizer

from vips.data._columns import is_frame
from vips.data._not_numbers import suggestion_for
from vips.preprocessing._allowed_steps import with_inner_steps

__all__ = ["guard", "unguard"]


def guard(step) -> None:
    """Change the class of ``step``, and of every step inside it, to the guarded one. Parameters stay as they are."""
    for plain, name in ((FeatureUnion, "_hstack"), (ColumnTransformer, "_hstack"), (ColumnTransformer, _CALL)):
        if not hasattr(plain, name):
            raise RuntimeError(
                f"This version of scikit-learn has no {plain.__name__}.{name}, which vips overrides in steps before a private "
                "model: without it, an error could reveal a record. Install an older scikit-learn."
            )
    _change_classes(step, _GUARDED)


def unguard(step) -> None:
    """Change the guarded classes back to scikit-learn's. Guarded classes keep no state of their own."""
    _change_classes(step, {guarded: plain for plain, guarded in _GUARDED.items()})


class _OfNumbers:
    """``Normalizer`` and ``Binarizer`` convert their input to numbers, and raise for a table without rows."""

    def fit(self, X, y=None):
        _check_numbers(X, self)
        return super().fit(_row_of_zeros(X))

    def transform(self, X, copy=None):
        X = X.compute() if hasattr(X, "compute") else X  # scikit-learn reads a Dask collection into memory, too
        if X.shape[0] == 0:
            return super().transform(_row_of_zeros(X), copy)[:0]
        return super().transform(X, copy)


class _SideBySide:
    """``FeatureUnion`` and ``ColumnTransformer`` put the results of other steps side by side.

    Data frames stay data frames, column by column. For an array, all columns are converted to one dtype, and ``FeatureUnion``
    may multiply by weights: both need numbers.
    """

    def _hstack(self, parts, **arguments):
        if self.transformer_weights or not all(map(is_frame, parts)):
            self._check_parts(parts)
        joined = super()._hstack(parts, **arguments)
        if not is_frame(joined):
            self._check_parts(parts)
        return joined

    def _check_parts(self, parts) -> None:
        for part in parts:
            _check_numbers(part, self)


class _DenseSideBySide(_SideBySide):
    """``ColumnTransformer`` chooses between dense and sparse output by the share of non-zeros. This share is not public, and
    without rows it is 0/0. The guarded one has dense output."""

    def _call_func_on_transformers(self, *arguments, **named):
        results = super()._call_func_on_transformers(*arguments, **named)
        if self.sparse_threshold > 0 and any(sp.issparse(_part(result)) for result in results):
            raise ValueError(
                f"{type(self).__name__} chooses between dense and sparse output by counting non-zeros, which are not public. "
                "Write sparse_threshold=0."
            )
        return [_dense(result) for result in results]


_GUARDED = {
    plain: type(plain.__name__, (guarded, plain), {})
    for plain, guarded in (
        (Normalizer, _OfNumbers),
        (Binarizer, _OfNumbers),
        (FeatureUnion, _SideBySide),
        (ColumnTransformer, _DenseSideBySide),
    )
}


_CALL = "_call_func_on_transformers"


def _change_classes(step, classes: dict[type, type]) -> None:
    for part in list(_parts(step)):
        if type(part) in classes:
            part.__class__ = classes[type(part)]


def _parts(step) -> Iterator:
    """``step`` and the steps inside it, with the copies that a ``ColumnTransformer`` fits."""
    for _, part in with_inner_steps("", step):
        yield part
        for entry in getattr(part, "transformers_", ()):
            yield from _parts(entry[1])


def _check_numbers(X, step) -> None:
    in_frame = is_frame(X)
    for key, dtype in zip(X.columns, X.dtypes, strict=True) if in_frame else [(None, X.dtype)]:
        if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            continue
        if isinstance(dtype, np.dtype) and dtype.kind == "c":
            raise ValueError(
                f"Complex data not supported: X has dtype {dtype}, {type(step).__name__} needs real numbers."
            )
        title, values = (f"column {key!r} of X", f"X[{key!r}]") if in_frame else ("X", "X")
        raise TypeError(
            f"{type(step).__name__} needs numbers before a private model, but {title} has dtype {dtype}: its conversion, or an "
            f"error about a value, would depend on a record. {suggestion_for(dtype, values, in_frame)}"
        )


def _row_of_zeros(X):
    """One row of zeros with the container, dtypes and column names of ``X``."""
    if sp.issparse(X):
        return type(X)((1, X.shape[1]), dtype=X.dtype)
    if is_frame(X):
        import pandas as pd  # here because pandas is optional

        zeros = {i: np.zeros(1, dtype) for i, dtype in enumerate(X.dtypes)}
        return pd.DataFrame(zeros).set_axis(X.columns, axis=1)
    return np.zeros((1, *X.shape[1:]), X.dtype)


def _part(result):
    """The output of a transformer. A fit returns it together with the transformer."""
    return result[0] if isinstance(result, tuple) else result


def _dense(result):
    part = _part(result)
    if not sp.issparse(part):
        return result
    return (part.toarray(), *result[1:]) if isinstance(result, tuple) else part.toarray()
