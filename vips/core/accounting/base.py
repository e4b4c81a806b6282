"""The interface of accountants, and the registered ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan

__all__ = ["ACCOUNTANTS", "NEARLY_ALL", "Accountant", "is_plain"]

NEARLY_ALL = 1.0 - 1e-9  # larger sampling rates count as 1, which never understates ε

# By name; ``registry.py`` fills it.
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
