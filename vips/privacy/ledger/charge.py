"""The charge of a release that is not a fit: of an encoder, or of a count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vips.exceptions import LedgerError
from vips.privacy.ledger.ledger import PrivacyLedger, current_ledger
from vips.privacy.ledger.run import LedgerRun

__all__ = ["Charge", "charged", "ledger_to_charge"]


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


@contextmanager
def charged(
    ledger: PrivacyLedger | None, what: str, unit: str, relation: str = "add_or_remove", **statement
) -> Iterator[Charge]:
    """Charge a release before the block. It calls :meth:`Charge.release` before it draws noise; an error before that gives all
    back.

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
        charge.release()
    except BaseException:
        if run is not None:
            run.close()
        raise
