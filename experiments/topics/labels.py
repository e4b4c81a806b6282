"""``python -m experiments topic_labels``: do topics labelled real match true ones?

Documents are generated from known topics: those of a fit to Wikipedia without noise. A topic matches a true one if roots of
its words' probabilities, less those of the frequencies of all words, correlate with those of the true topic by at least 0.4.
With ``--letters``, documents are of writers, who have so many each on average, and ε is that of a writer.

``--texts`` asks what outsiders would: do the ten most probable words of a topic occur together in documents? It is coherent if
the NPMI of their pairs is larger than for 95 % of ten words that are drawn by frequency. For each label: number of topics,
share of coherent ones, and mean NPMI. Fits have the planned number of topics, for ε = 1, 2, 4 and 8, with three starts each.
``--peers`` adds all topics at ε = 4, beside fits of as many topics without privacy to the same words: ours, and those
of scikit-learn and gensim with their defaults, in ten passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from tqdm.auto import tqdm

from experiments.datasets import load_wikipedia
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.topics.vocabulary import docstrings, sentences, words_of_sentences
from vips import LatentDirichletAllocation, PrivacyBudget, plan_for
from vips.datasets import make_lda_corpus

DELTA, LEAST_CORRELATION, LABELS = 1e-5, 0.4, ("real", "doubtful", "noise")
TRUE_TOPICS, WORDS, SIZES, LETTERS = (15, 40, 0), (100, 1_000, 7_702), (10_000,), (1, 4)
EPSILONS, N_FITTED = (0.5, 1.0, 2.0, 4.0, 8.0), 30_000
QUICK = ["--true", "3", "0", "--words", "60", "--sizes", "600", "--letters", "1", "--epsilons", "8", "--quick"]


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments topic_labels", __doc__)
    parser.add_argument("--true", type=int, nargs="+", default=TRUE_TOPICS, help="numbers of topics; 0: none")
    parser.add_argument("--words", type=int, nargs="+", default=WORDS, help="the most frequent words of Wikipedia")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of documents")
    parser.add_argument("--letters", type=int, nargs="+", default=LETTERS, help="documents of a writer, on average")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--texts", action="store_true", help="coherence of topics in texts, by label")
    parser.add_argument("--peers", action="store_true", help="with --texts: scikit-learn and gensim, too")
    options = parser.parse_args(arguments)
    folder, rows = folder_of("topic_labels", options), []
    if options.texts:
        print(text := table_of_texts() + ("\n" + table_of_peers() if options.peers else ""))
        if folder is not None:
            write_text(folder / "texts.md", text)
        return
    if options.quick:
        options = parser.parse_args(QUICK)
    for n_true, n_words in tqdm(list(product(options.true, options.words)), desc="sets of topics", disable=None):
        topics, lengths = truth(n_true, n_words, options.quick)
        for n, n_letters in product(options.sizes, options.letters):
            counts = documents(topics, lengths, n)
            for epsilon in options.epsilons:
                rows += cells(counts, topics, n_letters, epsilon, n_true)
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def table_of_texts() -> str:
    """Markdown: coherence by label."""
    lines = ["| texts | documents, words | topics | real: coherent, NPMI | doubtful | noise |", "| --- " * 6 + "|"]
    for name, counts in corpora():
        least = incoherent(counts)
        labels, coherence, sizes = labelled(counts)
        cells = []
        for label in LABELS:
            part = coherence[labels == label]
            cells.append(
                f"{len(part)}: {100 * (part > least).mean():.0f} %, {part.mean():.2f}" if len(part) else "none"
            )
        n_topics = ", ".join(map(str, sizes))
        lines.append(f"| {name} | {counts.shape[0]:,}, {counts.shape[1]:,} | {n_topics} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def corpora() -> Iterator[tuple[str, sp.csr_array]]:
    """Counts of the thousand most frequent words of three texts."""
    names = [name.isalpha() and name not in ENGLISH_STOP_WORDS for name in words_of_sentences()[2][1:]]
    texts = {
        "articles": load_wikipedia(10_000).counts,
        "docstrings": docstrings(),
        "sentences": sentences()[:, np.flatnonzero(names)],
    }
    for name, counts in texts.items():
        most = np.sort(np.argsort(-np.asarray(counts.sum(axis=0)).ravel())[:1_000])
        yield name, sp.csr_array(counts[:, most]).astype(np.int64)


def incoherent(counts: sp.csr_array) -> float:
    """The NPMI that 95 % of ten words drawn by frequency do not reach."""
    rng, shares = np.random.default_rng(0), np.asarray(counts.sum(axis=0)).ravel() / counts.sum()
    drawn = [rng.choice(len(shares), 10, replace=False, p=shares) for _ in range(400)]
    return float(np.quantile(npmi(counts, drawn), 0.95))


def table_of_peers() -> str:
    """Markdown: coherent topics, their mean NPMI and seconds, of all topics of a fit."""
    lines = ["| texts | topics | vips, ε = 4 | vips without privacy | scikit-learn | gensim |", "| --- " * 6 + "|"]
    for name, counts in corpora():
        model, least = LatentDirichletAllocation(vocabulary=counts.shape[1]), incoherent(counts)
        planned = plan_for(model, n_records=counts.shape[0], privacy=PrivacyBudget(4.0, DELTA)).apply(model)
        n_topics, cells = planned.n_components, []
        for fit in (
            lambda seed, private=planned, X=counts: clone(private).set_params(random_state=seed).fit(X).components_,
            lambda seed, K=n_topics, X=counts: LatentDirichletAllocation(K, random_state=seed).fit(X).components_,
            lambda seed, K=n_topics, X=counts: of_sklearn(X, K, seed),
            lambda seed, K=n_topics, X=counts: of_gensim(X, K, seed),
        ):
            began = time.process_time()
            topics = [fit(seed) for seed in range(3)]
            seconds = (time.process_time() - began) / 3
            coherence = np.concatenate([npmi(counts, np.argsort(-topic, axis=1)[:, :10]) for topic in topics])
            cells.append(f"{100 * (coherence > least).mean():.0f} %, {coherence.mean():.2f}, {seconds:.1f} s")
        lines.append(f"| {name} | {n_topics} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def of_sklearn(counts: sp.csr_array, n_topics: int, seed: int) -> np.ndarray:
    from sklearn.decomposition import LatentDirichletAllocation as Peer

    return Peer(n_topics, max_iter=10, random_state=seed).fit(counts).components_


def of_gensim(counts: sp.csr_array, n_topics: int, seed: int) -> np.ndarray:
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    texts = Sparse2Corpus(counts, documents_columns=False)
    return LdaModel(texts, num_topics=n_topics, passes=10, eval_every=None, random_state=seed).state.get_lambda()


def labelled(counts: sp.csr_array) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Labels of planned topics, their coherence, and how many topics were planned."""
    labels, coherence, sizes = [], [], []
    for epsilon, seed in product((1.0, 2.0, 4.0, 8.0), range(3)):
        model = LatentDirichletAllocation(vocabulary=counts.shape[1], random_state=seed)
        advice = plan_for(model, n_records=counts.shape[0], privacy=PrivacyBudget(epsilon, DELTA))
        model = advice.apply(model).fit(counts)
        evidence = model.evidence()
        if evidence is not None:
            labels += evidence.labels
            coherence.append(npmi(counts, np.argsort(-model.components_, axis=1)[:, :10]))
            sizes.append(model.n_components)
    return np.array(labels), np.concatenate(coherence), sorted(set(sizes))


