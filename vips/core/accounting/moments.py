"""The paper's moments accountant: valid, never the smallest, kept to reproduce its numbers.

With β0 = N(0, σ²), β1 = N(1, σ²), β = (1 - q) β0 + q β1 and u = q (β1/β0 - 1), so that β/β0 = 1 + u and E_β0[u] = 0::

    A(p) = E_{β0}[(β/β0)^p] = 1 + E_{β0}[(1 + u)^p - 1 - p u]        p > 1 or p < 0

The last integrand is never negative (Bernoulli), so that A(p) - 1 keeps its relative accuracy however small q is. The
paper's moment (section 2 of Park et al., arXiv:1611.00340, after Abadi et al., 2016) follows::

    α(λ) = log max(E1, E2)      E1 = E_{β0}[(β0/β)^λ] = A(-λ)      E2 = E_β[(β/β0)^λ] = A(λ + 1)
    δ = min_λ exp(T α(λ) - λ ε)      ε = min_λ (T α(λ) - log δ) / λ

Expectations are trapezoid sums. The integrand is analytic for |Im z| < π σ² and falls off as a Gaussian, so the error at
steps of min(σ, σ²)/4 is below exp(-70) of the integrand's size: far below rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from vips.core.accounting.base import Accountant

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["MomentsAccountant", "log_ratio"]

MOST_POINTS = 2**21  # of one sum; if it needs more, the moment without sampling is taken, which is never smaller


class MomentsAccountant(Accountant):
    """The paper's moments accountant; ``orders`` are λ > 0, or ``"paper"`` for the paper's restricted integers.

    Where the paper's range is empty, ε is infinite and δ is 1: its theorem then says nothing.
    """

    name = "moments"
    uses_orders = True

    def epsilon(self, plan: PrivacyPlan, delta: float, orders: Sequence[float] | str | None = None) -> float:
        used, moments = _moments_of(plan, orders)
        if not used:
            return math.inf
        return max(0.0, float(np.min((plan.n_steps * moments - np.log(delta)) / np.array(used))))

    def delta(self, plan: PrivacyPlan, epsilon: float, orders: Sequence[float] | str | None = None) -> float:
        used, moments = _moments_of(plan, orders)
        if not used:
            return 1.0
        return float(np.exp(min(0.0, np.min(plan.n_steps * moments - epsilon * np.array(used)))))


def _moments_of(plan: PrivacyPlan, orders: Sequence[float] | str | None) -> tuple[tuple[float, ...], np.ndarray]:
    q, sigma = plan.sampling_rate, plan.sensitive_noise_multiplier()
    if isinstance(orders, str):
        orders = paper_orders(q, sigma)
    elif orders is None:
        orders = tuple(default_orders(sigma))
    else:
        orders = tuple(float(order) for order in orders)
    return orders, log_moments(q, sigma, orders)


def default_orders(noise_multiplier: float) -> np.ndarray:
    """Values of λ over which the bound is minimised; every λ > 0 is valid.

    Small ones suit large ε, large ones small ε. With p = λ + 1, those above ``4 + 37 σ + 60 σ²`` cannot be the best: without
    sampling the best is 1 + σ √(2 log(1/δ) / T), and sampling moves it to 2 σ² log(1/q) at most.
    """
    orders = np.unique(
        np.concatenate([1.0 + np.geomspace(1e-3, 1.0, 41), np.arange(1.5, 64.75, 0.5), np.geomspace(64.0, 1e6, 113)])
    )
    return orders[orders <= 4.0 + 37.0 * noise_multiplier + 60.0 * noise_multiplier**2] - 1.0


def paper_orders(sampling_rate: float, noise_multiplier: float) -> tuple[float, ...]:
    """The integers 1 … ⌊σ² log(1/(q σ))⌋ to which the paper's theorem restricts λ; often none."""
    largest = noise_multiplier**2 * np.log(1.0 / (sampling_rate * noise_multiplier))
    return tuple(float(order) for order in range(1, int(np.floor(largest)) + 1))


@lru_cache(maxsize=64)
def log_moments(sampling_rate: float, noise_multiplier: float, orders: tuple[float, ...]) -> np.ndarray:
    """α(λ) of one step for every λ in ``orders``; shape (n_orders,)."""
    q, sigma = sampling_rate, noise_multiplier
    return np.array([max(log_power_mean(q, sigma, -order), log_power_mean(q, sigma, order + 1.0)) for order in orders])


def log_ratio(q: float, log_r: np.ndarray) -> np.ndarray:
    """log(1 - q + q e^log_r), accurate for small q and for large ``log_r``."""
    if q == 1.0:
        return log_r
    small = np.log1p(q * np.expm1(np.minimum(log_r, 30.0)))
    return np.where(log_r < 30.0, small, np.logaddexp(np.log1p(-q), np.log(q) + log_r))


def log_power_mean(q: float, sigma: float, power: float) -> float:
    """log A(p) = log E_{β0}[(β/β0)^p], for p > 1 or p < 0."""
    unsampled = power * (power - 1.0) / (2.0 * sigma**2)
    step = min(sigma, sigma**2) / 4.0
    low, high = min(power, 0.0) - 40.0 * sigma, max(power, 2.0) + 40.0 * sigma  # tails beyond 40 σ are negligible
    if q == 1.0 or high - low > MOST_POINTS * step:
        return unsampled
    z = np.arange(low, high, step)
    log_r = (2.0 * z - 1.0) / (2.0 * sigma**2)  # β1/β0
    log_density = -(z**2) / (2.0 * sigma**2) + np.log(step / (np.sqrt(2.0 * np.pi) * sigma))
    log_excess = logsumexp(log_density + _log_bernoulli(q, log_r, power))
    return min(float(np.logaddexp(0.0, log_excess)), unsampled)


def _log_bernoulli(q: float, log_r: np.ndarray, power: float) -> np.ndarray:
    """log((1 + u)^p - 1 - p u) with u = q (e^log_r - 1): neither cancels nor overflows."""
    log_power = power * log_ratio(q, log_r)
    u = q * np.expm1(np.minimum(log_r, 600.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        linear = np.where(power * u > -0.5, np.log1p(power * u), np.log(np.abs(1.0 + power * u)))
        linear = np.where(log_r > 600.0, np.log(abs(power) * q) + log_r, linear)  # log |1 + p u|
        added = np.logaddexp(log_power, linear)
        difference = log_power + np.log(-np.expm1(np.minimum(linear - log_power, 0.0)))
        tiny = np.clip(u, -1e-3, 1e-3)
        series = 1.0 + (power - 2.0) * tiny / 3.0 * (
            1.0 + (power - 3.0) * tiny / 4.0 * (1.0 + (power - 4.0) * tiny / 5.0)
        )
        near = np.log(power * (power - 1.0) / 2.0 * series) + 2.0 * np.log(np.abs(tiny))
    result = np.where(power * u < -1.0, added, difference)
    return np.where(np.abs(u) * (abs(power) + 5.0) < 1e-3, near, result)
