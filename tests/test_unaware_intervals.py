"""Intervals that do not know the noise of a private fit say so, and released totals tell whether it has settled."""

import warnings

import numpy as np
import pytest
from scipy.special import expit

from tests.own_model import GaussianMean
from vips import BayesianLogisticRegression, PrivacyPlan, PrivacyWarning, load
from vips.core.sums import NoisyTotals, ReleasedStep
from vips.expfam import DiagonalGaussian, Dirichlet, Draws, Gamma, Gaussian, GeneralizedInverseGaussian
from vips.expfam.dirichlet import ScaledDirichlet
from vips.settling import drift

ROWS = np.random.default_rng(0).normal(0.5, 1.0, (2000, 2)).clip(-2.0, 2.0)
PLAN = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=16)


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught if warning.category is PrivacyWarning]


@pytest.mark.parametrize("family", [
    DiagonalGaussian(np.zeros(2), np.ones(2)), Gaussian(np.zeros(2), np.eye(2)), Gamma(2.0, 1.0), Dirichlet(np.ones(3)),
    Draws(np.ones((5, 2))), GeneralizedInverseGaussian(np.ones(2), np.ones(2)), ScaledDirichlet(np.ones(2), np.ones(2)),
], ids=lambda family: type(family).__name__)  # fmt: skip
def test_every_family_passes_the_word_on(family):
    assert not warned(lambda: family.interval(0.9))
    family.unaware = "The reason."
    assert ["The reason." in word for word in warned(lambda: family.interval(0.9))] == [True]


class InParts(GaussianMean):
    """Whose posterior is a dict."""

    def to_posterior(self, average, noise_std, previous):
        return {"mean": super().to_posterior(average, noise_std, previous), "count": average["count"]}


def test_intervals_of_an_unmatched_private_fit_warn(tmp_path):
    for model in (GaussianMean(), GaussianMean().fit(ROWS), InParts(privacy=PLAN).fit(ROWS)):
        assert not warned(lambda model=model: getattr(model, "posterior_", None)), "reading alone says nothing"
    assert not warned(lambda: GaussianMean().fit(ROWS).posterior_.interval(0.9))
    model = GaussianMean(privacy=PLAN).fit(ROWS)
    model.save(tmp_path / "model")
    for fitted in (model, load(tmp_path / "model", model_class=GaussianMean)):
        (word,) = warned(lambda fitted=fitted: fitted.posterior_.interval(0.9))
        assert "does not know the noise" in word
        assert fitted.why_no_intervals() in word
        assert 0.0 < fitted.findings()["probability of so large a drift of the released totals"] <= 1.0
    (word,) = warned(lambda: InParts(privacy=PLAN).fit(ROWS).posterior_["mean"].interval(0.9))
    assert "does not know the noise" in word


def test_a_summary_of_statistics_as_in_the_paper_warns_too():
    y = (np.random.default_rng(1).random(2000) < expit(2.0 * ROWS[:, 0])).astype(int)
    model = BayesianLogisticRegression(statistics="paper", privacy=PLAN, max_norm=3.0).fit(ROWS, y)
    assert any("No interval knows the noise" in word for word in warned(model.summary))


def totals_of(values, average, std=0.1):
    steps = tuple(ReleasedStep(k + 1, {"a": value}, None) for k, value in enumerate(values))
    return NoisyTotals({"a": average}, {"a": std}, steps)


def test_released_totals_tell_a_drift_and_a_lag_from_noise():
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((300, 24, 5))
    quiet = [drift(totals_of(values, 0.1 * rng.standard_normal(5))) for values in noise]
    assert np.mean(np.array(quiet) < 0.01) <= 0.01
    moves = [drift(totals_of(values + 0.2 * np.arange(24.0)[:, None], np.full(5, 2.3))) for values in noise[:50]]
    lags = [drift(totals_of(values, np.full(5, 3.0))) for values in noise[:50]]
    assert max(moves) < 0.01
    assert max(lags) < 0.01
    assert np.isnan(drift(totals_of(noise[0, :5], np.zeros(5))))
    assert drift(totals_of(np.zeros((8, 5)), np.zeros(5), 0.0)) == 1.0
