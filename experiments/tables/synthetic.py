"""``python -m experiments synthetic_tables``: synthetic tables of Adult at ε = 1, beside those of private-pgm.

The table of ``latent_classes``: 39,000 people are fitted, 9,842 others judge. Two-way error: mean total variation distance
between all two-way marginals of the synthetic table and of these people. AUC: gradient boosting (scikit-learn, all its
defaults) is fitted to 39,000 synthetic rows, and predicts the income of these people. The settings are those of
``latent_classes`` and the peers' own.

MST and AIM (McKenna et al. 2021, 2022), with private-pgm underneath, run in their own environment, whose interpreter
``--peers`` names; without it they are left out:

    python3 -m venv DIR
    DIR/bin/pip install "mbi>=1.1,<2" smartnoise-sql disjoint-set Faker pac-synth
    DIR/bin/pip install --no-deps smartnoise-synth==1.0.8

They are told the exact number of records, and read the categories from the records, for which they pay nothing.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.mixtures.latent_classes import DELTA, N_CLASSES, N_STEPS, divided, people, two_way_error
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import LatentClassAnalysis, PrivacyBudget, PrivacyPlan, PrivateTable
from vips.models.components.declarations import codes_of

EPSILON, N_SEEDS = 1.0, 3
ROUNDS = 22  # of AIM: two for each column. Of its default, 16 for each, it did a sixth in 19 minutes.
METHODS = {"mst": {}, "aim": {"rounds": ROUNDS}}

# The script for the other interpreter. Records are drawn with method="sample". With "round", its default, mbi 1.1.0 takes the
# rows of a group in the order of the table for every column, so that columns depend on each other beyond the model: the
# two-way error of MST is then 0.125.
PEER = """
import json, sys, time, warnings
import mbi, pandas as pd
from snsynth import Synthesizer

warnings.filterwarnings("ignore")
method, epsilon, delta, (source, target) = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:6]
original = mbi.MarkovRandomField.synthetic_data
mbi.MarkovRandomField.synthetic_data = lambda self, rows=None: original(self, rows, method="sample")
table = pd.read_csv(source)
start = time.perf_counter()
synthesizer = Synthesizer.create(method, epsilon=epsilon, delta=delta, **json.loads(sys.argv[6]))
synthesizer.fit(table, categorical_columns=list(table.columns), preprocessor_eps=0.0)
synthesizer.sample(len(table)).to_csv(target, index=False)
print("seconds:", time.perf_counter() - start)
"""


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments synthetic_tables", __doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of an environment with smartnoise-synth")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS), help="which peers")
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="synthetic tables of each method")
    options = parser.parse_args(arguments)
    folder = folder_of("synthetic_tables", options)
    n_steps, n_seeds = (8, 1) if options.quick else (N_STEPS, options.seeds)
    train, test, categories = coded(options.quick)
    rows = [row("the fitted people themselves", [(train, 0.0)], test)]
    ours = {
        "latent classes, one": lambda seed: classes(categories, 1, 1, seed),
        f"latent classes, K = {N_CLASSES}": lambda seed: classes(categories, N_CLASSES, n_steps, seed),
        "all pairs": lambda seed: pairs(categories),
    }
    for name, model in ours.items():
        rows.append(row(name, [timed(model(seed), train, seed) for seed in range(n_seeds)], test))
    for method in options.methods if options.peers else ():
        name = f"AIM, {ROUNDS} rounds" if method == "aim" else "MST"
        rows.append(row(name, [peer(options.peers, method, train) for _ in range(n_seeds)], test))
    if not options.peers:
        print("MST and AIM are left out: no --peers PYTHON.")
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def coded(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, int]]:
    """The people as codes: those who are fitted, the others, and the number of categories of each column."""
    table, categories = people(quick)
    listed = [values if isinstance(values, list) else list(range(values)) for values in categories.values()]
    codes = pd.DataFrame({name: codes_of(table[name], values) for name, values in zip(categories, listed, strict=True)})
    return *divided(codes, quick), dict(zip(categories, map(len, listed), strict=True))


def classes(categories: dict[str, int], n_classes: int, n_steps: int, seed: int) -> LatentClassAnalysis:
    plan = PrivacyPlan.from_epsilon(epsilon=EPSILON, delta=DELTA, sampling_rate=1.0, n_steps=n_steps)
    return LatentClassAnalysis(n_classes, categories=categories, privacy=plan, random_state=seed)


def pairs(categories: dict[str, int]) -> PrivateTable:
    columns = {name: list(range(n)) for name, n in categories.items()}
    return PrivateTable(columns=columns, privacy=PrivacyBudget(epsilon=EPSILON, delta=DELTA))


def timed(model, train: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, float]:
    """A synthetic table of a model, and seconds."""
    start = time.perf_counter()
    sample = model.fit(train).sample(len(train), random_state=seed)
    return sample[0] if isinstance(sample, tuple) else sample, time.perf_counter() - start


def peer(python: str, method: str, train: pd.DataFrame) -> tuple:
    """A synthetic table of a peer, and seconds."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "people.csv", Path(folder) / "synthetic.csv"
        train.to_csv(source, index=False)
        command = [python, "-c", PEER, method, str(EPSILON), str(DELTA), str(source), str(target)]
        command.append(json.dumps(METHODS[method]))
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return pd.read_csv(target).astype(int), float(output.rsplit("seconds:", 1)[1])


def auc(synthetic: pd.DataFrame, test: pd.DataFrame) -> float:
    """AUC of the income of real people, predicted by gradient boosting that has seen synthetic ones."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    columns = [name for name in test if name != "income"]
    model = HistGradientBoostingClassifier(categorical_features=columns, random_state=0)
    model.fit(synthetic[columns], synthetic["income"])
    return float(roc_auc_score(test["income"], model.predict_proba(test[columns])[:, 1]))


def row(method: str, tables: list[tuple[pd.DataFrame, float]], test: pd.DataFrame) -> dict:
    errors = [two_way_error(table, test) for table, _ in tables]
    aucs, seconds = [auc(table, test) for table, _ in tables], [spent for _, spent in tables]
    return {
        "method": method,
        "two-way error": float(np.mean(errors)),
        "largest": max(errors),
        "auc": float(np.mean(aucs)),
        "smallest": min(aucs),
        "seconds": float(np.mean(seconds)),
    }


def as_text(rows: list[dict]) -> str:
    lines = ["| table | two-way error (largest) | AUC of income (smallest) | seconds |", "|---|---|---|---|"]
    for result in rows:
        seconds = f"{result['seconds']:.0f}" if result["seconds"] else ""
        error = f"{result['two-way error']:.3f} ({result['largest']:.3f})"
        lines.append(f"| {result['method']} | {error} | {result['auc']:.3f} ({result['smallest']:.3f}) | {seconds} |")
    return "\n".join(lines) + "\n"
