"""The Gaussian mechanism exactly: δ and ε of one normal draw at ``mu`` = sensitivity ÷ noise standard deviation.

With a = ε/μ - μ/2 and b = a + μ, Theorem 8 of Balle and Wang (2018), arXiv:1805.06530v2::

    δ(ε) = Φ(-a) - e^ε Φ(-b) = Φ(-a) - exp(-a²/2) R(b) / √(2π)        R(t) = Mills' ratio of the normal law

The second form has no large exponents. T draws on the same records are equivalent to one draw at √T μ.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

__all__ = ["gaussian_epsilon", "gaussian_log_delta"]

SMALL_MU = 1e-7  # below this, the derivative replaces the difference


def gaussian_log_delta(mu: float, epsilon: np.ndarray | float) -> np.ndarray:
    """log δ(ε); ``epsilon`` is a number or an array, and every ε ≥ 0."""
    a = np.asarray(epsilon, dtype=float) / mu - mu / 2.0
    if mu < SMALL_MU:
        middle = a + mu / 2.0  # ≥ 0
        slope = 1.0 - middle * math.sqrt(math.pi / 2.0) * erfcx(middle / math.sqrt(2.0))  # -R'(t) = 1 - t R(t)
        with np.errstate(divide="ignore"):
            return np.log(mu / math.sqrt(2.0 * math.pi)) - middle**2 / 2.0 + np.log(np.maximum(slope, 0.0))
    first = log_ndtr(-a)
    with np.errstate(divide="ignore"):
        second = np.log(erfcx((a + mu) / math.sqrt(2.0)) / 2.0) - a**2 / 2.0
        return first + np.log(-np.expm1(np.minimum(second - first, 0.0)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 with δ(ε) ≤ ``delta``, rounded up."""
    target = math.log(delta)

    def excess(a: float) -> float:
        return float(gaussian_log_delta(mu, mu * (a + mu / 2.0))) - target

    low, high = -mu / 2.0, math.sqrt(2.0 * math.log(1.0 / delta))  # δ(ε) ≤ Φ(-a) ≤ exp(-a²/2) for a ≥ 0
    if excess(low) <= 0.0:
        return 0.0
    tol = 1e-13 * max(1.0, mu)
    a = brentq(excess, low, high, xtol=tol) if excess(high) < 0.0 else high
    while excess(a) > 0.0:
        a, tol = a + tol, 2.0 * tol
    return mu * (a + mu / 2.0)
