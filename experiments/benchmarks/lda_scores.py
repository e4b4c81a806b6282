"""LDA: time to the held-out score that scikit-learn has after four passes, each library with its own defaults.

    python -m experiments.benchmarks.lda_scores

Two generated corpora, K = 50, V = 7,700: 8,000 documents of about 200 different words, and 40,000 of 500 words. scikit-learn
makes four passes (``max_iter=4``). vips is fitted anew with 1, 2, … steps of its default plan and default settings, until its
perplexity of 500 further documents, by the same code, is not above scikit-learn's. Each library has its own process and one
thread; compilation is outside the timed part. ``fit`` of scikit-learn ends with one more pass for a perplexity of the fitted
documents, which it cannot leave out: a fifth of its time is therefore not counted.

``--quick``: a small corpus, in this process.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import NamedTuple

import scipy.sparse as sp

from experiments.benchmarks.logistic import child
from experiments.benchmarks.mixture import seconds
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.scoring import model_of_topics
from vips.datasets import make_lda_corpus

PASSES, MOST_STEPS, N_TEST = 4, 30, 500


class Size(NamedTuple):
    """Size of a corpus."""

    documents: int
    length: int
    topics: int
    words: int


SIZES, QUICK = (
    {"8,000 documents": Size(8_000, 213, 50, 7_700), "40,000": Size(40_000, 500, 50, 7_700)},
    Size(600, 60, 5, 300),
)


def corpus(size: Size) -> tuple[sp.csr_array, sp.csr_array]:
    """Documents to fit, and others."""
    counts = make_lda_corpus(
        size.documents + N_TEST, n_topics=size.topics, n_words=size.words, document_length=size.length, random_state=0
    ).counts
    return counts[: size.documents], counts[size.documents :]


def run_sklearn(size: Size, seed: int, target: float) -> dict:
    """Four passes."""
    from sklearn.decomposition import LatentDirichletAllocation

    train, test = corpus(size)
    model = LatentDirichletAllocation(size.topics, max_iter=PASSES, random_state=seed)
    cpu = seconds(lambda: model.fit(train)) * PASSES / (PASSES + 1)
    return {"cpu_s": cpu, "perplexity": model_of_topics(model.components_).perplexity(test), "passes": PASSES}


def run_vips(size: Size, seed: int, target: float) -> dict:
    """As many steps as reach the target."""
    from vips import LatentDirichletAllocation, PrivacyPlan

    train, test = corpus(size)
    model = LatentDirichletAllocation(size.topics, vocabulary=size.words, random_state=seed)
    rate = model.default_plan(size.documents).sampling_rate
    model.set_params(privacy=PrivacyPlan.non_private(sampling_rate=rate, n_steps=1)).fit(train[:300])  # compiles
    for n_steps in range(1, MOST_STEPS + 1):
        model.set_params(privacy=PrivacyPlan.non_private(sampling_rate=rate, n_steps=n_steps))
        cpu = seconds(lambda: model.fit(train))
        perplexity = model_of_topics(model.components_).perplexity(test)
        if perplexity <= target:
            return {"cpu_s": cpu, "perplexity": perplexity, "passes": n_steps * rate}
    raise RuntimeError(f"{MOST_STEPS} steps do not reach a perplexity of {target:.1f}: there is no time to compare.")


RUNS = {"scikit-learn": run_sklearn, "vips": run_vips}


def run_alone(library: str, size: Size, seed: int, target: float) -> dict:
    """In its own process with one thread."""
    return child("lda_scores", library, "--task", json.dumps([list(size), seed, target]))


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.lda_scores", __doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        size, seed, target = options.task
        print(json.dumps(RUNS[options.child](Size(*size), seed, target)))
        return
    written = folder_of("benchmarks", options)
    rows = []
    for name, size in ({"quick": QUICK} if options.quick else SIZES).items():
        for seed in range(1 if options.quick else options.repeats):
            target = float("inf")
            for library, run in RUNS.items():
                result = run(size, seed, target) if options.quick else run_alone(library, size, seed, target)
                rows.append({"corpus": name, "library": library, "seed": seed} | result)
                target = result["perplexity"]
                print(rows[-1], flush=True)
    print(text := report(rows))
    if written is not None:
        write_text(written / "lda_scores.md", text)
        write_json(written / "lda_scores.json", rows)


def report(rows: list[dict]) -> str:
    """Medians over starts, and the ratio of a start."""
    lines = [
        "| corpus | library | passes | CPU seconds | held-out perplexity | times faster |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(row["corpus"] for row in rows):
        theirs, ours = ([row for row in rows if (row["corpus"], row["library"]) == (name, library)] for library in RUNS)
        ratios = sorted(a["cpu_s"] / b["cpu_s"] for a, b in zip(theirs, ours, strict=True))
        for library, runs in zip(RUNS, (theirs, ours), strict=True):
            passes, cpu, perplexity = (
                statistics.median(run[key] for run in runs) for key in ("passes", "cpu_s", "perplexity")
            )
            faster = f"{statistics.median(ratios):.0f} ({ratios[0]:.0f} to {ratios[-1]:.0f})" if runs is ours else ""
            lines.append(f"| {name} | {library} | {passes:.1f} | {cpu:.2f} | {perplexity:.1f} | {faster} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
