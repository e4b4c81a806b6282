"""``python -m experiments hospital``: coefficients of a generated hospital table, ε = 1 per patient, all defaults.

30,000 visits of about 5,000 patients, 1 to 30 visits each: numbers of different scales, a date, three columns of categories
with rare values, two columns without effect of which 20 % are missing. Labels follow the fitted model, with known coefficients.
Do 95 % intervals hold them, with bounds and categories declared, and with everything learnt privately? Beside them are a
misspecified table, where visits of one patient share an unobserved effect, and what a fit without privacy reaches. Errors and
deviations stand over those of an oracle, which knows the clip's weights, the curvature and the variance of the scores, and adds
the noise of all steps to the root of the weighted scores. Other sizes, ε, and tables with a rare outcome or strong effects:
``--visits``, ``--epsilon``, ``--intercept -5``, ``--effects 2.5``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.regression.oracle import precision_of_oracle
from experiments.results import write_json, write_text
from vips import BayesianLogisticRegression, PrivacyBudget, PrivacyWarning
from vips.models._coefficient_tables import coefficient_table
from vips.models.regression.posterior import CoefficientPosterior
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
    parser.add_argument("--visits", type=int, default=N_VISITS, help="of each table, about 6 of a patient")
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="of a fit, with its encoder")
    parser.add_argument("--seed", type=int, default=0, help="of the first table")
    parser.add_argument("--intercept", type=float, default=-0.8, help="of the log odds; -5 makes the outcome rare")
    parser.add_argument("--effects", type=float, default=1.0, help="factor on all effects")
    options = parser.parse_args(arguments)
    n_tables, n_visits = QUICK if options.quick else (options.tables, options.visits)
    folder = folder_of("hospital", options)
    seeds = range(options.seed, options.seed + n_tables)
    rows = []
    for what, shared in (("as the model says", 0.0), ("visits of a patient depend on each other", 0.7)):
        world = World(options.intercept, options.effects, shared)
        for bounds in ("declared", "learnt"):
            fits = [one_table(seed, n_visits, options.epsilon, bounds, world) for seed in tqdm(seeds)]
            rows.append(summary(f"{what}, {bounds}", fits, world))
    print(text := "\n\n".join(table(row) for row in rows) + "\n")
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


@dataclass(frozen=True)
class World:
    """What labels follow from.

    Parameters
    ----------
    intercept : float
        Average log odds.
    effects : float
        Factor on all coefficients.
    shared : float
        Deviation of an unobserved effect that a patient's visits share.
    """

    intercept: float
    effects: float
    shared: float

    def truth(self) -> dict[str, float]:
        """Coefficients; with a shared effect those of its average, attenuated as σ(ψ/√(1 + s²π/8))."""
        factor = self.effects / np.sqrt(1.0 + self.shared**2 * np.pi / 8.0)
        return {name: factor * value for name, value in (SLOPES | EFFECTS).items()}


def visits(n: int, rng: np.random.Generator, world: World) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """A table of ``n`` visits, their labels, the patients' ids, in any order, and the probabilities of a 1."""
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
    shared = world.shared * rng.normal(size=n_patients)[patient]
    p = expit(world.effects * (psi - psi.mean()) + world.intercept + shared)
    order = rng.permutation(n)
    y = (rng.random(n) < p).astype(int)
    return frame.iloc[order].reset_index(drop=True), y[order], patient[order], p[order]


