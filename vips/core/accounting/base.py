"""The interface of accountants, and the one that a name stands for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["ACCOUNTANTS", "NEARLY_ALL", "Accountant", "get_accountant", "is_plain"]

NEARLY_ALL = 1.0 - 1e-9  # larger sampling rates count as 1, which never understates ε

# By name; the package fills it.
ACCOUNTANTS: dict[str, Accountant] = {}


class Accountant(ABC):
    """Bounds (ε, δ) of a plan. ``orders=None`` takes the accountant's own orders, if it has any."""

    name: str
    uses_orders = False
    composes_equal_steps = False
    smallest_order = 0.0

    def can_analyse(self, plan: PrivacyPlan) -> bool:
        """Whether the plan's relation is covered."""
        return is_plain(plan)

    @abstractmethod
    def epsilon(self, plan: PrivacyPlan, delta: float, orders: Sequence[float] | str | None = None) -> float:
        """Smallest ε that the accountant proves at δ."""

    @abstractmethod
    def delta(self, plan: PrivacyPlan, epsilon: float, orders: Sequence[float] | str | None = None) -> float:
        """Smallest δ that the accountant proves at ε."""

    def check(self, plan: PrivacyPlan) -> None:
        """Raise ValueError for a plan that the accountant cannot analyse."""
        if not self.can_analyse(plan):
            raise ValueError(
                f"The accountant {self.name!r} covers add-or-remove-one, not {plan.relation!r}: use 'pld'."
            )
        if self.composes_equal_steps and plan.phases:
            raise ValueError(f"The accountant {self.name!r} composes equal steps, not phases with weights: use 'pld'.")


def is_plain(plan: PrivacyPlan) -> bool:
    return plan.relation == "add_or_remove"


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
