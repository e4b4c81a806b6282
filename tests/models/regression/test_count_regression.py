from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from scipy.stats import binom, nbinom, norm

from tests.mutants import check_notices
from vips import BayesianBinomialRegression, BayesianLogisticRegression, BayesianNegativeBinomialRegression, PrivacyPlan
from vips.expfam import Gamma
from vips.models.regression.likelihoods import Binomial, NegativeBinomial
from vips.reference import gibbs_logistic


def covariates(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


def test_one_trial_is_logistic_regression():
    X = covariates(100)
    y = (np.random.default_rng(1).random(100) < expit(X[:, 0])).astype(int)
    binomial, logistic = BayesianBinomialRegression().fit(X, y), BayesianLogisticRegression().fit(X, y)
    np.testing.assert_allclose(binomial.last_posterior_.mean, logistic.last_posterior_.mean, rtol=1e-12)
    assert binomial.bound_ == pytest.approx(logistic.bound_)
    np.testing.assert_allclose(binomial.predict(X), logistic.predict_proba(X)[:, 1])


def test_many_trials_are_repeated_records():
    """Equal up to the binomial coefficients in the bound."""
    X = covariates(60)
    y = np.random.default_rng(1).binomial(4, expit(X[:, 0] - 0.5))
    binomial = BayesianBinomialRegression(n_trials=4).fit(X, y)
    repeated = np.repeat(X, 4, axis=0)
    labels = (np.arange(4) < y[:, None]).astype(int).ravel()
    logistic = BayesianLogisticRegression().fit(repeated, labels)
    np.testing.assert_allclose(binomial.last_posterior_.mean, logistic.last_posterior_.mean, rtol=1e-10)
    np.testing.assert_allclose(binomial.last_posterior_.cov, logistic.last_posterior_.cov, rtol=1e-9, atol=1e-12)
    coefficients = np.log([1.0, 4.0, 6.0, 4.0, 1.0])[y].sum()
    assert binomial.bound_ == pytest.approx(logistic.bound_ + coefficients)


def test_binomial_posterior_against_gibbs():
    X = covariates(200)
    y = np.random.default_rng(2).binomial(5, expit(X @ [0.6, -0.4] + 0.2))
    exact = gibbs_logistic(X, y, n_trials=5, fit_intercept=True, n_samples=2000, random_state=0)
    model = BayesianBinomialRegression(n_trials=5, prior=Gamma(1.0, 1.0)).fit(X, y)
    error = 4.0 / np.sqrt(exact.effective_sample_size().min())
    assert (np.abs(model.last_posterior_.mean - exact.mean) < (0.1 + error) * exact.std).all()
    np.testing.assert_allclose(model.laplace_posterior(X, y).std, exact.std, rtol=0.1)


def test_rows_of_several_partitions_are_read_as_one_table():
    X = covariates(200)[np.arange(20_000) % 200]
    y = np.random.default_rng(4).poisson(np.exp(X @ [0.3, -0.2]))
    for weights in (None, np.ones(len(X))):
        model = BayesianNegativeBinomialRegression(dispersion=100.0).fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(model.coef_, [0.3, -0.2], atol=0.05)


def test_negative_binomial_against_integration():
    X = covariates(120)[:, :1]
    r = 2.5
    y = np.random.default_rng(3).negative_binomial(r, 1.0 - expit(0.7 * X[:, 0] - 0.3))
    w, b = (axis.ravel() for axis in np.meshgrid(np.linspace(-0.5, 2, 126), np.linspace(-0.5, 2, 126), indexing="ij"))
    psi = X @ w[None] + b - np.log(r)
    joint = nbinom.logpmf(y[:, None], r, 1.0 - expit(psi)).sum(axis=0)
    joint += norm.logpdf(w) + norm.logpdf(b, scale=10.0)
    weights = np.exp(joint - logsumexp(joint))
    mean = np.array([weights @ w, weights @ b])
    std = np.sqrt([weights @ (w - mean[0]) ** 2, weights @ (b - mean[1]) ** 2])
    model = BayesianNegativeBinomialRegression(dispersion=r, prior=1.0).fit(X, y)
    assert (np.abs(model.last_posterior_.mean - mean) < 0.1 * std).all()
    np.testing.assert_allclose(model.laplace_posterior(X, y).std, std, rtol=0.1)
    evidence = logsumexp(joint) + np.log(0.02**2)
    assert evidence - 1.0 < model.bound_ < evidence
    row = np.array([[0.4]])
    exact = weights @ np.exp(0.4 * w + b)
    assert model.predict(row)[0] == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize(
    ("mean", "n_trials", "dispersion"),
    [(3, 10, None), (292, 1000, None), (3, None, 2.5), (292, None, 2.5), (292, None, 300.0)],
)
def test_with_a_flat_prior_coefficients_are_those_of_maximum_likelihood(mean, n_trials, dispersion):
    """Within a tenth of a standard error, for small and for large counts."""
    X, rng = covariates(400), np.random.default_rng(5)
    rows = np.column_stack([X, np.ones(len(X))])
    truth = [0.6, -0.4, np.log(mean if dispersion else mean / (n_trials - mean))]

    def law(coefficients):
        of_rows = rows @ coefficients
        if dispersion:
            return nbinom(dispersion, dispersion / (dispersion + np.exp(of_rows)))
        return binom(n_trials, expit(of_rows))

    y = law(truth).rvs(random_state=rng)
    best = minimize(lambda w: -law(w).logpmf(y).mean(), np.zeros(3), method="BFGS", options={"gtol": 1e-7}).x
    p = expit(rows @ best - (np.log(dispersion) if dispersion else 0.0))
    trials = y + dispersion if dispersion else n_trials
    errors = np.sqrt(np.diagonal(np.linalg.inv((rows.T * (trials * p * (1.0 - p))) @ rows)))
    if dispersion:
        model = BayesianNegativeBinomialRegression(dispersion=dispersion, prior=1e-6)
    else:
        model = BayesianBinomialRegression(n_trials=n_trials, prior=1e-6)
    assert (np.abs(model.fit(X, y).posterior_.mean - best) < 0.1 * errors).all()


def test_counts_above_the_declared_largest_count_as_the_largest():
    X = covariates(80)
    y = np.random.default_rng(4).poisson(3.0, 80)
    settings = {"max_count": 4, "privacy": PrivacyPlan(noise_multiplier=1e-9, sampling_rate=1.0, n_steps=4)}
    one = BayesianNegativeBinomialRegression(max_norm=2.0, **settings).fit(X, y)
    other = BayesianNegativeBinomialRegression(max_norm=2.0, **settings).fit(X, np.minimum(y, 4))
    np.testing.assert_allclose(one.last_posterior_.mean, other.last_posterior_.mean, rtol=1e-5)


@pytest.mark.parametrize(
    "model", [BayesianBinomialRegression(n_trials=6), BayesianNegativeBinomialRegression(dispersion=3.0, max_count=20)]
)
@pytest.mark.repeated("model1")
def test_private_counts_recover_the_slopes(model):
    X = covariates(40_000)
    psi = X @ [0.3, -0.2] + 0.1
    rng = np.random.default_rng(5)
    binomial = isinstance(model, BayesianBinomialRegression)
    y = rng.binomial(6, expit(psi)) if binomial else rng.negative_binomial(3.0, 1.0 - expit(psi))
    plan = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-6, sampling_rate=1.0, n_steps=20)
    model.set_params(privacy=plan, max_norm=3.0).fit(X, y)
    assert np.corrcoef(model.predict(X), expit(psi) if binomial else np.exp(psi))[0, 1] > 0.95
    assert not hasattr(model, "bound_")


