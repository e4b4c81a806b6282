"""How private LDA denoises counts and scales words."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erfcx, log_ndtr
from scipy.stats import norm

from vips import LatentDirichletAllocation, PrivacyPlan
from vips.models import _denoising as lda_view
from vips.models._denoising import components, denoise_counts
from vips.models.topics.denoising import LARGEST_SCALE, scale_cells
from vips.models.topics.statistics import TopicPosterior


def sparse_counts(rng, n_topics=10, n_words=500, total=20_000):
    words = rng.dirichlet(np.full(n_words, 0.3))
    return np.array([total * rng.dirichlet(50.0 * words + 1e-3) for _ in range(n_topics)])


def test_posterior_mean_against_numerical_integration(monkeypatch):
    """With the shares held at 1/3 each, cell by cell."""
    monkeypatch.setattr(lda_view, "_EM_STEPS", 0)
    noisy = np.array([[-30.0, 0.0, 4.0, 55.0, 400.0]])
    result = lda_view.posterior_mean(noisy, np.full((1, 5), 10.0), np.full((1, 5), 20.0))
    for c, value in zip(noisy[0], result[0], strict=True):

        def weight(mu, c=c):
            prior = np.mean([np.exp(-mu / (r * 20.0)) / (r * 20.0) for r in (0.1, 1.0, 10.0)])
            return prior * norm.pdf(c, mu, 10.0)

        points = [max(0.0, c - 60.0), max(0.0, c), max(0.0, c) + 100.0]
        pieces = [(0.0, points[0]), (points[0], points[1]), (points[1], points[2]), (points[2], points[2] + 2000.0)]
        mass = sum(quad(weight, a, b)[0] for a, b in pieces)
        mean = sum(quad(lambda mu: mu * weight(mu), a, b)[0] for a, b in pieces) / mass
        assert value == pytest.approx(mean, rel=1e-5)


def test_components_against_scipy():
    """Means and likelihoods of truncated normal distributions, from nearly all cut off to nearly nothing."""
    rng = np.random.default_rng(5)
    noisy, prior_mean = rng.uniform(-45.0, 45.0, 2000), np.exp(rng.uniform(-9.0, 6.0, 2000))
    bound, excess, likelihood = (array[..., :2000] for array in components(noisy, np.ones(2000), prior_mean))
    component_mean = np.outer([0.1, 1.0, 10.0], np.maximum(prior_mean, 1e-6))
    z = noisy - 1.0 / component_mean
    ratio = np.sqrt(np.pi / 2.0) * erfcx(np.minimum(z, 35.0) / -np.sqrt(2.0))
    np.testing.assert_allclose(bound, np.maximum(z[2], 0.0), atol=1e-5)
    expected_mean = z + 1.0 / ratio  # loses digits where z is far below 0
    np.testing.assert_allclose(bound + excess, expected_mean, rtol=2e-6, atol=1e-5 + 1e-15 * z.min() ** 2)
    log = np.where(z < 35.0, np.log(ratio), z**2 / 2.0 + log_ndtr(z) + np.log(2.0 * np.pi) / 2.0) - np.log(
        component_mean
    )
    log -= log.max(axis=0)
    expected, scaled = np.exp(log), likelihood / likelihood.max(axis=0)
    np.testing.assert_allclose(scaled, expected, rtol=1e-4, atol=1e-24)
    assert (z > 30.0).any()
    assert (z < -1000.0).any()


@pytest.mark.parametrize("noise", [1.0, 10.0, 100.0])
def test_denoising_beats_clamping(noise):
    rng = np.random.default_rng(0)
    true = sparse_counts(rng)
    noisy = true + noise * rng.normal(size=true.shape)
    counts, words = denoise_counts(noisy, np.full(noisy.shape, noise))
    clamped = np.maximum(noisy, 0.0)
    assert np.sum((counts - true) ** 2) < 0.9 * np.sum((clamped - true) ** 2)
    prior = 0.1
    cross_entropy = [
        -np.sum(true * np.log((prior + c) / (prior + c).sum(axis=1, keepdims=True))) for c in (counts, clamped)
    ]
    assert cross_entropy[0] < cross_entropy[1]
    assert np.sum((words - true.sum(axis=0)) ** 2) <= 1.01 * np.sum((noisy.sum(axis=0) - true.sum(axis=0)) ** 2)


@pytest.mark.parametrize("n_words", [1, 63, 64, 65, 130])
def test_fitted_shares_and_means_against_numpy(n_words):
    """EM in double precision, by arrays, with components that another test compares with SciPy's."""
    rng = np.random.default_rng(6)
    noisy, noise_std = rng.normal(3.0, 5.0, (7, n_words)), rng.uniform(0.5, 2.0, (7, n_words))
    of_topic, prior_mean = rng.dirichlet(np.ones(7)), rng.gamma(1.0, 20.0, (1, n_words))
    cells = (noisy, noise_std, np.outer(of_topic, prior_mean))
    bound, excess, likelihood = (
        array[..., : 7 * n_words].reshape(-1, 7, n_words).astype(float)
        for array in components(*(numbers.ravel() for numbers in cells))
    )
    common = np.full(3, 1.0 / 3.0)
    for _ in range(20):
        common = common * (likelihood / np.tensordot(common, likelihood, 1)).mean(axis=(1, 2))
    shares = np.outer(common, np.ones(n_words))
    for _ in range(3):
        ratios = (likelihood / np.einsum("jv,jkv->kv", shares, likelihood)).sum(axis=1)
        shares = (10.0 * common[:, None] + shares * ratios) / (7 + 10.0)
    weights = shares[:, None] * likelihood
    expected = bound[0] + noise_std * (weights * excess).sum(axis=0) / weights.sum(axis=0)
    for mean, factors in ((prior_mean, of_topic), (cells[2], None)):
        means = lda_view.posterior_mean(noisy, noise_std, mean, own_shares=True, of_topic=factors)
        np.testing.assert_allclose(means, expected, rtol=2e-6)
    in_place = noisy.copy()
    lda_view.posterior_mean(in_place, noise_std, prior_mean, own_shares=True, of_topic=of_topic, out=in_place)
    np.testing.assert_array_equal(
        in_place, lda_view.posterior_mean(noisy, noise_std, prior_mean, own_shares=True, of_topic=of_topic)
    )


