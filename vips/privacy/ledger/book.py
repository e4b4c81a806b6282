"""The state of a ledger: a pure function of its entries, without files or clocks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from vips.exceptions import LedgerError, PrivacyBudgetError
from vips.privacy import accounting
from vips.privacy.ledger.admitted import Run, cost_of, count
from vips.privacy.ledger.chain_file import START, Entry
from vips.privacy.ledger.statement import Statement
from vips.privacy.ledger.terms import ANY_UNIT, checked_terms, delta_of_filter, filter_budget
from vips.privacy.plan import PrivacyPlan
from vips.privacy.units import is_group, unit_of_group

__all__ = ["Book"]

_MOST = 1e100  # sums of such amounts do not overflow


@dataclass(frozen=True)
class Book:
    """The state after the entries so far. Further entries make a new book, so that no reader sees a half-updated one.

    Attributes
    ----------
    terms : dict
        The ledger's terms, from the first entry.
    groups : dict of str to dict
        Declared plans; ``unused`` are those without a run.
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
    groups: dict[str, dict] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    scopes: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)
    protected: set[str] = field(default_factory=set)
    known: int = 0
    head: str = START
    identity: str = ""

    def after(self, entries: Iterable[Entry]) -> Book:
        """The book with further entries."""
        book = replace(
            self, groups=dict(self.groups), runs=dict(self.runs),
            scopes=set(self.scopes), units=set(self.units), protected=set(self.protected),
        )  # fmt: skip  # new containers, which only this loop changes
        for number, body, digest in entries:
            try:
                terms = book._enter(body)
            except Exception as error:
                raise LedgerError(
                    f"Entry {number} of the ledger is not one that vips writes ({type(error).__name__}: {error}): the file was "
                    "forged."
                ) from error
            identity = digest if number == 0 else book.identity
            book = replace(book, terms=terms, known=number + 1, head=digest, identity=identity)
        return book

    def _enter(self, body: dict) -> dict:
        """Apply one entry to the containers; returns the terms after it."""
        kind, when = body["kind"], _text(body["time"])
        if kind == "open":
            names = ("epsilon", "delta", "dataset", "unit", "relation")
            terms = checked_terms(*(body[name] for name in names), count(body["order"]), body["outright_delta"])
            self.units.add(terms["unit"])
            return terms
        if kind == "declare":
            share = {name: _amount(body[name]) for name in ("epsilon", "delta")}
            self.groups[_text(body["group"])] = body | share | {"unused": list(body["plans"])}
            if not self.filter_delta > 0.0:
                raise ValueError("delta")
        elif kind == "scope":
            self.scopes.add(_text(body["token"]))
        elif kind == "unit":
            self.units.add(_text(body["name"]))
        elif kind == "charge":
            if body["unit"] is not None:
                self.protected.add(_text(body["unit"]))
            steps, divergence, group = count(body["steps"]), _amount(body["divergence"]), body["group"]
            run = Run(_text(body["run"]), _text(body["model"]), dict(body["plan"]), when, steps, divergence, group)
            if run.group is not None:
                unused = list(self.groups[run.group]["unused"])
                unused.remove(run.plan)
                self.groups[run.group] = self.groups[run.group] | {"unused": unused}
            self.runs[run.run] = replace(run, charged=run.steps)
        elif kind == "event":
            self.protected.add(_text(body["unit"]))
            named = _text(body["run"]), _text(body["description"]), dict(body["what"]), when
            divergence, outright = _amount(body["divergence"]), _amount(body["outright_delta"])
            self.runs[body["run"]] = Run(*named, 1, divergence, None, charged=1, outright_delta=outright)
        else:
            self.runs[body["run"]] = self.runs[body["run"]].after(body)
        return self.terms

    def run(self, name: str) -> Run:
        """A run by its name."""
        if name not in self.runs:
            raise LedgerError(f"The ledger of {self.terms['dataset']!r} knows of no run {name!r}.")
        return self.runs[name]

    @property
    def filter_epsilon(self) -> float:
        """ε that is not set apart for declared fits."""
        return self.terms["epsilon"] - math.fsum(group["epsilon"] for group in self.groups.values())

    @property
    def filter_delta(self) -> float:
        """δ of the filter's Rényi side: fixed before the first fit or event, whatever is spent of the outright δ."""
        renyi_delta = delta_of_filter(self.terms["delta"], self.terms["outright_delta"])
        return renyi_delta - math.fsum(group["delta"] for group in self.groups.values())

    @property
    def filter_budget(self) -> float:
        """B of the budget that is not set apart; 0 if no divergence implies it."""
        return max(0.0, filter_budget(self.filter_epsilon, self.filter_delta, self.terms["order"]))

    @property
    def divergence_spent(self) -> float:
        """Σ steps · ρ of everything that the filter pays for."""
        return math.fsum(run.filter_steps * run.divergence for run in self.runs.values())

    @property
    def outright_spent(self) -> float:
        """Σ δ_i of everything that was charged."""
        return math.fsum(run.charged * run.outright_delta for run in self.runs.values())

    def epsilon_spent(self) -> float:
        """ε of everything that was admitted, declared shares included, at the ledger's δ."""
        declared = math.fsum(group["epsilon"] for group in self.groups.values())
        spent = self.divergence_spent
        if spent == 0.0:
            return declared
        conversion = -filter_budget(0.0, self.filter_delta, self.terms["order"])
        return declared + max(0.0, spent + conversion)

    def admit(self, divergence: float, what: str, instead: str) -> None:
        """Raise PrivacyBudgetError unless the filter has room for ``divergence`` more."""
        spent, budget = self.divergence_spent, self.filter_budget
        if not spent + divergence <= budget * (1.0 - 1e-12):
            raise PrivacyBudgetError(
                f"The privacy budget of {self.terms['dataset']!r} has no room for {what}: needed are {divergence:.4g} of Rényi "
                f"divergence of order {self.terms['order']}, and {max(0.0, budget - spent):.4g} of {budget:.4g} is left. "
                f"Nothing was charged. {instead}"
            )

    def admit_steps(self, run_divergence: float, steps: int) -> None:
        """The same for steps of a fit."""
        if steps:
            instead = "Use more noise, a smaller sampling rate or fewer steps."
            self.admit(steps * run_divergence, f"{steps} steps of this fit", instead)

    def admit_outright(self, delta: float, what: str) -> None:
        """Raise LedgerError unless the reserved δ has room for ``delta`` more."""
        dataset, reserved = self.terms["dataset"], self.terms["outright_delta"]
        if delta and not reserved:
            raise LedgerError(
                f"The ledger of {dataset!r} was made without an outright δ, and cannot admit {what}, whose δ is {delta:g}. "
                "Nothing was charged. State it by `rho` or an event, without `delta`, if its mechanism guarantees that; or "
                f"make a ledger that keeps a part of δ for such events: PrivacyLedger(..., outright_delta={delta:g})."
            )
        spent = self.outright_spent
        if delta and not spent + delta <= reserved:
            raise PrivacyBudgetError(
                f"The outright δ of {dataset!r} has no room for {what}: its δ is {delta:g}, and "
                f"{max(0.0, reserved - spent):.4g} of {reserved:g} is left. Nothing was charged. State it at a smaller δ, with "
                "the ε that holds there."
            )

    # -- the rules: each action makes entries, or raises --------------------------------------------------------

    def declaring(self, plans: list[PrivacyPlan], epsilon: float | None, delta: float | None) -> list[dict]:
        """Set a share (ε₁, δ₁) apart for plans that are fixed now."""
        if self.runs:
            raise LedgerError(
                "Fits can be declared together only before the first fit of the ledger: after a result is known, a plan "
                "may depend on it, and only the filter composes such plans."
            )
        share_delta = 0.5 * self.filter_delta if delta is None else float(delta)
        if not 0.0 < share_delta < self.filter_delta:
            raise PrivacyBudgetError(f"δ₁ = {share_delta:g} is not part of the δ that is left, {self.filter_delta:g}.")
        needed = accounting.composed_epsilon(plans, share_delta)
        share = needed if epsilon is None else float(epsilon)
        if not needed <= share:
            raise PrivacyBudgetError(f"The plans together need ε = {needed:.4g} at δ = {share_delta:g}, not {share:g}.")
        if not share < self.filter_epsilon:
            raise PrivacyBudgetError(f"The plans need ε = {share:.4g}; {self.filter_epsilon:.4g} is left.")
        name = f"group {len(self.groups) + 1}"
        costs = [cost_of(plan) for plan in plans]
        return [{"kind": "declare", "group": name, "plans": costs, "epsilon": share, "delta": share_delta}]

    def charging(self, run: str, model: str, unit: str | None, plan: PrivacyPlan, divergence: float) -> list[dict]:
        """Charge all steps of a new run to the first declared group with this plan unused, or else to the filter."""
        self._check_unit(model, unit)
        cost, steps = cost_of(plan), plan.n_steps
        group = next((name for name, group in self.groups.items() if cost in group["unused"]), None)
        if group is None:
            self.admit_steps(divergence, steps)
        paid = {"plan": cost, "steps": steps, "divergence": divergence, "group": group}
        return [{"kind": "charge", "run": run, "model": model, "unit": unit, **paid}]

    def charging_event(
        self, run: str, statement: Statement, description: str, unit: str, is_released: bool
    ) -> list[dict]:
        """Charge a new event to the filter, and its δ to the outright δ; one that is released is never given back."""
        self._check_unit(description, unit)
        self.admit_outright(statement.outright_delta, repr(description))
        self.admit(statement.divergence, repr(description), "Use more noise, or a smaller ε.")
        paid = {"divergence": statement.divergence, "outright_delta": statement.outright_delta}
        entry = {"kind": "event", "run": run, "description": description, "unit": unit, "what": statement.what, **paid}
        release = {"kind": "release", "run": run, "attempt": 0, "step": 1}
        return [entry, release] if is_released else [entry]

    def _check_unit(self, model: str, unit: str | None) -> None:
        """Raise LedgerError unless the fit protects what the ledger counts."""
        counted = self.terms["unit"]
        accepted = self.units | {unit_of_group(name) for name in self.units}
        if unit is not None and counted != ANY_UNIT and unit not in accepted:
            raise LedgerError(
                f"The ledger of {self.terms['dataset']!r} counts by {counted!r}; {model} protects {unit!r}. If these are not "
                "the same, the budget would promise more than the fit keeps. If they are, say so once: "
                f"ledger.accept_unit({unit!r})"
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
        if cost_of(plan) != run.plan:
            raise LedgerError(f"Run {name} was charged for another plan.")
        if not isinstance(step, int) or not 0 <= step <= run.steps:
            raise LedgerError(f"Run {name} has no step {step}.")
        if step > run.last_step:
            raise LedgerError(
                f"The checkpoint is at step {step}, but the ledger knows of {run.last_step} released steps of run {name}: the "
                "ledger is older than the checkpoint, or was replaced."
            )
        further = max(0, run.steps - step - (run.charged - run.released))
        self.admit_steps(run.divergence, further)
        return [{"kind": "resume", "run": name, "attempt": run.attempt + 1, "step": step, "further": further}]

    def releasing(self, name: str, attempt: int, step: int) -> list[dict]:
        """Record a step of the present attempt, if it is next and paid for."""
        run = self.run(name)
        if run.attempt != attempt:
            raise LedgerError(f"Run {name} was resumed elsewhere: this process must not go on with it.")
        if run.closed:
            raise LedgerError(f"Run {name} was closed: its steps were given back.")
        if step != run.next_step or run.released >= run.charged:
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
        if run.closed or (run.last_step == run.steps and run.released == run.charged):
            return []
        if attempt is not None and run.attempt != attempt:
            return []
        unreleased = run.charged - run.released
        returned = unreleased if run.group is None else min(unreleased, run.further)
        return [{"kind": "close", "run": name, "step": run.last_step, "returned": returned}]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _amount(value: object) -> float:
    """A number that could have been charged."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < _MOST:
        raise ValueError(f"{value!r} is no amount")
    return float(value)
