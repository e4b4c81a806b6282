"""The place of a release in a ledger, through which its totals are released."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from vips.core.ledger.book import Book
from vips.core.ledger.pricing import Statement
from vips.core.ledger.reader import append_entries
from vips.core.mechanism.release import Mechanism, with_fresh_noise
from vips.core.plan import PrivacyPlan
from vips.core.plan_phases import weight_of_step

if TYPE_CHECKING:
    from vips.core.ledger import PrivacyLedger

__all__ = ["LedgerRun"]


class LedgerRun:
    """One fit's place in a ledger; or that of another event, which has one step.

    Create it before charging it: even if the charge is interrupted, ``close`` can then give back unreleased steps.

    Parameters
    ----------
    ledger : PrivacyLedger or None
        None: nothing is charged, and nothing is recorded.
    run : str, optional
        Name of a run to be resumed; a new name by default.

    Guarantees
    ----------
    The ledger has a step on record, durably, before its noise is drawn. So whatever interrupts a fit, no noisy total is given
    back that a debugger could show.
    """

    def __init__(self, ledger: PrivacyLedger | None, run: str | None = None) -> None:
        self.ledger, self.run = ledger, run or uuid.uuid4().hex
        self._attempt: int | None = None  # until this object has charged or resumed the run
        self._is_finished = False
        self._pays_for: PrivacyPlan | None = None
        self._before = 0
        self._whole: PrivacyPlan | None = None

    @property
    def _opened(self) -> PrivacyLedger:
        assert self.ledger is not None, "nothing is charged"
        return self.ledger

    def part(self, plan: PrivacyPlan, whole: PrivacyPlan, before: int = 0) -> Self:
        """Its steps after the first ``before``, for one release with this very plan object; ``whole`` is what was charged."""
        part = type(self)(self.ledger, self.run)
        part._attempt, part._pays_for, part._before, part._whole = self._attempt, plan, before, whole
        return part

    def pays_for(self, plan: object) -> bool:
        """Whether a fit with this plan object is paid for; then it is used up: code in the fit may fit again."""
        pays_for, self._pays_for = self._pays_for, None
        return pays_for is not None and pays_for is plan

    def begin(self) -> None:
        """Go on with the first step of a fit that is paid for."""
        if self.ledger is not None and self._attempt is None:
            self.resume(0, cast(PrivacyPlan, self._whole))

    def repeated_steps(self, plan: PrivacyPlan) -> float:
        """Steps of a fit with this plan that were released twice, by their weights in it: charged beyond the whole."""
        run = self._opened.run(self.run)
        beyond = max(Fraction(0), run.charged - run.weight_after(0))
        if self._whole is None:
            return float(beyond)
        steps = float(beyond * Fraction(weight_of_step(plan.phases, 1)) / run.weight_of(self._before + 1))
        return steps if plan.phases else round(steps)

    @property
    def entry(self) -> dict | None:
        """What a report says about the ledger."""
        return None if self.ledger is None else self.ledger.entry(self.run)

    def charge(self, statement: Statement, what: str, unit: str | None, is_released: bool = False) -> None:
        """See :meth:`PrivacyLedger.charge` and :meth:`PrivacyLedger.charge_event`."""
        ledger = self._opened
        statement.price(ledger.remaining())  # which may take a second, before the file is locked
        named = what, unit, ledger.purpose
        append_entries(ledger, lambda book: book.charging(self.run, statement, *named, is_released), self._admitted)

    def resume(self, step: int, plan: PrivacyPlan) -> None:
        """See :meth:`PrivacyLedger.resume`."""
        whole = self._whole or plan
        append_entries(self._opened, lambda book: book.resuming(self.run, self._before + step, whole), self._admitted)

    def release(self, mechanism: Mechanism, total: Mapping[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
        """The total of one step of a fit, with the noise of ``mechanism``."""
        self.record(step)
        return mechanism.release(total, step)

    def release_once(self, plan: PrivacyPlan, totals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """``totals`` of another event with fresh noise of ``plan``; it may consist of several such draws."""
        self.finish()
        return with_fresh_noise(plan, totals)

    def finish(self) -> None:
        """Record an event that is not a fit. From now on nothing of it is given back."""
        if not self._is_finished:
            self.record(1)
            self._is_finished = True

    def record(self, step: int) -> None:
        """See :meth:`PrivacyLedger.release`."""
        if self.ledger is not None:
            self.ledger.release(self.run, cast(int, self._attempt), self._before + step)

    def close(self) -> None:
        """Give back unreleased steps, unless the run was never charged, or has been resumed elsewhere since."""

        def closing(book: Book) -> list[dict]:  # in the clerk's thread, after a charge whose caller was interrupted
            return [] if self._attempt is None else book.closing(self.run, self._attempt)

        if self.ledger is not None:
            append_entries(self.ledger, closing)

    def _admitted(self, book: Book) -> None:
        self._attempt = book.run(self.run).attempt
