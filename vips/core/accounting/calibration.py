"""The least noise, or the most steps, within (ε, δ)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from vips.core.accounting.base import Accountant
from vips.core.accounting.domination import dominating_mu
from vips.core.accounting.gaussian import gaussian_epsilon

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["calibrate_noise", "largest_n_steps", "noise_for_mu"]

SMALLEST_SAMPLED_NOISE = 0.05  # where the search for a noise multiplier under sampling stops
LARGEST_NOISE = 1e6
MOST_STEPS = 10**7
_LONGEST_STEP, _MOST_SECANTS, _STEEPEST = 2.4, 12, 100.0


@lru_cache(maxsize=256)
def calibrate_noise(
    accountant: Accountant, plan: PrivacyPlan, epsilon: float, delta: float, tol: float = 1e-4
) -> float:
    """Noise multiplier at which the accountant proves at most ``epsilon``.

    Errs towards more noise: the returned value itself was evaluated and satisfies the target. The ε that is proved is within
    ``0.4 tol`` of the target, or the multiplier within ``tol`` of the smallest (both relative).
    """
    accountant.check(plan)
    log_mu = brentq(lambda x: gaussian_epsilon(math.exp(x), delta) - epsilon, -20.0, 20.0, xtol=1e-3)
    target = f"ε = {epsilon} at δ = {delta} (by {accountant.name!r})"
    return _least_noise(lambda noisier: accountant.epsilon(noisier, delta), epsilon, plan, log_mu, target, tol)


@lru_cache(maxsize=256)
def noise_for_mu(plan: PrivacyPlan, mu: float, delta_0: float, tol: float = 1e-4) -> float:
    """Noise multiplier with which (``mu``, ``delta_0``) dominates a plan; errs towards more noise as above."""
    target = f"μ = {mu:.4g} at δ₀ = {delta_0:.4g}"
    return _least_noise(lambda noisier: dominating_mu(noisier, delta_0), mu, plan, math.log(mu), target, tol)


def _least_noise(cost_of: Callable, most: float, plan: PrivacyPlan, log_mu: float, target: str, tol: float) -> float:
    """The least noise multiplier with which a plan costs at most ``most``; ``log_mu`` is where the central limit puts it."""

    def excess(log_sigma: float) -> float:
        return math.log(max(cost_of(replace(plan, noise_multiplier=math.exp(log_sigma))), 1e-12) / most)

    smallest = 1e-3 if plan.sampling_rate == 1.0 else SMALLEST_SAMPLED_NOISE
    least, largest = math.log(smallest), math.log(LARGEST_NOISE)
    too_little, enough, close = -math.inf, math.inf, 0.4 * tol
    log_sigma = min(max(_guess(plan, log_mu), least), largest)
    squared = math.exp(-2.0 * log_sigma)  # 1/σ²
    slope, gap = squared / math.expm1(-squared), excess(log_sigma)  # of log μ against log σ in the central limit
    i = 0
    while True:
        if gap > 0.0:
            too_little = log_sigma
        else:
            enough = log_sigma
        if too_little == largest and math.isinf(gap):
            raise ValueError(
                f"The losses of {plan.n_steps} samples under {plan.relation!r} cannot be computed down to {target}, whatever "
                'the noise: write sampling="full", fewer steps, or a larger δ.'
            )
        if too_little == largest:
            raise ValueError(f"No noise multiplier below {LARGEST_NOISE:g} gives {target}.")
        if enough == least:
            raise ValueError(
                f"{target} is met with almost no noise (multiplier below {smallest}); write "
                "PrivacyPlan(noise_multiplier=...) if this is what you mean."
            )
        if -close <= gap <= 0.0 or enough - too_little <= tol:
            return math.exp(enough)
        # the logarithm of the cost is nearly linear in log σ: a few secants are enough
        step = min(max(-(gap + 0.5 * close) / slope, -_LONGEST_STEP), _LONGEST_STEP)
        place = min(max(log_sigma + step, least), largest)
        if i >= _MOST_SECANTS or not too_little < place < enough:
            bracketed = math.isfinite(too_little) and math.isfinite(enough)
            place = 0.5 * (too_little + enough) if bracketed else (largest if gap > 0.0 else least)
        before, last, log_sigma = gap, log_sigma, place
        gap = excess(log_sigma)
        if math.isfinite(gap) and math.isfinite(before):
            slope = min(max((gap - before) / (log_sigma - last), -_STEEPEST), -0.5)
        i += 1


def _guess(plan: PrivacyPlan, log_mu: float) -> float:
    """log σ at which the plan's central limit, μ = q √(T (e^(1/σ²) - 1)), is that; only where the search starts."""
    ratio = math.exp(log_mu) / (plan.sampling_rate * math.sqrt(plan.n_steps))
    sensitivity = plan.noise_multiplier / plan.sensitive_noise_multiplier()
    return math.log(sensitivity) - 0.5 * math.log(math.log1p(ratio**2))


def largest_n_steps(accountant: Accountant, plan: PrivacyPlan, epsilon: float, delta: float) -> int:
    """The most steps of this plan that the accountant proves to be within (ε, δ)."""
    accountant.check(plan)

    def fits(n_steps: int) -> bool:
        return accountant.epsilon(plan.with_n_steps(n_steps), delta) <= epsilon

    if not fits(1):
        raise ValueError(
            f"Not even one step with noise_multiplier={plan.noise_multiplier:g} is within ε = {epsilon} at δ = {delta}: use "
            "more noise or a smaller sampling rate."
        )
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > MOST_STEPS:
            raise ValueError(f"More than {MOST_STEPS} steps are within the target: write `n_steps` yourself.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
