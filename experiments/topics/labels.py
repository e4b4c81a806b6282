"""``python -m experiments topic_labels``: do topics labelled real match true ones?

Documents are generated from known topics: those of a fit to Wikipedia without noise. A topic matches a true one if roots of
its words' probabilities, less those of the frequencies of all words, correlate with those of the true topic by at least 0.4.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from tqdm.auto import tqdm

from experiments.datasets import load_wikipedia
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import LatentDirichletAllocation, PrivacyBudget, plan_for
from vips.datasets import make_lda_corpus

DELTA, LEAST_CORRELATION, LABELS = 1e-5, 0.4, ("real", "doubtful", "noise")
TRUE_TOPICS, SIZES, EPSILONS, N_FITTED = (15, 40, 0), (10_000, 30_000, 100_000), (0.5, 1.0, 2.0, 4.0), 30_000


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments topic_labels", __doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of documents")
    options = parser.parse_args(arguments)
    folder = folder_of("topic_labels", options)
    rows = []
    for n_true in tqdm((3, 0) if options.quick else TRUE_TOPICS, desc="sets of topics", disable=None):
        topics, lengths = truth(n_true, options.quick)
        for n in (600,) if options.quick else options.sizes:
            counts = documents(topics, lengths, n)
            for epsilon in (8.0,) if options.quick else EPSILONS:
                rows += cells(counts, topics, n, epsilon, n_true)
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def truth(n_true: int, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Topics and lengths of documents. Without topics: the words' frequencies."""
    if quick:
        return np.random.default_rng(0).dirichlet(np.full(60, 0.1), max(n_true, 1)), np.full(100, 50)
    counts = load_wikipedia(N_FITTED).counts.astype(np.int64)
    model = LatentDirichletAllocation(max(n_true, 1), vocabulary=counts.shape[1], random_state=n_true).fit(counts)
    lengths = np.asarray(counts.sum(axis=1)).ravel().clip(max=400)
    return model.components_ / model.components_.sum(axis=1, keepdims=True), lengths


def documents(topics: np.ndarray, lengths: np.ndarray, n: int) -> sp.csr_array:
    """Documents with a few of the topics each; as long as articles are."""
    rng = np.random.default_rng(n)
    drawn = np.sort(rng.choice(lengths, n))
    parts = []
    for group in np.array_split(drawn, 40):  # a length for each fortieth
        length = max(int(group.mean()), 1)
        parts.append(
            make_lda_corpus(
                len(group), topics=topics, document_length=length, doc_topic_prior=0.08, random_state=rng
            ).counts
        )
    return sp.csr_array(sp.vstack(parts))[rng.permutation(n)].astype(np.int64)


def cells(counts, topics, n: int, epsilon: float, n_true: int) -> list[dict]:
    """Labels of the planned number of topics, and of forty."""
    n_words = counts.shape[1]
    advice = plan_for(LatentDirichletAllocation(vocabulary=n_words), n_records=n, privacy=PrivacyBudget(epsilon, DELTA))
    planned = advice.settings["n_components"]
    rows = []
    for n_components in sorted({planned, min(40, n_words // 5)} - {1}):
        model = LatentDirichletAllocation(n_components, vocabulary=n_words, privacy=advice.plan, random_state=0).fit(
            counts
        )
        row = {"true": n_true, "n": n, "epsilon": epsilon, "topics": n_components, "planned": n_components == planned}
        rows.append(row | counts_of_labels(model, topics if n_true else None))
    return rows


def counts_of_labels(model: LatentDirichletAllocation, topics: np.ndarray | None) -> dict[str, int]:
    """How many topics have each label, and how many of them match a true one."""
    matched = 0 if topics is None else likeness(model.components_, topics) >= LEAST_CORRELATION
    labels = np.array(model.evidence().labels)
    return {label: int((labels == label).sum()) for label in LABELS} | {
        f"{label}, matched": int(((labels == label) & matched).sum()) for label in LABELS
    }


def likeness(concentration: np.ndarray, topics: np.ndarray) -> np.ndarray:
    """Correlation of each topic with the true one that is most like it."""
    weights = concentration.sum(axis=1)
    ours = _deviations(concentration / weights[:, None], weights / weights.sum())
    theirs = _deviations(topics, np.full(len(topics), 1.0 / len(topics)))
    return (ours @ theirs.T).max(axis=1)


def _deviations(topics: np.ndarray, shares: np.ndarray) -> np.ndarray:
    rows = np.sqrt(topics) - np.sqrt(shares @ topics)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


def table(rows: list[dict]) -> str:
    """Markdown, with sums over all cells of one number of true topics."""
    lines = [
        "| true topics | documents | ε | fitted topics | real (match) | doubtful (match) | noise (match) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        counts = (f"{row[label]} ({row[f'{label}, matched']})" for label in LABELS)
        topics = f"{row['topics']}{' (planned)' if row['planned'] else ''}"
        lines.append(
            f"| {row['true'] or 'none'} | {row['n']:,} | {row['epsilon']:g} | {topics} | {' | '.join(counts)} |"
        )
    for n_true in dict.fromkeys(row["true"] for row in rows):
        part = [row for row in rows if row["true"] == n_true]
        sums = (f"{sum(r[label] for r in part)} ({sum(r[f'{label}, matched'] for r in part)})" for label in LABELS)
        lines.append(f"| **{n_true or 'none'}** | all | all | all | {' | '.join(f'**{total}**' for total in sums)} |")
    return "\n".join(lines) + "\n"
