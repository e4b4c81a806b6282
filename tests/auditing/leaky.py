"""Models of coins that may leak something, and quick replays of their fits."""

from __future__ import annotations

from importlib import import_module
from unittest.mock import patch

import numpy as np

from vips import Block, ConjugateExponentialModel, DenseStatistics, PrivacyPlan
from vips.auditing import files
from vips.auditing.records import Table
from vips.auditing.report import Finding
from vips.auditing.surroundings import Surroundings

# Such as the log of the test run, to which other processes write while an audit of these tests watches.
OPEN_BEFORE = files._open_for_writing().keys()


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


def with_e_step(action) -> type:
    """A model that calls ``action(records)`` in its E-step."""

    class Leaky(Coins):
        def expected_statistics(self, records, posterior):
            action(records)
            return super().expected_statistics(records, posterior)

    return Leaky


def with_step(action) -> type:
    """A model that calls ``action()`` after every step."""

    class Leaky(Coins):
        def to_posterior(self, average, noise_std, previous):
            action()
            return super().to_posterior(average, noise_std, previous)

    return Leaky


def replayed(model, repeats=2) -> dict[str, Finding]:
    """Findings of the replays by aspect; fewer neighbours and repetitions than in an audit."""
    model = model(privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, clip_norm=1.5))
    rng = np.random.default_rng(0)
    table = Table.of(rng.integers(0, 2, (30, 5)).astype(float))
    surroundings = Surroundings(model)
    audit, compare = (import_module(f"vips.auditing.{name}") for name in ("audit", "compare"))
    ours = _opened_by_tests(files._open_for_writing)
    with (
        patch.object(audit, "REPLAYED", 1),
        patch.object(compare, "REPEATS", repeats),
        patch.object(files, "_open_for_writing", ours),
    ):
        try:
            findings = audit._Audit.of(model, table, rng, surroundings).replays()
        finally:
            surroundings.put_back()
    return {finding.name.removeprefix("replay: "): finding for finding in findings}


def _opened_by_tests(find):
    return lambda: {number: status for number, status in find().items() if number not in OPEN_BEFORE}
