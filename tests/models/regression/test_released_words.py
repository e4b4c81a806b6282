"""The report of a private regression names all that its phases release."""

import numpy as np
import pytest

from vips import (
    BayesianBinomialRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    FitPhase,
    MixedLogisticRegression,
    MixedNegativeBinomialRegression,
    PrivacyBudget,
)
from vips.core.phases import phases_of

COUNTS = {"max_count": 3, "dispersion": 2.0}
WEIGHTS = {"max_weight": 2.0}
# class, its settings, and those of the plan
REGRESSIONS = {
    "linear": (BayesianLinearRegression, {"target_range": (-1.0, 4.0)}, {}),
    "linear, one step": (BayesianLinearRegression, {"target_range": (-1.0, 4.0)}, {"n_steps": 1}),
    "linear, weights": (BayesianLinearRegression, {"target_range": (-1.0, 4.0)}, {"n_steps": 1} | WEIGHTS),
    "logistic": (BayesianLogisticRegression, {}, {}),
    "logistic, diagonal": (BayesianLogisticRegression, {"covariance": "diagonal"}, {}),
    "binomial": (BayesianBinomialRegression, {"n_trials": 3}, {}),
    "counts": (BayesianNegativeBinomialRegression, COUNTS, {}),
    "mixed logistic": (MixedLogisticRegression, {}, {}),
    "mixed counts": (MixedNegativeBinomialRegression, COUNTS, {}),
}
# Of each block, a word by which it is known.
WORDS = {
    "second": "second moments|products of columns and target",
    "moments": "products of the columns",
    "rates": "labels and exposures",
    "outcome": "the target",
    "linear": "scores|with the target",
    "score": "scores",
    "precision": "information|with each other",
    "information": "information",
    "squares": "squares of scores|squared weights",
    "bends": "bends",
    "tilt": "tilts",
    "spread": "squares of residuals and weights",
    "cross": "sums of the columns and of weights",
    "weight": "sums of the columns and of weights",
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_the_report_names_what_each_phase_releases(name):
    kind, settings, of_plan = REGRESSIONS[name]
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    plan = PrivacyBudget(1.0, 1e-6).plan(**({"n_steps": 8} | of_plan))
    given = {"sample_weight": np.ones(60)} if "max_weight" in of_plan else {}
    given |= {"groups": np.arange(60) // 2} if kind.__name__.startswith("Mixed") else {}
    model = kind(privacy=plan, max_norm=4.0, **settings).fit(X, y, **given)
    report = " ".join(str(model.privacy_).split())
    for phase in phases_of(model, model.privacy_.plan.n_steps):
        assert phase.released != FitPhase("steps", 1).released, f"{phase.name} has no words"
        assert phase.released in report
        for block in phase.blocks:
            assert any(word in phase.released for word in WORDS[block].split("|")), (block, phase.released)
