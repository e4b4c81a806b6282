"""Averages in moving coordinates: a model whose totals are taken about its own last mean."""

from __future__ import annotations

import numpy as np
import pytest

from tests.steps import Stop, stopped_after
from vips import Block, ConjugateExponentialModel, DenseStatistics, PrivacyPlan
from vips.core.mechanism.release import IndependentNoise, Mechanism

STEP_SIZES = (1.0, 0.5, 0.7, 0.4)


class CentredMean(ConjugateExponentialModel):
    """Σ (x - m) and the number of records, with m the mean of the last posterior."""

    def __init__(self, privacy=None, random_state=None):
        self.privacy, self.random_state = privacy, random_state

    def blocks(self):
        return {"sum": Block((self.n_features_in_,)), "count": Block(())}

    def initial(self, rng):
        return {"sum": np.full(self.n_features_in_, 7.0), "count": np.array(1.0)}

    def step_size(self, t):
        return STEP_SIZES[t - 1]

    def max_record_norm(self):
        return 1e6

    def expected_statistics(self, records, posterior):
        return DenseStatistics({"sum": records - posterior["mean"], "count": np.ones(len(records))})

    def to_posterior(self, average, noise_std, previous):
        old = np.zeros(self.n_features_in_) if previous is None else previous["mean"]
        return {"mean": old + average["sum"] / max(average["count"], 1.0)}

    def transport(self, average, noise_std, previous, posterior):
        move = posterior["mean"] - previous["mean"]
        moved = {"sum": average["sum"] - average["count"] * move, "count": average["count"]}
        of_sum = np.hypot(noise_std["sum"], np.abs(move) * noise_std["count"])
        return moved, {"sum": of_sum, "count": noise_std["count"]}


def fitted(X, **settings):
    plan = PrivacyPlan(noise_multiplier=0.05, sampling_rate=1.0, n_steps=4, clip_norm=100.0, reproducible_noise=True)
    return CentredMean(privacy=plan, random_state=1).fit(X, **settings)


X = np.random.default_rng(0).normal(3.0, 1.0, (50, 2))


def test_an_average_is_carried_to_the_coordinates_of_the_next_step():
    plan = PrivacyPlan.non_private(n_steps=4)
    posterior = CentredMean(privacy=plan).fit(X).last_posterior_
    np.testing.assert_allclose(posterior["mean"], X.mean(axis=0), rtol=1e-12)
    lost = CentredMean(privacy=plan)
    lost.transport = lambda average, noise_std, *_: (average, noise_std)
    assert np.abs(lost.fit(X).last_posterior_["mean"] - X.mean(axis=0)).max() > 0.1


def moving_once(average, noise_std, previous):
    """Before the last step. More moves would make the noise in the two blocks dependent, which this model does not follow."""
    step = 0 if previous is None else previous["step"] + 1
    return {"mean": np.full(2, 3.0 * (step >= 3)), "step": step}


def deviations(n_fits):
    """Deviation of what was released last over many fits to no record, and the stated one."""
    sums, stated = [], []
    for seed in range(n_fits):
        plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=4, clip_norm=5.0, reproducible_noise=True)
        model = CentredMean(privacy=plan, random_state=seed)
        model.to_posterior = moving_once
        totals = model.fit(np.zeros((0, 2))).noisy_totals_
        sums.append(totals.average["sum"])
        stated.append(totals.noise_std["sum"])
    return np.sqrt(np.mean(np.square(sums))), np.mean(stated)


def test_the_noise_is_carried_too(monkeypatch):
    deviation, stated = deviations(400)
    assert stated == pytest.approx(deviation, rel=0.1)
    monkeypatch.setattr(IndependentNoise, "carry", lambda self, noise_std: None)
    deviation, stated = deviations(100)
    assert stated < 0.8 * deviation


def test_a_resumed_fit_goes_on_in_the_same_coordinates(tmp_path):
    whole, path = fitted(X), tmp_path / "fit.vips"
    plan = whole.privacy
    with pytest.raises(Stop):
        stopped_after(CentredMean(privacy=plan, random_state=1), 2).fit(X, checkpoint=path)
    resumed = fitted(X, checkpoint=path)
    np.testing.assert_array_equal(resumed.last_posterior_["mean"], whole.last_posterior_["mean"])
    for name, std in whole.noisy_totals_.noise_std.items():
        np.testing.assert_array_equal(resumed.noisy_totals_.noise_std[name], std)


def test_noise_that_depends_on_earlier_steps_is_not_carried():
    class Correlated(Mechanism):
        def release(self, total, step):
            raise AssertionError

        def std_of_average(self, step_size):
            raise AssertionError

    with pytest.raises(NotImplementedError, match="Correlated does not carry"):
        Correlated().carry({})
