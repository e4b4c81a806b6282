"""Posterior of the coefficients of a regression, and what its steps pass on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from vips.expfam import DiagonalGaussian
from vips.models._centred import CentredGaussian
from vips.models._coordinates import Zooms
from vips.models.regression.newton import Released

__all__ = ["CoefficientPosterior", "DiagonalCoefficientPosterior", "KeptSteps", "Search"]

_TOO_LARGE, _MOST_STEPS = 1e18, 1e15  # of files, which hold sums over records, and noise


@dataclass(frozen=True)
class KeptSteps:
    """What steps released in the same coordinates of rows. Steps next to each other may share a place: averages.

    Parameters
    ----------
    points, scores, squares : ndarray of shape (n_outputs, n_places, d)
        Coefficients at which the steps of each place were computed, and what they released there.
    informations : ndarray of shape (n_outputs, n_places, d, d)
    counts : ndarray of shape (n_places,)
        Numbers of these steps.
    sizes : ndarray of shape (n_places,)
        Averages of C².
    """

    points: np.ndarray
    scores: np.ndarray
    squares: np.ndarray
    informations: np.ndarray
    counts: np.ndarray
    sizes: np.ndarray

    @classmethod
    def none(cls, n_outputs: int, n_places: int, d: int) -> KeptSteps:
        """Places for steps to come."""
        rows, matrices = (n_outputs, n_places, d), (n_outputs, n_places, d, d)
        return cls(*np.zeros((3, *rows)), np.zeros(matrices), *np.zeros((2, n_places)))

    def after(self, place: int, size: float, **released: np.ndarray) -> KeptSteps:
        """With a step at C = ``size`` that released this, each of shape (n_outputs, d) or (n_outputs, d, d)."""
        arrays = {name: value.copy() for name, value in vars(self).items()}
        arrays["counts"][place] += 1.0
        share = 1.0 / arrays["counts"][place]
        arrays["sizes"][place] += share * (size**2 - arrays["sizes"][place])
        for name, value in released.items():
            arrays[name][:, place] += share * (value - arrays[name][:, place])
        return KeptSteps(**arrays)

    def released(
        self, noise_std: Mapping[str, float], unit: float, sampling_rate: float, ratios: tuple[float, float]
    ) -> list[Released]:
        """What was released about each output; ``noise_std`` is that of one step in the blocks as they are summed."""
        used = self.counts > 0.0
        counts, size = self.counts[used], np.sqrt(self.sizes[used])
        units = {"linear": unit, "precision": unit**2, "squares": unit**2}
        stds = np.column_stack([noise_std[name] * size * units[name] / np.sqrt(counts) for name in units])
        others = stds, (1.0 / sampling_rate - 1.0) / counts, ratios
        arrays = (self.points, self.scores, self.informations, self.squares)
        return [Released(*(array[j, used] for array in arrays), *others) for j in range(len(self.points))]


@dataclass(frozen=True)
class Search:
    """Where a private fit looks next, and what it has released.

    Parameters
    ----------
    zooms : Zooms
    point : ndarray of shape (n_outputs, d)
        Coefficients of rows in the coordinates of the zooms, at which the next step takes scores.
    size, unit : float
        C, by which the statistics of the next step are divided, and the unit of residuals.
    kept : KeptSteps
    """

    zooms: Zooms
    point: np.ndarray
    size: float
    unit: float
    kept: KeptSteps

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays to save."""
        kept = {f"kept_{name}": value for name, value in vars(self.kept).items()}
        searched = {"size": self.size, "unit": self.unit, "point": self.point} | kept
        return self.zooms.to_arrays() | {f"search_{name}": np.asarray(value) for name, value in searched.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Search:
        """From the arrays of :meth:`to_arrays`; ValueError for others."""
        names = [name for name in arrays if name.startswith("search_")]
        of = {name.removeprefix("search_"): np.asarray(arrays[name], np.float64) for name in names}
        kept = KeptSteps(*(of[f"kept_{field.name}"] for field in fields(KeptSteps)))
        is_moderate = all((np.abs(value) < _TOO_LARGE).all() for value in of.values())  # nor NaN
        are_counts = (kept.counts >= 0.0).all() and (kept.counts == np.floor(kept.counts)).all()
        if not (
            is_moderate and are_counts and (kept.sizes >= 0.0).all() and min(of["size"], of["unit"]) > 1.0 / _TOO_LARGE
        ):
            raise ValueError("the posterior's kept steps are none that a fit makes")
        return cls(Zooms.from_arrays(arrays), of["point"], float(of["size"]), float(of["unit"]), kept)


class _Learnt:
    """Values that a step passes to the next one besides the coefficients; all of them released.

    ``alpha_shape``, ``alpha_rate``: q(α_j), shape (n_outputs,); ``step``: number of steps so far; ``public``: weight of public
    records in the prior, shape (n_outputs,), or None; ``search``: of private fits by Newton's steps, else None.
    """

    alpha_shape: np.ndarray
    alpha_rate: np.ndarray
    step: int
    public: np.ndarray | None
    search: Search | None

    def _learn(self, alpha_shape, alpha_rate, step: int, public=None, search: Search | None = None) -> None:
        self.alpha_shape, self.alpha_rate, self.step = np.atleast_1d(alpha_shape), np.atleast_1d(alpha_rate), step
        self.public, self.search = public, search

    @property
    def zooms(self) -> Zooms | None:
        """Zooms of a fit that searched, else None."""
        return None if self.search is None else self.search.zooms

    def to_arrays(self) -> dict[str, np.ndarray]:
        learnt = {"alpha_shape": self.alpha_shape, "alpha_rate": self.alpha_rate, "step": np.array(self.step)}
        learnt |= {} if self.public is None else {"public": self.public}
        return super().to_arrays() | learnt | ({} if self.search is None else self.search.to_arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]):
        if not (0 <= arrays["step"] < _MOST_STEPS and (arrays["alpha_rate"] > 0.0).all()):
            raise ValueError("the posterior's step or precisions are none that a fit makes")
        of_full = {name: arrays[name] for name in ("public", "centre") if name in arrays}
        if "search_size" in arrays:
            of_full["search"] = search = Search.from_arrays(arrays)
            if search.kept.counts.sum() != arrays["step"]:
                raise ValueError("the posterior's step is not that of its kept steps")
            if "centre" in arrays and not np.array_equal(arrays["centre"], search.zooms.coordinates.shift):
                raise ValueError("the posterior's centre is not that of its coordinates")
        learnt = arrays["alpha_shape"], arrays["alpha_rate"], int(arrays["step"])
        return cls(arrays["mean"], arrays["precision"], *learnt, **of_full)


