"""Noise-aware posteriors, compared with the exact posterior without noise, and how often their intervals hold the truth."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import vips
from tests.laws.cases import BetaBernoulli
from vips import (
    BayesianBinomialRegression,
    BayesianLogisticRegression,
    PrivacyPlan,
    PrivacyWarning,
)
from vips.expfam.gaussian import posterior_probabilities
from vips.models.regression.noise_aware import NoisySteps, _Curvatures, noise_aware_moments_of

ALPHA = 0.1


def table(n_records, d, rng, n_trials=1):
    """Rows of the unit ball, and labels of coefficients drawn from the prior."""
    X = rng.normal(size=(n_records, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    w, b = rng.normal(size=d) / np.sqrt(ALPHA), rng.normal()
    return X, rng.binomial(n_trials, expit(X @ w + b)), w


def unclipped(model):
    model.privacy = replace(model.privacy, clip_norm=model.max_record_norm())
    return model


def coverage(n_records, epsilon, n_fits, seed, sampling_rate=1.0):
    """Coverage of naive and of noise-aware 95 % intervals for coefficients drawn from the prior, and the ratio of widths."""
    rng, held, ratios = np.random.default_rng(seed), [], []
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=sampling_rate, n_steps=20)
    for _ in range(n_fits):
        X, y, w = table(n_records, 4, rng)
        model = unclipped(BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=ALPHA)).fit(X, y)
        own = []
        for posterior in (model.posterior_, model.noise_aware_posterior_):
            lower, upper = posterior.interval(0.95)
            own.append((lower[:4] < w) & (w < upper[:4]))
        held.append(own)
        ratios.append(np.median(model.noise_aware_posterior_.std[:4] / model.posterior_.std[:4]))
    return *np.mean(held, axis=(0, 2)), np.median(ratios)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_records", "epsilon", "sampling_rate"), [(500, 0.1, 1.0), (500, 1.0, 1.0), (5000, 1.0, 1.0), (5000, 8.0, 0.05)]
)
def test_intervals_hold_the_truth_where_naive_ones_do_not(n_records, epsilon, sampling_rate):
    naive, aware, ratio = coverage(n_records, epsilon, 12, n_records, sampling_rate)
    assert naive < 0.75
    assert aware > 0.72  # 0.92 or more, less four standard errors
    assert ratio > 1.3


@pytest.mark.slow
def test_without_noise_it_is_the_laplace_approximation_of_the_exact_posterior():
    """Steps without noise from different points, for a data set with known curvature."""
    rng = np.random.default_rng(0)
    X, y, _ = table(20_000, 4, rng)
    plan = PrivacyPlan.non_private(n_steps=200)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=ALPHA).fit(X, y)
    laplace = model.laplace_posterior(X, y)
    units = model._units()
    design = np.hstack([X, np.full((len(X), 1), model._intercept_constant())])
    exact = model.posterior_.mean * units
    omega = np.tanh(np.abs(design @ exact) / 2) / (2 * np.abs(design @ exact))
    precision = (design * omega[:, None]).T @ design
    means = exact + 0.3 * rng.normal(size=(6, 5))
    totals = np.array([design.T @ (y - expit(design @ mean)) for mean in means])
    prior = model._coefficient_prior().precision(ALPHA) / units**2
    steps = NoisySteps(means, totals, 0.0, 1.0, [precision], prior, model._intercept_constant())
    mean, cov = noise_aware_moments_of(steps, means[0])
    np.testing.assert_allclose(mean / units, laplace.mean, atol=0.4 * laplace.std.min())
    np.testing.assert_allclose(np.sqrt(np.diag(cov)) / units, laplace.std, rtol=0.03)


def test_curvature_from_omega_is_that_of_the_likelihood():
    rng = np.random.default_rng(1)
    for scale, shift in ((0.5, 0.0), (4.0, 0.0), (3.0, -2.0)):
        design = np.hstack([rng.normal(size=(200_000, 3)), np.full((200_000, 1), 0.25)])
        mu = np.array([scale, -0.5 * scale, 0.0, shift / 0.25])
        psi = design @ mu
        omega, slope = np.tanh(psi / 2) / (2 * psi), expit(psi) * expit(-psi)
        curvature = _Curvatures((design * omega[:, None]).T @ design, mu[None], 0.25)
        expected = (design * slope[:, None]).T @ design
        np.testing.assert_allclose(curvature.matrix(), expected, atol=0.02 * np.abs(expected).max())
        np.testing.assert_allclose(curvature.times(mu[None])[0], curvature.matrix() @ mu, rtol=1e-9)


def test_kept_steps_are_those_of_the_fit():
    """The points at which the steps computed their totals, and these noisy totals, recovered from the running average."""
    X, y, _ = table(2000, 3, np.random.default_rng(2))
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.7, n_steps=9)
    model = unclipped(BayesianLogisticRegression(privacy=plan, max_norm=2.0, prior=1.0))
    looked, totals = [], []
    original = PrivacyPlan.add_noise

    def watch(self, total, blocks, randomness, t):
        noisy = original(self, total, blocks, randomness, t)
        totals.append(noisy["linear"] / 0.7)
        return noisy

    update = model.to_posterior
    model.to_posterior = lambda average, noise_std, previous: (
        (previous is not None and looked.append(previous.mean * model._units())) or update(average, noise_std, previous)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivacyPlan, "add_noise", watch)
        model.fit(X, y)
    path, own = model._last_steps(0)
    assert path.shape == own.shape == (7, 4)
    np.testing.assert_allclose(path, looked[-7:])
    np.testing.assert_allclose(own, totals[-7:])


def test_a_clip_that_binds_is_warned_of_and_predictions_can_use_it(tmp_path):
    X, y, _ = table(3000, 3, np.random.default_rng(3))
    plan = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=20)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, influence="clipped").fit(X, y)
    with pytest.warns(PrivacyWarning, match="max_record_norm"):
        assert model.noise_aware_posterior_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = unclipped(BayesianLogisticRegression(privacy=plan, max_norm=1.0)).fit(X, y)
        aware = model.predict_proba(X[:200], noise_aware=True)
    naive = model.predict_proba(X[:200])
    assert aware.shape == naive.shape
    posterior, design = model.noise_aware_posterior_, np.hstack([X[:200], np.ones((200, 1))])
    variance = np.einsum("ni,ij,nj->n", design, posterior.cov, design)
    np.testing.assert_allclose(aware[:, 1], posterior_probabilities(design @ posterior.mean, variance), rtol=1e-6)
    assert np.abs(aware - naive).max() > 1e-3
    model.save(tmp_path / "model.npz")
    again = vips.load(tmp_path / "model.npz")
    assert again.noisy_totals_.noise_std == model.noisy_totals_.noise_std
    np.testing.assert_array_equal(again.noise_aware_posterior_.mean, model.noise_aware_posterior_.mean)


def test_several_outputs_and_counts_have_a_noise_aware_posterior():
    rng = np.random.default_rng(4)
    X, y, _ = table(3000, 3, rng, n_trials=4)
    plan = PrivacyPlan(noise_multiplier=5.0, sampling_rate=1.0, n_steps=10)
    counts = unclipped(BayesianBinomialRegression(n_trials=4, privacy=plan, max_norm=1.0)).fit(X, y)
    assert counts.noise_aware_posterior_.cov.shape == (4, 4)
    three = unclipped(BayesianLogisticRegression(classes=(0, 1, 2), privacy=plan, max_norm=1.0, fit_intercept=False))
    three.fit(X, np.minimum(y, 2))
    assert three.noise_aware_posterior_.mean.shape == (2, 3)
    assert (three.noise_aware_posterior_.std > three.posterior_.std).mean() > 0.5


def test_models_and_fits_without_a_noise_aware_posterior_say_so():
    X, y, _ = table(200, 3, np.random.default_rng(5))
    with pytest.raises(AttributeError, match="added no noise"):
        assert BayesianLogisticRegression().fit(X, y).noise_aware_posterior_
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    paper = BayesianLogisticRegression(statistics="paper", privacy=plan, max_norm=1.0).fit(X, y)
    with pytest.raises(AttributeError, match='statistics="centred"'):
        assert paper.noise_aware_posterior_
    other = BetaBernoulli(privacy=plan).fit((X > 0.0).astype(float))
    with pytest.raises(AttributeError, match="BetaBernoulli has no noise-aware posterior"):
        assert other.noise_aware_posterior_
    assert other.noisy_totals_.average


@pytest.mark.slow
def test_a_diagonal_covariance_can_be_noise_aware_for_independent_features():
    rng, held, plan = np.random.default_rng(6), [], PrivacyPlan.from_epsilon(
        epsilon=1.0, delta=1e-5, sampling_rate=1.0, n_steps=40
    )  # fmt: skip
    for _ in range(5):
        X, y, w = table(20_000, 20, rng)
        model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=ALPHA, covariance="diagonal")
        model = unclipped(model).fit(X + 0.05, y)
        bounds = (posterior.interval(0.95) for posterior in (model.posterior_, model.noise_aware_posterior_))
        held.append([((lower[:20] < w) & (w < upper[:20])).mean() for lower, upper in bounds])
    naive, aware = np.mean(held, axis=0)
    assert aware > max(0.7, naive + 0.15)
