"""Gaussians of coefficients and an intercept, held around a centre of the columns.

    x'w + a = (x - m)'w + (a + m'w)

The matrix C takes (w, a) to (w, a + m'w). Where m is far from 0, relative to the columns' spread, the precision CᵀPC of (w, a)
has no digits left for w: P is kept, the precision of (w, a + m'w).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np

from vips.core.mechanism.random_state import RandomStateLike
from vips.core.records.partition import with_their_weights
from vips.core.records.source import DataSource
from vips.data._sequences import Sequences
from vips.expfam import Gaussian
from vips.models._definite import positive_definite

__all__ = ["CentredGaussian", "around", "look_at_columns", "means_and_spreads", "place", "seen"]

# Share of entries other than 0 below which a table has no centre to speak of: its rows are handled as sparse ones.
_SPARSE_BELOW = 0.25
_SPREAD = 4.0  # of normals: a spread over a standard deviation


class CentredGaussian(Gaussian):
    """Coefficients, the intercept in the last place.

    Parameters
    ----------
    mean, precision : array of shape (..., d), (..., d, d)
        Of the coefficients, and of the intercept at the centre.
    centre : array of shape (d - 1,) or (d,), optional
        m, whose last entry is not read; None for 0.

    Attributes
    ----------
    mean, precision, cov, var, std
        For the coefficients, and the intercept at 0.
    around : Gaussian
        The coefficients, and the intercept at the centre.
    """

    def __init__(self, mean, precision, centre=None) -> None:
        self.around = Gaussian(mean, precision)
        d = self.around.mean.shape[-1]
        self.centre = np.zeros(d) if centre is None else np.append(centre[: d - 1], 0.0)

    @property
    def mean(self) -> np.ndarray:
        return _moved(self.around.mean, -self.centre) if self.centre.any() else self.around.mean

    @mean.setter
    def mean(self, mean: np.ndarray) -> None:
        self.around.mean = _moved(mean, self.centre)

    def at(self, centre: np.ndarray) -> Gaussian:
        """The coefficients, and the intercept at another centre."""
        if not (self.centre - centre).any():
            return self.around
        move = around(self.centre - centre)
        precision = move.T @ self.around.precision @ move
        return Gaussian(_moved(self.around.mean, centre - self.centre), _each(positive_definite, precision))

    @cached_property
    def precision(self) -> np.ndarray:
        move = around(self.centre)
        return move.T @ self.around.precision @ move if self.centre.any() else self.around.precision

    @cached_property
    def factor(self) -> np.ndarray:
        return self.at(np.zeros(len(self.centre))).factor

    @cached_property
    def cov(self) -> np.ndarray:
        back = around(-self.centre)
        return back @ self.around.cov @ back.T if self.centre.any() else self.around.cov

    @cached_property
    def var(self) -> np.ndarray:
        return np.diagonal(self.cov, axis1=-2, axis2=-1).copy() if self.centre.any() else self.around.var

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Independent draws, shape (size, ..., d)."""
        return _moved(self.around.sample(size, rng), -self.centre)

    def kl(self, other) -> np.ndarray:
        """KL(self ‖ other), computed at the centre of ``other``."""
        if isinstance(other, CentredGaussian) and (self.centre.any() or other.centre.any()):
            return self.at(other.centre).kl(other.around)
        return super().kl(other)

    @property
    def _log_det(self) -> np.ndarray:
        return 2.0 * np.log(np.diagonal(self.around.factor, axis1=-2, axis2=-1)).sum(axis=-1)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return self.around.to_arrays() | {"centre": self.centre}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(*(arrays[name] for name in ("mean", "precision", "centre")))


def around(centre: np.ndarray) -> np.ndarray:
    """C, shape (d, d), of a centre of shape (d,) whose last entry is 0."""
    matrix = np.eye(len(centre))
    matrix[-1] += centre
    return matrix


def look_at_columns(model, records: DataSource, rows_of: Callable[[Any], Any]) -> None:
    """Set centre and spreads of the columns of an ordinary fit, in whose units start, prior and floor are: :func:`place`."""
    means, spreads = means_and_spreads(model, records, rows_of, least=0.0)
    if means is not None:
        model.centre_, model.spreads_ = means, spreads


def seen(model, name: str, otherwise: np.ndarray) -> np.ndarray:
    """An attribute of the columns that an ordinary fit has set; ``otherwise`` in a private fit, whatever was fitted before."""
    return otherwise if model.is_private else vars(model).get(name, otherwise)


def place(model) -> tuple[np.ndarray, np.ndarray]:
    """Centre and units of the columns, about a standard deviation each; 0 and 1 in a private fit."""
    d = model.n_features_in_
    units = seen(model, "spreads_", np.full(d, _SPREAD)) / _SPREAD
    if model.covariance_type == "spherical":
        units = np.full(d, np.sqrt(np.square(units).mean()))
    return seen(model, "centre_", np.zeros(d)), units


def means_and_spreads(
    model, data: DataSource, rows_of: Callable[[Any], Any], least: float = _SPARSE_BELOW
) -> tuple[np.ndarray | None, ...]:
    """Means of the columns of an ordinary fit, and their spreads; None for sparse rows, or a lesser share of other than zeros.

    The spread is the range of a column of two values, of others five mean absolute deviations at most: a single value far away
    must not make the prior of a coefficient narrow; it is 1 for a constant. ``rows_of`` takes a chunk of records, or of rows
    without labels, to the rows that count.
    """
    off_first, squares, n_stored, n_entries, whole, first, deviations, ends = 0.0, 0.0, 0, 0.0, 0.0, None, 0.0, []
    for chunk, weights in with_their_weights(data.chunks(model.chunk_size), model.plan_of_fit().max_weight is not None):
        rows = rows_of(chunk)
        if isinstance(chunk, Sequences):  # some of whose steps may be missing
            weights = np.repeat(weights, chunk.lengths) * np.isfinite(rows).all(axis=1)
            rows = np.where(weights[:, None] > 0.0, rows, 0.0)
        if not isinstance(rows, np.ndarray):
            return None, None
        n_stored, n_entries, is_counted = n_stored + np.count_nonzero(rows), n_entries + rows.size, weights > 0.0
        if is_counted.any():
            counted, whole = rows if is_counted.all() else rows[is_counted], whole + weights.sum()
            ends += [counted.min(axis=0), counted.max(axis=0)]
            first = weights @ rows / whole if first is None else first
            off = rows - first  # the first mean: near enough for a spread
            off_first, deviations = off_first + weights @ off, deviations + weights @ np.abs(off)
            squares = squares + weights @ np.square(off, out=off)
    if not ends or n_stored < max(least * n_entries, 1.0):
        return None, None
    moved, low, high = off_first / whole, np.min(ends, axis=0), np.max(ends, axis=0)
    mean, squares = first + moved, squares - whole * np.square(moved)
    # of numbers between these ends with this mean: if they are at the ends
    largest_variance = (high - mean) * (mean - low)
    has_two_values = squares / whole > (1.0 - 1e-9) * largest_variance
    spreads = np.where(has_two_values, high - low, np.minimum(high - low, 5.0 * deviations / whole))
    return mean, np.where(spreads > 0.0, spreads, 1.0)


def _moved(mean: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Means or draws with the intercept at the centre plus this."""
    moved = np.array(mean)
    moved[..., -1] += moved[..., :-1] @ by[:-1]
    return moved


def _each(function, matrices: np.ndarray) -> np.ndarray:
    return np.stack([function(matrix) for matrix in matrices]) if matrices.ndim > 2 else function(matrices)
