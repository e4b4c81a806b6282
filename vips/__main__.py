"""``python -m vips``: private fits, predictions, certificates, privacy questions and ledgers from the shell."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from importlib import metadata

from vips._support.printable import printable
from vips.core.ledger.book import Run
from vips.core.ledger.ledger import PrivacyLedger
from vips.exceptions import PrivacyBudgetError
from vips.tools.commands.compile import add_compile
from vips.tools.commands.fit import add_commands
from vips.tools.commands.inspect import add_certificate, add_inspect
from vips.tools.commands.plan import add_plan

_NO_READER = 128 + 13  # as the shell shows a command that SIGPIPE has ended
_DEAR = 1.1  # times its own ε: an entry of which `ledger show` says why it costs so much


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns 0, 1 if `certificate check` found a difference, 141 if nobody reads the output any more, or
    after a line on the error stream 3 if a budget has no room, else 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what is paid for is shown on a terminal of any encoding
            stream.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(printable(f"Note: {message}"), file=sys.stderr)
            status = options.run(options)
            sys.stdout.flush()
    except BrokenPipeError:
        return _NO_READER
    except (ImportError, KeyError, TypeError, ValueError, OSError) as error:
        print(printable(f"{type(error).__name__}: {error}"), file=sys.stderr)
        return 3 if isinstance(error, PrivacyBudgetError) else 2
    return status or 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vips", description="Private variational Bayes: fits, plans and ledgers."
    )
    parser.add_argument("--version", action="version", version=f"vips {metadata.version('vips')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    add_commands(commands)
    add_inspect(commands)
    add_certificate(commands)
    add_plan(commands)
    add_compile(commands)

    ledger = commands.add_parser("ledger", help="show, check and close ledgers")
    actions = ledger.add_subparsers(required=True, metavar="ACTION")
    create = actions.add_parser(
        "create", help="begin a budget for a data set", description="Begin a budget for a data set."
    )
    create.add_argument("file")
    create.add_argument("--dataset", required=True, help="its name, for people")
    create.add_argument("--epsilon", type=float, required=True)
    create.add_argument("--delta", type=float, required=True)
    create.add_argument(
        "--pure", type=float, default=0.0, help="a part of ε for mechanisms without δ, such as Laplace noise"
    )
    create.add_argument("--unit", help="column of ids: only fits that protect its persons are accepted")
    create.add_argument("--relation", choices=["add_or_remove", "replace_one"], default="add_or_remove")
    create.set_defaults(run=_create)
    for name, run, what in (
        ("show", _show, "history and remaining budget"),
        (
            "head",
            lambda options: print(PrivacyLedger.open(options.file).head()),
            "number and hash of the last entry; keep them elsewhere",
        ),
        ("verify", _verify, "check every hash"),
        ("close", _close, "end a run that was killed, and give back its unreleased steps"),
    ):
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument("file")
        if name == "verify":
            action.add_argument("--head", help="what `head` printed earlier")
        if name == "close":
            action.add_argument("name", metavar="run", help="name of the run, as `show` prints it")
        action.set_defaults(run=run)
    return parser


def _create(options: argparse.Namespace) -> None:
    unit = {} if options.unit is None else {"unit": options.unit}
    terms = {"pure": options.pure, "relation": options.relation, **unit}
    PrivacyLedger(options.file, options.epsilon, options.delta, options.dataset, **terms)
    print(f"a budget of ε = {options.epsilon:g}, δ = {options.delta:g} for {printable(options.dataset)}")


def _show(options: argparse.Namespace) -> None:
    ledger = PrivacyLedger.open(options.file)
    aside = f" (ε = {ledger.pure:g} of it pure)" if ledger.pure else ""
    budget = f"ε = {ledger.epsilon:g}, δ = {ledger.delta:g}{aside}"
    lines = [f"{ledger.dataset}: {budget}, {ledger.relation}, unit: {ledger.unit}"]
    for run in ledger.runs():
        aim = f"; {run.purpose}" if run.purpose else ""
        cost = f"{run.state:14s} of {run.steps}: {_cost(run, ledger.delta)}"
        lines.append(f"{run.time}  {run.run}  {run.what:30s} {cost}; unit: {run.unit or ledger.unit}{aim}")
    left = ledger.remaining()
    lines.append(
        f"spent: ε = {ledger.spent():.4g}; left: ε = {left.epsilon:.4g}, and δ = {left.delta_0:.2g} for thresholds"
    )
    lines.append(f"Whatever is chosen, the total stays within ε = {ledger.epsilon:g}, δ = {ledger.delta:g}.")
    lines.append("Numbers of ε do not add up (squares of μ do); those in brackets are of one entry without the others.")
    print("\n".join(map(printable, lines)))


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


def _verify(options: argparse.Namespace) -> None:
    PrivacyLedger.open(options.file).verify(options.head)
    print("every hash fits" + ("" if options.head is None else ", and the head is part of the chain"))


def _close(options: argparse.Namespace) -> None:
    returned = PrivacyLedger.open(options.file).close(options.name)
    print(f"closed; {returned:g} steps were given back")


if __name__ == "__main__":
    status = main()
    if status == _NO_READER:  # Python would write what is left when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
