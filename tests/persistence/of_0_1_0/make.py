"""Saved models, checkpoints and a ledger as version 0.1.0 wrote them: ``python -m tests.persistence.of_0_1_0.make FOLDER``.

Made once, by the tree before its modules moved (commit 1a01122); later versions must read them.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.persistence.stopping import Stop, arrays_of, stopped_after
from vips import (
    BayesianBinomialRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PolynomialAveraging,
    PrivacyLedger,
    PrivacyPlan,
    SigmoidBeliefNetwork,
)

PLAN = PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=6)
REPRODUCIBLE = PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=6, reproducible_noise=True)
TERMS = {"epsilon": 20.0, "delta": 1e-6, "dataset": "letters"}
STOPPED_AFTER = 3


def coins():
    return np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)


def counts():
    return np.random.default_rng(1).poisson(0.7, (60, 8))


def labels(largest):
    return np.random.default_rng(2).integers(0, largest + 1, 60)


# name: (model for a plan, arguments of fit)
MODELS = {
    "topics": (
        lambda plan: LatentDirichletAllocation(
            3, vocabulary=8, privacy=plan, random_state=3, schedule=PolynomialAveraging(1.0)
        ),
        lambda: (counts(),),
    ),
    "logistic": (
        lambda plan: BayesianLogisticRegression(feature_norm=2.0, privacy=plan, random_state=3),
        lambda: (coins(), labels(1)),
    ),
    "classes": (
        lambda plan: BayesianLogisticRegression(
            feature_norm=2.0, classes=[1, 2, 5], covariance="diagonal", privacy=plan, random_state=3
        ),
        lambda: (coins(), np.array([1, 2, 5])[labels(2)]),
    ),
    "binomial": (
        lambda plan: BayesianBinomialRegression(4, feature_norm=2.0, privacy=plan, random_state=3),
        lambda: (coins(), labels(4)),
    ),
    "counts": (
        lambda plan: BayesianNegativeBinomialRegression(
            2.0, feature_norm=2.0, max_count=6, privacy=plan, random_state=3
        ),
        lambda: (coins(), labels(6)),
    ),
    "proportions": (
        lambda plan: DirichletMultinomial(0.5, largest_total=10.0, privacy=plan, random_state=3),
        lambda: (counts(),),
    ),
    "network": (
        lambda plan: SigmoidBeliefNetwork(3, privacy=plan, random_state=3),
        lambda: (coins(),),
    ),
}


def main(folder: Path) -> None:
    expected = {}
    ledger = PrivacyLedger(folder / "letters.ledger", **TERMS)
    for name, (make, data) in MODELS.items():
        fitted = make(PLAN).fit(*data(), ledger=ledger)
        fitted.save(folder / f"{name}.vips")
        undisturbed = make(REPRODUCIBLE).fit(*data())
        with suppress(Stop):
            stopped_after(make(REPRODUCIBLE), STOPPED_AFTER).fit(*data(), checkpoint=folder / f"{name}.checkpoint")
        for kind, model in (("saved", fitted), ("resumed", undisturbed)):
            expected |= {f"{name}/{kind}/{array}": value for array, value in arrays_of(model).items()}
    make, data = MODELS["network"]
    with suppress(Stop):
        stopped_after(make(PLAN), STOPPED_AFTER).fit(*data(), ledger=ledger, checkpoint=folder / "charged.checkpoint")
    np.savez(folder / "expected.npz", **expected)
    runs = [(run.state, run.charged, run.released) for run in ledger.runs()]
    (folder / "expected.json").write_text(json.dumps({"spent": ledger.spent(), "runs": runs}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
