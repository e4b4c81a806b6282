"""Statistics of mixtures against those of records formed one by one, and mutants of the kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vips import BayesianGaussianMixture, PrivacyPlan
from vips.core.exact.rowwise import scaled_rows
from vips.core.sums import DenseStatistics
from vips.core.sums import gaussian_kernels as kernels
from vips.core.sums.gaussians import MixtureStatistics, Tables
from vips.privacy import Lattice

N, D, K = 300, 5, 3  # more records than a tile holds
KINDS = ("full", "tied", "diag", "spherical")
SETTINGS = [{"covariance_type": kind, "dof": dof} for kind in KINDS for dof in (None, 4.0)] + [{"dof": "learn"}]


def prepared(settings, seed=0):
    """A model with a posterior of three components, and records around them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) @ np.diag(np.arange(1.0, D + 1)) + 4.0 * rng.integers(-1, 2, (N, 1))
    plan = PrivacyPlan.non_private(n_steps=8)
    model = BayesianGaussianMixture(K, privacy=plan, random_state=0, max_norm=40.0, **settings).fit(X)
    return model, X


def formed(model, X):
    """Every record's statistics, written down anew."""
    posterior, blocks = model.last_posterior_, model.blocks()
    shares, d = model.predict_proba(X), X.shape[1]
    centred = X[:, None, :] - posterior.mean
    inverses = posterior.inverse_factors
    if model.covariance_type in ("full", "tied"):
        images = np.einsum("kij,nkj->nki", np.linalg.inv(posterior.factors), centred)
    else:
        images = centred * inverses[:, 0]
    arrays = {"count": shares}
    weights = shares
    if "weight" in blocks:
        distances = np.square(images).sum(axis=2) + d / posterior.mean_precision
        factors = (posterior.tail + d) / (posterior.tail + distances)
        arrays["weight"] = weights = shares * factors
        if "tail" in blocks:
            arrays["tail"] = shares * posterior.tables.log_factors(factors)
    arrays["linear"] = weights[:, :, None] * images
    outer = weights[:, :, None, None] * images[:, :, :, None] * images[:, :, None, :]
    arrays["second"] = {
        "full": outer,
        "tied": outer.sum(axis=1),
        "diag": np.einsum("nkii->nki", outer),
        "spherical": np.einsum("nkii->nk", outer),
    }[model.covariance_type]
    return DenseStatistics({name: arrays[name] for name in blocks})


def check(settings):
    model, X = prepared(settings)
    blocks = model.blocks()
    statistics, expected = MixtureStatistics(X, model.last_posterior_.tables, blocks), formed(model, X)
    np.testing.assert_allclose(statistics.norms(blocks), expected.norms(blocks), rtol=1e-7, err_msg="norms differ")
    weights = np.random.default_rng(1).random(N)
    weights[::7] = 0.0
    lattice = Lattice(1e-4, 1024)
    one, other = statistics.weighted_sum(weights), expected.weighted_sum(weights)
    rounded, also = (form.rounded_sum(weights, blocks, lattice) for form in (statistics, expected))
    for name in blocks:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-8, atol=1e-8, err_msg=f"sums of {name} differ")
        assert np.abs(rounded[name] - also[name]).max() <= 2, f"rounded sums of {name} differ"


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_statistics_are_those_of_records_formed_one_by_one(settings):
    check(settings)


def test_long_records_weigh_less_and_never_more_than_the_bound():
    model, X = prepared({})
    blocks, tables = model.blocks(), model.last_posterior_.tables
    plain, bounded = MixtureStatistics(X, tables, blocks), MixtureStatistics(X, tables, blocks, 1.0)
    norms = plain.norms(blocks)
    assert (norms > 1.0).any()
    assert (norms < 1.0).any()
    assert bounded.norms(blocks).max() <= 1.0 + 1e-8
    for i in (int(norms.argmax()), int(norms.argmin())):
        alone = (np.arange(N) == i).astype(float)
        share, full = bounded.weighted_sum(alone), plain.weighted_sum(alone)
        for name in blocks:
            np.testing.assert_allclose(share[name], full[name] / max(1.0, norms[i]), rtol=1e-7, atol=1e-12)


