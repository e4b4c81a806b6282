"""Events of dp_accounting, in the numbers that a ledger adds up.

An event's noise multiplier is relative to the norm of one record's share. That is the sensitivity under add-or-remove-one;
under replace-one it is half of it, and not every accountant of dp_accounting doubles it. So there such events are refused.
"""

from __future__ import annotations

import math
from typing import Any

from vips._support.validation import check_integer, check_number
from vips.core.accounting.domination import mu_of_zcdp
from vips.core.accounting.events import library, neighbours
from vips.core.plan import PrivacyPlan

__all__ = ["parts_of_event"]

_MOST = 2**53  # larger numbers are not exact as floats


def parts_of_event(event: Any, relation: str, times: int = 1) -> tuple[float, float, list[PrivacyPlan]]:
    """What an event consists of: Σ μ² of Gaussian parts, Σ ε of pure parts, and plans of sampled Gaussians.

    Raises
    ------
    TypeError
        If it is not an event.
    ValueError
        If its numbers are impossible, or a part is none of these.
    """
    kinds, kind = library(), type(event)
    if not isinstance(event, kinds.DpEvent):
        raise TypeError(f"`event` must be a DpEvent of dp_accounting or a PrivacyPlan, got {kind.__name__}.")
    if kind is kinds.ComposedDpEvent:
        parts = [parts_of_event(part, relation, times) for part in event.events]
        squares, pure, plans = zip(*parts, strict=True) if parts else ((), (), ())
        return math.fsum(squares), math.fsum(pure), [plan for part in plans for plan in part]
    if kind is kinds.SelfComposedDpEvent:
        check_integer("event.count", event.count)
        times *= int(event.count)
        if times > _MOST:
            raise ValueError(
                "An event is repeated more than 2^53 times, which no ledger can add up. State fewer repetitions."
            )
        return parts_of_event(event.event, relation, times)
    if kind is kinds.PoissonSampledDpEvent:
        check_number("event.sampling_probability", event.sampling_probability, 0.0, 1.0, "in [0, 1]")
        return _sampled(float(event.sampling_probability), event.event, relation, times)
    if kind is kinds.ZCDpEvent:
        check_number("event.rho", event.rho, 0.0, math.inf, "a finite number ≥ 0", open_high=True)
        check_number("event.xi", event.xi, 0.0, 0.0, "0: other bounds are not covered")
        return mu_of_zcdp(times * float(event.rho)) ** 2, 0.0, []
    if kind is kinds.GaussianDpEvent or kind is kinds.LaplaceDpEvent:
        check_number("event.noise_multiplier", event.noise_multiplier, 1e-100, 1e100, "between 1e-100 and 1e100")
        if relation == "replace_one":
            raise ValueError(_ambiguous(event))
        ratio = 1.0 / float(event.noise_multiplier)
        return (times * ratio**2, 0.0, []) if kind is kinds.GaussianDpEvent else (0.0, times * ratio, [])
    if kind is kinds.RandomizedResponseDpEvent and relation == "replace_one":
        check_number("event.noise_parameter", event.noise_parameter, 0.0, 1.0, "in (0, 1]", open_low=True)
        check_integer("event.num_buckets", event.num_buckets)
        noise, buckets = float(event.noise_parameter), int(event.num_buckets)
        return 0.0, times * math.log1p(buckets * (1.0 - noise) / noise), []
    raise ValueError(_unknown(event, relation))


def _sampled(rate: float, event: Any, relation: str, times: int) -> tuple[float, float, list[PrivacyPlan]]:
    if type(event) is not library().GaussianDpEvent:
        raise ValueError(_unknown(event, relation))
    gaussian, *_ = parts_of_event(event, relation)
    if rate == 0.0:
        return 0.0, 0.0, []
    if rate == 1.0:
        return times * gaussian, 0.0, []
    return 0.0, 0.0, [PrivacyPlan(noise_multiplier=gaussian**-0.5, sampling_rate=rate, n_steps=times)]


def _unknown(event: Any, relation: str) -> str:
    return (
        f"A ledger cannot add up {event}. State what its mechanism guarantees: `epsilon`, with `delta` if it has one, or "
        "`rho`. If privacy loss distributions cover the event, this gives an `epsilon` for a `delta` of your choice: "
        f"dp_accounting.pld.PLDAccountant(dp_accounting.{neighbours(relation)}).compose(event).get_epsilon(delta)"
    )


def _ambiguous(event: Any) -> str:
    is_gaussian = type(event) is library().GaussianDpEvent
    statement, size = ("rho=0.5 * ratio**2", "standard deviation") if is_gaussian else ("epsilon=ratio", "scale")
    return (
        f"Under 'replace_one', {event} does not say to which sensitivity its noise is relative. State {statement}, where "
        f"ratio is the largest change by one replaced record ÷ the {size} of the noise."
    )
