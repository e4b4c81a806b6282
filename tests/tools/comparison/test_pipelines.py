"""Pipelines in a comparison."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vips import BayesianLogisticRegression, PrivacyBudget, PrivacyPlan, PrivateTopics, compare
from vips.preprocessing import TableEncoder, make_private_pipeline

PLAN = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=5)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(18, 90, 4000), "town": rng.choice(["A", "B"], 4000)})
    return table, (table["age"] + 30 * (table["town"] == "A") + rng.normal(0, 20, 4000) > 70).to_numpy()


def pipeline(**settings):
    model = BayesianLogisticRegression(**settings)
    return make_private_pipeline(TableEncoder(), model, privacy=PrivacyBudget(1.0, 1e-6), n_steps=5)


@pytest.fixture(scope="module")
def private(people):
    return pipeline().fit(*people)


@pytest.fixture(scope="module")
def baseline(people, private):
    table, y = people
    return clone(private[-1]).set_params(privacy=None).fit(private[:-1].transform(table), y)


def test_a_private_pipeline_is_compared_as_its_model_is(people, private, baseline):
    table, y = people
    comparison = compare(private, baseline, table, y)
    of_model = compare(private[-1], baseline, private[:-1].transform(table), y)
    scores = [[row for row in one.rows if "X_test" in row.source] for one in (comparison, of_model)]
    assert scores[0] == scores[1] != []
    assert baseline.names_of_columns is None


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.repeated("diagonal")
def test_coefficients_are_those_of_the_summary(people, covariance):
    """In units of the columns, against references: a common shift of a column's levels and the intercept changes nothing."""
    table, y = people
    private = pipeline(covariance=covariance).fit(table, y)
    ordinary = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=50)  # a diagonal one would take 4,000
    baseline = clone(private[-1]).set_params(privacy=ordinary).fit(private[:-1].transform(table), y)
    comparison = compare(private, baseline)
    ours, theirs = private.summary(), baseline.summary(features=private[0])
    movement = comparison.movements[0]
    assert [movement.name(i) for i in range(len(ours))] == ours.index.tolist()
    np.testing.assert_allclose(movement.means, [ours["mean"], theirs["mean"]], rtol=1e-6)
    np.testing.assert_allclose(movement.stds, [ours["std"], theirs["std"]], rtol=1e-6)
    assert {mover.name for mover in comparison.movers(9)} == set(ours.index)
    sizes = (ours["mean"] - theirs["mean"]).abs() / np.sqrt((ours["std"] ** 2 + theirs["std"] ** 2) / 2)
    assert f"moved most is {sizes.idxmax()}, from " in str(comparison)
    assert f"by {sizes.max():.2g} pooled posterior standard deviations" in str(comparison)
    largest = comparison["shift in pooled standard deviations, largest, coefficients in units of the columns"]
    assert largest.value == pytest.approx(sizes.max())


def test_the_statement_counts_the_encoder_and_the_delta_of_its_threshold(private, baseline, tmp_path):
    for comparison in (compare(private, baseline), compare(baseline, private)):
        ours, _ = comparison.privacy
        assert ours == private.privacy_ == private[-1].privacy_
        assert "ε = 1 " in comparison.private
    comparison.to_html(tmp_path / "report.html")
    assert "bounds of 1 column" in (tmp_path / "report.html").read_text()
    compare(private, private).to_html(tmp_path / "report.html")
    plans = [private[0].privacy_.plan, private[-1].privacy_.plan]
    noise = sum(plan.n_steps / plan.noise_multiplier**2 for plan in plans)
    one = PrivacyPlan(noise_multiplier=(2 * noise) ** -0.5, sampling="full", n_steps=1)
    expected = one.epsilon(1e-6 - 2 * private[0].privacy_.releases[0].threshold_delta)
    assert f'<strong class="whole">ε = {expected:.4g}</strong>' in (tmp_path / "report.html").read_text()


def test_arms_of_a_pipeline_are_fitted_to_its_columns(people, private, baseline):
    table, y = people
    comparison = compare(private, baseline, X=table, y=y, may_use_private_data=True)
    shares = [comparison[f"share of {what} in the shift of parameters"].value for what in ("clipping", "noise")]
    assert sum(shares) == pytest.approx(1.0)
    neither = comparison["shift of parameters by neither (plain arm to baseline), root mean square"].value
    assert neither < 10.0  # deviations of the private fit: the arms were fitted to the same columns


def test_pipelines_with_other_columns_are_refused_with_a_way_out(people, private, baseline):
    table, y = people
    other = pipeline()
    with pytest.raises(NotFittedError):
        compare(other, baseline)
    with pytest.raises(ValueError, match=r"baseline.fit\(pipeline\[:-1\].transform\(X\), y\)"):
        compare(private, other.fit(table.assign(age=table["age"] / 1000), y))
    others = private[:-1].transform(table)
    frame = pd.DataFrame(others, columns=[f"other{i}" for i in range(others.shape[1])])
    with pytest.raises(ValueError, match="different features"):
        compare(private, clone(private[-1]).set_params(privacy=None).fit(frame, y))


def test_pipelines_with_the_same_declared_columns_are_compared(people):
    table, y = people
    fits = []
    for town, plan in (("AB", PLAN), ("AB", None), ("BA", None)):
        encoder = TableEncoder({"age": (18, 90), "town": list(town)})
        model = BayesianLogisticRegression(privacy=plan, max_norm=encoder.max_norm)
        fits.append(make_pipeline(encoder, model).fit(table, y))
    private, baseline, other = fits
    assert compare(private, baseline, table, y)["AUC (higher is better)"].private > 0.7
    with pytest.raises(ValueError, match="different columns"):
        compare(private, other)


def test_pipelines_whose_steps_may_learn_are_refused():
    X, y = np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 2
    model = BayesianLogisticRegression(privacy=PLAN, max_norm=1.0)
    with pytest.raises(TypeError, match="does not say what StandardScaler learnt"):
        compare(*(make_pipeline(StandardScaler(), clone(model)).fit(X, y) for _ in range(2)))
    frame, plan = pd.DataFrame(X, columns=["a", "b"]), PrivacyPlan(noise_multiplier=9.0, sampling="full", n_steps=1)
    for columns, learns in (({"a": (-3, 3), "b": (-3, 3)}, False), ({"a": (-3, 3), "b": "number"}, True)):
        fits = [make_pipeline(TableEncoder(columns, privacy=plan), clone(model)).fit(frame, y) for _ in range(2)]
        if learns:  # a release of its own, which the model's statement does not count
            with pytest.raises(TypeError, match="does not say what TableEncoder learnt"):
                compare(*fits)
        else:
            compare(*fits)


def test_topics_of_texts_with_the_same_words_are_compared():
    texts = ["the ship sails at sea", "rye and barley"] * 1000
    fits = [PrivateTopics(2, privacy=PrivacyBudget(epsilon, 1e-6), n_steps=2).fit(texts) for epsilon in (2.0, 4.0)]
    assert compare(*fits).privacy[1].epsilon() == pytest.approx(4.0, abs=1e-2)
