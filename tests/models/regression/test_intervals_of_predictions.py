import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from vips import (
    BayesianBinomialRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    PrivacyBudget,
)
from vips.preprocessing import TableEncoder, make_private_pipeline


def people(n, seed):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.integers(18, 90, n), "ward": rng.choice(["A", "B"], n)})
    risk = expit(0.04 * (table["age"] - 60) + 0.5 * (table["ward"] == "B") - 0.5)
    return table, (rng.random(n) < risk).astype(int), risk.to_numpy()


def test_intervals_of_risks_hold_them():
    """Rows of one fit depend on each other: six fits are about as many independent intervals as coefficients, 18."""
    held, columns = [], {"age": (18, 90), "ward": ["A", "B"]}
    for seed in range(6):
        table, y, risk = people(5_000, seed)
        pipeline = make_private_pipeline(
            TableEncoder(columns), BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6)
        ).fit(table, y)
        lower, upper = pipeline.predict_interval(table[:200])
        held.append(((lower < risk[:200]) & (risk[:200] < upper)).mean())
        inner = pipeline.predict_interval(table[:200], level=0.5)
        assert ((lower < inner[0]) & (inner[1] < upper)).all()
    assert np.mean(held) > 0.7
    assert (upper - lower).mean() < 0.3


def test_intervals_are_of_the_expected_outcome():
    X = np.random.default_rng(8).normal(size=(500, 2))
    y = np.random.default_rng(9).binomial(1, expit(X[:, 0]))
    for model, largest in (
        (BayesianBinomialRegression(n_trials=1), 1.0),
        (BayesianNegativeBinomialRegression(dispersion=2.0), np.inf),
    ):
        lower, upper = model.fit(X, y).predict_interval(X)
        assert ((lower < model.predict(X)) & (model.predict(X) < upper)).all()
        assert (upper < largest).all()
    with pytest.raises(ValueError, match="level"):
        model.predict_interval(X, level=95)
    with pytest.raises(ValueError, match="two classes"):
        BayesianLogisticRegression().fit(X, np.arange(500) % 3).predict_interval(X)
