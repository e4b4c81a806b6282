"""Values for ``cover.html``: the first page of a certificate and of a comparison's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vips.privacy.certificate.declared import Declared
from vips.privacy.certificate.statement import delta_in_words, meaning_view, relation_in_words, why_none
from vips.privacy.certificate.totals import ledger_view, together_view
from vips.privacy.only_noise import NO_SIGNAL
from vips.privacy.units import is_group, noun_of

if TYPE_CHECKING:
    from vips.privacy.ledger.ledger import PrivacyLedger
    from vips.privacy.report import PrivacyReport

__all__ = ["cover_view"]


def cover_view(
    report: PrivacyReport,
    declared: Declared,
    ledger: PrivacyLedger | None = None,
    others: Sequence[PrivacyReport] = (),
    n_unknown: int = 0,
) -> dict:
    """The first page.

    Parameters
    ----------
    report : PrivacyReport
        Of the fit that the page is about.
    declared : Declared
    ledger : PrivacyLedger, optional
    others : sequence of PrivacyReport
        Of further fits that are shown.
    n_unknown : int
        Number of further fits that are shown and have no statement.
    """
    delta = report.plan.report_delta
    if not declared.dataset.strip():
        known = ledger.dataset if ledger is not None else (report.ledger or {}).get("dataset", "")
        declared = replace(declared, dataset=str(known))
    return {
        "has_guarantee": report.has_guarantee,
        "why_none": why_none(report),
        "epsilon": report.epsilon(delta) if report.has_guarantee and delta is not None else None,
        "delta": delta_in_words(delta),
        "noun": noun_of(report.unit),
        "of_persons": is_group(report.unit),
        "unit": report.unit,
        "relation": relation_in_words(report),
        "meaning": meaning_view(report),
        "facts": declared.rows("dataset", "purpose", "model", "responsible"),
        "choice": declared.rows("chosen_by", "reason"),
        "released": [*report.released, "and everything computed from these alone"],
        "no_signal": NO_SIGNAL if report.only_noise else "",
        "not_covered": report.not_covered,
        "ledger": ledger_view(ledger, [report, *(other for other in others if other.plan.is_private)]),
        "together": together_view([report, *others], n_unknown),
    }
