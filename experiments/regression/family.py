"""``python -m experiments hospital_family``: do intervals of every kind of regression hold, on the columns of ``hospital``?

Visits as those of ``hospital``, all columns declared, 6 of a patient on average. Labels follow each kind's model, with known
coefficients: of rates half the log odds, of the second break of three classes minus half. δ = 1e-6, ε of a patient, or of a
visit where a kind says rows; all else is default. ``--kinds`` draws some kinds, and keeps rows of others in the folder.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, clone
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.regression.hospital import DECLARED, DELTA, World, visits
from experiments.results import read_json, write_json, write_text
from vips import (
    BayesianBinomialRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    PrivacyPlan,
    PrivacyWarning,
    StreamPlan,
)
from vips.preprocessing import TableEncoder

WORLD, VISITS, TRIALS, DISPERSION, STREAM = World(-0.8, 1.0, 0.0), 6, 5, 2.0, {"n_batches": 12}
SIZES, EPSILONS, N_TABLES, QUICK = (5_000, 20_000), (1.0, 4.0), 40, ((300,), (4.0,), 2)


@dataclass(frozen=True)
class Kind:
    """A model, and labels that follow it.

    Parameters
    ----------
    model : BaseEstimator
    labels : callable
        Labels, from log odds and a generator.
    factors : sequence of float
        Coefficients of each output, over those of the log odds.
    plan : dict
        Settings of its plan that are no defaults; with batches, it is a stream, and a patient in one of them.
    persons : bool
        Whether a record is all visits of a patient.
    in_common : float
        Deviation of what the log odds of all visits of a patient have in common.
    """

    model: BaseEstimator
    labels: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    factors: Sequence[float] = (1.0,)
    plan: dict = field(default_factory=dict)
    persons: bool = True
    in_common: float = 0.0


def yes(psi: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random(len(psi)) < expit(psi)).astype(int)


def counts(psi: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(np.exp(0.5 * psi) * rng.gamma(DISPERSION, 1.0 / DISPERSION, len(psi)))


LOGISTIC = BayesianLogisticRegression()
LINEAR = BayesianLinearRegression(target_range=(-7.0, 7.0)), lambda psi, rng: psi + rng.normal(size=len(psi))
KINDS = {
    "yes or no": Kind(LOGISTIC, yes),
    "rows in place of persons": Kind(LOGISTIC, yes, persons=False),
    "no intercept": Kind(BayesianLogisticRegression(fit_intercept=False), yes),
    "diagonal covariance": Kind(BayesianLogisticRegression(covariance="diagonal"), yes),
    "rate 0.2, 100 steps": Kind(LOGISTIC, yes, plan={"sampling_rate": 0.2, "n_steps": 100}),
    "discrete noise, rows": Kind(LOGISTIC, yes, plan={"noise": "discrete"}, persons=False),
    "discrete noise, at most 30 visits": Kind(LOGISTIC, yes, plan={"noise": "discrete", "max_rows_per_group": 30}),
    "three classes": Kind(
        BayesianLogisticRegression(classes=[0, 1, 2]),
        lambda psi, rng: np.where(yes(psi, rng), 0, 2 - yes(-0.5 * psi, rng)),
        (1.0, -0.5),
    ),
    "counts of 5 trials": Kind(
        BayesianBinomialRegression(n_trials=TRIALS), lambda psi, rng: rng.binomial(TRIALS, expit(psi))
    ),
    "negative binomial counts": Kind(
        BayesianNegativeBinomialRegression(dispersion=DISPERSION, max_count=20), counts, (0.5,)
    ),
    "linear": Kind(*LINEAR),
    "linear, visits alike": Kind(LINEAR[0], lambda psi, rng: psi + 0.3 * rng.normal(size=len(psi)), in_common=1.0),
    "linear, stream of 12 batches": Kind(*LINEAR, plan=STREAM),
    "yes or no, stream": Kind(LOGISTIC, yes, plan=STREAM),
}


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments hospital_family", __doc__)
    parser.add_argument("--tables", type=int, default=N_TABLES, help="of each cell")
    parser.add_argument("--seed", type=int, default=0, help="of the first table; noise is never seeded")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help="rows to draw")
    options = parser.parse_args(arguments)
    sizes, epsilons, n_tables = QUICK if options.quick else (SIZES, EPSILONS, options.tables)
    folder, rows = folder_of("hospital_family", options), []
    if folder is not None and (folder / "results.json").exists():
        rows = [row for row in read_json(folder / "results.json") if row["kind"] not in options.kinds]
    cells = [(kind, n, epsilon) for kind in options.kinds for n in sizes for epsilon in epsilons]
    for name, n, epsilon in tqdm(cells, disable=None):
        fits = [one_fit(KINDS[name], seed, n, epsilon) for seed in range(options.seed, options.seed + n_tables)]
        rows.append({"kind": name, "persons": n, "epsilon": epsilon} | summary(fits))
    rows.sort(key=lambda row: list(KINDS).index(row["kind"]))
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def one_fit(kind: Kind, seed: int, n: int, epsilon: float) -> dict:
    """One table: whether the interval of each coefficient holds it, its error and deviation; or why there are none."""
    rng = np.random.default_rng([seed, n, 45])
    frame, _, patient, p = visits(n * VISITS if kind.persons else n, rng, WORLD)
    psi = logit(p)
    if kind.in_common:
        psi = psi + kind.in_common * rng.normal(size=patient.max() + 1)[patient]
    y = kind.labels(psi, rng)
    encoder = TableEncoder(DECLARED)
    X = encoder.fit_transform(frame)
    public = {"max_norm": encoder.max_norm, "indicators": encoder.indicators}
    model = clone(kind.model).set_params(**{k: v for k, v in public.items() if k in kind.model.get_params()})
    begin = time.perf_counter()
    try:
        if "n_batches" in kind.plan:
            model.set_params(privacy=StreamPlan(epsilon=epsilon, delta=DELTA, **kind.plan))
            for batch in range(kind.plan["n_batches"]):
                rows = patient % kind.plan["n_batches"] == batch
                model.partial_fit(X[rows], y[rows], groups=patient[rows])
        else:
            model.set_params(privacy=PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, **kind.plan))
            model.fit(X, y, groups=patient if kind.persons else None)
        reason = model.why_no_intervals()
    except TypeError as refused:  # a model that takes no stream says so before it reads a record
        reason = str(refused)
    if reason:
        return {"reason": reason}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        rows = model.summary(features=encoder)
    seconds, coefficients = time.perf_counter() - begin, {}
    for output, factor in enumerate(kind.factors):
        for name, effect in WORLD.truth().items():
            mean, std, lower, upper = rows.loc[(output, name) if len(kind.factors) > 1 else name].iloc[:4]
            held = (
                np.nan if np.isnan(std) else float(lower < factor * effect < upper)
            )  # no limits where noise hides a column
            coefficients[f"{name}, class {output}" if output else name] = [held, mean - factor * effect, std]
    return {"seconds": seconds, "coefficients": coefficients}


def summary(fits: list[dict]) -> dict:
    """Coverage, bias and width over the tables whose fits have intervals; bias in standard errors of the mean error."""
    told = [fit for fit in fits if "coefficients" in fit]
    row = {"fits": len(fits), "with intervals": len(told)}
    if not told:
        return row | {"reason": fits[0]["reason"]}
    held, errors, stds = np.moveaxis(np.array([list(fit["coefficients"].values()) for fit in told], float), 2, 0)
    spread = np.sqrt(np.maximum(len(told) - 1, 1))
    bias, off = errors.mean(axis=0) / errors.std(axis=0) * spread, np.ma.masked_invalid(errors / stds)
    held = np.ma.masked_invalid(held)
    columns = [
        values.filled(np.nan)
        for values in (held.mean(axis=0), np.ma.array(bias), np.sqrt((off**2).mean(axis=0)), off.mean(axis=0))
    ]
    return row | {
        "limits": float(1.0 - held.mask.mean()) if np.ma.is_masked(held) else 1.0,
        "held": float(held.mean()),
        "held, standard error": float(held.mean(axis=1).std() / spread),
        "error over deviation": float(np.sqrt((off**2).mean())),
        "seconds": float(np.median([fit["seconds"] for fit in told])),
        "coefficients": dict(zip(told[0]["coefficients"], np.transpose(columns).tolist(), strict=True)),
    }


def table(rows: list[dict]) -> str:
    names = (
        "kind",
        "records",
        "ε",
        "held by 95 %",
        "mean and largest bias, standard errors (deviations)",
        "error ÷ deviation",
    )
    lines = [f"| {' | '.join(names)} | with intervals | seconds |", "| --- " * 8 + "|"]
    for row in rows:
        if "held" not in row:
            lines.append(f"| {row['kind']} | any | any | none: {row['reason']} | | | 0 of {row['fits']} | |")
            continue
        held = f"{row['held']:.3f} ± {row['held, standard error']:.3f}"
        told = {name: values for name, values in row["coefficients"].items() if np.isfinite(values[3])}  # by some fit
        sizes = {name: abs(values[1]) for name, values in told.items()}
        largest = max(sizes, key=sizes.get)
        bias = f"{np.mean(list(sizes.values())):.1f}, {sizes[largest]:.1f} ({largest}: {told[largest][3]:+.1f})"
        lines.append(
            f"| {row['kind']} | {row['persons']:,} | {row['epsilon']:g} | {held} | {bias} | {row['error over deviation']:.2f} "
            f"| {row['with intervals']} of {row['fits']} | {row['seconds']:.1f} |"
        )
    return "\n".join(dict.fromkeys(lines)) + "\n"  # one line of a kind without intervals
