"""``python -m experiments lda_wikipedia``: a table and a plot of held-out perplexity.

Figures 2 and 3 of the paper on 118,000 Wikipedia articles, K = 50, with 2,000 further articles held out.

Fitted: the first 118,000 articles. Held out: the last 2,000, never used to choose anything. The default clip, schedule and
view of noisy counts were chosen on articles 116,000 to 118,000 with the first 116,000 fitted (docs/lda.md).

"Ours" takes samples, as the paper does; "ours, full batches" takes those of ``vips.plan_for``. Public articles are the first
2,000, and are then left out of the private ones.
"""

from __future__ import annotations

import time

import numpy as np
from tqdm import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import read_json, write_json, write_text
from experiments.scoring import model_of_topics, unigram_perplexity
from experiments.stand_ins import wikipedia
from experiments.topics import paper_recipe
from vips import LatentDirichletAllocation, PrivacyPlan

N_TOPICS, N_TRAIN, N_TEST = 50, 118_000, 2_000
EPSILONS, DELTAS = (0.5, 1.0, 2.44, 8.0), (1e-4, 1e-5)
SAMPLING_RATE, N_STEPS = 0.3, 20
FULL_EPSILONS, N_PUBLIC, QUICK_PUBLIC = (1.0, 2.44), 2_000, 100
QUICK_TOPICS, QUICK_TRAIN, QUICK_TEST, QUICK_EPSILON = 5, 1000, 200, 2.44
PAPER_BATCH, QUICK_BATCH = 20_000, 170  # 20 batches hold 3.4 times the number of fitted documents
# fixed reference points of the utility scale: unigram and non-private perplexity of a first prototype
UNIGRAM, NON_PRIVATE = 2850.0, 1495.0


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments lda_wikipedia", __doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train", type=int, default=N_TRAIN, help="documents fitted (fewer for a quick look)")
    parser.add_argument(
        "--peers", action="store_true", help="also scikit-learn and gensim, three passes (ten minutes more)"
    )
    parser.add_argument("--methods", nargs="+", help="run only these; keep results of the others")
    options = parser.parse_args(arguments)
    folder = folder_of("lda_wikipedia", options)
    n_test = N_TEST
    if options.quick:
        options.train, options.seeds, n_test = QUICK_TRAIN, 1, QUICK_TEST
    corpus = wikipedia(QUICK_TRAIN + QUICK_TEST if options.quick else N_TRAIN + N_TEST, options.quick)
    train, test = corpus.counts[: options.train], corpus.counts[-n_test:]
    rows = [{"method": "unigram", "perplexity": [unigram_perplexity(train, test)]}]
    jobs = list(configurations(options.peers, options.quick))
    if options.methods:
        jobs = [(row, fit) for row, fit in jobs if row["method"] in options.methods]
    with tqdm(total=len(jobs) * options.seeds, desc="fits", disable=None) as progress:
        for row, fit in jobs:
            models, seconds = [], []
            for seed in range(options.seeds if "once" not in row else 1):
                start = time.perf_counter()
                models.append(fit(train, corpus.vocabulary, seed))
                seconds.append(time.perf_counter() - start)
                progress.update()
            row["perplexity"] = [model.perplexity(test) for model in models]
            row["bound"] = [model.perplexity(test, kind="bound") for model in models]
            row["seconds"] = float(np.median(seconds))
            row["topics"] = [" ".join(words) for words in models[0].top_words(8)[:5]]
            rows.append(row)
            tqdm.write(describe(row))
    if options.methods and folder is not None and (folder / "results.json").exists():
        rows = _with_new(read_json(folder / "results.json")["rows"], rows)
    print(table(rows))
    if folder is None:
        return
    write_json(folder / "results.json", {"train": options.train, "seeds": options.seeds, "rows": rows})
    write_text(folder / "results.md", table(rows))
    plot(rows, "generated documents" if corpus.generated else "Wikipedia", folder / "perplexity.png")
    print(f"Written: {folder}")


