"""What a private classifier did to the data: tables and regression, in words, and as one release for a ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from vips._printable import shortened
from vips.classification.columns import ColumnCells
from vips.preprocessing._budget import Budget
from vips.preprocessing._encoder_report import EncoderReport
from vips.preprocessing._pipeline_report import beside_an_encoder
from vips.privacy import PrivacyPlan, PrivacyReport

__all__ = ["as_one", "statement_of_regression", "statement_of_tables"]


def as_one(budget: Budget) -> PrivacyPlan:
    """Tables and regression as one release of a Gaussian mechanism: 1/σ² adds up."""
    inverse = sum(plan.n_steps / plan.noise_multiplier**2 for plan in (budget.encoder, budget.fit))
    return replace(budget.encoder, noise_multiplier=1.0 / math.sqrt(inverse), clip_norm=None)


def statement_of_tables(
    stated: Mapping[object, ColumnCells | str], budget: Budget, unit: str, entry: dict | None
) -> EncoderReport:
    """The statement of the tables alone.

    Parameters
    ----------
    stated : mapping
        Cells of declared columns, or what to learn.
    entry : dict or None
        The ledger's.
    """
    names = shortened([str(name) for name in stated])
    released = (
        "numbers of records of each class",
        f"numbers of each class by cells of {len(stated)} columns ({names})",
    )
    if "category" in stated.values():
        released = (*released, "their frequent categories")
    declared = tuple(f"{name}: {_in_words(cells)}" for name, cells in stated.items() if isinstance(cells, ColumnCells))
    return EncoderReport(budget.encoder, budget.threshold_delta or 0.0, unit, released, declared, entry)


def statement_of_regression(report: PrivacyReport, entry: dict | None) -> PrivacyReport:
    """The regression's own statement: it says that it leaves the tables out, and which charge has paid for both."""
    report = beside_an_encoder(report, ())
    return report if entry is None else replace(report, ledger=entry | {"charged_steps": report.plan.n_steps})


def _in_words(cells: ColumnCells) -> str:
    if cells.kind == "category":
        return f"categories {shortened([str(category) for category in cells.categories])}"
    return f"[{cells.edges[0]:g}, {cells.edges[-1]:g}]"
