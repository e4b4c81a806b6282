"""``python -m experiments readmissions``: coefficients of a real table of visits, whose patients are drawn anew for each fit.

99,000 visits of 69,990 patients with diabetes; was the patient readmitted within 30 days? Each fit sees as many patients,
drawn with replacement, at ε = 1 per patient, with declared columns and all defaults. Do 95 % intervals hold what it estimates:
the root of the weighted scores of the whole table, without noise, at the weights that the clip has in the fit's coordinates?
With ``--effects`` patients differ (:class:`vips.MixedLogisticRegression`); the target is then the fit to the whole table with
hardly any noise, and the last column the fit without a clip, in which all patients weigh alike.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch
from tqdm.auto import tqdm

from experiments.datasets.home import find_files
from experiments.options import folder_of, parser_of
from experiments.regression.oracle import weights_at
from experiments.results import write_json, write_text
from experiments.stand_ins import found_or
from vips import (
    BayesianLogisticRegression,
    MixedLogisticRegression,
    PrivacyBudget,
    PrivacyPlan,
    PrivacyWarning,
)
from vips.preprocessing import TableEncoder, make_private_pipeline

EPSILON, DELTA, N_FITS, N_ROUNDS, QUICK_FITS, N_GENERATED = 1.0, 1e-6, 20, 3, 2, 2_000
COLUMNS = {
    "age": (0, 100), "gender": ["Female", "Male"], "race": ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"],
    "time_in_hospital": (1, 14), "number_inpatient": (0, 10), "number_diagnoses": (1, 16),
    "A1Cresult": ["None", "Norm", ">7", ">8"], "insulin": ["No", "Steady", "Up", "Down"],
}  # fmt: skip
_GONE = [11, 13, 14, 19, 20, 21]  # discharge to a hospice, or death


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments readmissions", __doc__)
    parser.add_argument("--fits", type=int, default=N_FITS)
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="per patient")
    parser.add_argument("--seed", type=int, default=0, help="of the patients of the first fit")
    parser.add_argument("--effects", action="store_true", help="of patients, beside those of visits")
    options = parser.parse_args(arguments)
    folder = folder_of("readmissions", options)
    visits = found_or(load_visits, generated_visits, options.quick)
    n_fits = QUICK_FITS if options.quick else options.fits
    target = mixed_target(visits) if options.effects else None
    fits = [one_fit(visits, options.epsilon, options.seed + i, target) for i in tqdm(range(n_fits), disable=None)]
    print(text := table(fits))
    if folder is not None:
        write_json(folder / "results.json", fits)
        write_text(folder / "results.md", text)


def load_visits(names: Iterable[str] = COLUMNS) -> Bunch:
    """Visits but for those that ended in death or a hospice: columns, whether readmitted within 30 days, and the patients."""
    [path] = find_files(
        ["diabetic_data.csv.gz"], "Diabetes 130-US hospitals", "data/README.md says where it comes from."
    )
    table = pd.read_csv(path, na_values="?", keep_default_na=False, low_memory=False)
    table = table[~table["discharge_disposition_id"].isin(_GONE)].reset_index(drop=True)
    table["age"] = table["age"].str.extract(r"\[(\d+)-")[0].astype(float) + 5.0
    return Bunch(
        data=table[list(names)], target=(table["readmitted"] == "<30").to_numpy(), patient=table["patient_nbr"]
    )


def generated_visits(columns: dict = COLUMNS) -> Bunch:
    """As :func:`load_visits`: visits of random values, and readmissions after more earlier ones."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        name: rng.integers(*known, N_GENERATED) if isinstance(known, tuple) else rng.choice(known, N_GENERATED)
        for name, known in columns.items()
    })  # fmt: skip
    readmitted = rng.random(N_GENERATED) < 1.0 / (1.0 + np.exp(2.0 - 0.4 * table["number_inpatient"]))
    return Bunch(
        data=table, target=readmitted.to_numpy(), patient=pd.Series(rng.integers(0, N_GENERATED // 2, N_GENERATED))
    )


def one_fit(visits: Bunch, epsilon: float, seed: int, target: pd.DataFrame | None) -> dict:
    """Seconds of a fit to redrawn patients; mean, std, bounds and target of each effect. Given a target, patients differ."""
    rows = list(visits.data.groupby(visits.patient.to_numpy()).indices.values())  # of each patient
    drawn = [rows[i] for i in np.random.default_rng([seed, len(rows)]).integers(0, len(rows), len(rows))]
    chosen, patient = np.concatenate(drawn), np.repeat(np.arange(len(drawn)), [len(of_one) for of_one in drawn])
    model = BayesianLogisticRegression() if target is None else MixedLogisticRegression()
    pipeline = make_private_pipeline(TableEncoder(COLUMNS), model, privacy=PrivacyBudget(epsilon, DELTA))
    start = time.perf_counter()
    pipeline.fit(visits.data.iloc[chosen].reset_index(drop=True), visits.target[chosen].astype(int), groups=patient)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        summary = _read(pipeline)
    seconds = time.perf_counter() - start
    summary["target"] = target_of(pipeline, visits) if target is None else target["mean"]
    summary["alike"] = np.nan if target is None else target["alike"]
    return {
        "seconds": seconds,
        "effects": summary[["mean", "std", "lower", "upper", "target", "alike"]].T.to_dict("list"),
    }


def _read(pipeline) -> pd.DataFrame:
    """Effects, and the deviation of patients where they differ."""
    table = pipeline.summary().drop("intercept")[["mean", "std", "lower", "upper"]]
    if not hasattr(pipeline[-1], "summary_of_effects"):
        return table
    deviations = pipeline.summary_of_effects().rename(columns={"median": "std"})
    deviations["std"] = (deviations["upper"] - deviations["lower"]) / 3.92
    return pd.concat([table, deviations[table.columns]])


def mixed_target(visits: Bunch) -> pd.DataFrame:
    """ "mean" of a fit to the whole table with the weights of a private one and hardly any noise, "alike" without either."""
    encoder, means = TableEncoder(COLUMNS).fit(visits.data), {}
    features, y = encoder.transform(visits.data), visits.target.astype(int)
    without_noise = PrivacyPlan(noise_multiplier=1e-6, sampling="full", n_steps=20)
    for name, plan in (("mean", without_noise), ("alike", None)):
        model = MixedLogisticRegression(privacy=plan, max_norm=1.0, indicators=encoder.indicators)
        model.fit(features, y, groups=visits.patient)
        tables = model.summary(features=encoder).drop("intercept"), model.summary_of_effects(features=encoder)
        means[name] = pd.concat([table["mean"] for table in tables])
    return pd.DataFrame(means)


def target_of(pipeline, visits: Bunch) -> np.ndarray:
    """The effects at which the whole table's weighted scores are zero."""
    features, y = np.asarray(pipeline[0].transform(visits.data)), visits.target.astype(int)
    patient = np.unique(visits.patient, return_inverse=True)[1]
    weights = np.ones(len(y))
    for _ in range(N_ROUNDS):
        root = LogisticRegression(C=np.inf, max_iter=10_000, tol=1e-8).fit(features, y, weights)
        weights = weights_at(pipeline[-1], features, np.append(root.coef_[0], root.intercept_), patient)
    return pipeline[0].in_column_units()[1] @ root.coef_[0]


def table(fits: list[dict]) -> str:
    """Markdown."""
    columns = ["target", "mean", "deviation of the mean", "of the posterior", "held by 95 %", "all alike"]
    lines, shares = [f"| effect | {' | '.join(columns)} |", "| --- " * 7 + "|"], []
    for name in fits[0]["effects"]:
        mean, std, lower, upper, target, alike = np.array([fit["effects"][name] for fit in fits]).T
        has_interval = np.isfinite(lower)
        shares.append(np.mean((lower < target) & (target < upper), where=has_interval))
        numbers = target.mean(), mean.mean(), mean.std(ddof=1), std.mean(where=has_interval)
        told = "" if np.isnan(alike[0]) else f"{alike[0]:.3g}"
        lines.append(
            f"| {name} | " + " | ".join(f"{number:.3g}" for number in numbers) + f" | {shares[-1]:.2f} | {told} |"
        )
    seconds = np.median([fit["seconds"] for fit in fits])
    with_intervals = f"{len(fits)} fits, {has_interval.sum()} with intervals; {seconds:.1f} s a fit.\n"
    return "\n".join([*lines, f"| all | | | | | {np.mean(shares):.3f} | |", "", with_intervals])
