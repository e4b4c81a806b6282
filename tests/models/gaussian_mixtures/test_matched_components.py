"""Gaussian components that are matched to released totals."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from tests.mutants import check_notices
from vips import BayesianGaussianMixture, PrivacyPlan, compare, load
from vips.core.sums.gaussians import MixtureStatistics
from vips.models.components.matching import match
from vips.models.components.matching.charts import Gaussians

SHARES, MEANS = np.array([0.5, 0.3, 0.2]), np.array([[0.0, 0.0, 1.0], [2.0, 0.5, -1.0], [-1.5, 1.5, 0.0]])
FACTORS = np.array([
    [[0.6, 0.0, 0.0], [0.2, 0.5, 0.0], [0.0, -0.2, 0.7]],
    [[0.5, 0.0, 0.0], [-0.3, 0.6, 0.0], [0.1, 0.1, 0.4]],
    [[0.7, 0.0, 0.0], [0.0, 0.4, 0.0], [0.3, 0.2, 0.5]],
])  # fmt: skip
PLAN = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=1.0, n_steps=20)


def records(n, seed=0, is_diagonal=False):
    rng = np.random.default_rng(seed)
    members = rng.choice(3, n, p=SHARES)
    factors = FACTORS * np.eye(3) if is_diagonal else FACTORS
    return MEANS[members] + np.einsum("nij,nj->ni", factors[members], rng.standard_normal((n, 3)))


def fitted(X, privacy=PLAN, **settings):
    """Noise is reproducible."""
    privacy = type(privacy)(**{**vars(privacy), "reproducible_noise": True})
    return BayesianGaussianMixture(3, max_norm=5.0, privacy=privacy, random_state=1, **settings).fit(X)


@pytest.fixture(scope="module")
def model():
    return fitted(records(10_000))


def share_held(model, covariances) -> float:
    posterior = model.posterior_
    order = linear_sum_assignment(np.square(MEANS[:, None] - posterior.draws["means"].mean).sum(axis=-1))[1]
    ordered, held = model.in_order(posterior, order), []
    for name, truth in (("weights", SHARES), ("means", MEANS), ("covariances", covariances)):
        lower, upper = ordered.draws[name].interval(0.95)
        held += list(((lower <= truth) & (truth <= upper)).ravel())
    return float(np.mean(held))


def check_that_intervals_hold():
    held = [share_held(fitted(records(10_000, seed)), FACTORS @ np.swapaxes(FACTORS, 1, 2)) for seed in range(2)]
    assert np.mean(held) > 0.88, f"intervals hold {held}"


@pytest.mark.slow
def test_intervals_hold():
    check_that_intervals_hold()


def test_intervals_of_diagonal_components_hold():
    model = fitted(records(10_000, is_diagonal=True), covariance_type="diag")
    assert share_held(model, np.square(np.diagonal(FACTORS, axis1=1, axis2=2))) > 0.85


def bounds_of_long_records_are_forgotten(patch):
    patch.setattr(MixtureStatistics, "_bounded", lambda self, weights: weights)


def components_are_rounder(patch):
    scores = Gaussians.scores
    patch.setattr(Gaussians, "scores", lambda self, shares, images: scores(self, shares, 0.6 * images))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [bounds_of_long_records_are_forgotten, components_are_rounder])
def test_mutants_are_noticed(mutant, monkeypatch):
    monkeypatch.setattr(match, "_N_STARTS", 0)  # no other start helps
    monkeypatch.setattr(match.Match, "check", lambda _: None)  # nor a refusal
    fits = [fitted(records(10_000, seed)) for seed in range(2)]  # by the right code
    made = iter(fits)
    monkeypatch.setattr("tests.models.gaussian_mixtures.test_matched_components.fitted", lambda *_: next(made))
    check_notices(check_that_intervals_hold, mutant, monkeypatch, "intervals hold")


@pytest.mark.slow
def test_what_people_read_is_the_match(model, tmp_path):
    posterior, summary = model.posterior_, model.summary()
    np.testing.assert_allclose(model.weights_, posterior.draws["weights"].mean, atol=2e-3)
    np.testing.assert_allclose(model.means_, posterior.draws["means"].mean, atol=0.02)
    np.testing.assert_allclose(model.covariances_, posterior.draws["covariances"].mean, atol=0.03)
    assert (summary["lower"] < summary["share"]).all()
    assert (summary["share"] < summary["upper"]).all()
    assert np.abs(np.sort(model.means_[:, 0]) - np.sort(MEANS[:, 0])).max() < 0.1
    X = records(200, seed=9)
    model.save(tmp_path / "mixture.vips")
    np.testing.assert_allclose(
        load(tmp_path / "mixture.vips").predict_proba(X), model.predict_proba(X), rtol=1e-6, atol=1e-9
    )
    plain = BayesianGaussianMixture(3, random_state=0).fit(records(10_000))
    assert model.score(X) > plain.score(X) - 0.02
    comparison = compare(model, plain, X, n_bootstrap=5)
    assert "misfit of the released totals" in str(comparison)


@pytest.mark.slow
def test_records_that_are_no_such_mixture_are_refused():
    rng = np.random.default_rng(0)
    ring = rng.standard_normal((20_000, 3))
    ring = 2.0 * ring / np.linalg.norm(ring, axis=1, keepdims=True) + 0.1 * rng.standard_normal(ring.shape)
    model = fitted(ring)
    assert "not those of such records" in model.why_no_intervals()
    np.testing.assert_array_equal(model.means_, model.last_posterior_.mean)


def test_other_kinds_have_no_match():
    for settings in ({"covariance_type": "tied"}, {"dof": 5.0}):
        with pytest.raises(NotImplementedError, match="Only Gaussian components"):
            fitted(records(500), **settings).match()
