"""Models of coins that may leak something, and replays of their fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from vips import Block, ConjugateExponentialModel, DenseStatistics, PrivacyPlan
from vips.tools.auditing.records import Table
from vips.tools.auditing.replay import ADVICE, Fit, finding, frozen, pickled, shown_by, two_processes
from vips.tools.auditing.report import Finding


class Coins(ConjugateExponentialModel):
    """A sound model. It is defined here, apart from the laws, because audits compare everything in a model's module."""

    def __init__(self, privacy=None, random_state=None):
        self.privacy = privacy
        self.random_state = random_state

    def blocks(self):
        return {"heads": Block((self.n_features_in_,))}

    def initial(self, rng):
        return {"heads": np.zeros(self.n_features_in_)}

    def expected_statistics(self, records, posterior):
        return DenseStatistics({"heads": np.clip(records, 0.0, 1.0)})

    def to_posterior(self, average, noise_std, previous):
        return {"heads": np.maximum(average["heads"], 0.0)}


def summary_of(records) -> str:
    """A text that depends on the records, but not on their number, because the engine fills up chunks."""
    return f"{records.sum():.6g}"


def replayed(models: Mapping[str, ConjugateExponentialModel]) -> dict[str, dict[str, Finding]]:
    """Findings of the replays of each model, by name and aspect. All models share the processes in which they are fitted."""
    X = np.random.default_rng(0).integers(0, 2, (30, 5)).astype(float)
    plan = frozen(PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, clip_norm=1.5), 2)
    tables = [Table(X), Table(X)], [Table(1.0 - X), Table(X[:0])]
    fits = [[Fit(pickled(model), plan, table) for model in models.values() for table in pair] for pair in tables]
    runs, findings = [], {}
    for _ in range(2):
        with two_processes() as processes:
            runs += shown_by(processes, fits)
    for i, model in enumerate(models):
        of_model = [run[2 * i : 2 * i + 2] for run in runs]
        findings[model] = {aspect: finding(aspect, 2, ["others", "none"], of_model) for aspect in ADVICE}
    return findings


def missed(findings: Mapping[str, Mapping[str, Finding]], names: Iterable[str], aspect: str) -> list[str]:
    """Names of those models in which this aspect did not fail."""
    return [name for name in names if findings[name][aspect].passed is not False]
