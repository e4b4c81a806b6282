"""``python -m experiments hospital``: coefficients of a generated hospital table, ε = 1 per patient, all defaults.

30,000 visits of about 5,000 patients, 1 to 30 visits each: numbers of different scales, a date, three columns of categories
with rare values, two columns without effect of which 20 % are missing. Labels follow the fitted model, with known coefficients.
Do 95 % intervals hold them, with bounds and categories declared, and with everything learnt privately? Beside them are a
misspecified table, where visits of one patient share an unobserved effect, and what a fit without privacy reaches.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import BayesianLogisticRegression, PrivacyBudget, PrivacyWarning
from vips.preprocessing import TableEncoder, make_private_pipeline

EPSILON, DELTA, N_VISITS, N_TABLES, QUICK = 1.0, 1e-6, 30_000, 60, (1, 1_500)
WARDS, INSURANCE, SEX = ["A", "B", "C", "D", "rare"], ["public", "private", "none"], ["f", "m"]
# per year, per kg/m², per µmol/l, per day
SLOPES = {"age": 0.047, "bmi": 0.03, "creatinine": 0.008, "admitted": 0.0006, "lab_1": 0.0, "lab_2": 0.0}
EFFECTS = {
    "ward: B against A": 0.6,
    "ward: C against A": -0.5,
    "ward: D against A": 0.0,
    "insurance: private against public": -0.4,
    "insurance: none against public": 0.3,
    "sex: m against f": 0.25,
}
FIRST_DAY, LAST_DAY = np.datetime64("2019-01-01"), np.datetime64("2023-12-31")
DAYS = (FIRST_DAY - np.datetime64("1970-01-01")).astype(int), (LAST_DAY - np.datetime64("1970-01-01")).astype(int)
DECLARED = {
    "age": (18, 100), "bmi": (12, 50), "creatinine": (20, 250), "admitted": (FIRST_DAY.item(), LAST_DAY.item()),
    "lab_1": (-5, 5), "lab_2": (0, 20), "ward": WARDS, "insurance": INSURANCE, "sex": SEX,
}  # fmt: skip


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments hospital", __doc__)
    parser.add_argument("--tables", type=int, default=N_TABLES, help="generated tables")
    options = parser.parse_args(arguments)
    n_tables, n_visits = QUICK if options.quick else (options.tables, N_VISITS)
    folder = folder_of("hospital", options)
    rows = [
        summary(f"{what}, {bounds}", [one_table(seed, n_visits, bounds, shared) for seed in tqdm(range(n_tables))])
        for what, shared in (("as the model says", 0.0), ("visits of a patient depend on each other", 0.7))
        for bounds in ("declared", "learnt")
    ]  # fmt: skip
    print(text := "\n\n".join(table(row) for row in rows) + "\n")
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def visits(n: int, rng: np.random.Generator, shared: float = 0.0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """A table of ``n`` visits, their labels, and the patients' ids, in any order."""
    sizes = np.minimum(rng.geometric(1 / 6, n), 30)
    patient = np.repeat(np.arange(n), sizes)[:n]
    n_patients = patient[-1] + 1
    of_patient = pd.DataFrame({
        "age": np.clip(rng.normal(58, 17, n_patients), 18, 100).round(1), "bmi": np.clip(rng.normal(27, 5, n_patients), 12, 50),
        "insurance": rng.choice(INSURANCE, n_patients, p=[0.8, 0.15, 0.05]), "sex": rng.choice(SEX, n_patients),
    })  # fmt: skip
    frame = of_patient.iloc[patient].reset_index(drop=True)
    frame["creatinine"] = np.clip(rng.lognormal(np.log(85), 0.3, n), 20, 250)
    frame["admitted"] = FIRST_DAY + rng.integers(0, DAYS[1] - DAYS[0] + 1, n).astype("timedelta64[D]")
    frame["ward"] = rng.choice(WARDS, n, p=[0.4, 0.3, 0.2, 0.0995, 0.0005])
    for name, values in (("lab_1", rng.normal(size=n)), ("lab_2", np.minimum(rng.lognormal(0.5, 0.7, n), 20))):
        frame[name] = np.where(rng.random(n) < 0.2, np.nan, values)
    frame["admitted"] = frame["admitted"].astype("datetime64[s]")
    psi = sum(slope * _number(frame, name) for name, slope in SLOPES.items() if slope)
    for name, effect in EFFECTS.items():
        column, category = name.split(": ")
        psi = psi + effect * (frame[column] == category.split(" ")[0]).to_numpy()
    psi = psi - psi.mean() - 0.8 + shared * rng.normal(size=n_patients)[patient]
    order = rng.permutation(n)
    y = rng.random(n) < expit(psi)
    return (
        frame.iloc[order].reset_index(drop=True),
        y[order].astype(int),
        np.char.add("patient ", patient.astype(str))[order],
    )


