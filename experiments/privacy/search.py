"""``python -m experiments search``: settings that are chosen privately, beside fixed ones, at the same total ε (δ = 1e-5).

Adult: logistic regression over steps, clip norms and priors; mean log-loss of test persons. Wikipedia: topics over their
number; perplexity of other articles. Four arms at each ε: the defaults; a private search; a candidate that is taken blindly
(the mean over all candidates); the candidate that is best on the test records themselves, which nobody can know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from sklearn.base import clone
from sklearn.metrics import log_loss
from tqdm.auto import tqdm

from experiments.datasets import load_wikipedia
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import adult
from vips import (
    BayesianLogisticRegression,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyPlan,
    PrivateSearch,
    plan_for,
)
from vips.datasets import make_lda_corpus
from vips.preprocessing import TableEncoder

DELTA, EPSILONS, N_SEEDS = 1e-5, (1.0, 4.0), 3
N_TRAIN, N_ARTICLES, N_TEST = 32_561, 10_000, 1_000
TOPICS = (1, 2, 5, 10, 20, 40)


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments search", __doc__)
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="repetitions of every arm")
    options = parser.parse_args(arguments)
    folder = folder_of("search", options)
    n_seeds = 1 if options.quick else options.seeds
    cases = [people(options.quick), articles(options.quick)]
    rows = [
        cell(case, epsilon, n_seeds) for case, epsilon in tqdm([(c, e) for c in cases for e in EPSILONS], disable=None)
    ]
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


class Case:
    """A data set, a model with its default plan, and candidates.

    Attributes
    ----------
    name, loss_name : str
    estimator : model
    default : function of ε
        Settings that a public rule gives.
    candidates : list of dict
    halves : function of a seed
        X, y, and X, y of the test.
    loss : function of a fitted model, X and y
    """

    def __init__(self, name, loss_name, estimator, default, candidates, halves, loss) -> None:
        self.name, self.loss_name, self.estimator, self.default = name, loss_name, estimator, default
        self.candidates, self.halves, self.loss = candidates, halves, loss


def people(quick: bool) -> Case:
    """Adult."""
    persons = adult(quick)
    n_train = 400 if quick else N_TRAIN
    n_all = 600 if quick else len(persons.target)
    encoder = TableEncoder(persons.columns)
    X = encoder.fit_transform(persons.data[:n_all])
    y = np.asarray(persons.target[:n_all])

    def halves(seed: int) -> tuple:
        order = np.random.default_rng(seed).permutation(n_all)
        train, test = order[:n_train], order[n_train:]
        return X[train], y[train], X[test], y[test]

    shapes = [(20, None), (5, None), (20, 0.1), (20, 2.0)]
    plans = [PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=t, clip_norm=clip) for t, clip in shapes]
    candidates = [{"prior": prior, "privacy": plan} for prior in ((1.0, 1.0), 100.0) for plan in plans]
    model = BayesianLogisticRegression(max_norm=encoder.max_norm)
    return Case("Adult", "log-loss", model, lambda epsilon: candidates[0], candidates, halves, loss_of_classes)


def articles(quick: bool) -> Case:
    """Wikipedia."""
    if quick:
        counts = make_lda_corpus(700, n_topics=3, n_words=60, document_length=50, random_state=0).counts
    else:
        counts = load_wikipedia(118_000).counts.astype(np.int64)
    n_train, n_test = (500, 100) if quick else (N_ARTICLES, N_TEST)
    words = counts.shape[1]
    model = LatentDirichletAllocation(vocabulary=words)

    def halves(seed: int) -> tuple:
        order = np.random.default_rng(seed).permutation(counts.shape[0])
        return counts[order[:n_train]], None, counts[order[n_train : n_train + n_test]], None

    def planned(epsilon: float) -> dict:
        return plan_for(model, n_records=n_train, privacy=PrivacyBudget(epsilon, DELTA)).settings

    numbers = (1, 3) if quick else TOPICS
    candidates = [{"n_components": number} for number in numbers]
    return Case(
        "Wikipedia", "perplexity", model, planned, candidates, halves, lambda fitted, X, y: fitted.perplexity(X)
    )


def loss_of_classes(fitted, X, y) -> float:
    return log_loss(y, fitted.predict_proba(X), labels=fitted.classes_)


def cell(case: Case, epsilon: float, n_seeds: int) -> dict:
    """Losses of all arms, over ``n_seeds`` splits."""
    default, found, every, chosen = [], [], [], []
    for seed in range(n_seeds):
        X, y, X_test, y_test = case.halves(seed)

        def loss(settings, X=X, y=y, X_test=X_test, y_test=y_test) -> float:
            return case.loss(at_full_budget(case.estimator, settings, epsilon).fit(X, y), X_test, y_test)

        default.append(loss(case.default(epsilon)))
        every.append([loss(settings) for settings in case.candidates])
        search = PrivateSearch(case.estimator, case.candidates, privacy=PrivacyBudget(epsilon, DELTA)).fit(X, y)
        found.append(case.loss(search.best_estimator_, X_test, y_test))
        chosen.append(case.candidates.index(search.best_params_))
    every = np.array(every)
    best = int(every.mean(axis=0).argmin())
    return {
        "case": case.name, "loss": case.loss_name, "epsilon": epsilon, "seeds": n_seeds,
        "default": summary(default), "search": summary(found), "blind": summary(every.mean(axis=1)),
        "best": summary(every[:, best]),
        "candidates": every.mean(axis=0).tolist(), "chosen": chosen, "best candidate": best,
    }  # fmt: skip


def at_full_budget(estimator, settings: dict, epsilon: float):
    """The model with these settings, and with the noise of a single fit at the whole budget."""
    model = clone(estimator).set_params(**settings)
    n_steps = model.planned_steps if model.privacy is None else model.privacy.n_steps
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling="full", n_steps=n_steps)
    clip = None if model.privacy is None else model.privacy.clip_norm
    return model.set_params(privacy=replace(plan, clip_norm=clip))


def summary(values) -> dict[str, float]:
    values = np.asarray(values, dtype=float)
    return {"mean": float(values.mean()), "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0}


def table(rows: list[dict]) -> str:
    """Markdown."""
    lines = [
        "| data | ε | loss | defaults | search | blind choice | best candidate |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        shown = _perplexity if row["loss"] == "perplexity" else _small
        arms = (
            f"{shown(row[arm]['mean'])} ± {shown(row[arm]['std'])}" for arm in ("default", "search", "blind", "best")
        )
        lines.append(f"| {row['case']} | {row['epsilon']:g} | {row['loss']} | {' | '.join(arms)} |")
    return "\n".join(lines) + "\n"


def _perplexity(value: float) -> str:
    return f"{value:,.0f}"


_small: Callable[[float], str] = "{:.4f}".format
