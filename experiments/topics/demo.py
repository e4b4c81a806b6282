"""``python -m experiments demo``: private and non-private topics of the docstrings on this machine, side by side."""

from __future__ import annotations

import textwrap

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils import Bunch
from tqdm import tqdm

from experiments.datasets import load_docstrings
from experiments.options import folder_of, parser_of
from experiments.results import write_json
from experiments.scoring import unigram_perplexity
from vips import LatentDirichletAllocation, PrivacyBudget, PrivacyPlan, plan_for
from vips.datasets import make_lda_corpus

N_TOPICS, N_TEST = 8, 500
EPSILONS, SHOWN, DELTA = (0.5, 1.0, 2.0, 4.0, 8.0), 4.0, 1e-5
SAMPLING_RATE, N_STEPS = 1.0, 20  # few documents: every step uses all of them
SEEDS = (0, 1, 2)
DECLARED = (
    4_000,
    60,
)  # about how many documents there are, and how many different words each has: public numbers for the plan
DECLARED_QUICK = 2_000, 40


def main(arguments: list[str]) -> None:
    options = parser_of("experiments demo", __doc__).parse_args(arguments)
    folder = folder_of("demo", options)
    epsilons, seeds = ((SHOWN,), SEEDS[:1]) if options.quick else (EPSILONS, SEEDS)
    corpus = documents(options.quick)
    order = np.random.default_rng(0).permutation(corpus.counts.shape[0])
    train, test = corpus.counts[np.sort(order[N_TEST:])], corpus.counts[np.sort(order[:N_TEST])]
    print(f"{train.shape[0]} documents to fit, {test.shape[0]} held out, {train.shape[1]} words, {N_TOPICS} topics.\n")

    def fit(plan, seed=0):
        return LatentDirichletAllocation(N_TOPICS, vocabulary=corpus.vocabulary, privacy=plan, random_state=seed).fit(
            train
        )

    def planned(epsilon):
        n_records, length = DECLARED_QUICK if options.quick else DECLARED
        return plan_for(
            LatentDirichletAllocation(vocabulary=corpus.vocabulary),
            n_records=n_records, privacy=PrivacyBudget(epsilon, DELTA), document_length=length,
        )  # fmt: skip

    advice = {epsilon: planned(epsilon) for epsilon in (EPSILONS[0], *epsilons)}
    with tqdm(total=len(seeds) * (1 + len(epsilons) + len(advice)), desc="fits", leave=False, disable=None) as progress:
        plain = []
        for seed in seeds:
            plain.append(fit(None, seed))
            progress.update()
        private = {}
        for epsilon in epsilons:
            plan = PrivacyPlan.from_epsilon(
                epsilon=epsilon, delta=DELTA, sampling_rate=SAMPLING_RATE, n_steps=N_STEPS, sampling="full"
            )
            private[epsilon] = []
            for seed in seeds:
                private[epsilon].append(fit(plan, seed))
                progress.update()
        by_plan = {}
        for epsilon, advised in advice.items():
            by_plan[epsilon] = []
            for seed in seeds:
                model = LatentDirichletAllocation(vocabulary=corpus.vocabulary, random_state=seed)
                by_plan[epsilon].append(advised.apply(model).fit(train).perplexity(test))
                progress.update()

    unigram = unigram_perplexity(train, test)
    baseline = [model.perplexity(test) for model in plain]
    by_epsilon = {epsilon: [model.perplexity(test) for model in models] for epsilon, models in private.items()}
    shown = private[SHOWN][0]
    pairs = matched(plain[0], shown)
    print_topics(plain[0], shown, pairs)
    print(f"\nPrivacy statement of the fit at ε = {SHOWN:g}:\n")
    for line in str(shown.privacy_).splitlines():
        print(textwrap.fill(line, 110, initial_indent="  ", subsequent_indent="    "))
    mean = "one seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"
    print(f"\nHeld-out perplexity per word (document completion), {mean}; lower is better:\n")
    print(f"  word frequencies alone (not private)   {unigram:6.0f}")
    for epsilon, values in by_epsilon.items():
        print(f"  private, ε = {epsilon:<4g} δ = {DELTA:g}            {np.mean(values):6.0f}")
    print(f"  non-private                            {np.mean(baseline):6.0f}")
    print(f"\nWith a number of topics from public numbers (plan_for): {advice[EPSILONS[0]]}\n")
    for epsilon, values in by_plan.items():
        n_topics = advice[epsilon].settings["n_components"]
        topics = f"{n_topics:2d} topic{'s' if n_topics > 1 else ' '}"
        print(f"  planned, ε = {epsilon:<4g} {topics}             {np.mean(values):6.0f}")
    if folder is None:
        return
    plot(unigram, by_epsilon, by_plan, baseline, plain[0], shown, pairs, folder / "demo.png")
    write_json(
        folder / "demo.json",
        {
            "documents": {"train": train.shape[0], "test": test.shape[0], "words": train.shape[1]},
            "unigram": unigram,
            "non_private": baseline,
            "private": {str(epsilon): values for epsilon, values in by_epsilon.items()},
            "planned": {
                str(epsilon): {"topics": advice[epsilon].settings["n_components"], "perplexity": values}
                for epsilon, values in by_plan.items()
            },
            "privacy": shown.privacy_.to_dict(),
            "topics": [
                {"non_private": plain[0].top_words(10)[i], "private": shown.top_words(10)[j]} for i, j, _ in pairs
            ],
        },
    )
    print(f"\nPicture: {folder / 'demo.png'}")


