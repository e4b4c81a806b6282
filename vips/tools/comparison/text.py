"""A comparison in words. Names may come from files: control characters are shown as escapes, to protect terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vips._support.printable import printable
from vips.tools.comparison.movement import largest

if TYPE_CHECKING:
    from vips.report.report import PrivacyReport
    from vips.tools.comparison.comparison import Comparison, Row

__all__ = [
    "HEADS", "PRIVATE", "RELEASED", "X_TEST", "combined", "notes", "paragraph", "source_of", "table", "table_cells",
]  # fmt: skip

# Sources of numbers: the data from which they were computed.
RELEASED = "released"
X_TEST = "X_test: not protected"
PRIVATE = "private data"

HEADS = "", "private", "baseline", "value", "computed from"


def source_of(report: PrivacyReport) -> str:
    """Source of a fit's numbers: private data, unless the fit has a guarantee."""
    return RELEASED if report.has_guarantee else PRIVATE


def combined(*sources: str) -> str:
    """Source of a number that is computed from several sources: all those that are not "released"."""
    parts = {part for source in sources for part in source.split("; ")}
    return "; ".join(source for source in (PRIVATE, X_TEST) if source in parts) or RELEASED


def paragraph(comparison: Comparison) -> str:
    """A paragraph that a reader can quote, which also says what must not be published."""
    movements = comparison.movements
    (movement, place), n_parameters = largest(movements, 1)[0], sum(len(movement.difference) for movement in movements)
    after, before = (means[place] for means in movement.means)
    says = [f"{comparison.model}: {comparison.private} against {comparison.baseline}."]
    if comparison.alignment is not None:
        n, distances = len(comparison.alignment.order), comparison.alignment.distances
        says.append(f"{n} components were matched, at distances of {distances.mean():.2g} on average.")
    if after == before:
        says.append(f"None of the {n_parameters:,} posterior means differs.")
    else:
        says.append(
            f"Of {n_parameters:,} posterior means, the one that moved most is {movement.name(place)}, from {before:.3g} to "
            f"{after:.3g}, by {abs(movement.standardized[place]):.2g} pooled posterior standard deviations."
        )
    says += [_score(row, comparison.level) for row in comparison.rows if X_TEST in row.private_source]
    for row in comparison.rows:
        if row.quantity.startswith("share") and " in the shift of " in row.quantity and math.isfinite(row.value):
            says.append(f"The {row.quantity} is {100.0 * row.value:.0f} %.")
    says.append(_provenance(comparison.rows))
    return printable(" ".join(says))


def notes(comparison: Comparison) -> list[str]:
    """The notes, one line each."""
    return [f"Note: {printable(note)}" for note in comparison.notes]


def table(rows: Sequence[Row]) -> str:
    """Quantity, both models' numbers, the value and its source, in columns."""
    lines = [HEADS, *map(table_cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(line[i].rjust(widths[i]) for i in (1, 2, 3)), line[4]]) for line in lines
    )


def table_cells(row: Row) -> tuple[str, ...]:
    """Cells of one row, in the columns ``HEADS``."""
    numbers = (_number(value) for value in (row.private, row.baseline, row.value))
    return printable(row.quantity), *numbers, printable(row.source)


def _score(row: Row, level: float) -> str:
    lower, upper = row.interval
    return (
        f"On X_test, {row.quantity}: {row.private:.4g} against {row.baseline:.4g}, a difference of {row.value:.2g} "
        f"({100.0 * level:g} % bootstrap interval {lower:.2g} to {upper:.2g})."
    )


def _provenance(rows: Sequence[Row]) -> str:
    n_private = sum(PRIVATE in row.source for row in rows)
    n_test = sum(X_TEST in row.source for row in rows)
    if not n_private and not n_test:
        return "All numbers were computed from released values."
    says = []
    if n_private:
        says.append(
            f"{n_private} of {len(rows)} rows were computed from private data (training records, or a fit without a guarantee, "
            "which can reveal its records): protect them as you protect the records."
        )
    if n_test:
        says.append(f"{n_test} rows use X_test, which is not protected.")
    return " ".join(says)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
