"""The state of a ledger: a pure function of its entries, without files or clocks."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from fractions import Fraction
from typing import Any

from vips._support.printable import printable
from vips.core.budget import ANY_UNIT, Cost, PrivacyBudget, checked_terms
from vips.core.ledger.chain_file import START, Entry
from vips.core.ledger.pricing import SAMPLED_SHARE, Statement, fields_of, of_plan
from vips.core.plan import PrivacyPlan
from vips.core.plan_phases import Phase, weight_after, weight_of_step
from vips.core.rounding import rounded_down, rounded_up
from vips.core.units import is_group, is_same_unit
from vips.exceptions import LedgerError, PrivacyBudgetError

__all__ = ["Book", "Run", "checked_purpose"]

_MOST = 2**53  # larger numbers are not exact as floats
_LONGEST_PURPOSE = 200  # characters
_LARGEST = 1e100  # sums of such amounts do not overflow


def count(value: object) -> int:
    """A number of steps in an entry, or ValueError."""
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r} is no number of steps")
    return value


def text(value: object) -> str:
    """A text in an entry, or TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def amount(value: object) -> float:
    """A number in an entry that could have been charged, or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < _LARGEST:
        raise ValueError(f"{value!r} is no amount")
    return float(value)


def checked_purpose(purpose: object) -> str:
    """A text that one line of every screen can show, or LedgerError."""
    if not isinstance(purpose, str) or len(purpose) > _LONGEST_PURPOSE or purpose != printable(purpose):
        raise LedgerError(
            f"`purpose` must be a text of one line, of at most {_LONGEST_PURPOSE} characters, without control characters, got "
            f"{reprlib.repr(purpose)}."
        )
    return purpose


def _cost(values: Iterable[object]) -> Cost:
    mu2, delta_0, pure = values
    return Cost(amount(mu2), amount(delta_0), amount(pure))


def _plan_in(statement: Mapping) -> PrivacyPlan | None:
    """The plan that a statement names, if any; raises for a statement that vips does not make."""
    limits = {"delta": 1.0, "epsilon": 1e100, "rho": 1e100}
    if not all(amount(statement.get(name, 0.0)) < limit for name, limit in limits.items()):
        raise ValueError("a statement of impossible numbers")
    stated = statement.get("plan", statement.get("mechanism"))
    if stated is None:
        return None
    phases = tuple(Phase(*phase) for phase in stated["phases"])
    plan = PrivacyPlan(**stated | {"phases": phases})
    if plan.phases != phases:
        raise ValueError("phases that are not those of a plan")
    return plan


@dataclass(frozen=True)
class Run:
    """One admitted fit, or one event of another kind, which is a run of one step.

    Attributes
    ----------
    run, what, unit, purpose, time
        As in the entry that charged it: name, what was released, of whom (None if the fit does not say), what for, when.
    statement : dict
        What was charged, for readers: the plan of a fit, or what an event stated.
    steps : int
        T.
    whole : Cost
        Of all steps.
    is_gaussian : bool
        Whether each step is a Gaussian mechanism of its own, with μ²/T: only such steps are given back one by one. Their δ₀
        is of a threshold in the first one, which is released once.
    charges : tuple of Cost
        What is charged, if not step by step: of the whole, then of repeated steps.
    phases : tuple of Phase
        Weights of the steps; empty: all are 1.
    charged, used : Fraction
        Weights of the steps paid for, and of those whose noisy total exists (repeated ones counted again).
    released : int
        Number of the latter.
    last_step, next_step, attempt : int
        Largest step ever released; the step that the present attempt releases next; how often the run was resumed.
    returned : float
        Weights of the steps given back.
    batches : tuple of str
        Of a stream: hashes of its releases so far, one for each batch.
    """

    run: str
    what: str
    unit: str | None
    purpose: str
    time: str
    statement: dict
    steps: int
    whole: Cost
    is_gaussian: bool
    phases: tuple[Phase, ...] = ()
    charges: tuple[Cost, ...] = ()
    charged: Fraction = Fraction(0)
    used: Fraction = Fraction(0)
    released: int = 0
    last_step: int = 0
    next_step: int = 1
    attempt: int = 0
    returned: float = 0
    closed: bool = False
    batches: tuple[str, ...] = ()

    @classmethod
    def charged_by(cls, body: Mapping) -> Run:
        """The run that an entry "charge" begins."""
        unit, steps, whole = body["unit"], count(body["steps"]), _cost(body["cost"])
        if unit is not None:
            text(unit)
        if type(body["is_gaussian"]) is not bool or (body["is_gaussian"] and whole.pure) or not steps:
            raise ValueError("not a charge")
        purpose, time = checked_purpose(body["purpose"]), text(body["time"])
        named = text(body["run"]), text(body["what"]), unit, purpose, time, dict(body["statement"])
        plan = _plan_in(named[-1])
        phases: tuple[Phase, ...] = ()
        if "plan" in named[-1]:
            if plan is None or plan.n_steps != steps:
                raise ValueError("a plan of another number of steps")
            phases = plan.phases
        run = cls(*named, steps, whole, body["is_gaussian"], phases, (whole,))
        return replace(run, charged=run.weight_after(0))

    @property
    def plan(self) -> dict | None:
        """The plan of a fit, as :func:`~vips.core.ledger.pricing.fields_of` gives it; None for another event."""
        return self.statement.get("plan")

    def own_epsilon(self, delta: float) -> float | None:
        """ε at ``delta`` of the fit alone, or of a release by one plan; None for other events."""
        plan, remaining = _plan_in(self.statement), delta - self.statement.get("delta", 0.0)
        return None if plan is None or not remaining > 0.0 else plan.epsilon(remaining)

    def has_paid_for(self, step: int) -> bool:
        """Whether one more step, of this number, is paid for."""
        return not self.closed and step <= self.steps and self.used + self.weight_of(step) <= self.charged

    @property
    def state(self) -> str:
        """For display: "complete", or "open at" or "closed at" the last released step."""
        if self.released and self.last_step == self.steps:
            return "complete"
        return f"closed at {self.last_step}" if self.closed else f"open at {self.last_step}"

    def weight_of(self, step: int) -> Fraction:
        """Weight of a step."""
        return Fraction(weight_of_step(self.phases, step))

    def weight_after(self, step: int) -> Fraction:
        """Sum of the weights of all later steps."""
        return weight_after(self.phases or (Phase(self.steps),), step)

    def spent(self) -> tuple[Fraction, Fraction, Fraction]:
        """μ², δ₀ and ε₀ that are charged now, exactly."""
        if self.is_gaussian:
            delta_0 = Fraction(self.whole.delta_0 if self.used or not self.closed else 0)
            return Fraction(self.whole.mu2) * self.charged / self.weight_after(0), delta_0, Fraction(0)
        charges = list(map(astuple, self.charges))
        mu2, delta_0, pure = (sum((Fraction(charge[i]) for charge in charges), Fraction(0)) for i in range(3))
        return mu2, delta_0, pure

    def cost(self) -> Cost:
        """The same, rounded up."""
        return Cost(*map(rounded_up, self.spent()))

    def after(self, body: Mapping) -> Run:
        """The run after a further entry about it."""
        kind = body["kind"]
        if kind == "batch":
            if self.steps != 1 or count(body["batch"]) != len(self.batches) + 1 or not isinstance(body["hash"], str):
                raise ValueError("a batch that does not follow the one before")
            changes: dict[str, Any] = {"used": max(Fraction(1), self.used), "released": max(1, self.released)}
            changes |= {"last_step": 1, "next_step": 2}
            return replace(self, batches=(*self.batches, body["hash"]), **changes)
        step = count(body["step"])
        if kind == "release":
            if (body["attempt"], step) != (self.attempt, self.next_step) or not self.has_paid_for(step):
                raise ValueError("a step that was not paid for")
            changes = {"used": self.used + self.weight_of(step), "last_step": max(self.last_step, step)}
            return replace(self, released=self.released + 1, next_step=step + 1, **changes)
        if kind == "resume":
            more, attempt, cost = amount(body["further"]), count(body["attempt"]), _cost(body["cost"])
            if step > self.last_step or attempt != self.attempt + 1 or (more and not cost.mu2):
                raise ValueError("a resume that does not follow")
            charges = self.charges if self.is_gaussian or not more else (*self.charges, cost)
            changes = {"charged": self.charged + Fraction(more), "charges": charges}
            return replace(self, attempt=attempt, next_step=step + 1, closed=False, **changes)
        if kind == "close":
            returned = amount(body["returned"])
            if Fraction(returned) > self.charged - self.used or (returned and not self.is_gaussian and self.released):
                raise ValueError("steps are given back that were released")
            charges = () if returned and not self.is_gaussian else self.charges
            changes = {"charged": self.charged - Fraction(returned), "charges": charges}
            return replace(self, closed=True, returned=self.returned + returned, **changes)
        raise ValueError(f"unknown kind {kind!r}")


@dataclass(frozen=True)
class Book:
    """The state after the entries so far. Further entries make a new book, so that no reader sees a half-updated one.

    Attributes
    ----------
    terms : dict
        The ledger's terms, from the first entry; ``limits`` are those of μ², δ₀ and ε₀.
    runs : dict of str to Run
    scopes : set of str
        Tokens of the scopes ``with ledger:`` that were opened.
    units : set of str
        Accepted names of a record: the ledger's unit, and names declared to mean the same.
    protected : set of str
        Units of the fits so far.
    known : int
        Number of entries.
    head, identity : str
        Hash of the last entry, and of the first.
    """

    terms: dict = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    scopes: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)
    protected: set[str] = field(default_factory=set)
    known: int = 0
    head: str = START
    identity: str = ""

    def after(self, entries: Iterable[Entry]) -> Book:
        """The book with further entries."""
        sets: dict[str, Any] = {name: set(getattr(self, name)) for name in ("scopes", "units", "protected")}
        book = replace(self, runs=dict(self.runs), **sets)  # new containers, which only this loop changes
        for number, body, digest in entries:
            try:
                terms = book._enter(body, number == 0)
            except Exception as error:
                raise LedgerError(
                    f"Entry {number} of the ledger is not one that vips writes ({type(error).__name__}: {error}): the file was "
                    "forged."
                ) from error
            identity = digest if number == 0 else book.identity
            book = replace(book, terms=terms, known=number + 1, head=digest, identity=identity)
        return book

    def _enter(self, body: dict, is_first: bool) -> dict:
        """Apply one entry to the containers; returns the terms after it."""
        kind = body["kind"]
        text(body["time"])
        if (kind == "open") != is_first:
            raise ValueError("a ledger has one beginning")
        if kind == "open":
            terms = checked_terms(body)
            self.units.add(terms["unit"])
            return terms
        if kind == "scope":
            self.scopes.add(text(body["token"]))
        elif kind == "unit":
            self.units.add(text(body["name"]))
        elif kind == "charge":
            run = Run.charged_by(body)
            if run.run in self.runs:
                raise ValueError("a run is charged once")
            if run.unit is not None:
                self.protected.add(run.unit)
            self.runs[run.run] = run
        else:
            self.runs[body["run"]] = self.runs[body["run"]].after(body)
        return self.terms

    def run(self, name: str) -> Run:
        """A run by its name."""
        if name not in self.runs:
            raise LedgerError(f"The ledger of {self.terms['dataset']!r} knows of no run {name!r}.")
        return self.runs[name]

    def _spent(self) -> list[Fraction]:
        """Σ μ², Σ δ₀ and Σ ε₀ of everything that is charged, exactly."""
        of_runs = zip(*(run.spent() for run in self.runs.values()), strict=True)
        return [sum(column, Fraction(0)) for column in of_runs] or [Fraction(0)] * 3

    def spent(self) -> Cost:
        """The same, rounded up."""
        return Cost(*map(rounded_up, self._spent()))

    def left(self) -> PrivacyBudget:
        """What is left of the three limits, rounded down; a rest of a billionth of a limit counts as nothing."""
        unspent = (
            surplus if (surplus := Fraction(limit) - spent) > Fraction(limit) / 10**9 else Fraction(0)
            for limit, spent in zip(self.terms["limits"], self._spent(), strict=True)
        )
        mu2, delta_0, pure = map(rounded_down, unspent)
        return PrivacyBudget.of_parts(mu2, delta_0, pure, self.terms["delta"], self.terms["relation"], SAMPLED_SHARE)

    def admit(self, cost: Cost, what: str, instead: str) -> None:
        """Raise PrivacyBudgetError unless the three limits have room for ``cost``."""
        left, delta = self.left(), self.terms["delta"]
        of_dataset = f"The privacy budget of {self.terms['dataset']!r} has no room for {what}"
        if cost.delta_0 > left.delta_0:
            raise PrivacyBudgetError(
                f"{of_dataset}: its δ is {cost.delta_0:.4g}, and of a tenth of the ledger's δ, which is for such statements, "
                f"{left.delta_0:.4g} is left. Nothing was charged. State it at a smaller δ, with the ε that holds there."
            )
        if cost.mu2 > left.mu2 or cost.pure > left.pure:
            raise PrivacyBudgetError(
                f"{of_dataset}: alone it shows as ε = {cost.epsilon(delta):.4g}, and what is left shows as ε = "
                f"{left.epsilon:.4g} (μ² = {cost.mu2:.4g} of {left.mu2:.4g}). Nothing was charged. {instead}"
            )

    # -- the rules: each action makes entries, or raises --------------------------------------------------------

    def charging(
        self, run: str, statement: Statement, what: str, unit: str | None, purpose: str, is_released: bool
    ) -> list[dict]:
        """Charge all steps of a new run. One that is released at once is never given back."""
        self._check_unit(what, unit)
        cost, steps = statement.price(self.left()), statement.steps
        self.admit(cost, repr(what) if steps == 1 else f"{steps} steps of {what}", _instead(statement, cost))
        paid = {"cost": list(astuple(cost)), "is_gaussian": statement.is_gaussian}
        named = {"what": what, "unit": unit, "purpose": purpose, "statement": statement.what, "steps": steps}
        entry = {"kind": "charge", "run": run, **named, **paid}
        release = {"kind": "release", "run": run, "attempt": 0, "step": 1}
        return [entry, release] if is_released else [entry]

    def _check_unit(self, model: str, unit: str | None) -> None:
        """Raise LedgerError unless the fit protects what the ledger counts."""
        counted = self.terms["unit"]
        if unit is not None and counted != ANY_UNIT and not any(is_same_unit(unit, name) for name in self.units):
            raise LedgerError(
                f"The ledger of {self.terms['dataset']!r} counts by {counted!r}; {model} protects {unit!r}: the budget would "
                f"promise more than the fit keeps. Pass the ids of the ledger's unit to `fit` as `groups=`, in a series named "
                f"{counted!r}; or, if the two are the same, say so once: ledger.accept_unit({unit!r})"
            )
        others = {other for other in self.protected if other != unit}
        if unit is not None and counted == ANY_UNIT and others and any(map(is_group, {unit, *others})):
            raise LedgerError(
                f"The ledger of {self.terms['dataset']!r} has fits that protect {min(others)!r}; {model} protects {unit!r}. "
                "Together they would protect neither. Use one unit for all fits, and a ledger that is made with it."
            )

    def accepting(self, name: str) -> list[dict]:
        """Accept another name of the unit."""
        return [] if name in self.units else [{"kind": "unit", "name": name}]

    def resuming(self, name: str, step: int, plan: PrivacyPlan) -> list[dict]:
        """Continue a run after ``step``; charge the steps that it repeats, and those that were given back."""
        run = self.run(name)
        if fields_of(plan) != run.plan:
            raise LedgerError(f"Run {name} was charged for another plan.")
        if not isinstance(step, int) or not 0 <= step <= run.steps:
            raise LedgerError(f"Run {name} has no step {step}.")
        if step > run.last_step:
            raise LedgerError(
                f"The checkpoint is at step {step}, but the ledger knows of {run.last_step} released steps of run {name}: the "
                "ledger is older than the checkpoint, or was replaced."
            )
        if step == 0 and run.used and run.is_gaussian and run.whole.delta_0:
            raise LedgerError(f"The first step of run {name} has a threshold, and is released once: begin another fit.")
        further = rounded_up(max(Fraction(0), run.weight_after(step) - (run.charged - run.used)))
        cost = self._cost_of_repeated(run, plan, further) if further else Cost()
        self.admit(
            cost, f"{further:g} repeated steps of {run.what}", "Use more noise, a smaller sampling rate or fewer steps."
        )
        entry = {"kind": "resume", "run": name, "attempt": run.attempt + 1, "step": step, "further": further}
        return [entry | {"cost": list(astuple(cost))}]

    def _cost_of_repeated(self, run: Run, plan: PrivacyPlan, weight: float) -> Cost:
        if run.is_gaussian:
            delta_0 = run.whole.delta_0 if run.closed and not run.used else 0.0  # given back with its step
            return Cost(rounded_up(Fraction(run.whole.mu2) * Fraction(weight) / run.weight_after(0)), delta_0)
        return of_plan(plan.with_n_steps(int(weight)), self.terms["relation"]).price(self.left())

    def releasing(self, name: str, attempt: int, step: int) -> list[dict]:
        """Record a step of the present attempt, if it is next and paid for."""
        run = self.run(name)
        if run.attempt != attempt:
            raise LedgerError(f"Run {name} was resumed elsewhere: this process must not go on with it.")
        if run.closed:
            raise LedgerError(f"Run {name} was closed: its steps were given back.")
        if step != run.next_step or not run.has_paid_for(step):
            raise LedgerError(f"Run {name} has no charge for step {step}.")
        return [{"kind": "release", "run": name, "attempt": attempt, "step": step}]

    def releasing_batch(self, name: str, batch: int, digest: str) -> list[dict]:
        """Record the release after a batch of a stream. One that is on record may be completed, with the same hash."""
        run = self.run(name)
        if run.closed:
            raise LedgerError(
                f"Run {name} was closed: its charge was given back, and nothing can be released under it."
            )
        known = len(run.batches)
        if batch == known and run.batches[-1] == digest:
            return []
        if batch <= known:
            raise LedgerError(
                f"{known} batches of run {name} are on record. Batch {batch} of this stream is an older copy, or another one "
                "than was released: two copies must not go on under one charge."
            )
        if batch != known + 1:
            raise LedgerError(
                f"The stream is at batch {batch}, and the ledger knows of {known} batches of run {name}: the ledger is older "
                "than the stream, or was replaced."
            )
        return [{"kind": "batch", "run": name, "batch": batch, "hash": digest}]

    def closing(self, name: str, attempt: int | None = None) -> list[dict]:
        """End a run, unless it has ended, or has been resumed since ``attempt``."""
        run = self.run(name)
        if run.closed or run.next_step > run.steps:
            return []
        if attempt is not None and run.attempt != attempt:
            return []
        returned = rounded_down(run.charged - run.used) if run.is_gaussian or not run.released else 0
        return [{"kind": "close", "run": name, "step": run.last_step, "returned": returned}]


def _instead(statement: Statement, cost: Cost) -> str:
    if "epsilon" in statement.what and cost.mu2:
        return (
            "Pure ε beside Gaussian noise is dear when it is large: state `rho` or the noise multiplier if the mechanism "
            "allows that, or make a ledger that sets a part of ε aside: PrivacyLedger(..., pure=...)."
        )
    return "Use a smaller ε (privacy=ledger.remaining() is always admitted), more noise, or a smaller sampling rate."
