"""``python -m experiments latent_classes``: latent classes of Adult, private and not, beside independent private marginals.

Eight columns of categories, income, and age and hours in four public groups each: 11 columns, 112 categories. Log likelihood of
9,842 people who were not fitted, per person, and the share of the gap between marginals (one class) and the non-private fit
that a private fit closes; mean total variation distance between two-way marginals of a synthetic table and of these people.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import adult
from vips import LatentClassAnalysis, PrivacyPlan

EPSILONS, DELTA, N_SEEDS, N_CLASSES, N_STEPS, N_TEST = (0.5, 1.0, 4.0), 1e-5, 5, 15, 60, 9_842
GROUPS = {"age": (30, 45, 60), "hours-per-week": (35, 41, 60)}


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments latent_classes", __doc__)
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="fits of each kind")
    options = parser.parse_args(arguments)
    folder = folder_of("latent_classes", options)
    n_steps, n_seeds = (8, 1) if options.quick else (N_STEPS, options.seeds)
    table, categories = people(options.quick)
    train, test = divided(table, options.quick)
    rows = [row("not private", None, *fits(train, test, categories, None, N_CLASSES, n_steps, n_seeds))]
    best = rows[0]["log likelihood"]
    for epsilon in EPSILONS:
        alone = row("marginals", epsilon, *fits(train, test, categories, epsilon, 1, 1, n_seeds))
        ours = row("latent classes", epsilon, *fits(train, test, categories, epsilon, N_CLASSES, n_steps, n_seeds))
        ours["closed"] = (ours["log likelihood"] - alone["log likelihood"]) / (best - alone["log likelihood"])
        rows += [alone, ours]
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def people(quick: bool) -> tuple:
    """The table and the public categories of its columns."""
    bunch = adult(quick)
    categories = {name: values for name, values in bunch.columns.items() if isinstance(values, list)}
    table = bunch.data[list(categories)].copy()
    table["income"] = bunch.target
    for name, bounds in GROUPS.items():
        table[name] = np.digitize(bunch.data[name], bounds)
    return table, categories | {"income": [False, True]} | dict.fromkeys(GROUPS, 4)


def divided(table, quick: bool) -> tuple:
    """People who are fitted, and people who are not."""
    order, n_test = np.random.default_rng(0).permutation(len(table)), 500 if quick else N_TEST
    return table.iloc[order[n_test:]], table.iloc[order[:n_test]]


def fits(train, test, categories, epsilon, n_classes, n_steps, n_seeds) -> tuple[list[float], list[float]]:
    """Held-out log likelihoods, and errors of synthetic two-way marginals."""
    scores, errors = [], []
    for seed in range(n_seeds):
        plan = PrivacyPlan.non_private(n_steps=100)
        if epsilon is not None:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=n_steps)
        model = LatentClassAnalysis(n_classes, categories=categories, privacy=plan, random_state=seed).fit(train)
        scores.append(model.score(test))
        errors.append(two_way_error(model.sample(len(train), random_state=seed)[0], test))
    return scores, errors


def two_way_error(synthetic, real) -> float:
    """Mean over all pairs of columns of the total variation distance between their joint frequencies."""
    distances = []
    for one, other in combinations(real.columns, 2):
        shares = [table.value_counts([one, other], normalize=True) for table in (synthetic, real)]
        distances.append(0.5 * shares[0].sub(shares[1], fill_value=0.0).abs().sum())
    return float(np.mean(distances))


def row(method: str, epsilon: float | None, scores: list[float], errors: list[float]) -> dict:
    return {
        "method": method,
        "epsilon": epsilon,
        "log likelihood": float(np.mean(scores)),
        "smallest": min(scores),
        "two-way error": float(np.mean(errors)),
    }


def as_text(rows: list[dict]) -> str:
    lines = ["| ε | method | log likelihood | smallest | closed | two-way error |", "|---|---|---|---|---|---|"]
    for fit in rows:
        epsilon = "∞" if fit["epsilon"] is None else f"{fit['epsilon']:g}"
        closed = f"{fit['closed']:.2f}" if "closed" in fit else ""
        numbers = f"{fit['log likelihood']:.3f} | {fit['smallest']:.3f} | {closed} | {fit['two-way error']:.3f}"
        lines.append(f"| {epsilon} | {fit['method']} | {numbers} |")
    return "\n".join(lines) + "\n"
