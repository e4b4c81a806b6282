"""The two-sided geometric distribution on the integers, sampled exactly: noise for a count.

    P(z) = (1 - e^-ε) / (1 + e^-ε) · e^(-ε|z|)

Added to a count that a record moves by at most 1, it gives pure ε-privacy (Ghosh, Roughgarden and Sundararajan 2012). The
sampler is Algorithm 2 of Canonne, Kamath and Steinke (2020), arXiv:2004.00010: with ε = s/t in whole numbers, U uniform below t

    accept U with probability e^(-U/t)        V: successes of e^-1 before a failure        z = ± ⌊(U + t V) / s⌋, and not -0

Every float is such a fraction, and no probability is rounded.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from vips._secret_bits import secret_below, secret_bits
from vips.privacy.mechanism.discrete_gaussian import Uniform, exp_minus

__all__ = ["geometric_noise", "std_of_noise", "tail_of_noise"]


def geometric_noise(epsilon: float) -> int:
    """One draw, from random bits of the operating system."""
    ratio = Fraction(epsilon)
    s, t = ratio.numerator, ratio.denominator
    while True:
        below = secret_below(t)
        if not _happens(Fraction(below, t)):
            continue
        whole = 0
        while _happens(Fraction(1)):
            whole += 1
        magnitude, is_negative = (below + t * whole) // s, secret_bits(1)
        if magnitude or not is_negative:
            return -magnitude if is_negative else magnitude


def std_of_noise(epsilon: float) -> float:
    """Its standard deviation, √(2 e^-ε) / (1 - e^-ε)."""
    return math.sqrt(2.0 * math.exp(-epsilon)) / -math.expm1(-epsilon)


def tail_of_noise(epsilon: float, probability: float) -> int:
    """The least k ≥ 0 that noise exceeds with at most this probability: P(z > k) = e^(-ε (k + 1)) / (1 + e^-ε)."""
    return max(0, math.ceil(-math.log(probability * (1.0 + math.exp(-epsilon))) / epsilon - 1.0))


def _happens(gamma: Fraction) -> bool:
    """True with probability e^-γ."""
    return Uniform(secret_bits(64), partial(secret_bits, 64)).is_below(partial(exp_minus, gamma))
