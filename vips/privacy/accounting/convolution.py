"""The sum of the privacy losses of all steps: a convolution by Fourier transforms, and its δ and ε."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import fft
from scipy.optimize import minimize_scalar

from vips.privacy.accounting.losses import Losses

__all__ = ["TotalLoss", "window"]

_OUTSIDE = 1e-15  # probability of losses above the window, and of those below it
_LOG_ORDERS = (-40.0, 0.0)  # of Chernoff's bound, which holds at every order, in units of 1 / spacing
Steps = Sequence[tuple[Losses, int]]


def window(steps: Steps) -> tuple[int, int]:
    """Places between which the sum lies but for a probability of ``_OUTSIDE`` on each side, by Chernoff's bound."""

    def end(sign: int) -> int:
        def bound(log_order: float) -> float:
            order, log_moment = math.exp(log_order), -math.log(_OUTSIDE)
            for losses, n_steps in steps:
                possible = losses.probabilities > 0.0
                exponents = (sign * order) * losses.places[possible]
                largest = exponents.max()
                log_moment += n_steps * (
                    largest + math.log(np.exp(exponents - largest) @ losses.probabilities[possible])
                )
            return log_moment / order

        furthest = sum(n_steps * int((sign * losses.places).max()) for losses, n_steps in steps)
        return math.ceil(min(furthest, minimize_scalar(bound, bounds=_LOG_ORDERS, method="bounded").fun))

    return min(-end(-1), 0), max(end(1), 1)


def _power(transform: np.ndarray, n: int) -> np.ndarray:
    """Elements to the power of ``n``; 0 where that is below e⁻⁶⁰ in size."""
    power, counts = np.zeros_like(transform), np.abs(transform) > math.exp(-60.0 / n)
    power[counts] = np.exp(n * np.log(transform[counts]))
    return power


class TotalLoss:
    """The distribution of the sum.

    Parameters
    ----------
    steps : sequence of (Losses, int)
        Losses of one step, and the number of such steps.
    spacing : float
    low, high : int
        From :func:`window`. What is above counts as infinite; what is below is added at the upper end, which increases δ.
    """

    def __init__(self, steps: Steps, spacing: float, low: int, high: int) -> None:
        size = fft.next_fast_len(high - low + 1, real=True)
        transform, log_finite = 1.0, 0.0
        for losses, n_steps in steps:
            one = fft.rfft(np.bincount(losses.places % size, losses.probabilities, size))
            transform = transform * _power(one, n_steps)
            log_finite += n_steps * math.log1p(-losses.at_infinity)
        self._probabilities = np.roll(fft.irfft(transform, size), -low)
        self._at_infinity = _OUTSIDE - math.expm1(log_finite)
        self._decay = np.exp(-spacing * np.arange(size))
        self._low, self._spacing = low, spacing

    def delta(self, epsilon: float) -> float:
        """δ at ε ≥ 0."""
        place = math.floor(min(epsilon / self._spacing, 1e15))
        upper, lower = self._masses_above(place)
        return self._at_infinity + upper - math.exp(min(epsilon - place * self._spacing, self._spacing)) * lower

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(ε) ≤ ``delta``."""
        if self._at_infinity > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        below, place = 0, self._low + len(self._decay) - 1
        while place - below > 1:
            middle = (below + place) // 2
            upper, lower = self._masses_above(middle)
            below, place = (middle, place) if self._at_infinity + upper - lower > delta else (below, middle)
        upper, lower = self._masses_above(below)
        log_ratio = math.log((self._at_infinity + upper - delta) / lower) if lower > 0.0 else math.inf
        return min(below * self._spacing + log_ratio, place * self._spacing)

    def _masses_above(self, place: int) -> tuple[float, float]:
        """P and e^(loss at ``place``) Q of the finite losses above ``place`` ≥ 0."""
        above = self._probabilities[place + 1 - self._low :]
        return float(above.sum()), float(self._decay[1 : len(above) + 1] @ above)
