"""The place of a fit, or of another event, in a ledger."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from vips.privacy.ledger.book import Book
from vips.privacy.ledger.pricing import Statement
from vips.privacy.plan import PrivacyPlan

if TYPE_CHECKING:
    from vips.privacy.ledger import PrivacyLedger

__all__ = ["LedgerRun"]


class LedgerRun:
    """One fit's place in a ledger, used by ``fit``; or that of another event, which has one step.

    Create it before charging it: even if the charge is interrupted, ``close`` can then give back unreleased steps.

    Parameters
    ----------
    ledger : PrivacyLedger
    run : str, optional
        Name of a run to be resumed; a new name by default.
    """

    def __init__(self, ledger: PrivacyLedger, run: str | None = None) -> None:
        self.ledger, self.run = ledger, run or uuid.uuid4().hex
        self._attempt: int | None = None  # until this object has charged or resumed the run

    def charge(self, statement: Statement, what: str, unit: str | None, is_released: bool = False) -> None:
        """See :meth:`PrivacyLedger.charge` and :meth:`PrivacyLedger.charge_event`."""
        statement.price(self.ledger.remaining())  # which may take a second, before the file is locked
        named = what, unit, self.ledger.purpose
        self.ledger._append(lambda book: book.charging(self.run, statement, *named, is_released), self._admitted)

    def resume(self, step: int, plan: PrivacyPlan) -> None:
        """See :meth:`PrivacyLedger.resume`."""
        self.ledger._append(lambda book: book.resuming(self.run, step, plan), self._admitted)

    def release(self, step: int) -> None:
        """See :meth:`PrivacyLedger.release`."""
        self.ledger.release(self.run, self._attempt, step)

    def close(self) -> None:
        """Give back unreleased steps, unless the run was never charged, or has been resumed elsewhere since."""

        def closing(book: Book) -> list[dict]:  # in the clerk's thread, after a charge whose caller was interrupted
            return [] if self._attempt is None else book.closing(self.run, self._attempt)

        self.ledger._append(closing)

    def _admitted(self, book: Book) -> None:
        self._attempt = book.run(self.run).attempt
