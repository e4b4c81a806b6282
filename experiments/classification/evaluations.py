"""``python -m experiments evaluations``: do intervals of scores hold the scores of all persons, and how wide are they?

``vips.evaluate`` for classifiers of generated records: log odds are normal or have six values, and predictions are calibrated
or too sure. δ = 1e-6. The coverage of the AUC, log loss, Brier score and errors over 1,000 samples of each kind, and median
lengths.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import PrivacyBudget, evaluate
from vips.tools.evaluation.estimates import centres

EPSILONS, SIZES, N_SAMPLES, N_TRUE = (0.5, 1.0, 4.0), (500, 2_000, 20_000), 1_000, 2_000_000
SCORES = ("auc", "log_loss", "brier", "error")
# mean and deviation of the log odds that are predicted, and the slope of the true ones against these
KINDS = {
    "even": (0.0, 1.5, 1.0),
    "too sure": (0.0, 3.0, 0.6),
    "weak": (0.2, 0.5, 1.0),
    "rare, 3 %": (-3.9, 1.0, 1.0),
    "six values": (np.array([-3.0, -1.8, -0.6, 0.3, 1.1, 2.0]), 0.0, 1.0),
}


class Given:
    """A classifier to which the log odds are given."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X) -> np.ndarray:
        return np.hstack([expit(-X), expit(X)])


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments evaluations", __doc__)
    parser.add_argument("--samples", type=int, default=N_SAMPLES, help="of each kind, number of records and ε")
    parser.add_argument("--seed", type=int, default=0, help="of the samples; noise is never seeded")
    options = parser.parse_args(arguments)
    folder, rng = folder_of("evaluations", options), np.random.default_rng(options.seed)
    n_samples, n_true = (4, 20_000) if options.quick else (options.samples, N_TRUE)
    sizes, epsilons = (SIZES[1:2], EPSILONS[1:2]) if options.quick else (SIZES, EPSILONS)
    true = {kind: true_scores(*drawn(kind, n_true, rng)) for kind in KINDS}
    rows = [
        {"records": n, "epsilon": epsilon, "kind": kind} | repeated(kind, n, epsilon, true[kind], n_samples, rng)
        for n in sizes
        for epsilon in epsilons
        for kind in tqdm(KINDS, desc=f"{n} records, ε = {epsilon:g}", disable=None)
    ]
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def drawn(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Predicted log odds, and outcomes."""
    mean, deviation, slope = KINDS[kind]
    predicted = rng.choice(mean, n) if np.ndim(mean) else rng.normal(mean, deviation, n)
    return predicted, rng.random(n) < expit(slope * predicted)


def true_scores(predicted: np.ndarray, outcome: np.ndarray) -> list[float]:
    """Scores on nearly all persons; probabilities of the log loss are limited as those of ``evaluate``."""
    limited = expit(np.clip(predicted, *centres()[[0, -1]]))
    wrong = np.mean((predicted > 0.0) != outcome)
    return [
        roc_auc_score(outcome, predicted),
        log_loss(outcome, limited),
        brier_score_loss(outcome, expit(predicted)),
        float(wrong),
    ]


def repeated(kind: str, n: int, epsilon: float, true: list[float], n_samples: int, rng: np.random.Generator) -> dict:
    """How often intervals hold the true scores, and their median lengths."""
    lower, upper = np.empty((2, n_samples, len(SCORES)))
    for sample in range(n_samples):
        predicted, outcome = drawn(kind, n, rng)
        scores = evaluate(Given(), predicted[:, None], outcome, privacy=PrivacyBudget(epsilon, 1e-6))
        lower[sample], upper[sample] = zip(*(getattr(scores, name)[1:3] for name in SCORES), strict=True)
    holds = (lower <= true) & (true <= upper)
    return {"coverage": holds.mean(axis=0).tolist(), "length": np.median(upper - lower, axis=0).tolist()}


def as_text(rows: list[dict]) -> str:
    lines = [
        "| records | ε | outcome | coverage: AUC | log loss | Brier | errors | length: AUC | log loss | Brier | errors |",
        "|" + "---|" * 11,
    ]
    for row in rows:
        covered, length = ([f"{value:.3f}" for value in row[name]] for name in ("coverage", "length"))
        lines.append(f"| {row['records']:,} | {row['epsilon']:g} | {row['kind']} | {' | '.join(covered + length)} |")
    return "\n".join(lines) + "\n"
