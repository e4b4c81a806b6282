"""Intervals of scores from noisy histograms hold the scores of all persons, at every noise."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from vips.tools.evaluation.estimates import (
    EDGES,
    N_BINS,
    Estimate,
    area_under_curve,
    bins_in_use,
    centres,
    linear_score,
    weights,
)

N_SAMPLES = 500


def shares_of(mean, deviation, slope=1.0, n=400_001):
    """Shares of the cells, and the scores, by quadrature over normal log odds."""
    z = np.linspace(-6.0, 6.0, n)
    psi, mass = mean + deviation * z, np.exp(-0.5 * z**2)
    mass /= mass.sum()
    outcome = expit(slope * psi)
    by_outcome = np.stack([mass * (1.0 - outcome), mass * outcome])
    bins = np.searchsorted(EDGES, expit(psi))
    shares = np.stack([np.bincount(bins, values, N_BINS) for values in by_outcome])
    below = np.cumsum(by_outcome[0]) - 0.5 * by_outcome[0]
    auc = by_outcome[1] @ below / by_outcome.sum(axis=1).prod()
    loss = (by_outcome[0] * np.logaddexp(0.0, psi) + by_outcome[1] * np.logaddexp(0.0, -psi)).sum()
    brier = (by_outcome[0] * expit(psi) ** 2 + by_outcome[1] * expit(-psi) ** 2).sum()
    return shares, {"auc": auc, "log_loss": loss, "brier": brier}


def scores_of(z, std):
    bins = bins_in_use(z, std)
    z = z[:, bins]
    scores = {name: linear_score(z, std**2, weights(name)[:, bins], 6.0, 0.95) for name in ("log_loss", "brier")}
    return scores | {"auc": area_under_curve(z, std**2, 0.95)}


@pytest.mark.parametrize("kind", [(0.0, 1.5), (0.2, 0.7), (-1.5, 1.2), (-3.0, 1.0), (0.5, 2.0, 0.6)])
def test_bins_lose_next_to_nothing(kind):
    shares, true = shares_of(*kind)
    scores = scores_of(1e12 * shares, 1e-3)
    for name, value in true.items():
        assert scores[name].value == pytest.approx(value, abs=1e-3)


CASES = [(4.0, 2_000, (0.0, 1.5), 0), (1.0, 20_000, (-3.5, 1.0), 1), (8.0, 5_000, (0.2, 0.8), 2)]


@pytest.mark.parametrize("case", CASES)
def test_intervals_hold(case):
    assert binom.cdf(0.92 * N_SAMPLES, N_SAMPLES, 0.95) < 5e-3  # these seeds are no luck
    std, n, kind, seed = case
    rng, (shares, true) = np.random.default_rng(seed), shares_of(*kind)
    held = dict.fromkeys(true, 0)
    for _ in range(N_SAMPLES):
        scores = scores_of(rng.poisson(n * shares) + std * rng.standard_normal(shares.shape), std)
        for name, value in true.items():
            held[name] += scores[name].lower <= value <= scores[name].upper
    for name, times in held.items():
        assert times > 0.92 * N_SAMPLES, f"the interval of {name} holds too seldom: {times / N_SAMPLES}"
        assert times < 0.98 * N_SAMPLES, f"the interval of {name} holds too often: {times / N_SAMPLES}"


def test_bins_at_the_ends_are_left_out_where_they_are_empty():
    shares, _ = shares_of(0.0, 0.5)
    assert bins_in_use(5_000 * shares, 4.0) == slice(9, 15)
    assert bins_in_use(200 * shares, 4.0) == slice(0, N_BINS)  # too few for a choice
    assert bins_in_use(np.zeros((2, N_BINS)), 4.0) == slice(0, N_BINS)
    assert bins_in_use(np.full((2, N_BINS), 100.0), 4.0) == slice(0, N_BINS)


def test_nothing_is_known_without_records():
    z = np.zeros((2, N_BINS))
    for score in (area_under_curve(z, 16.0, 0.95), linear_score(z, 16.0, weights("brier"), 1.0, 0.95)):
        assert np.isnan(score.value)
        assert score[1:] == (0.0, 1.0, True)


def test_a_score_that_is_everywhere_the_same_has_it():
    z = np.full((2, N_BINS), 1000.0)
    assert linear_score(z, 1.0, np.full((2, N_BINS), 0.5), 1.0, 0.95) == Estimate(0.5, 0.5, 0.5)
    assert area_under_curve(z, 1e-6, 0.95).value == pytest.approx(0.5)
    assert (np.diff(centres()) == 0.5).all()
