"""The charge of a release that is not a fit: of an encoder, or of a count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from vips.exceptions import LedgerError, PrivacyBudgetError
from vips.privacy.ledger.ledger import PrivacyLedger, current_ledger
from vips.privacy.ledger.run import LedgerRun
from vips.privacy.mechanism.release import release_once
from vips.privacy.plan import PrivacyPlan

__all__ = ["Charge", "charged", "delta_for_threshold", "ledger_to_charge"]

THRESHOLD_SHARE = 1.0 / 10.0
_LEAST_DELTA = 1e-100


class Charge:
    """One release that is not a fit, in one draw of noise or several: given back after an error, unless a draw has begun."""

    def __init__(self, ledger: PrivacyLedger | None, run: LedgerRun | None) -> None:
        self._run = run
        self.entry = None if run is None else ledger.entry(run.run)

    def release(self, plan: PrivacyPlan, totals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """``totals`` with fresh noise of ``plan``. The ledger has it on record before noise is drawn."""
        self.finish()
        return release_once(plan, totals)

    def finish(self) -> None:
        """From now on nothing is given back."""
        run, self._run = self._run, None
        if run is not None:
            run.release(1)


def ledger_to_charge(ledger: PrivacyLedger | None, *sent: object) -> PrivacyLedger | None:
    """``ledger``, or that of the scope that encloses the call, if any; ``sent`` as for :func:`current_ledger`.

    Raises
    ------
    TypeError, LedgerError
        If ``ledger`` is none, or another one than the scope's.
    """
    if ledger is not None and not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"`ledger` must be a PrivacyLedger or None, got {type(ledger).__name__}.")
    enclosing = current_ledger(*sent)
    if ledger is not None and enclosing is not None and ledger.identity != enclosing.identity:
        raise LedgerError(
            f"`ledger` is {ledger.path}, but the fit belongs to a scope `with` {enclosing.path}: charge one of them."
        )
    return ledger or enclosing


def delta_for_threshold(delta_0: float, ledger: PrivacyLedger | None) -> float:
    """δ of a threshold: what a budget holds for it, but at most a tenth of what is left in the ledger.

    Raises
    ------
    PrivacyBudgetError
        If nothing is left.
    """
    delta = delta_0 if ledger is None else min(delta_0, THRESHOLD_SHARE * ledger.remaining().delta_0)
    if not delta > _LEAST_DELTA:
        raise PrivacyBudgetError(
            "No δ is left for a threshold, so that no category or word could be learnt. Nothing was charged. Declare the "
            "categories as a list, or the words as a `vocabulary`."
        )
    return delta


@contextmanager
def charged(
    ledger: PrivacyLedger | None, what: str, unit: str, relation: str = "add_or_remove", **statement
) -> Iterator[Charge]:
    """Charge a release before the block, which releases by :meth:`Charge.release`; an error before that gives all back.

    Parameters
    ----------
    ledger : PrivacyLedger or None
        None charges nothing.
    what, unit, relation, **statement
        Arguments of :meth:`PrivacyLedger.begin_event`.
    """
    run = None
    try:
        if ledger is not None:
            run = ledger.begin_event(what, unit=unit, relation=relation, **statement)
        charge = Charge(ledger, run)
        yield charge
        charge.finish()
    except BaseException:
        if run is not None:
            run.close()
        raise
