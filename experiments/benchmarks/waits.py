"""What else a user waits for, each measured once beside the obvious peer: CPU seconds of one thread.

    python -m experiments.benchmarks.waits

A regression of 100,000 rows, a private table encoder of 10⁶ rows with 10 columns of numbers and 10 of categories, the private
vocabulary of 10⁵ texts of 50 words, and what follows a fit: the matched posterior, a plan, a comparison, generated records,
saving and loading. Everything is called once on little data before, which compiles. Imports are of a new process. Peers are
scikit-learn's, with their defaults; where a cell is empty, no library does the same.

``--quick``: little data.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.decomposition import LatentDirichletAllocation as TheirTopics
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import vips
from experiments.benchmarks.logistic import environment
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import BayesianLogisticRegression, LatentClassAnalysis, LatentDirichletAllocation, PrivacyBudget, PrivacyPlan
from vips._compute.threads import at_most
from vips.datasets import make_lda_corpus
from vips.preprocessing import PrivateCountVectorizer, TableEncoder

N_ROWS, N_REGRESSED, N_TEXTS, N_SAMPLED, LITTLE = 1_000_000, 100_000, 100_000, 100_000, 2_000
N_COLUMNS, N_CATEGORIES, N_WORDS = 10, 8, 30_000
BUDGET = PrivacyBudget(1.0, 1e-6)
Task = tuple[str, Callable[[], object], str, Callable[[], object] | None]


def table(n_rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, categories, and an outcome that depends on the first of each."""
    rng = np.random.default_rng(0)
    numbers = {f"number {i}": np.round(rng.normal(50.0, 10.0, n_rows), 1) for i in range(N_COLUMNS)}
    names = np.array([f"level {i}" for i in range(N_CATEGORIES)])
    codes = rng.integers(0, N_CATEGORIES, (N_COLUMNS, n_rows))
    categories = {f"category {i}": names[codes[i]] for i in range(N_COLUMNS)}
    score = 0.05 * (numbers["number 0"] - 50.0) + 0.2 * (codes[0] - 3.5)
    return pd.DataFrame(numbers | categories), (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-score))).astype(int)


def of_classes(n_rows: int) -> np.ndarray:
    """Six answers of four classes, each of which mostly gives one of its own."""
    rng = np.random.default_rng(2)
    typical = (2 * rng.integers(0, 4, n_rows)[:, None] + np.arange(6)) % N_CATEGORIES
    return np.where(rng.random((n_rows, 6)) < 0.6, typical, rng.integers(0, N_CATEGORIES, (n_rows, 6)))


def texts(n_texts: int) -> list[str]:
    """Words by Zipf's law."""
    rng = np.random.default_rng(1)
    frequency = 1.0 / (10.0 + np.arange(N_WORDS))
    words = np.array([f"w{i}" for i in range(N_WORDS)])
    return [" ".join(row) for row in words[rng.choice(N_WORDS, (n_texts, 50), p=frequency / frequency.sum())]]


