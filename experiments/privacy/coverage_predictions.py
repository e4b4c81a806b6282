"""Should predictions use the flat prior of intervals? Scores under both priors on held-out records of Adult's training part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from experiments.results import write_text
from experiments.stand_ins import adult
from vips import BayesianLogisticRegression, PrivacyPlan
from vips.preprocessing import TableEncoder

__all__ = ["compare_predictions"]

DELTA = 1e-5


class Size(NamedTuple):
    """Numbers of fitted records, of scored records, and of fits of each kind."""

    fitted: tuple[int, ...]
    scored: int
    epsilons: tuple[float, ...]
    fits: int


FULL, QUICK = Size((1_000, 20_000), 8_000, (0.1, 0.5, 1.0, 4.0), 4), Size((500,), 300, (1.0,), 1)


def compare_predictions(folder: Path | None, quick: bool) -> None:
    """Write a table of log-loss and AUC; a fifth of Adult, the test part of split 0, is not used."""
    size, people = QUICK if quick else FULL, adult(quick)
    X = TableEncoder(people.columns).fit_transform(people.data)
    X, _, y, _ = train_test_split(X, people.target, test_size=0.2, random_state=0)
    lines = [
        "| records | ε | clip norm | log-loss | flat prior | AUC | flat prior |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for n_records in size.fitted:
        for epsilon in size.epsilons:
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=20)
            for clip in ("default", "max_record_norm()"):
                scores = [_scores(plan, clip, X, y, (n_records, size.scored), seed) for seed in range(size.fits)]
                shown = " | ".join(f"{value:.3f}" for value in np.mean(scores, axis=0))
                lines.append(f"| {n_records:,} | {epsilon:g} | {clip} | {shown} |")
                print(lines[-1], flush=True)
    if folder is not None:
        write_text(folder / "predictions.md", "\n".join(lines) + "\n")


def _scores(plan: PrivacyPlan, clip: str, X, y, sizes: tuple[int, int], seed: int) -> list[float]:
    n_fitted, n_scored = sizes
    fitted, held_out, labels, truth = train_test_split(X, y, train_size=n_fitted, test_size=n_scored, random_state=seed)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0)
    if clip != "default":
        model.privacy = replace(plan, clip_norm=model.max_record_norm())
    model.fit(fitted, labels)
    both = [model.predict_proba(held_out)[:, 1]]
    model.last_posterior_ = model.posterior_  # which intervals are read from
    both.append(model.predict_proba(held_out)[:, 1])
    positive = truth == model.classes_[1]
    return [score(positive, p) for score in (log_loss, roc_auc_score) for p in both]