def one_table(seed: int, n_visits: int, bounds: str, shared: float) -> dict:
    """Fit one generated table; whether each interval holds the truth, and held-out AUC beside that without privacy."""
    rng = np.random.default_rng([seed, n_visits])
    frame, y, patient = visits(n_visits, rng, shared)
    fresh, labels, _ = visits(5_000, rng, shared)
    columns = dict.fromkeys(frame.columns) if bounds == "learnt" else DECLARED
    encoder = TableEncoder(None if bounds == "learnt" else columns)
    pipeline = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(EPSILON, DELTA))
    pipeline.fit(frame, y, groups=pd.Series(patient, name="patient_id"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        summary = pipeline.summary()
    truth = _marginal_truth(shared)
    held = {}
    for name in [name for name in truth if name in summary.index]:
        row = summary.loc[name]
        held[name] = [bool(row["lower"] < truth[name] < row["upper"]), row["mean"] - truth[name], row["std"]]
    features = pipeline[0].transform(frame)
    plain = LogisticRegression(C=np.inf, max_iter=1000).fit(features, y)
    return {
        "held": held,
        "auc": roc_auc_score(labels, pipeline.decision_function(fresh)),
        "auc without privacy": roc_auc_score(labels, plain.decision_function(pipeline[0].transform(fresh))),
        "epsilon": pipeline.privacy_.epsilon(),
    }


def _marginal_truth(shared: float) -> dict[str, float]:
    """Coefficients; with a shared effect of that deviation those of its average, attenuated as σ(ψ/√(1 + s²π/8))."""
    return {name: value / np.sqrt(1.0 + shared**2 * np.pi / 8.0) for name, value in (SLOPES | EFFECTS).items()}


def _number(frame: pd.DataFrame, name: str) -> np.ndarray:
    values = frame[name]
    return values.to_numpy().astype("datetime64[D]").astype(float) if values.dtype.kind == "M" else values.to_numpy()


def summary(title: str, tables: list[dict]) -> dict:
    """Coverage, bias and width by coefficient."""
    names = list(dict.fromkeys(name for each in tables for name in each["held"]))
    rows = {}
    for name in names:
        held, errors, stds = np.array([each["held"][name] for each in tables if name in each["held"]]).T
        rows[name] = [float(held.mean()), float(errors.mean()), float(errors.std()), float(stds.mean()), len(held)]
    aucs = {name: float(np.mean([each[name] for each in tables])) for name in ("auc", "auc without privacy")}
    return {"title": title, "coefficients": rows, "epsilon": tables[0]["epsilon"]} | aucs


def table(row: dict) -> str:
    """Markdown."""
    truth = SLOPES | EFFECTS
    lines = [
        f"**{row['title']}**: AUC {row['auc']:.3f}, without privacy {row['auc without privacy']:.3f}; "
        f"ε = {row['epsilon']:.3f} per patient\n",
        "| coefficient | truth | mean error | deviation of the mean | of the posterior | held by 95 % | tables |",
        "| --- " * 7 + "|",
    ]
    for name, (held, bias, spread, std, count) in row["coefficients"].items():
        lines.append(f"| {name} | {truth[name]:g} | {bias:.2g} | {spread:.2g} | {std:.2g} | {held:.2f} | {count} |")
    mean = np.mean([values[0] for values in row["coefficients"].values()])
    return "\n".join([*lines, f"| all | | | | | {mean:.3f} | |"])
