"""Whatever noise makes of the totals, steps give finite posteriors, without a warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import vips
from vips import BayesianGaussianMixture, PrivacyPlan
from vips.core.mechanism.noise import gaussian_noise
from vips.core.phases import phases_of, step_of
from vips.models._gaussians.posterior import MixturePosterior

KINDS = ("full", "tied", "diag", "spherical")
SIZES = {"nothing": 0.0, "noise": 1.0, "much": 1e9, "enormous": 1e20}
STEPS = 5


def steps(kind, dof, inference, size, negative, rng):
    """Posteriors and averages of a fit whose totals are all noise."""
    plan = PrivacyPlan(noise_multiplier=3.0, sampling_rate=0.1, n_steps=STEPS, clip_norm=0.5)
    model = BayesianGaussianMixture(
        int(rng.integers(1, 5)), covariance_type=kind, dof=dof, inference=inference, max_norm=0.01, privacy=plan
    )
    model.n_features_in_ = int(rng.integers(1, 5))
    blocks = model.blocks()
    (average, posterior), std = model.start(rng), dict.fromkeys(blocks, 0.0)
    phases = phases_of(model, STEPS)
    for t in range(1, STEPS + 1):
        phase, s = step_of(phases, t)
        rho = phase.step_size(s)
        for name, block in blocks.items():
            fresh = 15.0 * block.scale
            noise = size * fresh * gaussian_noise(block.shape, block.symmetric, 1.0, rng)
            average[name] = (1.0 - rho) * average[name] + rho * (-np.abs(noise) if negative else noise)
            std[name] = np.hypot((1.0 - rho) * np.asarray(std[name]), rho * fresh)
        previous, posterior = posterior, phase.update_after(s)(average, std, posterior)
        average, std = model.transport(average, std, previous, posterior)
        yield posterior, average, std


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_totals_make_numbers_that_are_not_finite(kind, size):
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dof in (None, 1.0, "learn"):
            for inference in ("vb", "em"):
                for posterior, average, std in steps(kind, dof, inference, size, rng.random() < 0.3, rng):
                    MixturePosterior.from_arrays(posterior.to_arrays())  # refuses what is no posterior
                    assert not np.isnan(posterior.tables.log_constants[: posterior.n_active]).any()
                    assert all(np.isfinite(value).all() for value in (*average.values(), *std.values()))
                    assert np.abs(posterior.mean).max() < 0.05  # records are within 0.01, and halves beside them


@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_the_first_step_forgets_the_start(n_components):
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=60)
    model = BayesianGaussianMixture(n_components, max_norm=1.0, privacy=plan)
    model.n_features_in_ = 2
    assert phases_of(model, 60)[0].step_size(1) == 1.0


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.slow)], ids=["few", "more"])
@pytest.mark.parametrize("kind", KINDS)
def test_fits_to_no_records_say_so(kind, seeds):
    """Noise that moved with its component is dependent, and its deviation known on average only: counts tell."""
    for seed in seeds:
        plan = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=20, reproducible_noise=True)
        model = BayesianGaussianMixture(5, covariance_type=kind, max_norm=1.0, privacy=plan, random_state=seed, dof=4.0)
        model.fit(np.zeros((0, 6)))
        assert model.privacy_.only_noise
        assert set(model.signal().values()) == {0.0}
        assert model.n_components_effective_ <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_fits_to_constant_columns_can_be_saved(kind, tmp_path):
    records = np.column_stack([np.arange(20.0), np.full(20, 1e8 / 3.0)])
    for n_steps in (1, 6):
        plan = PrivacyPlan.non_private(n_steps=n_steps)
        model = BayesianGaussianMixture(3, covariance_type=kind, privacy=plan).fit(records)
        model.save(tmp_path / "model.vips")
        np.testing.assert_array_equal(vips.load(tmp_path / "model.vips").means_, model.means_)
