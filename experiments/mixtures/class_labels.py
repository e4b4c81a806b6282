"""``python -m experiments class_labels``: do classes labelled real match true ones, and how many does ``how_many`` tell of?

Tables of eight columns with 2 to 8 categories, with three true classes or none (independent columns); answers of a class have
probabilities from Dirichlet(½, …, ½). A class matches a true one if its probabilities, less those of all records, correlate
with those of the true class by at least 0.4. ``how_many`` is asked of the smaller fits.
"""

from __future__ import annotations

import numpy as np
from tqdm.auto import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import LatentClassAnalysis, PrivacyPlan, how_many

DELTA, LEAST_CORRELATION, LABELS = 1e-6, 0.4, ("real", "doubtful", "noise", "empty")
LEVELS, N_STEPS, FITTED, N_TABLES = (2, 3, 4, 2, 5, 3, 8, 2), 60, (6, 15), 5
SIZES, EPSILONS = (1_000, 10_000, 40_000), (0.5, 1.0, 4.0)


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments class_labels", __doc__)
    parser.add_argument("--tables", type=int, default=N_TABLES, help="generated tables of each kind")
    parser.add_argument("--fitted", type=int, nargs="+", default=FITTED, help="numbers of classes that are fitted")
    options = parser.parse_args(arguments)
    folder = folder_of("class_labels", options)
    sizes, epsilons, fitted = ((500,), (4.0,), (4,)) if options.quick else (SIZES, EPSILONS, options.fitted)
    n_tables, n_steps = (2, 10) if options.quick else (options.tables, N_STEPS)
    rows = []
    for n_true in tqdm((3, 1), desc="kinds of tables", disable=None):
        for n in sizes:
            for epsilon in epsilons:
                rows += [row(n_true, n, epsilon, k, n_steps, n_tables) for k in fitted]
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def row(n_true: int, n: int, epsilon: float, n_fitted: int, n_steps: int, n_tables: int) -> dict:
    """Labels of the classes of all tables of one kind."""
    total = {"true": n_true, "n": n, "epsilon": epsilon, "fitted": n_fitted}
    total |= {name: 0 for label in LABELS for name in (label, f"{label}, matched")} | {"told": []}
    for seed in range(n_tables):
        rng = np.random.default_rng([seed, n])
        tables, kinds = [rng.dirichlet(np.full(size, 0.5), n_true) for size in LEVELS], rng.integers(n_true, size=n)
        below = [np.cumsum(table, axis=1)[kinds, :-1] for table in tables]
        codes = np.column_stack([(rng.random((n, 1)) >= sums).sum(axis=1) for sums in below])
        plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=n_steps)
        model = LatentClassAnalysis(n_fitted, categories=LEVELS, privacy=plan, random_state=seed).fit(codes)
        matched = likeness(model, np.hstack(tables)) >= LEAST_CORRELATION
        for label, is_matched in zip(model.evidence().labels, matched, strict=True):
            total[label] += 1
            total[f"{label}, matched"] += int(is_matched)
        if n_fitted <= FITTED[0]:
            total["told"].append(number_told(model))
    return total


def number_told(model: LatentClassAnalysis) -> int | None:
    """None where the fit has no match."""
    try:
        return how_many(model).best
    except NotImplementedError:
        return None


def likeness(model: LatentClassAnalysis, answers: np.ndarray) -> np.ndarray:
    """Correlation of each class with the true one that is most like it, in probabilities less those of all records."""
    if len(answers) == 1:
        return np.zeros(model.n_components)
    ours, theirs = model.components_ - model.weights_ @ model.components_, answers - answers.mean(axis=0)
    ours, theirs = (profiles / np.linalg.norm(profiles, axis=1, keepdims=True) for profiles in (ours, theirs))
    return (ours @ theirs.T).max(axis=1)


def as_text(rows: list[dict]) -> str:
    lines = [
        "| true classes | records | ε | fitted | real (match) | doubtful (match) | noise (match) | empty | how_many |"
    ]
    lines.append("|" + "---|" * 9)
    for case in rows:
        labels = " | ".join(f"{case[label]} ({case[label + ', matched']})" for label in LABELS[:3])
        true = case["true"] if case["true"] > 1 else "none"
        cells = [true, f"{case['n']:,}", f"{case['epsilon']:g}", case["fitted"], labels, case["empty"]]
        told = ", ".join("–" if number is None else str(number) for number in case["told"])
        lines.append("| " + " | ".join(map(str, [*cells, told])) + " |")
    return "\n".join(lines) + "\n"
