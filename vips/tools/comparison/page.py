"""The page: the certificate as its cover, the sections, and the HTML file."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment

from vips._pages.page import environment, write_page
from vips.report import certificate
from vips.report.certificate.page import cover_view, ledger_view
from vips.tools.comparison.curve import NO_GUARANTEE, UtilityCurve
from vips.tools.comparison.curve import PRIVATE as PRIVATE_SCORES
from vips.tools.comparison.curve import PUBLIC as PUBLIC_SCORES
from vips.tools.comparison.report.sections import labels_of, sections
from vips.tools.comparison.text import PRIVATE, RELEASED, X_TEST

if TYPE_CHECKING:
    from vips.core.ledger.ledger import PrivacyLedger
    from vips.tools.comparison.comparison import Comparison

__all__ = ["render", "templates", "write_report"]

_PARTS = [(certificate.__name__, "certificate.css"), (__package__, "report.css"), (__package__, "report.js")]
_MEANS = {
    RELEASED: "computed only from what private fits released: as private as these fits.",
    X_TEST: "also computed from test records, which are not protected.",
    PRIVATE: "computed from training records, or from a fit without a guarantee: it can reveal single records.",
    PUBLIC_SCORES: "scores of private fits on public records.",
    PRIVATE_SCORES: "scores on private records, or of fits without noise: they are not protected.",
    NO_GUARANTEE: "scores of fits whose noise comes from a seed, or whose errors depend on records: they are not protected.",
}


def write_report(
    comparison: Comparison,
    path: str | os.PathLike,
    utility: UtilityCurve | None = None,
    ledger: PrivacyLedger | None = None,
    **stated: str,
) -> None:
    """Write the report, whole or not at all."""
    write_page(
        path,
        templates(),
        "page.html",
        _PARTS,
        title=f"Privacy report: {comparison.model}",
        private=comparison.private[:1].upper() + comparison.private[1:],
        baseline=comparison.baseline,
        cover=_cover(comparison, utility, ledger, **stated),
        notice=_notice(comparison, utility),
        sections=sections(comparison, utility),
    )


def render(template: str, **values: object) -> str:
    """Render a template of the folder ``templates``."""
    return templates().get_template(template).render(values)


@cache
def templates() -> Environment:
    """The engine, which also knows whether a source is protected."""
    made = environment(__package__, certificate.__name__)
    made.tests["protected"] = lambda source: source in (RELEASED, PUBLIC_SCORES)
    return made


def _cover(comparison: Comparison, utility: UtilityCurve | None, ledger: PrivacyLedger | None, **stated: str) -> dict:
    """The first page, which adds up all fits that the report shows."""
    ours, theirs = comparison.privacy
    others = [theirs, *(() if utility is None else utility.reports)]
    n_unknown = 0 if utility is None or utility.reports else utility.scores.size
    counted = ledger_view(ledger, [ours, *(other for other in others if other.plan.is_private)])
    return cover_view(ours, counted, others, n_unknown, model=f"{comparison.model}. {comparison.summary}", **stated)


def _notice(comparison: Comparison, utility: UtilityCurve | None) -> dict:
    """Whether people who may not see the records may see the file."""
    labels = {comparison.source, *labels_of(comparison), *(() if utility is None else (utility.source,))}
    sources = {part for label in labels for part in label.split("; ")}
    if sources <= {RELEASED, PUBLIC_SCORES, ""}:  # an unknown label, of a curve made by hand, counts as not protected
        kind, heading = "fine", "All numbers in this report were computed from released values"
        advice = "The numbers are as private as the fits that released them: see the privacy statement."
    else:
        kind, heading = "warning", "This report holds numbers that are not protected"
        advice = "Protect the file as you protect the records. Each number is marked with its source:"
    fits = zip(("the private fit", "the baseline"), comparison.privacy, comparison.clip_biases, strict=True)
    return {
        "kind": kind,
        "heading": heading,
        "advice": advice,
        "meanings": [(label, meaning) for label, meaning in _MEANS.items() if label in sources],
        "has_guarantee": comparison.privacy[0].has_guarantee,
        "clips": [{"fit": fit, "norm": report.plan.clip_norm} for fit, report, biases in fits if biases],
    }