def documents(quick: bool) -> Bunch:
    """Docstrings; in a quick run generated documents, because reading docstrings takes too long."""
    if not quick:
        print("Reading the docstrings of numpy, scipy and scikit-learn; vocabulary from the standard library's ...")
        return load_docstrings()
    print("Generated documents take the place of docstrings.")
    corpus = make_lda_corpus(2500, n_topics=N_TOPICS, n_words=300, document_length=60, random_state=0)
    return Bunch(counts=corpus.counts, vocabulary=[f"word{i}" for i in range(300)], topics=corpus.topics)


def matched(first, second) -> list[tuple[int, int, float]]:
    """Pairs of topics with the largest total overlap Σ_v min(p_v, q_v), best first."""
    overlap = np.minimum(first.last_posterior_.mean[:, None], second.last_posterior_.mean[None]).sum(axis=2)
    pairs = zip(*linear_sum_assignment(-overlap), strict=True)
    return sorted(((int(i), int(j), float(overlap[i, j])) for i, j in pairs), key=lambda pair: -pair[2])


def print_topics(plain, private, pairs) -> None:
    width = 54
    print(f"{'non-private':{width}s} | private, ε = {SHOWN:g}, δ = {DELTA:g}")
    print("-" * width + "-+-" + "-" * width)
    for i, j, _ in pairs:
        left, right = (" ".join(model.top_words(7)[k]) for model, k in ((plain, i), (private, j)))
        print(f"{textwrap.shorten(left, width):{width}s} | {textwrap.shorten(right, width)}")


def plot(unigram, by_epsilon, by_plan, baseline, plain, private, pairs, path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (curve, topics) = plt.subplots(1, 2, figsize=(13.0, 5.2), width_ratios=(1.0, 1.5), layout="constrained")
    epsilons = list(by_epsilon)
    values = np.array([by_epsilon[epsilon] for epsilon in epsilons])
    curve.plot(epsilons, values.mean(axis=1), "o-", label=f"private, δ = {DELTA:g}")
    curve.fill_between(epsilons, values.min(axis=1), values.max(axis=1), alpha=0.2)
    means = [np.mean(values) for values in by_plan.values()]
    curve.plot(list(by_plan), means, "s--", label="private, topics planned from public numbers")
    curve.axhline(unigram, color="gray", linestyle=":", label="word frequencies alone (not private)")
    curve.axhline(np.mean(baseline), color="black", linestyle=":", label="non-private")
    curve.set(xscale="log", xlabel="ε", ylabel="held-out perplexity per word", title="What privacy costs")
    curve.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    curve.minorticks_off()
    curve.legend()

    topics.set_axis_off()
    topics.set_title(f"Matched topics: words in both lists in bold (private: ε = {SHOWN:g})")
    n_words = 6
    for row, (i, j, overlap) in enumerate(pairs):
        lists = [model.top_words(n_words)[k] for model, k in ((plain, i), (private, j))]
        y = 0.93 - 0.93 * (row + 0.5) / len(pairs)
        for x, words, others in ((0.0, lists[0], lists[1]), (0.52, lists[1], lists[0])):
            for place, word in enumerate(words):
                topics.text(
                    x + 0.155 * (place % 3), y + (0.02 if place < 3 else -0.03), word, fontsize=9,
                    fontweight="bold" if word in others else "normal",
                    color="black" if word in others else "dimgray", transform=topics.transAxes,
                )  # fmt: skip
        topics.text(1.0, y, f"overlap\n{overlap:.2f}", fontsize=8, ha="right", va="center", transform=topics.transAxes)
    topics.text(0.0, 0.95, "non-private", fontsize=10, transform=topics.transAxes)
    topics.text(0.52, 0.95, "private", fontsize=10, transform=topics.transAxes)
    figure.savefig(path, dpi=150)
    plt.close(figure)
