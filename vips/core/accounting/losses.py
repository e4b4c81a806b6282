"""The privacy losses of one Gaussian step on a grid, pessimistic, and of all steps: their sum, and its δ and ε.

The distribution of a step "connects the dots". With P and Q the worst pair of neighbours, δ(ε) = sup_A P(A) - e^ε Q(A) is
convex in e^ε. A chain of chords between some of its points is therefore an upper bound, and is the δ of a loss that takes these
ε only (Doroshenko et al. 2022, arXiv:2207.04380).
Composition preserves the bound. The chords start at δ = 1 where e^ε = 0; right of the last point, δ stays constant.

A step is computed by γ(ε) = δ(ε) - max(0, 1 - e^ε), which is small on both sides of 0, so that little cancels::

    γ(ε) = q e^min(u, 0) δ_G(|u|)      e^u = 1 + (e^ε - 1)/q      δ_G: the Gaussian without sampling

if P is the sampled one (``add_or_remove``). If Q is, losses and tails are mirrored: P'(-ε) = e^-ε P(ε).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # whose `signal` is loaded when it is called
from scipy import fft
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

from vips.core.accounting.gaussian import gaussian_log_delta
from vips.core.accounting.moments import log_ratio

__all__ = ["Losses", "TotalLoss", "one_step_losses", "window"]

_TAIL = 10.0  # losses beyond so many deviations of the noise count as infinite: their probability is below 1e-23
_FINE = 256  # the gap between points is the grid's spacing, or this part of the loss where that is more, …
_WIDEST = 0.02  # … but at most this part of 1/σ
_OUTSIDE = 1e-15  # probability of losses above the window, and of those below it
_LOG_ORDERS = (-40.0, 0.0)  # of Chernoff's bound, which holds at every order, in units of 1 / spacing


class Losses(NamedTuple):
    """A distribution of losses ``places * spacing``, and the probability that the loss is infinite."""

    places: np.ndarray
    probabilities: np.ndarray
    at_infinity: float


def one_step_losses(noise_multiplier: float, rate: float, relation: str, spacing: float) -> tuple[Losses, ...]:
    """The losses for every order of the two neighbours: of one step, at multiples of ``spacing``."""
    low, high = _range(noise_multiplier, rate, relation)
    widest = max(1, int(_WIDEST / noise_multiplier / spacing))
    negative, positive = (_points(math.ceil(end / spacing), widest) for end in (-low, high))
    places = np.concatenate([-negative[:0:-1], positive])
    curve = _replaced if relation == "replace_one" and rate < 1.0 else _sampled
    above = curve(noise_multiplier, rate, relation, places * spacing)
    gaps, rises = np.diff(places) * spacing, np.diff(above)
    probabilities = (places == 0).astype(float)
    probabilities[:-1] += rises / np.expm1(gaps)
    probabilities[1:] += rises / np.expm1(-gaps)
    probabilities[0] -= above[0]
    losses = Losses(places, probabilities, above[-1])
    if relation == "replace_one" or rate == 1.0:
        return (losses,)
    factors = np.exp(-places * spacing)
    return losses, Losses(-places[::-1], (factors * probabilities)[::-1], factors[0] * above[0])


def _range(sigma: float, rate: float, relation: str) -> tuple[float, float]:
    """The smallest and the largest loss of records that the noise moves by less than ``_TAIL`` standard deviations."""
    exponents = np.array([-0.5 - _TAIL * sigma, 0.5 + _TAIL * sigma, -1.5 - _TAIL * sigma]) / sigma**2
    lowest, highest, of_the_other = log_ratio(rate, exponents).tolist()
    return (lowest, highest) if relation == "add_or_remove" else (of_the_other - highest, highest - of_the_other)


def _points(last: int, widest: int) -> np.ndarray:
    """0, 1, 2, … at least to ``last``, with gaps that grow in proportion."""
    points = [0]
    while points[-1] < last:
        points.append(points[-1] + min(max(points[-1] // _FINE, 1), widest))
    return np.array(points)


def _sampled(sigma: float, rate: float, relation: str, epsilons: np.ndarray) -> np.ndarray:
    """γ of N(1, σ²) with probability q, else N(0, σ²), against N(0, σ²); at q = 1 also of N(1, σ²) against N(-1, σ²)."""
    large = epsilons > 1.0
    ratio = np.maximum(np.expm1(np.where(large, 0.0, epsilons)) / rate, -1.0)
    with np.errstate(divide="ignore"):  # no loss is below log(1 - q)
        u = np.where(
            large, epsilons - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-np.abs(epsilons))), np.log1p(ratio)
        )
    possible, gamma = u > -np.inf, np.zeros(len(u))
    u = u[possible]
    mu = (1.0 if relation == "add_or_remove" else 2.0) / sigma
    gamma[possible] = rate * np.exp(np.minimum(u, 0.0) + gaussian_log_delta(mu, np.abs(u)))
    return gamma


def _replaced(sigma: float, rate: float, relation: str, epsilons: np.ndarray) -> np.ndarray:
    """γ of N(1, σ²) against N(-1, σ²), each with probability q, else N(0, σ²): γ(-ε) = e^-ε γ(ε)."""
    size = np.abs(epsilons)
    with np.errstate(divide="ignore"):  # log 0
        log_excess = size + np.log(-np.expm1(-size))  # log(e^ε - 1)
    # the loss is ε at z with (1 - q) (e^ε - 1) = q (e^-z' - e^(ε + z')), z' = z/σ²: a quadratic equation in e^z'
    exponent = 0.5 / sigma**2 + math.log1p(-rate) - math.log(rate) + log_excess - 0.5 * size - math.log(2.0)
    larger = np.maximum(exponent, 0.0)
    arcsinh = larger + np.log(np.exp(exponent - larger) + np.hypot(np.exp(exponent - larger), np.exp(-larger)))
    z = sigma**2 * (arcsinh + 0.5 * size)

    def tail(mean: float, log_factor: np.ndarray | float) -> np.ndarray:
        return np.exp(log_factor + log_ndtr((mean - z) / sigma))

    delta = rate * (tail(1.0, 0.0) - tail(-1.0, size)) - (1.0 - rate) * tail(0.0, log_excess)
    return np.maximum(delta, 0.0) * np.exp(np.minimum(epsilons, 0.0))


Steps = Sequence[tuple[Losses, int]]


def window(steps: Steps) -> tuple[int, int]:
    """Places between which the sum lies but for a probability of ``_OUTSIDE`` on each side, by Chernoff's bound."""

    def end(sign: int) -> int:
        def bound(log_order: float) -> float:
            order, log_moment = math.exp(log_order), -math.log(_OUTSIDE)
            for losses, n_steps in steps:
                possible = losses.probabilities > 0.0
                powers = (sign * order) * losses.places[possible]
                largest = powers.max()
                log_moment += n_steps * (largest + math.log(np.exp(powers - largest) @ losses.probabilities[possible]))
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
