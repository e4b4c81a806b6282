"""The charge of an encoder's release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vips.privacy import PrivacyPlan
from vips.privacy.ledger.ledger import PrivacyLedger
from vips.privacy.ledger.run import LedgerRun

__all__ = ["Charge", "charged"]


class Charge:
    """A charge that is given back after an error, unless the noise has been drawn."""

    def __init__(self, ledger: PrivacyLedger | None, run: LedgerRun | None) -> None:
        self._run = run
        self.entry = None if run is None else {"dataset": ledger.dataset, "run": run.run}

    def release(self) -> None:
        """Called before noise is drawn, each time: from now on nothing is given back."""
        run, self._run = self._run, None
        if run is not None:
            run.release(1)


@contextmanager
def charged(ledger: PrivacyLedger | None, what: str, unit: str, plan: PrivacyPlan, delta: float) -> Iterator[Charge]:
    """Charge a release of ``plan`` and an outright ``delta`` before the block. It calls :meth:`Charge.release` before it draws
    noise; an error before that gives all back."""
    run = None
    try:
        if ledger is not None:
            run = ledger.begin_event(what, unit=unit, relation=plan.relation, event=plan, delta=delta)
        charge = Charge(ledger, run)
        yield charge
        charge.release()
    except BaseException:
        if run is not None:
            run.close()
        raise
