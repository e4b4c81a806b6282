"""The certificate: what people state, what a report promises, what several fits of the same records cost together."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from vips._pages.page import environment, rendered, today
from vips._support.files import whole_file
from vips.core.ledger.ledger import PrivacyLedger
from vips.core.ledger.reader import book_as_of
from vips.core.units import each_of, is_group, is_same_unit, noun_of
from vips.report import words
from vips.report.only_noise import NO_SIGNAL
from vips.report.words import belief_after, gaussian_success, hits, success

if TYPE_CHECKING:
    from vips.report.report import PrivacyReport

__all__ = [
    "DELTAS",
    "IN_TABLE",
    "certificate",
    "cover_view",
    "ledger_view",
    "meaning_view",
    "statements_of",
    "write_certificate",
]

DELTAS = np.logspace(-12, -2, 41)
IN_TABLE = 4  # every fourth of them
_ON_THE_COVER = ("Released", "Not covered")
_BELIEFS = (0.01, 0.1, 0.5, 0.9)
_PARTS = [(__package__, "certificate.css"), (__package__, "certificate.js")]
# What a fit cannot know and people state.
_FACTS = {
    "dataset": "Data set",
    "purpose": "Purpose",
    "model": "Model",
    "responsible": "Responsible for the processing",
}
_CHOICE = {"chosen_by": "Chosen by", "reason": "Reasons"}


def write_certificate(
    report: PrivacyReport, path: str | os.PathLike, ledger: PrivacyLedger | None = None, **stated: str
) -> None:
    """Write the certificate, whole or not at all; see :meth:`PrivacyReport.to_html`."""
    page = certificate(report, ledger_view(ledger, [report]), stated, today())
    with whole_file(path) as file:
        file.write(page)


def certificate(report: PrivacyReport, ledger: dict, stated: dict[str, str], date: str) -> bytes:
    """The page, all of which follows from these facts: the report, what :func:`ledger_view` gives, texts of people, its date.

    It holds them once more, for :func:`~.check.findings`.
    """
    facts = {"vips": metadata.version("vips"), "date": date, "ledger": ledger, "stated": stated}
    deltas = DELTAS[::IN_TABLE] if report.has_guarantee else []
    return rendered(
        environment(__package__),
        "certificate.html",
        _PARTS,
        today=date,
        title="Privacy certificate" if report.has_guarantee else "No privacy guarantee",
        cover=cover_view(report, ledger, **stated),
        sections=[section for section in words.sections(report) if section[0] not in _ON_THE_COVER],
        deltas=[(f"{delta:.0e}", report.epsilon(float(delta))) for delta in deltas],
        record=json.dumps(facts | {"report": report.to_plain()}) if report.has_guarantee else "",
    )


def cover_view(
    report: PrivacyReport, ledger: dict, others: Sequence[PrivacyReport] = (), n_unknown: int = 0, **stated: str
) -> dict:
    """The first page of ``report``, with what :func:`ledger_view` gives, and texts of people by the names of ``_FACTS`` and
    ``_CHOICE``: what is empty becomes a line to be filled in by hand, and what is no text raises TypeError. ``attack`` may be
    empty.

    Further fits are shown with it: ``others``, and ``n_unknown`` that have no statement.
    """
    for name, text in stated.items():
        if not isinstance(text, str):
            raise TypeError(f"`{name}` must be a text, got {type(text).__name__}.")
    known = {"dataset": ledger["dataset"] or "", "purpose": (report.ledger or {}).get("purpose", "")}
    stated = stated | {name: text for name, text in known.items() if not stated.get(name, "").strip()}
    delta = report.delta
    return {
        "has_guarantee": report.has_guarantee,
        "why_none": words.why_none(report),
        "epsilon": report.epsilon(delta) if report.has_guarantee and delta is not None else None,
        "delta": words.at_delta(delta),
        "noun": noun_of(report.unit),
        "of_persons": is_group(report.unit),
        "unit": each_of(report.unit),
        "relation": words.relation(report),
        "meaning": meaning_view(report),
        "facts": _rows(_FACTS, stated),
        "choice": _rows(_CHOICE, stated),
        "attack": stated.get("attack", "").strip(),
        "date": report.date,
        "released": [*(item for release in report.releases for item in release.released),
                     "and everything computed from these alone"],
        "who_counts": words.who_counts(report),
        "no_signal": NO_SIGNAL if report.only_noise else "",
        "not_covered": report.not_covered,
        "runs": report.runs,
        "ledger": ledger,
        "together": _together_view([report, *others], n_unknown),
    }  # fmt: skip


def statements_of(models: Sequence, names: Sequence[str]) -> list[dict]:
    """What fits with these names promise, for ``guarantees.html``; the first also what all promise together."""
    reports, views = [model.privacy_ for model in models], []
    for i, (model, name) in enumerate(zip(models, names, strict=True)):
        others = reports[1:] if i == 0 else ()
        view = cover_view(reports[i], ledger_view(None, [reports[i], *others]), others)
        signal = next(iter(model.signal().values()), None)
        views.append(view | {"name": name, "signal": None if signal is None else f"{100.0 * signal:.0f}"})
    return views


def _rows(labels: dict[str, str], stated: dict[str, str]) -> list[tuple[str, str]]:
    """Labels and texts; blanks count as empty."""
    texts = {name: stated.get(name, "") for name in labels}
    return [(labels[name], text if text.strip() else "") for name, text in texts.items()]


def meaning_view(report: PrivacyReport) -> dict | None:
    """The bounds of ``vips.report.words``; None without a guarantee or without a δ."""
    delta = report.delta
    if not report.has_guarantee or delta is None:
        return None
    epsilon, mu = report.epsilon(delta), report.gdp_mu()
    added = report.plan.relation == "add_or_remove"
    by_epsilon = success(epsilon, delta)
    return {
        "noun": noun_of(report.unit),
        "of_persons": is_group(report.unit),
        "question": "is in the data" if added else "has its actual values there, or others",
        "epsilon": epsilon,
        "delta": f"{delta:g}",
        "factor": f"{_rounded_up(np.exp(epsilon)):.3g}" if epsilon < 700.0 else "more than 1e304",
        "chances": f"{math.floor(1.0 / delta):,}" if delta > 1e-15 else "10¹⁵",
        "success": by_epsilon,
        "mu": mu,
        "sharper": by_epsilon if mu is None else min(by_epsilon, gaussian_success(mu)),
        "hits": hits(0.01, epsilon, delta),
        "hits_of_1000": math.ceil(1e3 * hits(0.01, epsilon, delta) - 1e-9),
        "beliefs": [(f"{100 * belief:g}", belief_after(belief, epsilon)) for belief in _BELIEFS],
    }


def _rounded_up(value: float) -> float:
    """The next number of three digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit - 1e-9) * unit


