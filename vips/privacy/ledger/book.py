"""The state of a ledger: a pure function of its entries, without files or clocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vips.exceptions import LedgerError, PrivacyBudgetError
from vips.privacy import accounting
from vips.privacy.ledger.chain_file import START, Entry
from vips.privacy.plan import PrivacyPlan
from vips.privacy.units import is_group, unit_of_group

__all__ = ["ANY_UNIT", "Book", "Run", "best_order", "cost_of", "filter_budget"]


# The default unit of a ledger: it accepts whatever a model calls one record.
ANY_UNIT = "one record"


def filter_budget(epsilon: float, delta: float, order: float) -> float:
    """B: the largest Rényi divergence of that order that implies (ε, δ); negative if none does.

    ε = B + log((α - 1)/α) - (log δ + log α)/(α - 1): proposition 12 of Canonne, Kamath and Steinke (2020),
    arXiv:2004.00010v5.
    """
    return epsilon - math.log1p(-1.0 / order) + (math.log(delta) + math.log(order)) / (order - 1.0)


def best_order(epsilon: float, delta: float) -> int:
    """The integer order with the most room for steps of divergence ∝ α, such as Gaussian ones with much noise.

    An integer, because the divergence of discrete noise is bounded at integer orders.
    """
    return max(range(2, 4097), key=lambda order: filter_budget(epsilon, delta, order) / order)


def cost_of(plan: PrivacyPlan) -> dict:
    """The fields of a plan that its privacy depends on, ready for JSON."""
    names = ("noise_multiplier", "sampling_rate", "n_steps", "sampling", "relation", "noise", "batch_size", "n_records")
    return {name: getattr(plan, name) for name in names}


@dataclass(frozen=True)
class Run:
    """One admitted fit.

    Attributes
    ----------
    run, model, plan, time
        As in the entry that charged it.
    steps : int
        T.
    divergence : float
        ρ.
    group : str or None
        The declared group that pays for it; None is the filter.
    charged, released : int
        Steps paid for, and steps whose noisy total exists (repeated ones counted again).
    last_step, next_step, attempt : int
        Largest step ever released; the step that the present attempt releases next; how often the run was resumed.
    returned : int
        Steps given back.
    """

    run: str
    model: str
    plan: dict
    time: str
    steps: int
    divergence: float
    group: str | None
    charged: int = 0
    further: int = 0
    released: int = 0
    last_step: int = 0
    next_step: int = 1
    attempt: int = 0
    returned: int = 0
    closed: bool = False

    @property
    def state(self) -> str:
        """For display: "complete", or "open at" or "closed at" the last released step."""
        if self.released and self.last_step == self.steps:
            return "complete"
        return f"closed at {self.last_step}" if self.closed else f"open at {self.last_step}"

    @property
    def filter_steps(self) -> int:
        """Steps that the filter pays for: all of them, or for a declared fit those beyond its declaration."""
        return self.charged if self.group is None else self.further

    def after(self, body: Mapping) -> Run:
        """The run after a further entry about it."""
        kind = body["kind"]
        if kind == "release":
            last = max(self.last_step, body["step"])
            return replace(self, released=self.released + 1, last_step=last, next_step=body["step"] + 1)
        if kind == "resume":
            charged, further = self.charged + body["further"], self.further + body["further"]
            next_step = body["step"] + 1
            return replace(
                self, attempt=body["attempt"], next_step=next_step, closed=False, charged=charged, further=further
            )
        if kind == "close":
            returned, further = body["returned"], max(0, self.further - body["returned"])
            charged = self.charged - returned
            return replace(self, closed=True, returned=self.returned + returned, charged=charged, further=further)
        raise ValueError(f"unknown kind {kind!r}")


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
    blocks : set of str
        Tokens of the blocks ``with ledger:`` that were opened.
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
    blocks: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)
    protected: set[str] = field(default_factory=set)
    known: int = 0
    head: str = START
    identity: str = ""

    def after(self, entries: Iterable[Entry]) -> Book:
        """The book with further entries."""
        book = replace(
            self, groups=dict(self.groups), runs=dict(self.runs),
            blocks=set(self.blocks), units=set(self.units), protected=set(self.protected),
        )  # fmt: skip  # new containers, which only this loop changes
        for number, body, digest in entries:
            try:
                terms = book._enter(body)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise LedgerError(
                    f"Entry {number} of the ledger is not one that this version writes ({type(error).__name__}: {error}): the "
                    "file was forged, or a newer version wrote it."
                ) from error
            identity = digest if number == 0 else book.identity
            book = replace(book, terms=terms, known=number + 1, head=digest, identity=identity)
        return book

    def _enter(self, body: dict) -> dict:
        """Apply one entry to the containers; returns the terms after it."""
        kind = body["kind"]
        if kind == "open":
            self.units.add(body["unit"])
            return {name: body[name] for name in ("epsilon", "delta", "dataset", "unit", "relation", "order")}
        if kind == "declare":
            self.groups[body["group"]] = body | {"unused": list(body["plans"])}
        elif kind == "block":
            self.blocks.add(body["token"])
        elif kind == "unit":
            self.units.add(body["name"])
        elif kind == "charge":
            if body["unit"] is not None:
                self.protected.add(body["unit"])
            run = Run(*(body[name] for name in ("run", "model", "plan", "time", "steps", "divergence", "group")))
            if run.group is not None:
                unused = list(self.groups[run.group]["unused"])
                unused.remove(run.plan)
                self.groups[run.group] = self.groups[run.group] | {"unused": unused}
            self.runs[run.run] = replace(run, charged=run.steps)
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
        """δ that is not set apart for declared fits."""
        return self.terms["delta"] - math.fsum(group["delta"] for group in self.groups.values())

    @property
    def filter_budget(self) -> float:
        """B of the budget that is not set apart; 0 if no divergence implies it."""
        return max(0.0, filter_budget(self.filter_epsilon, self.filter_delta, self.terms["order"]))

    @property
    def divergence_spent(self) -> float:
        """Σ steps · ρ of everything that the filter pays for."""
        return math.fsum(run.filter_steps * run.divergence for run in self.runs.values())

    def epsilon_spent(self) -> float:
        """ε of everything that was admitted, declared shares included, at the ledger's δ."""
        declared = math.fsum(group["epsilon"] for group in self.groups.values())
        spent = self.divergence_spent
        if spent == 0.0:
            return declared
        conversion = -filter_budget(0.0, self.filter_delta, self.terms["order"])
        return declared + max(0.0, spent + conversion)

    def admit(self, divergence: float, steps: int) -> None:
        """Raise PrivacyBudgetError unless the filter has room for ``divergence`` more."""
        spent, budget = self.divergence_spent, self.filter_budget
        if steps and not spent + divergence <= budget * (1.0 - 1e-12):
            raise PrivacyBudgetError(
                f"The privacy budget of {self.terms['dataset']!r} has no room for {steps} steps of this fit: they need "
                f"{divergence:.4g} of Rényi divergence of order {self.terms['order']}, and "
                f"{max(0.0, budget - spent):.4g} of {budget:.4g} is left. Nothing was charged. Use more noise, a smaller "
                "sampling rate or fewer steps."
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
            self.admit(steps * divergence, steps)
        paid = {"plan": cost, "steps": steps, "divergence": divergence, "group": group}
        return [{"kind": "charge", "run": run, "model": model, "unit": unit, **paid}]

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
        others = {each for each in self.protected if each != unit}
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
        self.admit(further * run.divergence, further)
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
