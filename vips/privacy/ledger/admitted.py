"""A fit, or another event, that a ledger admitted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vips.exceptions import LedgerError
from vips.privacy import accounting
from vips.privacy.plan import PrivacyPlan

__all__ = ["Run", "check_plan", "cost_of", "count", "step_divergence"]

_MOST = 2**53  # larger numbers are not exact as floats


def count(value: object) -> int:
    """A number of steps in an entry, or ValueError."""
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r} is no number of steps")
    return value


def cost_of(plan: PrivacyPlan) -> dict:
    """The fields of a plan that its privacy depends on, ready for JSON."""
    names = ("noise_multiplier", "sampling_rate", "n_steps", "sampling", "relation", "noise")
    return {name: getattr(plan, name) for name in names}


def check_plan(plan: PrivacyPlan, relation: str) -> None:
    """Raise LedgerError for a plan that no ledger of this relation can pay for."""
    if not plan.has_guarantee:
        raise LedgerError(
            "A fit without noise, with reproducible noise, or by a subclass of PrivacyPlan has no guarantee: no budget "
            "could pay for it. Fit it without the ledger, and only if the data are public."
        )
    if plan.relation != relation:
        raise LedgerError(f"The ledger counts under {relation!r}, the plan under {plan.relation!r}.")


def step_divergence(plan: PrivacyPlan, order: int) -> float:
    """ρ of one step, rounded up."""
    return math.nextafter(accounting.renyi_divergence(plan, order), math.inf)


@dataclass(frozen=True)
class Run:
    """One admitted fit, or one event of another kind, which is a run of one step.

    Attributes
    ----------
    run, model, plan, time
        As in the entry that charged it. For an event: its description, and what was stated about it.
    steps : int
        T.
    divergence : float
        ρ.
    group : str or None
        The declared group that pays for it; None is the filter.
    outright_delta : float
        δ_i of an event, beside its divergence.
    charged, released : int
        Steps paid for, and steps whose noisy total exists (repeated ones counted again).
    last_step, next_step, attempt : int
        Largest step ever released; the step that the present attempt releases next; how often the run was resumed.
    returned : int
        Steps given back.
    batches : tuple of str
        Of a stream: hashes of its releases so far, one for each batch.
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
    outright_delta: float = 0.0
    batches: tuple[str, ...] = ()

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
        if kind == "batch":
            if self.steps != 1 or count(body["batch"]) != len(self.batches) + 1 or not isinstance(body["hash"], str):
                raise ValueError("a batch that does not follow the one before")
            return replace(self, released=1, last_step=1, next_step=2, batches=(*self.batches, body["hash"]))
        step = count(body["step"])
        if kind == "release":
            return replace(self, released=self.released + 1, last_step=max(self.last_step, step), next_step=step + 1)
        if kind == "resume":
            more, attempt = count(body["further"]), count(body["attempt"])
            charged, further = self.charged + more, self.further + more
            return replace(self, attempt=attempt, next_step=step + 1, closed=False, charged=charged, further=further)
        if kind == "close":
            returned = count(body["returned"])
            further = max(0, self.further - returned)
            charged = self.charged - returned
            return replace(self, closed=True, returned=self.returned + returned, charged=charged, further=further)
        raise ValueError(f"unknown kind {kind!r}")
