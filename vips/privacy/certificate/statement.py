"""The promise to the people in the records: values for ``technical.html``, ``meaning.html`` and ``deltas.html``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vips.privacy.meaning import belief_after, gaussian_success, hits, success
from vips.privacy.plan import PrivacyPlan
from vips.privacy.units import is_group, noun_of

if TYPE_CHECKING:
    from vips.privacy.report import PrivacyReport

__all__ = [
    "DELTAS",
    "IN_TABLE",
    "delta_in_words",
    "deltas_view",
    "meaning_view",
    "relation_in_words",
    "technical_view",
    "why_none",
]

DELTAS = np.logspace(-12, -2, 41)
IN_TABLE = 4  # every fourth of them
_BELIEFS = (0.01, 0.1, 0.5, 0.9)
_RELATIONS = {
    "add_or_remove": "add or remove one: a data set with the {0} and one without look alike; their number is protected, too",
    "replace_one": "replace one: data sets that differ in the values of one {0} look alike; their number is public",
}
_INVALID = {
    "drop": "drop: a record that cannot be used is ignored, and this is not reported",
    "raise": "raise: the fit stops at a record that cannot be used, which reveals that there is one. No guarantee covers this",
}


def technical_view(report: PrivacyReport) -> dict:
    """All facts of a report; for a fit without noise one sentence."""
    if not report.plan.is_private:
        return {"sentence": str(report)}
    facts = report.to_dict()
    return facts | {
        "sentence": "",
        "no_guarantee": why_none(report),
        "epsilon": report.epsilon() if report.has_guarantee and report.plan.report_delta is not None else None,
        "mu": facts["gdp_mu"],
        "delta": delta_in_words(facts["delta"]),
        "relation": relation_in_words(report),
        "on_invalid": _INVALID.get(facts["on_invalid"], facts["on_invalid"]),
        "released": [*facts["released"], "and everything computed from these alone"],
        "mechanism": _mechanism(facts),
        "versions": ", ".join(f"{package} {version}" for package, version in facts["versions"].items()),
    }


def meaning_view(report: PrivacyReport) -> dict | None:
    """The bounds of ``vips.privacy.meaning``; None without a guarantee or without a δ."""
    delta = report.plan.report_delta
    if not report.has_guarantee or delta is None:
        return None
    epsilon, mu = report.epsilon(delta), report.gdp_mu()
    added = report.plan.relation == "add_or_remove"
    return {
        "unit": report.unit,
        "noun": noun_of(report.unit),
        "of_persons": is_group(report.unit),
        "question": "is in the data" if added else "has its actual values there, or others",
        "epsilon": epsilon,
        "delta": f"{delta:g}",
        "factor": _factor(epsilon),
        "success": success(epsilon, delta),
        "mu": mu,
        "gaussian_success": None if mu is None else gaussian_success(mu),
        "hits": hits(0.01, epsilon, delta),
        "beliefs": [(f"{100 * belief:g}", belief_after(belief, epsilon)) for belief in _BELIEFS],
    }


def deltas_view(report: PrivacyReport) -> list[tuple[str, float]]:
    """ε at some other δ; nothing without a guarantee."""
    if not report.has_guarantee or report.search is not None:
        return []
    return [(f"{delta:.0e}", report.epsilon(float(delta))) for delta in DELTAS[::IN_TABLE]]


def why_none(report: PrivacyReport) -> str:
    """Why there is no guarantee; an empty string if there is one."""
    if report.has_guarantee:
        return ""
    if not report.plan.is_private:
        return "no noise was added"
    if report.plan.reproducible_noise:
        return "sampling and noise come from a seed"
    if type(report.plan) is not PrivacyPlan:
        return "the plan is of a class of its own, which may do anything with the records"
    return "errors depend on single records"


def relation_in_words(report: PrivacyReport) -> str:
    """What two data sets that look alike differ in."""
    return _RELATIONS[report.plan.relation].format(noun_of(report.unit))


def delta_in_words(delta: float | None) -> str:
    """δ also as "1 in so many"."""
    if delta is None:
        return "not chosen; see ε at other δ"
    return f"{delta:g} (1 in {1.0 / delta:,.0f})" if delta > 1e-15 else f"{delta:g}"


def _mechanism(facts: dict) -> str:
    rounded = "" if facts["noise"] == "gaussian" else ", rounded to a lattice"
    if facts["sampling_rate"] == 1.0:
        sampled = "every record in each"
    else:
        sampled = f"each record in each with probability {facts['sampling_rate']:g}, independently"
    return (
        f"{facts['n_steps']} steps, {sampled}; each record's statistics clipped to norm {facts['clip_norm']:.4g}; "
        f"Gaussian noise of {facts['noise_multiplier']:.4g} times that norm in every coordinate of the sum{rounded}; "
        f"accountant: {facts['accountant']}"
    )


def _factor(epsilon: float) -> str:
    return f"{np.exp(epsilon):.3g}" if epsilon < 700.0 else "more than 1e304"
