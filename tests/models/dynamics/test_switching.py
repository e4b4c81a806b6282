"""Switching linear dynamical systems: against one system, against all paths of regimes, and what they learn."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.models.dynamics import brute_force
from tests.models.dynamics.test_linear import DATA, HOSTILE
from tests.models.dynamics.test_smoothing import with_gaps
from tests.plans import every
from vips import LinearDynamicalSystem, PrivacyPlan, SwitchingLinearDynamicalSystem
from vips.data import Sequences
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior
from vips.models.dynamics.statistics import state_statistics
from vips.models.dynamics.switching_posterior import SwitchingPosterior, inferred, switching_statistics

K, P, M = 2, 3, 2


def a_posterior(n_regimes=M):
    of, rng = brute_force.a_system(), np.random.default_rng(3)
    others = [brute_force.a_system(seed=seed) for seed in range(n_regimes)]
    chain = rng.dirichlet(np.ones(n_regimes), n_regimes)
    return SwitchingPosterior(
        of, np.array([system.moves for system in others]), np.array([system.moves_cov for system in others]),
        rng.dirichlet(np.ones(n_regimes)), chain, np.zeros((n_regimes, K, K)), 1.0, 10.0,
    )  # fmt: skip


def test_one_regime_is_a_linear_dynamical_system():
    posterior = a_posterior(1)
    of = posterior.dynamics
    alone = replace(of, moves=posterior.moves[0], moves_cov=posterior.moves_cov[0])
    inference = inferred(DATA, posterior, 1)
    expected = [brute_force.conditioned(alone, values)[2] for values in DATA]
    np.testing.assert_allclose(inference.bound, expected, rtol=1e-9, atol=1e-9)
    ours = switching_statistics(DATA, posterior, 1).weighted_sum(np.ones(len(DATA)))
    theirs = state_statistics(DATA, DynamicsPosterior(alone)).weighted_sum(np.ones(len(DATA)))
    for name in ("start", "begin", "seen", "loadings", "squares", "counts"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours["before"][0], theirs["states"] - theirs["end"], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours["after"][0], theirs["states"] - theirs["begin"], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours["cross"][0], theirs["cross"], rtol=1e-8, atol=1e-8)


def test_sums_of_regimes_are_those_of_the_steps_added_one_by_one():
    posterior = a_posterior()
    inference = inferred(DATA, posterior, 3)
    later = np.setdiff1d(np.arange(len(inference.mean)), DATA.offsets)  # steps that are no first ones
    mean, before = inference.mean[later], inference.mean[later - 1]
    second = inference.cov + inference.mean[:, :, None] * inference.mean[:, None]
    both = inference.lagged[later] + mean[:, :, None] * before[:, None]
    sums = switching_statistics(DATA, posterior, 3).weighted_sum(np.ones(len(DATA)))
    for name, of_steps in (("before", second[later - 1]), ("after", second[later]), ("cross", both)):
        expected = np.einsum("tm,tij->mij", inference.shares[later], of_steps)
        np.testing.assert_allclose(sums[name], expected, rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(sums["regimes"], inference.shares[later].sum(axis=0))
    np.testing.assert_allclose(sums["first_regime"], inference.shares[DATA.offsets[:-1]].sum(axis=0))


def of_path(posterior, path, values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and covariance of the states and the seen steps of one path of regimes."""
    of, T = posterior.dynamics, len(path)
    mean, cov = of.start, of.start_cov
    means, covs = [mean], np.zeros((T * K, T * K))
    covs[:K, :K] = cov
    for t in range(1, T):
        A = posterior.moves[path[t]]
        means.append(A @ means[-1])
        here, then = slice(t * K, (t + 1) * K), slice((t - 1) * K, t * K)
        covs[here, : t * K] = A @ covs[then, : t * K]
        covs[: t * K, here] = covs[here, : t * K].T
        covs[here, here] = A @ covs[then, then] @ A.T + posterior.moves_cov[path[t]]
    seen = np.isfinite(values.ravel())
    H = np.kron(np.eye(T), of.loadings)[seen]
    error = values.ravel()[seen] - H @ np.concatenate(means) - np.tile(of.offset, T)[seen]
    return error, H @ covs @ H.T + np.diag(np.tile(of.noise_variance, T)[seen])


