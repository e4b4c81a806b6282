"""Encodes categories as indicators, by declared lists."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Real

import numpy as np
import scipy.sparse as sp

from vips.data._columns import column, columns_of
from vips.data._tables import is_nullable_number
from vips.preprocessing._declared import DeclaredTransformer, each_checked, shortened
from vips.preprocessing._feature_names import names_of_columns

__all__ = ["PublicOneHotEncoder", "checked_categories"]


class PublicOneHotEncoder(DeclaredTransformer):
    """One indicator per declared category; a value that was not declared has none.

    scikit-learn's ``OneHotEncoder`` learns the categories, or fails at a record that has another one: both reveal
    something about a record.

    Parameters
    ----------
    categories : mapping of str to list, or list of lists
        By name for data frames (columns that are not named are left out), or one list per column. Strings, integers,
        booleans or finite numbers, each once.
    sparse_output : bool
        CSR instead of a dense array.

    Guarantees
    ----------
    - Nothing is learnt: ``fit`` reads no value, and row i of the result depends on row i of the input only.
    - The indicators of a column have at most a single 1. A missing or undeclared value (of any type) gives zeros.
    - No value causes an error or a warning; errors come from declared settings, column names and dtypes.

    Notes
    -----
    Values are compared by equality: 1, 1.0 and True are the same category. For a pandas categorical, the values are compared;
    its own list of categories is ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from vips.preprocessing import PublicOneHotEncoder
    >>> PublicOneHotEncoder([["a", "b"]]).fit_transform(np.array([["b"], ["c"]], dtype=object))
    array([[0., 1.],
           [0., 0.]])
    """

    def __init__(self, categories, *, sparse_output: bool = False) -> None:
        self.categories = categories
        self.sparse_output = sparse_output

    @property
    def declared_public(self) -> tuple[str, ...]:
        """The number of categories, in a short string for a privacy report."""
        declared = checked_categories(self.categories)
        items = declared.items() if isinstance(declared, Mapping) else enumerate(declared)
        listed = shortened([f"{name}: {len(values)}" for name, values in items])
        return (f"categories of {len(declared)} column{'s' * (len(declared) > 1)} ({listed})",)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """``column_category`` for every indicator, ``column='category'`` where these would be the same; shape (n_features,)."""
        names = self._names(self.categories, input_features)
        return np.array(names_of_columns(list(zip(names, _lists(self.categories), strict=True))), dtype=object)

    def _check(self, X) -> None:
        declared = checked_categories(self.categories)
        for key, values in zip(columns_of(X, declared), _lists(declared), strict=True):
            dtype = getattr(column(X, key), "dtype", None)
            whole = isinstance(dtype, np.dtype) or is_nullable_number(dtype)
            whole = whole and dtype.kind in "biu"  # not floats: readers use them for missing values
            if whole and all(isinstance(value, str) for value in values):
                raise TypeError(
                    f"Column {key!r} holds numbers ({dtype}), but its categories are strings, so that no value would "
                    "match. Declare numbers, or convert the column to strings."
                )

    def _transform(self, X) -> np.ndarray | sp.csr_array:
        lists = _lists(self.categories)
        starts = np.cumsum([0, *map(len, lists)])
        codes = np.empty((X.shape[0], len(lists)), dtype=np.int64)
        for j, (key, values) in enumerate(zip(columns_of(X, self.categories), lists, strict=True)):
            codes[:, j] = _codes(column(X, key), values)
        row, which = np.nonzero(codes >= 0)
        indicator = starts[which] + codes[row, which]
        if not self.sparse_output:
            indicators = np.zeros((X.shape[0], starts[-1]))
            indicators[row, indicator] = 1.0
            return indicators
        indptr = np.concatenate([[0], np.cumsum((codes >= 0).sum(axis=1))])
        arrays = np.ones(len(indicator)), indicator.astype(np.int32), indptr.astype(np.int32)
        return sp.csr_array(arrays, shape=(X.shape[0], int(starts[-1])))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def _codes(values, categories: Sequence) -> np.ndarray:
    """Position of each value among the categories, -1 if it is not there; shape (n_records,)."""
    position = {category: i for i, category in enumerate(categories)}

    def code(value) -> int:
        try:
            return position.get(value, -1)
        except Exception:  # a value can be anything: unhashable, or of a class whose comparison fails
            return -1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # python -b warns where bytes are compared with a string
        with suppress(Exception):
            return np.fromiter((code(value) for value in values), dtype=np.int64, count=len(values))
        # iterating over a PyArrow column fails at a value that Python cannot represent; such a value has no category
        return np.fromiter((code(_value(values, i)) for i in range(len(values))), dtype=np.int64, count=len(values))


def _value(values, i: int):
    with suppress(Exception):
        return getattr(values, "iloc", values)[i]
    return None


def _lists(categories: Mapping | Sequence) -> list[Sequence]:
    return list(categories.values() if isinstance(categories, Mapping) else categories)


def checked_categories(categories) -> dict | list:
    """Categories by name or position, each list checked."""
    checked = each_checked(categories, _checked_list)
    if checked is not None:
        return checked
    raise TypeError(
        "`categories` must be a mapping of column names to lists of categories, or a list with one list per column, got "
        f"{categories!r}."
    )


def _checked_list(values, where: str) -> list:
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str) or not len(values):
        raise TypeError(f"The categories of {where} must be a list with at least one entry, got {values!r}.")
    for value in values:
        if not isinstance(value, str | np.bool_) and not (isinstance(value, Real) and math.isfinite(value)):
            raise ValueError(
                f"The categories of {where} must be strings or finite numbers, got {value!r}. Missing values have no "
                'category: their indicators are all zero. To give them one, write a string such as "?" into the column.'
            )
    if len(set(values)) != len(values):
        raise ValueError(f"The categories of {where} hold a value twice.")
    return list(values)
