"""Scales numbers to [0, 1] by declared bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np

from vips.data._columns import column, columns_of, is_frame
from vips.data._not_numbers import suggestion_for
from vips.data._tables import is_nullable_number, with_numpy_numbers
from vips.preprocessing._declared import DeclaredTransformer, each_checked, shortened

__all__ = ["PublicScaler", "checked_bounds", "is_pair"]


class PublicScaler(DeclaredTransformer):
    """Scale numeric columns to [0, 1] by bounds that are declared, not learnt.

    A value x becomes (x - low) / (high - low), after clipping to the bounds.

    Parameters
    ----------
    bounds : mapping of str to (low, high), array-like of shape (n_columns, 2), or one pair (low, high)
        By name for data frames (columns that are not named are left out), by position, or the same for all columns.
        Take them from documentation, or from the possible range of the quantity; not from the records.

    Guarantees
    ----------
    - Nothing is learnt: ``fit`` reads no value, and row i of the result depends on row i of the input only.
    - Every entry of the result is in [0, 1] or NaN. NaN and infinite values are defective and become NaN: a private fit
      then ignores the record.
    - No value causes an error or a warning; errors come from declared settings, column names and dtypes.

    Examples
    --------
    >>> import numpy as np
    >>> from vips.preprocessing import PublicScaler
    >>> PublicScaler([(0, 10), (-1, 1)]).fit_transform(np.array([[5.0, 0.5], [99.0, np.inf]]))
    array([[0.5 , 0.75],
           [1.  ,  nan]])
    """

    def __init__(self, bounds) -> None:
        self.bounds = bounds

    @property
    def declared_public(self) -> tuple[str, ...]:
        """The bounds, in a short string for a privacy report."""
        bounds = checked_bounds(self.bounds)
        if isinstance(bounds, tuple):
            return (f"bounds of all numeric columns ({_text(bounds)})",)
        items = bounds.items() if isinstance(bounds, Mapping) else enumerate(bounds)
        listed = shortened([f"{name}: {_text(pair)}" for name, pair in items])
        return (f"bounds of {len(bounds)} numeric column{'s' * (len(bounds) > 1)} ({listed})",)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """Names of the scaled columns, which are those of the input; shape (n_features,)."""
        return np.array(self._names(self.bounds, input_features), dtype=object)

    def _by_column(self, X) -> Mapping | Sequence:
        bounds = checked_bounds(self.bounds)
        return [bounds] * X.shape[1] if isinstance(bounds, tuple) else bounds

    def _check(self, X) -> None:
        for key in columns_of(X, self._by_column(X)):
            dtype = getattr(column(X, key), "dtype", None)
            kind = dtype.kind if isinstance(dtype, np.dtype) else None
            if kind == "c":
                raise ValueError(f"Complex data not supported: column {key!r} has bounds, but its dtype is {dtype}.")
            if (kind is None or kind not in "biuf") and not is_nullable_number(dtype):
                values = f"X[{key!r}]" if is_frame(X) else "X"
                raise TypeError(
                    f"Column {key!r} has bounds, but its dtype is {dtype}: its conversion would depend on its "
                    f"values. {suggestion_for(dtype, values, is_frame(X))}"
                )

    def _transform(self, X) -> np.ndarray:
        declared = self._by_column(X)
        keys = columns_of(X, declared)
        pairs = list(declared.values()) if isinstance(declared, Mapping) else declared
        low, high = np.array(pairs, dtype=float).reshape(-1, 2).T
        scaled = np.empty((X.shape[0], len(keys)))
        with np.errstate(all="ignore"):
            for j, key in enumerate(keys):
                scaled[:, j] = with_numpy_numbers(column(X, key))
            scaled[~np.isfinite(scaled)] = np.nan
            np.clip(scaled, low, high, out=scaled)
            scaled -= low
            scaled /= high - low
        return scaled


def is_pair(bounds) -> bool:
    """Whether ``bounds`` are two numbers."""
    return (
        isinstance(bounds, Sequence | np.ndarray)
        and len(bounds) == 2
        and all(isinstance(bound, Real) and not isinstance(bound, bool | np.bool_) for bound in bounds)
    )


def checked_bounds(bounds) -> dict[str, tuple[float, float]] | list[tuple[float, float]] | tuple[float, float]:
    """Bounds as pairs of floats: by name, by position, or one for all columns."""
    if is_pair(bounds):
        return _checked_pair(bounds, "all columns")
    checked = each_checked(bounds, _checked_pair)
    if checked is not None:
        return checked
    raise TypeError(
        "`bounds` must be a mapping of column names to (low, high), a list with one pair per column, or one pair for all "
        f"columns, got {bounds!r}."
    )


def _checked_pair(pair, where: str) -> tuple[float, float]:
    if not is_pair(pair):
        raise TypeError(f"The bounds of {where} must be two numbers, (low, high), got {pair!r}.")
    low, high = float(pair[0]), float(pair[1])
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"The bounds of {where} must be finite, with low < high, got {pair!r}.")
    return low, high


def _text(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.15g} to {pair[1]:.15g}"