def test_what_cannot_work_is_refused():
    X, y = covariates(10), np.arange(10)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    with pytest.raises(ValueError, match="`n_trials`"):
        BayesianBinomialRegression(n_trials=0).fit(X, y)
    with pytest.raises(ValueError, match="from 0 to 5"):
        BayesianBinomialRegression(n_trials=5).fit(X, y)
    for dispersion in (0.0, None, "2"):
        with pytest.raises(ValueError, match=r"`dispersion` must be a number .* not learnt"):
            BayesianNegativeBinomialRegression(dispersion=dispersion).fit(X, y)
    with pytest.raises(ValueError, match="`max_count` is required"):
        BayesianNegativeBinomialRegression(privacy=plan, max_norm=1.0).fit(X, y)
    with pytest.raises(ValueError, match="whole numbers"):
        BayesianNegativeBinomialRegression().fit(X, y + 0.5)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("dispersion", [0.5, 3.0, 100.0])
def test_the_expected_count_is_the_exponential_of_the_predictor(dispersion, fit_intercept):
    """Also where columns say nothing: the intercept is the logarithm of the mean. A large dispersion gives Poisson counts."""
    X, rng = np.tile(covariates(400), (10, 1)), np.random.default_rng(6)
    mean = np.exp(X @ [0.6, -0.4] + 1.5 * fit_intercept)
    y = rng.poisson(mean * rng.gamma(dispersion, 1.0 / dispersion, len(X)))
    model = BayesianNegativeBinomialRegression(dispersion=dispersion, prior=1e-6, fit_intercept=fit_intercept).fit(X, y)
    truth, std = [0.6, -0.4, 1.5][: 2 + fit_intercept], model.laplace_posterior(X, y).std
    assert (np.abs(model.posterior_.mean - truth) < 5.0 * std).all()
    assert (std < 0.1).all()
    np.testing.assert_allclose(model.predict(X[:50]), mean[:50], rtol=0.3)