def one_table(seed: int, n_visits: int, epsilon: float, bounds: str, world: World) -> dict:
    """Fit one generated table; whether each interval holds the truth, and held-out AUC beside that without privacy."""
    rng = np.random.default_rng([seed, n_visits])
    frame, y, patient, _ = visits(n_visits, rng, world)
    fresh, labels, _, p = visits(5_000, rng, world)
    columns = dict.fromkeys(frame.columns) if bounds == "learnt" else DECLARED
    encoder = TableEncoder(None if bounds == "learnt" else columns)
    pipeline = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(epsilon, DELTA))
    pipeline.fit(frame, y, groups=pd.Series(np.char.add("patient ", patient.astype(str)), name="patient_id"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        summary = pipeline.summary()
    features = pipeline[0].transform(frame)
    plain = LogisticRegression(C=np.inf, max_iter=10_000, tol=1e-8).fit(features, y)
    best, truth, held = oracle(pipeline, features, y, patient, plain), world.truth(), {}
    for name in [name for name in truth if name in summary.index]:
        row = summary.loc[name]
        if not np.isnan(row["std"]):  # no limits where noise hides the column
            is_held = bool(row["lower"] < truth[name] < row["upper"])
            held[name] = [is_held, row["mean"] - truth[name], row["std"], best[name]]
    probabilities = pipeline.predict_proba(fresh)[:, 1]
    return {
        "held": held,
        "auc": roc_auc_score(labels, probabilities),
        "auc without privacy": roc_auc_score(labels, plain.decision_function(pipeline[0].transform(fresh))),
        "error of probabilities": float(np.abs(probabilities - p).mean()),
        "without privacy": float(np.abs(plain.predict_proba(pipeline[0].transform(fresh))[:, 1] - p).mean()),
        "epsilon": pipeline.privacy_.epsilon(),
    }


def oracle(pipeline, features: np.ndarray, y: np.ndarray, patient: np.ndarray, plain: LogisticRegression) -> pd.Series:
    """Deviations of coefficients from exact curvatures and scores at the root, and the noise of all steps' totals."""
    root = np.append(plain.coef_[0], plain.intercept_)
    posterior = CoefficientPosterior(root, precision_of_oracle(pipeline[-1], features, root, y, patient))
    return coefficient_table(pipeline[-1], posterior, 0.95, pipeline[0].in_column_units())["std"]


def _number(frame: pd.DataFrame, name: str) -> np.ndarray:
    values = frame[name]
    return values.to_numpy().astype("datetime64[D]").astype(float) if values.dtype.kind == "M" else values.to_numpy()


def summary(title: str, tables: list[dict], world: World) -> dict:
    """Coverage, bias, error and width by coefficient."""
    names = list(dict.fromkeys(name for scores in tables for name in scores["held"]))
    rows = {}
    for name in names:
        held, errors, stds, best = np.array([scores["held"][name] for scores in tables if name in scores["held"]]).T
        over = np.sqrt(np.mean(errors**2)) / best.mean(), np.median(stds) / best.mean()
        rows[name] = [*map(float, (held.mean(), errors.mean(), errors.std(), stds.mean(), *over)), len(held)]
    means = {name: float(np.mean([scores[name] for scores in tables])) for name in tables[0] if name != "held"}
    return {"title": title, "truth": world.truth(), "shared": world.shared, "coefficients": rows} | means


def table(row: dict) -> str:
    """Markdown."""
    errors = f"{row['error of probabilities']:.3f}, without privacy {row['without privacy']:.3f}"
    lines = [
        f"**{row['title']}**: AUC {row['auc']:.3f}, without privacy {row['auc without privacy']:.3f}; "
        + ("" if row["shared"] else f"mean error of probabilities {errors}; ")
        + f"ε = {row['epsilon']:.3f} per patient\n",
        "| coefficient | truth | mean error | deviation of the mean | of the posterior | held by 95 % | error ÷ oracle's "
        "| deviation ÷ oracle's | tables |",
        "| --- " * 9 + "|",
    ]
    for name, (held, bias, spread, std, error, width, count) in row["coefficients"].items():
        lines.append(
            f"| {name} | {row['truth'][name]:.2g} | {bias:.2g} | {spread:.2g} | {std:.2g} | {held:.2f} | {error:.2f} "
            f"| {width:.2f} | {count} |"
        )
    if not row["coefficients"]:
        return "\n".join([*lines, "| none: noise hides every column | | | | | | | | |"])
    held, error, width = (np.mean([values[i] for values in row["coefficients"].values()]) for i in (0, 4, 5))
    return "\n".join([*lines, f"| all | | | | | {held:.3f} | {error:.2f} | {width:.2f} | |"])
