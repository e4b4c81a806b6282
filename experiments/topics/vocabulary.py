"""``python -m experiments vocabulary``: how much of a text a private vocabulary covers, and how its weights were chosen.

Corpora: sentences of the MASC corpus in fives, docstrings of Python packages (raw text), 20,000 Wikipedia articles (over 7,702
words). δ is 1e-6 for the noise and 1e-6 for the threshold. For each weighting: words that are released, and their share of all
words of the text. Every number is the mean of ``--repeats`` releases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from tqdm.auto import tqdm

from experiments.datasets import load_docstrings, load_wikipedia
from experiments.datasets.home import find_files
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import PrivacyPlan
from vips.datasets import make_lda_corpus
from vips.preprocessing import PrivateCountVectorizer, _set_union
from vips.preprocessing._set_union import FIRST_SHARE, MOST_WORDS, noisy_union

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
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def corpora() -> dict[str, sp.csr_array]:
    """Counts of words."""
    return {"sentences": sentences(), "docstrings": docstrings(), "Wikipedia": load_wikipedia(20_000).counts}


def generated() -> sp.csr_array:
    """Counts of ``--quick``."""
    return make_lda_corpus(2_000, n_topics=5, n_words=300, document_length=60, random_state=0).counts


def docstrings() -> sp.csr_array:
    """All words of the raw docstrings but stop words."""
    texts = load_docstrings().texts
    index: dict[str, int] = {}
    chunks = PrivateCountVectorizer(stop_words="english")._chunks(texts, None, None, index)
    words, lengths = zip(*((words, np.diff(starts)) for words, starts in chunks), strict=True)
    words, indptr = np.concatenate(words), np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return sp.csr_array((np.ones(len(words)), words, indptr), shape=(len(texts), len(index)))


def sentences() -> sp.csr_array:
    """Words of five sentences each."""
    (path,) = find_files(["masc_pos.npz"], "MASC", "see data/README.md")
    with np.load(path) as masc:
        words, starts = masc["word"].astype(np.int64), masc["line_start"]
    document = (np.searchsorted(starts, np.arange(len(words)), side="right") - 1) // 5
    counts = sp.coo_array((np.ones(len(words)), (document, words))).tocsr()
    return sp.csr_array(counts[:, 1:])  # word 0 stands for all rare ones


def covered(counts: sp.csr_array, epsilon: float, share: float | None, most: int, n_repeats: int) -> list[float]:
    """Number of words, and their share of the text."""
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling="full", n_steps=1)
    frequencies = np.asarray(counts.sum(axis=0)).ravel()
    shares = [1.0] if share is None else [share, 1.0 - share]
    plans = [replace(plan, clip_norm=1.0, noise_multiplier=plan.noise_multiplier / np.sqrt(part)) for part in shares]
    original, results = _set_union.plans_of_rounds, []
    _set_union.plans_of_rounds = lambda plan: plans
    try:
        for _ in range(n_repeats):
            rounds = noisy_union([(counts.indices, counts.indptr)], replace(plan, clip_norm=1.0), DELTA, most)
            words = np.concatenate([numbers for numbers, _ in rounds.rounds])
            results.append([len(words), frequencies[words].sum() / frequencies.sum()])
    finally:
        _set_union.plans_of_rounds = original
    return np.mean(results, axis=0).tolist()


def table(rows: list[dict]) -> str:
    """Markdown: words, and share of the text."""
    cells = list(rows[0]["covered"])
    lines = [f"| weighting | {' | '.join(cells)} |", "| --- " * (len(cells) + 1) + "|"]
    for row in rows:
        numbers = [f"{n_words:,.0f}, {100 * share:.1f} %" for n_words, share in row["covered"].values()]
        lines.append(f"| {row['weighting']} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"
