"""``python -m experiments weights``: do intervals hold what a weighted survey is about?

Two kinds of people, one in four of the second, whose effects differ by kind. People of the second kind are asked five times as
often, and a weight is 0.3 over the probability of being asked: from 0.3 to 5, about 0.8 on average. Asked for is the
regression, or the shares, of all people, computed from 400,000 of them. ``max_weight`` is 5, δ = 1e-6, and rows have
norm 1 at most. Coverage of 95 % intervals, and their median length, with the weights and without them: over three coefficients
(without the intercept), four shares, or all shares, means and probabilities of answers of two classes or mixture components,
which are the kinds. Tables in which noise hides a class have no intervals, and are left out: then it says how many are left.
"""

from __future__ import annotations

import warnings

import numpy as np
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import (
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    DirichletMultinomial,
    LatentClassAnalysis,
    PrivacyBudget,
    PrivacyWarning,
)

LARGEST, N_PEOPLE, SIZES, EPSILONS, N_TABLES = 5.0, 400_000, (5_000, 20_000), (1.0, 4.0), 40
MODELS = {
    "logistic": BayesianLogisticRegression(max_norm=1.0),
    "linear": BayesianLinearRegression(max_norm=1.0, target_range=(-6.0, 6.0)),
    "counts": BayesianNegativeBinomialRegression(max_norm=1.0, max_count=20),
    "shares": DirichletMultinomial(),
    "classes": LatentClassAnalysis(2, categories=[2] * 8, random_state=0),
    "mixture": BayesianGaussianMixture(2, max_norm=1.0, random_state=0),
}

NUMBERS = "coverage", "std", "length"  # of a kind of fits


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments weights", __doc__)
    parser.add_argument("--tables", type=int, default=N_TABLES, help="of each kind")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0, help="of the tables; noise is never seeded")
    options = parser.parse_args(arguments)
    folder, rng = folder_of("weights", options), np.random.default_rng(options.seed)
    n_tables, sizes = (1, (1_000,)) if options.quick else (options.tables, SIZES)
    rows = []
    for name in options.models:
        X, y, _ = people(name, 20_000 if options.quick else N_PEOPLE, rng)
        truth = read(MODELS[name], X, y)[0]
        kinds = [(n, epsilon) for n in sizes for epsilon in EPSILONS]
        for n, epsilon in tqdm(kinds, name, disable=None):
            row = {"model": name, "records": n, "epsilon": epsilon}
            rows.append(row | repeated(name, n, epsilon, truth, n_tables, rng))
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def people(name: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Columns and answer of people, and the weights that they get if they are asked."""
    second = rng.random(n) < 0.25
    weights = np.clip(np.where(second, 0.3, 1.5) * np.exp(rng.normal(0.0, 0.4, n)), 0.3, LARGEST)
    X = rng.uniform(-1.0, 1.0, (n, 3)) / np.sqrt(3.0)
    effects = np.where(second[:, None], [3.0, -1.0, 0.0], [1.0, 1.0, 0.5])
    predictor = (X * effects).sum(axis=1) + np.where(second, 0.5, -0.5)
    if name == "logistic":
        return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-predictor))).astype(int), weights
    if name == "linear":
        return X, predictor + rng.normal(0.0, np.where(second, 0.5, 1.0)), weights
    if name == "counts":
        return X, rng.poisson(rng.gamma(1.0, np.exp(predictor))), weights
    if name == "classes":
        probabilities = np.tile([[0.8, 0.7, 0.9, 0.6], [0.2, 0.3, 0.1, 0.3]], 2)[second.astype(int)]
        return (rng.random((n, 8)) < probabilities).astype(int), None, weights
    if name == "mixture":
        return rng.normal(np.where(second, -0.3, 0.2)[:, None], [0.1, 0.15], (n, 2)), None, weights
    shares = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])[second.astype(int)]
    return rng.multinomial(1, shares), None, weights


def read(model, X, y, privacy=None, **weights) -> np.ndarray:
    """What a model says, and the lower and upper limits of the 95 % intervals, NaN where there are none; shape (3, n)."""
    model = type(model)(**model.get_params() | {"privacy": privacy})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # of tables in which nothing stands out
        posterior = model.fit(X, y, **weights).posterior_
    if isinstance(model, LatentClassAnalysis | BayesianGaussianMixture):
        shares, *others = [part.distribution for part in model.posterior_parts(posterior)]
        order = np.argsort(others[0].mean[:, 0])
        parts = [np.stack([part.mean, *part.interval(0.95)])[:, order] for part in (shares, *others)]
        values = np.hstack([part.reshape(3, -1) for part in parts])
        return np.full_like(values, np.nan) if model.why_no_intervals() else values
    lower, upper = posterior.interval(0.95)
    return np.stack([np.ravel(values)[: X.shape[1]] for values in (posterior.mean, lower, upper)])


def repeated(name: str, n: int, epsilon: float, truth: np.ndarray, n_tables: int, rng: np.random.Generator) -> dict:
    """Coverage and median lengths, with weights and without."""
    kinds, model = {"weighted": [], "as they come": []}, MODELS[name]
    budget, steps = PrivacyBudget(epsilon, 1e-6), model.planned_steps
    for _ in range(n_tables):
        X, y, weights = people(name, 12 * n, rng)
        asked = np.flatnonzero(rng.random(len(X)) < 0.3 / weights)[:n]
        rows, answers = X[asked], None if y is None else y[asked]
        plan = budget.plan(n_steps=steps, max_weight=LARGEST)
        kinds["weighted"].append(read(model, rows, answers, plan, sample_weight=weights[asked]))
        kinds["as they come"].append(read(model, rows, answers, budget))
    result = {}
    for kind, tables in kinds.items():
        _, lower, upper = np.moveaxis(tables, 1, 0)
        told = np.isfinite(lower[:, 0])
        holds = ((lower <= truth) & (truth <= upper))[told]
        result[kind] = {"left": "" if told.all() else f" ({told.sum()} tables)"} | dict.fromkeys(NUMBERS, np.nan)
        if told.any():
            numbers = holds.mean(), holds.mean(axis=1).std() / np.sqrt(told.sum()), np.median((upper - lower)[told])
            result[kind] |= dict(zip(NUMBERS, map(float, numbers), strict=True))
    return result


def as_text(rows: list[dict]) -> str:
    lines = [
        "| model | records | ε | coverage, weighted | length | coverage, as they come | length |",
        "|" + "---|" * 7,
    ]
    for row in rows:
        told = [
            f"{row[kind]['coverage']:.3f} ± {row[kind]['std']:.3f}{row[kind]['left']} | {row[kind]['length']:.3f}"
            for kind in ("weighted", "as they come")
        ]
        lines.append(f"| {row['model']} | {row['records']:,} | {row['epsilon']:g} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"
