"""The rows of a comparison, and the curve of scores against ε, as tables and charts."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from vips.compare._report.charts import draw_utility
from vips.compare._report.text import Cell, number, sortable_table, source_tag
from vips.compare.curve import UtilityCurve

if TYPE_CHECKING:
    from vips.compare.comparison import Comparison

__all__ = ["summary_section", "utility_section"]


def summary_section(comparison: Comparison) -> str:
    """All rows: each number with its interval and what it was computed from."""
    rows = [
        (
            escape(row.quantity),
            [
                Cell.of(row.private, row.private_source, row.private_interval),
                Cell.of(row.baseline, row.baseline_source, row.baseline_interval),
                Cell.of(row.value, row.source, row.interval),
            ],
        )
        for row in comparison.rows
    ]
    caption = (
        "Everything that was compared. The last column is private less baseline, or a number of the pair; below a number stand "
        f"its {100.0 * comparison.level:g} % bootstrap interval, if it has one, and what it was computed from."
    )
    return sortable_table("summary-table", caption, ("quantity", "private fit", "baseline", "value"), rows)


def utility_section(utility: UtilityCurve) -> str:
    """Scores at several ε: chart and table."""
    rows = [
        (f"ε = {epsilon:g}", [Cell.of(own.mean()), Cell.of(own.min()), Cell.of(own.max())])
        for epsilon, own in zip(utility.epsilons, utility.scores, strict=True)
    ]
    if utility.baseline is not None:
        own = utility.baseline
        rows.append(("without noise", [Cell.of(own.mean()), Cell.of(own.min()), Cell.of(own.max())]))
    described = ", ".join(
        f"{number(own.mean())} at ε {epsilon:g}" for epsilon, own in zip(utility.epsilons, utility.scores, strict=True)
    )
    chart = draw_utility(utility, f"Chart of scores against ε: {described}. All numbers are in the table below.")
    n_fits = utility.scores.shape[1]
    repeats = "one fit" if n_fits == 1 else f"{n_fits} fits, mean and range,"
    dashed = "" if utility.baseline is None else " The dashed line is the mean without noise."
    caption = f"Scores of {repeats} at each ε, δ = {utility.delta:g} {source_tag(utility.source)}"
    table = sortable_table("utility-table", caption, ("fit", "mean", "lowest", "highest"), rows)
    return (
        "<p>What a model of this kind is worth at other ε. Every one of these fits is a release of its own, with an ε of its "
        f'own.{dashed} {source_tag(utility.source)}</p>\n<figure class="wide">{chart}</figure>\n{table}'
    )
