"""A privacy budget for one data set, kept in a file and shared by all fits to it.

Users choose the next release after seeing the last result, so that admission has to be a *fully adaptive filter*. Every
charge is three numbers that add up, μ², δ₀ and ε₀ (``vips/core/budget.py``), and is admitted while each sum stays within
its limit, fixed when the ledger is made. The theorem: docs/guarantee.md, part 6 of the proof.
"""

from __future__ import annotations

import inspect
import os
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from threading import get_ident
from typing import Any

from vips.core.budget import ANY_UNIT, new_terms
from vips.core.ledger import open_ledger
from vips.core.ledger.book import checked_purpose
from vips.core.ledger.chain_file import ChainFile
from vips.core.ledger.open_ledger import Scope, SentFrom
from vips.core.ledger.pricing import Statement, of_plan, stated
from vips.core.ledger.reader import LedgerReader, append_entries, now
from vips.core.ledger.run import LedgerRun
from vips.core.plan import PrivacyPlan
from vips.exceptions import LedgerError, PrivacyBudgetError

__all__ = [
    "LedgerError", "LedgerRun", "PrivacyBudgetError", "PrivacyLedger", "charged", "current_ledger", "delta_for_threshold",
    "ledger_to_charge",
]  # fmt: skip

THRESHOLD_SHARE = 1.0 / 10.0
_LEAST_DELTA = 1e-100

# Kinds of functions whose bodies run after the call, and of results that are computed lazily.
_DEFERRED_FUNCTIONS: tuple[Any, ...] = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)
_LAZY_RESULTS = Awaitable, Generator, AsyncGenerator, map, filter, zip


