"""A privacy budget for one data set, kept in a file and shared by everything that is fitted to it.

=========  ====================  ============================================================================
symbol     name                  meaning
=========  ====================  ============================================================================
(ε, δ)     ``epsilon, delta``    the budget: a guarantee for everything the ledger admits, together
α          ``order``             Rényi order of the filter, fixed when the ledger is made
B          ``filter_budget``     largest total Rényi divergence of order α that implies (ε, δ)
ρ          ``divergence``        Rényi divergence of one step of a fit, the larger of both directions
=========  ====================  ============================================================================

Users choose the next plan after seeing the last result, so that admission has to be a *fully adaptive filter*: a fit is
admitted while the sum of T ρ over all fits stays at most B (Feldman and Zrnic, 2021, arXiv:2008.11193; the
order may not change). Privacy loss distributions compose only plans that were fixed beforehand: those of
:meth:`PrivacyLedger.declare`, against a share of the budget that is set apart.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from vips.privacy import _open_ledger, accounting
from vips.privacy._chain_file import ChainFile, LedgerError
from vips.privacy._ledger_book import Book, PrivacyBudgetError, Run, best_order, filter_budget
from vips.privacy.plan import PrivacyPlan, check_delta, check_number

__all__ = ["LedgerError", "LedgerRun", "PrivacyBudgetError", "PrivacyLedger", "current_ledger"]


class PrivacyLedger:
    """Privacy budget of one data set, in a file that admits fits and refuses what would exceed it.

    Opening an existing file with the same terms continues it; other terms are refused. Pass it to ``fit(..., ledger=ledger)``
    or write ``with ledger:`` around any code: every private fit inside is then charged, in worker processes too, and a
    non-private one is refused.

    Parameters
    ----------
    path : str or path
        Of an SQLite file, on a local disk.
    epsilon, delta : float
        The budget, for all fits together.
    dataset : str
        Declared name of the data set. Nothing is derived from the data: a fingerprint would tell who is in them.
    unit : str
        What one record is, in words.
    relation : {"add_or_remove", "replace_one"}
        Of all fits.
    order : int, optional
        α ≥ 2. None takes the one that leaves room for most of a fit with many small steps; every order is valid.

    Raises
    ------
    LedgerError
        If the file has other terms, or is not a ledger. Nothing is changed.

    Guarantees
    ----------
    - Everything released by the admitted fits together is (``epsilon``, ``delta``)-differentially private under
      ``relation``, however users choose plans from earlier results.
    - All steps of a fit are charged durably before a value of a record is read. Only an entry "close" gives unreleased
      steps back: a process that is killed gives nothing back until its run is resumed or closed.
    - Concurrent processes are admitted one after another; a full disk refuses.
    - An edit inside the file is noticed. A file replaced by an older copy is not, except against a :meth:`head` that
      was kept elsewhere.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from vips import LatentDirichletAllocation, PrivacyLedger, PrivacyPlan
    >>> path = tempfile.mkdtemp() + "/letters.ledger"
    >>> ledger = PrivacyLedger(path, epsilon=2.0, delta=1e-6, dataset="letters 1911")
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=0.1, n_steps=10)
    >>> X = np.random.default_rng(0).poisson(1.0, (500, 20))
    >>> with ledger:
    ...     model = LatentDirichletAllocation(2, vocabulary=20, privacy=plan).fit(X)
    >>> 0.0 < ledger.spent() < 2.0
    True
    """

    def __init__(
        self,
        path: str | os.PathLike,
        epsilon: float,
        delta: float,
        dataset: str,
        *,
        unit: str = "one record",
        relation: str = "add_or_remove",
        order: int | None = None,
    ) -> None:
        terms = _terms(epsilon, delta, dataset, unit, relation, order)
        self._file = ChainFile(Path(path).absolute())
        ChainFile.create(self._file.path, {"kind": "open", "time": _now(), **terms})
        self._start()
        existing = self._book.terms
        if order is None:
            terms["order"] = existing["order"]
        different = [name for name in terms if terms[name] != existing[name]]
        if different:
            shown = ", ".join(f"{name} {existing[name]!r}, not {terms[name]!r}" for name in different)
            raise LedgerError(f"{self.path} is a ledger with {shown}. One ledger serves one data set and one budget.")

    @classmethod
    def open(cls, path: str | os.PathLike) -> PrivacyLedger:
        """An existing ledger, whatever its terms."""
        ledger = cls.__new__(cls)
        ledger._file = ChainFile(Path(path).absolute())
        ledger._start()
        return ledger

    def _start(self) -> None:
        self._book = Book()
        self._lock = threading.RLock()
        self._refresh()

    def __reduce__(self):
        return PrivacyLedger.open, (str(self.path),)

    def __repr__(self) -> str:
        return (
            f"PrivacyLedger({str(self.path)!r}, epsilon={self.epsilon}, delta={self.delta}, dataset={self.dataset!r})"
        )

    # -- what it says -------------------------------------------------------------------------------------------

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

    def spent(self) -> float:
        """ε that the fits admitted so far are worth together, at the ledger's δ."""
        return self._refresh().epsilon_spent()

    def remaining(self) -> dict[str, float]:
        """What is left: of the filter's Rényi budget (``divergence``, of ``filter_budget``), and as ``epsilon``."""
        book = self._refresh()
        return {
            "divergence": book.filter_budget - book.divergence_spent,
            "filter_budget": book.filter_budget,
            "epsilon": self.epsilon - book.epsilon_spent(),
        }

    def affordable_steps(self, plan: PrivacyPlan) -> int:
        """How many steps of ``plan`` would still be admitted."""
        book, cost = self._refresh(), self._cost(plan)
        steps = int((book.filter_budget - book.divergence_spent) / cost)
        return max(0, steps)

    def runs(self) -> list[Run]:
        """Every fit that was admitted, in order."""
        return list(self._refresh().runs.values())

    def run(self, name: str) -> Run:
        """One fit that was admitted, by its name."""
        return self._refresh().run(name)

    def history(self) -> list[dict]:
        """All entries, checked against their hashes."""
        return [body for _, body, _ in self._file.read()]

    def head(self) -> str:
        """Number and hash of the last entry. Keep it elsewhere: it shows later that nothing was cut off or replaced."""
        number, _, digest = self._file.read()[-1]
        return f"{number}:{digest}"

    def verify(self, head: str | None = None) -> None:
        """Check every hash, and that ``head`` (from an earlier :meth:`head`) is still part of the chain.

        Raises
        ------
        LedgerError
            If an entry was edited or removed.
        """
        entries = self._file.read()
        if head is not None and head not in [f"{number}:{digest}" for number, _, digest in entries]:
            raise LedgerError(
                f"{self.path} does not contain the head {head}: it was cut off, or replaced by another copy."
            )

    # -- what it does -------------------------------------------------------------------------------------------

    def declare(self, plans: Sequence[PrivacyPlan], *, epsilon: float | None = None, delta: float | None = None) -> str:
        """Set a share (ε₁, δ₁) of the budget apart for fits that are fixed now, and composed tightly.

        Later fits with one of these plans use it up, each plan once; the filter guards the rest of the budget,
        (ε - ε₁, δ - δ₁). The two parts add up however they interleave (concurrent composition).

        Parameters
        ----------
        plans : sequence of PrivacyPlan
            With Gaussian noise: they are composed by privacy loss distributions.
        epsilon, delta : float, optional
            ε₁ and δ₁. None: half of the δ that is left, and what the plans need at it.

        Returns
        -------
        str
            Name of the group, as in :meth:`history`.

        Raises
        ------
        LedgerError
            After the first fit: the share would then depend on its result, which this composition does not allow.
        PrivacyBudgetError
            If the plans need more than ``epsilon`` at ``delta``, or the budget has no such share.
        """
        plans = list(plans)
        if not plans or not all(isinstance(plan, PrivacyPlan) for plan in plans):
            raise LedgerError("`plans` must be a sequence of PrivacyPlan, at least one.")
        for plan in plans:
            self._check(plan)

        self._append(lambda book: book.declaring(plans, epsilon, delta))
        return list(self._book.groups)[-1]

    def charge(self, plan: PrivacyPlan, model: str = "") -> LedgerRun:
        """Charge all steps of a fit, durably; called by ``fit`` before it reads the data.

        Raises
        ------
        PrivacyBudgetError
            If they do not fit in what is left. Nothing is charged then.
        LedgerError
            If the plan has no guarantee or another relation.
        """
        self._check(plan)
        run = os.urandom(16).hex()

        divergence = self._cost(plan)
        self._append(lambda book: book.charging(run, model, plan, divergence))
        return LedgerRun(self, run, attempt=0)

    def resume(self, run: str, step: int, plan: PrivacyPlan) -> LedgerRun:
        """Go on with a run after step ``step``, whose state is known from a checkpoint.

        Steps after it that the ledger knows to be released are released a second time, and are charged again; so are
        steps that a close had given back. Whoever else still runs it is stopped at its next step.

        Raises
        ------
        PrivacyBudgetError
            If the further steps do not fit in what is left.
        LedgerError
            If the ledger knows of no such run, step, or plan of that run.
        """
        self._append(lambda book: book.resuming(run, step, plan))
        return LedgerRun(self, run, attempt=self._book.run(run).attempt)

    def close(self, run: str) -> int:
        """End a run and give back the steps that were charged and not released; returns their number.

        A run that was killed stays charged in full until somebody closes it (or resumes it). Steps of declared fits are
        not given back. Closing twice gives back nothing more.
        """
        self._append(lambda book: book.closing(run))
        return self._book.run(run).returned

    def release(self, run: str, attempt: int, step: int) -> None:
        """Record durably that the noisy total of a step exists; called before anything is made of it."""
        self._append(lambda book: book.releasing(run, attempt, step))

    def __enter__(self) -> PrivacyLedger:
        if not _open_ledger.open_with(str(self.path)):
            raise LedgerError(f"Another ledger, {_open_ledger.open_path()}, is open: a fit is charged to one of them.")
        return self

    def __exit__(self, *_) -> None:
        _open_ledger.close()

    # -- helpers ------------------------------------------------------------------------------------------------

    def _check(self, plan: PrivacyPlan) -> None:
        if not plan.is_private or plan.reproducible_noise:
            raise LedgerError(
                "A fit without noise, or with reproducible noise, has no guarantee: no budget could pay for it. Fit it without "
                "the ledger, and only if the data are public."
            )
        if plan.relation != self.relation:
            raise LedgerError(f"The ledger counts under {self.relation!r}, the plan under {plan.relation!r}.")
        self._cost(plan)

    def _cost(self, plan: PrivacyPlan) -> float:
        """ρ of one step, rounded up."""
        return math.nextafter(accounting.renyi_divergence(plan, self._book.terms["order"]), math.inf)

    def _refresh(self) -> Book:
        with self._lock:
            for number, body, digest in self._file.read(self._book.known, self._book.head):
                self._book.apply(number, body, digest)
            return self._book

    def _append(self, decide) -> None:
        """One entry or none, decided on the state of the file at that moment."""

        def entries(new):
            for number, body, digest in new:
                self._book.apply(number, body, digest)
            return [{"time": _now(), **body} for body in decide(self._book)]

        with self._lock:
            for number, body, digest in self._file.append(self._book.known, self._book.head, entries):
                if number >= self._book.known:  # what was written; the others are known by now
                    self._book.apply(number, body, digest)


