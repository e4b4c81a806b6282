"""``python -m experiments correlated_fits``: noise correlated over steps inside a fit, beside today's, at equal ε.

Four ways to spend the same four passes over the data, at ε = 1 and 8:

- full batches, independent noise: vips' default, a step for each pass;
- Poisson samples at rate 1/B, independent noise: B steps for each pass;
- B batches in a fixed order, and C of any shape, best for the running averages: no amplification by sampling;
- the same with b bands, where every b-th step draws a Poisson sample of one of b fixed groups: amplified. b is that with the
  least noise in the averages.

Topics of 20,000 Wikipedia articles (perplexity of 2,000 others), logistic regression of Adult (AUC of the last fifth), belief
networks of 20,000 MNIST images (hidden pixels of 2,000 others, which are no test images). All other settings are defaults,
which were chosen for independent noise. "Best" is the least sum over steps of squared noise relative to independent noise: an
absolute sum would be that of the first steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import roc_auc_score
from tqdm import tqdm

from experiments.belief_networks.scoring import Scored, score
from experiments.options import folder_of, parser_of
from experiments.privacy.ordered_batches import OrderedPlan, best_strategy, matrix_of_average, sensitivity
from experiments.results import write_json, write_text
from experiments.stand_ins import adult, mnist, wikipedia
from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyPlan, SigmoidBeliefNetwork
from vips.preprocessing import TableEncoder

EPSILONS, DELTA = (1.0, 8.0), 1e-5


@dataclass(frozen=True)
class Task:
    """A model, its records, and how fits are scored.

    Attributes
    ----------
    make : function of a plan and a seed
    fit : function of a model, which fits it
    score : function of a fitted model
    n_passes, n_batches : int
    """

    name: str
    make: Callable
    fit: Callable
    score: Callable
    n_passes: int
    n_batches: int


class PlainStart(LatentDirichletAllocation):
    """Topics that are not merged from more: noise that depends on earlier steps goes with no merged totals."""

    def _n_first(self, n_steps: int) -> int:
        return 0


def tasks(quick: bool) -> Iterator[Task]:
    """Tasks of three models; a quick run has few records."""
    n, n_test = (200, 50) if quick else (20_000, 2_000)
    corpus = wikipedia(n + n_test, quick)
    train, test = corpus.counts[:n], corpus.counts[-n_test:]
    yield Task(
        "topics: perplexity",
        lambda plan, seed: PlainStart(
            5 if quick else 20, vocabulary=train.shape[1], privacy=plan, random_state=seed
        ),
        lambda model: model.fit(train),
        lambda model: model.perplexity(test),
        4, 5,
    )  # fmt: skip
    people = adult(quick)
    n_people = 1_000 if quick else len(people.data)
    X, y = TableEncoder(people.columns).fit_transform(people.data[:n_people]), np.asarray(people.target[:n_people])
    cut = int(0.8 * len(y))
    yield Task(
        "logistic regression: AUC",
        lambda plan, seed: BayesianLogisticRegression(  # of steps whose totals are averaged: the default releases scores
            privacy=plan, max_norm=1.0, covariance="diagonal", random_state=seed
        ),
        lambda model: model.fit(X[:cut], y[:cut]),
        lambda model: float(roc_auc_score(y[cut:], model.predict_proba(X[cut:])[:, 1])),
        4, 10,
    )  # fmt: skip
    images = mnist(quick).data
    scored = Scored(images[-n_test:])
    yield Task(
        "belief network: hidden pixels",
        lambda plan, seed: SigmoidBeliefNetwork(10 if quick else 30, privacy=plan, random_state=seed),
        lambda model: model.fit(images[:n]),
        lambda model: score(model.reconstruct, scored, 0)["hidden"],
        4, 5,
    )  # fmt: skip


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments correlated_fits", __doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    folder = folder_of("correlated_fits", options)
    n_seeds, rows = 1 if options.quick else options.seeds, []
    for task in tasks(options.quick):
        fits = [(epsilon, *method_and_plan) for epsilon in EPSILONS for method_and_plan in plans(task, epsilon)]
        for epsilon, method, plan in tqdm(fits, desc=task.name, disable=None):
            start, values = time.perf_counter(), []
            for seed in range(n_seeds):
                model = task.make(plan, seed)
                task.fit(model)
                values.append(task.score(model))
            seconds = (time.perf_counter() - start) / n_seeds
            rows.append({
                "task": task.name, "epsilon": epsilon, "method": method, "steps": plan.n_steps, "score": values,
                "noise": noise(plan, task).tolist(), "seconds": seconds,
            })  # fmt: skip
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def plans(task: Task, epsilon: float) -> Iterator[tuple[str, PrivacyPlan]]:
    """The four ways, each at (ε, δ)."""
    B, T = task.n_batches, task.n_passes * task.n_batches
    of = {"epsilon": epsilon, "delta": DELTA}
    yield "full batches", PrivacyPlan.from_epsilon(**of, sampling="full", n_steps=task.n_passes)
    poisson = PrivacyPlan.from_epsilon(**of, sampling_rate=1.0 / B, n_steps=T)
    yield "Poisson samples", poisson
    matrices = [A / np.square(A).sum(axis=1, keepdims=True) for A in averages(task, poisson)]
    whole = PrivacyPlan.from_epsilon(**of, sampling="full", n_steps=1).noise_multiplier
    C = best_strategy(matrices, B)
    yield (
        "fixed order, correlated",
        OrderedPlan(
            noise_multiplier=whole * sensitivity(C, B), sampling_rate=1.0 / B, n_steps=T, strategy=C, n_groups=B
        ),
    )
    sampled = [_banded(task, matrices, b, epsilon) for b in range(2, B + 1)]
    best = min(sampled, key=lambda plan: np.log(noise(plan, task)).mean())
    yield f"{best.n_groups} groups and bands, sampled", best


def _banded(task: Task, matrices: list[np.ndarray], b: int, epsilon: float) -> OrderedPlan:
    """A record is in one of ``b`` groups. Columns of its group do not overlap, so that each pass is an event of its own."""
    B, T = task.n_batches, task.n_passes * task.n_batches
    of_one = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=b / B, n_steps=-(-T // b))
    return OrderedPlan(
        noise_multiplier=of_one.noise_multiplier, sampling_rate=1.0 / B, n_steps=T, n_groups=b, rate_in_group=b / B,
        strategy=best_strategy(matrices, T, bands=b),
    )  # fmt: skip


def averages(task: Task, plan: PrivacyPlan) -> list[np.ndarray]:
    """A of each kind of block."""
    model = task.make(plan, 0)
    model.n_features_in_ = 2
    steps = [model.step_size(t) for t in range(1, plan.n_steps + 1)]
    columns = [list(size.values()) if isinstance(size, dict) else [size] for size in steps]
    different = {tuple(column) for column in zip(*columns, strict=True)}
    return [matrix_of_average(list(column)) for column in sorted(different)]


def noise(plan: PrivacyPlan, task: Task) -> np.ndarray:
    """Noise in the averages of full-data totals after each step, in units of C: root mean square over kinds of blocks."""
    matrices = averages(task, plan)
    inverse = np.linalg.inv(plan.strategy) if isinstance(plan, OrderedPlan) else np.eye(plan.n_steps)
    error = np.mean([np.square(A @ inverse).sum(axis=1) for A in matrices], axis=0)
    return np.sqrt(error) * plan.noise_multiplier / plan.sampling_rate


def table(rows: list[dict]) -> str:
    lines = [
        "| task | ε | method | steps | noise ÷ C, middle | last step | score (range) | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        values = row["score"]
        lines.append(
            f"| {row['task']} | {row['epsilon']:g} | {row['method']} | {row['steps']} "
            f"| {row['noise'][row['steps'] // 2]:.1f} | {row['noise'][-1]:.1f} "
            f"| {np.mean(values):.4g} ({min(values):.4g} to {max(values):.4g}) | {row['seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"
