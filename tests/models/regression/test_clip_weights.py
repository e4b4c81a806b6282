"""Clips that ignore labels: weights, unbiased scores, and the variance of the scores."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from scipy.stats import binom, nbinom

from vips import (
    BayesianBinomialRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    PrivacyPlan,
    Records,
)
from vips.core import engine
from vips.core.phases import phases_of
from vips.data import InMemoryData
from vips.models._variance_ratios import variance_ratios

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2, clip_norm=0.05)
# name: a model, its labels, and their probabilities at the linear predictors, shape (n_records, n_labels)
MODELS = {
    "two classes": (BayesianLogisticRegression, [0, 1], lambda psi: np.hstack([expit(-psi), expit(psi)])),
    "three classes": (
        lambda **settings: BayesianLogisticRegression(classes=[0, 1, 2], **settings),
        [0, 1, 2],
        lambda psi: np.stack(
            [expit(psi[:, 0]), expit(-psi[:, 0]) * expit(psi[:, 1]), expit(-psi).prod(axis=1)], axis=1
        ),
    ),
    "binomial": (
        lambda **settings: BayesianBinomialRegression(n_trials=5, **settings),
        list(range(6)),
        lambda psi: binom.pmf(np.arange(6), 5, expit(psi)),
    ),
    "negative binomial": (
        lambda **settings: BayesianNegativeBinomialRegression(dispersion=2.0, max_count=400, **settings),
        list(range(401)),
        lambda psi: nbinom.pmf(np.arange(401), 2.0, expit(-psi)),
    ),
}


def prepared(make, covariance="full", **settings):
    """A model, rows, and a posterior without variance at some coefficients."""
    rng = np.random.default_rng(0)
    model = make(privacy=PLAN, max_norm=2.0, covariance=covariance, **settings)
    model.n_features_in_ = 3
    average = {name: np.zeros(block.shape) for name, block in model.blocks().items()}
    average["precision"] += 1e9 * np.eye(4) if covariance == "full" else 1e9
    posterior = model.to_posterior(average, dict.fromkeys(average, 0.0), None)
    posterior.mean = 0.7 * rng.normal(size=posterior.mean.shape)
    if getattr(posterior, "search", None) is not None:
        point = np.atleast_2d(posterior.mean) @ model._to_rows(posterior.search.zooms.coordinates).T
        posterior.search = replace(posterior.search, point=point, size=1.3, unit=0.8)
    return model, 0.8 * rng.normal(size=(12, 3)), posterior


def blocks_of(model):
    """The blocks of the last steps."""
    return phases_of(model, 20)[-1].blocks


def shares(model, X, y, posterior):
    """Each record's share of the sum, by block: its statistics, clipped as the engine clips them."""
    statistics = model.expected_statistics(Records(X, y), posterior)
    weights = PLAN.clip_weights(statistics.norms(blocks_of(model)))
    one_hot = np.eye(len(y))
    return weights, [statistics.weighted_sum(weights * row) for row in one_hot]


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("name", MODELS)
def test_weights_depend_on_no_label_and_the_clip_holds_for_every_label(name, covariance):
    make, labels, _ = MODELS[name]
    model, X, posterior = prepared(make, covariance)
    blocks, seen = blocks_of(model), []
    for label in labels if len(labels) < 10 else (0, 1, 7, 100, 400):
        weights, contributions = shares(model, X, np.full(12, label), posterior)
        seen.append(weights)
        for share in contributions:
            norm = np.sqrt(sum(((share[block] / blocks[block].scale) ** 2).sum() for block in blocks))
            assert norm <= PLAN.clip_norm * (1.0 + 1e-12)
    assert (seen[0] < 1.0).all()
    np.testing.assert_array_equal(np.ptp(seen, axis=0), 0.0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.repeated("negative binomial")
def test_clipped_residuals_have_mean_zero_at_the_true_coefficients(name):
    make, labels, probabilities = MODELS[name]
    model, X, posterior = prepared(make)
    X = X if len(labels) < 10 else X[:4]
    n = len(X)
    psi = X @ np.atleast_2d(posterior.mean)[:, :3].T + np.atleast_2d(posterior.mean)[:, 3] + model.likelihood.offset
    mean, size = 0.0, 0.0
    for label, probability in zip(labels, probabilities(psi).T, strict=True):
        residuals = np.array([share["linear"] for share in shares(model, X, np.full(n, label), posterior)[1]])
        weighted = residuals.reshape(n, -1) * probability[:, None]
        mean, size = mean + weighted, size + np.abs(weighted)
    tolerance = 1e-6 if name.endswith("classes") else 1e-4  # of a table of expectations
    assert np.abs(mean).max() < tolerance * size.max()


def table(kind, rng):
    """40 rows of 1 to 9 for each of 12 persons, in order."""
    X = rng.normal(size=(40, 6))
    if kind == "mixed":
        X[rng.random(40) < 0.5, 1:] = 0.0
    starts = np.append(np.sort(rng.choice(np.arange(1, 40), 11, replace=False)), 40)
    return X, np.repeat(np.arange(12), np.diff(np.append(0, starts)))


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_squares_of_scores_are_those_of_persons(kind, noise):
    rng = np.random.default_rng(1)
    X, person = table(kind, rng)
    y = rng.integers(0, 2, 40)
    plan = replace(PLAN, clip_norm=0.3, noise=noise, max_rows_per_group=9 if noise == "discrete" else None)
    model = BayesianLogisticRegression(privacy=plan, max_norm=2.0)
    model.n_features_in_ = 6
    phase = phases_of(model, plan.n_steps)[-1]
    blocks, posterior = phase.blocks, model.to_posterior({}, {}, None)
    posterior.search = replace(posterior.search, size=2.0)
    table_ = sp.csr_array(X) if kind == "sparse" else X
    data = InMemoryData(table_, y).grouped(person, "person")
    total = engine.clipped_sum(model, phase, data, posterior, plan, plan.randomness(0), 1)
    if noise == "discrete":
        total = {name: plan.lattice(blocks).values(value, blocks[name]) for name, value in total.items()}
    expected, linear = np.zeros(7), np.zeros(7)
    for rows in (np.flatnonzero(person == i)[: plan.max_rows_per_group] for i in range(12)):
        statistics = model.expected_statistics(Records(table_[rows], y[rows]), posterior)
        norms = statistics.norms(blocks)
        weight = min(1.0, 0.3 / statistics.run_norms(norms, blocks, np.array([0, len(rows)]))[0])
        share = weight * statistics.weighted_sum(np.ones(len(rows)))["linear"]
        expected, linear = expected + 2.0 * share**2, linear + share
    unit = 0.0 if noise == "gaussian" else plan.lattice(blocks).unit
    np.testing.assert_allclose(total["linear"], linear, atol=20 * unit * blocks["linear"].scale + 1e-9)
    np.testing.assert_allclose(total["squares"], expected, rtol=1e-7, atol=6 * unit * blocks["squares"].scale)
    assert expected.max() > 20 * unit * blocks["squares"].scale


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_person_in_pieces_has_the_same_scores(kind, noise):
    """Chunks of 4,000 rows hold all of them, those of 300 do not; squares are those of the whole score."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(900, 6)), rng.integers(0, 3, 900)
    X[7, 0] = np.nan  # a defective row
    person = (np.arange(900) >= 890).astype(int)
    plan = replace(PLAN, clip_norm=0.3, noise=noise, max_rows_per_group=900 if noise == "discrete" else None)
    model = BayesianLogisticRegression(privacy=plan, max_norm=2.0, classes=[0, 1, 2])
    model.n_features_in_ = 6
    phase, sums = phases_of(model, plan.n_steps)[-1], []
    posterior = model.to_posterior({}, {}, None)
    for model.chunk_size in (4_000, 300):
        data = InMemoryData(sp.csr_array(X) if kind == "sparse" else X, y).grouped(person, "person")
        sums.append(engine.clipped_sum(model, phase, data, posterior, plan, plan.randomness(0), 1))
    for name in phase.blocks:
        np.testing.assert_allclose(sums[1][name], sums[0][name], rtol=1e-6, atol=1e-9 if noise == "gaussian" else 1.0)


def test_variance_ratios_are_kept_without_noise_and_shared_where_noise_hides_them():
    curvature = np.array([5.0, 10.0, 20.0, 1000.0])
    truth = np.array([0.5, 0.6, 3.0, 0.7])
    np.testing.assert_allclose(variance_ratios(truth * curvature, 0.0, curvature), truth)
    rng = np.random.default_rng(0)
    noisy = truth * curvature + 200.0 * rng.standard_normal(4)
    hidden = variance_ratios(noisy, 200.0, curvature)
    assert np.abs(hidden - 0.7).max() < 0.3  # that of the last coefficient, which alone is visible
    assert (variance_ratios(-curvature, 1.0, curvature) > 0.0).all()


@pytest.mark.slow
def test_slopes_are_right_at_the_default_clip():
    """With hardly any noise."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (30_000, 2)) / np.sqrt(2.0)
    truth = np.array([4.0, -2.0])
    y = rng.random(30_000) < expit(X @ truth - 1.0)
    plan = PrivacyPlan(noise_multiplier=0.01, sampling_rate=1.0, n_steps=60)
    slopes = BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X, y).coef_[0]
    assert np.abs(slopes / truth - 1.0).max() < 0.05