def test_threads_change_no_bit_of_counts_and_scales(monkeypatch):
    rng = np.random.default_rng(7)
    noisy, noise_std = rng.normal(3.0, 5.0, (5, 1000)), rng.uniform(0.5, 2.0, (5, 1000))
    results = []
    for n_threads in (1, 2, 5):
        monkeypatch.setattr("vips.core.exact.threads.n_threads", lambda n_threads=n_threads: n_threads)
        counts, _ = denoise_counts(noisy, noise_std)
        results.append((counts, scale_cells(counts, noise_std)))
    for counts, scale in results[1:]:
        np.testing.assert_array_equal(counts, results[0][0])
        np.testing.assert_array_equal(scale, results[0][1])


def test_denoising_vanishes_with_the_noise():
    true = sparse_counts(np.random.default_rng(1)) + 1.0
    for noise in (1e-2, 1e-5, 1e-9):
        counts, _ = denoise_counts(true, np.full(true.shape, noise))
        np.testing.assert_allclose(counts, true, atol=2.0 * noise)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (6, 1), (5, 40)])
@pytest.mark.parametrize("noise", [1e-8, 1.0, 1e8])
def test_anything_gives_valid_counts_without_a_warning(shape, noise):
    rng = np.random.default_rng(2)
    for noisy in (np.zeros(shape), np.full(shape, -1e3 * noise), noise * rng.normal(size=shape), np.full(shape, 1e12)):
        with np.errstate(all="raise", under="ignore"):
            counts, words = denoise_counts(noisy, np.full(shape, noise))
            scale = scale_cells(counts, np.full(shape, noise))
        for values in (counts, words, scale):
            assert np.isfinite(values).all()
            assert (values >= 0.0).all()
        assert (scale > 0.0).all()


def test_scales_keep_the_meaning_of_the_clip_norm():
    counts = np.random.default_rng(3).gamma(2.0, 100.0, (40, 2500))
    counts[0, :300] *= 1e-3
    scale = scale_cells(counts, np.zeros(counts.shape))
    square = np.average(scale**2, weights=np.maximum(counts / counts.mean(), 0.01))
    assert 0.99 < square <= 1.0  # a little less where the largest scale is reached
    order = np.argsort(counts, axis=None)
    assert (np.diff(scale.ravel()[order]) <= 1e-12).all()  # rarer cells are never scaled down more
    average = np.interp(counts.mean(), counts.ravel()[order], scale.ravel()[order])
    assert scale.max() == LARGEST_SCALE == 5.0
    rare = counts < 0.01 * counts.mean()
    np.testing.assert_allclose(
        scale[~rare & (scale < 5.0)], average * (counts / counts.mean())[~rare & (scale < 5.0)] ** -0.45, rtol=1e-6
    )


def test_scaled_totals_are_undone_exactly():
    """Constant totals, released under a scale that changes from step to step, are recovered."""
    rng = np.random.default_rng(4)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=12)
    model = LatentDirichletAllocation(4, vocabulary=60, privacy=plan)
    true = rng.gamma(1.0, 1000.0, (4, 60)) + 50.0
    average = np.zeros((4, 60))
    posterior = model.to_posterior({"topic_word": average}, {"topic_word": 0.0}, None)
    scales = []
    for t in range(1, 13):
        scales.append(posterior.scale)
        average = (1 - model.step_size(t)) * average + model.step_size(t) * posterior.scale * true
        posterior = model.to_posterior({"topic_word": average}, {"topic_word": 1e-4}, posterior)
    assert posterior.step == 12
    assert not np.allclose(scales[1], 1.0)
    np.testing.assert_allclose(posterior.concentration - 0.25, true, rtol=1e-5)


def test_no_noise_means_no_scaling():
    model = LatentDirichletAllocation(3, privacy=PrivacyPlan.non_private(n_steps=3), random_state=0)
    model.fit(np.random.default_rng(0).poisson(1.0, (40, 20)))
    np.testing.assert_array_equal(model.last_posterior_.scale, 1.0)
    np.testing.assert_array_equal(model.last_posterior_.average_scale, 1.0)


def test_posterior_round_trip():
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=3)
    model = LatentDirichletAllocation(3, vocabulary=20, privacy=plan).fit(np.ones((5, 20)))
    arrays = model.last_posterior_.to_arrays()
    again = TopicPosterior.from_arrays(arrays).to_arrays()
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, again[name])


def test_counts_below_their_noise_have_one_scale():
    """Else noise would choose the scales, and a fit of few documents be worse than without them."""
    counts, noise = np.random.default_rng(3).gamma(0.5, 100.0, (4, 250)), np.full((4, 250), 1e6)
    np.testing.assert_allclose(scale_cells(counts, noise), 1.0)
