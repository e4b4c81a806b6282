"""A pipeline of scikit-learn whose steps before a private model learn nothing."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from tests.laws.cases import BetaBernoulli, SecondMoments
from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyLedger, PrivacyPlan
from vips.preprocessing import TableEncoder

PLAN = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3)
REPRODUCIBLE = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3, clip_norm=2.0, reproducible_noise=True)
COLUMNS = {"colour": ["red", "green"], "age": (0, 100)}
LETTERS = ["the ship at sea", "a storm"] * 20


def table(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.uniform(0, 100, n), "colour": rng.choice(["red", "green", "other"], n)})


def moments(records, encoder=None):
    model = SecondMoments(privacy=REPRODUCIBLE, random_state=0)
    return make_pipeline(encoder or TableEncoder(COLUMNS), model).fit(records)[-1].last_posterior_["second"]


def test_the_fit_is_that_of_the_encoded_table():
    alone = SecondMoments(privacy=REPRODUCIBLE, random_state=0).fit(TableEncoder(COLUMNS).fit_transform(table()))
    np.testing.assert_array_equal(moments(table()), alone.last_posterior_["second"])


def test_a_defective_cell_is_a_missing_one():
    """A cell that cannot be read counts as missing, a missing number as the middle of its bounds."""
    worse = pd.DataFrame({"age": [np.nan, np.inf, 30.0], "colour": ["red", [1], None]})
    plain = pd.DataFrame({"age": [50.0, 50.0, 30.0], "colour": ["red", "other", "other"]})
    for encoder in (TableEncoder(COLUMNS), TableEncoder(COLUMNS, unit_norm=False, sparse_output=True)):
        tables = (pd.concat([table(), rows], ignore_index=True) for rows in (worse, plain))
        np.testing.assert_array_equal(*(moments(rows, encoder) for rows in tables))
    assert np.isfinite(moments(table(0))).all()


def test_a_ledger_around_the_fit_is_charged_and_arguments_reach_the_model(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger", epsilon=50.0, delta=1e-5, dataset="coins")
    encoder, coins = TableEncoder([(0, 1)] * 5), np.eye(5)
    with ledger:
        make_pipeline(encoder, BetaBernoulli(PLAN)).fit(coins)
    fitted = make_pipeline(encoder, BetaBernoulli(PLAN)).fit(
        coins, betabernoulli__ledger=ledger, betabernoulli__checkpoint=tmp_path / "fit"
    )
    assert [run.state for run in ledger.runs()] == ["complete"] * 2
    assert fitted[-1].privacy_.ledger["dataset"] == "coins"
    assert (tmp_path / "fit").exists()
    with config_context(enable_metadata_routing=True):
        model = BetaBernoulli(PLAN).set_fit_request(ledger=True)
        make_pipeline(encoder, model).fit(coins, ledger=ledger)
    assert len(ledger.runs()) == 3


def test_scikit_learn_scores_it():
    X, y = table(400), np.tile([0, 1], 200)
    X.loc[y == 1, "age"] = 90.0
    model = BayesianLogisticRegression(max_norm=1.0, privacy=PrivacyPlan.non_private(n_steps=3))
    assert cross_val_score(make_pipeline(TableEncoder(COLUMNS), model), X, y, cv=2).min() > 0.8


@pytest.mark.parametrize(
    ("words", "n_words"),
    [
        (CountVectorizer(vocabulary=["sea", "ship", "storm"]), 3),
        (HashingVectorizer(n_features=64, alternate_sign=False, norm=None, dtype=np.int64), 64),
    ],
)
def test_declared_or_hashed_words_are_counted(words, n_words):
    model = LatentDirichletAllocation(2, vocabulary=n_words, privacy=REPRODUCIBLE, random_state=0)
    fitted = make_pipeline(words, model).fit(LETTERS)
    alone = LatentDirichletAllocation(2, vocabulary=n_words, privacy=REPRODUCIBLE, random_state=0)
    np.testing.assert_array_equal(fitted[-1].components_, alone.fit(words.transform(LETTERS)).components_)
    assert fitted.transform(["sea"]).shape == (1, 2)
