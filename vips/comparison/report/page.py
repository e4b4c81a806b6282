"""The page: order of the sections, and the HTML file."""

from __future__ import annotations

import base64
import hashlib
import os
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from vips._files import whole_file
from vips.comparison.curve import NO_GUARANTEE, UtilityCurve
from vips.comparison.curve import PRIVATE as PRIVATE_SCORES
from vips.comparison.curve import PUBLIC as PUBLIC_SCORES
from vips.comparison.report.engine import own_markup, render
from vips.comparison.report.numbers import summary_view, utility_view
from vips.comparison.report.posteriors import marginals_view, movers_view, topics_view, weights_view
from vips.comparison.report.statement import curve_view, meaning_view, statement_view
from vips.comparison.sources import PRIVATE, RELEASED, X_TEST, combined
from vips.comparison.text import paragraph

if TYPE_CHECKING:
    from vips.comparison.comparison import Comparison

__all__ = ["write_report"]

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


def write_report(comparison: Comparison, path: str | os.PathLike, utility: UtilityCurve | None = None) -> None:
    """Write the report, whole or not at all."""
    page = _page(comparison, utility).encode("utf-8", errors="replace")  # a name may hold an unpaired surrogate
    with whole_file(path) as file:
        file.write(page)


def _page(comparison: Comparison, utility: UtilityCurve | None) -> str:
    script, style = (
        resources.files(__package__).joinpath(f"report.{kind}").read_text("utf-8") for kind in ("js", "css")
    )
    return render(
        "page.html",
        policy=_policy(script, style),
        title=f"Privacy report: {comparison.model}",
        private=comparison.private[:1].upper() + comparison.private[1:],
        baseline=comparison.baseline,
        notice=_notice(comparison, utility),
        sections=_sections(comparison, utility),
        today=datetime.now(UTC).date().isoformat(),
        style=own_markup(style),
        script=own_markup(script),
    )


def _sections(comparison: Comparison, utility: UtilityCurve | None) -> list[_Section]:
    """The sections that exist for this comparison."""
    ours, theirs = comparison.privacy
    promised = {"private": statement_view(ours), "baseline": statement_view(theirs)}
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
        advice = "They are as private as the fits that released them: see the privacy statement."
    else:
        kind, heading = "warning", "This report holds numbers that are not protected"
        advice = "Protect it as you protect the records. Each number is marked with its source:"
    return {
        "kind": kind,
        "heading": heading,
        "advice": advice,
        "meanings": [(label, meaning) for label, meaning in _MEANS.items() if label in sources],
        "has_guarantee": comparison.privacy[0].has_guarantee,
    }


def _policy(script: str, style: str) -> str:
    """The content security policy: no network, and no script or style sheet but ours, even if a name smuggled one in.

    Figures set colours in ``style`` attributes, which are allowed. Browsers that do not know the two directives for styles
    use ``style-src``.
    """
    return "; ".join([
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        "style-src 'unsafe-inline'",
        f"style-src-elem '{_hash(style)}'",
        "style-src-attr 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ])  # fmt: skip


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
