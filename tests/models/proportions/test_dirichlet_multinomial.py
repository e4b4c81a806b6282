"""Proportions of categories: the textbook posterior without noise, and intervals that hold the truth with noise."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.special import gammaln

from vips import DirichletMultinomial, PrivacyPlan
from vips.models.proportions.dirichlet_multinomial import draw_rates


def categories(n_records, theta, rng):
    return np.eye(len(theta))[rng.choice(len(theta), n_records, p=theta)]


def test_without_noise_it_is_the_conjugate_posterior():
    X = np.random.default_rng(0).poisson(2.0, (50, 4))
    for data in (X, sp.csr_array(X)):
        model = DirichletMultinomial(prior=0.3).fit(data)
        np.testing.assert_allclose(model.last_posterior_.concentration, 0.3 + X.sum(axis=0))


@pytest.mark.parametrize("prior", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("noisy", [-30.0, -2.0, 0.5, 20.0])
def test_rates_given_noisy_counts_against_integration(prior, noisy):
    """Mean and variance of a rate, by quadrature over the count before noise."""
    std = 5.0
    draws = draw_rates(np.array([noisy]), std, prior, 40_000, np.random.default_rng(0))[:, 0]
    s = np.linspace(1e-6, 80.0, 400_001)
    log_weights = gammaln(s + prior) - gammaln(s + 1.0) + stats.norm.logpdf(noisy, s, std)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ (s + prior)
    var = weights @ ((s + prior) + (s + prior) ** 2) - mean**2
    assert draws.mean() == pytest.approx(mean, abs=5.0 * np.sqrt(var / 40_000))
    assert draws.var() == pytest.approx(var, rel=0.08)


@pytest.mark.parametrize(("n_records", "epsilon", "low"), [(500, 0.1, 0.91), (5000, 0.5, 0.92), (50_000, 1.0, 0.92)])
@pytest.mark.repeated("500-0.1-0.91", "50000-1.0-0.92")
def test_intervals_hold_the_truth_where_naive_ones_do_not(n_records, epsilon, low):
    rng, naive, aware = np.random.default_rng(n_records), [], []
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, n_steps=1)
    for _ in range(150):
        theta = rng.dirichlet(np.ones(5))
        model = DirichletMultinomial(privacy=plan).fit(categories(n_records, theta, rng))
        for held, posterior in ((naive, model.last_posterior_), (aware, model.posterior_)):
            lower, upper = posterior.interval(0.95)
            held.append((lower < theta) & (theta < upper))
    assert low < np.mean(aware) < 0.98
    if n_records == 500:  # with more records, the noise is smaller than the sampling error
        assert np.mean(naive) < np.mean(aware) - 0.1


def test_noise_that_vanishes_leaves_the_exact_posterior():
    rng = np.random.default_rng(1)
    X = categories(3000, [0.5, 0.3, 0.2], rng)
    plan = PrivacyPlan(noise_multiplier=1e-3, sampling_rate=1.0, n_steps=1)
    model = DirichletMultinomial(privacy=plan).fit(X)
    exact = stats.dirichlet(1.0 + X.sum(axis=0))
    np.testing.assert_allclose(model.posterior_.mean, exact.mean(), atol=2e-3)
    np.testing.assert_allclose(model.posterior_.var, exact.var(), rtol=0.15)


def test_bad_input():
    with pytest.raises(ValueError, match="`prior`"):
        DirichletMultinomial(prior=0.0).fit("not data")
    with pytest.raises(ValueError, match="`max_total`"):
        DirichletMultinomial(max_total=np.inf).fit("not data")
    with pytest.raises(ValueError, match=r"1 feature\(s\) .* minimum of 2"):
        DirichletMultinomial().fit(np.ones((3, 1)))
    with pytest.raises(ValueError, match="Negative"):
        DirichletMultinomial().fit(np.array([[1.0, -1.0]]))


def test_a_second_fit_has_a_noise_aware_posterior_of_its_own():
    plan = PrivacyPlan(noise_multiplier=1e-3, sampling_rate=1.0, n_steps=1)
    model = DirichletMultinomial(privacy=plan).fit(np.eye(2)[np.zeros(300, int)])
    assert model.posterior_.mean[0] > 0.98
    assert model.fit(np.eye(2)[np.ones(300, int)]).posterior_.mean[0] < 0.02
