"""The sum of the privacy losses of all steps: a convolution by Fourier transforms, and its δ and ε."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # whose `signal` is loaded when it is called
from scipy import fft
from scipy.optimize import minimize_scalar

from vips.core.accounting.losses import Losses

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
        transform: Any = 1.0
        log_finite = 0.0
        for losses, n_steps in steps:
            one = fft.rfft(np.bincount(losses.places % size, losses.probabilities, size))
            transform = transform * _power(one, n_steps)
            log_finite += n_steps * math.log1p(-losses.at_infinity)
        probabilities = np.roll(fft.irfft(transform, size), -low)
        self._at_infinity = _OUTSIDE - math.expm1(log_finite)
        self._low, self._spacing = low, spacing
        # for each place, P of the finite losses above it, and e^(loss at the place) Q of them
        decay, falling = math.exp(-spacing), probabilities[:0:-1]
        self._upper = np.append(np.cumsum(falling)[::-1], 0.0)
        self._lower = np.append(scipy.signal.lfilter([decay], [1.0, -decay], falling)[::-1], 0.0)

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """δ at each ε ≥ 0."""
        places = np.floor(np.minimum(epsilons, 1e15 * self._spacing) / self._spacing).astype(np.int64)
        within = np.minimum(epsilons - places * self._spacing, self._spacing)
        index = np.minimum(places - self._low, len(self._upper) - 1)
        return self._at_infinity + self._upper[index] - np.exp(within) * self._lower[index]

    def delta(self, epsilon: float) -> float:
        """δ at ε ≥ 0."""
        return float(self.deltas(np.array(float(epsilon))))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(ε) ≤ ``delta``."""
        if self._at_infinity > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        below, above = -self._low, len(self._upper) - 1
        while above - below > 1:
            middle = (below + above) // 2
            is_larger = self._at_infinity + self._upper[middle] - self._lower[middle] > delta
            below, above = (middle, above) if is_larger else (below, middle)
        upper, lower = self._upper[below], self._lower[below]
        log_ratio = math.log((self._at_infinity + upper - delta) / lower) if lower > 0.0 else math.inf
        return float(min((below + self._low) * self._spacing + log_ratio, (above + self._low) * self._spacing))
