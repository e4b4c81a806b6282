"""The paper's moments accountant: valid, never the smallest, kept to reproduce its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from vips.core.accounting.base import Accountant
from vips.core.accounting.log_moments import default_orders, log_moments, paper_orders

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["MomentsAccountant"]


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
    return orders, _cached_moments(q, sigma, orders)


@lru_cache(maxsize=64)
def _cached_moments(q: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
    return log_moments(q, sigma, orders)
