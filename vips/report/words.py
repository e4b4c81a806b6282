"""A privacy report in words: what ``str()``, notebooks, certificates and reports of comparisons show, and the pieces that other
texts quote.

**What (ε, δ) means for an attacker's success**, in numbers that a reader can judge. Two data sets differ by one record. The
attacker knows both, sees everything that was released, and says which of the two was fitted: "in" or "out".

    P(says "in" | in) ≤ e^ε P(says "in" | out) + δ, and likewise for "out"        the definition, for every attack

The bounds below are attained by a mechanism that reveals the answer with probability δ and otherwise multiplies odds by e^±ε.
Every (ε, δ)-private mechanism can be simulated from that one (Kairouz, Oh and Viswanath 2015, arXiv:1311.0776v4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from scipy.special import expit, logit, ndtr, ndtri

from vips._support.pipelines import model_of
from vips._support.printable import printable
from vips.core.contract import released
from vips.core.units import is_group, noun_of
from vips.report.only_noise import NO_SIGNAL

if TYPE_CHECKING:
    from vips.core.plan import PrivacyPlan
    from vips.report.report import PrivacyReport, Release

__all__ = [
    "HOW",
    "OF_ONE_PERSON",
    "at_delta",
    "belief_after",
    "declared_of",
    "described",
    "gaussian_success",
    "hits",
    "in_line",
    "in_lines",
    "in_words",
    "loss",
    "most_found",
    "relation",
    "sections",
    "steps",
    "success",
    "who_counts",
    "whose",
    "why_none",
]

HOW = "privacy loss distributions"  # how every ε is computed
OF_ONE_PERSON = "coefficients compare rows of one and the same person"
_DELTAS = [10.0 ** (-i / 4) for i in range(8, 41)]  # at which curves of attacks are taken
_MISFIT = 0.05  # probability under the model, below which a finding is a sign of a misfit
_RELATIONS = {
    "add_or_remove": "add or remove one: a data set with the {0} and one without look alike; "
    "how many there are is protected, too",
    "replace_one": "replace one: data sets that differ in the values of one {0} look alike; how many there are is public",
}
_INVALID = {
    "drop": "a record that cannot be used is ignored, and this is not reported",
    "raise": "the fit stops at a record that cannot be used, which reveals that there is one. No guarantee covers this",
}
_NO_NOISE = "No privacy: no noise was added. The fitted posterior can reveal the records it was fitted on."

_MOST_PHASES = 8  # that are listed
Section = tuple[str, tuple[str, ...]]


def in_lines(report: PrivacyReport) -> str:
    """The report as text: one line for each section."""
    if not report.plan.is_private:
        return _NO_NOISE
    return "\n".join(f"{heading}: {in_line(items)}" for heading, items in sections(report))


def in_line(items: Sequence[str]) -> str:
    """The items of a section as one line, whatever they hold."""
    return printable(f"{'; '.join(items)}.")


def in_words(model: object) -> object:
    """A fitted model, or a pipeline: its class, its findings and why it has no intervals. Anything else unchanged."""
    fitted = model_of(model)
    if not hasattr(fitted, "findings"):
        return model
    findings = [_finding(name, value) for name, value in fitted.findings().items()]
    return "; ".join([type(fitted).__name__, *findings, *filter(None, [fitted.why_no_intervals()])])


def _finding(name: str, value: float) -> str:
    """A number about a fit, and what it means if it is a probability under the model."""
    means = "no sign of a misfit" if value >= _MISFIT else "a sign that the model does not fit the records"
    return f"{name}: {value:.2g}{f', {means}' if name.startswith('probability') else ''}"


def reasons(reason: object, model: object) -> object:
    """A plan by ``plan_for`` in words, with the widths of the fitted model beside its own. Anything else unchanged."""
    if not hasattr(reason, "beside"):
        return reason
    return reason.beside(model) if hasattr(model_of(model), "findings") else str(reason)


def loss(epsilon: float, delta: float) -> str:
    """ε and δ, as every text quotes them."""
    return f"ε = {epsilon:.4g} at δ = {delta:g}"


def at_delta(delta: float | None) -> str:
    """δ also in words: such a mechanism can be simulated by one that reveals all with probability δ (``meaning.py``)."""
    if delta is None:
        return "not chosen; see ε at other δ"
    return f"{delta:g} (1 in {1.0 / delta:,.0f} chances to learn more)" if delta > 1e-15 else f"{delta:g}"


def relation(report: PrivacyReport) -> str:
    """What two data sets that look alike differ in."""
    return _RELATIONS[report.plan.relation].format(noun_of(report.unit))


def described(model, follows: str, *declared: str) -> dict:
    """What ``describe()`` gives of a model whose phases say what they release, from which this follows."""
    return {"unit": model.unit, "released": released(model, follows), "declared_public": declared}


def whose(report: PrivacyReport | None) -> str | None:
    """Whose shares and effects a fit with several rows of a person is about; None where nobody has several. Ordinary fits count
    rows alike."""
    declared = [] if report is None else [text for release in report.releases for text in release.declared]
    if report is None or not is_group(report.unit) or any(OF_ONE_PERSON in text for text in declared):
        return None
    counts_persons = report.plan.is_private and report.plan.max_rows_per_group is None
    return f"of each {noun_of(report.unit)}" if counts_persons else "of rows"


def who_counts(report: PrivacyReport) -> tuple[str, ...]:
    """The same in a sentence, and why."""
    if not report.plan.is_private or not (people := whose(report)):
        return ()
    if (rows := report.plan.max_rows_per_group) is not None:
        return (
            f"Rows count alike, up to {rows} of each {noun_of(report.unit)}: shares and effects are those {people}",
        )
    return (
        f"Whoever has many rows counts about as much as who has one: shares and effects are those {people}, not of rows",
    )


def why_none(report: PrivacyReport) -> str:
    """Why there is no guarantee; an empty string if there is one."""
    return "; ".join(dict.fromkeys(reason for release in report.releases for reason in _reasons(release)))


def _reasons(release: Release) -> Iterator[str]:
    plan = release.plan
    if not plan.is_private:
        yield "no noise was added"
        return
    if plan.reproducible_noise:
        yield (
            "sampling and noise come from a seed (reproducible_noise=True); whoever knows the seed can subtract them. Use this "
            "for tests and public data only"
        )
    elif not plan.has_guarantee:
        yield f"the plan is a {type(plan).__name__}, a class of its own, which may do anything with the records"
    if release.on_invalid == "raise":
        yield 'errors depend on single records (on_invalid="raise"; use "drop")'


def sections(report: PrivacyReport) -> list[Section]:
    """Headings, and what stands under them; without noise, one sentence."""
    if not report.plan.is_private:
        return [
            ("Guarantee", ("none: no noise was added", "the fitted posterior can reveal the records it was fitted on"))
        ]
    releases, plans = report.releases, [release.plan for release in report.releases]
    listed: list[Section] = [] if report.has_guarantee else [("NO GUARANTEE", (why_none(report),))]
    listed.append(("Unit", (f"{report.unit}. Relation: {relation(report)}", *who_counts(report))))
    if report.has_guarantee:
        listed.append(("Guarantee", (_guarantee(report),)))
    for release in releases:
        heading = "Mechanism" if len(releases) == 1 else f"{release.what[:1].upper()}{release.what[1:]}"
        listed.append((heading, (release.mechanism or steps(release.plan),)))
    released = [item for release in releases for item in release.released]
    unusable = tuple(_INVALID[kind] for kind in dict.fromkeys(release.on_invalid for release in releases))
    listed += [
        ("Assumed", _assumptions(report)),
        ("Randomness", (_randomness(plans),)),
        ("Arithmetic", tuple(dict.fromkeys(map(_arithmetic, plans)))),
        ("Released", (*released, "and everything computed from these alone")),
        *([("Signal", (NO_SIGNAL,))] if report.only_noise else []),
        ("Public by declaration", report.declared_public),
        ("Unusable records", unusable),
        ("Preprocessing", (report.preprocessing,)),
        ("Tuning", (report.tuning,)),
        ("Ledger", _charges(report)),
    ]
    repeated = sum(release.repeated_steps for release in releases)
    if repeated:
        listed.append(("Interrupted", (
            f"{repeated:g} steps were released twice, because the fit ended while their checkpoint was written; ε counts both",
        )))  # fmt: skip
    listed.append(("Not covered", report.not_covered))
    lines = tuple(f"{release.what}: SHA-256 {release.sha256}" for release in releases if release.sha256)
    listed += [("Fingerprint", lines)] if lines else []
    listed.append(("Versions", tuple(f"{name} {version}" for name, version in report.versions.items())))
    return listed


def _guarantee(report: PrivacyReport) -> str:
    names, delta = list(dict.fromkeys(release.what for release in report.releases)), report.delta
    who = f"the {' and the '.join(names)}{' together satisfy' if len(names) > 1 else ' satisfies'}"
    mu = report.gdp_mu()
    exactly = "" if mu is None else f". That is exactly {mu:.4g}-Gaussian differential privacy"
    if delta is None:
        return f"(ε, δ): call .epsilon(delta) with a δ of your choice{exactly}"
    return f"{who} (ε, δ)-differential privacy with {loss(report.epsilon(delta), delta)} ({HOW}){exactly}"


def declared_of(facts: Mapping, plan: PrivacyPlan) -> tuple[str, ...]:
    """What a model with these facts, and a plan with weights, declare."""
    declared = tuple(facts.get("declared_public", ()))
    if not plan.is_private or plan.max_weight is None:
        return declared
    return *declared, f"max_weight = {plan.max_weight:g}: a record counts by its weight, larger ones count as this one"


def steps(plan: PrivacyPlan) -> str:
    """The mechanism of a fit."""
    rounded = ", rounded to the lattice" if plan.rounds_records else ""
    is_stated = plan.clip_norm is not None  # by every fit, not by every file
    clip, std = (f"{plan.clip_norm:g}", f"{plan.noise_std():.4g}") if is_stated else ("(not stated)", "(not stated)")
    sampled = f"each record in each with probability {plan.sampling_rate:g}, independently (Poisson sampling)"
    return (
        f"{plan.n_steps} steps, {'every record in each' if plan.sampling_rate == 1.0 else sampled}; all statistics of a record "
        f"together clipped to L2 norm {clip}; Gaussian noise of standard deviation {std} per coordinate of the scaled sum "
        f"(noise multiplier {plan.noise_multiplier:.4g}){rounded}{_phases(plan)}"
    )


def _phases(plan: PrivacyPlan) -> str:
    if not plan.phases:
        return ""
    shown = [f"{phase.n_steps} steps with {phase.weight**-0.5:.4g} times this noise" for phase in plan.phases]
    if len(shown) > _MOST_PHASES:
        shown[_MOST_PHASES - 1 : -1] = [f"{len(shown) - _MOST_PHASES} further phases"]
    return f", in phases: {', then '.join(shown)}"


def _assumptions(report: PrivacyReport) -> tuple[str, ...]:
    sampled = any(release.plan.sampling_rate < 1.0 for release in report.releases)
    what, rows = ("all rows with one id", "these rows") if is_group(report.unit) else ("one row", "that row")
    return (
        "every noisy total is known to the adversary, and all records but one",
        *(("which records a step sampled stays secret",) if sampled else ()),
        f"one record is {what}; its statistics depend on {rows} and released values only",
    )


def _randomness(plans: Sequence[PrivacyPlan]) -> str:
    is_seeded = any(plan.reproducible_noise for plan in plans)
    source = "a seed" if is_seeded else "keys from the operating system, never stored"
    return f"samples and noise from AES-128 in counter mode (randomgen), with {source}"


def _arithmetic(plan: PrivacyPlan) -> str:
    if plan.rounds_records:
        return (
            "every clipped record is rounded to a public lattice, sums are exact integers, and the noise is a Gaussian rounded "
            "to the lattice, sampled exactly; rounding records is part of the accounting"
        )
    return (
        "noise is drawn and added in double precision: not hardened against attacks on floating-point noise or on the "
        'rounding of sums (noise="discrete" is)'
    )


def _charges(report: PrivacyReport) -> tuple[str, ...]:
    charges: dict[tuple[str, str], list[Release]] = {}
    for release in report.releases:
        if release.ledger is not None:
            charges.setdefault((release.ledger["dataset"], release.ledger["run"]), []).append(release)
    if not charges:
        return ("none: no ledger counts this together with other releases about the same records",)
    lines = []
    for (dataset, run), releases in charges.items():
        who = "" if len(charges) == 1 else f"{' and '.join(release.what for release in releases)} "
        purpose = releases[0].ledger["purpose"]
        aim = f", for the purpose: {purpose}" if purpose else ""
        n_steps = sum(release.plan.n_steps + release.repeated_steps for release in releases)
        lines.append(f"{who}charged to '{dataset}' as run {run}, {n_steps:g} step{'s' * (n_steps > 1)}{aim}")
    return *lines, "a ledger counts releases, not scores or choices made from them"


def belief_after(belief: float, epsilon: float) -> float:
    """Largest belief after the release, from one strictly between 0 and 1, unless the answer is revealed: odds times e^ε."""
    return float(expit(logit(belief) + epsilon))


def success(epsilon: float, delta: float) -> float:
    """Largest probability that an attacker is right, where "in" and "out" are equally likely: (e^ε + δ)/(e^ε + 1)."""
    return float(expit(epsilon) + delta * expit(-epsilon))


def hits(false_alarms: float, epsilon: float, delta: float) -> float:
    """Largest P(says "in" | in) of an attack with P(says "in" | out) = ``false_alarms``."""
    by_in = math.exp(min(epsilon, 700.0)) * false_alarms + delta
    by_out = 1.0 - math.exp(-epsilon) * (1.0 - delta - false_alarms)
    return max(0.0, min(1.0, by_in, by_out))


def most_found(report: PrivacyReport, false_alarms: float) -> float:
    """Like :func:`hits`, by the whole trade-off curve: exact for a Gaussian mechanism, else the least by any pair of ε, δ."""
    if (mu := report.gdp_mu()) is not None:
        return float(ndtr(ndtri(false_alarms) + mu))
    return min(hits(false_alarms, report.epsilon(delta), delta) for delta in _DELTAS)


def gaussian_success(mu: float) -> float:
    """Like :func:`success`, for a fit that is exactly μ-Gaussian differentially private: Φ(μ/2)."""
    # Dong, Roth and Su (2022), arXiv:1905.02383v3: the trade-off of N(0, 1) against N(μ, 1)
    return float(ndtr(0.5 * mu))
