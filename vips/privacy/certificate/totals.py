"""What fits of the same records cost together: as their ledger counts it, and by composing the plans of the fits at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vips.privacy.accounting import composed_epsilon
from vips.privacy.ledger.ledger import PrivacyLedger
from vips.privacy.meaning import success

if TYPE_CHECKING:
    from vips.privacy.report import PrivacyReport

__all__ = ["check_ledger", "distinct", "ledger_view", "together_view"]


def check_ledger(ledger: object) -> None:
    """Raise TypeError unless ``ledger`` is a ledger or None."""
    if ledger is not None and not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"`ledger` must be a PrivacyLedger or None, got {type(ledger).__name__}.")


def ledger_view(ledger: PrivacyLedger | None, reports: Sequence[PrivacyReport]) -> dict:
    """What the ledger has counted, and which of the fits it does not count.

    Parameters
    ----------
    ledger : PrivacyLedger or None
    reports : sequence of PrivacyReport
        The fits that are shown.
    """
    entries = [report.ledger for report in reports]
    if ledger is None:
        return {"total": None, "entry": next((entry for entry in entries if entry is not None), None)}
    runs = {run.run for run in ledger.runs()}
    spent = ledger.spent()
    return {
        "total": spent,
        "entry": None,
        "dataset": ledger.dataset,
        "unit": ledger.unit,
        "budget": ledger.epsilon,
        "delta": f"{ledger.delta:g}",
        "n_runs": len(runs),
        "n_missing": sum(entry is None or entry["run"] not in runs for entry in entries),
        "success": success(spent, ledger.delta),
    }


def together_view(reports: Sequence[PrivacyReport], n_unknown: int = 0) -> dict | None:
    """ε of everything that was fitted for a page, as if all of it were of the same records; None for a single fit.

    Parameters
    ----------
    reports : sequence of PrivacyReport
    n_unknown : int
        Number of further fits whose statements are not known.
    """
    reports = distinct(reports)
    counted = [report for report in reports if report.has_guarantee]
    if not counted or len(counted) + n_unknown < 2:
        return None
    kinds = {(report.unit, report.plan.relation) for report in counted}
    deltas = [report.plan.report_delta for report in counted if report.plan.report_delta is not None]
    view = {
        "n": len(counted),
        "n_without": len(reports) - len(counted),
        "n_unknown": n_unknown,
        "epsilon": None,
        "is_one_kind": len(kinds) == 1,
    }
    charges = [report.charges() for report in counted]
    remaining_delta = max(deltas, default=0.0) - sum(outright for _, outright in charges)
    if len(kinds) > 1 or not remaining_delta > 0.0:
        return view
    epsilon = composed_epsilon([plan for plans, _ in charges for plan in plans], remaining_delta)
    return view | {
        "epsilon": epsilon,
        "delta": f"{max(deltas):g}",
        "how": "privacy loss distributions",
        "success": success(epsilon, max(deltas)),
    }


def distinct(reports: Sequence[PrivacyReport]) -> list[PrivacyReport]:
    """Without repetitions of one fit, which the name of its run in a ledger reveals; other fits all count."""
    runs, kept = set(), []
    for report in reports:
        run = None if report.ledger is None else report.ledger["run"]
        if run is None or run not in runs:
            kept.append(report)
        runs.add(run)
    return kept