def tasks(scale: float) -> Iterator[Task]:
    """What is timed, its call, and the peer's."""
    frame, outcome = table(round(N_ROWS * scale))
    numbers, categories = list(frame)[:N_COLUMNS], list(frame)[N_COLUMNS:]
    levels = [f"level {i}" for i in range(N_CATEGORIES)]
    declared = dict.fromkeys(numbers, (0.0, 100.0)) | dict.fromkeys(categories, levels)
    learnt = TableEncoder(dict.fromkeys(numbers, "number") | dict.fromkeys(categories, "category"), privacy=BUDGET)
    theirs = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(sparse_output=False), categories))
    what = f"{len(frame):,} rows"
    yield (
        f"columns of {what}, learnt",
        lambda: learnt.fit_transform(frame),
        "scaler, one-hot",
        lambda: theirs.fit_transform(frame),
    )
    yield f"columns of {what}, declared", lambda: TableEncoder(declared).fit_transform(frame), "", None
    few = round(N_REGRESSED * scale)
    X, y = TableEncoder(declared).fit_transform(frame[:few]), outcome[:few]
    model = BayesianLogisticRegression(classes=[0, 1], max_norm=4.5, privacy=BUDGET)
    yield (
        f"logistic regression of {few:,} rows, {X.shape[1]} columns", lambda: model.fit(X, y), "LogisticRegression",
        lambda: LogisticRegression(max_iter=1000).fit(X, y),
    )  # fmt: skip
    yield "its posterior", lambda: model.fit(X, y).posterior_, "", None
    documents = texts(round(N_TEXTS * scale))
    yield (
        f"words of {len(documents):,} texts", lambda: PrivateCountVectorizer(privacy=BUDGET).fit_transform(documents),
        "CountVectorizer", lambda: CountVectorizer().fit_transform(documents),
    )  # fmt: skip
    counts = make_lda_corpus(
        max(few // 5, 500), n_topics=10, n_words=2_000, document_length=50, random_state=0
    ).counts  # few documents need little noise
    plan = PrivacyPlan(noise_multiplier=10.0 * scale, sampling="full", n_steps=20)
    topics = LatentDirichletAllocation(10, vocabulary=counts.shape[1], privacy=plan)
    yield (
        f"topics of {counts.shape[0]:,} texts", lambda: topics.fit(counts), "LatentDirichletAllocation",
        lambda: TheirTopics(10).fit(counts),
    )  # fmt: skip
    yield "their matched posterior", lambda: topics.match(), "", None
    answers = of_classes(few)
    classes = LatentClassAnalysis(4, categories=[N_CATEGORIES] * 6, privacy=BUDGET)
    yield f"latent classes of {few:,} rows", lambda: classes.fit(answers), "", None
    yield "their matched posterior", lambda: classes.match(), "", None
    yield (
        f"a plan of a regression, {X.shape[1]} columns",
        lambda: vips.plan_for(
            BayesianLogisticRegression(max_norm=4.5), n_records=few, n_features=X.shape[1], privacy=BUDGET
        ),
        "",
        None,
    )
    yield "a plan of classes", lambda: vips.plan_for(classes, n_records=few, privacy=BUDGET), "", None
    ordinary = BayesianLogisticRegression(classes=[0, 1]).fit(X, y)
    yield "a comparison of two regressions", lambda: vips.compare(model, ordinary, X[:LITTLE], y[:LITTLE]), "", None
    n_sampled = round(N_SAMPLED * scale)
    yield f"{n_sampled:,} records of classes", lambda: classes.sample(n_sampled), "", None
    with tempfile.TemporaryDirectory() as name:
        path, other = Path(name) / "model.vips", Path(name) / "model.joblib"
        sklearn_model = TheirTopics(10, max_iter=1).fit(counts[:100])
        yield "saving topics", lambda: topics.save(path), "joblib.dump", lambda: joblib.dump(sklearn_model, other)
        yield "loading them", lambda: vips.load(path), "joblib.load", lambda: joblib.load(other)


def seconds(function: Callable[[], object] | None) -> float | None:
    if function is None:
        return None
    start = os.times()
    function()
    return sum(os.times()[:4]) - sum(start[:4])  # of children, too


def of_imports() -> list[dict]:
    """A new process that imports, less one that does not."""
    lines = {
        "": "pass",
        "vips": "import vips; vips.BayesianLogisticRegression",
        "sklearn": "import sklearn.linear_model",
    }
    commands = {
        name: partial(subprocess.run, [sys.executable, "-c", line], env=environment(), check=True)
        for name, line in lines.items()
    }
    best = {name: min(seconds(command) for _ in range(3)) for name, command in commands.items()}
    return [row("import of a model", best["vips"] - best[""], "of another", best["sklearn"] - best[""])]


def row(what: str, ours: float, peer: str, theirs: float | None) -> dict:
    return {"what": what, "seconds": ours, "peer": peer, "peer_seconds": theirs}


def main(arguments: list[str] | None = None) -> None:
    options = parser_of("experiments.benchmarks.waits", __doc__).parse_args(arguments)
    written = folder_of("benchmarks", options)
    scale = 0.002 if options.quick else 1.0
    with at_most(1):
        for _, ours, _, _ in tasks(0.002):  # compiles
            ours()
        rows = [row(what, seconds(ours), peer, seconds(theirs)) for what, ours, peer, theirs in tasks(scale)]
    rows += of_imports()
    print(text := report(rows))
    if written is not None:
        write_text(written / "waits.md", text)
        write_json(written / "waits.json", rows)


def report(rows: list[dict]) -> str:
    """The numbers in a table."""
    lines = ["| | seconds | peer | seconds | vips / peer |", "| --- | --- | --- | --- | --- |"]
    for one in rows:
        theirs = one["peer_seconds"]
        peer = " | | " if theirs is None else f"{one['peer']} | {theirs:.3f} | {one['seconds'] / theirs:.2f}"
        lines.append(f"| {one['what']} | {one['seconds']:.3f} | {peer} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
