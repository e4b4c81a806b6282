"""Factors: scikit-learn's estimates without noise, and noise that is taken out of eigenvalues and told in intervals."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import decomposition

from tests.laws.cases import CASES
from tests.laws.reachable import everything_reachable_is_a_function_of_the_noisy_totals
from tests.models.short_audit import shorten
from tests.mutants import check_notices
from vips import FactorAnalysis, PrivacyPlan, ProbabilisticPCA, audit
from vips.models.second_moments import estimates, factors, linear_regression
from vips.models.second_moments.contract import SecondMomentModel
from vips.models.second_moments.estimates import (
    NoisyCovariance,
    aligned,
    bootstrapped,
    factor_analysis,
    noisy_factor_analysis,
    stacked,
)
from vips.models.second_moments.evidence import maximise_evidence
from vips.models.second_moments.moments import SecondMoments


def table(n, rng, d=6, lengths=(0.5, 0.3)):
    """Two factors along orthogonal directions, the same noise in all columns: the parameters of both models."""
    W = np.array(lengths)[:, None] * np.linalg.qr(rng.normal(size=(d, d)))[0][: len(lengths)]
    mean = 0.1 * rng.normal(size=d)
    X = mean + rng.normal(size=(n, len(W))) @ W + np.sqrt(0.02) * rng.normal(size=(n, d))
    return X, np.vstack([W, np.full(d, 0.02), mean])


def plan(epsilon=1.0):
    return PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, n_steps=1)


def unequal(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(300, 6)) * rng.uniform(0.3, 1.0, 6)
    return X + 2.0


@pytest.mark.parametrize("q", [1, 2, 6])
def test_principal_components_without_noise_are_those_of_scikit_learn(q):
    X = unequal()
    expected = decomposition.PCA(q).fit(X)
    for records, bound in ((X, None), (sp.csr_array(X), 100.0)):
        model = ProbabilisticPCA(q, max_norm=bound).fit(records)
        for name in (
            "components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_",
            "noise_variance_", "n_components_",
        ):  # fmt: skip
            value = getattr(model, name)
            np.testing.assert_allclose(value, getattr(expected, name), rtol=1e-6, atol=1e-9, err_msg=name)
        for name in ("transform", "score_samples"):
            np.testing.assert_allclose(getattr(model, name)(records), getattr(expected, name)(X), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.get_covariance(), expected.get_covariance(), atol=1e-9)
        np.testing.assert_allclose(model.get_precision(), expected.get_precision(), rtol=1e-6, atol=1e-9)
        codes = model.transform(records)
        np.testing.assert_allclose(model.inverse_transform(codes), expected.inverse_transform(codes), atol=1e-9)


@pytest.mark.parametrize("rotation", [None, "varimax", "quartimax"])
def test_factors_without_noise_are_those_of_scikit_learn(rotation):
    X = unequal(1)
    expected = decomposition.FactorAnalysis(2, rotation=rotation, tol=1e-8).fit(X)
    model = FactorAnalysis(2, rotation=rotation, tol=1e-8, noise_variance_init=np.ones(X.shape[1])).fit(X)
    signs = np.sign((model.components_ * expected.components_).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(signs * model.components_, expected.components_, atol=1e-6)
    np.testing.assert_allclose(signs.T * model.transform(X), expected.transform(X), atol=1e-6)
    np.testing.assert_allclose(model.noise_variance_, expected.noise_variance_, rtol=1e-6)
    np.testing.assert_allclose(model.loglike_[:20], expected.loglike_[:20], rtol=1e-9)
    np.testing.assert_allclose(model.get_precision(), expected.get_precision(), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.score(X), expected.score(X), rtol=1e-6)
    assert (np.diff(model.loglike_) > -1e-6).all()


def _variance_of_a_spike():
    """Noise lengthens the eigenvalue by a quarter; taken out, the error is much smaller."""
    rng, variances = np.random.default_rng(2), []
    for _ in range(40):
        X, _ = table(3000, rng, d=20, lengths=(0.5,))
        privacy = PrivacyPlan(noise_multiplier=15.0, sampling_rate=1.0, n_steps=1)
        variances.append(ProbabilisticPCA(1, privacy=privacy, max_norm=2.5).fit(X).explained_variance_[0])
    assert abs(np.mean(variances) - 0.27) < 0.035, "another variance"


def test_noise_is_taken_out_of_eigenvalues(monkeypatch):
    def mutant(patch):
        patch.setattr(estimates, "_without_noise", lambda excess, edges: np.maximum(excess, 0.0))

    _variance_of_a_spike()
    check_notices(_variance_of_a_spike, mutant, monkeypatch, "another variance")


@pytest.mark.parametrize("model", [ProbabilisticPCA, pytest.param(FactorAnalysis, marks=pytest.mark.slow)])
def test_intervals_hold_the_truth_where_naive_ones_do_not(model, monkeypatch):
    monkeypatch.setattr(factors, "_N_DRAWS", 300)  # as many as users have
    rng, naive, aware = np.random.default_rng(3), [], []
    for _ in range(5):
        X, truth = table(20_000, rng)
        fitted = model(2, privacy=plan(2.0), max_norm=2.5).fit(X)
        truth[:2] = aligned(truth[:2], fitted.last_posterior_.mean[:2])
        for held, posterior in ((naive, fitted.last_posterior_), (aware, fitted.posterior_)):
            lower, upper = posterior.interval(0.95)
            held.append(((lower < truth) & (truth < upper))[:3])
    assert np.mean(aware) > 0.7  # 0.93 on average, deviation 0.05
    assert np.mean(naive) < np.mean(aware) - 0.05  # 0.33 on average, deviation 0.06


def noisy_release(n_records, noise_std, rng, d=5):
    """Moments of records with two factors, and symmetric noise."""
    rows = np.hstack([table(n_records, rng)[0][:, :d], np.ones((n_records, 1))])
    noise = rng.normal(size=(d + 1, d + 1)) * noise_std
    return NoisyCovariance.of(SecondMoments.of(rows.T @ rows + 0.5 * (noise + noise.T), noise_std), 1.0)


def test_noisy_factors_do_not_depend_on_where_iterations_start():
    """The likelihood of noisy moments falls on the way, and would end the iterations anywhere."""
    data = noisy_release(5000, 60.0, np.random.default_rng(1))
    fits = [factor_analysis(data, 2, start, 1e-2, 2000) for start in (None, np.full(5, 0.02), np.full(5, 0.1))]
    for other in fits[1:]:
        np.testing.assert_allclose(other.noise_variance, fits[0].noise_variance, rtol=0.05)


def test_several_noisy_factor_analyses_are_those_of_each():
    rng = np.random.default_rng(2)
    data = [noisy_release(n_records, 20.0, rng) for n_records in (300, 2000, 5000)]
    for alone, together in zip(data, noisy_factor_analysis(data, 2, None, 500), strict=True):
        expected = factor_analysis(alone, 2, None, 1e-2, 500)
        np.testing.assert_allclose(together.loadings, expected.loadings, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(together.unbounded_variance, expected.unbounded_variance, rtol=1e-9, atol=1e-12)
        assert together.log_likelihoods == pytest.approx(expected.log_likelihoods)


def test_draws_of_a_noise_variance_at_its_bound_go_below_it(monkeypatch):
    rng = np.random.default_rng(0)
    X = 0.6 * rng.normal(size=(3000, 1)) * np.ones(4) + rng.normal(size=(3000, 4)) * [1e-3, 0.3, 0.3, 0.3]
    rows, noise = np.hstack([X, np.ones((3000, 1))]), 30.0 * rng.normal(size=(5, 5))
    data = NoisyCovariance.of(SecondMoments.of(rows.T @ rows + 0.5 * (noise + noise.T), 30.0), 1.0)

    def lower_ends():
        estimate = factor_analysis(data, 1, None, 1e-2, 500)
        again = partial(noisy_factor_analysis, n_components=1, start=estimate.noise_variance, max_iter=500)
        return bootstrapped(data, estimate, again, 1.0, 60).interval(0.95)[0][1] / estimate.noise_variance

    def intervals_go_below_the_bound():
        assert (lower_ends() < 0.9).all(), "an interval from the bound on"

    def mutant(patch):
        patch.setattr(estimates, "stacked", lambda fits, mean: stacked(
            replace(fits, noise_variance=np.maximum(fits.noise_variance, 0.0099)), mean
        ))  # fmt: skip

    intervals_go_below_the_bound()
    check_notices(intervals_go_below_the_bound, mutant, monkeypatch, "an interval from the bound on")


@pytest.mark.parametrize("model", [ProbabilisticPCA, FactorAnalysis])
def test_noise_alone_gives_no_components_and_no_intervals(model):
    privacy = PrivacyPlan(noise_multiplier=3.0, sampling_rate=1.0, n_steps=1)
    fitted = model(2, privacy=privacy, max_norm=1.0).fit(np.zeros((0, 5)))
    assert np.isfinite(fitted.score_samples(np.ones((2, 5)))).all()
    assert np.isfinite(fitted.transform(np.ones((2, 5)))).all()
    if np.linalg.norm(fitted.components_, axis=1).min() == 0.0:
        assert "Noise hides" in fitted.why_no_intervals()


@pytest.mark.parametrize("model", [ProbabilisticPCA, FactorAnalysis])
@pytest.mark.slow
def test_audit_and_plot(model, monkeypatch):
    shorten(monkeypatch)
    X, _ = table(5000, np.random.default_rng(6))
    private = model(2, privacy=plan(4.0), max_norm=2.5)
    fitted = private.fit(X)
    assert list(fitted.get_feature_names_out()) == [f"{model.__name__.lower()}{i}" for i in range(2)]
    assert fitted.plot_loadings().get_yticks().tolist() == [0, 1]
    assert audit(private, X[:200], n_runs=1000, random_state=0).passed


def test_summary_names_every_number():
    X, truth = table(20_000, np.random.default_rng(7))
    for privacy in (None, plan(4.0)):
        fitted = ProbabilisticPCA(2, privacy=privacy, max_norm=2.5).fit(X)
        summary, posterior = fitted.summary(0.9), fitted.posterior_
        assert list(summary.columns) == ["mean", "std", "lower", "upper"]
        assert summary.index[[0, 7, 12, 23]].tolist() == [
            "component 0: x0", "component 1: x1", "noise variance of x0", "mean of x5",
        ]  # fmt: skip
        np.testing.assert_array_equal(summary["lower"], posterior.interval(0.9)[0].ravel())
        np.testing.assert_allclose(summary["mean"][18:], truth[-1], atol=0.05)
    nothing = ProbabilisticPCA(2, privacy=plan(0.01), max_norm=2.5).fit(X[:10]).summary()
    assert np.isfinite(nothing["mean"]).all()
    assert nothing["std"].isna().all()


def exact_count(patch):
    """The fit uses the number of rows that it sees, in place of the released one."""
    seen, of, expected_statistics = [0.0], NoisyCovariance.of, SecondMomentModel.expected_statistics

    def watched(self, records, posterior):
        seen[0] = float(getattr(records, "X", records).shape[0])
        return expected_statistics(self, records, posterior)

    patch.setattr(SecondMomentModel, "expected_statistics", watched)
    patch.setattr(NoisyCovariance, "of", lambda *arguments: replace(of(*arguments), count=seen[0]))
    patch.setattr(
        linear_regression, "maximise_evidence", lambda *given: maximise_evidence(*given[:3], seen[0], *given[4:])
    )


@pytest.mark.parametrize("name", ["principal components", "factors", "linear"])
def test_a_fit_that_uses_the_exact_number_of_records_is_noticed(name, monkeypatch):
    (case,) = (case for case in CASES if case.name == name)
    check_notices(
        lambda: everything_reachable_is_a_function_of_the_noisy_totals(case), exact_count, monkeypatch, "on the records"
    )


def test_bad_input():
    for model in (ProbabilisticPCA, FactorAnalysis):
        with pytest.raises(ValueError, match="`max_norm` is required"):
            model(1, privacy=plan()).fit("not data")
        with pytest.raises(ValueError, match="`n_components`"):
            model(0).fit("not data")
        with pytest.raises(ValueError, match="more than the 2 column"):
            model(3).fit(np.ones((4, 2)))
    with pytest.raises(ValueError, match="`rotation`"):
        FactorAnalysis(1, rotation="oblique").fit("not data")
    with pytest.raises(ValueError, match="one positive number"):
        FactorAnalysis(1, noise_variance_init=[1.0]).fit(np.ones((4, 2)))
