"""The promise to the people in the records: values for ``statement.html``, ``meaning.html`` and ``curve.html``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vips.comparison.report.charts import draw_epsilon
from vips.comparison.report.text import number
from vips.privacy import PrivacyReport
from vips.privacy.meaning import belief_after, gaussian_success, hits, success

__all__ = ["curve_view", "meaning_view", "statement_view"]

_DELTAS = np.logspace(-12, -2, 41)
_IN_TABLE = 4  # every fourth of them
_BELIEFS = (0.01, 0.1, 0.5, 0.9)
_RELATIONS = {
    "add_or_remove": "add or remove one: a data set with the record and one without it look alike; the number of "
    "records is protected, too",
    "replace_one": "replace one: data sets that differ in the values of one record look alike; the number of records is "
    "public",
}
_INVALID = {
    "drop": "drop: a record that cannot be used is ignored, and this is not reported",
    "raise": "raise: the fit stops at a record that cannot be used, which reveals that there is one. No guarantee covers this",
}


def statement_view(report: PrivacyReport) -> dict:
    """All facts of a report; for a fit without noise one sentence."""
    if not report.plan.is_private:
        return {"sentence": str(report)}
    facts = report.to_dict()
    return facts | {
        "sentence": "",
        "no_guarantee": _why_none(report),
        "epsilon": report.epsilon() if report.has_guarantee and report.plan.report_delta is not None else None,
        "mu": facts["gdp_mu"],
        "delta": _delta(facts["delta"]),
        "relation": _RELATIONS[facts["relation"]],
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
    epsilon, mu = report.epsilon(delta), report.charged_plan.gdp_mu()
    added = report.plan.relation == "add_or_remove"
    return {
        "unit": report.unit,
        "question": "was among the fitted records" if added else "had its actual values, or others",
        "epsilon": epsilon,
        "delta": f"{delta:g}",
        "factor": _factor(epsilon),
        "success": success(epsilon, delta),
        "mu": mu,
        "gaussian_success": None if mu is None else gaussian_success(mu),
        "hits": hits(0.01, epsilon, delta),
        "beliefs": [(f"{100 * belief:g}", belief_after(belief, epsilon)) for belief in _BELIEFS],
    }


def curve_view(reports: Sequence[PrivacyReport]) -> dict | None:
    """ε at other δ, as a chart and a table, for the fits with a guarantee; None if there are none."""
    lines, marks = {}, []
    for kind, report in zip(("private", "baseline"), reports, strict=True):
        if not report.has_guarantee:
            continue
        lines[kind] = [report.epsilon(float(delta)) for delta in _DELTAS]
        if report.plan.report_delta is not None:
            marks.append((kind, report.plan.report_delta, report.epsilon()))
    if not lines:
        return None
    ends = "; ".join(
        f"{kind}: from {number(own[0])} at {_DELTAS[0]:g} down to {number(own[-1])} at {_DELTAS[-1]:g}"
        for kind, own in lines.items()
    )
    described = f"Line chart of ε against δ. {ends}. All numbers are in the table below."
    labels = {"private": "ε of the private fit", "baseline": "ε of the baseline"}
    return {
        "chart": draw_epsilon(lines, _DELTAS, marks, described),
        "heads": [labels[kind] for kind in lines],
        "rows": [(f"{_DELTAS[i]:.0e}", [own[i] for own in lines.values()]) for i in range(0, len(_DELTAS), _IN_TABLE)],
    }


def _why_none(report: PrivacyReport) -> str:
    """Why there is no guarantee; an empty string if there is one."""
    if report.has_guarantee:
        return ""
    return (
        "sampling and noise come from a seed" if report.plan.reproducible_noise else "errors depend on single records"
    )


def _delta(delta: float | None) -> str:
    if delta is None:
        return "not chosen; see the curve of ε against δ"
    return f"{delta:g} (1 in {1.0 / delta:,.0f})" if delta > 1e-15 else f"{delta:g}"


def _mechanism(facts: dict) -> str:
    noise = "Gaussian" if facts["noise"] == "gaussian" else "discrete Gaussian"
    if facts["sampling_rate"] == 1.0:
        sampled = "every record in each"
    elif facts["sampling"] == "fixed":
        sampled = f"{facts['batch_size']} records each, drawn without replacement"
    else:
        sampled = f"each record in each with probability {facts['sampling_rate']:g}, independently"
    return (
        f"{facts['n_steps']} steps, {sampled}; each record's statistics clipped to norm {facts['clip_norm']:.4g}; "
        f"{noise} noise of {facts['noise_multiplier']:.4g} times that norm in every coordinate of the sum; "
        f"accountant: {facts['accountant']}"
    )


def _factor(epsilon: float) -> str:
    return f"{np.exp(epsilon):.3g}" if epsilon < 700.0 else "more than 1e304"
