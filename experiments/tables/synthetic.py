"""``python -m experiments synthetic_tables``: synthetic tables beside those of MST and AIM, on three real tables.

Adult (39,000 of 48,842 people, 11 columns of 112 categories, with age and hours in four groups), visits of patients with
diabetes (79,000 of 99,000, 20 columns of 108 categories, with numbers in groups) and digits (49,000 of 70,000 images: 20 dark
or bright pixels, and the digit). Others judge: mean total variation distance between one-, two- and three-way tables of
synthetic and of other rows; AUC of gradient boosting (scikit-learn, all its defaults) that has seen as many synthetic rows, for
the last column of other rows; root mean squared difference of log odds of that column by all others (scikit-learn's logistic
regression) between synthetic and fitted rows. Seconds are of a fit and a sample.

MST and AIM (McKenna et al. 2021, 2022) are those of dpmm 0.1.9, in their own environment, whose interpreter ``--peers`` names;
without it they are left out:

    python3.11 -m venv DIR && DIR/bin/pip install dpmm==0.1.9

They are told the exact number of rows. AIM has two rounds for each column; with its default, 16 for each, it did not end in 25
minutes on Adult.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from experiments.mixtures.latent_classes import DELTA, divided, people
from experiments.options import folder_of, parser_of
from experiments.regression.readmissions import generated_visits, load_visits
from experiments.results import write_json, write_text
from experiments.stand_ins import found_or, mnist
from vips.models.components.declarations import codes_of

EPSILONS, N_SEEDS, MOST_TABLES, QUICK = (0.5, 1.0, 4.0), 3, 200, 400
VISITS = {
    "race": 6, "gender": 3, "age": (40, 50, 60, 70, 80), "admission_type_id": 8, "admission_source_id": 26,
    "time_in_hospital": (2, 3, 4, 6, 8), "num_lab_procedures": (20, 35, 45, 60), "num_procedures": (1, 2, 4),
    "num_medications": (8, 12, 16, 22), "number_outpatient": (1, 2), "number_emergency": (1, 2), "number_inpatient": (1, 2, 4),
    "number_diagnoses": (5, 7, 9), "max_glu_serum": 4, "A1Cresult": 4, "metformin": 4, "insulin": 4, "change": 2,
    "diabetesMed": 2,
}  # fmt: skip
PIXELS = [(row, column) for row in range(5, 25, 5) for column in range(4, 24, 4)]

# What a process runs: a method, ε, δ, the table to read, the one to write, and numbers of categories.
_BEGIN = """
import sys, time, warnings
import pandas as pd
warnings.filterwarnings("ignore")
method, epsilon, delta, source, target = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:6]
table = pd.read_csv(source)
categories = dict(zip(table.columns, map(int, sys.argv[6:])))
start = time.perf_counter()
"""
_END = """
sample.to_csv(target, index=False)
print(time.perf_counter() - start)
"""
OURS = f"""
from vips import PrivacyBudget, PrivateTable
{_BEGIN}
columns, budget = {{name: list(range(n)) for name, n in categories.items()}}, PrivacyBudget(epsilon=epsilon, delta=delta)
sample = PrivateTable(columns=columns, privacy=budget).fit(table).sample(len(table))
{_END}"""
PEERS = f"""
from dpmm.pipelines import AIMPipeline, MSTPipeline
{_BEGIN}
pipelines = {{"MST": MSTPipeline, "AIM": AIMPipeline}}
rounds = {{"rounds": 2 * len(categories)}} if method == "AIM" else {{}}
pipeline = pipelines[method](epsilon=epsilon, delta=delta, disable_processing=True, gen_kwargs=rounds)
pipeline.fit(table, categories)
sample = pipeline.generate(n_records=len(table))
{_END}"""


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments synthetic_tables", __doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of an environment with dpmm")
    parser.add_argument("--methods", nargs="*", choices=["MST", "AIM"], default=["MST", "AIM"], help="which peers")
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="tables of ours; one of each peer")
    options = parser.parse_args(arguments)
    folder, rows = folder_of("synthetic_tables", options), []
    runs = [("all pairs", sys.executable, OURS, 1 if options.quick else options.seeds)]
    runs += [(method, options.peers, PEERS, 1) for method in options.methods if options.peers]
    for data in options.tables:
        train, test, categories = TABLES[data](options.quick)
        if options.quick:
            train, test = train[:QUICK], test[:QUICK]
        rows.append(
            {"table": data, "epsilon": None, "method": "the fitted rows"} | judged([train], train, test, categories)
        )
        asked = [(epsilon, *run) for epsilon in (EPSILONS[1:2] if options.quick else options.epsilons) for run in runs]
        for epsilon, method, python, script, n_seeds in tqdm(asked, disable=None):
            tables, seconds = zip(
                *(synthetic(python, script, method, epsilon, train, categories) for _ in range(n_seeds)), strict=True
            )
            row = {"table": data, "epsilon": epsilon, "method": method, "seconds": float(np.mean(seconds))}
            rows.append(row | judged(tables, train, test, categories))
            if folder is not None:
                write_json(folder / "results.json", rows)
    if not options.peers:
        print("MST and AIM are left out: no --peers PYTHON.")
    print(text := as_text(rows))
    if folder is not None:
        write_text(folder / "results.md", text)


def coded_adult(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame, list[int]]:
    """Codes of the people who are fitted, those of others, and the number of categories of each column."""
    table, categories = people(quick)
    listed = {name: values if isinstance(values, list) else list(range(values)) for name, values in categories.items()}
    codes = pd.DataFrame({name: codes_of(table[name], values) for name, values in listed.items() if name != "income"})
    codes["income"] = codes_of(table["income"], listed["income"])
    return *divided(codes, quick), [len(listed[name]) for name in codes]


def coded_visits(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame, list[int]]:
    visits = found_or(lambda: load_visits(VISITS), lambda: generated_visits(_QUICK_VISITS), quick)
    codes, categories = {}, []
    for name, declared in VISITS.items():
        cells = visits.data[name]
        if isinstance(declared, tuple):
            codes[name], n = np.digitize(cells, declared), len(declared) + 1
        else:
            codes[name], n = pd.factorize(cells, sort=True)[0] % declared, declared
        categories.append(n)
    codes = pd.DataFrame(codes).assign(readmitted=visits.target.astype(int))
    order, n_test = np.random.default_rng(0).permutation(len(codes)), len(codes) // 5
    return codes.iloc[order[n_test:]], codes.iloc[order[:n_test]], [*categories, 2]


def coded_digits(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame, list[int]]:
    """Pixels of MNIST, and whether the digit is 5 or more."""
    digits = mnist(quick)
    images = np.vstack([digits.data, digits.test_data]).reshape(-1, 28, 28)
    table = pd.DataFrame({f"pixel {at}": images[:, *at].astype(int) for at in PIXELS})
    table["large"] = (np.concatenate([digits.target, digits.test_target]) >= 5).astype(int)
    order, n_test = np.random.default_rng(0).permutation(len(table)), 3 * len(table) // 10
    return table.iloc[order[n_test:]], table.iloc[order[:n_test]], [2] * table.shape[1]


_QUICK_VISITS = {
    name: (0, 90) if isinstance(declared, tuple) else list(range(declared)) for name, declared in VISITS.items()
}
TABLES = {"adult": coded_adult, "visits": coded_visits, "digits": coded_digits}


def synthetic(
    python: str, script: str, method: str, epsilon: float, train: pd.DataFrame, categories: list[int]
) -> tuple[pd.DataFrame, float]:
    """A synthetic table, and seconds."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rows.csv", Path(folder) / "synthetic.csv"
        train.to_csv(source, index=False)
        command = [python, "-c", script, method, str(epsilon), str(DELTA), str(source), str(target)]
        output = subprocess.run([*command, *map(str, categories)], check=True, stdout=subprocess.PIPE, text=True).stdout
        return pd.read_csv(target).astype(int), float(output.split()[-1])


