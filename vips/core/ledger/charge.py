"""The charge of a release that is not a fit: of an encoder, or of a count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vips.core.ledger.ledger import PrivacyLedger, current_ledger
from vips.core.ledger.open_ledger import SentFrom
from vips.core.ledger.run import LedgerRun
from vips.exceptions import LedgerError, PrivacyBudgetError

__all__ = ["charged", "delta_for_threshold", "ledger_to_charge"]

THRESHOLD_SHARE = 1.0 / 10.0
_LEAST_DELTA = 1e-100


def ledger_to_charge(
    ledger: PrivacyLedger | LedgerRun | None, *sent: SentFrom, plan: object = None
) -> PrivacyLedger | LedgerRun | None:
    """``ledger``, or that of the scope that encloses the call, if any; ``sent`` as for :func:`current_ledger`. A part of a
    larger charge stays what it is, if it pays for a release with this plan object.

    Raises
    ------
    TypeError, LedgerError
        If ``ledger`` is none, another one than the scope's, or a charge for something else.
    """
    if isinstance(ledger, LedgerRun):
        if not ledger.pays_for(plan):
            raise LedgerError("This charge has paid for another release. Pass the ledger itself as `ledger`.")
        return ledger
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
    ledger: PrivacyLedger | LedgerRun | None, what: str, unit: str, relation: str = "add_or_remove", **statement: Any
) -> Iterator[LedgerRun]:
    """Charge a release before the block, which releases by :meth:`LedgerRun.release_once`; an error before that gives all back.

    Parameters
    ----------
    ledger : PrivacyLedger, LedgerRun or None
        None charges nothing. For a run that is charged already, this is its first step.
    what, unit, relation, **statement
        Arguments of :meth:`PrivacyLedger.begin_event`.
    """
    run = ledger if isinstance(ledger, LedgerRun) else LedgerRun(None)
    try:
        if isinstance(ledger, PrivacyLedger):
            run = ledger.begin_event(what, unit=unit, relation=relation, **statement)
        yield run
        run.finish()
    except BaseException:
        run.close()
        raise
