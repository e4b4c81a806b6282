"""The sections of the page, and the values for their templates: None if a comparison has no such section."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vips._pages.page import Cell, number
from vips.report import words
from vips.report.certificate.page import DELTAS, IN_TABLE, meaning_view
from vips.report.report import PrivacyReport
from vips.tools.comparison.curve import UtilityCurve
from vips.tools.comparison.movement import Movement, largest
from vips.tools.comparison.report.charts import draw_epsilon, draw_marginals, draw_utility, image
from vips.tools.comparison.text import PRIVATE, RELEASED, combined, paragraph

if TYPE_CHECKING:
    from vips.tools.comparison.comparison import Comparison

__all__ = ["labels_of", "sections", "topics_view", "utility_view"]

_N_MARGINALS, _N_MOVERS, _N_WORDS, _N_UNITS = 12, 50, 10, 40


def sections(comparison: Comparison, utility: UtilityCurve | None) -> list[tuple[str, str, dict]]:
    """The sections that exist for this comparison: id, which also names the template, heading, and values for the template."""
    ours, theirs = comparison.privacy
    promised = {"private": words.sections(ours), "baseline": words.sections(theirs)}
    views = [
        ("fitted", "What was fitted", _fitted(comparison)),
        ("statement", "Privacy statement", promised),
        ("meaning", "What ε and δ mean", meaning_view(ours)),
        ("curve", "ε against δ", _curve_view(comparison.privacy)),
        ("numbers", "How far the two fits are apart", _summary_view(comparison)),
        ("utility", "Scores against ε", utility_view(utility)),
        ("topics", "Topics side by side", topics_view(comparison)),
        ("weights", "Weights side by side", _weights_view(comparison)),
        ("marginals", "Posteriors side by side", _marginals_view(comparison)),
        ("movers", "Parameters that moved most", _movers_view(comparison)),
        ("notes", "Notes", {"notes": comparison.notes} if comparison.notes else None),
    ]
    return [(key, heading, view) for key, heading, view in views if view is not None]


def _fitted(comparison: Comparison) -> dict:
    return {
        "model": comparison.model,
        "summary": comparison.summary,
        "unit": comparison.privacy[0].unit,
        "private": comparison.private,
        "baseline": comparison.baseline,
        "parameters": ", ".join(f"{m.private.name} ({len(m.difference):,})" for m in comparison.movements),
        "words": paragraph(comparison),
        "source": combined(*(label for label in labels_of(comparison) if label)),
    }


def labels_of(comparison: Comparison) -> set[str]:
    """Sources of all numbers."""
    return {label for row in comparison.rows for label in (row.source, row.private_source, row.baseline_source)}


def _summary_view(comparison: Comparison) -> dict:
    """All rows: each number with its interval and its source."""
    rows = [
        (
            row.quantity,
            [
                Cell(row.private, row.private_source, row.private_interval),
                Cell(row.baseline, row.baseline_source, row.baseline_interval),
                Cell(row.value, row.source, row.interval),
            ],
        )
        for row in comparison.rows
    ]
    return {"rows": rows, "level": f"{100.0 * comparison.level:g}"}


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


def utility_view(utility: UtilityCurve | None) -> dict | None:
    """Scores at several ε: chart and table; None without a curve."""
    if utility is None:
        return None
    scores = list(zip(utility.epsilons, utility.scores, strict=True))
    rows = [(f"ε = {epsilon:g}", _spread(repeats)) for epsilon, repeats in scores]
    if utility.baseline is not None:
        rows.append(("without noise", _spread(utility.baseline)))
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


def _spread(scores: np.ndarray) -> list[Cell]:
    return [Cell(scores.mean()), Cell(scores.min()), Cell(scores.max())]


# -- both posteriors side by side ----------------------------------------------------------------------------------


def _movers_view(comparison: Comparison) -> dict:
    """The table of the parameters that moved most."""
    movers = comparison.movers(_N_MOVERS)
    rows = [
        (
            mover.name,
            [
                Cell(value)
                for value in (
                    mover.private, mover.private_std, mover.baseline, mover.baseline_std, mover.difference,
                    mover.standardized, mover.wasserstein,
                )
            ],
        )
        for mover in movers
    ]  # fmt: skip
    return _sources(comparison) | {"rows": rows, "which": _which(rows, comparison.movements)}


def _marginals_view(comparison: Comparison) -> dict:
    """Overlaid marginals of the parameters that moved most."""
    figures = [
        _marginal(comparison, movement, index, place)
        for place, (movement, index) in enumerate(largest(comparison.movements, _N_MARGINALS))
    ]
    return _sources(comparison) | {"figures": figures}


def topics_view(comparison: Comparison) -> dict | None:
    """Matched topics, shown by their most probable words; None for other models."""
    topics = _part(comparison, "topics")
    if topics is None or comparison.alignment is None:
        return None
    words = topics.private.columns
    ours, theirs = (_top(part.distribution.mean, words) for part in (topics.private, topics.baseline))
    distances, divergence = comparison.alignment.distances, comparison.divergences["topics"].kl_private_baseline
    rows = [
        {
            "number": int(k),
            "private": [(word, word in theirs[k]) for word in ours[k]],
            "baseline": [(word, word in ours[k]) for word in theirs[k]],
            "cells": [Cell(len(set(ours[k]) & set(theirs[k]))), Cell(distances[k]), Cell(divergence[k])],
        }
        for k in np.argsort(-distances, kind="stable")
    ]
    return _sources(comparison) | {"topics": rows, "n_words": len(ours[0])}


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
    return _sources(comparison) | {"units": units, "which": which, "side": side, "largest": largest}


def _which(rows: Sequence, movements: Sequence[Movement]) -> str:
    n_all = sum(len(movement.difference) for movement in movements)
    if n_all == len(rows):
        return f"All {n_all} parameters"
    return f"The {len(rows)} of {n_all:,} parameters that moved most"


def _marginal(comparison: Comparison, movement: Movement, index: int, place: int) -> dict:
    """One figure: curves of both fits."""
    means_and_stds = [values[index] for values in (*movement.means, *movement.stds)]
    mean, other, std, other_std = map(float, means_and_stds)
    described = (
        f"Two curves. Private fit: mean {number(mean)}, standard deviation {number(std)}. "
        f"Baseline: mean {number(other)}, standard deviation {number(other_std)}."
    )
    chart = draw_marginals(*movement.marginals(index), described, f"marginal-{place}")
    return {"chart": chart, "name": movement.name(index), "private": mean, "baseline": other}


def _sources(comparison: Comparison) -> dict[str, str]:
    """Sources of numbers from the private fit alone, from the baseline alone, and from both."""
    ours, theirs = (RELEASED if report.has_guarantee else PRIVATE for report in comparison.privacy)
    return {"private": ours, "baseline": theirs, "both": comparison.source}


def _part(comparison: Comparison, title: str) -> Movement | None:
    return next((movement for movement in comparison.movements if movement.private.name == title), None)


def _top(means: np.ndarray, words: list[str]) -> list[list[str]]:
    """The most probable words of each topic."""
    n_words = min(_N_WORDS, len(words))
    return [[words[v] for v in np.argsort(-row, kind="stable")[:n_words]] for row in means]


def _weights_in_words(row: np.ndarray, columns: list[str]) -> str:
    low, high = int(np.argmin(row)), int(np.argmax(row))
    return f"weights from {number(row[low])} at {columns[low]} to {number(row[high])} at {columns[high]}"
