"""Declared columns of a table: bounds of a number, or a list of categories. Each value is treated alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real

import numpy as np
import scipy.sparse as sp

from vips.data._tables import is_nullable_number, suggestion_for, with_numpy_numbers

__all__ = ["Categories", "Number", "kind_of_column"]


@dataclass(frozen=True)
class Number:
    """A number between declared bounds becomes one between -1 and 1, after clipping; NaN and infinite values become NaN."""

    low: float
    high: float

    categories = None
    n_features = 1

    def __str__(self) -> str:
        return f"{self.low:.15g} to {self.high:.15g}"

    def check(self, dtype, title: str, where: str, in_frame: bool) -> None:
        """Raise TypeError or ValueError if the conversion of a column of this dtype would depend on its values."""
        kind = dtype.kind if isinstance(dtype, np.dtype) else None
        if kind == "c":
            raise ValueError(f"Complex data not supported: column {title} has bounds, but its dtype is {dtype}.")
        if (kind is None or kind not in "biuf") and not is_nullable_number(dtype):
            raise TypeError(
                f"Column {title} has bounds, but its dtype is {dtype}: its conversion would depend on its values. "
                f"{suggestion_for(dtype, where, in_frame)}"
            )

    def features(self, values) -> np.ndarray:
        """Shape (n_rows, 1)."""
        scaled = np.empty(len(values))
        with np.errstate(all="ignore"):
            scaled[:] = with_numpy_numbers(values)
            scaled[~np.isfinite(scaled)] = np.nan
            np.clip(scaled, self.low, self.high, out=scaled)
            scaled -= self.low
            scaled /= self.high - self.low
        return (2.0 * scaled - 1.0)[:, None]

    def sparse_features(self, values) -> sp.csr_array:
        """Shape (n_rows, 1)."""
        return sp.csr_array(self.features(values))


@dataclass(frozen=True)
class Categories:
    """A declared category becomes an indicator; any other value becomes zeros.

    Values are compared by equality: 1, 1.0 and True are the same category. For a pandas categorical, the values are compared;
    its own list of categories is ignored.
    """

    categories: tuple

    @property
    def n_features(self) -> int:
        return len(self.categories)

    def __str__(self) -> str:
        return str(len(self.categories))

    def check(self, dtype, title: str, where: str, in_frame: bool) -> None:
        """Raise TypeError if no value of a column of this dtype could match."""
        whole = isinstance(dtype, np.dtype) or is_nullable_number(dtype)
        whole = whole and dtype.kind in "biu"  # not floats: readers use them for missing values
        if whole and all(isinstance(category, str) for category in self.categories):
            raise TypeError(
                f"Column {title} holds numbers ({dtype}), but its categories are strings, so that no value would match. "
                "Declare numbers, or convert the column to strings."
            )

    def features(self, values) -> np.ndarray:
        """Shape (n_rows, n_categories)."""
        codes = _codes(values, self.categories)
        indicators = np.zeros((len(codes), self.n_features))
        rows = np.flatnonzero(codes >= 0)
        indicators[rows, codes[rows]] = 1.0
        return indicators

    def sparse_features(self, values) -> sp.csr_array:
        """Shape (n_rows, n_categories)."""
        codes = _codes(values, self.categories)
        is_known = codes >= 0
        indptr = np.concatenate([[0], np.cumsum(is_known)]).astype(np.int32)
        arrays = np.ones(indptr[-1]), codes[is_known].astype(np.int32), indptr
        return sp.csr_array(arrays, shape=(len(codes), self.n_features))


def kind_of_column(declared, title: str) -> Number | Categories:
    """What a declaration says about the column ``title``.

    Raises
    ------
    TypeError, ValueError
        If it is neither a pair of bounds nor a list of categories.
    """
    if isinstance(declared, tuple) and len(declared) == 2 and all(map(_is_number, declared)):
        return _number(declared, title)
    if isinstance(declared, list):
        return _categories(declared, title)
    raise TypeError(
        f"Column {title} is declared as {declared!r}: write a tuple of two numbers, (low, high), for a numeric column, and a "
        "list of categories, [...], for any other."
    )


def _is_number(bound) -> bool:
    return isinstance(bound, Real) and not isinstance(bound, bool | np.bool_)


def _number(pair: tuple, title: str) -> Number:
    low, high = map(float, pair)
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"The bounds of column {title} must be finite, with low < high, got {pair!r}.")
    return Number(low, high)


def _categories(values: list, title: str) -> Categories:
    if not values:
        raise TypeError(f"The categories of column {title} must be a list with at least one entry, got {values!r}.")
    for value in values:
        if not isinstance(value, str | np.bool_) and not (isinstance(value, Real) and math.isfinite(value)):
            raise ValueError(
                f"The categories of column {title} must be strings or finite numbers, got {value!r}. Missing values have no "
                'category: their indicators are all zero. To give them one, write a string such as "?" into the column.'
            )
    if len(set(values)) != len(values):
        raise ValueError(f"The categories of column {title} hold a value twice.")
    return Categories(tuple(values))


def _codes(values, categories: Sequence) -> np.ndarray:
    """Position of each value among the categories, -1 if it is not there; shape (n_rows,)."""
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