def judged(
    tables: list[pd.DataFrame], train: pd.DataFrame, test: pd.DataFrame, categories: list[int]
) -> dict[str, float]:
    """Averages over synthetic tables."""
    effects, errors = log_odds(train, train, categories), []
    for table in tables:
        off = float(np.sqrt(np.mean(np.square(log_odds(table, train, categories) - effects))))
        errors.append([*(table_error(table, test, n) for n in (1, 2, 3)), auc(table, test), off])
    names = ("one-way", "two-way", "three-way", "auc", "log odds")
    return dict(zip(names, np.mean(errors, axis=0).tolist(), strict=True))


def table_error(synthetic_rows: pd.DataFrame, real: pd.DataFrame, n: int) -> float:
    """Mean total variation distance between the tables of ``n`` columns."""
    groups = list(combinations(range(real.shape[1]), n))
    groups = list(islice(np.random.default_rng(0).permutation(groups), MOST_TABLES))
    both = np.vstack([synthetic_rows[list(real)].to_numpy(), real.to_numpy()])
    widths, n_first, distances = both.max(axis=0) + 1, len(synthetic_rows), []
    for columns in groups:
        cells = np.ravel_multi_index(both[:, columns].T, widths[columns])
        shares = [np.bincount(part, minlength=cells.max() + 1) / len(part) for part in np.split(cells, [n_first])]
        distances.append(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(np.mean(distances))


def auc(synthetic_rows: pd.DataFrame, test: pd.DataFrame) -> float:
    """AUC of the last column of real rows, predicted by gradient boosting that has seen synthetic ones."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    *columns, goal = test
    model = HistGradientBoostingClassifier(categorical_features=columns, random_state=0)
    model.fit(synthetic_rows[columns], synthetic_rows[goal])
    return float(roc_auc_score(test[goal], model.predict_proba(test[columns])[:, 1]))


def log_odds(rows: pd.DataFrame, train: pd.DataFrame, categories: list[int]) -> np.ndarray:
    """Effects of all other columns, whose categories are those of the fitted rows, on the last one."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    *columns, goal = train
    levels = [np.arange(n) for n in categories[:-1]]
    encoder = OneHotEncoder(categories=levels, drop="first", min_frequency=200).fit(train[columns])
    return LogisticRegression(max_iter=1000).fit(encoder.transform(rows[columns]), rows[goal]).coef_


def as_text(rows: list[dict]) -> str:
    lines = [
        "| table | ε | rows of | one-way error | two-way | three-way | AUC | log odds off by | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        errors = " | ".join(f"{row[name]:.3f}" for name in ("one-way", "two-way", "three-way", "auc"))
        spent = f"{row['seconds']:.0f}" if "seconds" in row else ""
        epsilon = "" if row["epsilon"] is None else f"{row['epsilon']:g}"
        lines.append(f"| {row['table']} | {epsilon} | {row['method']} | {errors} | {row['log odds']:.2f} | {spent} |")
    return "\n".join(lines) + "\n"
