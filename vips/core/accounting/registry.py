"""From a plan to (ε, δ): one class per accountant, one registry. Each refuses what it cannot analyse.

============  ==========================================================================================================
``"pld"``     privacy loss distributions; without sampling, the exact Gaussian
``"rdp"``     Rényi divergences (dp_accounting)
``"moments"`` the paper's: valid, never the smallest, kept to reproduce its numbers
``"strong"``  exact Gaussian per step, amplified by sampling, then theorem 3.20 of Dwork and Roth (2014)
``"basic"``   the same per step; ε and δ add up
============  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vips.core.accounting.base import ACCOUNTANTS, Accountant
from vips.core.accounting.events import fit_event
from vips.core.accounting.moments import MomentsAccountant
from vips.core.accounting.pld import PLDAccountant
from vips.core.accounting.renyi import RDPAccountant
from vips.core.accounting.stepwise import BasicAccountant, StrongAccountant

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["event", "get_accountant"]

for _each in (PLDAccountant(), RDPAccountant(), MomentsAccountant(), StrongAccountant(), BasicAccountant()):
    ACCOUNTANTS[_each.name] = _each


def get_accountant(name: str, orders: Sequence[float] | str | None = None) -> Accountant:
    """The accountant of that name, after a check that it can use ``orders``."""
    if name not in ACCOUNTANTS:
        raise ValueError(f"Unknown accountant {name!r}: write one of {', '.join(map(repr, ACCOUNTANTS))}.")
    accountant = ACCOUNTANTS[name]
    if orders is not None:
        if not accountant.uses_orders:
            raise ValueError(f"The accountant {name!r} has no orders: leave `orders` out.")
        if isinstance(orders, str):
            if orders != "paper" or name != "moments":
                raise ValueError(f'`orders` must be numbers, or "paper" for the accountant "moments"; got {orders!r}.')
        elif not len(orders) or not all(accountant.smallest_order < order < np.inf for order in orders):
            raise ValueError(
                f"`orders` of {name!r} must be finite numbers above {accountant.smallest_order:g}, at least one."
            )
    return accountant


def event(plan: PrivacyPlan, accountant: str = "pld") -> Any:
    """The whole fit as a dp_accounting ``DpEvent``, for one of its accountants under ``plan.relation``.

    Parameters
    ----------
    plan : PrivacyPlan
    accountant : {"pld", "rdp"}

    Raises
    ------
    ValueError
        If the accountant cannot analyse the plan, or dp_accounting has no such accountant.
    """
    if accountant not in ("pld", "rdp"):
        raise ValueError(f'dp_accounting has no accountant {accountant!r}: write "pld" or "rdp".')
    if plan.is_private and plan.sampling_rate < 1.0:  # all records under replace-one have an event for "rdp", too
        ACCOUNTANTS[accountant].check(plan)
    return fit_event(plan, accountant)