class PrivacyLedger(LedgerReader):
    """Privacy budget of one data set, in a file that admits fits and refuses what would exceed it.

    Opening an existing file with the same terms continues it; other terms are refused. Pass it to ``fit(..., ledger=ledger)``
    or write ``with ledger:`` around any code: every private fit inside is then charged, and a non-private one is refused. That
    holds in this process, in children that it forks, and in workers that get a plan or a model from inside.

    Parameters
    ----------
    path : str or path
        Path of an SQLite file, on a local disk.
    epsilon, delta : float
        The budget, for all fits together.
    dataset : str
        Declared name of the data set. Nothing is derived from the data: a fingerprint would reveal who is in them.
    unit : str
        What one record is, in words. The default accepts whatever a model calls a record. With any other unit, a model that
        protects something else is refused; see :meth:`accept_unit`.
    relation : {"add_or_remove", "replace_one"}
        Neighbouring relation of all fits.
    pure : float
        A part of ``epsilon`` that is set aside, for good, for mechanisms of pure ε: Laplace noise, the exponential mechanism,
        randomised response. Without it they are charged as Gaussian ones, which is dear for a large ε.
    purpose : str
        What the releases are for that this object charges, in one line of at most 200 characters: a study, a thesis. Every
        charge keeps it, for readers. It is no term: who opens the file next may state another.

    Raises
    ------
    LedgerError
        If the file has other terms, or is not a ledger. Nothing is changed.

    Guarantees
    ----------
    - Everything released by the admitted fits and events together is (``epsilon``, ``delta``)-differentially private under
      ``relation``, however users choose them from earlier results.
    - All steps of a fit are charged durably before a value of a record is read. Only an entry "close" gives unreleased
      steps back, if each is a Gaussian mechanism (full batches) or none was released: a process that is killed gives nothing
      back until its run is resumed or closed.
    - Concurrent processes and threads are admitted one after another; a full disk refuses.
    - A plan or model that is pickled inside of ``with ledger:`` belongs to this ledger for good. Wherever it is fitted, the
      fit is charged here, once, or refused if this very file cannot be reached. A fitted model that comes back without a
      charge raises.
    - An edit inside the file is noticed. A file replaced by an older copy is not, except against a :meth:`head` that
      was kept elsewhere.

    Not covered
    -----------
    A plan that another process makes by itself: send :meth:`inside` there. A fit that begins in this process after the scope,
    in a thread that got its model inside. A copy of the file that is made while a scope is open, and used on another machine
    under the same path: this file lacks the copy's charges, and notices only when a fitted model comes back.

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
        self, path: str | os.PathLike, epsilon: float, delta: float, dataset: str, *, unit: str = ANY_UNIT,
        relation: str = "add_or_remove", pure: float = 0.0, purpose: str = "",
    ) -> None:  # fmt: skip
        terms, purpose = new_terms(epsilon, delta, dataset, unit, relation, pure), checked_purpose(purpose)
        path = Path(path).absolute()
        # a nonce, because the hash of this entry is the ledger's identity
        first = {"kind": "open", "time": now(), "nonce": uuid.uuid4().hex, **terms}
        ChainFile.create(path, first)
        self._start(path, purpose)
        existing = self._book.terms
        different = [f"{name} {existing[name]!r}, not {terms[name]!r}" for name in terms if terms[name] != existing[name]
                     and name != "limits"]  # fmt: skip
        if self.pure != float(pure):
            different.append(f"pure {self.pure!r}, not {float(pure)!r}")
        if different:
            shown = ", ".join(different)
            raise LedgerError(f"{self.path} is a ledger with {shown}. One ledger serves one data set and one budget.")

    @classmethod
    def open(cls, path: str | os.PathLike, *, purpose: str = "") -> PrivacyLedger:
        """An existing ledger, whatever its terms; ``purpose`` is that of what will be charged."""
        ledger = cls.__new__(cls)
        ledger._start(Path(path).absolute(), purpose)
        return ledger

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._as_scope(""), f"{self._book.known - 1}:{self._book.head}")

    def __repr__(self) -> str:
        return (
            f"PrivacyLedger({str(self.path)!r}, epsilon={self.epsilon}, delta={self.delta}, dataset={self.dataset!r})"
        )

    # -- actions ------------------------------------------------------------------------------------------------

    def accept_unit(self, name: str) -> None:
        """Declare, for good, that what models call ``name`` ("one document", "one row of X") is the ledger's unit.

        A ledger that counts by "one letter" refuses a model that protects "one document" until somebody declares that these
        are the same. One with the default unit, "one record", accepts whatever a model calls a record.
        """
        if not isinstance(name, str) or not name:
            raise LedgerError(f"`name` must be a name in words, got {name!r}.")
        append_entries(self, lambda book: book.accepting(name))

    def charge(self, plan: PrivacyPlan, model: str = "", unit: str | None = None) -> LedgerRun:
        """Charge all steps of a fit, durably; called by ``fit`` before it reads the data.

        Parameters
        ----------
        plan : PrivacyPlan
        model : str
            Name of what is fitted, for the history.
        unit : str, optional
            What one record is to the fit. None: the ledger's unit.

        Raises
        ------
        PrivacyBudgetError
            If the rest of the budget is too small. Nothing is charged then.
        LedgerError
            If the plan has no guarantee, another relation or another unit.
        """
        run = LedgerRun(self)
        run.charge(of_plan(plan, self.relation), model, unit)
        return run

    def charge_event(
        self, description: str, *, unit: str, relation: str, event: object = None, epsilon: float | None = None,
        rho: float | None = None, delta: float = 0.0,
    ) -> str:  # fmt: skip
        """Charge what another tool releases of the same data, durably: call it before the release.

        State exactly one of ``event``, ``epsilon`` and ``rho``.

        Parameters
        ----------
        description : str
            What is released, for the history.
        unit : str
            What one record is to the release.
        relation : {"add_or_remove", "replace_one"}
            Neighbouring relation of the statement. A ledger that counts under replace-one converts ``epsilon``, and ``rho``
            without ``delta``, from add-or-remove-one; nothing can be converted the other way.
        event : dp_accounting.DpEvent or PrivacyPlan, optional
            What the release does. For a plan, all steps are charged.
        epsilon : float, optional
            The release is (``epsilon``, ``delta``)-differentially private.
        rho : float, optional
            It is ``rho``-zCDP; with ``delta``, ``delta``-approximately so (Bun and Steinke, 2016).
        delta : float
            Charged to a tenth of the ledger's δ, which is for such statements.

        Returns
        -------
        str
            Name of the event, as in :meth:`runs`. It is never given back.

        Raises
        ------
        PrivacyBudgetError
            If the rest of the budget is too small. Nothing is charged then.
        LedgerError
            If the unit or the relation does not fit the ledger.
        TypeError, ValueError
            If the statement is impossible, or an event's cost is not known.

        Examples
        --------
        >>> import tempfile
        >>> from vips import PrivacyLedger
        >>> path = tempfile.mkdtemp() + "/letters.ledger"
        >>> ledger = PrivacyLedger(path, epsilon=2.0, delta=1e-6, dataset="letters 1911", pure=0.2)
        >>> stated = {"unit": "one letter", "relation": "add_or_remove"}
        >>> name = ledger.charge_event("number of letters, by OpenDP", epsilon=0.1, **stated)
        >>> name = ledger.charge_event("common words, by OpenDP", epsilon=0.1, delta=1e-8, **stated)
        >>> round(ledger.spent(), 3), f"{ledger.remaining().delta_0:.2g}"
        (0.2, '9e-08')
        """
        return self._charged_event(description, unit, stated(self, event, epsilon, rho, delta, relation), True).run

    def begin_event(
        self, description: str, *, unit: str, relation: str, event: object = None, epsilon: float | None = None,
        rho: float | None = None, delta: float = 0.0,
    ) -> LedgerRun:  # fmt: skip
        """Charge an event of vips itself, durably, before the data are read; arguments as in :meth:`charge_event`.

        A mechanism asks :func:`current_ledger` for the ledger, as models do. The result is a run of one step, and lives as a
        fit does: ``release_once(plan, totals)`` for each draw of noise; ``close()`` after an error before the first one,
        which gives everything back. A kill leaves it charged; a Ctrl-C during the charge does not.
        """
        return self._charged_event(description, unit, stated(self, event, epsilon, rho, delta, relation), False)

    def _charged_event(self, description: str, unit: str, statement: Statement, is_released: bool) -> LedgerRun:
        for name, value in (("description", description), ("unit", unit)):
            if not isinstance(value, str) or not value:
                raise LedgerError(f"`{name}` must be a name in words, got {value!r}.")
        run = LedgerRun(self)
        try:
            run.charge(statement, description, unit, is_released)
        except KeyboardInterrupt:  # the charge may be on record all the same
            run.close()
            raise
        return run

    def resume(self, run: str, step: int, plan: PrivacyPlan) -> LedgerRun:
        """Continue a run after ``step``, the step of its checkpoint.

        Later steps that the ledger knows to be released will be released a second time, and are charged again; so are
        steps that a close gave back. Another process that still runs this fit is stopped at its next step.

        Raises
        ------
        PrivacyBudgetError
            If the rest of the budget is too small for these charges.
        LedgerError
            If the ledger knows no such run, step, or plan of that run.
        """
        resumed = LedgerRun(self, run)
        resumed.resume(step, plan)
        return resumed

    def close(self, run: str) -> float:
        """End a run and give back the steps that were charged but not released; returns their number, each by its weight.

        A run that was killed stays charged in full until somebody closes it (or resumes it). A fit on samples, a stream or
        another event is given back whole if nothing of it was released, and else not at all. Closing twice gives back nothing
        more.
        """
        return append_entries(self, lambda book: book.closing(run)).run(run).returned

    def release(self, run: str, attempt: int, step: int) -> None:
        """Record durably that the noisy total of a step exists; called before the total is used."""
        append_entries(self, lambda book: book.releasing(run, attempt, step))

    def release_batch(self, run: str, batch: int, digest: str) -> None:
        """Record durably that the release after a batch of a stream exists; called before it is used.

        Parameters
        ----------
        run : str
        batch : int
            1, 2, …
        digest : str
            Hash of the release. An entry that is there already is accepted if it has this hash.

        Raises
        ------
        LedgerError
            If the run was closed, or another release of this batch is on record.
        """
        append_entries(self, lambda book: book.releasing_batch(run, batch, digest))

    def __enter__(self) -> PrivacyLedger:
        key, scope = (get_ident(), object()), self._scope()
        try:
            self._keys.append(key)
            open_ledger.enter(key, scope)
            return self
        except BaseException:  # Ctrl-C included: after an error here, Python does not call `__exit__`
            if key in self._keys:
                self._keys.remove(key)
            open_ledger.leave(key)
            raise

    def __exit__(self, *_: object) -> None:
        # this thread's key: other threads may leave at the same moment
        key = next((held for held in reversed(self._keys) if held[0] == get_ident()), self._keys[-1])
        open_ledger.leave(key)
        if key in self._keys:
            self._keys.remove(key)  # last, so that `__exit__` can be called again after a Ctrl-C

    def inside(self, function: Callable) -> Callable:
        """``function``, wrapped to run inside of this ledger's scope in any process.

        ``with ledger:`` cannot see plans that a worker makes by itself. Send ``ledger.inside(f)`` in place of ``f``, and its
        fits are charged. It is pickled as ``f`` is; the call is refused where this ledger's file cannot be reached.

        Fits in the thread of the call, and in threads that it starts, are covered. Models that were pickled outside of every
        scope are covered in the thread of the call only.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from vips import DirichletMultinomial, PrivacyLedger, PrivacyPlan
        >>> def fit(X):
        ...     plan = PrivacyPlan(noise_multiplier=8.0, sampling_rate=1.0, n_steps=1)
        ...     return DirichletMultinomial(privacy=plan).fit(X)
        >>> ledger = PrivacyLedger(tempfile.mkdtemp() + "/votes.ledger", epsilon=2.0, delta=1e-6, dataset="votes")
        >>> with ThreadPoolExecutor() as pool:
        ...     models = list(pool.map(ledger.inside(fit), [np.eye(3)] * 2))
        >>> len(ledger.runs())
        2
        """
        if not callable(function):
            raise TypeError(f"`function` must be something to call, got {type(function).__name__}.")
        callees: tuple[Any, ...] = (function, function.__call__)  # type: ignore[operator]
        if any(is_deferred(callee) for callee in callees for is_deferred in _DEFERRED_FUNCTIONS):
            raise TypeError("`function` must not be a coroutine or a generator: its body would run after the call.")
        return partial(_call_inside, self._scope(), function)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _scope(self) -> Scope:
        """The open scope of this ledger, or a new one."""
        scope, enclosing = self._as_scope(uuid.uuid4().hex), open_ledger.paying()
        if enclosing is None:
            append_entries(self, lambda book: [{"kind": "scope", "token": scope.token}])
            return scope
        if not enclosing.is_same_ledger(scope):
            raise LedgerError(f"Another ledger, {enclosing.path}, is open: a fit is charged to one of them.")
        if enclosing.purpose != self.purpose:
            raise LedgerError(
                f"A block of this ledger is open for the purpose {enclosing.purpose!r}, and a fit has one purpose: leave it "
                f"before one for {self.purpose!r} begins, or pass the fit `ledger=`."
            )
        return enclosing

    def _as_scope(self, token: str) -> Scope:
        stat = self.path.stat()
        file = stat.st_dev, stat.st_ino, open_ledger.this_machine()
        return Scope(str(self.path), self.identity, token, *file, self.purpose)


def current_ledger(*sent: SentFrom) -> PrivacyLedger | None:
    """The ledger that pays for a fit here: that of the open scope, or of the scope from which plan or model were sent.

    Parameters
    ----------
    *sent : Scope, str or None
        Origins (``sent_from``) with which plan and model arrived in this process.

    Raises
    ------
    LedgerError
        If that very ledger cannot be reached, or two ledgers could be meant.
    """
    scope = open_ledger.paying(*sent)
    return None if scope is None else _reach(scope)


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

    Without ``ledger`` nothing is charged; for a run that is charged already, this is its first step. The other arguments are
    those of :meth:`PrivacyLedger.begin_event`.
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


def check_that_it_was_charged(report: Any) -> None:
    """Raise LedgerError if a fit that was sent from an open scope of this process comes back without a charge."""
    scope = report.plan.sent_from
    if not isinstance(scope, Scope) or not open_ledger.is_open_here(scope):
        return
    run = None if report.ledger is None else report.ledger["run"]
    if run not in _opened(scope)._refresh().runs:
        raise LedgerError(
            f"A fit that was sent from inside of a scope of {scope.path} has come back, and that ledger has no charge for it "
            f"(run {run}). The fit used another copy of the file: this budget does not count what it released."
        )


def _reach(scope: Scope) -> PrivacyLedger:
    """The ledger of a scope, and no other."""
    try:
        ledger = _opened(scope)
        _check_file(scope)
        if scope.token not in ledger._refresh().scopes:
            raise LedgerError("the file there is an older copy of it.")
    except LedgerError as error:
        raise LedgerError(
            f"This fit belongs to the ledger {scope.path}, which cannot be reached here: {error} It was not begun, because "
            "that ledger could not count it. Run it where that very file is."
        ) from error
    return ledger


@lru_cache(maxsize=16)
def _opened(scope: Scope) -> PrivacyLedger:
    """Cached for the process, so that later fits read new entries only."""
    ledger = PrivacyLedger.open(scope.path, purpose=scope.purpose)
    if ledger.identity != scope.identity:
        raise LedgerError("the file there is another ledger.")
    return ledger


def _check_file(scope: Scope) -> None:
    if not scope.has_this_file():
        raise LedgerError("the file there is a copy of it.")


def _reopened(scope: Scope, head: str) -> PrivacyLedger:
    """Unpickle a ledger, if its very file is here."""
    try:
        ledger = _opened.__wrapped__(scope)
        _check_file(scope)
    except LedgerError as error:
        raise LedgerError(
            f"The pickled ledger {scope.path} cannot be reached here: {error} To use the file there all the same, write "
            f"PrivacyLedger.open({scope.path!r})."
        ) from error
    ledger.verify(head)
    return ledger


def _call_inside(scope: Scope, function: Callable, *arguments: Any, **keywords: Any) -> Any:
    _reach(scope)
    with open_ledger.call_inside(scope):
        result = function(*arguments, **keywords)
        if isinstance(result, _LAZY_RESULTS):
            raise TypeError(
                f"A function that is called inside of a ledger must not return a {type(result).__name__}: the rest of its work "
                "would be done outside. Return a list."
            )
        return result
