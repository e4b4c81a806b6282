"""What a mechanism that is not a fit states about its privacy, as a ledger counts it.

==============================  ===============================================  =====================
stated                          divergence ρ of order α                          outright δ_i
==============================  ===============================================  =====================
an event, δ                     that of the event (dp_accounting)                δ
a plan, δ                       T steps of the plan                              δ
a selection, δ                  its bound (vips.privacy.selection)               δ
(ε, δ)                          randomised response: the largest under pure ε    δ
zCDP with rho, δ                α rho                                            δ
==============================  ===============================================  =====================

Whoever states (ε, δ) states δ-approximate ε-privacy: such a mechanism is one that reveals everything with probability δ, and
is ε-private otherwise. The theorem: docs/guarantee.md, part 7 of the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vips._validation import check_choice, check_number
from vips.exceptions import LedgerError
from vips.privacy.accounting.other_events import event_divergence, pure_divergence
from vips.privacy.ledger.admitted import check_plan, cost_of, step_divergence
from vips.privacy.plan import PrivacyPlan
from vips.privacy.selection import Selection

__all__ = ["Statement", "stated"]


@dataclass(frozen=True)
class Statement:
    """A statement, and what it costs.

    Attributes
    ----------
    what : dict
        The statement, ready for JSON.
    divergence, outright_delta : float
        ρ, rounded up, and δ_i: under the ledger's relation.
    """

    what: dict
    divergence: float
    outright_delta: float


def stated(ledger, event, epsilon, rho, delta, relation) -> Statement:
    """A statement under ``relation``, with its cost in the relation and at the order of ``ledger``.

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
            delta *= (1.0 + math.exp(min(epsilon, 700.0))) * (1.0 + 1e-12)  # rounded up
        divergence = pure_divergence(removals * float(epsilon), ledger.order)
        return _rounded(what | {"epsilon": float(epsilon)}, divergence, delta)
    if rho is not None:
        check_number("rho", rho, 0.0, math.inf, "a finite number ≥ 0", open_high=True)
        if removals == 2 and delta:
            raise LedgerError(_no_conversion(ledger, "`rho` with `delta`"))
        # D_α(P‖R) ≤ 2α/(2α-1) D_(2α-1)(P‖Q) + D_2α(Q‖R) ≤ 4α rho: group privacy of Bun and Steinke (2016)
        return _rounded(what | {"rho": float(rho)}, removals**2 * float(rho) * ledger.order, delta)
    if removals == 2:
        raise LedgerError(_no_conversion(ledger, "an event"))
    if isinstance(event, Selection):
        for part in event.parts:
            check_plan(part, relation)
        kinds = {
            "mean_trials": event.trials.mean,
            "shape": event.trials.shape,
            "parts": [cost_of(p) for p in event.parts],
        }
        return _rounded(what | {"selection": kinds}, event.renyi_divergence(ledger.order), delta)
    if isinstance(event, PrivacyPlan):
        check_plan(event, relation)
        return _rounded(what | {"plan": cost_of(event)}, event.n_steps * step_divergence(event, ledger.order), delta)
    return _rounded(what | {"event": str(event)}, event_divergence(event, relation, ledger.order), delta)


def _removals(ledger, relation: str) -> int:
    """How many neighbours under ``relation`` lead from one neighbour of the ledger to the other: 1, or 2."""
    if ledger.relation == relation:
        return 1
    if relation == "replace_one":
        raise LedgerError(
            f"The ledger of {ledger.dataset!r} counts under 'add_or_remove'; a guarantee under 'replace_one' says nothing "
            "about data sets of different sizes. State what the mechanism guarantees when a record is added or removed."
        )
    return 2  # remove one record, then add another


def _no_conversion(ledger, what: str) -> str:
    return (
        f"The ledger of {ledger.dataset!r} counts under 'replace_one', and vips converts only `epsilon`, with or without "
        f"`delta`, and `rho` alone from 'add_or_remove', not {what}. State it under 'replace_one'."
    )


def _rounded(what: dict, divergence: float, delta: float) -> Statement:
    divergence = math.nextafter(divergence, math.inf) if divergence else 0.0
    if not divergence < math.inf:
        raise LedgerError(f"No budget could pay for {what}: its Rényi divergence is infinite.")
    return Statement(what, divergence, float(delta))