def configurations(peers: bool, quick: bool = False):
    """(row, fit(train, vocabulary, seed)) for every line of the table; a quick run has one ε, one δ and few topics."""
    n_topics, epsilons, deltas = (QUICK_TOPICS, (QUICK_EPSILON,), DELTAS[:1]) if quick else (N_TOPICS, EPSILONS, DELTAS)

    def ours(plan):
        return lambda train, vocabulary, seed: LatentDirichletAllocation(
            n_topics, vocabulary=vocabulary, privacy=plan, random_state=seed
        ).fit(train)

    def with_public(plan):
        n_public = QUICK_PUBLIC if quick else N_PUBLIC

        def fit(train, vocabulary, seed):
            public, private = train[:n_public], train[n_public:]
            if plan is None:
                return LatentDirichletAllocation(n_topics, vocabulary=vocabulary, random_state=seed).fit(public)
            return LatentDirichletAllocation(
                n_topics, vocabulary=vocabulary, privacy=plan, public_documents=public, random_state=seed
            ).fit(private)

        return fit

    yield {"method": "non-private"}, ours(PrivacyPlan.non_private(sampling_rate=0.05, n_steps=60))
    if peers:
        yield {"method": "scikit-learn", "once": True}, _sklearn
        yield {"method": "gensim", "once": True}, _gensim
    for delta in deltas:
        for epsilon in epsilons:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=delta, sampling_rate=SAMPLING_RATE, n_steps=N_STEPS)
            row = {"method": "ours", "epsilon": epsilon, "delta": delta, "noise_multiplier": plan.noise_multiplier}
            yield row, ours(plan)
    for epsilon in epsilons if quick else FULL_EPSILONS:
        plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=deltas[0], sampling="full", n_steps=N_STEPS)
        row = {"epsilon": epsilon, "delta": deltas[0], "noise_multiplier": plan.noise_multiplier}
        yield {"method": "ours, full batches"} | row, ours(plan)
        yield {"method": "ours, full batches, public articles"} | row, with_public(plan)
    yield {"method": "public articles alone"}, with_public(None)
    for name, calibrate in (
        ("paper's recipe, moments", paper_recipe.sigma_by_moments),
        ("paper's recipe, strong composition", paper_recipe.sigma_by_strong_composition),
    ):
        for epsilon in epsilons:
            sigma = calibrate(epsilon, 1e-4)
            row = {"method": name, "epsilon": epsilon, "delta": 1e-4, "noise_multiplier": sigma, "no_guarantee": True}
            yield (
                row,
                lambda train, vocabulary, seed, sigma=sigma: _with_words(
                    paper_recipe.fit(train, n_topics, sigma, seed), vocabulary
                ),
            )

    # the paper's signal-to-noise ratio: its batch of 20,000, although our set is smaller and is passed through 3.4 times
    batch_size = QUICK_BATCH if quick else PAPER_BATCH
    row = {"method": f"paper's recipe, S = {batch_size:,} (3.4 passes)", "noise_multiplier": 1.24, "no_guarantee": True}
    yield (
        row,
        lambda train, vocabulary, seed: _with_words(
            paper_recipe.fit(train, n_topics, 1.24, seed, batch_size=batch_size), vocabulary
        ),
    )


def _with_new(known: list[dict], rows: list[dict]) -> list[dict]:
    """Known rows, of which new ones take the place."""
    new = {(row["method"], row.get("epsilon"), row.get("delta")): row for row in rows}
    kept = [new.pop((row["method"], row.get("epsilon"), row.get("delta")), row) for row in known]
    return kept + list(new.values())


def _with_words(model, vocabulary):
    model.vocabulary = vocabulary
    return model


