"""Variational Bayes of linear dynamical systems: states, bound and posterior against dense matrices, slopes and draws."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

import vips
from tests.models.dynamics import brute_force
from tests.models.dynamics.test_linear import DATA, HOSTILE, K, P, driven
from tests.plans import every
from vips import LinearDynamicalSystem, PrivacyPlan
from vips.data import Sequences
from vips.models.dynamics.posterior import DynamicsPosterior
from vips.models.dynamics.statistics import state_statistics
from vips.models.dynamics.variational import SystemPrior, divergence, expected_states, spread_of

PRIOR = SystemPrior()


def fitted(n_steps, data=DATA, **arguments):
    return LinearDynamicalSystem(K, inference="vb", privacy=every(n_steps), **arguments).fit(data)


@pytest.fixture(scope="module")
def early():
    """A posterior far from any fixed point, with much uncertainty."""
    return fitted(4, driven(3, np.random.default_rng(1), 3, 6)).last_posterior_


def with_spread(posterior, values):
    """Mean and covariance of the states under the posterior of the parameters, and the log of what is integrated out."""
    of, spread, T = posterior.dynamics, posterior.uncertainty, len(values)
    mean, cov, _, _, _ = brute_force.joint(of, T)
    precision, linear = np.linalg.inv(cov), np.linalg.inv(cov) @ mean
    constant = -0.5 * (mean @ linear + np.linalg.slogdet(2.0 * np.pi * cov)[1])
    dof = spread.start_dof
    wishart = digamma(0.5 * (dof - np.arange(K))).sum()
    constant += 0.5 * (wishart + K * np.log(2.0) - K * np.log(dof) - K / spread.start_count)
    for t in range(T):
        at = slice(t * K, (t + 1) * K)
        if t < T - 1:
            precision[at, at] += K * spread.moves
        for i in np.flatnonzero(np.isfinite(values[t])):
            weight, row, V = 1.0 / of.noise_variance[i], of.loadings[i], spread.columns[i]
            error = values[t, i] - of.offset[i]
            precision[at, at] += weight * np.outer(row, row) + V[:K, :K]
            linear[at] += weight * error * row - V[:K, K]
            expected = digamma(spread.shapes[i]) - np.log(spread.shapes[i] * of.noise_variance[i])
            constant += 0.5 * (expected - np.log(2.0 * np.pi) - weight * error**2 - V[K, K])
    covariance = np.linalg.inv(precision)
    log_total = constant + 0.5 * (linear @ covariance @ linear + np.linalg.slogdet(2.0 * np.pi * covariance)[1])
    return covariance @ linear, covariance, log_total


def test_states_are_those_of_dense_matrices(early):
    for values in (list(DATA)[3][:6], np.random.default_rng(0).normal(size=(5, P)), np.full((3, P), np.nan)):
        mean, cov, log_total = with_spread(early, values)
        states = expected_states(Sequences.from_list([values]), early)
        np.testing.assert_allclose(states.mean.ravel(), mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(states.log_likelihood, [log_total], rtol=1e-9)
        for t in range(len(values)):
            at = slice(t * K, (t + 1) * K)
            np.testing.assert_allclose(states.cov[t], cov[at, at], rtol=1e-8)
            if t:
                np.testing.assert_allclose(states.lagged[t], cov[at, (t - 1) * K : t * K], rtol=1e-7, atol=1e-12)
    assert expected_states(Sequences.from_list([np.empty((0, P))]), early).log_likelihood == 0.0


def moved(posterior, name, place, by):
    """The posterior with one number changed; symmetric matrices stay symmetric."""
    part, field = name.split(".")
    owner = getattr(posterior, part)
    value = np.array(getattr(owner, field), dtype=np.float64)
    value[place] += by
    if field in ("start_cov", "columns") or name == "uncertainty.moves":
        turned = (*place[:-2], place[-1], place[-2])
        if turned != place:
            value[turned] += by
    value = value if value.ndim else float(value)
    return replace(posterior, **{part: replace(owner, **{field: value})})


def slopes(model, data, posterior):
    gradient = {}
    for part in ("dynamics", "uncertainty"):
        owner = getattr(posterior, part)
        for field in (member.name for member in fields(owner)):
            if field in ("moves_cov",):
                continue
            for place in np.ndindex(np.shape(getattr(owner, field))):
                size = 1e-4 * max(abs(float(np.asarray(getattr(owner, field))[place])), 1e-3)
                ends = [model.bound(data, moved(posterior, f"{part}.{field}", place, sign * size)) for sign in (1, -1)]
                gradient[part, field, place] = (ends[0] - ends[1]) / (2.0 * size)
    return gradient


@pytest.mark.slow
def test_the_fit_ends_where_the_bound_is_level():
    data = driven(6, np.random.default_rng(3), 3, 8)
    model = LinearDynamicalSystem(1, inference="vb", privacy=every(1_500)).fit(data)
    start = LinearDynamicalSystem(1, inference="vb", privacy=every(2)).fit(data)
    end, before = (slopes(fit, data, fit.last_posterior_) for fit in (model, start))
    for key, slope in end.items():
        assert abs(slope) < 1e-3 * max(1.0, abs(before[key])), key
    assert max(map(abs, before.values())) > 1.0


@pytest.mark.slow
def test_the_divergence_is_that_of_draws(early):
    """Against SciPy's densities."""
    rng, n = np.random.default_rng(0), 4_000
    of, spread = early.dynamics, early.uncertainty
    draws = np.zeros(n)
    for row in of.moves:
        one = stats.multivariate_normal(row, spread.moves)
        x = one.rvs(n, random_state=rng)
        draws += one.logpdf(x) - stats.multivariate_normal(np.zeros(K), np.eye(K) / PRIOR.moves).logpdf(x)
    for i in range(P):
        ours = stats.gamma(spread.shapes[i], scale=1.0 / (spread.shapes[i] * of.noise_variance[i]))
        precision = ours.rvs(n, random_state=rng)
        draws += ours.logpdf(precision) - stats.gamma(PRIOR.shape, scale=1.0 / PRIOR.rate).logpdf(precision)
        mean, root = np.append(of.loadings[i], of.offset[i]), np.linalg.cholesky(spread.columns[i])
        unit = rng.standard_normal((n, K + 1))
        x = mean + (unit @ root.T) / np.sqrt(precision)[:, None]
        B = np.diag(PRIOR.of_columns(K))
        draws += -0.5 * (unit**2).sum(axis=1) - np.log(np.diag(root)).sum()
        draws -= -0.5 * (x**2 @ B) * precision + 0.5 * np.log(B).sum()
    dof, old = spread.start_dof, K - 1.0 + PRIOR.start_dof
    ours, theirs = stats.invwishart(dof, dof * of.start_cov), stats.invwishart(old, PRIOR.start_scale * np.eye(K))
    for k, cov in enumerate(ours.rvs(n, random_state=rng)):
        one = stats.multivariate_normal(of.start, cov / spread.start_count)
        x = one.rvs(random_state=rng)
        draws[k] += ours.logpdf(cov) - theirs.logpdf(cov)
        draws[k] += one.logpdf(x) - stats.multivariate_normal(np.zeros(K), cov / PRIOR.start_count).logpdf(x)
    error = draws.std() / np.sqrt(n)
    assert abs(divergence(early, PRIOR) - draws.mean()) < 4.0 * error < 0.5


