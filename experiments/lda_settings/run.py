"""``python -m experiments lda_settings``: the default clip, schedule and view against their alternatives."""

from __future__ import annotations

import argparse

import numpy as np
from tqdm import tqdm

from experiments.results import results_folder, write_json, write_text
from vips import LatentDirichletAllocation, PolynomialAveraging, PrivacyPlan, RobbinsMonro
from vips.datasets import load_wikipedia
from vips.models._lda_statistics import TopicPosterior

N_TOPICS, N_TRAIN, N_VALIDATION = 50, 116_000, 2_000
EPSILONS, DELTA, SEEDS = (1.0, 2.44), 1e-4, (0, 1)


class Clamped(LatentDirichletAllocation):
    """Negative counts set to zero in the view; nothing else is done about the noise."""

    def to_posterior(self, average, noise_std, previous):
        return TopicPosterior(self._topic_word_prior() + np.maximum(average["topic_word"], 0.0))


class Unscaled(LatentDirichletAllocation):
    """Counts are denoised; words are not scaled before the clip."""

    def to_posterior(self, average, noise_std, previous):
        posterior = super().to_posterior(average, noise_std, previous)
        return TopicPosterior(posterior.concentration, step=posterior.step)


PRIVATE = [
    ("default", LatentDirichletAllocation, {}, None),
    ("words not scaled", Unscaled, {}, None),
    ("clamped", Clamped, {}, None),
    ("clip norm 4", LatentDirichletAllocation, {}, 4.0),
    ("clip norm 10", LatentDirichletAllocation, {}, 10.0),
    ("step (1 + t)^-0.7", LatentDirichletAllocation, {"schedule": RobbinsMonro(1.0, 0.7)}, None),
    ("step (1 + t)^-0.5", LatentDirichletAllocation, {"schedule": RobbinsMonro(1.0, 0.5)}, None),
    ("at most 100 updates a document", LatentDirichletAllocation, {"max_doc_update_iter": 100}, None),
    ("tolerance 1e-2", LatentDirichletAllocation, {"mean_change_tol": 1e-2}, None),
]
NON_PRIVATE = [
    ("default", {}),
    ("step (1 + t)^-0.5", {"schedule": RobbinsMonro(1.0, 0.5)}),
    ("step (1 + t)^-0.7", {"schedule": RobbinsMonro(1.0, 0.7)}),
    ("step (1 + t)^-0.9", {"schedule": RobbinsMonro(1.0, 0.9)}),
    ("step 3/(t + 2)", {"schedule": PolynomialAveraging(2.0)}),
    ("at most 100 updates a document", {"max_doc_update_iter": 100}),
]


def main(arguments: list[str]) -> None:
    argparse.ArgumentParser(prog="python -m experiments lda_settings", description=__doc__).parse_args(arguments)
    corpus = load_wikipedia(N_TRAIN + N_VALIDATION)
    train, validation = corpus.counts[:N_TRAIN], corpus.counts[N_TRAIN:]

    def perplexity(model) -> float:
        model.fit(train)
        # every model is scored by the same inference, whatever it was fitted with
        return model.set_params(mean_change_tol=1e-3, max_doc_update_iter=100).perplexity(validation)

    rows = []
    jobs = len(SEEDS) * (len(PRIVATE) * len(EPSILONS) + len(NON_PRIVATE))
    with tqdm(total=jobs, desc="fits", disable=None) as progress:
        for name, arguments in NON_PRIVATE:
            plan = PrivacyPlan.non_private(sampling_rate=0.05, n_steps=60)
            rows.append({"setting": name, "epsilon": None, "perplexity": []})
            for seed in SEEDS:
                model = LatentDirichletAllocation(
                    N_TOPICS, vocabulary=corpus.vocabulary, privacy=plan, random_state=seed, **arguments
                )
                rows[-1]["perplexity"].append(perplexity(model))
                progress.update()
        for name, kind, arguments, clip_norm in PRIVATE:
            for epsilon in EPSILONS:
                plan = PrivacyPlan.from_epsilon(
                    epsilon=epsilon, delta=DELTA, sampling_rate=0.3, n_steps=20, clip_norm=clip_norm
                )
                rows.append({"setting": name, "epsilon": epsilon, "perplexity": []})
                for seed in SEEDS:
                    model = kind(N_TOPICS, vocabulary=corpus.vocabulary, privacy=plan, random_state=seed, **arguments)
                    rows[-1]["perplexity"].append(perplexity(model))
                    progress.update()
    folder = results_folder("lda_settings")
    write_json(folder / "results.json", rows)
    lines = ["| fit | setting | validation perplexity |", "| --- | --- | --- |"]
    for row in rows:
        fit = "non-private" if row["epsilon"] is None else f"ε = {row['epsilon']:g}"
        lines.append(f"| {fit} | {row['setting']} | {', '.join(f'{value:.0f}' for value in row['perplexity'])} |")
    write_text(folder / "results.md", "\n".join(lines) + "\n")
    print("\n".join(lines))