def ledger_view(ledger: PrivacyLedger | None, reports: Sequence[PrivacyReport], head: str | None = None) -> dict:
    """What the ledger has counted, and which of the fits it does not count; as JSON can say it.

    Where it has counted nothing but the one report, the total is that report's ε. ``head`` is the ledger's last entry at that
    time, LedgerError if it never had it; None is now.
    """
    if ledger is None:
        charged = next((report for report in reports if report.ledger is not None), None)
        return {"total": None, "dataset": None if charged is None else charged.ledger["dataset"]}
    if not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"`ledger` must be a PrivacyLedger or None, got {type(ledger).__name__}.")
    book = book_as_of(ledger, head)
    runs = set(book.runs)
    missing = [report for report in reports if not report.runs or not runs.issuperset(report.runs)]
    is_this_alone = len(reports) == 1 and not missing and runs == set(reports[0].runs)
    spent = book.spent().epsilon(ledger.delta)
    return {
        "head": f"{book.known - 1}:{book.head}",
        "total": spent,
        "is_this_alone": bool(is_this_alone and reports[0].has_guarantee and reports[0].delta is not None),
        "dataset": ledger.dataset,
        "unit": f"each {noun_of(reports[0].unit)}"
        if is_same_unit(reports[0].unit, ledger.unit)
        else each_of(ledger.unit),
        "budget": ledger.epsilon,
        "delta": f"{ledger.delta:g}",
        "n_runs": len(runs),
        "n_missing": len(missing),
        "success": success(spent, ledger.delta),
    }


def _together_view(reports: Sequence[PrivacyReport], n_unknown: int = 0) -> dict | None:
    """ε of everything that was fitted for a page, as if all of it were of the same records; None for a single fit."""
    runs = [report.runs for report in reports]
    # not twice one fit, which its runs in a ledger reveal; other fits all count
    reports = [report for i, report in enumerate(reports) if not runs[i] or runs[i] not in runs[:i]]
    counted = [report for report in reports if report.has_guarantee]
    if not counted or len(counted) + n_unknown < 2:
        return None
    delta = max((report.delta for report in counted if report.delta is not None), default=0.0)
    is_one_kind = len({(report.unit, report.plan.relation) for report in counted}) == 1
    numbers = {"n": len(counted), "n_without": len(reports) - len(counted), "n_unknown": n_unknown}
    view = numbers | {"epsilon": None, "is_one_kind": is_one_kind}
    if not is_one_kind:
        return view
    releases = tuple(release for report in counted for release in report.releases)
    epsilon = replace(counted[0], releases=releases).epsilon(delta)
    if not np.isfinite(epsilon):
        return view
    meant = {"delta": f"{delta:g}", "how": words.HOW, "success": success(epsilon, delta)}
    return view | {"epsilon": epsilon} | meant
