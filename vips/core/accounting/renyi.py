"""The Rényi accountant (dp_accounting), and bounds for δ below the resolution of privacy loss distributions."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vips.core.accounting.base import Accountant
from vips.core.accounting.events import library, neighbours

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["RDPAccountant", "renyi_epsilon", "renyi_log_deltas"]

# Every order > 1 is valid. At orders that are not whole, dp_accounting sums series, which need not converge below 2.
_WHOLE = (*range(2, 65), *np.unique(np.geomspace(65, 1024, 60).astype(int)))
SAMPLED_ORDERS = tuple(sorted({*map(float, _WHOLE), *np.arange(2.0, 11.0, 0.25).tolist()}))
UNSAMPLED_ORDERS = tuple(1.0 + x for x in np.geomspace(1e-3, 1e7, 400).tolist())
ROUNDING = 1e-13  # added to a Rényi divergence: one near 0 can be computed as -1e-15


class RDPAccountant(Accountant):
    """Rényi divergences; ``orders`` are numbers > 1."""

    name = "rdp"
    uses_orders = True
    smallest_order = 1.0

    def epsilon(self, plan: PrivacyPlan, delta: float, orders: Sequence[float] | str | None = None) -> float:
        used, divergences = _renyi_curve(plan, orders)
        compute = library().rdp.rdp_privacy_accountant.compute_epsilon
        return max(0.0, float(compute(used, plan.n_steps * divergences, delta)[0]))

    def delta(self, plan: PrivacyPlan, epsilon: float, orders: Sequence[float] | str | None = None) -> float:
        used, divergences = _renyi_curve(plan, orders)
        compute = library().rdp.rdp_privacy_accountant.compute_delta
        return float(compute(used, plan.n_steps * divergences, epsilon)[0])


def renyi_epsilon(plans: Sequence, delta: float) -> float:
    """Joint ε of several plans at ``delta``, by the same proposition; between the best orders, at whole ones."""
    smallest, orders = math.inf, np.array(SAMPLED_ORDERS)
    for _ in range(3):
        divergences = sum(plan.n_steps * _renyi_curve(plan, orders)[1] for plan in plans)
        epsilons = divergences + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)
        best, smallest = int(np.argmin(epsilons)), min(smallest, float(epsilons.min()))
        around = orders[max(best - 1, 0) : best + 2]
        orders = np.unique(np.linspace(around[0], around[-1], 12).round())
    return max(0.0, smallest)


def renyi_log_deltas(plan: PrivacyPlan, epsilons: np.ndarray) -> np.ndarray:
    """log δ at each ε ≥ 0, by proposition 12 of Canonne, Kamath and Steinke (2020), arXiv:2004.00010v5."""
    orders, divergences = _renyi_curve(plan, None)
    order = np.array(orders)[:, None]
    excess = plan.n_steps * divergences[:, None] - epsilons
    logs = (order - 1.0) * excess + order * np.log1p(-1.0 / order) - np.log(order - 1.0)
    return np.minimum(logs.min(axis=0), 0.0)


def _renyi_curve(plan: PrivacyPlan, orders: Any) -> tuple[tuple[float, ...], np.ndarray]:
    """Orders, and the Rényi divergences of one step at them."""
    if orders is None:
        orders = SAMPLED_ORDERS if plan.sampling_rate < 1.0 else UNSAMPLED_ORDERS
    step = library().GaussianDpEvent(plan.sensitive_noise_multiplier())
    if plan.sampling_rate < 1.0:
        step = library().PoissonSampledDpEvent(plan.sampling_rate, step)
    return tuple(orders), _step_divergences(step, plan.relation, tuple(float(order) for order in orders))


@lru_cache(maxsize=64)
def _step_divergences(step: Any, relation: str, orders: tuple[float, ...]) -> np.ndarray:
    accountant, messages = library().rdp.RdpAccountant(orders, neighbours(relation)), logging.getLogger("absl")
    level = messages.level
    messages.setLevel(logging.ERROR)  # it warns of orders whose series do not converge, and leaves them out
    try:
        return np.maximum(accountant.compose(step)._rdp, 0.0) + ROUNDING
    finally:
        messages.setLevel(level)
