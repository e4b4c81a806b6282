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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from vips.parts import FeatureTotals

__all__ = [
    "CONSTANT", "LIMIT", "SUMS_OF_ZOOMS", "UNTOLD", "Coordinates", "Zooms", "moments_of_columns", "number_of_zooms",
]  # fmt: skip

# The intercept's constant beside moved rows, whose norm is about 1; and ‖z‖² beyond which a zoom clips a row.
CONSTANT = 0.5
LIMIT = 1.0 + CONSTANT**2
# What a zoom releases, for a report.
SUMS_OF_ZOOMS = "noisy number of rows, and noisy sums of products of the columns, in coordinates of those before"
# Deviations of noise above which a variance is seen (noise alone: once in 30,000 columns and zooms), and which it is at least
# taken for.
_SEEN, _HIDDEN = 4.0, 2.0
_CLEAR = 6.0  # deviations of noise above which sums of the first zoom say enough
# Deviations of a row at which the last zooms of a fit aim: the second last one clips few rows, the last one as many as scores
# do, so that both together tell tails.
_AIMS = (0.5, 0.25, 1.0, 1.0)
# Ratio of a column's variance in wide windows to that in a narrow one above which its tail is long: normals have 1.2,
# log-normals (σ = 0.8) 1.7. Deviations of a column that its bounds allow a row to be away, above which tails may be hidden.
_LONG, _FAR = 1.65, 12.0
# Deviation of noise in the quietest of wide windows, over the variance in the narrow one, above which noise hides whether a
# part of the variance is in few rows.
UNTOLD = 0.5
_LONGEST_INDICATOR = 0.7  # beside moved rows, whose norm is about 1
_LEAST_VARIANCE = 1e-18  # without noise
_TOO_LARGE = 1e100  # of files


