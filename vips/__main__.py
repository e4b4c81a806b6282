"""``python -m vips``: private fits, predictions, privacy questions and ledgers from the shell."""

from __future__ import annotations

import argparse
import sys
import warnings

from vips._commands.fit import add_commands
from vips._printable import printable
from vips.privacy import PrivacyPlan
from vips.privacy.ledger.ledger import PrivacyLedger

_OUTRIGHT = 0.2  # share of a new ledger's δ for releases that need one of their own


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns 0, or 2 after a line on the error stream."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what is paid for is shown on a terminal of any encoding
            stream.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(printable(f"Note: {message}"), file=sys.stderr)
            options.run(options)
    except (ImportError, KeyError, TypeError, ValueError, OSError) as error:
        print(printable(f"{type(error).__name__}: {error}"), file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vips", description="Private variational Bayes: fits, plans and ledgers."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    add_commands(commands)
    plan = commands.add_parser(
        "plan",
        help="ε, noise or number of steps from the other two",
        description="Give two of --epsilon, --noise-multiplier and --n-steps; the third is computed.",
    )
    plan.add_argument("--delta", type=float, required=True)
    plan.add_argument("--epsilon", type=float)
    plan.add_argument("--noise-multiplier", type=float, help="noise standard deviation ÷ clip norm")
    plan.add_argument("--n-steps", type=int)
    plan.add_argument("--sampling-rate", type=float)
    plan.add_argument("--sampling", choices=["poisson", "full"], default="poisson")
    plan.add_argument("--relation", choices=["add_or_remove", "replace_one"], default="add_or_remove")
    plan.add_argument("--noise", choices=["gaussian", "discrete"], default="gaussian")
    plan.add_argument("--accountant", default="pld", help="default: pld, the tightest")
    plan.set_defaults(run=_plan)

    ledger = commands.add_parser("ledger", help="show, check and close ledgers")
    actions = ledger.add_subparsers(required=True, metavar="ACTION")
    create = actions.add_parser(
        "create", help="begin a budget for a data set", description="Begin a budget for a data set."
    )
    create.add_argument("file")
    create.add_argument("--dataset", required=True, help="its name, for people")
    create.add_argument("--epsilon", type=float, required=True)
    create.add_argument("--delta", type=float, required=True)
    create.add_argument("--unit", help="column of ids: only fits that protect its persons are accepted")
    create.set_defaults(run=_create)
    for name, run, what in (
        ("show", _show, "history and remaining budget"),
        ("head", _head, "number and hash of the last entry; keep them elsewhere"),
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


def _plan(options: argparse.Namespace) -> None:
    names = ("sampling_rate", "sampling", "relation", "noise")
    settings = {name: getattr(options, name) for name in names}
    if [options.epsilon, options.noise_multiplier, options.n_steps].count(None) != 1:
        raise ValueError("Give exactly two of --epsilon, --noise-multiplier and --n-steps.")
    if options.epsilon is None:
        plan = PrivacyPlan(noise_multiplier=options.noise_multiplier, n_steps=options.n_steps, **settings)
    else:
        plan = PrivacyPlan.from_epsilon(
            epsilon=options.epsilon, delta=options.delta, noise_multiplier=options.noise_multiplier, n_steps=options.n_steps,
            accountant=options.accountant, **settings,
        )  # fmt: skip
    epsilon = plan.epsilon(options.delta, options.accountant)
    print(f"epsilon           {epsilon:.6g}   (at delta {options.delta:g}, by {options.accountant!r})")
    print(f"noise_multiplier  {plan.noise_multiplier:.6g}")
    print(f"n_steps           {plan.n_steps}")
    print(f"sampling_rate     {plan.sampling_rate:.6g}   ({plan.sampling}, {plan.relation}, {plan.noise} noise)")


def _create(options: argparse.Namespace) -> None:
    unit = {} if options.unit is None else {"unit": options.unit}
    share = _OUTRIGHT * options.delta  # for columns and words that are learnt
    PrivacyLedger(options.file, options.epsilon, options.delta, options.dataset, outright_delta=share, **unit)
    print(f"a budget of ε = {options.epsilon:g}, δ = {options.delta:g} for {printable(options.dataset)}")


def _show(options: argparse.Namespace) -> None:
    ledger = PrivacyLedger.open(options.file)
    remaining = ledger.remaining()
    budget = max(remaining["filter_budget"], 1e-300)  # 0 if the whole budget is set apart for declared fits
    outright = f" ({ledger.outright_delta:g} of it outright)" if ledger.outright_delta else ""
    budgets = f"ε = {ledger.epsilon:g}, δ = {ledger.delta:g}{outright}"
    lines = [f"{ledger.dataset}: {budgets}, {ledger.relation}, unit: {ledger.unit}"]
    for entry in ledger.history():
        if entry["kind"] == "declare":
            lines.append(
                f"{entry['time']}  {entry['group']}: {len(entry['plans'])} fits declared, ε₁ = {entry['epsilon']:.4g}"
            )
    for run in ledger.runs():
        cost = run.group or f"{run.filter_steps * run.divergence / budget:.2%} of the filter"
        if run.outright_delta:
            cost += f", outright δ = {run.charged * run.outright_delta:g}"
        lines.append(
            f"{run.time}  {run.run}  {run.model:30s} {run.state:14s} of {run.steps}, charged {run.charged}: {cost}"
        )
    share = max(0.0, remaining["divergence"]) / budget
    lines.append(f"spent: ε = {ledger.spent():.4g} at δ = {ledger.delta:g}; {share:.2%} of the filter's budget is left")
    if ledger.outright_delta:
        lines.append(f"{remaining['outright_delta']:.4g} of the outright δ is left")
    print("\n".join(map(printable, lines)))


def _head(options: argparse.Namespace) -> None:
    print(PrivacyLedger.open(options.file).head())


def _verify(options: argparse.Namespace) -> None:
    PrivacyLedger.open(options.file).verify(options.head)
    print("every hash fits" + ("" if options.head is None else ", and the head is part of the chain"))


def _close(options: argparse.Namespace) -> None:
    returned = PrivacyLedger.open(options.file).close(options.name)
    print(f"closed; {returned} steps were given back")


if __name__ == "__main__":
    sys.exit(main())
