"""``python -m experiments lda_settings``: the default clip, schedule and view against their alternatives.

How the defaults of LDA were chosen: one change at a time, on articles that are neither fitted nor the final held-out set.

Fitted: Wikipedia articles 0 to 116,000. Scored: articles 116,000 to 118,000. The last 2,000 articles, on which
``lda_wikipedia`` reports, are never read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import wikipedia
from vips import LatentDirichletAllocation, PolynomialAveraging, PrivacyPlan, RobbinsMonro
from vips.models.topics.denoising import LARGEST_SCALE
from vips.models.topics.statistics import TopicPosterior, canonical

DELTA = 1e-4


class Clamped(LatentDirichletAllocation):
    """Negative counts are set to zero in the view; there is no other correction for noise."""

    def to_posterior(self, average, noise_std, previous):
        return TopicPosterior(self.word_concentration() + np.maximum(average["topic_word"], 0.0))


class Unscaled(LatentDirichletAllocation):
    """Counts are denoised; nothing is scaled before the clip."""

    def to_posterior(self, average, noise_std, previous):
        posterior = super().to_posterior(average, noise_std, previous)
        return TopicPosterior(posterior.concentration, step=posterior.step)


class ScaledByWord(LatentDirichletAllocation):
    """One scale for all topics' counts of a word: frequency^(-1/4), the rarest words as if a tenth of the average."""

    def to_posterior(self, average, noise_std, previous):
        posterior = super().to_posterior(average, noise_std, previous)
        if previous is None:
            return posterior
        words = (posterior.concentration - self.word_concentration()).sum(axis=0)
        frequency = np.maximum(words / words.mean(), 0.1)
        scale = frequency**-0.25 / np.sqrt(np.average(frequency**-0.5, weights=frequency))
        scale = np.broadcast_to(np.minimum(scale, LARGEST_SCALE), posterior.concentration.shape)
        return TopicPosterior(posterior.concentration, scale, posterior.average_scale, posterior.step)


class ByLogs(LatentDirichletAllocation):
    """The E-step uses exp E log β, as a fit without noise does, in place of E β."""

    def expected_statistics(self, records, posterior):
        return self._infer(self.resized(canonical(records)), posterior, 8)


PRIVATE = [
    ("default", LatentDirichletAllocation, {}, None),
    ("counts not scaled", Unscaled, {}, None),
    ("a scale for each word", ScaledByWord, {}, None),
    ("exp E log β in the E-step", ByLogs, {}, None),
    ("clamped", Clamped, {}, None),
    ("clip norm 3.5", LatentDirichletAllocation, {}, 3.5),
    ("clip norm 7", LatentDirichletAllocation, {}, 7.0),
    ("step (1 + t)^-0.7", LatentDirichletAllocation, {"schedule": RobbinsMonro(1.0, 0.7)}, None),
    ("step (1 + t)^-0.5", LatentDirichletAllocation, {"schedule": RobbinsMonro(1.0, 0.5)}, None),
    ("at most 20 updates a document", LatentDirichletAllocation, {"max_doc_update_iter": 20}, None),
    ("at most 100 updates a document", LatentDirichletAllocation, {"max_doc_update_iter": 100}, None),
    ("tolerance 1e-2", LatentDirichletAllocation, {"mean_change_tol": 1e-2}, None),
]
NON_PRIVATE = [
    ("default", {}),
    ("step (1 + t)^-0.5", {"schedule": RobbinsMonro(1.0, 0.5)}),
    ("step (1 + t)^-0.7", {"schedule": RobbinsMonro(1.0, 0.7)}),
    ("step (1 + t)^-0.9", {"schedule": RobbinsMonro(1.0, 0.9)}),
    ("step 3/(t + 2)", {"schedule": PolynomialAveraging(2.0)}),
    ("at most 4 updates a document", {"max_doc_update_iter": 4}),
    ("at most 20 updates a document", {"max_doc_update_iter": 20}),
    ("at most 100 updates a document", {"max_doc_update_iter": 100}),
]


class Size(NamedTuple):
    """Numbers of topics and documents, and the compared settings."""

    topics: int
    train: int
    validation: int
    epsilons: tuple[float, ...]
    seeds: tuple[int, ...]
    private: list
    non_private: list


FULL = Size(50, 116_000, 2_000, (1.0, 2.44), (0, 1), PRIVATE, NON_PRIVATE)
QUICK = Size(5, 1_000, 200, (2.44,), (0,), PRIVATE[:3], NON_PRIVATE[:1])


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments lda_settings", __doc__)
    parser.add_argument("--settings", nargs="+", default=[""], help="only those whose names contain one of these words")
    options = parser.parse_args(arguments)
    folder = folder_of("lda_settings", options)
    size = QUICK if options.quick else FULL
    chosen = [[one for one in settings if any(word in one[0] for word in options.settings)] for settings in size[-2:]]
    size = size._replace(private=chosen[0], non_private=chosen[1])
    corpus = wikipedia(size.train + size.validation, options.quick)
    train, validation = corpus.counts[: size.train], corpus.counts[size.train :]

    def perplexity(model) -> float:
        model.fit(train)
        # the same inference scores every model, whatever settings it was fitted with
        return model.set_params(mean_change_tol=1e-3).perplexity(validation)

    rows = []
    jobs = len(size.seeds) * (len(size.private) * len(size.epsilons) + len(size.non_private))
    with tqdm(total=jobs, desc="fits", disable=None) as progress:
        for name, arguments in size.non_private:
            plan = PrivacyPlan.non_private(sampling_rate=0.05, n_steps=60)
            rows.append({"setting": name, "epsilon": None, "perplexity": []})
            for seed in size.seeds:
                model = LatentDirichletAllocation(
                    size.topics, vocabulary=corpus.vocabulary, privacy=plan, random_state=seed, **arguments
                )
                rows[-1]["perplexity"].append(perplexity(model))
                progress.update()
        for name, kind, arguments, clip_norm in size.private:
            for epsilon in size.epsilons:
                plan = PrivacyPlan.from_epsilon(
                    epsilon=epsilon, delta=DELTA, sampling_rate=0.3, n_steps=20, clip_norm=clip_norm
                )
                rows.append({"setting": name, "epsilon": epsilon, "perplexity": []})
                for seed in size.seeds:
                    model = kind(
                        size.topics, vocabulary=corpus.vocabulary, privacy=plan, random_state=seed, **arguments
                    )
                    rows[-1]["perplexity"].append(perplexity(model))
                    progress.update()
    lines = ["| fit | setting | validation perplexity |", "| --- | --- | --- |"]
    for row in rows:
        fit = "non-private" if row["epsilon"] is None else f"ε = {row['epsilon']:g}"
        lines.append(f"| {fit} | {row['setting']} | {', '.join(f'{value:.0f}' for value in row['perplexity'])} |")
    print("\n".join(lines))
    if folder is None:
        return
    write_json(folder / "results.json", rows)
    write_text(folder / "results.md", "\n".join(lines) + "\n")
