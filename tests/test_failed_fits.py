"""A fit that fails leaves the estimator as it was: the results of an earlier fit have cost budget."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import vips
from vips._support.fitted import fitted_attributes
from vips.classification.encoder import ClassTables
from vips.core import engine
from vips.preprocessing import PrivateCountVectorizer, TableEncoder, make_private_pipeline

BUDGET = vips.PrivacyBudget(1.0, 1e-6)
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"age": RNG.integers(18, 90, 3000), "ward": RNG.choice(["A", "B"], 3000)})
LABELS = RNG.integers(0, 2, 3000)
COLUMNS = {"age": (18, 90), "ward": "category"}
LETTERS = ["fever and cough", "pain in the knee", "fever"] * 300

ESTIMATORS = {
    "model": (
        lambda: vips.BayesianLogisticRegression(max_norm=1.0, privacy=BUDGET),
        (TABLE[["age"]].to_numpy() / 100.0, LABELS),
        lambda fitted: fitted.posterior_.mean,
    ),
    "sequences": (
        lambda: vips.CategoricalHMM(2, n_symbols=3, max_length=4, privacy=BUDGET),
        (RNG.integers(0, 3, (500, 4)).ravel(), np.full(500, 4)),
        lambda fitted: fitted.last_posterior_.moves.concentration,
    ),
    "pipeline": (
        lambda: make_private_pipeline(
            TableEncoder(COLUMNS), vips.BayesianLogisticRegression(max_norm=2.0), privacy=BUDGET
        ),
        (TABLE, LABELS),
        lambda fitted: fitted[-1].posterior_.mean,
    ),
    "encoder": (lambda: TableEncoder(COLUMNS, privacy=BUDGET), (TABLE,), lambda fitted: fitted.transform(TABLE[:50])),
    "words": (
        lambda: PrivateCountVectorizer(privacy=BUDGET),
        (LETTERS,),
        lambda fitted: fitted.get_feature_names_out(),
    ),
    "tables": (
        lambda: ClassTables({"ward": ["A", "B"]}, privacy=BUDGET, classes=[0, 1]),
        (TABLE, LABELS),
        lambda fitted: fitted.transform(TABLE[:50]),
    ),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_an_estimator_is_as_it_was(kind, tmp_path):
    make, records, result = ESTIMATORS[kind]
    ledger = vips.PrivacyLedger(tmp_path / "people.ledger", 1.1, 1e-6, "people")
    estimator = make()
    with pytest.raises((TypeError, ValueError)):
        estimator.fit(3)
    assert not fitted_attributes(estimator)

    estimator.fit(*records, ledger=ledger)
    before, report, attributes = result(estimator), estimator.privacy_, set(vars(estimator))
    with pytest.raises((TypeError, ValueError)):
        estimator.fit(3)
    with pytest.raises(vips.PrivacyBudgetError):
        estimator.fit(*records, ledger=ledger)
    np.testing.assert_array_equal(result(estimator), before)
    assert estimator.privacy_ == report
    assert set(vars(estimator)) == attributes


@pytest.mark.parametrize("kind", ["model", "pipeline"])
def test_an_interrupted_fit_leaves_the_last_one(kind, monkeypatch):
    make, records, result = ESTIMATORS[kind]
    estimator = make().fit(*records)
    before = result(estimator)
    sums = []

    def interrupted(*arguments):
        sums.append(arguments)
        if len(sums) == 3:
            raise KeyboardInterrupt
        return clipped_sum(*arguments)

    clipped_sum = engine.clipped_sum
    monkeypatch.setattr(engine, "clipped_sum", interrupted)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(*records)
    assert len(sums) == 3
    np.testing.assert_array_equal(result(estimator), before)


@pytest.mark.parametrize(
    "model", [vips.GaussianHMM(2), vips.CategoricalHMM(2, n_symbols=3), vips.LinearDynamicalSystem(1)]
)
@pytest.mark.parametrize("name", ["score", "score_samples", "predict", "bic", "plot_forecast"])
def test_nothing_is_asked_of_a_model_that_is_not_fitted(model, name):
    if hasattr(model, name):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(model, name)(np.zeros((4, 1)))
