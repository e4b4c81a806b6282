"""``python -m experiments plans``: are intervals as wide as ``vips.plan_for`` says before the fit?

Predicted widths are from two small trial fits; realised ones are means of three fits at full size, to other records: of the
same kind, or, for Adult, to real ones. Its plan knows means, deviations and shares of columns, and effects on incomes above
50,000 dollars, from the 16,281 test records, and takes columns for independent of each other; fits are to people of the other
32,561. Hospitals are those of ``python -m experiments hospital`` with five columns, all declared, ε per
patient; the plan knows another hospital.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.regression.hospital import DECLARED, World, visits
from experiments.results import write_json, write_text
from experiments.stand_ins import adult
from vips import (
    BayesianBinomialRegression,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    CategoricalHMM,
    DirichletMultinomial,
    GaussianHMM,
    LatentClassAnalysis,
    PoissonHMM,
    PrivacyBudget,
    plan_for,
)
from vips.data import Sequences
from vips.datasets import make_pathways, make_table
from vips.preprocessing import TableEncoder, make_private_pipeline
from vips.tools.planning.trial import Like, widths_of

DELTA, NEAR, FITS = 1e-6, 1.15, 3
CELLS, QUICK = ((5_000, 1.0), (20_000, 1.0), (20_000, 4.0)), ((1_500, 8.0),)
COLUMNS_OF_ADULT = ("age", "education-num", "hours-per-week", "sex", "race", "marital-status", "workclass")


@dataclass(frozen=True)
class Case:
    """A model, records for the plan, and others for the fits."""

    name: str
    model: Any
    records: Callable[[Any, int], tuple[Like, Like]]


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments plans", __doc__)
    parser.add_argument("--only", nargs="+", help="parts of the names of cases")
    options = parser.parse_args(arguments)
    folder, rows = folder_of("plans", options), []
    chosen = [case for case in cases() if not options.only or any(part in case.name for part in options.only)]
    for case in tqdm(chosen, desc="cases", disable=None):
        like, others = case.records(case.model, 2_000 if options.quick else 20_000)
        for n_records, epsilon in QUICK if options.quick else CELLS:
            rows.append({"case": case.name} | compared(case.model, like, others, n_records, epsilon))
            print(rows[-1], flush=True)
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def cases() -> list[Case]:
    """Cases of the models that plans know, and of three tables."""
    of_rows = {"max_norm": 1.0}
    chain = {"max_length": 20, "typical_length": 12, "random_state": 0}
    regression = make_private_pipeline(TableEncoder(), BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, DELTA))
    hospital_columns = {name: DECLARED[name] for name in ("age", "bmi", "ward", "insurance", "sex")}
    return [
        Case("hospital", clone(regression).set_params(steps=_steps(hospital_columns)), hospitals),
        Case("Adult, by guess", clone(regression).set_params(steps=_steps(_columns_of_adult())), adults),
        Case("logistic", BayesianLogisticRegression(**of_rows), typical(4)),
        Case("binomial", BayesianBinomialRegression(n_trials=5, **of_rows), typical(4)),
        Case("linear", BayesianLinearRegression(target_range=(-3.0, 3.0), **of_rows), typical(4)),
        Case("proportions", DirichletMultinomial(), typical(5)),
        Case("survey: classes", LatentClassAnalysis(3, categories=[3] * 10, random_state=0), typical()),
        Case("mixture", BayesianGaussianMixture(3, random_state=0, **of_rows), typical(4)),
        Case("symbols", CategoricalHMM(3, n_symbols=10, **chain), typical()),
        Case("vectors", GaussianHMM(3, n_features=3, **of_rows, **chain), typical()),
        Case("counts", PoissonHMM(3, max_count=20, n_features=2, **chain), typical()),
        Case("pathways", CategoricalHMM(5, n_symbols=14, max_length=60, random_state=0), pathways),
    ]


def _steps(columns: dict) -> list[tuple[str, Any]]:
    return [("encoder", TableEncoder(columns)), ("model", BayesianLogisticRegression())]


def typical(n_features: int | None = None) -> Callable[[Any, int], tuple[Like, Like]]:
    """Records of a plain guess; see ``typical_records`` of the model."""

    def records(model, n: int) -> tuple[Like, Like]:
        X, y = model.typical_records(2 * n, n_features, np.random.default_rng(1))
        return tuple(Like(X[rows], None if y is None else y[rows]) for rows in (np.arange(n), np.arange(n, 2 * n)))

    return records


def hospitals(model, n: int) -> tuple[Like, Like]:
    """Visits of n patients, about 5.8 of each."""

    def records(seed: int) -> Like:
        frame, y, patient, _ = visits(6 * n, np.random.default_rng(seed), World(-0.8, 1.0, 0.0))
        return Like(frame, y, patient)

    return records(0), records(1)


def _columns_of_adult() -> dict:
    columns = adult(quick=True).columns
    return {name: columns[name] for name in COLUMNS_OF_ADULT}


def adults(model, n: int) -> tuple[Like, Like]:
    """A guess from test records, and training records."""
    people = adult(quick=n < 20_000)
    n_train = 2 * len(people.data) // 3
    test, share = people.data[n_train:], people.target[n_train:].mean()
    columns, guess, effects = _columns_of_adult(), {}, {}
    features = pd.get_dummies(test[list(columns)], prefix_sep=": ", dtype=float)
    scales = features.std().replace(0.0, 1.0)
    earlier = LogisticRegression(max_iter=1000).fit(features / scales, people.target[n_train:])
    coefs = dict(zip(features, earlier.coef_[0] / scales, strict=True))
    for name, declared in columns.items():
        if isinstance(declared, list):
            guess[name] = [(test[name] == category).mean() + 1e-9 for category in declared]
            effects[name] = {category: coefs.get(f"{name}: {category}", 0.0) for category in declared}
        else:
            guess[name], effects[name] = (test[name].mean(), test[name].std()), coefs[name]
    rng = np.random.default_rng(0)
    made = make_table(columns, n, guess=guess, effects=effects, random_state=rng)
    intercept = brentq(lambda b: expit(made.predictor + b).mean() - share, -50.0, 50.0)
    return (
        Like(made.data, (rng.random(n) < expit(made.predictor + intercept)).astype(int)),
        Like(people.data[list(columns)][:n_train], people.target[:n_train].astype(int)),
    )


def pathways(model, n: int) -> tuple[Like, Like]:
    """Events of n patients."""

    def records(seed: int) -> Like:
        made = make_pathways(n, random_state=seed)
        codes = np.searchsorted(made.event_names, made.event)
        table = pd.DataFrame({"patient": made.patient, "day": made.day, "code": codes})
        return Like(Sequences.from_frame(table, by="patient", order="day", columns="code"))

    return records(0), records(1)


def compared(model, like: Like, others: Like, n_records: int, epsilon: float) -> dict:
    """Predicted and realised widths of one cell."""
    budget, started = PrivacyBudget(epsilon, DELTA), time.process_time()
    given = tuple(part for part in (like.X, like.y, like.groups) if part is not None)
    plan = plan_for(model, n_records=n_records, privacy=budget, like=given)
    seconds, realised = time.process_time() - started, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fit in range(FITS):
            records = others.drawn(n_records, np.random.default_rng(100 + fit))
            try:
                realised.append(widths_of(records.fit(plan.apply(model))))
            except NotImplementedError:
                continue
    row = {"records": n_records, "epsilon": epsilon, "seconds": seconds, "fits with intervals": len(realised)}
    if plan.law is None or not realised:
        return row | {"planned": plan.law is not None}
    predicted = plan.widths["width"]
    names = [name for name in predicted.index if all(name in widths for widths in realised)]
    ratios = np.array([predicted[name] / np.mean([widths[name] for widths in realised]) for name in names])
    near = np.abs(np.log(ratios)) < np.log(NEAR)
    return row | {
        "planned": True,
        "ratio": float(np.median(ratios)),
        "least": float(ratios.min()),
        "largest": float(ratios.max()),
        "near": int(near.sum()),
        "quantities": len(names),
    }


def table(rows: list[dict]) -> str:
    """One line for each cell."""
    lines = [
        "| case | records | ε | predicted ÷ realised width: median (range) | within 15 % | fits with intervals | plan, CPU s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        ratios = near = "no intervals" if row["fits with intervals"] == 0 else "none predicted"
        if "ratio" in row:
            ratios = f"{row['ratio']:.2f} ({row['least']:.2f} to {row['largest']:.2f})"
            near = f"{row['near']} of {row['quantities']}"
        elif not row["planned"] and row["fits with intervals"] == 0:
            ratios = near = "none, as predicted"
        lines.append(
            f"| {row['case']} | {row['records']:,} | {row['epsilon']:g} | {ratios} | {near} | "
            f"{row['fits with intervals']} of {FITS} | {row['seconds']:.1f} |"
        )
    near, all_of = (sum(row.get(name, 0) for row in rows) for name in ("near", "quantities"))
    of_cells = [row["ratio"] for row in rows if "ratio" in row]
    cells_near = sum(abs(np.log(ratio)) < np.log(NEAR) for ratio in of_cells)
    last = f"Within 15 %: {near} of {all_of} quantities, and the median ratio of {cells_near} of {len(of_cells)} rows."
    return "\n".join([*lines, "", last]) + "\n"
