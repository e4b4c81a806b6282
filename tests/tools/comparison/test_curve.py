"""Scores against ε: what is charged, what needs permission, and the label of each number."""

from dataclasses import replace

import numpy as np
import pytest

from tests.tools.comparison import report_cases
from vips import BayesianLogisticRegression, PrivacyBudget, PrivacyLedger, PrivacyPlan, privacy_utility_curve
from vips.preprocessing import TableEncoder, make_private_pipeline
from vips.tools.comparison.curve import NO_GUARANTEE
from vips.tools.comparison.page import MEANS, utility_view

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=10)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (4000, 3))
    y = (rng.random(4000) < 1.0 / (1.0 + np.exp(-X @ [6.0, -6.0, 0.0]))).astype(int)
    return X[:3000], y[:3000], X[3000:], y[3000:]


def model(**arguments):
    return BayesianLogisticRegression(privacy=PLAN, max_norm=1.0, **arguments)


def curve_of(estimator, epsilons, data, **more):
    """The curve whose scores are those of public test data."""
    X, y, X_test, y_test = data
    return privacy_utility_curve(
        estimator, X, epsilons, y, delta=1e-5, X_public_test=X_test, y_public_test=y_test, **more
    )


def test_scores_rise_with_epsilon_and_are_labelled(data):
    curve = curve_of(model(), [0.001, 4.0], data)
    assert curve.scores.shape == (2, 3)
    assert curve.scores[1].mean() > curve.scores[0].mean()
    assert curve.baseline is None
    assert "public test data" in str(curve)
    frame = curve.to_frame()
    assert len(frame) == 6
    assert set(frame["source"]) == {curve.source}
    assert len(set(curve.scores.ravel())) > 3  # every fit has its own noise
    assert "ε" in curve.plot().get_xlabel()


def test_private_scores_need_permission_and_say_what_they_are(data):
    X, y, _, _ = data
    with pytest.raises(ValueError, match="scores_are_private=True"):
        privacy_utility_curve(model(), X, [1.0], y, delta=1e-5)
    curve = privacy_utility_curve(model(), X, [1.0], y, delta=1e-5, n_repeats=2, scores_are_private=True)
    assert curve.baseline.shape == (2,)
    assert "PRIVATE" in str(curve)
    assert "not private" in str(curve)
    assert curve.to_frame()["source"].str.contains("PRIVATE").all()


@pytest.mark.parametrize("broken", [{"reproducible_noise": True}, {"on_invalid": "raise"}], ids=str)
def test_fits_without_a_guarantee_are_not_called_private(data, broken):
    seeded = model(on_invalid=broken.get("on_invalid", "drop"), random_state=0)
    seeded.privacy = replace(PLAN, reproducible_noise=broken.get("reproducible_noise", False))
    curve = curve_of(seeded, [1.0], data, n_repeats=1)
    assert curve.source == NO_GUARANTEE
    assert 'class="source unprotected"' in report_cases.section("utility", utility_view(curve))
    assert NO_GUARANTEE in MEANS


def test_every_fit_is_charged_to_an_open_ledger(data, tmp_path):
    X, y = data[:2]
    ledger = PrivacyLedger(tmp_path / "ledger.json", epsilon=10.0, delta=1e-4, dataset="curve")
    with ledger:
        curve_of(model(), [0.5, 1.0], data, n_repeats=2)
        with pytest.raises(ValueError, match="no budget can pay"):
            privacy_utility_curve(model(), X, [0.5], y, delta=1e-6, scores_are_private=True)
    assert len(ledger.runs()) == 4


def test_pipelines_and_plans_without_noise_are_refused_in_words(data):
    X, y = data[:2]
    encoder, budget = TableEncoder([(-1, 1)] * 3), PrivacyBudget(1.0, 1e-6)
    pipeline = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=budget)
    with pytest.raises(TypeError, match=r"PrivatePipeline.*set_params"):
        privacy_utility_curve(pipeline, X, [1.0], y, delta=1e-6, scores_are_private=True)

    with pytest.raises(ValueError, match="private plan"):
        curve_of(BayesianLogisticRegression(), [1.0], data)
    with pytest.raises(ValueError, match="at least one fit"):
        curve_of(model(), [], data)


@pytest.mark.slow
def test_own_scores_and_processes(data):
    curve = curve_of(model(), [1.0], data, score=largest, n_jobs=2, n_repeats=2)
    assert (curve.scores > 0.0).all()


def largest(fitted, X, y):
    return np.abs(fitted.coef_).max()
