"""Values for ``numbers.html`` and ``utility.html``: the rows of a comparison, and the curve of scores against ε."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vips.comparison.curve import UtilityCurve
from vips.comparison.report.charts import draw_utility
from vips.comparison.report.text import Cell, number

if TYPE_CHECKING:
    from vips.comparison.comparison import Comparison

__all__ = ["summary_view", "utility_view"]


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


def utility_view(utility: UtilityCurve | None) -> dict | None:
    """Scores at several ε: chart and table; None without a curve."""
    if utility is None:
        return None
    scores = list(zip(utility.epsilons, utility.scores, strict=True))
    rows = [(f"ε = {epsilon:g}", _spread(own)) for epsilon, own in scores]
    if utility.baseline is not None:
        rows.append(("without noise", _spread(utility.baseline)))
    described = ", ".join(f"{number(own.mean())} at ε {epsilon:g}" for epsilon, own in scores)
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
