"""What (ε, δ) means for an attacker's success, in numbers that a reader can judge.

Two data sets differ by one record. The attacker knows both, sees everything that was released, and says which of the two was
fitted: "in" or "out".

    P(says "in" | in) ≤ e^ε P(says "in" | out) + δ, and likewise for "out"        the definition, for every attack

The bounds below are attained by a mechanism that reveals the answer with probability δ and otherwise multiplies odds by e^±ε.
Every (ε, δ)-private mechanism can be simulated from that one (Kairouz, Oh and Viswanath 2015, arXiv:1311.0776v4).
"""

from __future__ import annotations

import math

from scipy.special import expit, logit, ndtr

__all__ = ["belief_after", "gaussian_success", "hits", "success"]


def belief_after(belief: float, epsilon: float) -> float:
    """Largest belief after the release, from one strictly between 0 and 1, unless the answer is revealed: odds times e^ε."""
    return float(expit(logit(belief) + epsilon))


def success(epsilon: float, delta: float) -> float:
    """Largest probability that an attacker is right, where "in" and "out" are equally likely: (e^ε + δ)/(e^ε + 1)."""
    return float(expit(epsilon) + delta * expit(-epsilon))


def hits(false_alarms: float, epsilon: float, delta: float) -> float:
    """Largest P(says "in" | in) of an attack with P(says "in" | out) = ``false_alarms``."""
    by_in = math.exp(min(epsilon, 700.0)) * false_alarms + delta
    by_out = 1.0 - math.exp(-epsilon) * (1.0 - delta - false_alarms)
    return max(0.0, min(1.0, by_in, by_out))


def gaussian_success(mu: float) -> float:
    """Like :func:`success`, for a fit that is exactly μ-Gaussian differentially private: Φ(μ/2)."""
    # Dong, Roth and Su (2022), arXiv:1905.02383v3: the trade-off of N(0, 1) against N(μ, 1)
    return float(ndtr(0.5 * mu))
