"""Whether predictions should use the noise-aware posterior: both on the same held-out records of Adult's training part."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from experiments.results import results_folder, write_text
from vips import BayesianLogisticRegression, PrivacyPlan, PrivacyWarning
from vips.datasets import load_adult
from vips.preprocessing import TableEncoder

__all__ = ["compare_predictions"]

DELTA, N_VALIDATION, N_FITS = 1e-5, 8_000, 4


def compare_predictions() -> None:
    """A table of log-loss and AUC; a fifth of Adult, the test part of split 0, is not looked at."""
    adult = load_adult()
    X = TableEncoder(adult.columns).fit_transform(adult.data)
    X, _, y, _ = train_test_split(X, adult.target, test_size=0.2, random_state=0)
    lines = [
        "| records | ε | clip norm | log-loss | noise-aware | AUC | noise-aware |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for n_records in (1_000, 20_000):
        for epsilon in (0.1, 0.5, 1.0, 4.0):
            plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=20)
            for clip in ("default", "max_norm()"):
                scores = [_scores(plan, clip, X, y, n_records, seed) for seed in range(N_FITS)]
                shown = " | ".join(f"{value:.3f}" for value in np.mean(scores, axis=0))
                lines.append(f"| {n_records:,} | {epsilon:g} | {clip} | {shown} |")
                print(lines[-1], flush=True)
    write_text(results_folder("coverage") / "predictions.md", "\n".join(lines) + "\n")


def _scores(plan: PrivacyPlan, clip: str, X, y, n_records: int, seed: int) -> list[float]:
    fitted, held_out, labels, truth = train_test_split(
        X, y, train_size=n_records, test_size=N_VALIDATION, random_state=seed
    )
    model = BayesianLogisticRegression(privacy=plan, feature_norm=1.0)
    if clip != "default":
        model.privacy = replace(plan, clip_norm=model.max_norm())
    model.fit(fitted, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        both = [model.predict_proba(held_out, noise_aware=aware)[:, 1] for aware in (False, True)]
    positive = truth == model.classes_[1]
    return [score(positive, p) for score in (log_loss, roc_auc_score) for p in both]
