"""The interface of accountants, and the registered ones."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["ACCOUNTANTS", "NEARLY_ALL", "Accountant", "is_plain"]

NEARLY_ALL = 1.0 - 1e-9  # larger sampling rates count as 1, which never understates ε

# By name; ``registry.py`` fills it.
ACCOUNTANTS: dict[str, Accountant] = {}


class Accountant(ABC):
    """Bounds (ε, δ) of a plan. ``orders=None`` takes the accountant's own orders, if it has any."""

    name: str
    uses_orders = False
    smallest_order = 0.0
    allowed = "Gaussian noise, Poisson or full sampling and add-or-remove-one"

    @abstractmethod
    def can_analyse(self, plan) -> bool:
        """Whether sampling, relation and noise of the plan are covered."""

    @abstractmethod
    def epsilon(self, plan, delta: float, orders: object = None) -> float:
        """Smallest ε that the accountant proves at δ."""

    @abstractmethod
    def delta(self, plan, epsilon: float, orders: object = None) -> float:
        """Smallest δ that the accountant proves at ε."""

    def check(self, plan, orders: object = None) -> None:
        """Raise ValueError for a plan, or orders, that the accountant cannot analyse."""
        if not self.can_analyse(plan):
            others = [repr(name) for name, other in ACCOUNTANTS.items() if other.can_analyse(plan)]
            instead = f"use {' or '.join(others)}" if others else 'use relation="add_or_remove", or sampling="full"'
            raise ValueError(
                f"The accountant {self.name!r} covers {self.allowed}, not noise={plan.noise!r} with sampling="
                f"{plan.sampling!r} and relation={plan.relation!r}: {instead}."
            )


def is_plain(plan) -> bool:
    return plan.noise == "gaussian" and plan.relation == "add_or_remove"
