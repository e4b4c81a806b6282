"""``python -m experiments streams``: topics of documents that keep arriving, beside refitting on everything.

A year: 365 days of 300 generated documents, whose topics drift: on day t they are (1 - t/365) of one set of topics and t/365 of
another. Wikipedia: 118,000 articles in 60 batches, in their order, which does not drift.

Months: twelve batches of 1,000 to 1,950 letters, generated from 15 topics of long-tailed words, or without topics; which topics
are called real, and how many of them match a true one, beside one fit to all of them.

"Stream" learns every batch once, with ``StreamPlan(mechanism=...)``; ε is that of all its releases. "Refitted" fits to all
documents so far, after every batch, or after a month of them. A document is then in many fits, and each has its share of the
budget: together they have the same ε (μ-GDP: the noise of T fits is √T times that of one). Refits are run only where they are
scored. Held out: 300 further documents of the day; the last 2,000 articles.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from tqdm import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.scoring import model_of_topics, unigram_perplexity
from experiments.stand_ins import wikipedia
from experiments.topics.labels import LABELS, counts_of_labels, documents
from vips import LatentDirichletAllocation, PrivacyBudget, PrivacyPlan, StreamPlan, plan_for
from vips.datasets import make_lda_corpus

DELTA, STEPS_OF_A_REFIT = 1e-6, 20
N_WORDS, LENGTH, PER_DAY = 1_000, 100, 300


@dataclass(frozen=True)
class Arriving:
    """Batches, and held-out documents for some of them.

    Attributes
    ----------
    batches : list of CSR array
    tests : dict of int to CSR array
        Held-out documents by the number of the batch after which they are scored.
    n_topics, month : int
        Topics fitted; batches from one rare refit to the next.
    epsilons, decays : tuple of float
    truth : dict of int to float
        Perplexity under the true topics, where they are known.
    """

    name: str
    batches: list
    tests: dict
    n_topics: int
    month: int
    epsilons: tuple[float, ...]
    decays: tuple[float, ...]
    truth: dict


def a_year(quick: bool) -> Arriving:
    """Generated documents of drifting topics."""
    n_days, per_day, n_topics = (6, 100, 3) if quick else (365, PER_DAY, 10)
    at = (2, 6) if quick else (1, 5, 15, 30, 60, 120, 180, 240, 300, 365)

    def of_day(day: int, n: int, seed: int) -> sp.csr_array:
        return sp.csr_array(
            make_lda_corpus(
                n,
                topics=_drifted(day / n_days, n_topics),
                document_length=LENGTH,
                doc_topic_prior=0.1,
                random_state=seed,
            ).counts
        )

    tests = {day: of_day(day, per_day, 10**6 + day) for day in at}
    truth = {day: model_of_topics(1e7 * _drifted(day / n_days, n_topics) + 1e-3).perplexity(tests[day]) for day in at}
    batches = [of_day(day, per_day, day) for day in range(1, n_days + 1)]
    return Arriving("a year", batches, tests, n_topics, 3 if quick else 30, (1.0,), (1.0, 0.97), truth)


def articles(quick: bool) -> Arriving:
    """Wikipedia in batches."""
    n_train, n_test, n_batches = (600, 100, 4) if quick else (118_000, 2_000, 60)
    corpus = wikipedia(n_train + n_test, quick)
    cuts = np.linspace(0, n_train, n_batches + 1).astype(int)
    batches = [corpus.counts[first:last] for first, last in pairwise(cuts)]
    at = (2, 4) if quick else (1, 6, 20, 40, 60)
    tests = dict.fromkeys(at, corpus.counts[-n_test:])
    epsilons = (1.0,) if quick else (1.0, 4.0)
    return Arriving("Wikipedia", batches, tests, 5 if quick else 50, 2 if quick else 10, epsilons, (1.0,), {})


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments streams", __doc__)
    parser.add_argument("--seeds", type=int, default=3, help="fits of each stream")
    parser.add_argument("--refit-seeds", type=int, default=3, help="of each row of refits, which take longer")
    parser.add_argument("--only", choices=["year", "wikipedia", "months"])
    options = parser.parse_args(arguments)
    folder = folder_of("streams", options)
    sources = {"year": a_year, "wikipedia": articles}
    for name, make in sources.items():
        if options.only not in (None, name):
            continue
        seeds = (1, 1) if options.quick else (options.seeds, options.refit_seeds)
        rows = list(_rows(make(options.quick), *seeds))
        text = table(rows)
        print(text)
        if folder is not None:
            write_json(folder / f"{name}.json", rows)
            write_text(folder / f"{name}.md", text)
    if options.only in (None, "months"):
        rows = list(_of_months(options.quick))
        print(text := table_of_months(rows))
        if folder is not None:
            write_json(folder / "months.json", rows)
            write_text(folder / "months.md", text)


def _of_months(quick: bool) -> Iterator[dict]:
    """Labels and perplexity of streams, and of one fit under the same budget."""
    cells = (
        [(8.0, 60, 3)]
        if quick
        else [(4.0, 1_000, 15), (4.0, 3_000, 15), (1.0, 1_000, 15), (4.0, 1_000, 0), (1.0, 1_000, 0)]
    )
    for seed, (epsilon, n_words, n_true) in enumerate(tqdm(cells, desc="months", disable=None)):
        rng = np.random.default_rng(1_000 + seed)
        usual = 1.0 / (10.0 + np.arange(n_words))
        usual /= usual.sum()
        topics = rng.dirichlet(0.1 * n_words * usual, n_true) if n_true else usual[None]
        ends = np.cumsum(rng.integers(100, 200, 12) if quick else rng.integers(1_000, 1_951, 12))
        lengths = np.exp(rng.normal(np.log(80.0), 0.6, 1_000)).clip(10, 400)
        letters, test = documents(topics, lengths, int(ends[-1])), documents(topics, lengths, 1_000)
        budget, plain = PrivacyBudget(epsilon, DELTA), LatentDirichletAllocation(vocabulary=n_words, random_state=seed)
        whole = budget.plan(n_steps=STEPS_OF_A_REFIT)
        words = LatentDirichletAllocation(1, vocabulary=n_words, privacy=whole).fit(letters).perplexity(test)
        for decay in (None, 1.0, 0.8):
            stream = None if decay is None else StreamPlan(epsilon=epsilon, delta=DELTA, n_batches=12, decay=decay)
            planned = plan_for(plain, n_records=int(ends[-1]), privacy=stream or budget).settings["n_components"]
            for n_topics in sorted({planned, 3 if quick else 15} - {1}):
                model = LatentDirichletAllocation(
                    n_topics, vocabulary=n_words, privacy=stream or whole, random_state=seed
                )
                if stream is None:
                    model.fit(letters)
                else:
                    for first, last in pairwise((0, *ends)):
                        model.partial_fit(letters[first:last])
                row = {"true": n_true, "words": n_words, "epsilon": epsilon, "decay": decay, "topics": n_topics}
                row |= {"planned": n_topics == planned, "ratio": model.perplexity(test) / words}
                yield row | counts_of_labels(model, topics if n_true else None)


def table_of_months(rows: list[dict]) -> str:
    """Markdown."""
    lines = [
        "| true topics | words | ε | | fitted topics | real (match) | doubtful (match) | noise (match) | perplexity |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        method = "one fit" if row["decay"] is None else f"stream, decay {row['decay']:g}"
        counts = (f"{row[label]} ({row[f'{label}, matched']})" for label in LABELS)
        topics = f"{row['topics']}{' (planned)' if row['planned'] else ''}"
        lines.append(
            f"| {row['true'] or 'none'} | {row['words']:,} | {row['epsilon']:g} | {method} | {topics} | {' | '.join(counts)} "
            f"| {row['ratio']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def _drifted(share: float, n_topics: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    base = 1.0 / (10.0 + np.arange(N_WORDS))
    first, last = (rng.dirichlet(50.0 * base / base.sum(), n_topics) for _ in range(2))
    return (1.0 - share) * first + share * last


def _rows(data: Arriving, n_streams: int, n_refits: int) -> Iterator[dict]:
    words = {t: unigram_perplexity(data.batches[t - 1], test) for t, test in data.tests.items()}
    yield {"data": data.name, "method": "word frequencies of the batch, not private", "perplexity": words}
    if data.truth:
        yield {"data": data.name, "method": "true topics", "perplexity": data.truth}
    jobs = [("stream, no noise", math.inf, decay, "toeplitz") for decay in data.decays]
    for epsilon in data.epsilons:
        jobs += [
            (f"stream, {mechanism}", epsilon, decay, mechanism)
            for mechanism in ("toeplitz", "tree", "independent")
            for decay in data.decays
        ]
        jobs += [
            ("refitted after every batch", epsilon, 1.0, 1),
            (f"refitted every {data.month}", epsilon, 1.0, data.month),
        ]
    for method, epsilon, decay, how in tqdm(jobs, desc=data.name, disable=None):
        start = time.perf_counter()
        fit, n_seeds = (_stream, n_streams) if isinstance(how, str) else (_refits, n_refits)
        scores = [fit(data, epsilon, decay, how, seed) for seed in range(n_seeds)]
        means = {t: float(np.mean([curve[t] for curve in scores])) for t in scores[0]}
        yield {
            "data": data.name, "method": method, "epsilon": epsilon, "decay": decay, "perplexity": means,
            "of_seeds": [list(curve.values()) for curve in scores], "seconds": (time.perf_counter() - start) / n_seeds,
        }  # fmt: skip


def _stream(data: Arriving, epsilon: float, decay: float, mechanism: str, seed: int) -> dict[int, float]:
    plan = StreamPlan(epsilon=epsilon, delta=DELTA, n_batches=len(data.batches), decay=decay, mechanism=mechanism)
    model, scores = _topics(data, plan, seed), {}
    for t, batch in enumerate(data.batches, start=1):
        model.partial_fit(batch)
        if t in data.tests:
            scores[t] = model.perplexity(data.tests[t])
    return scores


def _refits(data: Arriving, epsilon: float, decay: float, month: int, seed: int) -> dict[int, float]:
    n_fits, scores = len(data.batches) // month, {}
    whole = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling="full", n_steps=STEPS_OF_A_REFIT * n_fits)
    plan = PrivacyPlan(noise_multiplier=whole.noise_multiplier, sampling="full", n_steps=STEPS_OF_A_REFIT)
    for t, test in data.tests.items():
        last = month * (t // month)
        if last:
            model = _topics(data, plan, seed).fit(sp.vstack(data.batches[:last]).tocsr())
            scores[t] = model.perplexity(test)
    return scores


def _topics(data: Arriving, plan, seed: int) -> LatentDirichletAllocation:
    return LatentDirichletAllocation(
        data.n_topics, vocabulary=data.batches[0].shape[1], privacy=plan, random_state=seed
    )


def table(rows: list[dict]) -> str:
    """Markdown; a column for each batch that is scored."""
    columns = list(rows[0]["perplexity"])
    lines = [
        "| method | ε | decay | " + " | ".join(f"after {t}" for t in columns) + " | seconds |",
        "| --- | --- | --- | " + " | ".join("---" for _ in columns) + " | --- |",
    ]
    for row in rows:
        cells = [f"{row['perplexity'][t]:.0f}" if t in row["perplexity"] else "" for t in columns]
        epsilon, decay = (f"{row[name]:g}" if name in row else "" for name in ("epsilon", "decay"))
        seconds = f"{row['seconds']:.0f}" if "seconds" in row else ""
        epsilon = epsilon.replace("inf", "∞")
        lines.append(f"| {row['method']} | {epsilon} | {decay} | {' | '.join(cells)} | {seconds} |")
    return "\n".join(lines) + "\n"
