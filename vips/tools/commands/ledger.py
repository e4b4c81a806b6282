"""The command ``ledger``."""

from __future__ import annotations

import argparse
import json

from vips._support.printable import printable
from vips.core.ledger.book import Run
from vips.core.ledger.ledger import PrivacyLedger

__all__ = ["close", "create", "head", "show", "verify"]

_DEAR = 1.1  # times its own ε: an entry of which `show` says why it costs so much


def create(options: argparse.Namespace) -> None:
    """Begin a budget."""
    unit = {} if options.unit is None else {"unit": options.unit}
    terms = {"pure": options.pure, "relation": options.relation, **unit}
    PrivacyLedger(options.file, options.epsilon, options.delta, options.dataset, **terms)
    print(f"a budget of ε = {options.epsilon:g}, δ = {options.delta:g} for {printable(options.dataset)}")


def show(options: argparse.Namespace) -> None:
    """Print history and remaining budget."""
    ledger = PrivacyLedger.open(options.file)
    if options.json:
        print(json.dumps(_facts(ledger)))
        return
    aside = f" (ε = {ledger.pure:g} of it pure)" if ledger.pure else ""
    budget = f"ε = {ledger.epsilon:g}, δ = {ledger.delta:g}{aside}"
    lines = [f"{ledger.dataset}: {budget}, {ledger.relation}, unit: {ledger.unit}"]
    for run in ledger.runs():
        aim = f"; {run.purpose}" if run.purpose else ""
        steps = f"{len(run.batches)} batches so far" if run.batches else f"{run.state:14s} of {run.steps}"
        cost = f"{steps}: {_cost(run, ledger.delta)}"
        lines.append(f"{run.time}  {run.run}  {run.what:30s} {cost}; unit: {run.unit or ledger.unit}{aim}")
    left = ledger.remaining()
    lines.append(
        f"spent: ε = {ledger.spent():.4g}; left: ε = {left.epsilon:.4g}, and δ = {left.delta_0:.2g} for thresholds"
    )
    lines.append(f"Whatever is chosen, the total stays within ε = {ledger.epsilon:g}, δ = {ledger.delta:g}.")
    lines.append("Numbers of ε do not add up (squares of μ do); those in brackets are of one entry without the others.")
    print("\n".join(map(printable, lines)))


def _facts(ledger: PrivacyLedger) -> dict:
    """What `show` prints, for programs."""
    terms = ("dataset", "unit", "relation", "epsilon", "delta", "pure")
    names = ("run", "time", "what", "purpose", "state", "steps", "released")
    runs = [
        {name: getattr(run, name) for name in names}
        | {"unit": run.unit or ledger.unit, "batches": len(run.batches), "epsilon": run.cost().epsilon(ledger.delta)}
        for run in ledger.runs()
    ]
    facts = {"spent": ledger.spent(), "left": ledger.remaining().epsilon, "head": ledger.head(), "runs": runs}
    return {name: getattr(ledger, name) for name in terms} | facts


def _cost(run: Run, delta: float) -> str:
    """What an entry costs beside others, and alone, in words."""
    cost, epsilon = run.cost(), run.own_epsilon(delta)
    outright = f", δ = {cost.delta_0:.2g}" if cost.delta_0 else ""
    alone = "" if epsilon is None else f" (alone {epsilon:.4g})"
    if "epsilon" in run.statement and cost.mu2:
        alone = f" (pure {run.statement['epsilon']:g}, charged as Gaussian: too little was set aside as `pure`)"
    elif epsilon is not None and run.whole.epsilon(delta) > _DEAR * epsilon:
        alone = (
            f" (alone {epsilon:.4g}: beside others, few samples cost as much as a Gaussian mechanism that covers their rare "
            "large losses; more steps, larger samples or full batches are cheaper)"
        )
    return f"ε = {cost.epsilon(delta):.4g}{outright}{alone}"


def verify(options: argparse.Namespace) -> None:
    """Check the hashes."""
    PrivacyLedger.open(options.file).verify(options.head)
    print("every hash fits" + ("" if options.head is None else ", and the head is part of the chain"))


def close(options: argparse.Namespace) -> None:
    """End a run that was killed."""
    returned = PrivacyLedger.open(options.file).close(options.name)
    print(f"closed; {returned:g} steps were given back")


def head(options: argparse.Namespace) -> None:
    """Print number and hash of the last entry."""
    print(PrivacyLedger.open(options.file).head())
