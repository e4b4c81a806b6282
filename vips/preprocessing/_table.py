"""Encodes a table of numbers and categories as features of bounded norm.

A row of k declared columns becomes (u_1, ..., u_k) / √k: u_j is a number in [-1, 1], or indicators with at most a single 1,
so that every ‖u_j‖ ≤ 1. (In [0, 1] a number would vary half as much within the same norm, and share a direction with the
intercept.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vips._printable import listed
from vips.data._columns import as_table, column, columns_of, is_frame
from vips.preprocessing._column_kinds import Categories, Number, kind_of_column
from vips.preprocessing._encoder_file import SavableEncoder, names_to_json, restore_names
from vips.preprocessing._feature_names import distinct, names_of_columns

__all__ = ["TableEncoder", "check_columns", "features_of", "unit_scale"]


class TableEncoder(TransformerMixin, SavableEncoder, BaseEstimator):
    """Features of a table whose columns are declared: bounds of numbers, lists of categories.

    scikit-learn's scalers and encoders learn bounds and categories from the records, or fail at a record that has another one:
    both reveal something about a record.

    Parameters
    ----------
    columns : mapping of str to (low, high) or list, or list of these
        A tuple of two numbers for a numeric column, which is scaled to [-1, 1] between them; a list of categories (strings,
        whole or finite numbers, booleans, each once) for any other. By name for data frames: the features come in this
        order, and columns that are not named are left out. Or a list with one declaration per column. Take them from
        documentation, or from the possible range of the quantity; not from the records.
    unit_norm : bool
        Divide every row by the square root of the number of declared columns.
    sparse_output : bool
        CSR instead of a dense array.

    Attributes
    ----------
    max_norm : float
        No row has a larger L2 norm: 1 with ``unit_norm``, else the square root of the number of declared columns. Public.
    n_features_out : int
        Number of features. Public, and known before ``fit``.

    Guarantees
    ----------
    - Nothing is learnt: ``fit`` reads no value, and row i of the result depends on row i of the input only.
    - The L2 norm of every row that has no NaN is at most ``max_norm``, in exact arithmetic.
    - A missing or undeclared category (a value of any type) gives zeros. A number that is NaN or infinite gives NaN: a private
      fit then ignores the record.
    - No value causes an error or a warning; errors come from declared settings, column names and dtypes.

    Notes
    -----
    Categories are compared by equality: 1, 1.0 and True are the same one. For a pandas categorical, the values are compared;
    its own list of categories is ignored.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from vips.preprocessing import TableEncoder
    >>> encoder = TableEncoder({"colour": ["blue", "red"], "age": (0, 100)}, unit_norm=False)
    >>> encoder.fit_transform(pd.DataFrame({"age": [25.0, 130.0], "colour": ["red", "green"]}))
    array([[ 0. ,  1. , -0.5],
           [ 0. ,  0. ,  1. ]])
    >>> encoder.get_feature_names_out().tolist()
    ['colour_blue', 'colour_red', 'age']
    >>> TableEncoder([(0, 10), (0, 1)], unit_norm=False).fit_transform(np.array([[5.0, 0.0]]))
    array([[ 0., -1.]])
    """

    def __init__(self, columns: Mapping | Sequence, *, unit_norm: bool = True, sparse_output: bool = False) -> None:
        self.columns = columns
        self.unit_norm = unit_norm
        self.sparse_output = sparse_output

    def fit(self, X, y=None) -> Self:
        """Compare the declaration with public facts about ``X``. No value is read, nothing is learnt.

        Parameters
        ----------
        X : data frame, Arrow table or ndarray of shape (n_records, n_columns)
            Zero rows are enough.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            From public facts only: the declaration, the container, names and number of columns, dtypes.
        """
        X = as_table(X)
        check_columns(self.columns, X)
        validate_data(self, X, skip_check_array=True)  # number and names of columns
        return self

    def transform(self, X) -> np.ndarray | sp.csr_array:
        """Features of each row, from that row alone.

        Parameters
        ----------
        X : data frame, Arrow table or ndarray of shape (n_records, n_columns)

        Returns
        -------
        ndarray or CSR of shape (n_records, n_features), float64
        """
        check_is_fitted(self)
        X = as_table(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        check_columns(self.columns, X)
        features = features_of(self.columns, X, self.sparse_output)
        if self.unit_norm:
            features *= unit_scale(len(self.columns))
        return features

    @property
    def max_norm(self) -> float:
        """Bound on the L2 norm of every row."""
        return 1.0 if self.unit_norm else math.sqrt(len(self.columns))

    @property
    def n_features_out(self) -> int:
        """Number of features."""
        return sum(kind.n_features for kind in declared_kinds(self.columns).values())

    @property
    def declared_public(self) -> tuple[str, ...]:
        """Bounds and categories, in short strings for a privacy report."""
        texts, kinds = [], declared_kinds(self.columns)
        for kind_of_text, what in (
            (Number, "bounds of {} numeric column{}"),
            (Categories, "categories of {} column{}"),
        ):
            texts_of_kind = [f"{name}: {kind}" for name, kind in kinds.items() if isinstance(kind, kind_of_text)]
            if texts_of_kind:
                texts.append(
                    f"{what.format(len(texts_of_kind), 's' * (len(texts_of_kind) > 1))} ({listed(texts_of_kind)})"
                )
        return tuple(texts)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Names of numeric columns, ``column_category`` for indicators, ``column='category'`` where these would be the same;
        shape (n_features,)."""
        pairs = zip(self._names(input_features), declared_kinds(self.columns).values(), strict=True)
        return np.array(names_of_columns([(name, kind.categories) for name, kind in pairs]), dtype=object)

    def in_column_units(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """How coefficients of the features read in units of the columns; public.

        A number's coefficient is per unit of its column. A category's is against the first one of its column; a column of a
        single category has no other to stand against.

        Returns
        -------
        names : list of str
            Of the rows of ``matrix``.
        matrix : ndarray of shape (n_rows, n_features)
            Coefficients in units of the columns are ``matrix @ coef``.
        shift : ndarray of shape (n_features,)
            The intercept becomes ``intercept + shift @ coef``.
        """
        kinds = declared_kinds(self.columns)
        scale = unit_scale(len(kinds)) if self.unit_norm else 1.0
        names, precise, rows, shift, start = [], [], [], np.zeros(self.n_features_out), 0
        for name, kind in zip(self._names(), kinds.values(), strict=True):
            if isinstance(kind, Number):
                slope = 2.0 * scale / (kind.high - kind.low)
                names.append(name)
                precise.append(name)
                rows.append({start: slope})
                shift[start] = -0.5 * (kind.low + kind.high) * slope
            elif kind.n_features == 1:
                names.append(f"{name}: {kind.categories[0]}")
                precise.append(f"{name}: {kind.categories[0]!r}")
                rows.append({start: scale})
            else:
                first, *others = kind.categories
                names += [f"{name}: {category} against {first}" for category in others]
                precise += [f"{name}: {category!r} against {first!r}" for category in others]
                rows += [{start + i: scale, start: -scale} for i in range(1, kind.n_features)]
                shift[start] = scale
            start += kind.n_features
        matrix = np.zeros((len(rows), self.n_features_out))
        for row, entries in zip(matrix, rows, strict=True):
            row[list(entries)] = list(entries.values())
        return distinct(names, precise), matrix, shift

    def _names(self, input_features: Sequence[str] | None = None) -> list[str]:
        """Names of the declared columns; columns declared by name are known before ``fit``."""
        is_by_name = isinstance(self.columns, Mapping)
        if is_by_name and input_features is None:
            return [str(name) for name in self.columns]
        check_is_fitted(self)
        known = getattr(self, "feature_names_in_", None)
        if input_features is not None:
            if known is not None and list(input_features) != list(known):
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(input_features) != self.n_features_in_:
                raise ValueError(f"input_features should have length equal to {self.n_features_in_}.")
            known = input_features
        if is_by_name:
            return [str(name) for name in self.columns]
        return [f"x{i}" for i in range(self.n_features_in_)] if known is None else [str(name) for name in known]

    def learnt_to_json(self) -> dict:
        return names_to_json(self)

    def restore_fit(self, values: dict) -> None:
        declared_kinds(self.columns)  # raises for bounds or categories that are none
        restore_names(self, values)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def declared_kinds(columns: Mapping | Sequence) -> dict[object, Number | Categories]:
    """What is declared, by name or position; raises for what is no declaration."""
    if isinstance(columns, Mapping) and columns:
        return {name: kind_of_column(declared, repr(name)) for name, declared in columns.items()}
    if isinstance(columns, list) and columns:
        return {place: kind_of_column(declared, str(place)) for place, declared in enumerate(columns)}
    raise TypeError(
        "`columns` must map column names to (low, high) or to lists of categories, or be a list with one of these per "
        f"column, got {columns!r}."
    )


def check_columns(columns: Mapping | Sequence, X) -> None:
    """Compare a declaration with the columns of ``X`` and their dtypes; read no value."""
    kinds, in_frame = declared_kinds(columns), is_frame(X)
    for key, kind in zip(columns_of(X, columns), kinds.values(), strict=True):
        dtype = getattr(column(X, key), "dtype", None)
        kind.check(dtype, repr(key), f"X[{key!r}]" if in_frame else "X", in_frame)


def features_of(columns: Mapping | Sequence, X, is_sparse: bool) -> np.ndarray | sp.csr_array:
    """Features of each row, side by side; those of each column have at most norm 1."""
    pairs = zip(declared_kinds(columns).values(), columns_of(X, columns), strict=True)
    if not is_sparse:
        return np.hstack([kind.features(column(X, key)) for kind, key in pairs])
    table = sp.hstack([kind.sparse_features(column(X, key)) for kind, key in pairs], format="csr")
    table.sort_indices()
    return table


def unit_scale(n_columns: int) -> float:
    """1 / √n_columns, rounded down: n_columns entries of this size have norm at most 1, exactly."""
    scale = 1.0 / math.sqrt(n_columns)
    while n_columns * Fraction(scale) ** 2 > 1:
        scale = math.nextafter(scale, 0.0)
    return scale
