"""The privacy report of a private encoder: what it learnt, and how."""

from __future__ import annotations

from collections.abc import Mapping

from vips._support.printable import listed
from vips.core.plan import PrivacyPlan
from vips.preprocessing._encoder_file import SavableEncoder
from vips.report.fingerprint import as_bytes, fingerprint_of
from vips.report.report import PrivacyReport, Release

__all__ = ["counted_cells", "released_texts", "report_of_encoder", "saved_facts"]

_LONGEST_UNIT = 10_000  # characters


def report_of_encoder(
    encoder: SavableEncoder,
    plan: PrivacyPlan,
    threshold_delta: float,
    unit: str,
    released: tuple[str, ...],
    declared: tuple[str, ...],
    mechanism: str,
    ledger: dict | None,
) -> PrivacyReport:
    """The report of one release by a fitted encoder; for further arguments see :class:`vips.privacy.Release`."""
    release = Release(
        what="encoder", plan=plan, released=released, declared=declared, mechanism=mechanism, threshold_delta=threshold_delta,
        ledger=ledger, sha256=fingerprint_of(lambda: {"learnt": as_bytes(encoder.learnt_to_json())}),
    )  # fmt: skip
    return PrivacyReport((release,), unit, preprocessing="not stated")


def saved_facts(
    values: object, plan: PrivacyPlan, threshold_delta: float, of_budget: bool
) -> tuple[float, str, dict | None]:
    """δ of the threshold, unit and ledger's entry of a saved report; ValueError unless its plan and threshold are those of the
    settings. For a budget, a ledger may have had less for the threshold."""
    report = PrivacyReport.from_json(values)
    delta = report.releases[0].threshold_delta
    is_stated = len(report.releases) == 1 and len(report.unit) <= _LONGEST_UNIT
    is_allowed = 0.0 < delta <= threshold_delta if of_budget and threshold_delta else delta == threshold_delta
    if not is_stated or report.plan != plan or not is_allowed:
        raise ValueError("its statement is not that of its settings")
    return delta, report.unit, report.ledger


def counted_cells(plan: PrivacyPlan, threshold_delta: float, columns: str = "all columns that are learnt") -> str:
    """How cells of columns were counted, in one sentence."""
    rare = f"; a category of one record alone is released with probability at most {threshold_delta:g}"
    return (
        f"noisy counts of the cells of {columns}, together of L2 norm {plan.clip_norm:.4g} for a record; "
        f"Gaussian noise of standard deviation {plan.noise_std():.4g} on each (noise multiplier "
        f"{plan.noise_multiplier:.4g}){rare if threshold_delta else ''}"
    )


def released_texts(kinds: Mapping, unread: Mapping) -> tuple[str, ...]:
    """What is learnt about columns of these kinds, of which noisy shares of cells could not be read."""
    names = {
        "bounds": [str(name) for name, kind in kinds.items() if kind in ("number", "date")],
        "categories": [str(name) for name, kind in kinds.items() if kind == "category"],
    }
    shares = [f"about {share:.0%} of {name}" for name, share in unread.items()]
    texts = (
        f"{what} of {len(columns)} column{'s' * (len(columns) > 1)} ({listed(columns)})"
        for what, columns in names.items()
        if columns
    )
    return *texts, *([f"how many cells could not be read ({listed(shares)})"] if shares else ())
