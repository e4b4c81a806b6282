"""What a ledger promises, fixed when it is made: its budget, its unit, its relation, and the order of its filter."""

from __future__ import annotations

import math

from vips._validation import check_delta, check_number
from vips.exceptions import LedgerError

__all__ = ["ANY_UNIT", "best_order", "checked_terms", "delta_of_filter", "filter_budget"]

# The default unit of a ledger: it accepts whatever a model calls one record.
ANY_UNIT = "one record"


def delta_of_filter(delta: float, outright_delta: float) -> float:
    """δ of the Rényi side. One rounding is kept back, because the sum of the outright δ_i is rounded."""
    return delta - math.nextafter(outright_delta, math.inf) if outright_delta else delta


def filter_budget(epsilon: float, delta: float, order: float) -> float:
    """B: the largest Rényi divergence of that order that implies (ε, δ); negative if none does.

    ε = B + log((α - 1)/α) - (log δ + log α)/(α - 1): proposition 12 of Canonne, Kamath and Steinke (2020),
    arXiv:2004.00010v5.
    """
    return epsilon - math.log1p(-1.0 / order) + (math.log(delta) + math.log(order)) / (order - 1.0)


def best_order(epsilon: float, delta: float) -> int:
    """The integer order with the most room for steps of divergence ∝ α, such as Gaussian ones with much noise.

    An integer, because the divergence of discrete noise is bounded at integer orders.
    """
    return max(range(2, 4097), key=lambda order: filter_budget(epsilon, delta, order) / order)


def checked_terms(epsilon, delta, dataset, unit, relation, order, outright_delta) -> dict:
    """The terms, ready for JSON, or an error that names the wrong one."""
    check_number("epsilon", epsilon, 0.0, math.inf, "a positive number", open_low=True, open_high=True)
    check_delta(delta)
    largest = math.nextafter(delta, 0.0)  # so that the Rényi side keeps some δ
    check_number("outright_delta", outright_delta, 0.0, largest, "a part of `delta`, and smaller", open_high=True)
    for name, value in (("dataset", dataset), ("unit", unit)):
        if not isinstance(value, str) or not value:
            raise LedgerError(f"`{name}` must be a name in words, got {value!r}.")
    if relation not in ("add_or_remove", "replace_one"):
        raise LedgerError(f'`relation` must be "add_or_remove" or "replace_one", got {relation!r}.')
    if order is not None and (not isinstance(order, int) or order < 2):
        raise LedgerError(f"`order` must be an integer ≥ 2, got {order!r}.")
    renyi_delta = delta_of_filter(float(delta), float(outright_delta))
    order = best_order(epsilon, renyi_delta) if order is None else order
    if not filter_budget(epsilon, renyi_delta, order) > 0.0:
        raise LedgerError(
            f"No Rényi divergence of order {order} implies ε = {epsilon} at δ = {renyi_delta}: use another order."
        )
    terms = {"epsilon": float(epsilon), "delta": float(delta), "dataset": dataset, "unit": unit, "relation": relation}
    return terms | {"order": order, "outright_delta": float(outright_delta)}
