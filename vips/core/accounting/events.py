"""The part of dp_accounting: plans as its events, the Rényi accountant, and δ below the resolution of loss distributions."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vips._support.files import no_fork
from vips.core.accounting.base import ACCOUNTANTS, Accountant

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["RDPAccountant", "event", "library", "neighbours", "renyi_epsilon", "renyi_log_deltas"]

# Every order > 1 is valid. At orders that are not whole, dp_accounting sums series, which need not converge below 2.
_WHOLE = (*range(2, 65), *np.unique(np.geomspace(65, 1024, 60).astype(int)))
SAMPLED_ORDERS = tuple(sorted({*map(float, _WHOLE), *np.arange(2.0, 11.0, 0.25).tolist()}))
UNSAMPLED_ORDERS = tuple(1.0 + x for x in np.geomspace(1e-3, 1e7, 400).tolist())
ROUNDING = 1e-13  # added to a Rényi divergence: one near 0 can be computed as -1e-15


@cache
def library() -> Any:
    """dp_accounting, imported on first use: that takes half a second."""
    with no_fork():  # a child forked during the import could never import it
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    return dp_accounting


def neighbours(relation: str) -> Any:
    kinds = library().NeighboringRelation
    return kinds.ADD_OR_REMOVE_ONE if relation == "add_or_remove" else kinds.REPLACE_ONE


def event(plan: PrivacyPlan, accountant: str = "pld") -> Any:
    """The whole fit as a dp_accounting ``DpEvent``, for one of its accountants under ``plan.relation``.

    Under add-or-remove, one event is right for both. Under replace-one, dp_accounting's privacy loss distributions double the
    sensitivity themselves, its Rényi divergences do not. So the events are written such that an accountant for which they would
    be wrong refuses them. With σ relative to one record's share, also where that is rounded:

    ======================  ========================================  =====================================
    sampling, relation      ``"pld"``                                 ``"rdp"``
    ======================  ========================================  =====================================
    any, add or remove      Gaussian(σ), sampled at q                 the same
    poisson, replace one    Gaussian(σ), sampled at q                 none
    full, replace one       Gaussian(σ), sampled at 1, which "rdp"    zCDP(2/σ²), which "pld" refuses
                            refuses
    ======================  ========================================  =====================================
    """
    if accountant not in ("pld", "rdp"):
        raise ValueError(f'dp_accounting has no accountant {accountant!r}: write "pld" or "rdp".')
    if plan.is_private and plan.sampling_rate < 1.0:  # all records under replace-one have an event for "rdp", too
        ACCOUNTANTS[accountant].check(plan)
    events = library()
    if plan.noise_multiplier == 0.0:
        return events.NonPrivateDpEvent()
    full, replaced = plan.sampling_rate == 1.0, plan.relation == "replace_one"
    if accountant == "rdp" and replaced:
        step = events.ZCDpEvent(rho=0.5 / plan.sensitive_noise_multiplier() ** 2)
    else:
        step = events.GaussianDpEvent(plan.noise_per_share())
    if not full or (accountant == "pld" and replaced):
        step = events.PoissonSampledDpEvent(plan.sampling_rate, step)
    return events.SelfComposedDpEvent(step, plan.n_steps)


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
