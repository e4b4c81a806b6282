"""``python -m experiments public_records``: private fits with public records of the same and of other populations.

For each size and ε: held-out log loss of the public records alone, of a private fit without them, and with them. Public
records are 1,000 rows of the same table; with labels drawn from other coefficients ("shifted"), permuted or flipped labels.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score
from tqdm import tqdm

from experiments.options import folder_of, parser_of
from experiments.regression.compare import split
from experiments.regression.methods import plan_for
from experiments.results import write_json, write_text
from experiments.stand_ins import adult
from vips import BayesianLogisticRegression
from vips.preprocessing import TableEncoder

SIZES, EPSILONS, DELTA, N_STEPS, N_PUBLIC, SEEDS = (200, 1000, 5000, 30_000), (0.1, 0.5, 1.0, 4.0), 1e-5, 20, 1000, 3
QUICK_SIZES, QUICK_EPSILONS, QUICK_PUBLIC = (800,), (1.0,), 300
KINDS, QUICK_KINDS = ("same", "shifted", "permuted", "flipped"), ("same", "flipped")
QUICK_COLUMNS = slice(None, None, 4)
SHIFT = 1.0  # standard deviation of the difference of coefficients
N_GENERATED, N_FEATURES = 40_000, 20


def main(arguments: list[str]) -> None:
    options = parser_of("experiments public_records", __doc__).parse_args(arguments)
    folder = folder_of("public_records", options)
    sizes, epsilons, n_public, kinds, seeds = SIZES, EPSILONS, N_PUBLIC, KINDS, SEEDS
    if options.quick:
        sizes, epsilons, n_public, kinds, seeds = QUICK_SIZES, QUICK_EPSILONS, QUICK_PUBLIC, QUICK_KINDS, 1
    rows = []
    for table, (X, y) in tables(options.quick).items():
        for s in tqdm(range(seeds), desc=table, disable=None):
            rows += scores_of_split(table, X, y, s, sizes, epsilons, n_public, kinds)
            if folder is not None:
                write_json(folder / "results.json", rows)
    text = report(rows, epsilons)
    print(text)
    if folder is not None:
        write_text(folder / "results.md", text)


def tables(quick: bool) -> dict:
    """Features and labels by name; rows have a norm of at most 1."""
    people, rng = adult(quick), np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (N_GENERATED, N_FEATURES)) / np.sqrt(N_FEATURES)
    y = rng.random(N_GENERATED) < expit(X @ rng.normal(0.0, 3.0, N_FEATURES) - 1.0)
    encoded = TableEncoder(people.columns).fit_transform(people.data)
    encoded = encoded[:, QUICK_COLUMNS] if quick else encoded
    return {"Adult": (encoded, np.asarray(people.target).astype(int)), "generated": (X, y.astype(int))}


def scores_of_split(table: str, X, y, s: int, sizes, epsilons, n_public: int, kinds) -> list[dict]:
    """One row for each kind of public records, size and ε; public and private records are of the training part."""
    train, test = split(len(y), s)
    rng, public, rows = np.random.default_rng(s), train[:n_public], []
    labels = {kind: labels_of(kind, X[public], y[public], rng) for kind in kinds}
    held_out = X[test], y[test]
    alone = {kind: scores(new_model().fit(X[public], of_kind), *held_out) for kind, of_kind in labels.items()}
    for n, epsilon in itertools.product(sizes, epsilons):
        private, plan = train[n_public : n_public + n], plan_for(epsilon, DELTA, 1.0, N_STEPS)
        without = scores(new_model(plan).fit(X[private], y[private]), *held_out)
        for kind, answers in labels.items():
            model = new_model(plan).fit(X[private], y[private], public_X=X[public], public_y=answers)
            row = {"table": table, "split": s, "public": kind, "n": n, "epsilon": epsilon, "alone": alone[kind]}
            rows.append(row | {"without": without, "both": scores(model, *held_out), "weight": model.public_weight_[0]})
    return rows


def new_model(plan=None) -> BayesianLogisticRegression:
    return BayesianLogisticRegression(privacy=plan, max_norm=1.0, classes=[0, 1])


def labels_of(kind: str, X, y, rng: np.random.Generator) -> np.ndarray:
    if kind == "same":
        return y
    if kind != "shifted":
        return rng.permutation(y) if kind == "permuted" else 1 - y
    fitted = new_model().fit(X, y)
    slopes = fitted.coef_[0] + rng.normal(0.0, SHIFT, X.shape[1])
    return (rng.random(len(y)) < expit(X @ slopes + fitted.intercept_[0])).astype(int)


def scores(model, X, y) -> tuple[float, float]:
    """Log loss and AUC."""
    probabilities = model.predict_proba(X)[:, 1]
    return float(log_loss(y, probabilities)), float(roc_auc_score(y, probabilities))


def report(rows: list[dict], epsilons) -> str:
    """Log loss relative to the public records alone, and to a fit without them; below, the worst of each."""
    head = ["table", "public records", "n", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    changes: dict[str, list[float]] = {"alone": [], "without": []}
    worst_auc = []
    for table, kind, n in dict.fromkeys((row["table"], row["public"], row["n"]) for row in rows):
        cells = []
        for epsilon in epsilons:
            group = [r for r in rows if (r["table"], r["public"], r["n"], r["epsilon"]) == (table, kind, n, epsilon)]
            mean = {name: np.mean([row[name] for row in group], axis=0) for name in ("alone", "without", "both")}
            change = {name: 100.0 * (mean["both"][0] / mean[name][0] - 1.0) for name in changes}
            changes["alone"].append(change["alone"])
            if n == max(row["n"] for row in rows) and epsilon >= 1.0:
                changes["without"].append(change["without"])
            worst_auc.append(100.0 * (1.0 - mean["both"][1] / mean["alone"][1]))
            cells.append(f"{change['alone']:+.1f}, {change['without']:+.1f}")
        lines.append("| " + " | ".join([table, kind, f"{n:,}", *cells]) + " |")
    lines += ["", f"Log loss against the public records alone: at most {max(changes['alone']):+.1f} %; AUC: at most "]
    lines[-1] += (
        f"{max(worst_auc):+.1f} % lower. Log loss against fits without public records, largest n, ε ≥ 1: at most "
    )
    return "\n".join(lines) + f"{max(changes['without']):+.1f} %.\n"
