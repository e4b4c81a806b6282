"""Biases and weights of belief networks given noisy totals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from vips import PrivacyPlan, PrivacyWarning, SigmoidBeliefNetwork


def records(n_records, n_visible, rng):
    """Parameters and records of a network with one hidden unit, which every record determines."""
    c, w, b = rng.normal(size=n_visible), 3.0 * rng.choice([-1.0, 1.0], n_visible), rng.normal(scale=0.5)
    z = rng.random((n_records, 1)) < expit(b)
    return c, w, b, rng.random((n_records, n_visible)) < expit(z * w + c)


def fitted(X, noise_multiplier, **arguments):
    plan = PrivacyPlan(noise_multiplier=noise_multiplier, sampling_rate=1.0, n_steps=20)
    model = SigmoidBeliefNetwork(1, privacy=plan, random_state=0, **arguments)
    model.n_features_in_ = X.shape[1]
    model.privacy = replace(plan, clip_norm=model.max_norm())
    return model.fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_noise_aware_errors_are_those_of_repeated_fits(covariance):
    """Over fits to one data set with new noise, hidden biases scatter as much as the noise-aware variance adds."""
    _, _, _, X = records(4000, 40, np.random.default_rng(0))
    found = []
    for _ in range(20):
        model = fitted(X, 5.0, covariance=covariance)
        aware, naive = model.noise_aware_posterior_, model.posterior_
        added = aware.hidden_bias.var[0] - 1.0 / 4000 / 0.25
        found.append((naive.hidden_bias.mean[0], added, aware.visible_bias.var.mean(), naive.visible_bias.var.mean()))
    means, added, aware, naive = np.array(found).T
    # a unit may be found with its sign turned; a fit in twenty does not find it at all
    scatter = 1.4826 * np.median(np.abs(np.abs(means) - np.median(np.abs(means))))
    assert 0.45 < scatter / np.sqrt(np.median(added)) < 1.9
    assert (aware > naive).all()


@pytest.mark.slow
def test_intervals_of_the_hidden_bias_hold_the_truth():
    held = []
    for seed in range(12):
        _, w, b, X = records(3000, 60, np.random.default_rng(seed))
        model = fitted(X, 3.0)
        sign = np.sign(model.posterior_.weights.mean[:, 0] @ w)
        bounds = (p.interval(0.95)["hidden_bias"] for p in (model.posterior_, model.noise_aware_posterior_))
        held.append([bool(lower[0] < sign * b < upper[0]) for lower, upper in bounds])
    naive, aware = np.mean(held, axis=0)
    assert naive < 0.8
    assert aware > max(0.5, naive)


def test_the_default_clip_is_warned_of():
    _, _, _, X = records(200, 10, np.random.default_rng(0))
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=3)
    model = SigmoidBeliefNetwork(2, privacy=plan).fit(X)
    with pytest.warns(PrivacyWarning, match="max_norm"):
        lower, upper = model.noise_aware_posterior_.interval(0.9)["visible_bias"]
    assert (lower < upper).all()
