"""Every release as a Gaussian one: the pair (μ, δ₀) that dominates a plan, and the pure mechanism's μ.

A mechanism whose privacy profile is δ(ε) ≤ δ₀ + (1 - δ₀) δ_μ(ε) for all ε ≥ 0, in both directions of the relation, is
post-processing of one that reveals everything with probability δ₀ and is a Gaussian mechanism of sensitivity ÷ noise = μ else
(Blackwell; Dong, Roth and Su, 2022). Such pairs compose without loss under fully adaptive choice: μ² and δ₀ add up (Smith and
Thakurta, 2022). The inequality at -ε follows from the one at ε in the other direction.

The profile falls with ε, so that on a cell [ε_i, ε_{i+1}] the inequality holds if it holds with δ(ε_i) on the left side and
δ_μ(ε_{i+1}) on the right one; beyond the last point it holds if δ there is at most δ₀.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfinv, ndtri, ndtri_exp

from vips.core.accounting.base import NEARLY_ALL
from vips.core.accounting.gaussian import gaussian_epsilon, gaussian_log_delta
from vips.core.accounting.pld import log_profile

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["dominating_mu", "gaussian_mu", "mu_of_pure", "mu_of_zcdp"]

_ROUNDED_UP = 1.0 + 1e-12
_CELL = 5e-4  # width of a cell, as a part of ε or, near 0, of μ
_MOST_EPSILON = 2000.0
_TOLERANCE = 1e-6  # of log μ
_WORST_EVENT, _MOST_RHO = 1.01, 1e3


def dominating_mu(plan: PrivacyPlan, delta_0: float) -> float:
    """The smallest μ such that the plan is dominated by (μ, ``delta_0``), rounded up; ∞ if there is none.

    Parameters
    ----------
    plan : PrivacyPlan
        Full batches are a Gaussian mechanism: μ is exact, and needs no δ₀.
    delta_0 : float in [0, 1)

    Guarantees
    ----------
    The plan's profile, computed upward, is at most δ₀ + (1 - δ₀) δ_μ(ε) at *every* ε ≥ 0, not at points of a grid only.
    """
    if not plan.is_private:
        return math.inf
    if plan.sampling_rate > NEARLY_ALL:
        return math.sqrt(plan.n_steps) / plan.sensitive_noise_multiplier() * _ROUNDED_UP
    return _sampled_mu(plan, delta_0) if delta_0 > 0.0 else math.inf


@lru_cache(maxsize=256)
def _sampled_mu(plan: PrivacyPlan, delta_0: float) -> float:
    at_zero = math.exp(log_profile(plan, np.zeros(1))[0])
    scale = 2.0 * float(ndtri(0.5 + 0.5 * min(max((at_zero - delta_0) / (1.0 - delta_0), 0.0), 1.0 - 1e-15)))
    epsilons = _grid(max(scale, 1e-9))
    log_deltas = log_profile(plan, epsilons)
    below = np.flatnonzero(log_deltas <= math.log(delta_0))
    if not len(below):
        return math.inf
    last = below[0]
    remaining = np.log(np.expm1(log_deltas[:last] - math.log(delta_0))) + math.log(delta_0) - math.log1p(-delta_0)
    return _smallest_mu(epsilons[1 : last + 1], remaining) * _ROUNDED_UP


def _grid(scale: float) -> np.ndarray:
    """Points from 0 on, with gaps of ``_CELL`` times ε, or times ``scale`` where that is more."""
    near = np.arange(0.0, scale, _CELL * scale)
    n_far = math.ceil(math.log(_MOST_EPSILON / scale) / math.log1p(_CELL))
    return np.concatenate([near, scale * np.exp(np.arange(n_far + 1) * math.log1p(_CELL))])


def _smallest_mu(epsilons: np.ndarray, log_deltas: np.ndarray) -> float:
    """The smallest μ with log δ_μ(ε) ≥ ``log_deltas`` at all ``epsilons``, from above."""
    if not len(epsilons):
        return 0.0
    low, high = math.log(1e-12), math.log(1e4)
    while high - low > _TOLERANCE:
        middle = 0.5 * (low + high)
        is_large = gaussian_log_delta(math.exp(middle), epsilons) >= log_deltas
        if is_large.all():
            high = middle
        else:
            low, epsilons, log_deltas = middle, epsilons[~is_large], log_deltas[~is_large]
    return math.exp(high)


@lru_cache(maxsize=256)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ whose Gaussian mechanism is (ε, δ)-private, rounded down."""
    low, high = 1e-150, 1e4  # whose squares are numbers
    if gaussian_epsilon(low, delta) > epsilon:
        raise ValueError(f"ε = {epsilon:g} at δ = {delta:g} is less than any noise can be calibrated to.")
    while high / low > 1.0 + 1e-15:
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        low, high = (middle, high) if gaussian_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


def mu_of_pure(epsilon: float) -> float:
    """The μ that dominates every ε-private mechanism, rounded up: μ = 2 Φ⁻¹(e^ε / (1 + e^ε)).

    Randomised response dominates them all (theorem 3.3 of Kairouz, Oh and Viswanath, 2015), and δ_μ(0) = 2Φ(μ/2) - 1 is its
    total variation tanh(ε/2).
    """
    if epsilon > 700.0:
        return math.inf
    if epsilon < 1.0:
        return 2.0 * math.sqrt(2.0) * float(erfinv(math.tanh(0.5 * epsilon))) * _ROUNDED_UP
    return -2.0 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon)))) * (1.0 + 1e-10)


def mu_of_zcdp(rho: float) -> float:
    """The μ that dominates every ``rho``-zCDP mechanism, rounded up.

    For an event with probability p under one neighbour and q under the other, the Rényi divergences of all orders α are at most
    α ρ, and a Gaussian mechanism allows Φ⁻¹(p) - Φ⁻¹(q) ≤ μ. Most is needed by the symmetric event, q = 1 - p, where the limit
    α → 1 binds: with ε = log(p/q), ε tanh(ε/2) = ρ. That no other event needs 1 % more is checked on cells that cover all of
    them (tests/core/accounting/test_domination.py), hence the factor.
    """
    if rho == 0.0 or rho > _MOST_RHO:
        return rho and math.inf
    most = 2.0 * (math.sqrt(rho) + rho)
    epsilon = brentq(lambda e: e * math.tanh(0.5 * e) - rho, 0.0, most, xtol=1e-300, rtol=1e-14)
    return _WORST_EVENT * mu_of_pure(epsilon)
