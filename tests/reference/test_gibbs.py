"""The Gibbs sampler against sums over grids."""

import numpy as np
import pytest
from scipy.special import log_expit

from vips.expfam import Gamma, PolyaGamma
from vips.reference import effective_sample_size, gibbs_logistic

N_SAMPLES = 4000


def log_likelihood(psi, y, n_trials):
    """The log likelihood of linear predictors of shape (..., n_records), up to a constant."""
    return (y * log_expit(psi) + (n_trials - y) * log_expit(-psi)).sum(axis=-1)


def grid_moments(log_weights, *axes):
    """Means and standard deviations of every axis under weights on the product of axes."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    for axis in range(weights.ndim):  # the grid is wide enough
        ends = np.take(weights, [0, -1], axis=axis).sum()
        assert ends < 1e-4
    moments = []
    for axis, values in enumerate(axes):
        marginal = weights.sum(axis=tuple(i for i in range(weights.ndim) if i != axis))
        mean = marginal @ values
        moments.append((mean, np.sqrt(marginal @ (values - mean) ** 2)))
    return moments


def assert_agrees(chain, mean, std):
    """The mean within 4 standard errors; the standard deviation within 4 of its own, and so within 10 percent."""
    n_effective = effective_sample_size(chain)
    assert n_effective > 800  # so that the bounds are sharp
    assert abs(chain.mean() - mean) < 4.0 * std / np.sqrt(n_effective)
    assert abs(chain.std() / std - 1.0) < 4.0 / np.sqrt(2.0 * n_effective)


def data(n_records, coef, n_trials, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_records, len(coef)))
    return X, rng.binomial(n_trials, 1.0 / (1.0 + np.exp(-X @ coef)))


@pytest.mark.parametrize("n_trials", [1, 5])
@pytest.mark.repeated("1")
def test_one_coefficient_with_fixed_precision(n_trials):
    X, y = data(25, [1.5], n_trials, 0)
    w = np.linspace(-3.0, 6.0, 2001)
    ((mean, std),) = grid_moments(log_likelihood(w[:, None] * X[:, 0], y, n_trials) - 0.5 * 0.7 * w**2, w)
    draws = gibbs_logistic(X, y, n_trials=n_trials, prior=0.7, n_samples=N_SAMPLES, random_state=1)
    assert draws.coef.shape == (N_SAMPLES, 1)
    assert (draws.alpha == 0.7).all()
    assert_agrees(draws.coef[:, 0], mean, std)


@pytest.mark.parametrize("n_trials", [1, 40])
@pytest.mark.repeated("40")
def test_one_coefficient_with_gamma_prior_of_its_precision(n_trials):
    X, y = data(15, [2.0], n_trials, 2)
    shape, rate = 2.0, 1.5
    w, log_alpha = np.linspace(-4.0, 16.0, 1601), np.linspace(-12.0, 3.5, 500)
    alpha = np.exp(log_alpha)
    log_prior = 0.5 * log_alpha - 0.5 * alpha * w[:, None] ** 2 + shape * log_alpha - rate * alpha  # of (w, log α)
    log_weights = log_likelihood(w[:, None] * X[:, 0], y, n_trials)[:, None] + log_prior
    (mean, std), (log_mean, log_std) = grid_moments(log_weights, w, log_alpha)
    draws = gibbs_logistic(X, y, n_trials=n_trials, prior=Gamma(shape, rate), n_samples=N_SAMPLES, random_state=3)
    assert_agrees(draws.coef[:, 0], mean, std)
    assert_agrees(np.log(draws.alpha), log_mean, log_std)


@pytest.mark.slow
def test_two_coefficients_with_fixed_precision_and_their_correlation():
    X, y = data(30, [1.0, -1.0], 1, 4)
    X[:, 1] += X[:, 0]
    u, v = np.linspace(-4.0, 5.0, 301), np.linspace(-5.0, 4.0, 301)
    psi = u[:, None, None] * X[:, 0] + v[:, None] * X[:, 1]
    log_weights = log_likelihood(psi, y, 1) - 0.5 * (u[:, None] ** 2 + v**2)
    (mean_u, std_u), (mean_v, std_v) = grid_moments(log_weights, u, v)
    weights = np.exp(log_weights - log_weights.max())
    correlation = np.sum(weights / weights.sum() * np.outer(u - mean_u, v - mean_v)) / (std_u * std_v)
    draws = gibbs_logistic(X, y, prior=1.0, n_samples=N_SAMPLES, random_state=5)
    assert_agrees(draws.coef[:, 0], mean_u, std_u)
    assert_agrees(draws.coef[:, 1], mean_v, std_v)
    assert draws.cov[0, 1] / np.prod(draws.std) == pytest.approx(correlation, abs=0.06)
    assert abs(correlation) > 0.2


@pytest.mark.slow
def test_intercept_has_a_prior_of_its_own_and_is_last():
    X, y = data(20, [1.0], 1, 6)
    w, b = np.linspace(-3.0, 4.0, 301), np.linspace(-2.5, 2.5, 301)
    log_weights = log_likelihood(w[:, None, None] * X[:, 0] + b[:, None], y, 1)
    log_weights += -0.5 * 4.0 * w[:, None] ** 2 - 0.5 * b**2 / 0.4**2
    (mean_w, std_w), (mean_b, std_b) = grid_moments(log_weights, w, b)
    draws = gibbs_logistic(X, y, prior=4.0, fit_intercept=True, intercept_std=0.4, n_samples=N_SAMPLES, random_state=7)
    assert_agrees(draws.coef[:, 0], mean_w, std_w)
    assert_agrees(draws.coef[:, 1], mean_b, std_b)


@pytest.mark.slow
def test_without_records_the_posterior_is_the_prior_and_alpha_ignores_the_intercept():
    draws = gibbs_logistic(
        np.empty((0, 2)),
        np.empty(0),
        prior=Gamma(6.0, 3.0),
        fit_intercept=True,
        intercept_std=5.0,
        n_samples=8_000,
        random_state=8,
    )
    assert_agrees(draws.alpha, 6.0 / 3.0, np.sqrt(6.0) / 3.0)
    assert_agrees(draws.coef[:, 2], 0.0, 5.0)
    assert_agrees(draws.coef[:, 0], 0.0, np.sqrt(3.0 / 5.0))  # a Student t: E 1/α = b₀ / (a₀ - 1)


def test_agreement_is_refused_to_a_sampler_with_a_wrong_precision():
    X, y = data(25, [1.5], 1, 0)
    w = np.linspace(-3.0, 6.0, 2001)
    ((mean, std),) = grid_moments(log_likelihood(w[:, None] * X[:, 0], y, 1) - 0.5 * 0.7 * w**2, w)
    draws = gibbs_logistic(X, y, prior=1.0, n_samples=N_SAMPLES, random_state=1)
    with pytest.raises(AssertionError):
        assert_agrees(draws.coef[:, 0], mean, std)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, -0.5])
def test_effective_sample_size_of_an_autoregression(correlation):
    n_samples, rng = 100_000, np.random.default_rng(9)
    chain, noise = np.zeros((n_samples, 3)), rng.standard_normal((n_samples, 3))
    for t in range(1, n_samples):
        chain[t] = correlation * chain[t - 1] + noise[t]
    exact = n_samples * (1.0 - correlation) / (1.0 + correlation)
    np.testing.assert_allclose(effective_sample_size(chain), exact, rtol=0.15)


def test_a_seed_repeats_the_chain_and_names_what_is_kept():
    X, y = data(20, [1.0, 0.0], 1, 10)
    short, long = (gibbs_logistic(X, y, n_samples=n, n_burn_in=b, random_state=11) for n, b in ((50, 30), (80, 0)))
    np.testing.assert_array_equal(short.coef, long.coef[30:])
    np.testing.assert_array_equal(short.alpha, long.alpha[30:])
    np.testing.assert_allclose(short.mean, short.coef.mean(axis=0))
    np.testing.assert_allclose(np.diag(short.cov), short.std**2)
    np.testing.assert_array_equal(short.effective_sample_size(), effective_sample_size(short.coef))


def test_one_sweep_draws_from_its_conditional():
    """From w = 0, one sweep: E w = E (XᵀΩX + α)⁻¹ Xᵀκ over Ω ~ PG(1, 0), here with one record."""
    draws = np.array(
        [
            gibbs_logistic([[2.0]], [1], prior=1.0, n_samples=1, n_burn_in=0, random_state=s).coef[0, 0]
            for s in range(2000)
        ]
    )
    omega = PolyaGamma(1.0).sample(200_000, np.random.default_rng(12))
    mean, second = (1.0 / (4.0 * omega + 1.0)).mean(), (1.0 / (4.0 * omega + 1.0) ** 2).mean()
    var = mean + second - mean**2
    assert abs(draws.mean() - mean) < 4.0 * np.sqrt(var / 2000)
    assert abs(draws.var() / var - 1.0) < 4.0 * np.sqrt(2.0 / 2000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": [[np.nan], [1.0]]}, "`X` must be finite"),
        ({"X": [1.0, 2.0]}, "shape"),
        ({"y": [0, 1, 1]}, "shape"),
        ({"y": [0, 2]}, "whole numbers"),
        ({"y": [0, 0.5]}, "whole numbers"),
        ({"y": [0, -1]}, "whole numbers"),
        ({"y": [0, np.nan]}, "whole numbers"),
        ({"n_trials": 0}, "n_trials"),
        ({"prior": 0.0}, "prior"),
        ({"prior": (1.0, 1.0, 1.0)}, "prior"),
        ({"prior": (1.0, -1.0)}, "prior"),
        ({"intercept_std": 0.0}, "intercept_std"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        gibbs_logistic(**{"X": [[1.0], [2.0]], "y": [0, 1]} | changes)
