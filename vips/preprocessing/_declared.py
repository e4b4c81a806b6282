"""Base class of the declared transformers, which check public facts about a table and treat each row alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vips.data._columns import as_table

__all__ = ["DeclaredTransformer", "each_checked", "shortened"]

T = TypeVar("T")


class DeclaredTransformer(TransformerMixin, BaseEstimator):
    """Base class: ``fit`` compares the declaration with public facts, ``transform`` treats each row alone."""

    @property
    @abstractmethod
    def declared_public(self) -> tuple[str, ...]:
        """The declaration, in short strings for a privacy report."""

    @abstractmethod
    def _check(self, X) -> None:
        """Compare the declaration with the columns of ``X`` and their dtypes; read no value."""

    @abstractmethod
    def _transform(self, X) -> np.ndarray | sp.csr_array:
        """The features of each row."""

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
        self._check(X)
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
        self._check(X)
        return self._transform(X)

    def _names(self, declared: Mapping | Sequence, input_features: Sequence[str] | None) -> list[str]:
        """Names of the declared columns; columns declared by name are known before ``fit``."""
        if isinstance(declared, Mapping) and input_features is None:
            return [str(name) for name in declared]
        check_is_fitted(self)
        known = getattr(self, "feature_names_in_", None)
        if input_features is not None:
            if known is not None and list(input_features) != list(known):
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(input_features) != self.n_features_in_:
                raise ValueError(f"input_features should have length equal to {self.n_features_in_}.")
            known = input_features
        if isinstance(declared, Mapping):
            return [str(name) for name in declared]
        return [f"x{i}" for i in range(self.n_features_in_)] if known is None else [str(name) for name in known]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def each_checked(declared, check: Callable[[object, str], T]) -> dict[object, T] | list[T] | None:
    """``check(value, where)`` of every column, declared by name or by position; None if ``declared`` is neither."""
    if isinstance(declared, Mapping) and declared:
        return {name: check(value, f"column {name!r}") for name, value in declared.items()}
    if isinstance(declared, Sequence | np.ndarray) and not isinstance(declared, str) and len(declared):
        return [check(value, f"column {i}") for i, value in enumerate(declared)]
    return None


def shortened(items: Sequence[str], most: int = 3) -> str:
    """The first few, with dots for the others."""
    return ", ".join([*items[:most], "..."] if len(items) > most else items)
