"""The command ``plan``: what a fit will say, or ε, noise and steps of a bare plan."""

from __future__ import annotations

import argparse

from vips._support.printable import lines_of_table, printable
from vips.core.budget import PrivacyBudget
from vips.core.plan import PrivacyPlan
from vips.tools.commands.files import meaning_of

__all__ = ["plan"]


def _plan_of_fit(options: argparse.Namespace) -> None:
    from vips.tools.planning import plan_for

    if options.records is None:
        raise ValueError("--model needs --records: about how many records or persons there are.")
    widths = dict(_named_number(text) for text in options.width)
    if (options.epsilon is None) != bool(widths):
        raise ValueError("Give --epsilon, and learn the widths; or --width, and learn the ε.")
    budget = None if options.epsilon is None else PrivacyBudget(options.epsilon, options.delta)
    model = _MODELS[options.model](options)
    known = {"privacy": budget, "width": widths, "delta": options.delta, "outcome": options.outcome}
    plan = plan_for(model, n_records=options.records, **known)
    print(printable(str(plan)))
    if plan.widths is not None:
        print("\n".join(lines_of_table(plan.widths)))


def _named_number(text: str) -> tuple[str, float]:
    name, separator, number = text.rpartition("=")
    try:
        return name, float(number if separator and name else "")
    except ValueError:
        raise ValueError(f"--width is written NAME=NUMBER, as in --width age=0.01; got {text!r}.") from None


def _logistic(options: argparse.Namespace):
    from vips.models import BayesianLogisticRegression
    from vips.preprocessing import TableEncoder, make_private_pipeline

    pairs = [text.partition("=") for text in options.column]
    columns = {name: meaning_of(name, what) for name, _, what in pairs if what != "drop"}
    if not columns or not all(separator for _, separator, _ in pairs):
        raise ValueError(
            "--model logistic needs each column of the table, as in --column age=0:110 --column ward=A,B,C."
        )
    encoder, model = TableEncoder(columns), BayesianLogisticRegression()
    return make_private_pipeline(encoder, model, privacy=PrivacyBudget(1.0, options.delta))


def _topics(options: argparse.Namespace):
    from vips.models import LatentDirichletAllocation

    return LatentDirichletAllocation(vocabulary=options.words)


def _pathways(options: argparse.Namespace):
    from vips.models import CategoricalHMM

    if options.events is None:
        raise ValueError("--model pathways needs --events: how many different events there may be.")
    return CategoricalHMM(options.states, n_symbols=options.events)


_MODELS = {"logistic": _logistic, "topics": _topics, "pathways": _pathways}


def plan(options: argparse.Namespace) -> None:
    """Print what a fit will say, or what a bare plan costs."""
    if options.model is not None:
        _plan_of_fit(options)
        return
    names = ("noise_multiplier", "n_steps", "sampling_rate", "sampling", "relation", "noise")
    settings = {name: getattr(options, name) for name in names}
    if [options.epsilon, options.noise_multiplier, options.n_steps].count(None) != 1:
        raise ValueError("Give exactly two of --epsilon, --noise-multiplier and --n-steps; or --model.")
    if options.epsilon is None:
        plan = PrivacyPlan(**settings)
    else:
        wanted = {name: getattr(options, name) for name in ("epsilon", "delta", "accountant")}
        plan = PrivacyPlan.from_epsilon(**wanted, **settings)
    epsilon = plan.epsilon(options.delta, options.accountant)
    print(f"epsilon           {epsilon:.6g}   (at delta {options.delta:g}, by {options.accountant!r})")
    print(f"noise_multiplier  {plan.noise_multiplier:.6g}")
    print(f"n_steps           {plan.n_steps}")
    print(f"sampling_rate     {plan.sampling_rate:.6g}   ({plan.sampling}, {plan.relation}, {plan.noise} noise)")
