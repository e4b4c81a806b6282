"""``python -m experiments blr_settings``: default clip, scales, step sizes and view against their alternatives.

Five tables, none of which is held-out data of a reported result: digits (odd against even), Wikipedia (new articles against
others, by words), readmissions of encounters that are not a patient's first, Adult's sex from other columns, and Adult's
income in the training part of split 0. One fifth of each is the validation part.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score
from tqdm import tqdm

from experiments import stand_ins
from experiments.datasets import load_adult, load_wikipedia
from experiments.datasets.home import find_files
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import BayesianLogisticRegression, PrivacyPlan
from vips.models.regression import contract as regression
from vips.models.regression import denoising as regression_view
from vips.preprocessing import TableEncoder

EPSILONS, DELTA, N_STEPS = (0.1, 1.0, 4.0), 1e-5, 20
QUICK_EPSILONS, QUICK_SETTINGS, QUICK_RECORDS = (1.0,), 2, 600
QUICK_COLUMNS = slice(None, None, 3)  # every third

# name, changed constants of a module, arguments of the model
SETTINGS = [
    ("default", {}, {}),
    ("clip norm 0.3", {(regression, "_CLIP_NORM"): 0.3}, {}),
    ("clip norm 0.8", {(regression, "_CLIP_NORM"): 0.8}, {}),
    ("precision scale 0.4", {(regression, "_SCALES_FULL"): {"linear": 1.0, "precision": 0.4}}, {}),
    ("precision scale 1.2", {(regression, "_SCALES_FULL"): {"linear": 1.0, "precision": 1.2}}, {}),
    ("intercept's share 0.5", {(regression, "_INTERCEPT_SHARE"): 0.5}, {}),
    ("no intercept", {}, {"fit_intercept": False}),
    ("residuals not averaged", {(regression, "_LEAST_STEP"): 1.0}, {}),
    ("residuals averaged with 2/(t + 1)", {(regression, "_LEAST_STEP"): 0.0}, {}),
    ("half the eigenvalue floor", {(regression_view, "_NOISE_LEVEL"): 0.5}, {}),
    ("twice the eigenvalue floor", {(regression_view, "_NOISE_LEVEL"): 2.0}, {}),
    ("scale to noise 3", {(regression_view, "_SCALE_TO_NOISE"): 3.0}, {}),
    ("scale to noise 12", {(regression_view, "_SCALE_TO_NOISE"): 12.0}, {}),
    ("statistics as in the paper", {}, {"statistics": "paper"}),
    ("diagonal covariance", {}, {"covariance": "diagonal"}),
]


def main(arguments: list[str]) -> None:
    options = parser_of("experiments blr_settings", __doc__).parse_args(arguments)
    folder = folder_of("blr_settings", options)
    epsilons, settings, tables = EPSILONS, SETTINGS, {}
    if options.quick:
        epsilons, settings = QUICK_EPSILONS, SETTINGS[:QUICK_SETTINGS]
    for name, (X, y) in development_data(options.quick):
        if options.quick:
            X, y = X[:QUICK_RECORDS, QUICK_COLUMNS], y[:QUICK_RECORDS]
        tables[name] = split(X, y)
    rows = []
    with tqdm(total=len(settings) * len(tables) * len(epsilons), desc="fits", disable=None) as progress:
        for name, constants, model in settings:
            rows.append({"setting": name, "auc": {}})
            with changed(constants):
                for table, (train, validation) in tables.items():
                    for epsilon in epsilons:
                        rows[-1]["auc"][f"{table}, {epsilon}"] = auc(train, validation, epsilon, model)
                        progress.update()
            tqdm.write(line(rows[-1], tables, epsilons))
    at = ", ".join(f"{epsilon:g}" for epsilon in epsilons)
    head = ["setting", *(f"{name} at ε = {at}" for name in tables), "mean"]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
    text = "\n".join(lines + [line(row, tables, epsilons) for row in rows]) + "\n"
    print(text)
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def auc(train, validation, epsilon: float, model: dict) -> float:
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=N_STEPS)
    fitted = BayesianLogisticRegression(privacy=plan, max_norm=1.0, **model).fit(*train)
    return float(roc_auc_score(validation[1], fitted.decision_function(validation[0])))


def line(row: dict, tables, epsilons: Sequence[float]) -> str:
    cells = [[row["auc"][f"{table}, {epsilon}"] for epsilon in epsilons] for table in tables]
    texts = [", ".join(f"{value:.3f}" for value in cell) for cell in cells]
    return f"| {row['setting']} | {' | '.join(texts)} | {np.mean(cells):.4f} |"


@contextmanager
def changed(constants: dict):
    before = {place: getattr(*place) for place in constants}
    for place, value in constants.items():
        setattr(*place, value)
    try:
        yield
    finally:
        for place, value in before.items():
            setattr(*place, value)


def split(X, y):
    order = np.random.default_rng(7).permutation(len(y))
    first = int(0.8 * len(y))
    return tuple((X[rows], y[rows]) for rows in (order[:first], order[first:]))


def development_data(quick: bool):
    """(name, (X, y)); rows have a norm of at most 1, or are scaled down to it by the model."""
    try:
        yield from real_data()
    except FileNotFoundError:
        if not quick:
            raise
        yield from generated_data()


def generated_data():
    """Generated tables of the same shapes, for quick runs without the real tables."""
    print("The data files are missing: generated data of the same shape take their place.")
    images, people = stand_ins.generated_images(), stand_ins.generated_adult()
    pooled = images.data.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / 14.0
    yield "digits", (pooled, images.target % 2)
    counts = stand_ins.generated_documents(QUICK_RECORDS).counts[:, :300]
    yield (
        "words",
        ((counts > 0).toarray() / 10.0, (counts[:, :150].sum(axis=1) > counts[:, 150:].sum(axis=1)).astype(int)),
    )
    patients = stand_ins.generated_patients()
    common = np.argsort(-np.bincount(patients.data.indices, minlength=patients.data.shape[1]))[:150]
    yield "readmission", (patients.data[:, common].toarray() / np.sqrt(24.0), patients.target.astype(int))
    X = TableEncoder(people.columns).fit_transform(people.data)
    others = TableEncoder({name: allowed for name, allowed in people.columns.items() if name != "sex"})
    yield "sex", (others.fit_transform(people.data), (people.data["sex"] == "Male").to_numpy(int))
    yield "income", (X, people.target.astype(int))


def real_data():
    """The tables in the description of this module."""
    how = "see data/README.md"
    (mnist,) = find_files(["mnist.npz"], "MNIST", how)
    with np.load(mnist) as file:
        images, digits = file["x_train"][:40_000], file["y_train"][:40_000]
    pooled = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / (255 * 14)
    yield "digits", (pooled, (digits % 2).astype(int))
    counts = load_wikipedia(40_000).counts
    common = np.argsort(-np.bincount(counts[:5000].indices, minlength=counts.shape[1]))[:300]
    (meta,) = find_files(["wiki_meta.npz"], "Wikipedia", how)
    with np.load(meta) as file:
        new = (file["source"][:40_000] == 2).astype(int)
    yield "words", ((counts[:, common] > 0).toarray() / 10.0, new)
    features, outcome = find_files(["diabetes_binary.npz", "diabetes_outcome.npz"], "Diabetes", how)
    with np.load(outcome) as file:
        later = ~file["first_encounter"] & ~file["died_or_hospice"]
        readmitted = file["readmitted_any"][later].astype(int)
    table = sp.load_npz(features).tocsr()[later]
    common = np.argsort(-np.bincount(table.indices, minlength=table.shape[1]))[:150]
    yield "readmission", (table[:, common].toarray() / np.sqrt(24.0), readmitted)
    adult = load_adult()
    others = [name for name in adult.columns if name not in ("sex", "relationship", "capital-gain", "capital-loss")]
    encoder = TableEncoder({name: adult.columns[name] for name in others})
    yield "sex", (encoder.fit_transform(adult.data)[:32_561], (adult.data["sex"] == "Male").to_numpy(int)[:32_561])
    income = np.asarray(adult.target).astype(int)
    training = np.random.default_rng(100).permutation(len(income))[: int(0.8 * len(income))]
    yield "income", (TableEncoder(adult.columns).fit_transform(adult.data)[training], income[training])