@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_the_bound_is_below_the_likelihood_of_all_paths_and_near_it(gaps):
    posterior = a_posterior()
    values = with_gaps(5, gaps)
    logs = []
    for path in itertools.product(range(M), repeat=5):
        error, S = of_path(posterior, path, values)
        chance = np.log(posterior.regime_start[path[0]])
        chance += sum(np.log(posterior.regime_moves[i, j]) for i, j in itertools.pairwise(path))
        logs.append(chance - 0.5 * (error @ np.linalg.solve(S, error) + np.linalg.slogdet(2.0 * np.pi * S)[1]))
    exact = np.logaddexp.reduce(logs)
    rounds = [inferred(Sequences.from_list([values]), posterior, n).bound[0] for n in (1, 2, 5, 40)]
    assert (np.diff(rounds) > -1e-9).all()
    assert exact - 1.5 < rounds[-1] < exact


def test_regimes_without_doubt_are_a_known_path():
    """A chain that must go 0, 1, 1, 1: states are those of that path."""
    posterior = replace(
        a_posterior(), regime_start=np.array([1.0, 0.0]), regime_moves=np.array([[0.0, 1.0], [0.0, 1.0]])
    )
    values = with_gaps(4, 0.3)
    error, S = of_path(posterior, (0, 1, 1, 1), values)
    expected = -0.5 * (error @ np.linalg.solve(S, error) + np.linalg.slogdet(2.0 * np.pi * S)[1])
    inference = inferred(Sequences.from_list([values]), posterior, 3)
    np.testing.assert_allclose(inference.bound[0], expected, rtol=1e-10)
    np.testing.assert_allclose(inference.shares, [[1, 0], [0, 1], [0, 1], [0, 1]], atol=1e-12)


def turning(n, rng, low=25, high=40):
    """Two regimes that turn the state at different speeds, with their true regimes."""

    def turn(w):
        return 0.97 * np.array([[np.cos(w), -np.sin(w)], [np.sin(w), np.cos(w)]])

    of = Dynamics(
        turn(0.9), 0.1 * np.eye(2), rng.normal(size=(5, 2)), np.zeros(5), np.full(5, 0.4), np.zeros(2), np.eye(2)
    )
    model = SwitchingLinearDynamicalSystem(2, 2)
    model.n_features_in_ = 5
    model.last_posterior_ = SwitchingPosterior(
        of, np.array([turn(0.9), turn(-0.15)]), np.array([0.1 * np.eye(2)] * 2), np.full(2, 0.5),
        np.array([[0.95, 0.05], [0.05, 0.95]]), np.zeros((2, 2, 2)), 1.0, 30.0,
    )  # fmt: skip
    return model, *(model.sample(size, rng, lengths=rng.integers(low, high, size)) for size in (n, 100))


@pytest.fixture(scope="module")
def learnt():
    true, (train, _, _), (test, _, regimes) = turning(80, np.random.default_rng(0))
    model = SwitchingLinearDynamicalSystem(2, 2, privacy=every(30), random_state=0).fit(train)
    return true, train, test, regimes, model


def test_regimes_are_found(learnt):
    true, train, test, regimes, model = learnt
    agreed, possible = (np.mean(fitted.predict(test) == regimes) for fitted in (model, true))
    assert max(agreed, 1.0 - agreed) > possible - 0.03 > 0.85
    one = LinearDynamicalSystem(2, privacy=every(20)).fit(train).score_samples(test).sum()
    assert model.score_samples(test).sum() - one > 0.9 * (true.score_samples(test).sum() - one) > 0.0
    angles = np.sort(np.abs(np.angle(np.linalg.eigvals(model.transition_matrices_))).mean(axis=1))
    np.testing.assert_allclose(angles, [0.15, 0.9], atol=0.05)


