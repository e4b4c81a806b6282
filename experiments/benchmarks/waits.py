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
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import joblib
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.decomposition import LatentDirichletAllocation as LDA
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import vips
from experiments.benchmarks.logistic import environment
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import BayesianLogisticRegression, LatentClassAnalysis, LatentDirichletAllocation, PrivacyBudget, PrivacyPlan
from vips.core.exact.threads import at_most
from vips.datasets import make_lda_corpus
from vips.preprocessing import PrivateCountVectorizer, TableEncoder

N_COLUMNS, N_CATEGORIES, N_WORDS = 10, 8, 30_000
BUDGET = PrivacyBudget(1.0, 1e-6)


class Size(NamedTuple):
    """Numbers of rows, of those that are regressed, of texts, documents, topics, words and questions."""

    rows: int
    regressed: int
    texts: int
    documents: int
    topics: int
    words: int
    questions: int


FULL, QUICK = Size(1_000_000, 100_000, 100_000, 20_000, 10, 2_000, 6), Size(2_000, 1_000, 200, 500, 2, 30, 3)


def table(n_rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, categories, and an outcome that depends on the first of each."""
    rng = np.random.default_rng(0)
    numbers = {f"number {i}": np.round(rng.normal(50.0, 10.0, n_rows), 1) for i in range(N_COLUMNS)}
    names = np.array([f"level {i}" for i in range(N_CATEGORIES)])
    codes = rng.integers(0, N_CATEGORIES, (N_COLUMNS, n_rows))
    categories = {f"category {i}": names[codes[i]] for i in range(N_COLUMNS)}
    score = 0.05 * (numbers["number 0"] - 50.0) + 0.2 * (codes[0] - 3.5)
    return pd.DataFrame(numbers | categories), (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-score))).astype(int)


def of_classes(n_rows: int, n_questions: int) -> np.ndarray:
    """Answers of four classes, each of which mostly gives those of its own."""
    rng = np.random.default_rng(2)
    typical = (2 * rng.integers(0, 4, n_rows)[:, None] + np.arange(n_questions)) % N_CATEGORIES
    others = rng.integers(0, N_CATEGORIES, typical.shape)
    return np.where(rng.random(typical.shape) < 0.6, typical, others)


def texts(n_texts: int) -> list[str]:
    """Words by Zipf's law."""
    rng = np.random.default_rng(1)
    frequency = 1.0 / (10.0 + np.arange(N_WORDS))
    words = np.array([f"w{i}" for i in range(N_WORDS)])
    return [" ".join(row) for row in words[rng.choice(N_WORDS, (n_texts, 50), p=frequency / frequency.sum())]]


class Task(NamedTuple):
    """What is timed, its call, and what the peer does."""

    what: str
    ours: Callable[[], object]
    peer: str = ""
    theirs: Callable[[], object] | None = None


def tasks(size: Size) -> Iterator[Task]:
    """One after the other; later ones use what earlier ones have fitted."""
    frame, outcome = table(size.rows)
    numbers, categories = list(frame)[:N_COLUMNS], list(frame)[N_COLUMNS:]
    levels = [f"level {i}" for i in range(N_CATEGORIES)]
    declared = TableEncoder(dict.fromkeys(numbers, (0.0, 100.0)) | dict.fromkeys(categories, levels))
    learnt = TableEncoder(dict.fromkeys(numbers, "number") | dict.fromkeys(categories, "category"), privacy=BUDGET)
    theirs = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(sparse_output=False), categories))
    what = f"{len(frame):,} rows of {frame.shape[1]} columns, "
    yield Task(
        what + "learnt", lambda: learnt.fit_transform(frame), "scaler, one-hot", lambda: theirs.fit_transform(frame)
    )
    yield Task(what + "declared", lambda: declared.fit_transform(frame))

    X, y = declared.fit_transform(frame[: size.regressed]), outcome[: size.regressed]
    model = BayesianLogisticRegression(classes=[0, 1], max_norm=4.5, privacy=BUDGET)
    peer = LogisticRegression(max_iter=1000)
    what = f"logistic regression, {len(X):,} rows of {X.shape[1]} columns"
    yield Task(what, lambda: model.fit(X, y), "LogisticRegression", lambda: peer.fit(X, y))
    yield Task("its posterior", lambda: model.posterior_)
    plan = partial(vips.plan_for, n_records=len(X), privacy=BUDGET)
    yield Task("a plan of it", lambda: plan(BayesianLogisticRegression(max_norm=4.5), n_features=X.shape[1]))
    ordinary = BayesianLogisticRegression(classes=[0, 1]).fit(X, y)
    yield Task("a comparison with an ordinary one", lambda: vips.compare(model, ordinary, X[:2000], y[:2000]))

    documents, words = texts(size.texts), PrivateCountVectorizer(privacy=BUDGET)
    yield Task(
        f"words of {len(documents):,} texts", lambda: words.fit_transform(documents),
        "CountVectorizer", lambda: CountVectorizer().fit_transform(documents),
    )  # fmt: skip
    sizes = {"n_topics": size.topics, "n_words": size.words, "document_length": 50}
    counts = make_lda_corpus(size.documents, **sizes, random_state=0).counts
    steps = PrivacyPlan(noise_multiplier=size.documents / 2_000, sampling="full", n_steps=20)
    topics = LatentDirichletAllocation(size.topics, vocabulary=size.words, privacy=steps)
    peers = LDA(size.topics).fit(counts[:10])
    what = f"{size.topics} topics of {size.documents:,} documents, {size.words:,} words"
    yield Task(what, lambda: topics.fit(counts), "LatentDirichletAllocation", lambda: peers.fit(counts))
    yield Task("their matched posterior", lambda: topics.match())
    with tempfile.TemporaryDirectory() as name:
        path, other = Path(name) / "model.vips", Path(name) / "model.joblib"
        yield Task("saving them", lambda: topics.save(path), "joblib.dump", lambda: joblib.dump(peers, other))
        yield Task("loading them", lambda: vips.load(path), "joblib.load", lambda: joblib.load(other))

    answers = of_classes(size.regressed, size.questions)
    classes = LatentClassAnalysis(4, categories=[N_CATEGORIES] * size.questions, privacy=BUDGET)
    yield Task(f"four classes of {len(answers):,} rows of {size.questions} answers", lambda: classes.fit(answers))
    yield Task("their matched posterior", lambda: classes.match())
    yield Task("a plan of them", lambda: plan(classes))
    yield Task(f"{size.regressed:,} records of them", lambda: classes.sample(size.regressed))


def seconds(function: Callable[[], object] | None) -> float | None:
    """CPU time of this process and its children."""
    if function is None:
        return None
    start = time.process_time() + sum(os.times()[2:4])
    function()
    return time.process_time() + sum(os.times()[2:4]) - start


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
    with at_most(1):
        for task in tasks(QUICK):  # compiles
            task.ours()
        rows = [
            row(task.what, seconds(task.ours), task.peer, seconds(task.theirs))
            for task in tasks(QUICK if options.quick else FULL)
        ]
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
