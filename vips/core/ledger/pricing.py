"""What a release costs a ledger: μ², δ₀ and ε₀ of a plan, and of what other tools state.

==============================  ==================================================  ============================
stated                          μ²                                                  δ₀
==============================  ==================================================  ============================
a plan of full batches          T ÷ (noise ÷ sensitivity)², exactly                 0; δ of a threshold in its first step
a sampled plan                  the smallest that dominates it beside δ₀            a twentieth of what is left
an event of dp_accounting       the same of its Gaussian parts, sampled or not      the same
(ε, δ)                          0 and ε₀ = ε, if so much is left of ``pure``;       δ
                                else that of randomised response
zCDP with rho, δ                the smallest that dominates its Rényi divergences   δ
==============================  ==================================================  ============================

Whoever states (ε, δ) states δ-approximate ε-privacy: such a mechanism is one that reveals everything with probability δ, and
is ε-private otherwise. What is left is a public function of the ledger's history, so that shares of it may be taken any number
of times. The theorems: docs/guarantee.md, part 6 of the proof.

An event's noise multiplier is relative to the norm of one record's share. That is the sensitivity under add-or-remove-one;
under replace-one it is half of it, and not every accountant of dp_accounting doubles it. So there such events are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from vips._support.validation import check_choice, check_integer, check_number
from vips.core.accounting.domination import dominating_mu, mu_of_pure, mu_of_zcdp
from vips.core.accounting.events import library, neighbours
from vips.core.budget import Cost, PrivacyBudget
from vips.core.plan import PrivacyPlan
from vips.exceptions import LedgerError, PrivacyBudgetError

if TYPE_CHECKING:
    from vips.core.ledger.reader import LedgerReader

__all__ = ["Statement", "check_plan", "cost_of_plan", "fields_of", "of_plan", "parts_of_event", "stated", "sum_of"]

SAMPLED_SHARE = 1.0 / 20.0  # of what is left of δ₀, for one sampled plan
_ROUNDED_UP = 1.0 + 1e-12
_MOST_TIMES = 2**53  # larger numbers are not exact as floats


@dataclass(frozen=True)
class Statement:
    """What is released, and what that costs.

    Attributes
    ----------
    what : dict
        The statement, ready for JSON.
    price : function of a PrivacyBudget
        From what is left in a ledger to the Cost.
    steps : int
        T; 1 for all that is not a fit.
    is_gaussian : bool
        Whether each step is a Gaussian mechanism of its own.
    """

    what: dict
    price: Callable[[PrivacyBudget], Cost]
    steps: int = 1
    is_gaussian: bool = False


def fields_of(plan: PrivacyPlan) -> dict:
    """The fields of a plan that its privacy depends on, ready for JSON."""
    names = ("noise_multiplier", "sampling_rate", "n_steps", "sampling", "relation", "noise")
    return {name: getattr(plan, name) for name in names} | {"phases": [[p.n_steps, p.weight] for p in plan.phases]}


def check_plan(plan: PrivacyPlan, relation: str) -> None:
    """Raise LedgerError for a plan that no ledger of this relation can pay for."""
    if not plan.has_guarantee:
        raise LedgerError(
            "A fit without noise, with reproducible noise, or by a subclass of PrivacyPlan has no guarantee: no budget "
            "could pay for it. Fit it without the ledger, and only if the data are public."
        )
    if plan.relation != relation:
        raise LedgerError(f"The ledger counts under {relation!r}, the plan under {plan.relation!r}.")


def of_plan(plan: PrivacyPlan, relation: str, delta: float = 0.0) -> Statement:
    """The statement of a fit with this plan, for a ledger of this relation; ``delta`` is of a threshold in its first step."""
    check_plan(plan, relation)
    what = {"plan": fields_of(plan)} | ({"delta": delta} if delta else {})
    is_gaussian = plan.sampling_rate == 1.0
    return Statement(what, lambda left: _beside(cost_of_plan(plan, left), delta), plan.n_steps, is_gaussian)


def cost_of_plan(plan: PrivacyPlan, left: PrivacyBudget) -> Cost:
    """What all steps of a plan cost where this is left."""
    delta_0 = 0.0 if plan.sampling_rate == 1.0 else SAMPLED_SHARE * left.delta_0
    if plan.sampling_rate < 1.0 and not delta_0 > 0.0:
        raise PrivacyBudgetError(
            "Samples need a part of the ledger's δ/10, and all of it was spent, on thresholds, samples or stated δ. Nothing "
            'was charged. Write sampling="full".'
        )
    mu = dominating_mu(plan, delta_0)
    if not mu < math.inf:
        raise LedgerError(
            f"No Gaussian mechanism is as private as {plan.n_steps} samples of rate {plan.sampling_rate:g} with a noise "
            f'multiplier of {plan.noise_multiplier:g} are, beside δ₀ = {delta_0:.3g}: write sampling="full", or more noise.'
        )
    return Cost(mu * mu * _ROUNDED_UP, delta_0)


def stated(
    ledger: LedgerReader, event: Any, epsilon: float | None, rho: float | None, delta: float, relation: str
) -> Statement:
    """A statement under ``relation``, with its cost in the relation of ``ledger``.

    Raises
    ------
    TypeError, ValueError
        If not exactly one of ``event``, ``epsilon`` and ``rho`` is given, or a number is impossible.
    LedgerError
        If the statement says nothing under the ledger's relation.
    """
    if [event, epsilon, rho].count(None) != 2:
        raise ValueError("State exactly one of `event`, `epsilon` and `rho`; `delta` may stand beside any of them.")
    check_number("delta", delta, 0.0, 1.0, "in [0, 1)", open_high=True)
    check_choice("relation", relation, ("add_or_remove", "replace_one"))
    delta = float(delta)  # products of NumPy's shorter floats are rounded to as few digits
    what = {"relation": relation, "delta": delta}
    removals = _removals(ledger, relation)
    if epsilon is not None:
        check_number("epsilon", epsilon, 0.0, math.inf, "a finite number ≥ 0", open_high=True)
        if removals == 2:  # P ≤ e^ε Q + δ and Q ≤ e^ε R + δ: P ≤ e^2ε R + (1 + e^ε) δ
            delta *= (1.0 + math.exp(min(epsilon, 700.0))) * _ROUNDED_UP
        pure = removals * float(epsilon)
        return Statement(what | {"epsilon": float(epsilon)}, lambda left: _cost_of_pure(pure, delta, left))
    if rho is not None:
        check_number("rho", rho, 0.0, math.inf, "a finite number ≥ 0", open_high=True)
        if removals == 2 and delta:
            raise LedgerError(_no_conversion(ledger, "`rho` with `delta`"))
        # D_α(P‖R) ≤ 2α/(2α-1) D_(2α-1)(P‖Q) + D_2α(Q‖R) ≤ 4α rho: group privacy of Bun and Steinke (2016)
        mu = mu_of_zcdp(removals**2 * float(rho))
        return Statement(what | {"rho": float(rho)}, lambda left: _gaussian(mu, delta))
    if removals == 2:
        raise LedgerError(_no_conversion(ledger, "an event"))
    if isinstance(event, PrivacyPlan):
        check_plan(event, relation)
        return Statement(what | {"mechanism": fields_of(event)}, lambda left: _beside(cost_of_plan(event, left), delta))
    gaussian, pure, sampled = parts_of_event(event, relation)

    def price(left: PrivacyBudget) -> Cost:
        costs = [cost_of_plan(plan, left) for plan in sampled]
        if delta <= left.delta_0 < delta + math.fsum(cost.delta_0 for cost in costs) * _ROUNDED_UP:
            raise PrivacyBudgetError(
                f"The event has {len(sampled)} sampled parts, and each takes a twentieth of what is left of the ledger's δ/10 "
                f"(δ₀ = {left.delta_0:.3g}): too little is left for so many in one charge, and nothing was charged. Charge "
                "them one after the other, before each is released, and equal ones together as a SelfComposedDpEvent."
            )
        costs += [Cost(gaussian * _ROUNDED_UP), _cost_of_pure(pure, delta, left)]
        return sum_of(costs)

    return Statement(what | {"event": str(event)}, price)


def sum_of(costs: Iterable[Cost]) -> Cost:
    """What several releases cost together."""
    return Cost(*(math.fsum(column) * _ROUNDED_UP for column in zip(*map(astuple, costs), strict=True)))


def _cost_of_pure(epsilon: float, delta: float, left: PrivacyBudget) -> Cost:
    """ε₀ where it is left; else the whole as a Gaussian mechanism, never a part of it."""
    return Cost(0.0, delta, epsilon) if epsilon <= left.pure else _gaussian(mu_of_pure(epsilon), delta)


def _gaussian(mu: float, delta: float) -> Cost:
    if not mu < math.inf:
        raise LedgerError("No budget could pay for this statement: it promises hardly anything.")
    return Cost(mu * mu * _ROUNDED_UP, delta)


def _beside(cost: Cost, delta: float) -> Cost:
    return Cost(cost.mu2, math.nextafter(cost.delta_0 + delta, math.inf) if cost.delta_0 else delta, cost.pure)


def _removals(ledger: LedgerReader, relation: str) -> int:
    """How many neighbours under ``relation`` lead from one neighbour of the ledger to the other: 1, or 2."""
    if ledger.relation == relation:
        return 1
    if relation == "replace_one":
        raise LedgerError(
            f"The ledger of {ledger.dataset!r} counts under 'add_or_remove'; a guarantee under 'replace_one' says nothing "
            "about data sets of different sizes. State what the mechanism guarantees when a record is added or removed."
        )
    return 2  # remove one record, then add another


def _no_conversion(ledger: LedgerReader, what: str) -> str:
    return (
        f"The ledger of {ledger.dataset!r} counts under 'replace_one', and vips converts only `epsilon`, with or without "
        f"`delta`, and `rho` alone from 'add_or_remove', not {what}. State it under 'replace_one'."
    )


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
        if times > _MOST_TIMES:
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
