"""Rényi divergences of mechanisms that are not fits: dp_accounting's events, and pure ε.

An event's noise multiplier is relative to the norm of one record's share. That is the sensitivity under add-or-remove-one;
under replace-one it is half of it, and dp_accounting's Rényi divergences do not double it. So there such events are refused.
"""

from __future__ import annotations

import math

from vips._validation import check_integer, check_number
from vips.privacy.accounting.events import library, neighbours
from vips.privacy.accounting.renyi import ROUNDING

__all__ = ["event_divergence", "pure_divergence"]


def pure_divergence(epsilon: float, order: float) -> float:
    """Largest Rényi divergence of an ε-differentially private mechanism: that of randomised response.

    With p = e^ε / (1 + e^ε), both ways round: log(p^α (1-p)^(1-α) + (1-p)^α p^(1-α)) / (α - 1). It
    dominates every ε-private mechanism: proof of theorem 3.3 of Kairouz, Oh and Viswanath (2015), with δ = 0.
    """
    if order * epsilon > 30.0:  # the same value; the hyperbolic functions would overflow
        excess = math.log1p(math.exp((1.0 - 2.0 * order) * epsilon)) - math.log1p(math.exp(-epsilon))
        return epsilon + excess / (order - 1.0)
    # log(cosh((α - ½)ε) / cosh(ε/2)), without a difference of numbers near each other
    growth = 2.0 * math.sinh(0.5 * order * epsilon) * math.sinh(0.5 * (order - 1.0) * epsilon)
    return math.log1p(growth / math.cosh(0.5 * epsilon)) / (order - 1.0)


def event_divergence(event, relation: str, order: float) -> float:
    """Rényi divergence of a dp_accounting ``DpEvent`` at ``order``, the larger of both directions.

    Raises
    ------
    TypeError
        If it is not an event.
    ValueError
        If its numbers are impossible, or the divergence is unknown or infinite.
    """
    if not isinstance(event, library().DpEvent):
        raise TypeError(f"`event` must be a DpEvent of dp_accounting or a PrivacyPlan, got {type(event).__name__}.")
    event = _checked(event, relation)
    accountant = library().rdp.RdpAccountant([float(order)], neighbours(relation))
    if not accountant.supports(event):
        raise ValueError(_unknown(event, relation))
    divergence = float(accountant.compose(event).rdp[0])
    if not divergence < math.inf:
        raise ValueError(
            f"`event` has no finite Rényi divergence of order {order}: no budget could pay for it: {event}."
        )
    return max(divergence, 0.0) + ROUNDING


def _checked(event, relation: str):
    """The event with numbers that were checked, as floats: of whole noise multipliers dp_accounting composes only the first."""
    kinds, kind = library(), type(event)
    if kind is kinds.ComposedDpEvent:
        return kind([_checked(part, relation) for part in event.events])
    if kind is kinds.SelfComposedDpEvent:
        check_integer("event.count", event.count)
        return kind(_checked(event.event, relation), int(event.count))
    if kind is kinds.PoissonSampledDpEvent:
        check_number("event.sampling_probability", event.sampling_probability, 0.0, 1.0, "in [0, 1]")
        return kind(float(event.sampling_probability), _checked(event.event, relation))
    if kind is kinds.ZCDpEvent:
        check_number("event.rho", event.rho, 0.0, math.inf, "a finite number ≥ 0", open_high=True)
        check_number("event.xi", event.xi, 0.0, math.inf, "a finite number ≥ 0", open_high=True)
        return kind(float(event.rho), float(event.xi))
    if kind is kinds.GaussianDpEvent or kind is kinds.LaplaceDpEvent:
        check_number("event.noise_multiplier", event.noise_multiplier, 1e-100, 1e100, "between 1e-100 and 1e100")
        if relation == "replace_one":
            raise ValueError(_ambiguous(event))
        return kind(float(event.noise_multiplier))
    if kind is kinds.RandomizedResponseDpEvent:
        check_number("event.noise_parameter", event.noise_parameter, 0.0, 1.0, "in (0, 1]", open_low=True)
        check_integer("event.num_buckets", event.num_buckets)
        return kind(float(event.noise_parameter), int(event.num_buckets))
    raise ValueError(_unknown(event, relation))


def _unknown(event, relation: str) -> str:
    return (
        f"The Rényi divergence of {event} is not known under {relation!r}. State what its mechanism guarantees: `epsilon`, "
        "with `delta` if it has one, or `rho`. If privacy loss distributions cover the event, this gives an `epsilon` for a "
        f"`delta` of your choice: dp_accounting.pld.PLDAccountant(dp_accounting.{neighbours(relation)}).compose(event)"
        ".get_epsilon(delta)"
    )


def _ambiguous(event) -> str:
    is_gaussian = type(event) is library().GaussianDpEvent
    statement, size = ("rho=0.5 * ratio**2", "standard deviation") if is_gaussian else ("epsilon=ratio", "scale")
    return (
        f"Under 'replace_one', {event} does not say to which sensitivity its noise is relative. State {statement}, where "
        f"ratio is the largest change by one replaced record ÷ the {size} of the noise."
    )