def number_of_zooms(n_steps: int) -> int:
    """Number of zooms of a fit with so many steps: 0 of a single step, and one more for each three steps, up to 4."""
    return min((n_steps + 1) // 3, len(_AIMS))


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

    def rows(self, rows: np.ndarray) -> np.ndarray:
        """x̃ of an array of rows, each a function of its row alone, to the last bit."""
        moved = rows - self.shift
        moved *= self.scale
        return moved

    def coefficients(self, coefficients: np.ndarray, constant: float) -> np.ndarray:
        """b̃ of coefficients b, shape (..., d); ``constant`` is that of rows as they come, 0 without an intercept."""
        moved = np.array(coefficients)
        if constant:
            moved[..., -1] += coefficients @ self.shift / constant
        return moved / self.scale


@dataclass(frozen=True)
class ColumnMoments:
    """What noisy moments say of columns.

    Parameters
    ----------
    count : float
        Number of rows, at least the noise in it.
    mean, variance, noise : ndarray of shape (n_features,)
        The variance may be negative; ``noise`` is the deviation in it.
    """

    count: float
    mean: np.ndarray
    variance: np.ndarray
    noise: np.ndarray

    @property
    def is_visible(self) -> np.ndarray:
        """Whether each variance stands out from noise."""
        return self.variance > _SEEN * self.noise


def moments_of_columns(moments: np.ndarray, std: float, constant: float, centred: bool) -> ColumnMoments:
    """From Σ z zᵀ of z = (x, c) and symmetric noise, whose deviation on the diagonal is ``std``; not ``centred``: around 0."""
    p = len(moments) - 1
    count = max(moments[p, p], std, 1e-300) / constant**2
    mean = moments[p, :p] / (constant * count) if centred else np.zeros(p)
    noise = std / count * (1.0 + np.square(mean / constant))  # of count and mean: most where the centre is far
    return ColumnMoments(count, mean, np.diagonal(moments)[:p] / count - mean**2, noise)


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
        Σ of the rows' clip weights in the last zoom, at least the noise in it; 0 before the first one, when nothing is known.
    n_zooms : int
    widest, tails : ndarray of shape (n_features,)
        Largest variance of each column in any zoom that saw it, less deviations of noise, in these coordinates; the same over
        its variance in the last zoom, which clips rows as scores do.
    quietest, doubt : ndarray of shape (n_features,)
        Least deviation of noise in a column's variance in any zoom, in these coordinates; that of zooms before the last one,
        over the variance in the last zoom.
    counted : FeatureTotals or None
        Sums of the first zoom in columns as they come, which clips no row for a rare value as later ones do; and means, the
        centres of the last one.
    """

    coordinates: Coordinates
    seen: np.ndarray
    widest: np.ndarray
    tails: np.ndarray
    quietest: np.ndarray
    doubt: np.ndarray
    count: float = 0.0
    n_zooms: int = 0
    counted: FeatureTotals | None = None

    @classmethod
    def declared(cls, n_features: int, ball: float, constant: float) -> Zooms:
        """Before the first zoom: rows of norm at most ``ball`` become such of norm 1, their constant, if it is not 0, ½."""
        scale = np.append(np.full(n_features, 1.0 / ball), [CONSTANT / constant] if constant else [])
        return cls.beginning(np.zeros(len(scale)), scale, n_features)

    @classmethod
    def beginning(cls, shift: np.ndarray, scale: np.ndarray, n_features: int) -> Zooms:
        """Before the first zoom, in these coordinates."""
        return cls(Coordinates(shift, scale), *np.zeros((5, n_features)))

    @property
    def hidden(self) -> np.ndarray:
        """Columns whose variance stood out from noise in no zoom; none before the first, shape (n_features,)."""
        return (self.seen == 0.0) & (self.n_zooms > 0)

    def long_tailed(self, least: float | np.ndarray = _LONG) -> np.ndarray:
        """Columns a part of whose variance is in few rows, which weigh less in scores: with tails above these."""
        return (self.tails > least) & (self.n_zooms > 1)

    def untold(self, farthest: float | np.ndarray, doubt: float | np.ndarray = UNTOLD) -> np.ndarray:
        """Whether noise hides tails of each column, whose values are at most so far from its centre, shape (n_features,)."""
        is_far = farthest * self.coordinates.scale[: len(self.seen)] > _FAR * np.sqrt(self.seen)
        return (self.doubt > doubt) & (self.n_zooms > 1) & is_far

    @property
    def longest_tails(self) -> np.ndarray:
        """Largest ratio of a column's variance in wide windows to that in a narrow one that noise leaves open."""
        return np.maximum(self.tails, 1.0 + 2.0 * self.doubt)

    def aim(self, n_zooms: int) -> float:
        """Deviation of a row at which the next zoom of ``n_zooms`` aims."""
        return _AIMS[self.n_zooms - n_zooms]

    def after(
        self, moments: np.ndarray, std: float, size: float, centred: bool, doubts: tuple[float, float] = (_HIDDEN, 0.0)
    ) -> Zooms:
        """With one zoom more.

        Parameters
        ----------
        moments : ndarray of shape (n_features + 1, n_features + 1)
            Σ z zᵀ and symmetric noise.
        std : float
            Deviation of the noise on its diagonal.
        size : float
            Deviation of a row that the next coordinates aim at: :meth:`aim`. In smaller coordinates fewer rows are clipped.
        centred : bool
            Whether columns are centred.
        doubts : (float, float)
            Deviations of noise that are taken off variances in wide windows, and added to that of the last zoom, before they
            are compared.
        """
        of = moments_of_columns(moments, std, CONSTANT, centred)
        p, shift, scale = len(self.seen), self.coordinates.shift.copy(), self.coordinates.scale.copy()
        if not self.n_zooms:
            squares, noise = np.diagonal(moments)[:p] / scale[:p] ** 2, std / scale[:p] ** 2
            counted = FeatureTotals(squares, noise, np.zeros(p), *np.array([moments[p, p], std]) / CONSTANT**2)
        else:
            counted = self.counted
        is_visible, variance, noise = of.is_visible, of.variance, of.noise
        widest = np.maximum(self.widest, np.where(is_visible, variance - doubts[0] * noise, 0.0))
        tails = np.where(is_visible, widest / np.maximum(variance + doubts[1] * noise, noise), 0.0)
        doubt = np.where(is_visible, self.quietest / np.maximum(variance, noise), 0.0)
        quietest = np.minimum(self.quietest, noise) if self.n_zooms else noise
        variance = np.where(is_visible, np.maximum(variance, self.seen), self.seen)  # rare values are far out by nature
        # what noise hides is widened no further than noise allows, and never narrowed
        factor = size / np.sqrt(p * np.maximum(variance, np.maximum(_HIDDEN * noise, _LEAST_VARIANCE)))
        factor = np.where(variance > 0.0, factor, np.maximum(factor, 1.0))
        shift[:p] += of.mean / scale[:p]
        counted = replace(counted, means=shift[:p])
        of_columns = variance, widest, tails, quietest, doubt
        zooms = Zooms(Coordinates(shift, scale), *of_columns, of.count, self.n_zooms + 1, counted)
        return zooms.rescaled(factor)

    def counts_of(self, n_features: int) -> FeatureTotals | None:
        """Sums of squares of the first columns, and at most as many rows as they are sums over: rows with large values of the
        other columns, such as a target, have less weight. None before a zoom.

        Where a later zoom saw a column that the first one could not tell from noise, its sum of squares around the mean.
        """
        if self.counted is None:
            return None
        of, least, units = self.counted, LIMIT / (LIMIT + len(self.seen) - n_features), self.coordinates.scale**-2.0
        squares, noise = (self.count * values * units[: len(values)] for values in (self.seen, self.quietest))
        is_later = (self.seen > 0.0) & (of.squares <= _CLEAR * of.noise_std)
        arrays = np.where(is_later, squares, of.squares), np.where(is_later, noise, of.noise_std), of.means
        return FeatureTotals(*(array[:n_features] for array in arrays), least * of.size, least * of.size_std)

    def rescaled(self, factor: np.ndarray) -> Zooms:
        """With columns multiplied by this, shape (n_features,)."""
        scale = self.coordinates.scale.copy()
        scale[: len(factor)] *= factor
        coordinates = Coordinates(self.coordinates.shift, scale)
        squares = {name: getattr(self, name) * factor**2 for name in ("seen", "widest", "quietest")}
        return replace(self, coordinates=coordinates, **squares)

    def with_short(self, indicators: Sequence[tuple[int, int, float]] | None) -> Zooms:
        """With indicators that are no longer than this in a row: a rare one would be so long that a clip leaves next to nothing
        of the row's other columns."""
        factor = np.ones(len(self.seen))
        longest = max(
            _LONGEST_INDICATOR, 2.0 / np.sqrt(len(factor))
        )  # deviations of a column that is 0 as often as not
        for first, last, value in indicators or ():
            factor[first:last] = np.minimum(1.0, longest / (value * self.coordinates.scale[first:last]))
        return self.rescaled(factor)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays to save."""
        numbers = {name: value for name, value in vars(self).items() if name not in ("coordinates", "counted")}
        counted = vars(self.counted or FeatureTotals(*np.zeros((3, len(self.seen))), 0.0, 0.0))
        values = vars(self.coordinates) | numbers | {f"counted_{name}": value for name, value in counted.items()}
        return {f"zooms_{name}": np.asarray(value) for name, value in values.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Zooms:
        """From the arrays of :meth:`to_arrays`; ValueError for others."""
        names = ("shift", "scale", "seen", "widest", "tails", "quietest", "doubt", "count", "n_zooms")
        shift, scale, *of_columns, count, n_zooms = (np.asarray(arrays[f"zooms_{name}"], np.float64) for name in names)
        counted = [np.asarray(arrays[f"zooms_counted_{field.name}"], np.float64) for field in fields(FeatureTotals)]
        is_moderate = all(
            (np.abs(value) < _TOO_LARGE).all()
            for value in (shift, scale, 1.0 / np.maximum(scale, 1e-300), *of_columns, count, *counted)
        )
        if not (is_moderate and float(n_zooms) in range(len(_AIMS) + 1)):  # nor NaN
            raise ValueError("the posterior's coordinates are none that a fit makes")
        of_first = FeatureTotals(*counted[:3], *map(float, counted[3:])) if n_zooms > 0 else None
        return cls(Coordinates(shift, scale), *of_columns, float(count), int(n_zooms), of_first)
