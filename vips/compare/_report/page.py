"""The page: what is in which order, and how it becomes a file."""

from __future__ import annotations

import base64
import hashlib
import os
from datetime import UTC, datetime
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from vips._archive import whole_file
from vips.compare._report.numbers import summary_section, utility_section
from vips.compare._report.posteriors import marginals_section, movers_section, topics_section, weights_section
from vips.compare._report.statement import curve_section, meaning_section, statement
from vips.compare._report.text import definitions, name, source_tag
from vips.compare._sources import PRIVATE, RELEASED, X_TEST, combined
from vips.compare._text import paragraph
from vips.compare.curve import NO_GUARANTEE, UtilityCurve
from vips.compare.curve import PRIVATE as PRIVATE_SCORES
from vips.compare.curve import PUBLIC as PUBLIC_SCORES

if TYPE_CHECKING:
    from vips.compare.comparison import Comparison

__all__ = ["write_report"]

_MEANS = {
    RELEASED: "computed from what private fits released and nothing else: as private as these fits.",
    X_TEST: "looks at test records, which nothing protects.",
    PRIVATE: "computed from training records, or from a fit without a guarantee: it can reveal single records.",
    PUBLIC_SCORES: "scores of private fits on public records.",
    PRIVATE_SCORES: "scores on private records, or of fits without noise: nothing protects them.",
    NO_GUARANTEE: "scores of fits whose noise comes from a seed, or whose errors depend on records: nothing protects them.",
}


def write_report(comparison: Comparison, path: str | os.PathLike, utility: UtilityCurve | None = None) -> None:
    """Write the report; nothing is left half-written."""
    page = _page(comparison, utility).encode("utf-8", errors="replace")  # a name may hold half a character
    with whole_file(path) as file:
        file.write(page)


def _page(comparison: Comparison, utility: UtilityCurve | None) -> str:
    script, style = (
        resources.files(__package__).joinpath(f"report.{kind}").read_text("utf-8") for kind in ("js", "css")
    )
    title = f"Privacy report: {comparison.model}"
    sections = _sections(comparison, utility)
    contents = "\n".join(f'<li><a href="#{key}">{heading}</a></li>' for key, heading, _ in sections)
    main = "\n".join(
        f'<section id="{key}" aria-labelledby="{key}-heading">\n<h2 id="{key}-heading">{heading}</h2>\n{text}\n</section>'
        for key, heading, text in sections
    )
    today = datetime.now(UTC).date().isoformat()
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header>
<h1>{escape(title)}</h1>
<p>{escape(comparison.private[:1].upper() + comparison.private[1:])}, compared with {escape(comparison.baseline)}.</p>
</header>
{_notice(comparison, utility)}
<nav aria-label="Contents">
<ol>
{contents}
</ol>
</nav>
<main id="main" tabindex="-1">
{main}
</main>
<footer><p>Written by vips on <time datetime="{today}">{today}</time>. This file asks nothing of any network.</p></footer>
<script>{script}</script>
</body>
</html>
"""


def _sections(comparison: Comparison, utility: UtilityCurve | None) -> list[tuple[str, str, str]]:
    """Key, heading and HTML of those that there are."""
    ours, theirs = comparison.privacy
    promised = f"<h3>The private fit</h3>\n{statement(ours)}\n<h3>The baseline</h3>\n{statement(theirs)}"
    sections = [
        ("fitted", "What was fitted", _fitted(comparison)),
        ("statement", "Privacy statement", promised),
        ("meaning", "What ε and δ mean", meaning_section(ours)),
        ("curve", "ε against δ", curve_section(comparison.privacy)),
        ("numbers", "How far the two fits are apart", summary_section(comparison)),
        ("utility", "Scores against ε", "" if utility is None else utility_section(utility)),
        ("topics", "Topics side by side", topics_section(comparison)),
        ("weights", "Weights side by side", weights_section(comparison)),
        ("marginals", "Posteriors side by side", marginals_section(comparison)),
        ("movers", "Parameters that moved most", movers_section(comparison)),
        ("notes", "Notes", "".join(f"<p>{escape(note)}</p>" for note in comparison.notes)),
    ]  # fmt: skip
    return [section for section in sections if section[2]]


def _fitted(comparison: Comparison) -> str:
    sources = combined(*(label for label in _labels(comparison) if label))
    parts = ", ".join(f"{escape(m.private.name)} ({len(m.difference):,})" for m in comparison.movements)
    rows = [
        ("Model", f"{escape(comparison.model)}. {escape(comparison.summary)}"),
        ("One record", name(comparison.privacy[0].unit)),
        ("Private fit", escape(comparison.private)),
        ("Baseline", escape(comparison.baseline)),
        ("Parameters", parts),
    ]
    return f"{definitions(rows)}\n<p>In words: {escape(paragraph(comparison))} {source_tag(sources)}</p>"


def _labels(comparison: Comparison) -> set[str]:
    return {label for row in comparison.rows for label in (row.source, row.private_source, row.baseline_source)}


def _notice(comparison: Comparison, utility: UtilityCurve | None) -> str:
    """Whether the file may leave the people who may see the records."""
    labels = {comparison.source, *_labels(comparison), *(() if utility is None else (utility.source,))}
    found = {part for label in labels for part in label.split("; ")}
    shown = [label for label in _MEANS if label in found]
    meanings = "\n".join(f"<li>{source_tag(label)} {escape(_MEANS[label])}</li>" for label in shown)
    if found <= {RELEASED, PUBLIC_SCORES, ""}:  # a label that is not known, of a curve made by hand, is no good news
        kind, heading = "fine", "All numbers in this report were computed from released values"
        advice = "They are as private as the fits that released them: see the privacy statement."
    else:
        kind, heading = "warning", "This report holds numbers that are not protected"
        advice = "Keep it as you keep the records. Each number says what it was computed from:"
    broken = "" if comparison.privacy[0].has_guarantee else "<p><strong>The private fit has no guarantee.</strong></p>"
    return (
        f'<aside class="notice {kind}" aria-labelledby="notice-heading">\n<h2 id="notice-heading">{heading}</h2>\n{broken}'
        f"<p>{advice}</p>\n<ul>\n{meanings}\n</ul>\n</aside>"
    )


def _policy(script: str) -> str:
    """No network, and no script but ours: one that came in with a name would not run."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