def check_private_intercepts():
    """Hardly any noise: means and deviations are those of the ordinary fit."""
    X, rng = np.tile(covariates(400), (10, 1)), np.random.default_rng(7)
    y = rng.poisson(np.exp(0.8 * X[:, 0] + 1.5) * rng.gamma(3.0, 1.0 / 3.0, len(X)))
    settings = {"dispersion": 3.0, "max_count": 200, "max_norm": 4.0, "prior": 0.01}
    plan = PrivacyPlan(noise_multiplier=1e-9, sampling_rate=1.0, n_steps=20, clip_norm=1e4)
    private = BayesianNegativeBinomialRegression(privacy=plan, **settings).fit(X, y).posterior_
    exact = BayesianNegativeBinomialRegression(**settings).fit(X, y).laplace_posterior(X, y)
    np.testing.assert_allclose(private.mean, exact.mean, atol=0.02, err_msg="other means")
    np.testing.assert_allclose(private.std, exact.std, rtol=0.2, err_msg="other deviations")


def test_private_intercepts_are_logarithms_of_the_mean():
    check_private_intercepts()


def information_is_that_of_all_counts(patch):
    original = NegativeBinomial.scores

    def mutant(self, y, psi, size):
        residual, information = original(self, y, psi, size)
        return residual, 0.0 * information + self.moments(psi)[2]

    patch.setattr(NegativeBinomial, "scores", mutant)


def residuals_are_not_centred(patch):
    original = NegativeBinomial.residuals

    def mutant(self, most):
        residuals = original(self, most)
        return replace(residuals, expected=0.0 * residuals.expected)

    patch.setattr(NegativeBinomial, "residuals", mutant)


LIKELIHOODS = [
    NegativeBinomial(2.0, 30),
    NegativeBinomial(0.5, 300),
    NegativeBinomial(1e6, 4),
    Binomial(2),
    Binomial(500),
]


def _limited_residuals_have_mean_zero_and_their_information(likelihood):
    """Under the model itself, with counts above the largest one taken for it: by sums over all counts."""
    is_binomial = isinstance(likelihood, Binomial)
    for psi in (-4.0, -1.0, 0.0, 1.5):
        counts, r = np.arange(20_000.0), getattr(likelihood, "dispersion", 1.0)
        psi = psi - (0.0 if is_binomial else np.log(r))
        p = binom.pmf(counts, likelihood.largest, expit(psi)) if is_binomial else nbinom.pmf(counts, r, expit(-psi))
        seen = np.minimum(counts, likelihood.largest)
        residual, information = likelihood.scores(seen, np.full((len(seen), 1), psi), 1.0)
        mean, _, of_all = likelihood.moments(np.array(psi))
        score = (counts - mean) * (1.0 if is_binomial else expit(-psi))
        size = np.sqrt(of_all)
        assert abs(p @ residual[:, 0]) < 1e-3 * size, "residuals have another mean"
        assert abs(p @ (residual[:, 0] * score) - information[0, 0]) < 3e-3 * of_all, "other information"
        assert np.abs(residual).max() <= 10.0 * size
        assert information[0, 0] <= 1.01 * of_all


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_limited_residuals_have_mean_zero_and_their_information(likelihood):
    _limited_residuals_have_mean_zero_and_their_information(likelihood)


@pytest.mark.parametrize(
    ("mutant", "says"),
    [(information_is_that_of_all_counts, "other information"), (residuals_are_not_centred, "another mean")],
)
def test_other_residuals_are_noticed(mutant, says, monkeypatch):
    check_notices(
        lambda: _limited_residuals_have_mean_zero_and_their_information(LIKELIHOODS[0]), mutant, monkeypatch, says
    )
