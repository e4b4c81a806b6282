"""The posterior of log rates, against dense formulas and against ratios that everybody computes."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vips import PrivacyPlan, SpatialCounts
from vips.models.spatial import smoothing
from vips.models.spatial.areas import Areas
from vips.models.spatial.smoothing import STDS, NoisySums

ROW = {place: [other for other in (place - 1, place + 1) if 0 <= other < 12] for place in range(12)}


def counted(n, seed=0, areas=12):
    """Areas, exposures, counts of dispersion 2, and the log rates."""
    rng = np.random.default_rng(seed)
    truth = np.sin(np.arange(areas) / 2.0)
    area, exposure = rng.integers(areas, size=n), rng.uniform(0.5, 2.0, n)
    return area, exposure, rng.poisson(exposure * np.exp(truth[area]) * rng.gamma(2.0, 0.5, n)), truth


def test_fields_are_those_of_dense_gaussian_algebra():
    rng, correlation = np.random.default_rng(0), Areas.of(ROW).correlation(0.9)
    slope, residual = rng.uniform(0.0, 30.0, 12), rng.normal(0.0, 10.0, 12)
    varies = np.diag(slope + 1.0) + 0.3 * correlation
    field = smoothing._Field.given(correlation, slope, varies, residual)
    evidence = []
    for i, std in enumerate(STDS):
        prior = std**2 * correlation + smoothing._INTERCEPT_STD**2
        seen = slope[:, None] * prior * slope + varies
        gain = prior * slope @ np.linalg.inv(seen)
        np.testing.assert_allclose(field.means[i], gain @ residual, atol=1e-9)
        cov, one = prior - gain @ (slope[:, None] * prior), np.eye(len(STDS))[i]
        np.testing.assert_allclose(field.cov(one), cov, atol=1e-8)
        np.testing.assert_allclose(field.var_about(field.means[i] - 2.0, one), np.diagonal(cov) + 4.0, atol=1e-8)
        evidence.append(multivariate_normal(cov=seen).logpdf(residual))
    np.testing.assert_allclose(np.diff(field.evidence), np.diff(evidence), atol=1e-9)


def test_large_counts_give_the_ratios_their_errors_and_the_dispersion():
    area, exposure, counts, _ = counted(400_000)
    model = SpatialCounts(areas=ROW).fit(area, counts, exposure=exposure)
    whole = np.bincount(area, exposure)
    ratios = np.bincount(area, counts) / whole
    # of a sum of counts with mean m = eλ and variance m + m²/2
    errors = np.sqrt(ratios * whole + 0.5 * ratios**2 * np.bincount(area, exposure**2)) / (whole * ratios)
    np.testing.assert_allclose(model.posterior_.mean, np.log(ratios), atol=0.1 * errors.min())
    np.testing.assert_allclose(model.posterior_.std, errors, rtol=0.05)
    assert model.findings()["dispersion of counts"] == pytest.approx(2.0, rel=0.05)
    given = SpatialCounts(areas=ROW, dispersion=2.0).fit(area, counts, exposure=exposure)
    np.testing.assert_allclose(given.posterior_.std, errors, rtol=0.05)


def test_little_noise_is_no_noise():
    area, exposure, counts, _ = counted(3_000)
    settings = {"areas": ROW, "max_count": 1_000, "exposure_bounds": (0.5, 2.0)}
    ordinary = SpatialCounts(**settings).fit(area, counts, exposure=exposure).posterior_
    for noise in (1e-9, 1e-6):
        plan = PrivacyPlan(noise_multiplier=noise, sampling_rate=1.0, n_steps=1)
        private = SpatialCounts(**settings, privacy=plan).fit(area, counts, exposure=exposure).posterior_
        np.testing.assert_allclose(private.mean, ordinary.mean, atol=2e-3)
        np.testing.assert_allclose(private.cov, ordinary.cov, atol=2e-4)


def test_noisy_exposures_are_those_of_a_gamma_law():
    rng = np.random.default_rng(0)
    true = rng.gamma(2.0, 50.0, 3_000)
    noisy = true + 40.0 * rng.standard_normal(3_000)
    mean, variance = smoothing._denoised(noisy, 40.0)
    assert (mean > 0.0).all()
    # the means are off by their variances, and better than what was seen
    assert np.mean((mean - true) ** 2) == pytest.approx(variance.mean(), rel=0.1)
    assert np.mean((mean - true) ** 2) < 0.85 * 40.0**2
    exact, nothing = smoothing._denoised(true, 0.0)
    np.testing.assert_array_equal(exact, true)
    assert not nothing.any()


def test_intervals_hold_what_is_true():
    """40 fixed tables without noise of privacy: 95 % intervals of 480 rates."""
    held = []
    for seed in range(40):
        area, exposure, counts, truth = counted(600, seed)
        rates = SpatialCounts(areas=ROW).fit(area, counts, exposure=exposure).rates()
        held.append((np.log(rates["lower"]) <= truth) & (truth <= np.log(rates["upper"])))
    assert 0.93 < np.mean(held) < 0.99


def test_areas_of_which_noise_tells_little_are_no_average_areas():
    """60 fixed tables of 40 areas: mean errors of log rates, in posterior deviations, and coverage. A line through the rate at
    the mean of log rates, without their variances, is 0.4 of a deviation too high, and holds 0.89."""
    areas = Areas.of({place: [other for other in (place - 1, place + 1) if 0 <= other < 40] for place in range(40)})
    correlations, errors, held = [areas.correlation(rho) for rho in smoothing.SMOOTHNESS], [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth = 0.7 * np.linalg.cholesky(areas.correlation(0.9)) @ rng.standard_normal(40)
        counts, noise = rng.poisson(50.0 * np.exp(truth)), (40.0, 4.0, np.array([100.0, 10.0]))
        squares = np.array([counts.sum() + 50.0 * np.exp(2.0 * truth).sum(), 2_000.0])
        seen = areas.mixing.T @ counts, np.full(40, 50.0), squares
        sums = NoisySums(
            *(value + std * rng.standard_normal(len(value)) for value, std in zip(seen, noise, strict=True)),
            noise,
            areas.mixing,
        )
        posterior = smoothing.smoothed(sums, correlations, (1.0, 1.0), None, 1.0)
        errors.append(np.mean((posterior.mean - truth) / posterior.std))
        held.append(np.abs(posterior.mean - truth) < 1.96 * posterior.std)
    assert abs(np.mean(errors)) < 0.25
    assert 0.90 < np.mean(held) < 0.97


def test_areas_without_people_are_left_open_and_near_their_neighbours():
    area, exposure, counts, _ = counted(20_000)
    present = area != 3
    model = SpatialCounts(areas=ROW).fit(area[present], counts[present], exposure=exposure[present])
    rates = model.rates()
    assert rates["left open"].idxmax() == 3
    assert rates.loc[3, "upper"] / rates.loc[3, "lower"] > 2.0 * (rates["upper"] / rates["lower"]).median()
    assert rates.loc[2, "rate"] < rates.loc[3, "rate"] < rates.loc[4, "rate"]
    apart = SpatialCounts(areas=list(ROW)).fit(area[present], counts[present], exposure=exposure[present]).rates()
    assert apart.loc[3, "hidden by"] == "few records"
    assert (apart["hidden by"] == "").sum() == 11
