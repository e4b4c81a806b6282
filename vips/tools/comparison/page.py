"""A comparison as one HTML file for somebody who has to judge it; needs no network and no library, readable without its script.

Its first page is the certificate of the private fit. The sections follow, each a macro of ``templates/report_sections.html``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jinja2 import Environment

from vips._pages.page import environment, number, write_page
from vips.report import certificate, words
from vips.report.certificate.page import DELTAS, IN_TABLE, cover_view, ledger_view, meaning_view
from vips.report.report import PrivacyReport
from vips.tools.comparison.charts import draw_epsilon, draw_marginals, draw_utility, image
from vips.tools.comparison.curve import NO_GUARANTEE, UtilityCurve
from vips.tools.comparison.curve import PRIVATE as PRIVATE_SCORES
from vips.tools.comparison.curve import PUBLIC as PUBLIC_SCORES
from vips.tools.comparison.movement import Movement, largest
from vips.tools.comparison.text import PRIVATE, RELEASED, X_TEST, combined, paragraph, source_of

if TYPE_CHECKING:
    from vips.core.ledger.ledger import PrivacyLedger
    from vips.tools.comparison.comparison import Comparison

__all__ = ["MEANS", "templates", "topics_view", "utility_view", "write_report"]

MEANS = {
    RELEASED: "computed only from what private fits released: as private as these fits.",
    X_TEST: "also computed from test records, which are not protected.",
    PRIVATE: "computed from training records, or from a fit without a guarantee: it can reveal single records.",
    PUBLIC_SCORES: "scores of private fits on public records.",
    PRIVATE_SCORES: "scores on private records, or of fits without noise: they are not protected.",
    NO_GUARANTEE: "scores of fits whose noise comes from a seed, or whose errors depend on records: they are not protected.",
}
_PARTS = [(certificate.__name__, "certificate.css"), (__package__, "report.css"), (__package__, "report.js")]
_N_MARGINALS, _N_MOVERS, _N_WORDS, _N_UNITS = 12, 50, 10, 40


def write_report(
    comparison: Comparison,
    path: str | os.PathLike,
    utility: UtilityCurve | None = None,
    ledger: PrivacyLedger | None = None,
    **stated: str,
) -> None:
    """Write the report, whole or not at all."""
    ours, theirs = map(source_of, comparison.privacy)
    private = comparison.private[:1].upper() + comparison.private[1:]
    write_page(
        path,
        templates(),
        "report.html",
        _PARTS,
        title=f"Privacy report: {comparison.model}",
        private=private,
        baseline=comparison.baseline,
        cover=_cover(comparison, utility, ledger, **stated),
        notice=_notice(comparison, utility),
        sections=_sections(comparison, utility),
        sources={"private": ours, "baseline": theirs, "both": comparison.source},
    )


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
    labels = {comparison.source, *_labels(comparison), *(() if utility is None else (utility.source,))}
    sources = {part for label in labels for part in label.split("; ")}
    if sources <= {RELEASED, PUBLIC_SCORES, ""}:  # an unknown label, of a curve made by hand, counts as not protected
        kind, heading = "fine", "All numbers in this report were computed from released values"
        advice = "The numbers are as private as the fits that released them: see the privacy statement."
    else:
        kind, heading = "warning", "This report holds numbers that are not protected"
        advice = "Protect the file as you protect the records. Each number is marked with its source."
    fits = zip(("the private fit", "the baseline"), comparison.privacy, comparison.clip_biases, strict=True)
    return {
        "kind": kind,
        "heading": heading,
        "advice": advice,
        "meanings": [(label, meaning) for label, meaning in MEANS.items() if label in sources],
        "clips": [(fit, report.plan.clip_norm) for fit, report, biases in fits if biases],
    }


def _labels(comparison: Comparison) -> set[str]:
    """Sources of all numbers."""
    return {label for row in comparison.rows for label in (row.source, row.private_source, row.baseline_source)}


# -- the sections --------------------------------------------------------------------------------------------------


def _sections(comparison: Comparison, utility: UtilityCurve | None) -> list[tuple[str, str, object]]:
    """The sections that exist for this comparison: id, which also names the macro, heading, and what the macro shows."""
    ours, theirs = comparison.privacy
    promised = {"private": words.sections(ours), "baseline": words.sections(theirs)}
    views = [
        ("fitted", "What was fitted", _fitted(comparison)),
        ("statement", "Privacy statement", promised),
        ("meaning", "What ε and δ mean", meaning_view(ours)),
        ("curve", "ε against δ", _curve_view(comparison.privacy)),
        ("numbers", "How far the two fits are apart", comparison),
        ("utility", "Scores against ε", None if utility is None else utility_view(utility)),
        ("topics", "Topics side by side", topics_view(comparison)),
        ("weights", "Weights side by side", _weights_view(comparison)),
        ("marginals", "Posteriors side by side", _marginals(comparison)),
        ("movers", "Parameters that moved most", _movers_view(comparison)),
        ("notes", "Notes", comparison.notes or None),
    ]
    return [(key, heading, view) for key, heading, view in views if view is not None]


def _fitted(comparison: Comparison) -> dict:
    parameters = ", ".join(f"{m.private.name} ({len(m.difference):,})" for m in comparison.movements)
    source = combined(*(label for label in _labels(comparison) if label))
    return {"comparison": comparison, "parameters": parameters, "words": paragraph(comparison), "source": source}


def _curve_view(reports: Sequence[PrivacyReport]) -> dict | None:
    """ε at other δ, as a chart and a table, for the fits with a guarantee; None if there are none."""
    lines, marks = {}, []
    for kind, report in zip(("private", "baseline"), reports, strict=True):
        if not report.has_guarantee:
            continue
        lines[kind] = [report.epsilon(float(delta)) for delta in DELTAS]
        if report.delta is not None:
            marks.append((kind, report.delta, report.epsilon()))
    if not lines:
        return None
    ends = "; ".join(
        f"{kind}: from {number(curve[0])} at {DELTAS[0]:g} down to {number(curve[-1])} at {DELTAS[-1]:g}"
        for kind, curve in lines.items()
    )
    described = f"Line chart of ε against δ. {ends}. All numbers are in the table below."
    labels = {"private": "ε of the private fit", "baseline": "ε of the baseline"}
    return {
        "chart": draw_epsilon(lines, DELTAS, marks, described),
        "heads": [labels[kind] for kind in lines],
        "rows": [(f"{DELTAS[i]:.0e}", [curve[i] for curve in lines.values()]) for i in range(0, len(DELTAS), IN_TABLE)],
    }


def utility_view(utility: UtilityCurve) -> dict:
    """Scores at several ε: chart and table."""
    scores = list(zip(utility.epsilons, utility.scores, strict=True))
    rows = [(f"ε = {epsilon:g}", repeats) for epsilon, repeats in scores]
    if utility.baseline is not None:
        rows.append(("without noise", utility.baseline))
    described = ", ".join(f"{number(repeats.mean())} at ε {epsilon:g}" for epsilon, repeats in scores)
    n_fits = utility.scores.shape[1]
    return {
        "rows": rows,
        "chart": draw_utility(utility, f"Chart of scores against ε: {described}. All numbers are in the table below."),
        "repeats": "one fit" if n_fits == 1 else f"{n_fits} fits, mean and range,",
        "delta": f"{utility.delta:g}",
        "source": utility.source,
        "has_baseline": utility.baseline is not None,
    }


def topics_view(comparison: Comparison) -> list[dict] | None:
    """Matched topics, shown by their most probable words; None for other models."""
    topics = _part(comparison, "topics")
    if topics is None or comparison.alignment is None:
        return None
    names, fits = topics.private.columns, (topics.private, topics.baseline)
    orders = (np.argsort(-fit.distribution.mean, axis=1, kind="stable")[:, :_N_WORDS] for fit in fits)
    ours, theirs = ([[names[v] for v in row] for row in order] for order in orders)
    distances, divergence = comparison.alignment.distances, comparison.divergences["topics"].kl_private_baseline
    return [
        {
            "number": int(k),
            "private": ours[k],
            "baseline": theirs[k],
            "numbers": [len(set(ours[k]) & set(theirs[k])), distances[k], divergence[k]],
        }
        for k in np.argsort(-distances, kind="stable")
    ]


def _weights_view(comparison: Comparison) -> dict | None:
    """Weights of matched hidden units as images; None for other models, and if the number of columns is not a square."""
    weights = _part(comparison, "weights")
    side = 0 if weights is None else math.isqrt(len(weights.private.columns))
    if weights is None or comparison.alignment is None or side < 2 or side**2 != len(weights.private.columns):
        return None
    ours, theirs = (part.distribution.mean.T for part in (weights.private, weights.baseline))
    columns, distances = weights.private.columns, comparison.alignment.distances
    chosen = np.argsort(-distances, kind="stable")[:_N_UNITS]
    # otherwise a few extreme weights would make the others invisible
    largest = float(np.quantile(np.abs([ours, theirs]), 0.99))
    units = [
        {
            "number": int(k),
            "distance": distances[k],
            "images": [
                (image(rows[k].reshape(side, side), largest), f"{fit}, {_weights_in_words(rows[k], columns)}")
                for fit, rows in (("Private fit", ours), ("Baseline", theirs))
            ],
        }
        for k in chosen
    ]
    which = "" if len(chosen) == len(ours) else f"the {len(chosen)} of {len(ours)} that are furthest apart, "
    return {"units": units, "which": which, "side": side, "largest": largest}


def _marginals(comparison: Comparison) -> list[tuple]:
    """The parameters that moved most, each with the curves of both fits."""
    shown = []
    for place, (movement, index) in enumerate(largest(comparison.movements, _N_MARGINALS)):
        mover = movement.mover(index, comparison.source)
        described = (
            f"Two curves. Private fit: mean {number(mover.private)}, standard deviation {number(mover.private_std)}. "
            f"Baseline: mean {number(mover.baseline)}, standard deviation {number(mover.baseline_std)}."
        )
        shown.append((mover, draw_marginals(*movement.marginals(index), described, f"marginal-{place}")))
    return shown


def _movers_view(comparison: Comparison) -> dict:
    movers, n_all = comparison.movers(_N_MOVERS), sum(len(movement.difference) for movement in comparison.movements)
    every = n_all == len(movers)
    which = f"All {n_all} parameters" if every else f"The {len(movers)} of {n_all:,} parameters that moved most"
    return {"movers": movers, "which": which}


def _part(comparison: Comparison, title: str) -> Movement | None:
    return next((movement for movement in comparison.movements if movement.private.name == title), None)


def _weights_in_words(row: np.ndarray, columns: list[str]) -> str:
    low, high = int(np.argmin(row)), int(np.argmax(row))
    return f"weights from {number(row[low])} at {columns[low]} to {number(row[high])} at {columns[high]}"