def test_samples_are_of_the_model(learnt):
    model = learnt[-1]
    drawn, states, regimes = model.sample(3_000, 0, lengths=np.full(3_000, 6))
    moves = np.zeros((M, M))
    chains = regimes.reshape(-1, 6)
    np.add.at(moves, (chains[:, :-1].ravel(), chains[:, 1:].ravel()), 1.0)
    np.testing.assert_allclose(moves / moves.sum(axis=1, keepdims=True), model.transmat_, atol=0.02)
    x = states.reshape(-1, 6, K)
    for m in range(M):
        here = chains[:, 1:] == m
        A = np.linalg.lstsq(x[:, :-1][here], x[:, 1:][here], rcond=None)[0].T
        np.testing.assert_allclose(A, model.transition_matrices_[m], atol=0.05)
    residuals = drawn.values - states @ model.observation_matrix_.T - model.observation_offset_
    np.testing.assert_allclose(residuals.var(axis=0), model.observation_variance_, rtol=0.1)


def test_an_ordinary_fit_refuses_hostile_sequences():
    hostile = Sequences.from_list([*HOSTILE[:3], *DATA])
    with pytest.raises(ValueError, match="steps are finite numbers"):
        SwitchingLinearDynamicalSystem(K, M, max_iter=3, privacy=every(4), max_norm=20.0).fit(hostile)
    with np.errstate(all="ignore"):
        model = SwitchingLinearDynamicalSystem(K, M, max_iter=3, privacy=every(4), max_norm=20.0, random_state=0)
        model.fit(Sequences.from_list([*DATA]))
    assert np.isfinite(model.score_samples(DATA).sum())


def test_any_totals_give_valid_regimes():
    """Noise alone, in counts that are large enough to be seen."""
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=6)
    model = SwitchingLinearDynamicalSystem(K, M, privacy=plan, max_norm=3.0)
    model.n_features_in_, rng = P, np.random.default_rng(0)
    for size in np.geomspace(1.0, 1e4, 20):
        totals = {name: size * rng.normal(size=block.shape) for name, block in model.blocks().items()}
        totals["regimes"] += 30.0 * size
        totals["counts"] += 30.0 * size
        posterior = model.to_posterior(totals, dict.fromkeys(totals, size), a_posterior())
        assert posterior.regime_start.min() >= 0.0 <= posterior.regime_moves.min()
        assert np.abs(np.linalg.eigvals(posterior.moves)).max() < 1.0
        assert np.linalg.eigvalsh(posterior.moves_cov).min() > 0.01
        assert np.linalg.eigvalsh(posterior.dynamics.start_cov)[0] > 0.01
        assert (posterior.dynamics.noise_variance > 0.01 * np.square(posterior.dynamics.loadings).sum(axis=1)).all()


@pytest.mark.slow
def test_little_noise_changes_little(learnt):
    _, train, test, regimes, model = learnt
    plan = PrivacyPlan(noise_multiplier=0.02, sampling_rate=1.0, n_steps=40)
    private = SwitchingLinearDynamicalSystem(2, 2, privacy=plan, max_norm=12.0, random_state=0).fit(train)
    agreed = np.mean(private.predict(test) == regimes)
    assert max(agreed, 1.0 - agreed) > 0.85
    one = LinearDynamicalSystem(2, privacy=every(20)).fit(train).score_samples(test).sum()
    assert private.score_samples(test).sum() - one > 0.7 * (model.score_samples(test).sum() - one)


def test_a_chunk_holds_fewer_sequences_the_more_regimes_there_are():
    """Sequences of one step have as many statistics as any other."""
    model = SwitchingLinearDynamicalSystem(20, 20)
    model.n_features_in_ = 5
    numbers = sum(np.prod(block.shape) for block in model.blocks().values())
    assert 8 * numbers * model.default_chunk_size() < 250e6  # bytes


def test_regimes_can_be_drawn(learnt):
    pytest.importorskip("matplotlib").use("Agg")
    model, sequences = learnt[0], learnt[1][:3]
    picture = np.asarray(model.plot_sequences(sequences).images[0].get_array())
    regimes = np.split(model.predict(sequences), sequences.offsets[1:-1])
    colours = {tuple(picture[i, t]) for i, row in enumerate(regimes) for t in range(len(row)) if row[t] == 0}
    assert len(colours) <= 1
    assert picture.shape[0] == 3
