"""A fit, or another event, that a ledger admitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from vips.core.budget import Cost
from vips.core.ledger.terms import checked_purpose
from vips.core.plan import PrivacyPlan
from vips.core.plan_phases import Phase, weight_after, weight_of_step
from vips.core.rounding import rounded_up

__all__ = ["Run", "count"]

_MOST = 2**53  # larger numbers are not exact as floats
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


def _cost(values: Iterable[object]) -> Cost:
    mu2, delta_0, pure = values
    return Cost(amount(mu2), amount(delta_0), amount(pure))


def _plan_in(statement: Mapping) -> PrivacyPlan | None:
    """The plan that a statement names, if any; raises for a statement that vips does not make."""
    if not all(
        amount(statement.get(name, 0.0)) < most for name, most in (("delta", 1.0), ("epsilon", 1e100), ("rho", 1e100))
    ):
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
        charges = [charge.exactly() for charge in self.charges]
        mu2, delta_0, pure = (sum((charge[i] for charge in charges), Fraction(0)) for i in range(3))
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
