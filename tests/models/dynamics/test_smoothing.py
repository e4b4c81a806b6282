"""The smoother and EM of linear dynamical systems, against one Gaussian of the whole sequence."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from tests.models.dynamics import brute_force
from vips.data import Sequences
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior
from vips.models.dynamics.smoothing import filtered, smoothed, smoothed_whole
from vips.models.dynamics.statistics import state_blocks, state_statistics
from vips.models.dynamics.update import next_dynamics

RNG = np.random.default_rng(0)
K, P = 2, 3


def with_gaps(T, share, p=P):
    values = 3.0 * RNG.normal(size=(T, p))
    values[RNG.random(values.shape) < share] = np.nan
    return values


LISTS = [
    with_gaps(7, 0.0),
    with_gaps(1, 0.0),
    with_gaps(9, 0.4),
    with_gaps(4, 1.0),
    with_gaps(12, 0.0),
    with_gaps(6, 0.2),
]
LISTS[5][2] = np.nan
DATA = Sequences.from_list(LISTS)


@pytest.mark.parametrize(("n_components", "seed"), [(1, 1), (2, 0), (4, 2)])
def test_states_are_those_of_the_joint_gaussian(n_components, seed):
    of, shape = brute_force.a_system(n_components, P, seed), n_components
    whole, lagged = smoothed_whole(DATA, of)
    means = smoothed(DATA, DynamicsPosterior(of))
    for n, values in enumerate(DATA):
        steps = slice(DATA.offsets[n], DATA.offsets[n + 1])
        mean, cov, log_likelihood = brute_force.conditioned(of, values)
        cov = cov.reshape(len(values), shape, len(values), shape)
        np.testing.assert_allclose(whole.mean[steps].ravel(), mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(means.mean[steps].ravel(), mean, rtol=1e-9, atol=1e-10)
        for t in range(len(values)):
            np.testing.assert_allclose(whole.cov[steps][t], cov[t, :, t], rtol=1e-9, atol=1e-10)
            expected = cov[t, :, t - 1] if t else 0.0
            np.testing.assert_allclose(
                lagged[steps][t], np.broadcast_to(expected, (shape, shape)), rtol=1e-9, atol=1e-10
            )
        np.testing.assert_allclose(whole.log_likelihood[n], log_likelihood, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(means.log_likelihood[n], log_likelihood, rtol=1e-9, atol=1e-10)


def test_the_filter_knows_the_past_only():
    of, values = brute_force.a_system(), LISTS[2]
    states = filtered(Sequences.from_list([values]), of)
    for t in range(len(values)):
        mean, cov, _ = brute_force.conditioned(of, values[: t + 1])
        np.testing.assert_allclose(states.mean[t], mean[-K:], rtol=1e-9)
        np.testing.assert_allclose(states.cov[t], cov[-K:, -K:], rtol=1e-9)
        before = np.vstack([values[:t], np.full((1, P), np.nan)])
        mean, cov, _ = brute_force.conditioned(of, before)
        np.testing.assert_allclose(states.ahead[t], mean[-K:], rtol=1e-9)
        np.testing.assert_allclose(states.ahead_cov[t], cov[-K:, -K:], rtol=1e-9)


def test_statistics_are_those_of_the_joint_gaussian():
    of = brute_force.a_system()
    statistics, blocks = state_statistics(DATA, DynamicsPosterior(of)), state_blocks(P, K)
    norms = statistics.norms(blocks)
    for n, values in enumerate(LISTS):
        expected = brute_force.statistics(of, values)
        for name, value in statistics.weighted_sum(np.eye(len(LISTS))[n]).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-9, atol=1e-10, err_msg=name)
        norm = np.sqrt(sum((value**2).sum() for value in expected.values()))
        np.testing.assert_allclose(norms[n], norm, rtol=1e-8)


def moved(of: Dynamics, direction: Dynamics, by: float) -> Dynamics:
    return Dynamics(*(getattr(of, field.name) + by * getattr(direction, field.name) for field in fields(Dynamics)))


def directions(of: Dynamics):
    """Every single parameter; symmetric for covariances."""
    for field in fields(Dynamics):
        shape = getattr(of, field.name).shape
        for place in np.ndindex(shape):
            entry = np.zeros(shape)
            entry[place] = 1.0
            if field.name.endswith("cov"):
                entry = entry + entry.T
            yield replace(
                Dynamics(*(np.zeros_like(getattr(of, other.name)) for other in fields(Dynamics))), **{field.name: entry}
            )


def slopes(function, of: Dynamics, by=1e-5) -> np.ndarray:
    return np.array(
        [(function(moved(of, way, by)) - function(moved(of, way, -by))) / (2.0 * by) for way in directions(of)]
    )


def test_the_m_step_maximises_the_expected_log_density():
    of = brute_force.a_system()
    statistics = [brute_force.statistics(of, values) for values in LISTS]
    totals = {name: sum(sums[name] for sums in statistics) for name in statistics[0]}
    maximum = next_dynamics(totals, of)
    at_start = slopes(lambda x: brute_force.expected_log_density(x, totals), of)
    at_end = slopes(lambda x: brute_force.expected_log_density(x, totals), maximum)
    assert np.abs(at_end).max() < 1e-6 < 0.1 < np.abs(at_start).max()


def test_slopes_of_the_likelihood_are_those_of_the_expected_log_density():
    """Fisher's identity: so EM stands still where the likelihood is level."""
    of = brute_force.a_system()
    totals = state_statistics(DATA, DynamicsPosterior(of)).weighted_sum(np.ones(len(LISTS)))
    expected = slopes(lambda x: sum(brute_force.conditioned(x, values)[2] for values in LISTS), of)
    gradient = slopes(lambda x: brute_force.expected_log_density(x, totals), of)
    np.testing.assert_allclose(gradient, expected, atol=1e-5 * np.abs(expected).max())


def test_canonical_coordinates_change_nothing_that_is_seen():
    of = brute_force.a_system(3, 5, 4)
    canonical = of.canonical()
    np.testing.assert_allclose(canonical.stationary(), np.eye(3), atol=1e-10)
    shown = canonical.loadings.T @ (canonical.loadings / canonical.noise_variance[:, None])
    assert np.abs(shown - np.diag(np.diag(shown))).max() < 1e-9 * shown[0, 0]
    assert (np.diff(np.diag(shown)) < 0.0).all()
    assert (canonical.loadings[np.abs(canonical.loadings).argmax(axis=0), np.arange(3)] > 0.0).all()
    for values in (with_gaps(6, 0.3, 5), with_gaps(3, 0.0, 5)):
        same = [brute_force.conditioned(dynamics, values)[2] for dynamics in (of, canonical)]
        np.testing.assert_allclose(*same, rtol=1e-10)
    other = of.in_coordinates(B := np.random.default_rng(9).normal(size=(3, 3)), np.linalg.inv(B)).canonical()
    for field in fields(Dynamics):
        np.testing.assert_allclose(getattr(other, field.name), getattr(canonical, field.name), atol=1e-8)
