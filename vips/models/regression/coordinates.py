"""Coordinates of rows that a private fit learns: columns centred and scaled by released means and variances.

=====================  ================================================================================
symbol                 meaning
=====================  ================================================================================
m, S                   centres of the columns, and factors that give their deviations one size
x̃ = S (x - m)          a row; the intercept's constant c becomes ½
b̃                      its coefficients: x̃ᵀb̃ = xᵀb for every row
=====================  ================================================================================

Means of columns fill the clip norm and say nothing of effects, and a column that hardly varies has as much noise as one that
varies much. A zoom releases Σ z zᵀ of z = (x̃, ½), in coordinates of the zoom before; rows beyond the limit are clipped. Then
columns are centred and scaled anew. So bounds may be far too wide: each zoom sees what the last one could not tell from noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vips._compute.rowwise import row_norms
from vips.models.regression.kernels import move_rows

__all__ = ["CONSTANT", "LIMIT", "Coordinates", "Zooms"]

# The intercept's constant beside moved rows, whose norm is about 1; and ‖z‖² beyond which a zoom clips a row.
CONSTANT = 0.5
LIMIT = 1.0 + CONSTANT**2
# Deviations of noise above which a variance is seen, and which it is at least taken for.
_SEEN, _HIDDEN = 3.5, 2.0
# Ratio of a column's variance in wide windows to that in a narrow one above which its tail is long: normals have 1.2.
_LONG = 1.8
# Least variance of a column, relative to its mean square.
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class Coordinates:
    """Released coordinates of rows.

    Parameters
    ----------
    shift, scale : ndarray of shape (d,)
        m and S. The intercept's constant, if there is one, comes last and has the shift 0.
    """

    shift: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        if not (np.isfinite(self.shift).all() and np.isfinite(self.scale).all() and (self.scale > 0.0).all()):
            raise ValueError("Coordinates of rows must be finite, and their factors positive.")

    @classmethod
    def learnt(cls, precision: np.ndarray, std: float, constant: float, ball: float) -> Coordinates:
        """From Σ ω x xᵀ of a constant and rows of norm up to ``ball``, with symmetric noise of this deviation on its diagonal.

        A variance is at least the noise in it: so a constant or empty column is scaled to less than the others.
        """
        n = len(precision) - 1
        count = max(precision[n, n], std, 1e-300) / constant**2
        mean = precision[n, :n] / (constant * count)
        noise = std * (1.0 + (mean / constant) ** 2) / count
        squares = np.maximum(np.diagonal(precision)[:n] / count, mean**2)
        least = np.maximum(squares - mean**2, np.maximum(noise, _LEAST_VARIANCE * squares)) / ball**2
        return cls(np.append(mean, 0.0), np.append(1.0 / np.sqrt(max(n, 1) * least), 1.0))

    def rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x̃ of an array of rows, and ‖x̃‖: a row's are a function of that row alone, to the last bit."""
        moved = np.empty_like(rows)
        move_rows(rows, self.shift, self.scale, moved)
        return moved, row_norms(moved)

    def coefficients(self, coefficients: np.ndarray, constant: float) -> np.ndarray:
        """b̃ of coefficients b, shape (..., d); ``constant`` is that of rows as they come, 0 without an intercept."""
        moved = np.array(coefficients)
        if constant:
            moved[..., -1] += coefficients @ self.shift / constant
        return moved / self.scale


@dataclass(frozen=True)
class Zooms:
    """What zooms have released until now.

    Parameters
    ----------
    coordinates : Coordinates
        Of the rows in the next step.
    seen : ndarray of shape (n_features,)
        Variance of each column in these coordinates, 0 where noise has hidden it in every zoom.
    count : float
        Σ of the rows' clip weights, at least the noise in it; NaN before the first zoom.
    n_zooms : int
    widest, tails : ndarray of shape (n_features,)
        Largest variance of each column in any zoom that saw it, less two deviations of noise, in these coordinates; the same
        over its variance in the last zoom, which clips rows as scores do.
    """

    coordinates: Coordinates
    seen: np.ndarray
    widest: np.ndarray
    tails: np.ndarray
    count: float = np.nan
    n_zooms: int = 0

    @classmethod
    def declared(cls, n_features: int, ball: float, constant: float) -> Zooms:
        """Before the first zoom: rows of norm at most ``ball`` become such of norm 1, their constant, if it is not 0, ½."""
        scale = np.append(np.full(n_features, 1.0 / ball), [CONSTANT / constant] if constant else [])
        return cls(Coordinates(np.zeros(len(scale)), scale), *np.zeros((3, n_features)))

    @property
    def hidden(self) -> np.ndarray:
        """Columns whose variance stood out from noise in no zoom; none before the first."""
        return (self.seen == 0.0) & (self.n_zooms > 0)

    @property
    def long_tailed(self) -> np.ndarray:
        """Columns a part of whose variance is in few rows, which weigh less in scores."""
        return (self.tails > _LONG) & (self.n_zooms > 1)

    def after(self, moments: np.ndarray, std: float, size: float, centred: bool) -> Zooms:
        """With one zoom more.

        Parameters
        ----------
        moments : ndarray of shape (n_features + 1, n_features + 1)
            Σ z zᵀ and symmetric noise.
        std : float
            Deviation of the noise on its diagonal.
        size : float
            Deviation of a row that the next coordinates aim at: 1 for scores. In smaller coordinates fewer rows are clipped.
        centred : bool
            Whether columns are centred.
        """
        p, shift, scale = len(self.seen), self.coordinates.shift.copy(), self.coordinates.scale.copy()
        count = max(moments[p, p], std, 1e-300) / CONSTANT**2
        mean = moments[p, :p] / (CONSTANT * count) if centred else np.zeros(p)
        noise = std / count * (1.0 + np.square(mean / CONSTANT))  # of count and mean: most where the centre is far
        variance = np.diagonal(moments)[:p] / count - mean**2
        is_visible = variance > _SEEN * noise
        widest = np.maximum(self.widest, np.where(is_visible, variance - _HIDDEN * noise, 0.0))
        tails = np.where(is_visible, widest / np.maximum(variance, noise), 0.0)
        variance = np.where(is_visible, np.maximum(variance, self.seen), self.seen)  # rare values are far out by nature
        # what noise hides is widened no further than noise allows, and never narrowed
        factor = size / np.sqrt(p * np.maximum(variance, _HIDDEN * noise))
        factor = np.where(variance > 0.0, factor, np.maximum(factor, 1.0))
        shift[:p] += mean / scale[:p]
        scale[:p] *= factor
        seen, widest = variance * factor**2, widest * factor**2
        return Zooms(Coordinates(shift, scale), seen, widest, tails, count, self.n_zooms + 1)