@pytest.mark.slow
def test_few_series_are_forecast_better_than_by_em():
    rng, gain = np.random.default_rng(7), []
    test = driven(400, rng, 5, 20)
    for _ in range(4):
        data = driven(5, rng, 5, 20)
        em = LinearDynamicalSystem(K, privacy=every(60)).fit(data)
        gain.append((fitted(60, data).score_samples(test).sum() - em.score_samples(test).sum()) / 400)
    assert np.mean(gain) > 0.2


@pytest.mark.slow
def test_many_series_give_what_em_gives():
    data = driven(1_000, np.random.default_rng(2), 10, 20)
    em, model = LinearDynamicalSystem(K, privacy=every(100)).fit(data), fitted(100, data)
    for name in ("transition_matrix_", "observation_variance_", "observation_offset_"):
        np.testing.assert_allclose(getattr(model, name), getattr(em, name), atol=0.08)


def test_what_is_read_has_the_spread_of_draws(early):
    rng, n = np.random.default_rng(0), 20_000
    of, spread = early.dynamics, early.uncertainty
    forth, back = of.canonical_coordinates()
    moves = of.moves + rng.standard_normal((n, K, K)) @ np.linalg.cholesky(spread.moves).T
    columns = rng.standard_normal((n, P, 1, K + 1)) @ np.linalg.cholesky(spread.columns).swapaxes(-1, -2)
    columns = columns[:, :, 0] * np.sqrt(of.noise_variance)[:, None]
    of_moves, of_columns = spread_of(early)
    np.testing.assert_allclose((forth @ moves @ back).var(axis=0), of_moves, rtol=0.05)
    np.testing.assert_allclose((columns[..., :K] @ back).var(axis=0), of_columns[:, :K], rtol=0.05)
    np.testing.assert_allclose(columns[..., K].var(axis=0), of_columns[:, K], rtol=0.05)


def test_hostile_sequences_and_comparisons():
    model = fitted(6, Sequences.from_list([*HOSTILE[:2], *HOSTILE[3:], *DATA]))
    assert np.isfinite(model.last_posterior_.dynamics.moves).all()
    model = fitted(6)
    plan = PrivacyPlan(noise_multiplier=1e-3, sampling_rate=1.0, n_steps=1)
    private = LinearDynamicalSystem(K, privacy=plan, max_norm=10.0).fit(DATA)
    parts = vips.compare(private, model, DATA).divergences
    assert all(np.isfinite(of_part.wasserstein).all() for of_part in parts.values())


def test_a_sequence_counts_as_if_alone_to_the_last_bit(early):
    together = state_statistics(Sequences.from_list([*HOSTILE[:2], *DATA]), early)
    for i in (0, 1, 5, 9):
        alone = state_statistics(Sequences.from_list([[*HOSTILE[:2], *DATA][i]]), early).weighted_sum(np.ones(1))
        for name, value in together.weighted_sum(np.eye(2 + len(DATA))[i]).items():
            np.testing.assert_array_equal(value, alone[name])


def test_forged_files_and_private_fits_are_refused(early):
    given = early.to_arrays()
    for name, value in (
        ("moves", -given["uncertainty_of_moves"]), ("columns", given["uncertainty_of_columns"][:2]),
        ("shapes", np.full(P, -1.0)), ("start_dof", np.array(0.5)), ("moves", np.full((K, K), np.nan)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="uncertainty"):
            DynamicsPosterior.from_arrays(given | {f"uncertainty_of_{name}": value})
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)
    with pytest.raises(ValueError, match="inference='em'"):
        LinearDynamicalSystem(K, inference="vb", privacy=plan, max_norm=1.0).fit(DATA)
