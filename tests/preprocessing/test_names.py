"""Tables and pictures of a model in a pipeline name its columns as the steps before it do."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import vips
from vips import BayesianGaussianMixture, BayesianLogisticRegression, PrivacyBudget, PrivacyPlan, ProbabilisticPCA
from vips.preprocessing import TableEncoder, make_private_pipeline

TABLE = pd.DataFrame(np.random.default_rng(0).uniform(0.0, 9.0, (300, 2)), columns=["age", "length of stay"])
ENCODER = TableEncoder({"age": (0.0, 9.0), "length of stay": (0.0, 9.0)})
PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=4)
MODELS = {
    "mixture": lambda **settings: BayesianGaussianMixture(1, **settings),
    "principal components": lambda **settings: ProbabilisticPCA(1, **settings),
}


def names_in(table):
    return [name for name in TABLE if any(name in str(label) for label in (*table.index, *table.columns))]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_tables_have_names_after_public_steps(make):
    pipeline = make_pipeline(ENCODER, make(privacy=PLAN, max_norm=1.5)).set_output(transform="pandas").fit(TABLE)
    assert names_in(pipeline[-1].summary()) == list(TABLE)
    model = pipeline[-1].fit(np.zeros((20, 3)))  # other columns, without names
    assert model.column_names() == ["x0", "x1", "x2"]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_tables_have_names_after_a_private_encoder(make, tmp_path):
    pipeline = make_private_pipeline(TableEncoder(), make(), privacy=PrivacyBudget(5.0, 1e-6), n_steps=3).fit(TABLE)
    pipeline.save(tmp_path / "pipeline.vips")
    for fitted in (pipeline, vips.load(tmp_path / "pipeline.vips")):
        assert names_in(fitted[-1].summary()) == names_in(fitted.summary()) == list(TABLE)


def test_a_regression_in_a_pipeline_has_units_and_names():
    model = BayesianLogisticRegression(privacy=PLAN, max_norm=1.5)
    pipeline = make_pipeline(ENCODER, model).fit(TABLE, (TABLE["age"] > 4).astype(int))
    assert names_in(pipeline[-1].summary(features=pipeline[0])) == list(TABLE)
