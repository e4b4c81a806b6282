"""The page: order of the sections, and the HTML file."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment

from vips._pages.engine import environment
from vips._pages.page import write_page
from vips.comparison.curve import NO_GUARANTEE, UtilityCurve
from vips.comparison.curve import PRIVATE as PRIVATE_SCORES
from vips.comparison.curve import PUBLIC as PUBLIC_SCORES
from vips.comparison.report.numbers import curve_view, summary_view, utility_view
from vips.comparison.report.posteriors import marginals_view, movers_view, topics_view, weights_view
from vips.comparison.text import PRIVATE, RELEASED, X_TEST, combined, paragraph
from vips.report import certificate
from vips.report.certificate.page import cover_view, ledger_view, meaning_view
from vips.report.words import sections

if TYPE_CHECKING:
    from vips.comparison.comparison import Comparison
    from vips.core.ledger.ledger import PrivacyLedger

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


class _Section(NamedTuple):
    """A part of the page.

    Attributes
    ----------
    key : str
        Its id, and the name of its template.
    heading : str
    view : dict
        Values for the template.
    """

    key: str
    heading: str
    view: dict


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
        sections=_sections(comparison, utility),
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


def _sections(comparison: Comparison, utility: UtilityCurve | None) -> list[_Section]:
    """The sections that exist for this comparison."""
    ours, theirs = comparison.privacy
    promised = {"private": sections(ours), "baseline": sections(theirs)}
    views = [
        ("fitted", "What was fitted", _fitted(comparison)),
        ("statement", "Privacy statement", promised),
        ("meaning", "What ε and δ mean", meaning_view(ours)),
        ("curve", "ε against δ", curve_view(comparison.privacy)),
        ("numbers", "How far the two fits are apart", summary_view(comparison)),
        ("utility", "Scores against ε", utility_view(utility)),
        ("topics", "Topics side by side", topics_view(comparison)),
        ("weights", "Weights side by side", weights_view(comparison)),
        ("marginals", "Posteriors side by side", marginals_view(comparison)),
        ("movers", "Parameters that moved most", movers_view(comparison)),
        ("notes", "Notes", {"notes": comparison.notes} if comparison.notes else None),
    ]
    return [_Section(*view) for view in views if view[2] is not None]


def _fitted(comparison: Comparison) -> dict:
    return {
        "model": comparison.model,
        "summary": comparison.summary,
        "unit": comparison.privacy[0].unit,
        "private": comparison.private,
        "baseline": comparison.baseline,
        "parameters": ", ".join(f"{m.private.name} ({len(m.difference):,})" for m in comparison.movements),
        "words": paragraph(comparison),
        "source": combined(*(label for label in _labels(comparison) if label)),
    }


def _labels(comparison: Comparison) -> set[str]:
    return {label for row in comparison.rows for label in (row.source, row.private_source, row.baseline_source)}


def _notice(comparison: Comparison, utility: UtilityCurve | None) -> dict:
    """Whether people who may not see the records may see the file."""
    labels = {comparison.source, *_labels(comparison), *(() if utility is None else (utility.source,))}
    sources = {part for label in labels for part in label.split("; ")}
    if sources <= {RELEASED, PUBLIC_SCORES, ""}:  # an unknown label, of a curve made by hand, counts as not protected
        kind, heading = "fine", "All numbers in this report were computed from released values"
        advice = "The numbers are as private as the fits that released them: see the privacy statement."
    else:
        kind, heading = "warning", "This report holds numbers that are not protected"
        advice = "Protect the file as you protect the records. Each number is marked with its source:"
    return {
        "kind": kind,
        "heading": heading,
        "advice": advice,
        "meanings": [(label, meaning) for label, meaning in _MEANS.items() if label in sources],
        "has_guarantee": comparison.privacy[0].has_guarantee,
        "clips": [
            {"fit": fit, "norm": report.plan.clip_norm}
            for fit, report, biases in zip(
                ("the private fit", "the baseline"), comparison.privacy, comparison.clip_biases, strict=True
            )
            if biases
        ],
    }
