"""Private fits of mixtures: accuracy, what noise and clipping do to what people read, and everything around a fit."""

from __future__ import annotations

import numpy as np
import pytest

import vips
from tests.models.gaussian_mixtures.test_mixture import CENTRES, clusters, fitted
from vips import BayesianGaussianMixture, PrivacyPlan
from vips.models._gaussians import denoising
from vips.models._gaussians.denoising import Influence, view

KINDS = ("full", "tied", "diag", "spherical")
N = 20_000


def private(records, epsilon=1.0, n_steps=24, n_components=4, **settings):
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-6, sampling_rate=1.0, n_steps=n_steps)
    return BayesianGaussianMixture(n_components, max_norm=15.0, privacy=plan, random_state=0, **settings).fit(records)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.representatives("full")
def test_private_components_are_near_those_of_an_ordinary_fit(kind):
    records, test = clusters(N), clusters(4000, seed=9)
    model, ordinary = private(records, covariance_type=kind), fitted(40, records, covariance_type=kind)
    assert model.score(test) > ordinary.score(test) - 0.05
    order = np.linalg.norm(model.means_[:, None] - CENTRES, axis=2).argmin(axis=0)
    assert sorted(order) == [0, 1, 2, 3]
    np.testing.assert_allclose(model.means_[order], CENTRES, atol=0.4)
    if kind == "full":  # rows that weigh less do not bias covariances
        expected = np.diag([1.0, 4.0, 0.25])
        np.testing.assert_allclose(model.covariances_[order], np.broadcast_to(expected, (4, 3, 3)), atol=0.35)


@pytest.mark.parametrize(
    ("kind", "dof", "d"), [("full", None, 2), ("diag", None, 1), ("spherical", None, 6), ("full", 4.0, 3)]
)
def test_rows_that_weigh_less_do_not_bias_covariances(kind, dof, d):
    rng = np.random.default_rng(0)
    records = rng.normal(size=(40_000, d)) * 0.2
    if dof is not None:
        records /= np.sqrt(rng.chisquare(dof, (40_000, 1)) / dof)
    plan = PrivacyPlan(noise_multiplier=1e-3, sampling_rate=1.0, n_steps=20)
    model = BayesianGaussianMixture(1, covariance_type=kind, dof=dof, max_norm=50.0, privacy=plan).fit(records)
    variances = np.diagonal(model.covariances_, axis1=-2, axis2=-1) if kind == "full" else model.covariances_
    np.testing.assert_allclose(variances, 0.04, rtol=0.03)
    assert model.noisy_totals_.average["count"].sum() < 0.95 * 40_000  # rows do weigh less
    np.testing.assert_allclose(model.degrees_of_freedom_ - d, 40_000, rtol=0.02)


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_rows_that_weigh_less_do_not_bias_degrees_of_freedom(kind):
    rng = np.random.default_rng(0)
    records = 0.2 * rng.normal(size=(10_000, 8)) / np.sqrt(rng.chisquare(3.0, (10_000, 1)) / 3.0)
    plan = PrivacyPlan(noise_multiplier=1e-3, sampling_rate=1.0, n_steps=30)
    model = BayesianGaussianMixture(1, covariance_type=kind, dof="learn", max_norm=50.0, privacy=plan).fit(records)
    assert model.dof_[0] == pytest.approx(3.0, abs=0.2)


def test_noise_alone_leaves_degrees_of_freedom_as_they_are():
    plan = PrivacyPlan(noise_multiplier=30.0, sampling_rate=1.0, n_steps=1, clip_norm=1.0)
    model = BayesianGaussianMixture(1, dof="learn", max_norm=1.0, privacy=plan)
    model.n_features_in_ = 2
    frame = model.start(np.random.default_rng(0))[1]
    average = {name: np.zeros(block.shape) for name, block in model.blocks().items()}
    average["count"], average["weight"], average["tail"] = np.array([90.0]), np.array([90.0]), np.array([-120.0])
    assert model.to_posterior(average, dict.fromkeys(average, 60.0), frame).tail[0] == pytest.approx(8.0)
    assert model.to_posterior(average, dict.fromkeys(average, 0.1), frame).tail[0] < 6.0


def test_what_the_view_assumes_about_influence_is_what_the_statistics_do():
    """Simulated rows of a component twice too large, against the curve."""
    model = BayesianGaussianMixture(1, max_norm=1.0)
    model.n_features_in_ = 4
    influence = Influence.of(model.blocks(), "full", 4, 1.0, 0.0)
    rows = np.random.default_rng(0).normal(size=(200_000, 4)) * np.sqrt(2.0)
    squares = np.square(rows).sum(axis=1)
    scale = {name: block.scale for name, block in model.blocks().items()}
    norms = np.sqrt(scale["count"] ** -2.0 + squares / scale["linear"] ** 2 + (squares / scale["second"]) ** 2)
    weights = np.minimum(1.0, 1.0 / norms)
    ratio, weight, _ = influence.corrected((weights * squares).mean() / (4 * weights.mean()))
    assert ratio * (weights * squares).mean() / (4 * weights.mean()) == pytest.approx(2.0, rel=0.02)
    assert weight == pytest.approx(weights.mean(), rel=0.02)


