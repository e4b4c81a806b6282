"""``python -m experiments linear_regression``: BayesianLinearRegression beside AdaSSP, at equal ε and δ.

Generated records with known coefficients, and the hours per week of UCI Adult given its other columns. Both methods get
the same rows, of norm at most 1, the same range of targets and the same constant column; both use all of their budget.
Coefficients are compared with the true ones, on Adult with those of a fit without privacy to all training records.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.regression.adassp import adassp_coefficients
from experiments.results import write_json, write_text
from experiments.stand_ins import adult
from vips import BayesianLinearRegression, PrivacyBudget
from vips.preprocessing import TableEncoder

SIZES, EPSILONS, DELTA, SEEDS, N_TEST = (2_000, 20_000), (0.5, 1.0, 4.0), 1e-5, 20, 5_000
QUICK_SIZES, QUICK_SEEDS, QUICK_TEST = (500,), 2, 500
N_FEATURES = 10
CONSTANT = 0.5  # of the column beside rows of norm 1
TARGET, HOURS = "hours-per-week", (1, 99)
NAMES = {"ours": "BayesianLinearRegression", "adassp": "AdaSSP", "plain": "without privacy"}


@dataclass
class Table:
    """Training and test records, the public range of targets, and coefficients to compare with."""

    X: np.ndarray
    y: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    target_range: tuple[float, float]
    coef: np.ndarray
    indicators: tuple = ()


def main(arguments: list[str]) -> None:
    options = parser_of("experiments linear_regression", __doc__).parse_args(arguments)
    folder = folder_of("linear_regression", options)
    sizes, seeds = (QUICK_SIZES, QUICK_SEEDS) if options.quick else (SIZES, SEEDS)
    rows = []
    for name, n in itertools.product(("generated", "Adult"), sizes):
        for epsilon in EPSILONS:
            tables = generated(n, seeds, options.quick) if name == "generated" else hours(n, seeds, options.quick)
            fits = [errors(table, epsilon, seed) for seed, table in enumerate(tqdm(tables, total=seeds, desc=name))]
            mean = {key: np.mean([fit[key] for fit in fits], axis=0).tolist() for key in NAMES}
            rows.append({"table": name, "n": n, "epsilon": epsilon} | mean)
    print(text := report(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def generated(n: int, seeds: int, quick: bool) -> Iterator[Table]:
    """Ten columns; the deviation of the target is 0.5 around its expected value and 0.7 in all, its range (-3, 3)."""
    n_test = QUICK_TEST if quick else N_TEST
    for seed in range(seeds):
        rng = np.random.default_rng([seed, n])
        X = rng.uniform(-1.0, 1.0, (n + n_test, N_FEATURES)) / np.sqrt(N_FEATURES)
        coef = rng.normal(size=N_FEATURES)
        coef *= 0.5 * np.sqrt(3.0 * N_FEATURES) / np.linalg.norm(coef)
        y = X @ coef + 0.5 + 0.5 * rng.normal(size=n + n_test)
        yield Table(X[:n], y[:n], (X[n:], y[n:]), (-3.0, 3.0), coef)


def hours(n: int, seeds: int, quick: bool) -> Iterator[Table]:
    """Adult without its income; the columns are encoded with public bounds and categories."""
    people = adult(quick)
    columns = {name: allowed for name, allowed in people.columns.items() if name != TARGET}
    encoder = TableEncoder(columns)
    X = np.asarray(encoder.fit_transform(people.data.drop(columns=TARGET)))
    X, indicators = (X[:, ::4], ()) if quick else (X, encoder.indicators)
    y, n_test = people.data[TARGET].to_numpy(dtype=float), QUICK_TEST if quick else N_TEST
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[:n_test], order[n_test:]
    coef = BayesianLinearRegression(max_norm=1.0, target_range=HOURS).fit(X[train], y[train]).coef_
    for seed in range(seeds):
        sample = np.random.default_rng([seed, n]).permutation(train)[:n]
        yield Table(X[sample], y[sample], (X[test], y[test]), HOURS, coef, indicators)


def errors(table: Table, epsilon: float, seed: int) -> dict[str, tuple[float, float]]:
    """Root mean squared error of the coefficients, in deviations of theirs, and held-out R² of each method."""
    budget, rng = PrivacyBudget(epsilon, DELTA), np.random.default_rng(seed)
    fits = {
        name: BayesianLinearRegression(
            privacy=privacy, max_norm=1.0, target_range=table.target_range, indicators=table.indicators
        ).fit(table.X, table.y)
        for name, privacy in (("ours", budget), ("plain", None))
    }
    coefficients = {name: (model.coef_, model.intercept_) for name, model in fits.items()}
    coefficients["adassp"] = adassp(table, epsilon, rng)
    X, y = table.test
    size = np.sqrt(np.mean(table.coef**2))
    return {
        name: (
            float(np.sqrt(np.mean((coef - table.coef) ** 2)) / size),
            float(1.0 - np.mean((y - X @ coef - intercept) ** 2) / y.var()),
        )
        for name, (coef, intercept) in coefficients.items()
    }


def adassp(table: Table, epsilon: float, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Coefficients and intercept; targets are moved to the middle of their range."""
    low, high = table.target_range
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    rows = np.column_stack([table.X, np.full(len(table.X), CONSTANT)])
    y = np.clip(table.y - middle, -half, half)
    coef = adassp_coefficients(rows, y, np.hypot(1.0, CONSTANT), half, epsilon, DELTA, rng)
    return coef[:-1], float(middle + CONSTANT * coef[-1])


def report(rows: list[dict]) -> str:
    """Markdown: error of the coefficients, and R², of ours, AdaSSP and without privacy."""
    head = ["table", "n", "ε", *(f"{what}, {name}" for what in ("error", "R²") for name in NAMES.values())]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for row in rows:
        cells = [f"{row[key][place]:.3f}" for place in (0, 1) for key in NAMES]
        lines.append("| " + " | ".join([row["table"], f"{row['n']:,}", f"{row['epsilon']:g}", *cells]) + " |")
    return "\n".join(lines) + "\n"
