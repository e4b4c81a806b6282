"""Posterior of mixed effects: coefficients that all persons share, and the covariance of those that are a person's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam import Draws, Gaussian
from vips.models._centred import CentredGaussian
from vips.models._coordinates import CONSTANT, Zooms

__all__ = ["INTERCEPT", "Frame", "MixedPosterior", "factor_of"]

# What stands for the constant column of the design among columns with effects of persons.
INTERCEPT = -1
_N_DRAWS = 20_000
_TOO_LARGE, _MOST_STEPS, _ROUNDING = 1e100, 1e15, 1e-9  # of files; of a covariance, relative to its largest entry


def factor_of(eta: np.ndarray, q: int) -> np.ndarray:
    """L of η, shape (..., q, q)."""
    factor = np.zeros((*eta.shape[:-1], q, q))
    rows, columns = np.tril_indices(q)
    factor[..., rows, columns] = np.where(rows == columns, np.exp(eta), eta)
    return factor


class Frame:
    """Coordinates of a fit: columns in units of ``max_norm``, centred and scaled by what a private fit has released of them.

    Parameters
    ----------
    zooms : Zooms
        A column x becomes scale · (x / ball - shift).
    ball : float
        ``max_norm``, or 1.
    columns : ndarray of int, shape (q,)
        Columns with effects of persons; ``INTERCEPT`` is the constant.
    """

    def __init__(self, zooms: Zooms, ball: float, columns: np.ndarray) -> None:
        self.zooms, self.ball, self.columns = zooms, float(ball), columns
        self.shift, self.scale = zooms.coordinates.shift, zooms.coordinates.scale

    @property
    def _own(self) -> tuple[np.ndarray, np.ndarray]:
        """Shift and scale of the columns in ``columns``: centred only beside an effect of the intercept, which takes it up."""
        is_column = self.columns != INTERCEPT
        shift = np.where(is_column & (~is_column).any(), self.shift[self.columns], 0.0)
        return shift, np.where(is_column, np.sqrt(len(self.scale)) * self.scale[self.columns], 1.0)

    def design(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x, shape (n, n_features + 1), and u, shape (n, q), of rows of norm at most 1."""
        shift, scale = self._own
        x = np.column_stack([(rows - self.shift) * self.scale, np.full(len(rows), CONSTANT)])
        u = np.where(self.columns == INTERCEPT, 1.0, (rows[:, self.columns] - shift) * scale)
        return x, np.ascontiguousarray(u)

    def to_natural(self) -> np.ndarray:
        """The matrix that takes b to coefficients of columns as they come, and the intercept; shape (d, d)."""
        matrix = np.diag(self.units())
        matrix[-1, :-1] = -self.shift * self.scale
        return matrix

    def units(self) -> np.ndarray:
        """Coefficients of columns as they come, and the intercept at their centre, over those of b; shape (d,)."""
        return np.append(self.scale / self.ball, CONSTANT)

    def effects_to_natural(self) -> np.ndarray:
        """The same of a person's effects, shape (q, q)."""
        shift, scale = self._own
        is_intercept = self.columns == INTERCEPT
        matrix = np.diag(np.where(is_intercept, 1.0, scale / self.ball))
        return matrix - np.outer(is_intercept, np.where(is_intercept, 0.0, shift * scale))

    def average_row(self) -> np.ndarray:
        """u of the average row in columns as they come, shape (q,)."""
        return np.where(self.columns == INTERCEPT, 1.0, self.ball * self.shift[self.columns])


class MixedPosterior:
    """A Gaussian of b and η, in the coordinates of a fit.

    Parameters
    ----------
    mean, cov : ndarray of shape (p,), (p, p)
        Of b, then η: see ``kernels.py``.
    frame : Frame
        In which they are, and rows of the next step.
    step : int
        Steps that this posterior has seen.

    Attributes
    ----------
    coefficients : Gaussian
        Of the columns as they come, the intercept last.
    effects : Draws of shape (q, q)
        Covariance Ω of a person's effects.
    """

    def __init__(self, mean: np.ndarray, cov: np.ndarray, frame: Frame, step: int = 0) -> None:
        self.parameters, self.parameters_cov, self.frame, self.step = mean, cov, frame, step

    @property
    def n_shared(self) -> int:
        """Number of shared coefficients, the intercept included."""
        return len(self.frame.shift) + 1

    @property
    def factor(self) -> np.ndarray:
        """L, shape (q, q), in the coordinates of the fit."""
        return factor_of(self.parameters[self.n_shared :], len(self.frame.columns))

    @cached_property
    def coefficients(self) -> Gaussian:
        d, units = self.n_shared, self.frame.units()
        around = Gaussian.from_covariance(
            units * self.parameters[:d], np.outer(units, units) * self.parameters_cov[:d, :d]
        )
        return CentredGaussian(around.mean, around.precision, self.frame.ball * self.frame.shift)

    @cached_property
    def effects(self) -> Draws:
        return Draws(self.sample(_N_DRAWS, 0)[1])

    @property
    def effects_cov(self) -> np.ndarray:
        """Ω at the mean of η, shape (q, q)."""
        factor = self.frame.effects_to_natural() @ self.factor
        return factor @ factor.T

    # what tables of coefficients read
    mean = property(lambda self: self.coefficients.mean)
    cov = property(lambda self: self.coefficients.cov)
    var = property(lambda self: self.coefficients.var)
    std = property(lambda self: self.coefficients.std)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Interval of the coefficients: (lower, upper) arrays."""
        return self.coefficients.interval(level)

    def sample(self, size: int, rng: RandomStateLike = None) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients, shape (size, d), and Ω, shape (size, q, q)."""
        d, rng = self.n_shared, as_generator(rng)
        values, vectors = np.linalg.eigh(self.parameters_cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = self.parameters + rng.standard_normal((size, len(root))) @ root.T
        factors = self.frame.effects_to_natural() @ factor_of(draws[:, d:], len(self.frame.columns))
        return draws[:, :d] @ self.frame.to_natural().T, factors @ factors.swapaxes(1, 2)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        values = {name: vars(self)[name] for name in ("parameters", "parameters_cov", "step")}
        values |= {"ball": self.frame.ball, "columns": self.frame.columns}
        return {name: np.asarray(value) for name, value in values.items()} | self.frame.zooms.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> MixedPosterior:
        """Inverse of ``to_arrays``; raises ValueError for arrays that no fit gives."""
        names = ("parameters", "parameters_cov", "step", "ball", "columns")
        (mean, cov, step, ball, columns), zooms = (arrays[name] for name in names), Zooms.from_arrays(arrays)
        if not all((np.abs(value) < _TOO_LARGE).all() for value in (mean, cov, ball)):  # nor NaN
            raise ValueError("the posterior's numbers are none that a fit gives")
        most = _ROUNDING * np.abs(cov).max(initial=0.0)
        is_square = cov.shape == (len(mean), len(mean))
        if not is_square or np.abs(cov - cov.T).max() > most or np.linalg.eigvalsh(cov).min() < -most:
            raise ValueError(
                "the posterior's covariance is none: it must be symmetric, and not negative in any direction"
            )
        in_range = ((columns >= INTERCEPT) & (columns < len(zooms.seen))).all() and columns.dtype.kind in "iu"
        if not (in_range and ball > 0.0 and 0 <= step < _MOST_STEPS):
            raise ValueError("the posterior's coordinates or step are none that a fit gives")
        return cls(mean, cov, Frame(zooms, float(ball), columns), int(step))
