"""A rehearsal is the whole private fit, on generated records and at no budget."""

import numpy as np
import pandas as pd
import pytest

from vips import (
    BayesianLogisticRegression,
    CategoricalHMM,
    DirichletMultinomial,
    PrivacyBudget,
    PrivacyLedger,
    PrivateClassifier,
    plan_for,
    rehearse,
)
from vips.datasets import make_table
from vips.exceptions import LedgerError
from vips.preprocessing import PrivateTopics, TableEncoder, make_private_pipeline

BUDGET = PrivacyBudget(2.0, 1e-6)
COLUMNS = {"age": (18, 100), "ward": ["A", "B", "C"], "admitted": "date"}


def visits(columns=COLUMNS):
    return make_private_pipeline(TableEncoder(columns), BayesianLogisticRegression(), privacy=BUDGET)


def test_stated_effects_come_back():
    effects = {"age": 0.05, "ward": {"A": 0.2, "B": 1.0}}
    rehearsal = rehearse(visits(), n_records=8_000, effects=effects, guess={"age": (60, 10), "ward": [2, 1, 1]})
    table = rehearsal.summary
    assert table["stated"].dropna().to_dict() == pytest.approx(
        {"age": 0.05, "ward: B against A": 0.8, "ward: C against A": -0.2}
    )
    off = (table["mean"] - table["stated"]).abs() / table["std"]
    assert off.max() < 5.0
    assert 1.8 < rehearsal.epsilon <= 2.0
    assert "of 3 intervals" in str(rehearsal)
    assert "admitted" in rehearsal.fitted[0].columns_  # learnt, as in the fit
    assert 1.9 < rehearsal.report.epsilon() <= 2.0  # in a ledger, thresholds have less


def test_records_may_be_given_with_persons_and_nothing_is_charged(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ours.ledger", 2.0, 1e-6, "Visits")
    rng = np.random.default_rng(0)
    table = make_table({"age": (18, 100)}, 3_000, random_state=rng)
    persons = pd.Series(rng.integers(0, 600, 3_000), name="patient")
    pipeline = visits({"age": (18, 100)})
    rehearsal = rehearse(pipeline, n_records=1_000, like=(table.data, rng.integers(0, 2, 3_000), persons))
    assert "all rows of one" in rehearsal.report.unit
    assert not hasattr(pipeline, "steps_")
    assert ledger.spent() == 0.0
    assert [path.name for path in tmp_path.iterdir()] == ["ours.ledger"]


def test_a_ledger_does_not_pay_for_other_records(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ours.ledger", 1000.0, 0.01, "Visits")
    shares = DirichletMultinomial(privacy=BUDGET)
    plans = [
        lambda: plan_for(shares, n_records=8_000, privacy=BUDGET, like=(np.eye(3)[np.arange(300) % 3],)),
        lambda: rehearse(shares, n_records=300, like=(np.eye(3)[np.arange(300) % 3],)),
    ]
    for plan in plans:
        with ledger, pytest.raises(LedgerError, match="before the block, or after it"):
            plan()
        plan()
    assert ledger.spent() == 0.0


@pytest.mark.slow
def test_sequences_are_rehearsed_and_plans_have_room():
    settings = {"n_symbols": 4, "max_length": 8, "typical_length": 6, "random_state": 0}
    rehearsal = rehearse(CategoricalHMM(2, privacy=BUDGET.plan(n_steps=20), **settings), n_records=500)
    assert rehearsal.fitted.transmat_.shape == (2, 2)
    assert rehearsal.epsilon > 1.5


def test_a_classifier_whose_columns_have_names_is_rehearsed():
    model = PrivateClassifier({"age": (18, 100), "ward": ["A", "B"]}, classes=["no", "yes"], privacy=BUDGET)
    rehearsal = rehearse(model, n_records=3_000, effects={"age": 0.1}, random_state=0)
    assert rehearsal.fitted.classes_.tolist() == ["no", "yes"]
    table = make_table(model.columns, 3_000, effects={"age": 0.1}, random_state=1)
    older = rehearsal.fitted.predict_proba(table.data)[table.data["age"] > 70, 1].mean()
    assert older > rehearsal.fitted.predict_proba(table.data)[table.data["age"] < 45, 1].mean() + 0.3


@pytest.mark.parametrize(
    ("model", "settings", "says"),
    [
        (BayesianLogisticRegression(max_norm=1.0), {}, "its `privacy`"),
        (BayesianLogisticRegression(max_norm=1.0, privacy=BUDGET), {}, "n_features="),
        (BayesianLogisticRegression(max_norm=1.0, privacy=BUDGET), {"effects": {"x0": 1.0}}, "columns have names"),
        (visits(), {"effects": {"weight": 1.0}}, "not declared: weight"),
        (visits(), {"effects": {"age": 1.0}, "like": (np.zeros((3, 1)), np.zeros(3))}, "not both"),
        (visits(), {"n_records": 0}, "n_records"),
        (visits().set_params(max_weight=4.0), {}, "leave `max_weight` out"),
        (BayesianLogisticRegression(max_norm=1.0, privacy=BUDGET.plan(max_weight=4.0)), {}, "leave `max_weight` out"),
        (PrivateTopics(privacy=BUDGET), {}, "or it takes texts"),
        ("visits", {}, "model or a pipeline"),
    ],
)
def test_bad_arguments_are_named(model, settings, says):
    with pytest.raises((TypeError, ValueError), match=says):
        rehearse(model, **({"n_records": 500} | settings))


def test_a_table_is_drawn_as_declared():
    columns = {"age": (18, 100, "(missing)"), "score": (0.0, 1.0), "ward": ["A", "(other)", "(missing)"], "day": "date"}
    table = make_table(columns, 4_000, guess={"age": (30.0, 5.0)}, effects={"ward": {"A": 1.0}}, random_state=1)
    assert list(table.data) == list(columns)
    assert table.data["age"].mean() == pytest.approx(30.0, abs=0.5)
    assert 0.05 < table.data["age"].isna().mean() < 0.15
    assert table.data["age"].dropna().mod(1.0).eq(0.0).all()  # whole bounds, whole numbers
    assert table.data["score"].between(0.0, 1.0).all()
    assert table.data["day"].dtype.kind == "M"
    assert table.predictor[table.data["ward"] == "A"].mean() > 0.5
    assert table.predictor.mean() == pytest.approx(0.0, abs=1e-9)
    encoder = TableEncoder({name: columns[name] for name in ("age", "score", "ward")})
    assert encoder.fit_transform(table.data).shape == (4_000, encoder.n_features_out)