class LedgerRun:
    """One fit's place in a ledger; used by ``fit``.

    Attributes
    ----------
    run : str
        Its name in the ledger.
    """

    def __init__(self, ledger: PrivacyLedger, run: str, attempt: int) -> None:
        self.ledger, self.run, self._attempt = ledger, run, attempt

    def release(self, step: int) -> None:
        """See :meth:`PrivacyLedger.release`."""
        self.ledger.release(self.run, self._attempt, step)

    def close(self) -> None:
        """Give back what was not released, unless the run has been resumed elsewhere meanwhile."""
        if self.ledger._refresh().run(self.run).attempt == self._attempt:
            self.ledger.close(self.run)


def current_ledger() -> PrivacyLedger | None:
    """The ledger that is open around this code (``with ledger:``), here or in the process that started this one."""
    path = _open_ledger.open_path()
    return None if path is None else PrivacyLedger.open(path)


def _terms(epsilon, delta, dataset, unit, relation, order) -> dict:
    check_number("epsilon", epsilon, 0.0, math.inf, "a positive number", open_low=True, open_high=True)
    check_delta(delta)
    for name, value in (("dataset", dataset), ("unit", unit)):
        if not isinstance(value, str) or not value:
            raise LedgerError(f"`{name}` must be a name in words, got {value!r}.")
    if relation not in ("add_or_remove", "replace_one"):
        raise LedgerError(f'`relation` must be "add_or_remove" or "replace_one", got {relation!r}.')
    if order is not None and (not isinstance(order, int) or order < 2):
        raise LedgerError(f"`order` must be an integer ≥ 2, got {order!r}.")
    order = best_order(epsilon, delta) if order is None else order
    if not filter_budget(epsilon, delta, order) > 0.0:
        raise LedgerError(
            f"No Rényi divergence of order {order} implies ε = {epsilon} at δ = {delta}: use another order."
        )
    terms = {"epsilon": float(epsilon), "delta": float(delta), "dataset": dataset, "unit": unit, "relation": relation}
    return terms | {"order": order}


def _now() -> str:
    """For readers only: nothing depends on the clock."""
    return datetime.now(UTC).isoformat(timespec="seconds")
