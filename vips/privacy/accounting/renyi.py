"""The Rényi accountant (dp_accounting); the divergence that ledgers sum."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vips.privacy.accounting.base import Accountant
from vips.privacy.accounting.events import library, neighbours

__all__ = ["RDPAccountant", "renyi_divergence"]

# Every order > 1 is valid. At orders that are not whole, dp_accounting sums series, which need not converge below 2.
_WHOLE = (*range(2, 65), *np.unique(np.geomspace(65, 1024, 24).astype(int)))
SAMPLED_ORDERS = tuple(sorted({*map(float, _WHOLE), *np.arange(2.0, 11.0, 0.25).tolist()}))
UNSAMPLED_ORDERS = tuple(1.0 + x for x in np.geomspace(1e-3, 1e7, 400).tolist())
ROUNDING = 1e-13  # added to a Rényi divergence: one near 0 can be computed as -1e-15


class RDPAccountant(Accountant):
    """Rényi divergences; ``orders`` are numbers > 1."""

    name = "rdp"
    uses_orders = True
    smallest_order = 1.0

    def epsilon(self, plan, delta, orders=None):
        orders, divergences = _renyi_curve(plan, orders)
        compute = library().rdp.rdp_privacy_accountant.compute_epsilon
        return max(0.0, float(compute(orders, plan.n_steps * divergences, delta)[0]))

    def delta(self, plan, epsilon, orders=None):
        orders, divergences = _renyi_curve(plan, orders)
        compute = library().rdp.rdp_privacy_accountant.compute_delta
        return float(compute(orders, plan.n_steps * divergences, epsilon)[0])


def renyi_divergence(plan, order: float) -> float:
    """Rényi divergence of one step at ``order``, the larger of both directions: a ledger's filter sums these."""
    if plan.sampling_rate == 1.0:
        return order / (2.0 * plan.sensitive_noise_multiplier() ** 2)
    if plan.relation == "replace_one":
        raise ValueError(
            'There is no Rényi bound for Poisson samples under relation="replace_one": use sampling="full".'
        )
    return float(_renyi_curve(plan, (order,))[1][0])


def _renyi_curve(plan, orders) -> tuple[tuple[float, ...], np.ndarray]:
    """Orders, and the Rényi divergences of one step at them."""
    if orders is None:
        orders = SAMPLED_ORDERS if plan.sampling_rate < 1.0 else UNSAMPLED_ORDERS
    step = library().GaussianDpEvent(plan.sensitive_noise_multiplier())
    if plan.sampling_rate < 1.0:
        step = library().PoissonSampledDpEvent(plan.sampling_rate, step)
    return tuple(orders), _step_divergences(step, plan.relation, tuple(float(order) for order in orders))


@lru_cache(maxsize=64)
def _step_divergences(step, relation: str, orders: tuple[float, ...]) -> np.ndarray:
    return np.maximum(library().rdp.RdpAccountant(orders, neighbours(relation)).compose(step)._rdp, 0.0) + ROUNDING
