"""``python -m experiments raw_texts``: topics of 116,000 Wikipedia articles as raw text, with nothing declared but the budget.

Articles are rebuilt as texts of the 7,702 words that are counted. ``PrivateTopics`` learns words, the number of articles, the
number of topics and the topics within ε. Perplexity is that of articles 116,000 to 118,000 over all 7,702 words: a word that
was not learnt has half the probability of the rarest ones that were. The retained gain is (frequencies - private) /
(frequencies - without privacy), in perplexities.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from experiments.datasets import load_wikipedia
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import LatentDirichletAllocation, PrivacyBudget, PrivateTopics
from vips.datasets import make_lda_corpus
from vips.models._likelihood import split_words

EPSILON, DELTA, N_TRAIN, N_TEST = 2.44, 1e-5, 116_000, 2_000
FREQUENCIES, WITHOUT_PRIVACY = 2850.0, 1490.0  # perplexities of the test articles, from lda_wikipedia


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments raw_texts", __doc__)
    parser.add_argument("--epsilon", type=float, default=EPSILON)
    options = parser.parse_args(arguments)
    folder = folder_of("raw_texts", options)
    counts, words, n_train = corpus(options.quick)
    texts = as_texts(counts[:n_train], words)
    start = perf_counter()
    topics = PrivateTopics(privacy=PrivacyBudget(options.epsilon, DELTA), stop_words=None, random_state=0).fit(texts)
    seconds = perf_counter() - start
    column = {word: i for i, word in enumerate(words)}
    learnt = np.array([column[word] for word in topics.vocabulary_])
    frequencies = np.asarray(counts[:n_train].sum(axis=0)).ravel()
    private = perplexity(topics, learnt, counts[n_train:])
    row = {
        "epsilon": options.epsilon, "words": len(learnt), "share of the text": frequencies[learnt].sum() / frequencies.sum(),
        "topics": topics.components_.shape[0], "perplexity": private, "seconds": seconds,
        "retained gain": (FREQUENCIES - private) / (FREQUENCIES - WITHOUT_PRIVACY),
    }  # fmt: skip
    print(text := table(row))
    if folder is not None:
        write_json(folder / "results.json", row)
        write_text(folder / "results.md", text)


def corpus(quick: bool) -> tuple:
    """Counts, words, and the number of documents to fit."""
    if quick:
        made = make_lda_corpus(2_200, n_topics=4, n_words=60, document_length=40, random_state=0)
        return made.counts, [f"word{i}" for i in range(60)], 2_000
    made = load_wikipedia(N_TRAIN + N_TEST)
    return made.counts, made.vocabulary, N_TRAIN


def as_texts(counts, words: list[str]) -> list[str]:
    """Documents with every word as often as it is counted."""
    names = np.array(words, dtype=object)
    rows = zip(counts.indptr[:-1], counts.indptr[1:], strict=True)
    return [" ".join(np.repeat(names[counts.indices[a:b]], counts.data[a:b])) for a, b in rows]


def perplexity(topics: PrivateTopics, learnt: np.ndarray, test) -> float:
    """By document completion over all words."""
    model: LatentDirichletAllocation = topics[-1]
    seen, held = split_words(test.astype(np.int64), np.random.default_rng(0))
    shares = model.transform(seen[:, learnt])
    known = model.components_ / model.components_.sum(axis=1, keepdims=True)
    rare = 0.5 * np.sort(known.mean(axis=0))[: max(1, len(learnt) // 100)].mean()
    probabilities = np.full((len(known), test.shape[1]), rare)
    probabilities[:, learnt] = known * (1.0 - rare * (test.shape[1] - len(learnt)))
    document = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    log_likelihood = 0.0
    for part in np.array_split(np.arange(len(document)), max(1, len(document) // 100_000)):
        likelihood = np.einsum("ik,ki->i", shares[document[part]], probabilities[:, held.indices[part]])
        log_likelihood += held.data[part] @ np.log(likelihood)
    return float(np.exp(-log_likelihood / held.data.sum()))


def table(row: dict) -> str:
    """Markdown."""
    return (
        "| ε | words learnt | share of the text | topics | perplexity, all words | retained gain | minutes |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        f"| {row['epsilon']:g} | {row['words']:,} | {100 * row['share of the text']:.1f} % | {row['topics']} | "
        f"{row['perplexity']:,.0f} | {row['retained gain']:.3f} | {row['seconds'] / 60:.1f} |\n"
    )
