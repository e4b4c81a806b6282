"""``python -m experiments topics_grid``: planned private topics beside the words' frequencies, released once with the same ε.

Wikipedia articles over 7,702 words; the number of topics is that of ``plan_for``, from the number of articles and ε. Perplexity
of 1,000 other articles, by document completion, over that of one topic, with the same ε. The last 2,000 articles are not used.
"""

from __future__ import annotations

import numpy as np
from tqdm.auto import tqdm

from experiments.datasets import load_wikipedia
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips import LatentDirichletAllocation, PrivacyBudget, PrivacyPlan, plan_for
from vips.datasets import make_lda_corpus

DELTA, EPSILONS, SIZES, N_SEEDS, N_TEST = (
    1e-5,
    (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    (3_000, 10_000, 30_000, 100_000),
    2,
    1_000,
)


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments topics_grid", __doc__)
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="fits in a cell")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of articles")
    options = parser.parse_args(arguments)
    folder = folder_of("topics_grid", options)
    counts, test, sizes, epsilons, n_seeds = corpus(options)
    rows = [
        cell(counts, test, n, epsilon, n_seeds)
        for n, epsilon in tqdm([(n, epsilon) for n in sizes for epsilon in epsilons], disable=None)
    ]
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)
        draw(rows, folder / "topics_grid.png")


def corpus(options) -> tuple:
    """Training and test counts, sizes, ε and seeds."""
    if options.quick:
        counts = make_lda_corpus(700, n_topics=3, n_words=60, document_length=50, random_state=0).counts
        return counts[:600], counts[600:], (600,), (0.5, 8.0), 1
    counts = load_wikipedia(118_000).counts.astype(np.int64)
    return counts[:-N_TEST], counts[-N_TEST:], options.sizes, EPSILONS, options.seeds


def cell(counts, test, n: int, epsilon: float, n_seeds: int) -> dict:
    """Perplexities of planned topics and of frequencies, for ``n_seeds`` sets of articles."""
    words = counts.shape[1]
    advice = plan_for(
        LatentDirichletAllocation(vocabulary=words),
        n_records=n,
        privacy=PrivacyBudget(epsilon, DELTA),
        purpose="perplexity",
    )
    once = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling="full", n_steps=1)
    perplexities = []
    for seed in range(n_seeds):
        sample = counts[(start := seed * n % (counts.shape[0] - n + 1)) : start + n]
        topics = advice.apply(LatentDirichletAllocation(vocabulary=words, random_state=seed)).fit(sample)
        simple = LatentDirichletAllocation(1, vocabulary=words, privacy=once, random_state=seed).fit(sample)
        perplexities.append([topics.perplexity(test), simple.perplexity(test)])
    topics, simple = np.mean(perplexities, axis=0)
    return {
        "n": n, "epsilon": epsilon, "topics": advice.settings["n_components"], "signal to noise": advice.signal_to_noise,
        "perplexity": topics, "of frequencies": simple, "ratio": topics / simple,
    }  # fmt: skip


def table(rows: list[dict]) -> str:
    """Markdown."""
    lines = [
        "| articles | ε | signal to noise | topics | perplexity | of frequencies, same ε | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row['n']:,} | {row['epsilon']:g} | {row['signal to noise']:.2g} | {row['topics']} | "
            f"{row['perplexity']:,.0f} | {row['of frequencies']:,.0f} | {row['ratio']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def draw(rows: list[dict], path) -> None:
    """Ratios against ε, a line for each number of articles."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
    for n in dict.fromkeys(row["n"] for row in rows):
        line = [row for row in rows if row["n"] == n]
        axes.plot([row["epsilon"] for row in line], [row["ratio"] for row in line], marker="o", label=f"{n:,} articles")
    axes.axhline(1.02, color="black", linestyle=":", label="at most 2 % worse")
    axes.set(xscale="log", xlabel="ε (δ = 1e-5)", ylabel="perplexity ÷ that of frequencies")
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
