"""Gaussian mixtures without noise, against scikit-learn and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.mixture import BayesianGaussianMixture as TheirBayesian
from sklearn.mixture import GaussianMixture as TheirEM

from vips import BayesianGaussianMixture, PrivacyPlan

KINDS = ("full", "tied", "diag", "spherical")
CENTRES = np.array([[0.0, 0.0, 0.0], [6.0, 1.0, 2.0], [-5.0, 4.0, 0.0], [1.0, -7.0, 3.0]])
BEGUN, STEPS = 12, 12


def clusters(n=240, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) @ np.diag([1.0, 2.0, 0.5]) + CENTRES[np.arange(n) % 4]


X = clusters()


def unfitted(n_steps, n_components=4, **settings):
    plan = PrivacyPlan.non_private(n_steps=n_steps)
    return BayesianGaussianMixture(n_components, privacy=plan, random_state=0, **settings)


def fitted(n_steps, records=X, n_components=4, **settings):
    return unfitted(n_steps, n_components, **settings).fit(records)


@pytest.mark.parametrize("process", ["dirichlet_process", "dirichlet_distribution"])
@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_it_is_scikit_learns_variational_bayes(kind, process):
    settings = {"covariance_type": kind, "weight_concentration_prior_type": process}
    theirs = TheirBayesian(n_components=4, warm_start=True, tol=0.0, max_iter=STEPS, random_state=0, **settings)
    with pytest.warns(Warning, match="converge"):
        theirs.fit(X)
    start, ours = (fitted(n, reg_covar=1e-6, **settings) for n in (BEGUN, BEGUN + STEPS))
    np.testing.assert_allclose(start.last_posterior_.prior_mean, theirs.mean_prior_, atol=1e-12)
    prior_covariance = start.last_posterior_.prior_covariance
    theirs_of_all = np.broadcast_to(theirs.covariance_prior_, prior_covariance.shape)
    np.testing.assert_allclose(prior_covariance, theirs_of_all, rtol=1e-10, atol=1e-10)
    learnt = ("weight_concentration_", "mean_precision_", "means_", "degrees_of_freedom_", "covariances_", "weights_")
    for name in (*learnt, "precisions_cholesky_"):
        setattr(theirs, name, getattr(start, name))
    with pytest.warns(Warning, match="converge"):
        theirs.fit(X)
    for name in (*learnt, "precisions_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-8)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_em_is_scikit_learns(kind):
    start, ours = (fitted(n, covariance_type=kind, inference="em", reg_covar=1e-6) for n in (BEGUN, BEGUN + STEPS))
    theirs = TheirEM(
        n_components=4, covariance_type=kind, tol=0.0, max_iter=STEPS,
        weights_init=start.weights_, means_init=start.means_, precisions_init=start.precisions_,
    )  # fmt: skip
    with pytest.warns(Warning, match="converge"):
        theirs.fit(X)
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-8)


def test_it_finds_the_clusters():
    model = fitted(40, clusters(2000))
    order = np.linalg.norm(model.means_[:, None] - CENTRES, axis=2).argmin(axis=0)
    assert sorted(order) == [0, 1, 2, 3]
    np.testing.assert_allclose(model.means_[order], CENTRES, atol=0.3)
    np.testing.assert_allclose(model.weights_[order], 0.25, atol=0.03)
    assert model.n_components_effective_ == 4


def test_a_dirichlet_process_leaves_components_empty():
    model = fitted(150, clusters(800), n_components=10, weight_concentration_prior=1e-3)
    assert 4 <= model.n_components_effective_ < 10


def test_densities_and_samples_are_those_of_the_mixture():
    rng = np.random.default_rng(1)
    for dof in (None, [3.0, 5.0, 8.0, 30.0]):
        model = fitted(20, inference="em", dof=dof)
        law = multivariate_normal if dof is None else multivariate_t
        extra = [{}] * 4 if dof is None else [{"df": tail} for tail in model.dof_]
        densities = [
            weight * law(mean, covariance, **more).pdf(X)
            for weight, mean, covariance, more in zip(
                model.weights_, model.means_, model.covariances_, extra, strict=True
            )
        ]
        np.testing.assert_allclose(model.score_samples(X), np.log(np.sum(densities, axis=0)), rtol=1e-9)
    drawn, component = model.sample(40_000, random_state=rng)
    np.testing.assert_allclose(np.bincount(component) / 40_000, model.weights_, atol=0.01)
    assert abs(model.score(drawn) - model.score(model.sample(40_000, random_state=rng)[0])) < 0.05
    np.testing.assert_allclose(drawn.mean(axis=0), model.weights_ @ model.means_, atol=0.1)


def test_student_t_components_find_heavy_tails():
    heavy = multivariate_t([1.0, -1.0], [[1.0, 0.3], [0.3, 0.5]], df=4.0, seed=3).rvs(4000)
    model = fitted(150, heavy, n_components=1, inference="em", dof="learn")
    assert 3.3 < model.dof_[0] < 4.9
    np.testing.assert_allclose(model.means_[0], [1.0, -1.0], atol=0.06)
    np.testing.assert_allclose(model.covariances_[0], [[1.0, 0.3], [0.3, 0.5]], atol=0.08)
    assert model.score(heavy) > fitted(150, heavy, n_components=1, inference="em").score(heavy) + 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_fits_of_samples_come_near_the_fit_of_all_records(kind):
    records = clusters(4000)
    plan = PrivacyPlan.non_private(sampling_rate=0.2, n_steps=60)
    model = BayesianGaussianMixture(4, covariance_type=kind, privacy=plan, random_state=0)
    near = model.fit(records).score(records) - fitted(60, records, covariance_type=kind).score(records)
    assert abs(near) < 0.03


@pytest.mark.parametrize(("settings", "message"), [
    ({"n_components": 0}, "n_components"), ({"covariance_type": "round"}, "covariance_type"),
    ({"weight_concentration_prior_type": "x"}, "weight_concentration_prior_type"), ({"inference": "map"}, "inference"),
    ({"mean_precision_prior": 0.0}, "mean_precision_prior"), ({"degrees_of_freedom_prior": 1.0}, "greater than 2"),
    ({"mean_prior": [0.0]}, "`mean_prior` must be 3"), ({"covariance_prior": -np.eye(3)}, "positive definite"),
    ({"covariance_prior": [1.0, 1.0, 1.0]}, "of shape"), ({"dof": 0.5}, "`dof`"), ({"dof": [3.0, 4.0]}, "`dof`"),
    ({"dof": "heavy"}, "`dof`"), ({"max_norm": 0.0}, "max_norm"), ({"reg_covar": -1.0}, "reg_covar"),
])  # fmt: skip
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        BayesianGaussianMixture(**({"n_components": 3} | settings)).fit(X)


def test_a_private_fit_needs_a_max_norm():
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=2)
    with pytest.raises(ValueError, match=r"max_norm=1\.0"):
        BayesianGaussianMixture(2, privacy=plan).fit(X)
