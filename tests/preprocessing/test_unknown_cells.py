"""Predictions for rows of which a cell is missing or unknown: averages over what the fit has released."""

import numpy as np
import pandas as pd
import pytest

from vips import BayesianLinearRegression, BayesianLogisticRegression, PrivacyBudget, PrivateClassifier, compare, load
from vips.classification.log_odds import log_odds_of_tables
from vips.classification.tables import ClassTable, ColumnCells
from vips.parts import FeatureTotals
from vips.preprocessing import TableEncoder, make_private_pipeline

BUDGET = PrivacyBudget(1.0, 1e-6)
WARDS = list("ABCDE")
DECLARED = {"age": (0, 110), "ward": WARDS, "sex": ["F", "M"]}
WITH_BOTH = DECLARED | {"ward": [*WARDS, "(other)", "(missing)"]}
LEARNT = {"age": "number", "ward": "category", "sex": "category"}


def visits(n=20_000, hole=0.0, seed=0):
    """Ward and age decide; E is nearly empty. A share of the wards is missing."""
    rng = np.random.default_rng(seed)
    age, wards = rng.integers(18, 60, n).astype(float), rng.choice(WARDS, n, p=[0.5, 0.3, 0.15, 0.049, 0.001])
    table = pd.DataFrame({"age": age, "ward": wards, "sex": rng.choice(["F", "M"], n)})
    effect = table["ward"].map({"A": 0.0, "B": 0.8, "C": -1.0, "D": 1.5, "E": 0.0})
    log_odds = 0.04 * (table["age"] - 45) + effect + 0.3 * (table["sex"] == "M") - 0.8
    ill = (rng.random(n) < 1.0 / (1.0 + np.exp(-log_odds))).to_numpy().astype(int)
    return table.assign(ward=table["ward"].where(rng.random(n) >= hole, None)), ill


def unknown(table):
    """The same rows, where a column is missing, or holds what nobody has declared."""
    return [table.assign(ward=None), table.assign(ward="Z"), table.assign(age=np.nan), table.assign(sex="X")]


def logistic(columns, **settings):
    return make_private_pipeline(TableEncoder(columns), BayesianLogisticRegression(**settings), privacy=BUDGET)


@pytest.mark.parametrize("hole", [0.0, 0.3])
@pytest.mark.parametrize("columns", [DECLARED, WITH_BOTH, LEARNT], ids=["declared", "with both", "learnt"])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.representatives("full-declared-0.0", "diagonal-learnt-0.3")
def test_the_mean_risk_of_rows_with_an_unknown_cell_is_that_of_all(columns, hole, covariance):
    table, ill = visits(hole=hole)
    pipeline = logistic(columns, covariance=covariance).fit(table, ill)
    for rows in unknown(table):
        assert pipeline.predict_proba(rows)[:, 1].mean() == pytest.approx(ill.mean(), abs=0.03)


@pytest.mark.repeated("learnt")
@pytest.mark.parametrize("columns", [DECLARED, LEARNT], ids=["declared", "learnt"])
def test_a_classifier_averages_too(columns):
    table, ill = visits()
    classifier = PrivateClassifier(columns, privacy=BUDGET).fit(table, ill)
    for rows in unknown(table):
        assert classifier.predict_proba(rows)[:, 1].mean() == pytest.approx(ill.mean(), abs=0.05)


def test_noise_in_the_cells_of_a_classifier_that_say_nothing_does_not_count():
    """Those of other categories and of missing values: whatever the noise, their log odds are those of all records."""
    cells, class_counts = ColumnCells("category", (), ("A", "B")), np.array([1000.0, 500.0])
    log_odds = []
    for noise in ([[-9.0, 12.0], [14.0, -11.0]], [[12.0, -10.0], [-14.0, 13.0]]):
        table = ClassTable(cells, np.hstack([[[800.0, 200.0], [200.0, 300.0]], noise]))
        log_odds.append(log_odds_of_tables({"x": table}, class_counts, std=8.0)["x"][0])
    np.testing.assert_allclose(log_odds[0][2:], log_odds[1][2:], atol=0.02)
    assert log_odds[0][0] < log_odds[0][2] == log_odds[0][3] < log_odds[0][1]
    seen = ClassTable(cells, np.array([[800.0, 200.0, 50.0, 0.0], [200.0, 300.0, 400.0, 0.0]]))
    of_records = log_odds_of_tables({"x": seen}, class_counts, std=8.0)["x"][0][2]
    assert of_records > log_odds[0][2] + 0.5  # no noise


def test_a_linear_regression_averages_too():
    table, ill = visits()
    model = BayesianLinearRegression(target_range=(0, 1))
    pipeline = make_private_pipeline(TableEncoder(DECLARED), model, privacy=BUDGET, n_steps=1).fit(table, ill)
    for rows in unknown(table):
        assert pipeline.predict(rows).mean() == pytest.approx(ill.mean(), abs=0.03)


def test_several_classes_average_too():
    table, ill = visits(8_000)
    classes = ill + 2 * (np.arange(len(ill)) % 4 == 0)
    pipeline = logistic(DECLARED, classes=[0, 1, 2, 3]).fit(table, classes)
    shares = np.bincount(classes) / len(classes)
    for rows in unknown(table):
        np.testing.assert_allclose(pipeline.predict_proba(rows).mean(axis=0), shares, atol=0.04)


def test_a_file_and_a_comparison_keep_the_averages(tmp_path):
    table, ill = visits(4_000)
    pipeline = logistic(LEARNT).fit(table, ill)
    pipeline.save(tmp_path / "p.vips")
    loaded, rows = load(tmp_path / "p.vips"), table.assign(ward="Z")
    np.testing.assert_array_equal(loaded.predict_proba(rows), pipeline.predict_proba(rows))
    of_own = pipeline.predict_proba(rows)[np.arange(len(ill)), ill]
    row = compare(pipeline, pipeline, rows, ill)
    assert row["log-loss (lower is better)"].private == pytest.approx(-np.log(of_own).mean())


@pytest.mark.parametrize("sparse", [False, True])
def test_averages_follow_from_what_was_released(sparse):
    wards = ["A", "B", "(other)", "(missing)"]
    columns = {"age": (0, 100), "bmi": (0, 40, "(missing)"), "ward": wards, "sex": ["F", "M"]}
    encoder = TableEncoder(columns, sparse_output=sparse).fit(pd.DataFrame(columns=list(columns), dtype=object))
    #                   age  bmi        A     B    other  missing  F    M
    squares = np.array([9.0, 9.0, 2.0, 30.0, 10.0, 2.0, 50.0, 1.0, 2.0])
    means = 0.5 * np.array([-0.4, 0.2, 0.0, 0.3, 0.1, 0.0, 0.5, 0.5, 0.5])  # ½ = 1 / √4 columns
    rows = pd.DataFrame([[None] * 4, ["x", "x", "x", "x"], [50, 40, "B", "M"]], columns=list(columns), dtype=object)
    features = encoder.averaged(rows, FeatureTotals(squares, np.ones(9), means))
    features = features.toarray() if sparse else features
    average = [30 / 90, 10 / 90, 0.0, 50 / 90]
    expected = [
        [-0.4, 0.2, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5, 0.5],  # missing wards were in the fit, missing bmis were not
        [-0.4, 0.2, 0.0, *average, 0.5, 0.5],  # no other wards were; of the sexes all is noise
        [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
    ]
    np.testing.assert_allclose(2.0 * features, expected)
    assert np.linalg.norm(features, axis=1).max() <= encoder.max_norm
