"""The charge of an encoder's release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vips.privacy import PrivacyPlan
from vips.privacy.ledger.ledger import PrivacyLedger

__all__ = ["charged"]


@contextmanager
def charged(
    ledger: PrivacyLedger | None, what: str, unit: str, plan: PrivacyPlan, delta: float
) -> Iterator[dict[str, str] | None]:
    """Charge a release of ``plan`` and an outright ``delta`` before the block, which draws the noise; an error in it gives all
    back. Yields the report's entry, None without a ledger."""
    if ledger is None:
        yield None
        return
    run = ledger.begin_event(what, unit=unit, relation=plan.relation, event=plan, delta=delta)
    try:
        yield {"dataset": ledger.dataset, "run": run.run}
        run.release(1)
    except BaseException:
        run.close()
        raise
