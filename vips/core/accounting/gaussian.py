"""The Gaussian mechanism exactly: δ and ε of one normal draw at ``mu`` = sensitivity ÷ noise standard deviation.

With a = ε/μ - μ/2 and b = a + μ, Theorem 8 of Balle and Wang (2018), arXiv:1805.06530v2::

    δ(ε) = Φ(-a) - e^ε Φ(-b) = φ(a) (R(a) - R(b)) = φ(a) ∫_a^b (1 - t R(t)) dt        R(t) = Φ(-t) / φ(t), Mills' ratio

The last two forms have no large exponents, and the last one no difference of near numbers, however small μ is. T draws on the
same records are equivalent to one draw at √T μ.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

__all__ = ["gaussian_epsilon", "gaussian_log_delta"]

SMALL_MU = 1e-2  # below this, the integral replaces the difference, by Gauss's rule
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_ERROR = 1e-14  # of log δ, from rounding: relative, and ten times that in all


def gaussian_log_delta(mu: float, epsilon: np.ndarray | float) -> np.ndarray:
    """log δ(ε); ``epsilon`` is a number or an array, and every ε ≥ 0."""
    a = np.asarray(epsilon, dtype=float) / mu - mu / 2.0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_density = -(a**2) / 2.0 - math.log(2.0 * math.pi) / 2.0
        if mu < SMALL_MU:
            t = a[..., None] + mu * (_NODES + 1.0) / 2.0
            return log_density + np.log(mu / 2.0 * np.maximum((1.0 - t * _mills(t)) @ _WEIGHTS, 0.0))
        first, second = log_ndtr(-a), np.log(_mills(a + mu)) + log_density
        of_tails = first + np.log(-np.expm1(np.minimum(second - first, 0.0)))
        return np.where(a < -1.0, of_tails, log_density + np.log(np.maximum(_mills(a) - _mills(a + mu), 0.0)))


def _mills(t: np.ndarray) -> np.ndarray:
    return math.sqrt(math.pi / 2.0) * erfcx(t / math.sqrt(2.0))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 with δ(ε) ≤ ``delta``, rounded up."""
    target = math.log(delta) * (1.0 + _ERROR) - 10.0 * _ERROR

    def excess(a: float) -> float:
        return float(gaussian_log_delta(mu, mu * (a + mu / 2.0))) - target

    low, high = -mu / 2.0, math.sqrt(-2.0 * target)  # δ(ε) ≤ Φ(-a) ≤ exp(-a²/2) for a ≥ 0
    if excess(low) <= 0.0:
        return 0.0
    tol = 1e-13 * max(1.0, mu)
    a = brentq(excess, low, high, xtol=tol) if excess(high) < 0.0 else high
    while excess(a) > 0.0:
        a, tol = a + tol, 2.0 * tol
    return mu * (a + mu / 2.0)