def npmi(counts: sp.csr_array, sets_of_words) -> np.ndarray:
    """Mean normalised pointwise mutual information of the pairs of each set of words, in documents."""
    holds, n = sp.csc_array((counts > 0).astype(float)), counts.shape[0]
    means = []
    for words in sets_of_words:
        together = (holds[:, words].T @ holds[:, words]).toarray() / n
        alone, pairs = np.diag(together), np.triu_indices(len(words), 1)
        joint = np.clip(together[pairs], 1e-300, 1.0 - 1e-12)
        ratio = np.log(joint / (alone[pairs[0]] * alone[pairs[1]]))
        means.append(np.where(together[pairs] > 0.0, ratio / -np.log(joint), -1.0).mean())
    return np.array(means)


def truth(n_true: int, n_words: int, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Topics and lengths of documents. Without topics: the words' frequencies."""
    if quick:
        return np.random.default_rng(0).dirichlet(np.full(n_words, 0.1), max(n_true, 1)), np.full(100, 50)
    counts = load_wikipedia(N_FITTED).counts.astype(np.int64)
    order = np.argsort(-np.asarray(counts.sum(axis=0)).ravel(), kind="stable")
    counts = counts[:, np.sort(order[:n_words])]
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


def cells(counts, topics, n_letters: int, epsilon: float, n_true: int) -> list[dict]:
    """Labels of the planned number of topics, and of forty."""
    n, n_words = counts.shape
    writers = None if n_letters == 1 else np.random.default_rng(0).integers(0, n // n_letters, n)
    n_records, budget = n // n_letters, PrivacyBudget(epsilon, DELTA)
    advice = plan_for(LatentDirichletAllocation(vocabulary=n_words), n_records=n_records, privacy=budget)
    planned = advice.settings["n_components"]
    rows = []
    for n_components in sorted({planned, min(40, n_words // 5)} - {1}):
        model = LatentDirichletAllocation(n_components, vocabulary=n_words, privacy=advice.plan, random_state=0)
        labels = counts_of_labels(model.fit(counts, groups=writers), topics if n_true else None)
        of_cell = {"true": n_true, "words": n_words, "n": n, "letters": n_letters, "epsilon": epsilon}
        rows.append(of_cell | {"topics": n_components, "planned": n_components == planned} | labels)
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
    """Markdown: sums over ε and both fits, and over all documents with topics."""
    lines = [
        "| true topics | words | documents | of a writer | ε | fitted | real (match) | doubtful (match) | noise (match) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    with_topics = [row for row in rows if row["true"]]
    lines += _lines(
        rows, lambda row: f"{row['true'] or 'none'} | {row['words']:,} | {row['n']:,} | {row['letters']} | all | all"
    )
    lines += _lines(
        with_topics,
        lambda row: f"some | all | all | all | {row['epsilon']:g} | {'planned' if row['planned'] else 'forty'}",
    )
    lines += _lines(rows, lambda row: f"**{'some' if row['true'] else 'none'}** | all | all | all | all | all")
    return "\n".join(lines) + "\n"


def _lines(rows: list[dict], name: Callable[[dict], str]) -> list[str]:
    """A line for all rows of each name."""
    lines = []
    for key in dict.fromkeys(map(name, rows)):
        part = [row for row in rows if name(row) == key]
        sums = (f"{sum(r[label] for r in part)} ({sum(r[f'{label}, matched'] for r in part)})" for label in LABELS)
        lines.append(f"| {key} | {' | '.join(sums)} |")
    return lines
