"""``python -m experiments vocabulary``: how much of a text a private vocabulary covers, and how its weights were chosen.

Corpora: sentences of the MASC corpus in fives, docstrings of Python packages (raw text), 20,000 Wikipedia articles (over 7,702
words). δ is 1e-6 for the noise and 1e-6 for the threshold. For each weighting: words that are released, and their share of all
words of the text. Then phrases of two words, without English stop words: words and phrases that are released. Every number is
the mean of ``--repeats`` releases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from tqdm.auto import tqdm

from experiments.datasets import load_docstrings, load_wikipedia
from experiments.datasets.home import find_files
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import PrivacyBudget, PrivacyPlan
from vips.datasets import make_lda_corpus
from vips.preprocessing import PrivateCountVectorizer
from vips.preprocessing._set_union import FIRST_SHARE, MOST_WORDS, Round, noisy_union, thresholds

DELTA, EPSILONS, N_REPEATS = 1e-6, (0.5, 1.0, 2.44), 5
# Share of the first round (None: a single round), M, and the power of a word's count in the weights.
WEIGHTINGS = {
    "two rounds, a fifth in the first, M = 300 (default)": (FIRST_SHARE, MOST_WORDS),
    "two rounds, half in the first, M = 300": (0.5, 300),
    "two rounds, a fifth in the first, M = 100": (FIRST_SHARE, 100),
    "two rounds, a fifth in the first, M = 1,000": (FIRST_SHARE, 1000),
    "one round, M = 300 (Gopi et al.)": (None, 300),
    "one round, M = 30": (None, 30),
}


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments vocabulary", __doc__)
    parser.add_argument("--repeats", type=int, default=N_REPEATS, help="releases for every number")
    options = parser.parse_args(arguments)
    folder = folder_of("vocabulary", options)
    texts = {"generated": generated()} if options.quick else corpora()
    rows = []
    for name in tqdm(WEIGHTINGS, disable=None):
        shares = {
            f"{corpus}, ε = {epsilon:g}": covered(
                counts, epsilon, *WEIGHTINGS[name], 1 if options.quick else options.repeats
            )
            for corpus, counts in texts.items()
            for epsilon in EPSILONS
        }
        rows.append({"weighting": name, "covered": shares})
    print(text := table(rows))
    raw = {"generated": ["the old ship sails home", "a storm at sea"] * 2000} if options.quick else raw_texts()
    print(phrases := table_of_phrases(raw, 1 if options.quick else options.repeats))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)
        write_text(folder / "phrases.md", phrases)


def raw_texts() -> dict[str, list[str]]:
    """Texts whose words are in their order; ``w0`` stands for every rare word of the sentences."""
    words, document, names = words_of_sentences()
    starts = np.flatnonzero(np.diff(document)) + 1
    return {
        "sentences": [" ".join(names[i] for i in part) for part in np.split(words, starts)],
        "docstrings": load_docstrings().texts,
    }


def table_of_phrases(texts: dict[str, list[str]], n_repeats: int) -> str:
    """Markdown: words alone, and words and phrases of a release with both."""
    lines = ["| texts | ε | words alone | words, phrases |", "| --- " * 4 + "|"]
    for corpus, documents in texts.items():
        for epsilon in EPSILONS:
            numbers = []
            for _ in range(n_repeats):
                alone, both = (
                    PrivateCountVectorizer(
                        privacy=PrivacyBudget(epsilon, DELTA), stop_words="english", ngram_range=(1, n)
                    )
                    .fit(documents)
                    .vocabulary
                    for n in (1, 2)
                )
                n_phrases = sum(" " in word for word in both)
                numbers.append([len(alone), len(both) - n_phrases, n_phrases])
            alone, words, phrases = np.mean(numbers, axis=0)
            lines.append(f"| {corpus} | {epsilon:g} | {alone:,.0f} | {words:,.0f}, {phrases:,.0f} |")
    return "\n".join(lines) + "\n"


def corpora() -> dict[str, sp.csr_array]:
    """Counts of words."""
    return {"sentences": sentences(), "docstrings": docstrings(), "Wikipedia": load_wikipedia(20_000).counts}


def generated() -> sp.csr_array:
    """Counts of ``--quick``."""
    return make_lda_corpus(2_000, n_topics=5, n_words=300, document_length=60, random_state=0).counts


def docstrings() -> sp.csr_array:
    """All words of the raw docstrings but stop words."""
    return sp.csr_array(CountVectorizer(stop_words="english", dtype=float).fit_transform(load_docstrings().texts))


def words_of_sentences() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Words of sentences, the group of five to which each belongs, and their names."""
    path, names = find_files(["masc_pos.npz", "masc_vocab.txt"], "MASC", "see data/README.md")
    with np.load(path) as masc:
        words, starts = masc["word"].astype(np.int64), masc["line_start"]
    document = (np.searchsorted(starts, np.arange(len(words)), side="right") - 1) // 5
    return words, document, ["w0", *names.read_text("utf-8").splitlines()[1:]]


def sentences() -> sp.csr_array:
    """Words of five sentences each."""
    words, document, _ = words_of_sentences()
    counts = sp.coo_array((np.ones(len(words)), (document, words))).tocsr()
    return sp.csr_array(counts[:, 1:])  # word 0 stands for all rare ones


def covered(counts: sp.csr_array, epsilon: float, share: float | None, most: int, n_repeats: int) -> list[float]:
    """Number of words, and their share of the text."""
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling="full", n_steps=1)
    frequencies = np.asarray(counts.sum(axis=0)).ravel()
    shares = [1.0] if share is None else [share, 1.0 - share]
    plans = [replace(plan, clip_norm=1.0, noise_multiplier=plan.noise_multiplier / np.sqrt(part)) for part in shares]
    cuts = thresholds(DELTA, [part.noise_std() for part in plans], most)
    results = []
    for _ in range(n_repeats):
        rounds = noisy_union([(counts.indices, counts.indptr)], list(map(Round, plans, cuts, [1] * len(plans))), most)
        words = np.concatenate([numbers for numbers, _ in rounds.rounds])
        results.append([len(words), frequencies[words].sum() / frequencies.sum()])
    return np.mean(results, axis=0).tolist()


def table(rows: list[dict]) -> str:
    """Markdown: words, and share of the text."""
    cells = list(rows[0]["covered"])
    lines = [f"| weighting | {' | '.join(cells)} |", "| --- " * (len(cells) + 1) + "|"]
    for row in rows:
        numbers = [f"{n_words:,.0f}, {100 * share:.1f} %" for n_words, share in row["covered"].values()]
        lines.append(f"| {row['weighting']} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"
