"""Coordinates that a private fit learns: what they do to rows, coefficients, files and the guarantee."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from scipy.stats import chi2

import vips
from tests.mutants import check_notices
from tests.steps import with_updates
from vips import (
    BayesianBinomialRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    PrivacyPlan,
    PrivacyWarning,
    Records,
)
from vips.models.regression.coordinates import Coordinates
from vips.models.regression.matching import ReleasedGradients, RowLaw

RNG = np.random.default_rng(0)
EASY = PrivacyPlan(noise_multiplier=1e-6, sampling_rate=1.0, n_steps=20)
NOISY = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=10)


def table(n, rng, d=3):
    """Columns of different means and deviations, labels, and their coefficients."""
    X = rng.normal(size=(n, d)) * 0.05 * np.arange(1, d + 1) + 0.1 * np.arange(d)
    w = 4.0 * np.resize([1.0, -1.0, 0.5], d)
    return X, (rng.random(n) < expit(X @ w - 0.3)).astype(int), w


def _rows_are_centred_and_scaled():
    X, *_ = table(20_000, np.random.default_rng(1))
    design = np.column_stack([X, np.full(len(X), 0.5)])
    rows, lengths = Coordinates.learnt(design.T @ design, 0.0, 0.5, 2.0).rows(design)
    np.testing.assert_allclose(rows[:, :3].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(rows[:, :3].std(axis=0), 2.0 / np.sqrt(3.0))
    np.testing.assert_array_equal(rows[:, 3], 0.5)
    np.testing.assert_allclose(lengths, np.linalg.norm(rows, axis=1))


def _coefficients_move_with_rows():
    coordinates = Coordinates(np.array([0.3, -0.2, 0.0]), np.array([5.0, 0.1, 1.0]))
    design, w = np.column_stack([RNG.normal(size=(9, 2)), np.full(9, 0.25)]), RNG.normal(size=(2, 3))
    moved = coordinates.rows(design)[0] @ coordinates.coefficients(w, 0.25).T
    np.testing.assert_allclose(moved, design @ w.T)


def without_the_intercept(patch):
    patch.setattr(Coordinates, "coefficients", lambda self, coefficients, constant: coefficients / self.scale)


def not_centred(patch):
    original = Coordinates.__init__
    patch.setattr(Coordinates, "__init__", lambda self, shift, scale: original(self, 0.0 * shift, scale))


def test_rows_are_centred_and_scaled(monkeypatch):
    _rows_are_centred_and_scaled()
    check_notices(_rows_are_centred_and_scaled, not_centred, monkeypatch, "Not equal")


def test_coefficients_move_with_rows(monkeypatch):
    _coefficients_move_with_rows()
    check_notices(_coefficients_move_with_rows, without_the_intercept, monkeypatch, "Not equal")


@pytest.mark.parametrize("precision", [np.zeros((3, 3)), np.diag([1e4, 0.0, 1e3]), 1e-300 * np.eye(3)])
@pytest.mark.parametrize("std", [1e-12, 1e-3, 10.0, 1e30])
def test_columns_of_noise_have_finite_factors(precision, std):
    coordinates = Coordinates.learnt(precision - std * np.diag([1.0, 0.0, 2.0]), std, 0.25, 1.0)
    assert coordinates.move
    assert np.isfinite(coordinates.rows(np.full((1, 3), 0.5))[0]).all()


def test_constant_and_empty_columns_are_scaled_to_less_than_others():
    X, y, _ = table(5_000, np.random.default_rng(2))
    X = np.column_stack([X, np.full(len(X), 0.4), np.zeros(len(X))])
    model = BayesianLogisticRegression(privacy=NOISY, max_norm=1.0).fit(X, y)
    design = np.column_stack([X, np.full(len(X), 0.25)])
    deviations = model.last_posterior_.coordinates.rows(design)[0].std(axis=0)
    assert deviations[3:].max() < 0.1 * deviations[:3].min()


@pytest.mark.representatives("True-settings0")
@pytest.mark.parametrize("settings", [{}, {"classes": [0, 1, 2]}, {"prior": 0.1}])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_fit_with_hardly_any_noise_has_the_coefficients_of_all_records(settings, sparse):
    """Whatever the coordinates: their mean, and its deviation, are those of rows as they come."""
    X, y, _ = table(20_000, np.random.default_rng(3))
    if "classes" in settings:
        y = y + (np.random.default_rng(4).random(len(y)) < 0.3)
    plan = PrivacyPlan(noise_multiplier=1e-6, sampling_rate=1.0, n_steps=40, clip_norm=10.0)
    X = sp.csr_array(X) if sparse else X
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, **settings).fit(X, y)
    plain = BayesianLogisticRegression(max_norm=1.0, **settings | {"prior": settings.get("prior", 0.02)}).fit(X, y)
    assert model.last_posterior_.coordinates.move
    distance = (model.posterior_.mean - plain.last_posterior_.mean) / plain.last_posterior_.std
    np.testing.assert_allclose(distance, 0.0, atol=0.15)


@pytest.mark.slow
def test_counts_and_persons_have_coordinates():
    X, y, w = table(20_000, np.random.default_rng(5))
    p, rng = expit(X @ w - 0.3), np.random.default_rng(6)
    binomial = BayesianBinomialRegression(n_trials=4, privacy=EASY, max_norm=1.0).fit(X, rng.binomial(4, p))
    counts = np.minimum(rng.negative_binomial(2.0, 1.0 - p), 9)
    negative = BayesianNegativeBinomialRegression(dispersion=2.0, max_count=9, privacy=EASY, max_norm=1.0).fit(
        X, counts
    )
    persons = BayesianLogisticRegression(privacy=EASY, max_norm=1.0).fit(X, y, groups=np.arange(len(X)) // 3)
    for model, truth in ((binomial, w), (persons, w)):
        assert model.last_posterior_.coordinates.move
        np.testing.assert_allclose(model.coef_.ravel(), truth, atol=1.0)
    assert negative.last_posterior_.coordinates.move


def test_fits_that_learn_no_coordinates():
    X, y, _ = table(500, np.random.default_rng(7))
    largest = BayesianLogisticRegression(privacy=NOISY, max_norm=1.0)
    largest.n_features_in_ = 3
    for settings in (
        {"covariance": "diagonal"},
        {"fit_intercept": False},
        {"statistics": "paper"},
        {"schedule": lambda t: 1.0 / t},
        {"privacy": PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=4)},
        {
            "influence": "clipped",
            "privacy": PrivacyPlan(
                noise_multiplier=10.0, sampling_rate=1.0, n_steps=10, clip_norm=2.0 * largest.max_record_norm()
            ),
        },
    ):
        model = BayesianLogisticRegression(**{"privacy": NOISY, "max_norm": 1.0} | settings).fit(X, y)
        assert not model.last_posterior_.coordinates.move
    plain = BayesianLogisticRegression(privacy=PrivacyPlan.non_private(sampling_rate=1.0, n_steps=10)).fit(X, y)
    assert not plain.last_posterior_.coordinates.move


def test_one_event_a_step_and_the_accounting_of_equal_steps():
    X, y, _ = table(500, np.random.default_rng(8))
    model = BayesianLogisticRegression(privacy=NOISY, max_norm=1.0).fit(X, y)
    assert model.last_posterior_.coordinates.move
    assert model.privacy_.plan.phases == ()
    assert model.privacy_.epsilon(1e-6) == pytest.approx(NOISY.epsilon(1e-6))


def test_coordinates_follow_from_released_totals_alone():
    """With frozen totals in its steps, a fit to other records has the same coordinates and coefficients."""
    fits = []
    for seed in range(2):
        X, y, _ = table(300 + seed, np.random.default_rng(seed))
        model = BayesianLogisticRegression(privacy=NOISY, max_norm=1.0)
        rng = np.random.default_rng(9)

        def frozen(update, rng=rng):
            def updated(average, noise_std, posterior):
                totals = {name: rng.normal(5.0, 1.0, np.shape(value)) for name, value in average.items()}
                return update(totals, noise_std, posterior)

            return updated

        with_updates(model, frozen)
        fits.append(model.fit(X, y).last_posterior_)
    np.testing.assert_array_equal(fits[0].coordinates.shift, fits[1].coordinates.shift)
    np.testing.assert_array_equal(fits[0].mean, fits[1].mean)


def test_a_saved_model_keeps_its_coordinates(tmp_path):
    X, y, _ = table(500, np.random.default_rng(10))
    model = BayesianLogisticRegression(privacy=NOISY, max_norm=1.0).fit(X, y)
    model.save(tmp_path / "model")
    loaded = vips.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.last_posterior_.coordinates.scale, model.last_posterior_.coordinates.scale)
    np.testing.assert_allclose(loaded.summary()["std"], model.summary()["std"], rtol=1e-12)
    with pytest.raises(ValueError, match="finite"):
        Coordinates(np.zeros(2), np.array([1.0, 0.0]))


def test_totals_of_columns_are_those_of_rows_as_they_come():
    X, y, _ = table(20_000, np.random.default_rng(11))
    model = BayesianLogisticRegression(privacy=EASY, max_norm=1.0).fit(X, y)
    totals = model.feature_totals()
    np.testing.assert_allclose(totals.means, X.mean(axis=0), atol=0.01)
    inverse = (
        1.0 / model.last_posterior_.coordinates.scale[:3] ** 2
        + (model.last_posterior_.coordinates.shift[:3] / 0.25) ** 2
    )
    np.testing.assert_allclose(totals.noise_std, model.noisy_totals_.noise_std["precision"] * inverse)


# -- rows ---------------------------------------------------------------------------------------------------------------


def _moved(settings=None):
    """A model ready for E-steps, and a posterior with coordinates."""
    X, y, _ = table(500, np.random.default_rng(12))
    model = BayesianLogisticRegression(privacy=NOISY, max_norm=1.0, **settings or {}).fit(X, y)
    return model, model.last_posterior_


HOSTILE = np.array([
    [np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0], [1e308, 1e308, -1e308], [1e-310, -1e-310, 0.0], [0.0, 0.0, 0.0], [1e9, -1e9, 1.0]
])  # fmt: skip


@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_is_the_same_in_any_company(sparse):
    model, posterior = _moved()
    X = np.vstack([table(700, np.random.default_rng(13))[0], HOSTILE])
    X, y = sp.csr_array(X) if sparse else X, np.resize([0.0, 1.0], len(X))
    with np.errstate(all="ignore"):
        together = model.expected_statistics(Records(X, y), posterior)
        norms = together.norms(model.blocks())
        for i in (0, 17, 699, *range(700, 706)):
            alone = model.expected_statistics(Records(X[[i]], y[[i]]), posterior)
            np.testing.assert_array_equal(alone.norms(model.blocks()), norms[[i]])
            np.testing.assert_array_equal(alone.residual[0], together.residual[i])


def test_norms_of_moved_rows_are_never_too_small():
    model, posterior = _moved()
    X = np.vstack([table(50, np.random.default_rng(14))[0], HOSTILE[2:]])
    blocks = model.blocks()
    for row in X:
        for label in (0.0, 1.0):
            statistics = model.expected_statistics(Records(row[None], np.array([label])), posterior)
            norm, total = statistics.norms(blocks)[0], statistics.weighted_sum(np.ones(1))
            size = np.sqrt(sum(np.sum((total[name] / block.scale) ** 2) for name, block in blocks.items()))
            assert norm >= size * (1.0 - 1e-13)


# -- scatter ------------------------------------------------------------------------------------------------------------


def _scatter(off: float, rng) -> float:
    """p of totals that a law predicts; ``off`` times its deviations are wrong."""
    law = RowLaw(4e4, np.array([0.2, -0.1, 0.25]), np.diag([0.2, 0.1, 0.0]))
    rows = RowLaw(law.count, law.mean, law.cov * off)
    points, noise = rng.normal(size=(12, 3)), 30.0
    totals = rows.total(np.array([2.0, -1.0, 0.5])) - np.array([rows.total(b) for b in points])
    totals += noise * rng.normal(size=totals.shape)
    steps = ReleasedGradients(points, totals, np.ones(12), np.ones(12), noise, 1.0, law, np.zeros((3, 3)), 1.0)
    return float(chi2.sf(*steps.scatter(np.array([2.0, -1.0, 0.5]))))


def test_scatter_is_that_of_noise_where_the_law_holds_and_larger_where_not():
    right = [_scatter(1.0, np.random.default_rng(seed)) for seed in range(400)]
    assert np.mean(np.array(right) < 0.01) < 0.03  # 12 of 400 is more than 4 deviations above 1 %
    assert abs(np.mean(right) - 0.5) < 0.06
    assert max(_scatter(1.3, np.random.default_rng(seed)) for seed in range(20)) < 0.01


def test_summary_warns_of_gradients_that_do_not_fit(monkeypatch):
    X, y, _ = table(5_000, np.random.default_rng(15))
    model = BayesianLogisticRegression(
        privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=20), max_norm=1.0
    ).fit(X, y)
    model.summary()
    monkeypatch.setattr(ReleasedGradients, "carried", lambda self: self.totals / self.weights[:, None])
    with pytest.warns(PrivacyWarning, match="do not fit a Gaussian law"):
        model.summary()
    assert np.isnan(BayesianLogisticRegression().fit(X, y).misfit())
