"""The posterior of log rates, against dense formulas and against ratios that everybody computes."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vips import PrivacyPlan, SpatialCounts
from vips.models.spatial import fields, smoothing
from vips.models.spatial.areas import Areas
from vips.models.spatial.fields import SMOOTHNESS, STDS

ROW = {place: [other for other in (place - 1, place + 1) if 0 <= other < 12] for place in range(12)}


def counted(n, seed=0, areas=12):
    """Areas, exposures, counts of dispersion 2, and the log rates."""
    rng = np.random.default_rng(seed)
    truth = np.sin(np.arange(areas) / 2.0)
    area, exposure = rng.integers(areas, size=n), rng.uniform(0.5, 2.0, n)
    return area, exposure, rng.poisson(exposure * np.exp(truth[area]) * rng.gamma(2.0, 0.5, n)), truth


@pytest.mark.parametrize("noise", [0.0, 0.7, 30.0])
@pytest.mark.parametrize(("n_areas", "kind"), [(12, "row"), (90, "row"), (90, "places"), (90, "apart")])
def test_fields_are_those_of_dense_gaussian_algebra(n_areas, kind, noise):
    """Several blocks of areas, and one."""
    rng = np.random.default_rng(0)
    row = {a: [b for b in (a - 1, a + 1) if 0 <= b < n_areas] for a in range(n_areas)}
    places = rng.uniform(size=(n_areas, 2)) if kind == "places" else None
    areas = Areas.of(row if kind == "row" else range(n_areas), places)
    slope, residual = rng.uniform(0.0, 30.0, n_areas), rng.normal(0.0, 10.0, n_areas)
    slope[3], varies = 0.0, slope + 1.0
    cells = np.array([[0, 2], [2, 4], [2, 9], [5, 1], [5, 8]])
    over_map = fields.Fields(areas.borders)
    fits = over_map.fits(cells, slope, varies, noise, residual)
    assert kind == "apart" or (over_map.centred_variances < 1.0).all()
    of_noise = noise**2 * np.linalg.inv(areas.mixing @ areas.mixing.T)
    np.testing.assert_allclose(noise**2 * over_map.noise, np.diagonal(of_noise), rtol=1e-9)
    assert noise**2 * over_map.noise_of_sum == pytest.approx(of_noise.sum(), rel=1e-9)
    evidence, covs = [], list(over_map.covariances(fits, slope, varies, noise))
    for i, (place, std) in enumerate(cells):
        correlation = areas.correlation(SMOOTHNESS[place])
        centred = correlation - correlation.mean(axis=0) - correlation.mean(axis=1)[:, None] + correlation.mean()
        np.testing.assert_allclose(over_map.centred_variances[place], np.diagonal(centred), atol=1e-9)
        prior = STDS[std] ** 2 * correlation + 9.0
        seen = slope[:, None] * prior * slope + np.diag(varies) + of_noise
        gain = prior * slope @ np.linalg.inv(seen)
        np.testing.assert_allclose(fits.means[i], gain @ residual, atol=1e-8)
        cov = prior - gain @ (slope[:, None] * prior)
        np.testing.assert_allclose(covs[i], cov, atol=1e-8)
        variances = fits.variances[i] + fits.level[i] ** 2 / fits.precision[i]
        np.testing.assert_allclose(variances, np.diagonal(cov), atol=1e-8)
        evidence.append(multivariate_normal(cov=seen).logpdf(residual))
    np.testing.assert_allclose(np.diff(fits.evidence), np.diff(evidence), atol=1e-8)


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


@pytest.mark.parametrize("n_tables", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_intervals_hold_what_is_true(n_tables):
    """Fixed tables without noise of privacy: 95 % intervals of 12 rates each."""
    held = []
    for seed in range(n_tables):
        area, exposure, counts, truth = counted(600, seed)
        rates = SpatialCounts(areas=ROW).fit(area, counts, exposure=exposure).rates()
        held.append((np.log(rates["lower"]) <= truth) & (truth <= np.log(rates["upper"])))
    assert 0.93 < np.mean(held) < 0.99


@pytest.mark.slow
def test_areas_of_which_noise_tells_little_are_no_average_areas():
    """60 fixed tables of 40 areas: mean errors of log rates, in posterior deviations, and coverage. A line through the rate at
    the mean of log rates, without their variances, is 0.4 of a deviation too high, and holds 0.89."""
    areas = Areas.of({place: [other for other in (place - 1, place + 1) if 0 <= other < 40] for place in range(40)})
    over_row, errors, held = fields.Fields(areas.borders), [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth = 0.7 * np.linalg.cholesky(areas.correlation(0.9)) @ rng.standard_normal(40)
        counts, noise = rng.poisson(50.0 * np.exp(truth)), (40.0, 4.0, np.array([100.0, 10.0]))
        squares = np.array([counts.sum() + 50.0 * np.exp(2.0 * truth).sum(), 2_000.0])
        seen = areas.mixing.T @ counts, np.full(40, 50.0), squares
        noisy, *others = (value + std * rng.standard_normal(len(value)) for value, std in zip(seen, noise, strict=True))
        sums = np.linalg.solve(areas.mixing.T, noisy), *others
        posterior = smoothing.smoothed(*sums, noise, over_row, (1.0, 1.0), None, 1.0)
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
