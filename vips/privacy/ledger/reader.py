"""An open ledger as a reader sees it: the file, the state after its entries, and questions to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from vips.exceptions import LedgerError
from vips.privacy.ledger.admitted import Run, step_divergence
from vips.privacy.ledger.book import Book
from vips.privacy.ledger.chain_file import ChainFile, UnconfirmedError
from vips.privacy.ledger.clerk import ask
from vips.privacy.plan import PrivacyPlan

__all__ = ["LedgerReader", "now"]


class LedgerReader:
    """The questions that :class:`PrivacyLedger` answers. Every answer takes other processes' entries into account."""

    def _start(self, path: Path) -> None:
        self._file, self._book, self._keys = ChainFile(path), Book(), []
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
    def outright_delta(self) -> float:
        """The part of ``delta`` that is reserved for outright δ_i."""
        return self._book.terms["outright_delta"]

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
    def order(self) -> int:
        """Rényi order of the filter."""
        return self._book.terms["order"]

    @property
    def identity(self) -> str:
        """Hash of the first entry; unique to this ledger."""
        return self._book.identity

    def spent(self) -> float:
        """Joint ε of everything admitted so far, at the ledger's δ."""
        return self._refresh().epsilon_spent()

    def remaining(self) -> dict[str, float]:
        """What is left: ``divergence``, of the filter's Rényi budget ``filter_budget``; ``epsilon``; ``outright_delta``."""
        book = self._refresh()
        return {
            "divergence": book.filter_budget - book.divergence_spent,
            "filter_budget": book.filter_budget,
            "epsilon": self.epsilon - book.epsilon_spent(),
            "outright_delta": max(0.0, self.outright_delta - book.outright_spent),
        }

    def affordable_steps(self, plan: PrivacyPlan) -> int:
        """How many steps of ``plan`` would still be admitted."""
        book, cost = self._refresh(), step_divergence(plan, self.order)
        steps = int((book.filter_budget - book.divergence_spent) / cost)
        return max(0, steps)

    def runs(self) -> list[Run]:
        """Every fit and every other event that was admitted, in order."""
        return list(self._refresh().runs.values())

    def run(self, name: str) -> Run:
        """One fit or event that was admitted, by its name."""
        return self._refresh().run(name)

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
        entries = self._entries()
        if head is not None and head not in [f"{number}:{digest}" for number, _, digest in entries]:
            raise LedgerError(
                f"{self.path} does not contain the head {head}: it was cut off, or replaced by another copy."
            )

    # -- helpers --------------------------------------------------------------------------------------------------------

    def _entries(self) -> list:
        def work():
            with self._file.transaction() as chain:
                return chain.read()

        return ask(work)

    def _refresh(self) -> Book:
        def work() -> Book:
            with self._file.transaction() as chain:
                self._book = self._book.after(chain.read(self._book.known, self._book.head))
            return self._book

        return ask(work)

    def _append(self, decide: Callable[[Book], list[dict]], then: Callable[[Book], None] = lambda book: None) -> Book:
        """Append the entries that ``decide`` makes from the state of the file at that moment; returns the book with them.

        ``then`` is called with that book, even if the waiting thread is interrupted.
        """

        def work() -> Book:
            try:
                with self._file.transaction(to_write=True) as chain:
                    book = self._book.after(chain.read(self._book.known, self._book.head))
                    bodies = [{"time": now(), **body} for body in decide(book)]
                    book = book.after(chain.write(bodies, book.known, book.head))
            except UnconfirmedError:
                then(book)  # so that its run can be closed
                raise
            self._book = book  # only now: a failed transaction writes nothing
            then(book)
            return book

        return ask(work)


def now() -> str:
    """For readers only: nothing depends on the clock."""
    return datetime.now(UTC).isoformat(timespec="seconds")
