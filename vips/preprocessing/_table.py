"""Encodes a data frame of numbers and categories as features of bounded norm.

A row of k declared columns becomes (u_1, ..., u_k) / √k: u_j is a number in [-1, 1], or indicators with at most a single 1,
so that every ‖u_j‖ ≤ 1. (In [0, 1] a number would vary half as much within the same norm, and share a direction with the
intercept.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import scipy.sparse as sp

from vips.preprocessing._declared import DeclaredTransformer
from vips.preprocessing._feature_names import distinct, names_of_columns
from vips.preprocessing._one_hot import PublicOneHotEncoder
from vips.preprocessing._scaler import PublicScaler, is_pair

__all__ = ["TableEncoder", "unit_scale"]


class TableEncoder(DeclaredTransformer):
    """Features of a data frame whose columns are declared: bounds of numbers, lists of categories.

    Parameters
    ----------
    columns : mapping of str to (low, high) or list
        A tuple of two numbers for a numeric column, which is scaled to [-1, 1] between them; a list of categories for any
        other (as in :class:`PublicOneHotEncoder`). The features come in this order; columns of the frame that are not named
        are left out.
    unit_norm : bool
        Divide every row by the square root of the number of declared columns.
    sparse_output : bool
        CSR instead of a dense array.

    Attributes
    ----------
    feature_norm : float
        No row has a larger L2 norm: 1 with ``unit_norm``, else the square root of the number of declared columns. Public.
    n_features_out : int
        Number of features. Public, and known before ``fit``.

    Guarantees
    ----------
    - Nothing is learnt: ``fit`` reads no value, and row i of the result depends on row i of the input only.
    - The L2 norm of every row that has no NaN is at most ``feature_norm``, in exact arithmetic.
    - A missing or undeclared category gives zeros. A number that is NaN or infinite gives NaN: a private fit then ignores the
      record.
    - No value causes an error or a warning; errors come from declared settings, column names and dtypes.

    Examples
    --------
    >>> import pandas as pd
    >>> from vips.preprocessing import TableEncoder
    >>> encoder = TableEncoder({"colour": ["blue", "red"], "age": (0, 100)}, unit_norm=False)
    >>> encoder.fit_transform(pd.DataFrame({"age": [25.0, 130.0], "colour": ["red", "green"]}))
    array([[ 0. ,  1. , -0.5],
           [ 0. ,  0. ,  1. ]])
    >>> encoder.get_feature_names_out().tolist()
    ['colour_blue', 'colour_red', 'age']
    """

    def __init__(self, columns, *, unit_norm: bool = True, sparse_output: bool = False) -> None:
        self.columns = columns
        self.unit_norm = unit_norm
        self.sparse_output = sparse_output

    @property
    def feature_norm(self) -> float:
        """Bound on the L2 norm of every row."""
        return 1.0 if self.unit_norm else math.sqrt(len(self.columns))

    @property
    def n_features_out(self) -> int:
        """Number of features."""
        return len(self._order())

    @property
    def declared_public(self) -> tuple[str, ...]:
        """Bounds and categories, in short strings for a privacy report."""
        return tuple(text for part in self._parts() for text in part.declared_public)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Names of numeric columns, ``column_category`` for indicators, ``column='category'`` where these would be the same;
        shape (n_features,)."""
        self._parts()  # raises for what is no declaration
        self._names(self.columns, input_features)
        return np.array(names_of_columns(self._categories()), dtype=object)

    def _categories(self) -> list[tuple[object, list | None]]:
        """Every column with its categories; None for a number."""
        return [(name, None if isinstance(declared, tuple) else declared) for name, declared in self.columns.items()]

    def in_column_units(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """How coefficients of the features read in units of the columns; public, and known before ``fit``.

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
        scale = unit_scale(len(self.columns)) if self.unit_norm else 1.0
        names, precise, rows, shift, start = [], [], [], np.zeros(self.n_features_out), 0
        for name, declared in self.columns.items():
            if isinstance(declared, tuple):
                low, high = declared
                slope = 2.0 * scale / (high - low)
                names.append(str(name))
                precise.append(str(name))
                rows.append({start: slope})
                shift[start] = -0.5 * (low + high) * slope
            elif len(declared) == 1:
                names.append(f"{name}: {declared[0]}")
                precise.append(f"{name}: {declared[0]!r}")
                rows.append({start: scale})
            else:
                names += [f"{name}: {category} against {declared[0]}" for category in declared[1:]]
                precise += [f"{name}: {category!r} against {declared[0]!r}" for category in declared[1:]]
                rows += [{start + i: scale, start: -scale} for i in range(1, len(declared))]
                shift[start] = scale
            start += 1 if isinstance(declared, tuple) else len(declared)
        matrix = np.zeros((len(rows), self.n_features_out))
        for row, entries in zip(matrix, rows, strict=True):
            row[list(entries)] = list(entries.values())
        return distinct(names, precise), matrix, shift

    def _parts(self) -> list[DeclaredTransformer]:
        """A scaler for the numeric columns and an encoder for the others, if there are any."""
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise TypeError(f"`columns` must map column names to (low, high) or to lists, got {self.columns!r}.")
        bounds, categories = {}, {}
        for name, declared in self.columns.items():
            if isinstance(declared, tuple) and is_pair(declared):
                bounds[name] = declared
            elif isinstance(declared, list):
                categories[name] = declared
            else:
                raise TypeError(
                    f"Column {name!r} is declared as {declared!r}: write a tuple of two numbers, (low, high), for a numeric "
                    "column, and a list of categories, [...], for any other."
                )
        parts = [PublicScaler(bounds)] if bounds else []
        return [*parts, PublicOneHotEncoder(categories, sparse_output=self.sparse_output)] if categories else parts

    def _order(self) -> np.ndarray:
        """Source column of each feature of the result, among the scaler's features followed by the encoder's."""
        width = {name: 1 if isinstance(declared, tuple) else len(declared) for name, declared in self.columns.items()}
        stored = sorted(width, key=lambda name: isinstance(self.columns[name], list))  # stable
        start = dict(zip(stored, np.cumsum([0, *(width[name] for name in stored)]), strict=False))
        return np.concatenate([np.arange(start[name], start[name] + width[name]) for name in self.columns])

    def _check(self, X) -> None:
        for part in self._parts():
            part._check(X)

    def _transform(self, X) -> np.ndarray | sp.csr_array:
        parts = self._parts()
        features = [part._transform(X) for part in parts]
        if isinstance(parts[0], PublicScaler):
            features[0] = 2.0 * features[0] - 1.0
        if self.sparse_output:
            table = sp.hstack([sp.csr_array(part) for part in features], format="csr")[:, self._order()]
            table.sort_indices()
        else:
            table = np.hstack(features)[:, self._order()]
        if self.unit_norm:
            table *= unit_scale(len(self.columns))
        return table

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def unit_scale(n_columns: int) -> float:
    """1 / √n_columns, rounded down: n_columns entries of this size have norm at most 1, exactly."""
    scale = 1.0 / math.sqrt(n_columns)
    while n_columns * Fraction(scale) ** 2 > 1:
        scale = math.nextafter(scale, 0.0)
    return scale
