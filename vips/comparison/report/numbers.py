"""Values for ``numbers.html``, ``curve.html`` and ``utility.html``: rows of a comparison, ε against δ, scores against ε."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vips._pages.text import Cell, number
from vips.comparison.curve import UtilityCurve
from vips.comparison.report.charts import draw_epsilon, draw_utility
from vips.report.certificate.page import DELTAS, IN_TABLE
from vips.report.report import PrivacyReport

if TYPE_CHECKING:
    from vips.comparison.comparison import Comparison

__all__ = ["curve_view", "summary_view", "utility_view"]


def summary_view(comparison: Comparison) -> dict:
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


def curve_view(reports: Sequence[PrivacyReport]) -> dict | None:
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
