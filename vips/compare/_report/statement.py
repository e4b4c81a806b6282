"""What was promised to the people in the records: the privacy statement of a fit, and what its ε means."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from vips.compare._report.charts import draw_epsilon
from vips.compare._report.text import at_most, definitions, name, number
from vips.privacy import PrivacyReport
from vips.privacy._meaning import belief_after, gaussian_success, hits, success

__all__ = ["curve_section", "meaning_section", "statement"]

_DELTAS = np.logspace(-12, -2, 41)
_IN_TABLE = 4  # every fourth of them
_RELATIONS = {
    "add_or_remove": "add or remove one: a data set with the record and one without it look alike; how many records there "
    "were is protected, too",
    "replace_one": "replace one: data sets that differ in the values of one record look alike; how many records there were is "
    "public",
}
_INVALID = {
    "drop": "drop: a record that cannot be used counts for nothing, and nobody is told",
    "raise": "raise: the fit stops at a record that cannot be used, which tells that there is one. No guarantee covers that",
}


def statement(report: PrivacyReport) -> str:
    """All that a report says; for a fit without noise one sentence."""
    if not report.plan.is_private:
        return f"<p>{escape(str(report))}</p>"
    facts = report.to_dict()
    rows = [
        ("Guarantee", _guarantee(report)),
        ("Unit of protection", name(facts["unit"])),
        ("Relation", escape(_RELATIONS[facts["relation"]])),
        ("ε (epsilon)", _epsilon(report)),
        ("δ (delta)", _delta(facts["delta"])),
        ("Released", _listed([*facts["released"], "and everything computed from these alone"])),
        ("Declared public", _listed(facts["declared_public"])),
        ("Records that cannot be used", escape(_INVALID[facts["on_invalid"]])),
        ("Ledger entry", _ledger(facts["ledger"])),
        ("Not covered", _listed(facts["not_covered"])),
        ("Preprocessing", escape(facts["preprocessing"])),
        ("Tuning", escape(facts["tuning"])),
        ("Assumed", _listed(facts["assumptions"])),
        ("Mechanism", escape(_mechanism(facts))),
        ("Randomness", escape(facts["randomness"])),
        ("Arithmetic", escape(facts["arithmetic"])),
        ("Versions", escape(", ".join(f"{package} {version}" for package, version in facts["versions"].items()))),
    ]
    return definitions(rows)


def meaning_section(report: PrivacyReport) -> str:
    """The bounds of ``vips.privacy._meaning`` in plain words; empty without a guarantee or without a δ."""
    delta = report.plan.report_delta
    if not report.has_guarantee or delta is None:
        return ""
    epsilon = report.epsilon(delta)
    added = report.plan.relation == "add_or_remove"
    question = "was among those that were fitted" if added else "had the values that it had, or others"
    before = (0.01, 0.1, 0.5, 0.9)
    beliefs = "\n".join(
        f'<tr><th scope="row">{100 * belief:g} %</th><td>{at_most(belief_after(belief, epsilon))}</td></tr>'
        for belief in before
    )
    enough = (
        "" if success(epsilon, delta) < 0.99 else f" <strong>An ε of {number(epsilon)} bounds next to nothing.</strong>"
    )
    mu = report.charged_plan.gdp_mu()
    sharper = "" if mu is None else (
        f" Of this fit something sharper is known (it is {number(mu)}-Gaussian differentially private): "
        f"<strong>{at_most(gaussian_success(mu))}</strong>."
    )  # fmt: skip
    return f"""<p>Suppose that somebody knows all records but one, sees everything that this fit released, and wants to know