class CoefficientPosterior(_Learnt, CentredGaussian):
    """Posterior of the coefficients, and of the intercept in the last place if there is one.

    Parameters
    ----------
    mean : array of shape (d,) or (n_outputs, d)
    precision : array of shape (d, d) or (n_outputs, d, d)
        Of the coefficients, and of the intercept at ``centre``.
    alpha_shape, alpha_rate : array of shape (n_outputs,)
        Of the Gamma posterior of the prior precision α.
    step : int
        Steps that this posterior has seen.
    public : array of shape (n_outputs,), optional
        Weight of public records in the prior, from 0 to 1.
    search : Search, optional
        What noisy steps released.
    centre : array of shape (d,), optional
        See :class:`~vips.models._centred.CentredGaussian`.
    """

    def __init__(
        self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step=0, public=None, search=None, centre=None
    ) -> None:
        super().__init__(mean, precision, centre)
        self._learn(alpha_shape, alpha_rate, step, public, search)


class DiagonalCoefficientPosterior(_Learnt, DiagonalGaussian):
    """As :class:`CoefficientPosterior`, with independent coefficients: ``precision`` has the shape of the mean."""

    def __init__(self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step: int = 0) -> None:
        super().__init__(mean, precision)
        self._learn(alpha_shape, alpha_rate, step)

    @property
    def around(self) -> DiagonalCoefficientPosterior:
        """Itself: rows of a diagonal fit are not centred."""
        return self
