"""Composition of one step's (ε, δ) by older theorems, for comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

from vips.core.accounting.base import Accountant
from vips.core.accounting.gaussian import gaussian_epsilon

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["BasicAccountant", "StepwiseAccountant", "StrongAccountant"]


class StepwiseAccountant(Accountant):
    """Composes (ε₁, δ₁) of one step: the exact Gaussian, amplified by sampling, ε = log(1 + q (e^ε₀ - 1)), δ = q δ₀."""

    composes_equal_steps = True

    def delta(self, plan: PrivacyPlan, epsilon: float, orders: Sequence[float] | str | None = None) -> float:
        def excess(log_delta: float) -> float:
            return self.epsilon(plan, math.exp(log_delta)) - epsilon

        low, high = math.log(1e-300), math.log1p(-1e-12)
        if excess(high) > 0.0:
            return 1.0
        if excess(low) <= 0.0:
            return math.exp(low)
        root = brentq(excess, low, high, xtol=1e-10)
        while excess(root) > 0.0:
            root += 1e-10
        return math.exp(root)

    @staticmethod
    def _step(plan: PrivacyPlan, delta: float) -> float:
        """ε of one step at ``delta``."""
        if delta >= plan.sampling_rate:
            return 0.0  # with probability 1 - q the record is not used
        without_sampling = gaussian_epsilon(1.0 / plan.sensitive_noise_multiplier(), delta / plan.sampling_rate)
        if without_sampling > 700.0:
            return without_sampling + math.log(plan.sampling_rate)
        return math.log1p(plan.sampling_rate * math.expm1(without_sampling))


class StrongAccountant(StepwiseAccountant):
    """Theorem 3.20 of Dwork and Roth (2014): ε = √(2T log(1/δ″)) ε₁ + T ε₁ (e^ε₁ - 1), δ = T δ₁ + δ″, at the best split."""

    name = "strong"

    def epsilon(self, plan: PrivacyPlan, delta: float, orders: Sequence[float] | str | None = None) -> float:
        steps = plan.n_steps

        def at(share: float) -> float:
            step = self._step(plan, (1.0 - share) * delta / steps)
            slack = math.sqrt(2.0 * steps * -math.log(share * delta)) * step
            return slack + steps * step * math.expm1(min(step, 700.0))

        return min(at(share) for share in 1.0 / (1.0 + np.exp(np.linspace(-12.0, 12.0, 97))))


class BasicAccountant(StepwiseAccountant):
    """ε = T ε₁, δ = T δ₁."""

    name = "basic"

    def epsilon(self, plan: PrivacyPlan, delta: float, orders: Sequence[float] | str | None = None) -> float:
        return plan.n_steps * self._step(plan, delta / plan.n_steps)