whether the one that is left ({name(report.unit)}) {question}.</p>
<ul>
<li>Whatever they do, they learn no more than from a device that gives the answer away with probability δ = {delta:g} and
otherwise changes the odds of what they believed by a factor of
<span class="whole">e<sup>ε</sup> = {_factor(epsilon)}</span> at most.</li>
<li>Where both answers are equally likely, guessing is right half of the time, and no attack is right more often than
<strong>{at_most(success(epsilon, delta))}</strong> of the time.{sharper}{enough}</li>
<li>An attack that accuses wrongly in 1 % of the cases finds at most <strong>{at_most(hits(0.01, epsilon, delta))}</strong> of
those whom it looks for.</li>
</ul>
<table class="beliefs"><caption>What somebody can come to believe about one record, unless δ strikes</caption>
<thead><tr><th scope="col">belief before</th><th scope="col">belief after, at most</th></tr></thead>
<tbody>
{beliefs}
</tbody></table>
<p>These are bounds, for the worst record and the best attack, and they are about one record. Somebody with several records is
protected less: with k of them, ε grows to kε, and δ by more. They do not limit what the model teaches about everybody: that is
what it is for, and it would be much the same without any one record.</p>"""


def curve_section(reports: Sequence[PrivacyReport]) -> str:
    """ε at other δ, as a chart and a table, of the fits that have a guarantee; empty if there are none."""
    lines, marks = {}, []
    for kind, report in zip(("private", "baseline"), reports, strict=True):
        if not report.has_guarantee:
            continue
        lines[kind] = [report.epsilon(float(delta)) for delta in _DELTAS]
        if report.plan.report_delta is not None:
            marks.append((kind, report.plan.report_delta, report.epsilon()))
    if not lines:
        return ""
    ends = "; ".join(
        f"{kind}: from {number(own[0])} at {_DELTAS[0]:g} down to {number(own[-1])} at {_DELTAS[-1]:g}"
        for kind, own in lines.items()
    )
    chart = draw_epsilon(
        lines, _DELTAS, marks, f"Line chart of ε against δ. {ends}. All numbers are in the table below."
    )
    labels = {"private": "ε of the private fit", "baseline": "ε of the baseline"}
    head = "".join(f'<th scope="col">{labels[kind]}</th>' for kind in lines)
    rows = "\n".join(
        f'<tr><th scope="row">{_DELTAS[i]:.0e}</th>{"".join(f"<td>{number(own[i])}</td>" for own in lines.values())}</tr>'
        for i in range(0, len(_DELTAS), _IN_TABLE)
    )
    key = "" if len(lines) == 1 else (
        '<p class="legend"><span class="line private" aria-hidden="true"></span> private fit '
        '<span class="line baseline" aria-hidden="true"></span> baseline</p>'
    )  # fmt: skip
    return f"""<p>One fit satisfies many pairs of ε and δ at once: a smaller δ, the chance that something goes wrong, has a
larger ε. A dot marks the pair that is stated above. δ should be far below one in the number of records.</p>
{key}<figure class="wide">{chart}</figure>
<table class="beliefs"><caption>ε at some δ</caption>
<thead><tr><th scope="col">δ</th>{head}</tr></thead>
<tbody>
{rows}
</tbody></table>"""


def _guarantee(report: PrivacyReport) -> str:
    if report.has_guarantee:
        return "(ε, δ)-differential privacy"
    why = "sampling and noise come from a seed" if report.plan.reproducible_noise else "errors depend on single records"
    return f"<strong>None</strong>: {why}. Treat what was fitted as private data."


def _epsilon(report: PrivacyReport) -> str:
    if not report.has_guarantee:
        return "none"
    if report.plan.report_delta is None:
        return "depends on δ; see the curve of ε against δ"
    mu = report.charged_plan.gdp_mu()
    also = "" if mu is None else f" (exactly {number(mu)}-Gaussian differentially private)"
    return f"<strong>{number(report.epsilon())}</strong>{also}"


def _delta(delta: float | None) -> str:
    if delta is None:
        return "not chosen; see the curve of ε against δ"
    return f"{delta:g} (1 in {1.0 / delta:,.0f})" if delta > 1e-15 else f"{delta:g}"


def _ledger(entry: dict | None) -> str:
    if entry is None:
        return "none: no ledger counts this fit together with others of the same records"
    return (
        f"data set {name(entry['dataset'])}, run {name(entry['run'])}, {entry['charged_steps']} steps charged. It counts fits, "
        "not scores or choices made from them"
    )


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


def _listed(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{name(item)}</li>' for item in items)}</ul>"


def _factor(epsilon: float) -> str:
    return f"{np.exp(epsilon):.3g}" if epsilon < 700.0 else "more than 1e304"
