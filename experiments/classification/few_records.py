"""``python -m experiments few_records``: AUC of private classifiers on four tables, by number of records and ε; δ = 1e-5.

Constants of ``PrivateClassifier`` were chosen on Adult, on the last fifth of training parts, and on generated tables; those of
this experiment were not looked at.
All methods know the same bounds and categories. DP-SGD's settings are chosen for each ε and number of records on a fifth of the
training records of split 0, at no cost in ε, and it knows their number: this favours it.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

from experiments.classification.tables import TABLES
from experiments.options import folder_of, parser_of
from experiments.regression.adassp import adassp_method
from experiments.regression.compare import split
from experiments.regression.methods import Method, auc, dp_sgd_method, non_private, ours
from experiments.results import write_json, write_text
from vips import PrivacyBudget, PrivateClassifier
from vips.preprocessing import TableEncoder

DELTA = 1e-5
EPSILONS, SIZES = (0.1, 0.5, 1.0, 4.0), (1_000, 2_000, 10_000, 40_000)
QUICK_TABLES, QUICK_RECORDS, MOST_TEST = ("adult", "generated"), 1_500, 20_000
SGD_PLANS = ((1.0, 100), (0.05, 400))  # sampling rate and steps; others were no better on Adult


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments few_records", __doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    options = parser.parse_args(arguments)
    folder = folder_of("few_records", options)
    if options.quick:
        options.splits, options.epsilons, options.sizes, options.tables = 1, [1.0], [1_000], list(QUICK_TABLES)
    rows = []
    for name in options.tables:
        for row in tqdm(results_of(name, options), desc=name, disable=None):
            rows.append(row)
            tqdm.write(
                f"{name:14s} n = {row['n']:6d}  ε = {row['epsilon']!s:5s} {row['method']:34s} {cell(row)}  "
                f"{np.median(row['seconds']):.2f} s  {row['settings']}"
            )
            if folder is not None:
                write(folder, rows)


def results_of(name: str, options):
    """Rows of one table."""
    data = TABLES[name](options.quick)
    table, y = data.data, np.asarray(data.target).astype(int)
    if options.quick:
        table, y = table[:QUICK_RECORDS], y[:QUICK_RECORDS]
    features = np.nan_to_num(TableEncoder(data.columns).fit_transform(table))  # a missing number is in the middle
    parts = [split(len(y), s) for s in range(options.splits)]
    for n in sizes_of(options.sizes, len(parts[0][0])):
        first = parts[0][0][:n]
        others = [ours(DELTA, name="BayesianLogisticRegression"), adassp_method(DELTA)]
        others.append(dp_sgd_method(features[first], y[first], DELTA, SGD_PLANS[:1] if options.quick else SGD_PLANS))
        if options.quick:
            others[-1].candidates = others[-1].candidates[:2]
        methods = [
            (classifier("PrivateClassifier", data.columns), table),
            *((method, features) for method in others),
            (classifier("PrivateClassifier, not private", data.columns, private=False), table),
            (non_private("BayesianLogisticRegression, not private"), features),
        ]
        for method, X in methods:
            for epsilon in options.epsilons if method.private else [None]:
                yield row_of(name, n, method, X, y, epsilon, [(train[:n], test[:MOST_TEST]) for train, test in parts])


def sizes_of(sizes: list[int], n_train: int) -> list[int]:
    """Numbers of training records; one that is too large becomes all of them."""
    return sorted({min(n, n_train) for n in sizes})


def row_of(table: str, n: int, method: Method, X, y, epsilon: float | None, parts) -> dict:
    """One method at one ε, on all splits."""
    row = {"table": table, "n": n, "method": method.name, "epsilon": epsilon}
    row |= {"settings": method.settings_at(epsilon), "auc": [], "seconds": []}
    for s, (train, test) in enumerate(parts):
        start = time.perf_counter()
        score = method.fit(taken(X, train), y[train], epsilon=epsilon, seed=1000 + s)
        row["seconds"].append(time.perf_counter() - start)
        row["auc"].append(auc(y[test], score(taken(X, test))))
    return row


def classifier(name: str, columns: dict, private: bool = True) -> Method:
    """Our classifier with declared columns; every setting at its default."""

    def fit(X, y, epsilon, seed):
        budget = None if epsilon is None else PrivacyBudget(epsilon, DELTA)
        return PrivateClassifier(columns, privacy=budget).fit(X, y).decision_function

    return Method(name, fit, private=private)


def taken(X, rows: np.ndarray):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def cell(row: dict) -> str:
    spread = f" ± {np.std(row['auc'], ddof=1):.3f}" if len(row["auc"]) > 1 else ""
    return f"{np.mean(row['auc']):.3f}{spread}"


def write(folder: Path, rows: list[dict]) -> None:
    """``results.json`` and, by table, ``results.md``."""
    write_json(folder / "results.json", {"delta": DELTA, "rows": rows})
    write_text(folder / "results.md", as_text(rows))


def as_text(rows: list[dict]) -> str:
    """A line for each table, number of records and method; a column for each ε. The best private method is bold."""
    epsilons = sorted({row["epsilon"] for row in rows} - {None})
    cells = {(row["table"], row["n"], row["method"], row["epsilon"]): row for row in rows}
    private = [name for name in dict.fromkeys(row["method"] for row in rows) if "not private" not in name]
    heads = ["table", "n", "method", *(f"ε = {epsilon:g}" for epsilon in epsilons), "not private"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for table, n in dict.fromkeys((row["table"], row["n"]) for row in rows):
        for method in private:
            entries = [cells.get((table, n, method, epsilon)) for epsilon in epsilons]
            best = [
                max(
                    (np.mean(cells[key]["auc"]) for name in private if (key := (table, n, name, e)) in cells), default=0
                )
                for e in epsilons
            ]
            texts = [
                "" if row is None else f"**{cell(row)}**" if np.mean(row["auc"]) == top else cell(row)
                for row, top in zip(entries, best, strict=True)
            ]
            plain = cells.get((table, n, f"{method}, not private", None))
            lines.append("| " + " | ".join([table, f"{n:,}", method, *texts, cell(plain) if plain else ""]) + " |")
    return "\n".join(lines) + "\n"