def _sklearn(train, vocabulary, seed):
    """Three passes in batches of a twentieth, like ours; its own default schedule."""
    from sklearn.decomposition import LatentDirichletAllocation as Peer

    model = Peer(
        N_TOPICS, doc_topic_prior=1 / N_TOPICS, topic_word_prior=1 / N_TOPICS,
        mean_change_tol=1e-3, max_doc_update_iter=100, total_samples=train.shape[0], random_state=seed,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    for _ in range(3):
        for batch in np.array_split(rng.permutation(train.shape[0]), 20):
            model.partial_fit(train[np.sort(batch)].astype(np.float64))
    return model_of_topics(model.components_, vocabulary)


def _gensim(train, vocabulary, seed):
    """Three passes in batches of a twentieth, like ours; its own default schedule."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    model = LdaModel(
        Sparse2Corpus(train, documents_columns=False), num_topics=N_TOPICS, id2word=dict(enumerate(vocabulary)),
        alpha=1 / N_TOPICS, eta=1 / N_TOPICS, passes=3, chunksize=train.shape[0] // 20, eval_every=None, iterations=100,
        gamma_threshold=1e-3, random_state=seed,
    )  # fmt: skip
    return model_of_topics(model.state.get_lambda(), vocabulary)


def retained(row) -> float:
    return (UNIGRAM - float(np.mean(row["perplexity"]))) / (UNIGRAM - NON_PRIVATE)


def describe(row) -> str:
    target = f"ε = {row['epsilon']:<4g} δ = {row['delta']:g}" if "epsilon" in row else ""
    mean, values = np.mean(row["perplexity"]), row["perplexity"]
    return f"{row['method']:36s} {target:22s} {mean:7.0f} ({min(values):.0f} to {max(values):.0f})  {retained(row):.3f}"


def table(rows) -> str:
    lines = [
        "| method | ε | δ | noise multiplier | perplexity (range) | bound | retained gain | seconds a fit |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        values, bound = row["perplexity"], row.get("bound")
        claim = " (no guarantee)" if row.get("no_guarantee") else ""
        lines.append(
            f"| {row['method']}{claim} | {row.get('epsilon', '')} | {row.get('delta', '')} "
            f"| {_number(row.get('noise_multiplier'), '.2f')} "
            f"| {np.mean(values):.0f} ({min(values):.0f} to {max(values):.0f}) "
            f"| {_number(np.mean(bound) if bound else None, '.0f')} | {retained(row):.3f} "
            f"| {_number(row.get('seconds'), '.0f')} |"
        )
    return "\n".join(lines) + "\n"


def _number(value, form: str) -> str:
    return "" if value is None else format(value, form)


def plot(rows, documents: str, path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 5.0), layout="constrained")
    series = {}
    for row in rows:
        if "epsilon" in row:
            label = row["method"] + (" (no guarantee)" if "no_guarantee" in row else f", δ = {row['delta']:g}")
            series.setdefault(label, []).append(row)
    styles = ("o-", "s-", "D:", "*:", "^--", "v--")
    for (label, points), style in zip(series.items(), styles, strict=False):
        x = [row["epsilon"] for row in points]
        y = np.array([[np.mean(r["perplexity"]), min(r["perplexity"]), max(r["perplexity"])] for r in points])
        axes.plot(x, y[:, 0], style, label=label)
        axes.fill_between(x, y[:, 1], y[:, 2], alpha=0.2)
    for name, color in (("unigram", "gray"), ("non-private", "black")):
        value = np.mean(next(row["perplexity"] for row in rows if row["method"] == name))
        axes.axhline(value, color=color, linestyle=":", label=f"{name}: {value:.0f}")
    axes.set(xscale="log", xlabel="ε", ylabel="held-out perplexity per word (document completion)")
    epsilons = sorted({row["epsilon"] for row in rows if "epsilon" in row})
    axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
    axes.minorticks_off()
    axes.set_title(f"LDA on {documents}, K = {N_TOPICS}")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
