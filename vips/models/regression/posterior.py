"""Posterior of the coefficients of a regression, and what its steps pass on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from vips.expfam import DiagonalGaussian
from vips.models._centred import CentredGaussian
from vips.models.regression.coordinates import Coordinates

__all__ = ["CoefficientPosterior", "DiagonalCoefficientPosterior", "KeptSteps"]

_TOO_LARGE = 1e100  # of files


@dataclass(frozen=True)
class KeptSteps:
    """Released values of steps in the same coordinates of rows. Steps next to each other may share a place.

    Parameters
    ----------
    points, totals : ndarray of shape (n_outputs, n_places, d)
        Coefficients at which the steps of each place were computed, and their noisy totals of residuals: averages.
    counts : ndarray of shape (n_places,)
        Numbers of these steps.
    centre : ndarray of shape (n_outputs, d)
        Average of the coefficients of all steps, with the weights of the averaged precision.
    average : ndarray of shape (n_outputs, d)
        Average of the totals of residuals, as the last step used it.
    """

    points: np.ndarray
    totals: np.ndarray
    counts: np.ndarray
    centre: np.ndarray
    average: np.ndarray

    @classmethod
    def none(cls, shape: tuple[int, int, int]) -> KeptSteps:
        """Places for (n_outputs, n_places, d) values of steps to come."""
        outputs, places, d = shape
        return cls(*np.zeros((2, *shape)), np.zeros(places), *np.zeros((2, outputs, d)))

    def after(self, place: int, point: np.ndarray, average: np.ndarray, rho: float, rho_precision: float) -> KeptSteps:
        """With a step at ``point`` that made this average, with these step sizes."""
        centre = (1.0 - rho_precision) * self.centre + rho_precision * point
        if rho == 0.0:  # nothing of the step is in the average
            return replace(self, centre=centre)
        counts, points, totals = self.counts.copy(), self.points.copy(), self.totals.copy()
        counts[place] += 1.0
        points[:, place] += (point - points[:, place]) / counts[place]
        total = (average - (1.0 - rho) * self.average) / rho
        totals[:, place] += (total - totals[:, place]) / counts[place]
        return KeptSteps(points, totals, counts, centre, average.copy())

    def used(self, most_skipped: float) -> np.ndarray:
        """The places whose totals are matched: all but the first ones, so many but at most half."""
        places = np.flatnonzero(self.counts)
        return places[min(len(places) // 2, most_skipped) :]


class _Learnt:
    """Values that a step passes to the next one besides the coefficients; all of them released.

    ``alpha_shape``, ``alpha_rate``: q(α_j), shape (n_outputs,); ``step``: number of steps so far; ``kept``: what they released;
    ``public``: weight of public records in the prior, shape (n_outputs,), or None; ``coordinates``: those of rows in the next
    step.
    """

    alpha_shape: np.ndarray
    alpha_rate: np.ndarray
    step: int
    kept: KeptSteps
    public: np.ndarray | None
    coordinates: Coordinates

    def _learn(self, alpha_shape, alpha_rate, step: int, kept, public, coordinates) -> None:
        self.alpha_shape, self.alpha_rate, self.step = np.atleast_1d(alpha_shape), np.atleast_1d(alpha_rate), step
        outputs, d = np.atleast_2d(self.mean).shape
        self.kept = KeptSteps.none((outputs, 0, d)) if kept is None else kept
        self.public, self.coordinates = public, coordinates or Coordinates.as_they_come(d)

    def to_arrays(self) -> dict[str, np.ndarray]:
        learnt = {"alpha_shape": self.alpha_shape, "alpha_rate": self.alpha_rate, "step": np.array(self.step)}
        learnt |= {} if self.public is None else {"public": self.public}
        learnt |= {f"kept_{name}": value for name, value in vars(self.kept).items()}
        return super().to_arrays() | learnt | vars(self.coordinates)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]):
        kept = KeptSteps(*(arrays[f"kept_{field.name}"] for field in fields(KeptSteps)))
        numbers = (*vars(kept).values(), arrays["shift"], arrays["scale"])
        if not (all((np.abs(value) < _TOO_LARGE).all() for value in numbers) and (kept.counts >= 0.0).all()):  # nor NaN
            raise ValueError("the posterior's kept steps are none that a fit makes")
        if not (arrays["step"] >= 0 and (arrays["alpha_rate"] > 0.0).all()):
            raise ValueError("the posterior's step or precisions are none that a fit makes")
        learnt = arrays["alpha_shape"], arrays["alpha_rate"], int(arrays["step"]), kept, arrays.get("public")
        coordinates = Coordinates(arrays["shift"], arrays["scale"])
        centre = (arrays[name] for name in ("centre",) if name in arrays)  # of a full covariance
        return cls(arrays["mean"], arrays["precision"], *learnt, coordinates, *centre)


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
    kept : KeptSteps, optional
        What noisy steps released.
    public : array of shape (n_outputs,), optional
        Weight of public records in the prior, from 0 to 1.
    coordinates : Coordinates, optional
        Of the rows of the next step; the coefficients are those of rows as they come. None: of these.
    centre : array of shape (d,), optional
        See :class:`~vips.models._centred.CentredGaussian`.
    """

    def __init__(
        self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step=0, kept=None, public=None, coordinates=None,
        centre=None,
    ) -> None:  # fmt: skip
        super().__init__(mean, precision, centre)
        self._learn(alpha_shape, alpha_rate, step, kept, public, coordinates)


class DiagonalCoefficientPosterior(_Learnt, DiagonalGaussian):
    """As :class:`CoefficientPosterior`, with independent coefficients: ``precision`` has the shape of the mean."""

    def __init__(
        self, mean, precision, alpha_shape=1.0, alpha_rate=1.0, step: int = 0, kept=None, public=None, coordinates=None
    ) -> None:
        super().__init__(mean, precision)
        self._learn(alpha_shape, alpha_rate, step, kept, public, coordinates)

    @property
    def around(self) -> DiagonalCoefficientPosterior:
        """Itself: rows of a diagonal fit are not centred."""
        return self
