"""The least noise, or the most steps, within (ε, δ)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from scipy.optimize import brentq

from vips.privacy.accounting.base import Accountant
from vips.privacy.accounting.gaussian import gaussian_epsilon

__all__ = ["calibrate_noise", "largest_n_steps"]

SMALLEST_SAMPLED_NOISE = 0.05  # where the search for a noise multiplier under sampling stops
MOST_STEPS = 10**7


@lru_cache(maxsize=256)
def calibrate_noise(accountant: Accountant, plan, epsilon: float, delta: float, tol: float = 1e-4) -> float:
    """Noise multiplier at which the accountant proves at most ``epsilon``; within ``tol`` (relative) of the smallest.

    Errs towards more noise: the returned value itself was evaluated and satisfies the target.
    """
    accountant.check(plan)

    def excess(log_sigma: float) -> float:
        # log ε is nearly linear in log σ, so the search needs few evaluations
        proved = accountant.epsilon(replace(plan, noise_multiplier=math.exp(log_sigma)), delta)
        return math.log(max(proved, 1e-12) / epsilon)

    smallest = 1e-3 if plan.sampling_rate == 1.0 else SMALLEST_SAMPLED_NOISE
    start = min(max(_guess(plan, epsilon, delta), math.log(smallest)), math.log(1e6))
    gap = excess(start)
    upwards = gap > 0.0
    end = start
    while (gap > 0.0) == upwards:
        # ε falls about like σ^-1 to σ^-2: moving by the gap brackets the root in a step or two
        start, end = end, end + (1.2 if upwards else -1.2) * max(min(abs(gap), 2.0), 0.01)
        if end > math.log(1e6):
            raise ValueError(
                f"No noise multiplier below 1e6 gives ε ≤ {epsilon} at δ = {delta} by {accountant.name!r}."
            )
        if end < math.log(smallest):
            raise ValueError(
                f"ε = {epsilon} at δ = {delta} is met with almost no noise (multiplier below {smallest}); write "
                "PrivacyPlan(noise_multiplier=...) if this is what you mean."
            )
        gap = excess(end)
    root = brentq(excess, min(start, end), max(start, end), xtol=tol / 4.0)
    while excess(root) > 0.0:
        root += tol / 4.0
    return math.exp(root)


def _guess(plan, epsilon: float, delta: float) -> float:
    """log σ at which the plan's central limit, μ = q √(T (e^(1/σ²) - 1)), satisfies (ε, δ); only a start for the search."""
    log_mu = brentq(lambda x: gaussian_epsilon(math.exp(x), delta) - epsilon, -20.0, 20.0, xtol=1e-3)
    ratio = math.exp(log_mu) / (plan.sampling_rate * math.sqrt(plan.n_steps))
    sensitivity = plan.noise_multiplier / plan.sensitive_noise_multiplier()
    return math.log(sensitivity) - 0.5 * math.log(math.log1p(ratio**2))


def largest_n_steps(accountant: Accountant, plan, epsilon: float, delta: float) -> int:
    """The most steps of this plan that the accountant proves to be within (ε, δ)."""
    accountant.check(plan)

    def fits(n_steps: int) -> bool:
        return accountant.epsilon(replace(plan, n_steps=n_steps), delta) <= epsilon

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
