"""Coordinates of rows that a private fit learns: columns centred and scaled by released means and variances.

=====================  ================================================================================
symbol                 meaning
=====================  ================================================================================
m, S                   ω-weighted means of the columns, and factors that give their deviations one size
x̃ = S (x - m)          a row; the intercept's constant c stays as it is
b̃ = A⁻ᵀ b              its coefficients: x̃ᵀb̃ = xᵀb for every row, with A = S (I - m e_cᵀ / c)
=====================  ================================================================================

Means of columns fill the clip norm and say nothing of effects, and a column that hardly varies has as much noise as one that
varies much. Both end where rows are centred and scaled. A fit of noisy steps releases m and S in its first phase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vips._compute.rowwise import row_norms
from vips.models.regression.kernels import move_rows
from vips.models.regression.matching import weighted_law

__all__ = ["Coordinates"]

# √E ‖x̃‖² without the constant, where rows have norm 1.
_LENGTH = 1.0
# Least variance of a column, relative to its mean square.
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class Coordinates:
    """Released coordinates of rows.

    Parameters
    ----------
    shift, scale : ndarray of shape (d,)
        m and S, with 0 and 1 for the intercept's constant, as for rows as they come.
    """

    shift: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        if not (np.isfinite(self.shift).all() and np.isfinite(self.scale).all() and (self.scale > 0.0).all()):
            raise ValueError("Coordinates of rows must be finite, and their factors positive.")

    @classmethod
    def as_they_come(cls, d: int) -> Coordinates:
        """Coordinates of rows of d columns that are neither centred nor scaled."""
        return cls(np.zeros(d), np.ones(d))

    @classmethod
    def learnt(cls, precision: np.ndarray, std: float, constant: float, ball: float) -> Coordinates:
        """From P̄ = Σ ω x xᵀ with symmetric noise of this deviation on its diagonal, and rows of norm at most ``ball``.

        A variance is at least the noise in it: so a constant or empty column is scaled to less than the others.
        """
        relative = constant / ball
        law, _ = weighted_law(precision / ball**2, std / ball**2, relative)
        mean, variance = law.mean[:-1], np.diagonal(law.cov)[:-1]
        noise = std / ball**2 * (1.0 + (mean / relative) ** 2) / law.count
        least = np.maximum(variance, np.maximum(noise, _LEAST_VARIANCE * (variance + mean**2)))
        scale = _LENGTH / np.sqrt(least * max((variance / least).sum(), 1.0))
        return cls(np.append(ball * mean, 0.0), np.append(scale, 1.0))

    @property
    def move(self) -> bool:
        """Whether rows are moved."""
        return bool((self.scale != 1.0).any())

    def rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x̃ of an array of rows, and ‖x̃‖: a row's are a function of that row alone, to the last bit."""
        moved = np.empty_like(rows)
        move_rows(rows, self.shift, self.scale, moved)
        return moved, row_norms(moved)

    def coefficients(self, coefficients: np.ndarray, constant: float) -> np.ndarray:
        """b̃ of coefficients b, shape (..., d)."""
        moved = coefficients / self.scale
        moved[..., -1] += coefficients @ self.shift / (constant or 1.0)
        return moved