def test_rows_are_scaled_to_the_norm_each_by_itself():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4)) * np.geomspace(1e-3, 1e200, 20)[:, None]
    scaled = scaled_rows(X, 2.0)
    assert np.linalg.norm(scaled, axis=1).max() <= 2.0 * (1.0 + 1e-12)
    short = np.linalg.norm(X[:10], axis=1) <= 2.0
    np.testing.assert_array_equal(scaled[:10][short], X[:10][short])
    for i in range(20):
        np.testing.assert_array_equal(scaled_rows(X[[i]], 2.0)[0], scaled[i])


def test_fits_see_rows_that_are_scaled_to_the_norm():
    model, X = prepared({})
    long = X * (100.0 / np.linalg.norm(X, axis=1))[:, None]
    np.testing.assert_allclose(model.score_samples(long), model.score_samples(0.4 * long), rtol=1e-9)


@pytest.mark.parametrize("dof", [None, 4.0])
@pytest.mark.parametrize("kind", KINDS)
def test_noise_in_counts_is_carried_to_the_other_totals(kind, dof):
    """Totals are counts alone: what they become in other coordinates is their noise there."""
    model, _ = prepared({"covariance_type": kind, "dof": dof})
    old, blocks = model.last_posterior_, model.blocks()
    rng = np.random.default_rng(0)
    new = replace(old, mean=old.mean + rng.normal(size=(K, D)), factor=1.5 * old.factor, portion=np.ones(K))
    noise = np.zeros(K) if kind == "tied" else 2.0 + np.arange(K)
    noise[0] = 2.0  # of tied components the first alone, whose second moments do not mix with those of others
    alike = {name: noise if name in ("count", "weight") else np.zeros(block.shape) for name, block in blocks.items()}
    std = {name: noise if name in ("count", "weight") else 0.0 for name in blocks}
    carried, stated = model.transport(alike, std, old, new)
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(carried["linear"]), axis=1)), stated["linear"][:, 0])
    entries = {"full": D * (D + 1) / 2, "tied": D * (D + 1) / 2, "diag": D, "spherical": 1}[kind]
    size = np.square(carried["second"]).reshape(1 if kind == "tied" else K, -1).sum(axis=1)
    np.testing.assert_allclose(np.sqrt(size / entries), np.ravel(stated["second"]))


# -- mutants ----------------------------------------------------------------------------------------------------


def upper_triangle_ignored(patch):
    original = Tables.unpacked

    def unpacked(self, moments):
        *others, second = original(self, moments)
        return *others, np.tril(second)

    patch.setattr(Tables, "unpacked", unpacked)


def norm_without_the_second_moments(patch):
    original = kernels.fill_responsibilities

    def responsibilities(X, rows, shifts, constants, excess, tail, inverses, *others):
        original(X, rows, shifts, constants, excess, tail, inverses * [1.0, 1.0, 1.0, 0.0], *others)

    patch.setattr(kernels, "fill_responsibilities", responsibilities)


def absent_records_counted(patch):
    original = kernels.add_moments
    patch.setattr(
        kernels, "add_moments", lambda X, rows, shifts, weights, *args: original(X, rows, shifts, weights + 1e-3, *args)
    )


def moments_about_the_origin(patch):
    original = kernels.add_moments
    patch.setattr(kernels, "add_moments", lambda X, rows, shifts, *args: original(X, rows, 0.0 * shifts, *args))


@pytest.mark.parametrize(
    "mutant",
    [upper_triangle_ignored, norm_without_the_second_moments, absent_records_counted, moments_about_the_origin],
)
def test_mutants_are_noticed(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match="differ"):
        check({})
