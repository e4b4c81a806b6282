"""Noisy steps of a regression that knows something before the fit: a given posterior, or public records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vips.models.regression.known_steps import Denoised, Known, Released, best_weight, known_step
from vips.models.regression.prior import CoefficientPrior

__all__ = ["InformedSteps", "shares_of_steps"]

# Below this weight a step is that of a fit without public records, but for the prior; smaller weights are all alike.
_LEAST_WEIGHT = 0.05
# A weight of public records that changes by more than this factor moves the fit to its prior's mean.
_MOST_CHANGE = 5.0


@dataclass(frozen=True)
class InformedSteps:
    """Steps under a prior that knows something, all in units in which rows have norm 1.

    Parameters
    ----------
    prior : CoefficientPrior
        With ``known``.
    start : ndarray of shape (n_outputs, d)
        Mean of what is known.
    units : ndarray of shape (d,)
        Coefficient of each column of the design, per natural coefficient.
    ball : float
        Largest norm of a row.
    is_public : bool
        Whether public records are known, whose weight is learnt, and no given Gaussian.
    step_size : callable
        ρ of step t.
    """

    prior: CoefficientPrior
    start: np.ndarray
    units: np.ndarray
    ball: float
    is_public: bool
    step_size: Callable[[int], float | dict[str, float]]

    def step(self, averages, noise, alpha: np.ndarray, old, previous, public, j: int, length: float):
        """Mean and precision of output ``j`` after a noisy step of this length, or None if public records got hardly any
        weight: then the ordinary step follows.

        Where the weight changes much, the fit goes to the prior's mean, α starts anew, and residuals that were summed before
        are carried there. Changed in place are then ``old``, ``averages["linear"]``, ``alpha`` and ``public``: weights, and the
        steps at which they last changed much.
        """
        scale, prior = self.units * self.ball, self.prior
        known = Known(
            prior.known.linear[j] / scale,
            prior.known.precision[j] / np.outer(scale, scale),
            prior.precision(alpha[j]) / scale**2,
            prior.precision(prior.initial_alpha(1)[0]) / scale**2,
            self.start[j] * scale,
        )
        released = Released(averages["linear"], averages["precision"], noise["linear"], noise["precision"])
        denoised = Denoised(released, known)
        t = previous.step + 1
        points = np.array([np.atleast_2d(previous.mean)[j] * self.units, *previous.path[j][::-1]])[:t] * self.ball
        shares = shares_of_steps(self.step_size, t, len(points))
        if self.is_public:
            last = max(public[0, j], _LEAST_WEIGHT)
            public[0, j] = best_weight(known, denoised, released.residual, shares @ (points - known.start))
            if not last / _MOST_CHANGE <= max(public[0, j], _LEAST_WEIGHT) <= last * _MOST_CHANGE:
                public[1, j], old[:] = t, known.mean(public[0, j])
                alpha[j] = prior.initial_alpha(1)[0]
        weight, moved_at = public[0, j], int(public[1, j])
        if 0 < moved_at <= t:
            there, before = old if moved_at == t else points[t - moved_at - 1], slice(t - moved_at, None)
            carried = shares[before] @ (points[before] - there)
            averages["linear"] = released.residual + denoised.times(denoised.values, carried)
        if weight < _LEAST_WEIGHT:
            return None
        floor = alpha[j] / self.ball**2 if self.is_public else 0.0
        step, precision = known_step(known, weight, released, denoised, averages["linear"], old, floor)
        return old + step * length, precision


def shares_of_steps(step_size: Callable[[int], float | dict[str, float]], t: int, n: int) -> np.ndarray:
    """Shares of the residuals of steps t, t - 1, … in their average after step t, shape (n,)."""
    shares, left = np.zeros(n), 1.0
    for i in range(n):
        rho = step_size(t - i)
        rho = rho["linear"] if isinstance(rho, dict) else rho
        shares[i], left = left * rho, left * (1.0 - rho)
    return shares