def test_what_noise_hides_stays_as_it_was():
    model = BayesianGaussianMixture(
        2, max_norm=1.0, privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=3)
    )
    model.n_features_in_ = 3
    frame = model.start(np.random.default_rng(0))[1]
    noise = {"count": 1.0, "linear": 50.0, "second": 100.0}
    average = {
        "count": np.array([1000.0, 0.0]),
        "linear": np.full((2, 3), 20.0),
        "second": np.tile(1020.0 * np.eye(3), (2, 1, 1)),
    }
    influences = [Influence(np.ones(161), denoising._GRID)] * 2  # of rows that all weigh 1
    seen = view(average, noise, frame, influences)
    np.testing.assert_allclose(seen["linear"][0], 0.0)
    np.testing.assert_allclose(seen["second"][0], 1000.0 * np.eye(3), rtol=1e-9)
    clear = view(average, {name: 1e-3 * std for name, std in noise.items()}, frame, influences)
    np.testing.assert_allclose(clear["linear"][0], 20.0, rtol=1e-3)
    np.testing.assert_allclose(clear["second"][0], 1020.0 * np.eye(3), rtol=1e-3, atol=0.5)


@pytest.mark.slow
def test_components_without_records_are_reported():
    alone = 0.2 * np.random.default_rng(0).normal(size=(300, 2))
    plan = PrivacyPlan.from_epsilon(epsilon=0.5, delta=1e-6, sampling_rate=1.0, n_steps=20)
    model = BayesianGaussianMixture(8, max_norm=1.0, privacy=plan).fit(alone)
    assert model.n_components_effective_ < 8
    assert model.findings()["components with records"] == float(model.n_components_effective_)
    empty = BayesianGaussianMixture(3, max_norm=1.0, privacy=plan).fit(alone[:0])
    assert np.isfinite(empty.score(alone))


def test_persons_checkpoints_files_and_executors(tmp_path):
    records = clusters(600)
    plan = PrivacyPlan(
        noise_multiplier=1.0, sampling_rate=1.0, n_steps=6, reproducible_noise=True, max_rows_per_group=3
    )
    settings = {"n_components": 3, "max_norm": 15.0, "privacy": plan, "random_state": 0, "dof": "learn"}
    persons = np.arange(600) // 3
    model = BayesianGaussianMixture(**settings).fit(records, groups=persons, checkpoint=tmp_path / "fit.vips")
    assert "unit" in model.privacy_.to_dict()
    with pytest.warns(vips.PrivacyWarning, match="finished fit"):
        again = BayesianGaussianMixture(**settings).fit(records, groups=persons, checkpoint=tmp_path / "fit.vips")
    model.save(tmp_path / "model.vips")
    for other in (again, vips.load(tmp_path / "model.vips")):
        np.testing.assert_allclose(other.means_, model.means_, rtol=1e-9)
        np.testing.assert_allclose(other.noisy_totals_.noise_std["second"], model.noisy_totals_.noise_std["second"])
    discrete = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=4, noise="discrete")
    assert np.isfinite(BayesianGaussianMixture(2, max_norm=15.0, privacy=discrete).fit(records).score(records))


@pytest.mark.slow
def test_compare_matches_components():
    records = clusters(N)
    comparison = vips.compare(private(records), fitted(40, records), clusters(500, seed=3))
    text = str(comparison)
    assert "log density per record" in text
    assert "component" in text


def test_summary_and_picture():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(clusters(400), columns=["a", "b", "c"])
    model = fitted(20, frame, covariance_type="diag")
    table = model.summary()
    assert list(table.columns) == [
        "share",
        "records",
        *(f"{what} {name}" for name in "abc" for what in ("mean", "std")),
    ]
    assert (np.diff(table["share"]) <= 0.0).all()
    largest = int(np.argmax(model.weights_))
    np.testing.assert_allclose(table.iloc[0][["mean a", "std c"]].astype(float), [
        model.means_[largest, 0], np.sqrt(model.covariances_[largest, 2])
    ])  # fmt: skip
    pytest.importorskip("matplotlib").use("Agg")
    ax = model.plot_components(("c", 0), X=frame)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("c", "a")
    assert len(ax.patches) == 2 * 4
    ellipse = ax.patches[2 * largest]
    np.testing.assert_allclose(ellipse.center, model.means_[largest, [2, 0]])
    widths = sorted([ellipse.width, ellipse.height])
    expected = np.sort(np.sqrt(model.covariances_[largest, [2, 0]]))
    np.testing.assert_allclose(widths, 2.0 * np.sqrt(2.0 * np.log(2.0)) * expected, rtol=1e-9)
    with pytest.raises(ValueError, match="two names or indices"):
        model.plot_components(("a", "d"))
