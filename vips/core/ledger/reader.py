"""An open ledger as a reader sees it: the file, the state after its entries, and questions to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from vips.core.budget import PrivacyBudget
from vips.core.ledger.book import Book, Run, checked_purpose
from vips.core.ledger.chain_file import ChainFile, UnconfirmedError
from vips.core.ledger.clerk import ask
from vips.core.ledger.pricing import of_plan
from vips.core.plan import PrivacyPlan
from vips.exceptions import LedgerError

__all__ = ["LedgerReader", "append_entries", "book_as_of", "book_before", "now"]

_MOST_STEPS = 10**7


class LedgerReader:
    """The questions that :class:`PrivacyLedger` answers. Every answer takes other processes' entries into account."""

    def _start(self, path: Path, purpose: str) -> None:
        self._purpose = checked_purpose(purpose)
        self._file, self._book = ChainFile(path), Book()
        self._keys: list[Any] = []
        self._refresh()

    @property
    def path(self) -> Path:
        """Absolute path of the file."""
        return self._file.path

    @property
    def epsilon(self) -> float:
        """ε of the budget."""
        return self._book.terms["epsilon"]

    @property
    def delta(self) -> float:
        """δ of the budget."""
        return self._book.terms["delta"]

    @property
    def pure(self) -> float:
        """The part of ``epsilon`` that is set aside for mechanisms of pure ε."""
        return self._book.terms["limits"][2]

    @property
    def dataset(self) -> str:
        """Declared name of the data set."""
        return self._book.terms["dataset"]

    @property
    def unit(self) -> str:
        """What one record is."""
        return self._book.terms["unit"]

    @property
    def relation(self) -> str:
        """Neighbouring relation of every fit."""
        return self._book.terms["relation"]

    @property
    def purpose(self) -> str:
        """What the releases are for that this object charges."""
        return self._purpose

    @property
    def identity(self) -> str:
        """Hash of the first entry; unique to this ledger."""
        return self._book.identity

    def spent(self) -> float:
        """ε of everything charged so far, if it had been fixed beforehand, at 0.9 δ.

        Whatever is chosen, and whenever: the total stays within the ledger's (ε, δ).
        """
        return self._refresh().spent().epsilon(self.delta)

    def remaining(self) -> PrivacyBudget:
        """What is left: as ``privacy=`` of one more fit it is always admitted."""
        return self._refresh().left()

    def affordable(self, plan: PrivacyPlan) -> int:
        """How many steps of ``plan`` would still be admitted."""
        book = self._refresh()

        def is_admitted(n_steps: int) -> bool:
            statement = of_plan(plan.with_n_steps(n_steps), self.relation)
            try:
                book.admit(statement.price(book.left()), "", "")
            except LedgerError:
                return False
            return True

        low, high = 0, 1
        while is_admitted(high) and high < _MOST_STEPS:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_admitted(middle) else (low, middle)
        return low

    def runs(self) -> list[Run]:
        """Every fit and every other event that was admitted, in order."""
        return list(self._refresh().runs.values())

    def run(self, name: str) -> Run:
        """One fit or event that was admitted, by its name."""
        return self._refresh().run(name)

    def entry(self, name: str) -> dict[str, str]:
        """What a report says about a run."""
        return {"dataset": self.dataset, "run": name, "purpose": self.run(name).purpose}

    def history(self) -> list[dict]:
        """All entries, checked against their hashes."""
        return [body for _, body, _ in self._entries()]

    def head(self) -> str:
        """Number and hash of the last entry. Keep it elsewhere: it can prove later that nothing was cut off or replaced."""
        number, _, digest = self._entries()[-1]
        return f"{number}:{digest}"

    def verify(self, head: str | None = None) -> None:
        """Check every hash, and that ``head`` (from an earlier :meth:`head`) is still part of the chain.

        Raises
        ------
        LedgerError
            If an entry was edited or removed.
        """
        book_as_of(self, head)

    # -- helpers --------------------------------------------------------------------------------------------------------

    def _entries(self) -> list:
        def work() -> Any:
            with self._file.transaction() as chain:
                return chain.read()

        return ask(work)

    def _refresh(self) -> Book:
        def work() -> Book:
            with self._file.transaction() as chain:
                self._book = self._book.after(chain.read(self._book.known, self._book.head))
            return self._book

        return ask(work)


def append_entries(
    ledger: LedgerReader, decide: Callable[[Book], list[dict]], then: Callable[[Book], None] = lambda book: None
) -> Book:
    """Append the entries that ``decide`` makes from the state of the file at that moment; returns the book with them.

    ``then`` is called with that book, even if the waiting thread is interrupted.
    """

    def work() -> Book:
        try:
            with ledger._file.transaction(to_write=True) as chain:
                book = ledger._book.after(chain.read(ledger._book.known, ledger._book.head))
                bodies = [{"time": now(), **body} for body in decide(book)]
                book = book.after(chain.write(bodies, book.known, book.head))
        except UnconfirmedError:
            then(book)  # so that its run can be closed
            raise
        ledger._book = book  # only now: a failed transaction writes nothing
        then(book)
        return book

    return ask(work)


def book_as_of(ledger: LedgerReader, head: str | None = None) -> Book:
    """The state when ``head`` was the last entry; None: now. LedgerError if it never was."""
    entries = ledger._entries()
    heads = [f"{number}:{digest}" for number, _, digest in entries]
    if head is not None and head not in heads:
        raise LedgerError(
            f"{ledger.path} does not contain the head {head}: it was cut off, or replaced by another copy."
        )
    return Book().after(entries if head is None else entries[: heads.index(head) + 1])


def book_before(ledger: LedgerReader, run: str) -> Book:
    """The state before the entry that charged a run."""
    charge = "charge", run
    return Book().after(takewhile(lambda entry: (entry[1]["kind"], entry[1].get("run")) != charge, ledger._entries()))


def now() -> str:
    """For readers only: nothing depends on the clock."""
    return datetime.now(UTC).isoformat(timespec="seconds")
