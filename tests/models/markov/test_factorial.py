"""Factorial hidden Markov models: against hmmlearn, all joint paths, SciPy's distributions, and what they learn."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hmmlearn.hmm import GaussianHMM as Peer
from scipy.stats import invwishart, matrix_normal, multivariate_normal

import vips
from tests.plans import every
from vips import FactorialHMM, PrivacyPlan
from vips.data import Sequences
from vips.expfam import Dirichlet
from vips.models.markov.factorial_inference import factorial_statistics, inferred_chains
from vips.models.markov.factorial_posterior import FactorialPosterior, Prior, next_emissions, view

M, K, D = 2, 3, 2
EFFECTS = np.array([[[-2.0, 0.0, 1.0], [2.0, 0.0, -1.0]], [[0.0, -1.5, 1.0], [0.0, 1.5, -1.0]]])


def generated(n, rng, n_steps=20):
    """Two switches that stay with probability 0.9, and three columns."""
    states = (rng.random((n, n_steps, 2)) < 0.1).cumsum(axis=1) + rng.integers(0, 2, (n, 1, 2))
    states = states % 2
    seen = EFFECTS[[0, 1], states].sum(axis=2) + [5.0, 0.0, -3.0] + 0.5 * rng.standard_normal((n, n_steps, 3))
    return Sequences(seen.reshape(-1, 3), np.arange(n + 1) * n_steps), states.reshape(-1, 2)


TRAIN, _ = generated(3_000, np.random.default_rng(0))
TEST, STATES = generated(200, np.random.default_rng(1))


def a_posterior(n_chains=M, plug_in=True, seed=0):
    rng, R = np.random.default_rng(seed), n_chains * K
    root, spread = rng.normal(size=(D, D)), rng.normal(size=(R, R))
    return FactorialPosterior(
        start=Dirichlet(rng.uniform(0.5, 3.0, (n_chains, K))), moves=Dirichlet(rng.uniform(0.5, 9.0, (n_chains, K, K))),
        plug_in=plug_in, mean=rng.normal(size=(D, R)), spread=0.02 * (spread @ spread.T) + 0.01 * np.eye(R),
        scale=20.0 * (root @ root.T + 0.5 * np.eye(D)), dof=30.0, centre=rng.normal(size=D),
        whitening=np.array([[0.5, 0.0], [0.3, 0.8]]),
    )  # fmt: skip


def some_sequences(gaps=0.0, seed=5):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(8, D)) * 2.0
    values[rng.random(8) < gaps, 0] = np.nan
    return Sequences(values, np.array([0, 3, 3, 4, 8]))


def density_of(posterior, y, states):
    """Log density of a step, by SciPy, at the posterior's means."""
    mean = posterior.mean[:, [m * K + k for m, k in enumerate(states)]].sum(axis=1)
    back = np.linalg.inv(posterior.whitening)
    cov = back @ (posterior.scale / posterior.dof) @ back.T
    return multivariate_normal.logpdf(y, posterior.centre + back @ mean, cov)


def log_joint(posterior, values, paths):
    """log p of steps and states, for paths of shape (n_steps, M)."""
    start, moves = posterior.chain
    total = np.log(start[np.arange(len(start)), paths[0]]).sum()
    for before, after in itertools.pairwise(paths):
        total += np.log(moves[np.arange(len(start)), before, after]).sum()
    return total + sum(density_of(posterior, y, s) for y, s in zip(values, paths, strict=True) if np.isfinite(y).all())


def all_paths(T, n_chains):
    return np.array(list(itertools.product(itertools.product(range(K), repeat=n_chains), repeat=T)))


@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_one_chain_is_exact(gaps):
    posterior, records = a_posterior(1), some_sequences(gaps)
    inference = inferred_chains(records, posterior, 1)
    for n, (a, b) in enumerate(itertools.pairwise(records.offsets)):
        if a == b:
            assert inference.bound[n] == 0.0
            continue
        paths = all_paths(b - a, 1)
        logs = np.array([log_joint(posterior, records.values[a:b], path) for path in paths])
        total = np.logaddexp.reduce(logs)
        np.testing.assert_allclose(inference.bound[n], total, rtol=1e-10, atol=1e-10)
        shares = (np.exp(logs - total)[:, None, None] * (paths == np.arange(K))).sum(axis=0)
        np.testing.assert_allclose(inference.shares[a:b], shares, atol=1e-10)


@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_the_bound_is_that_of_independent_chains(gaps):
    """E log p - E log q, summed over all paths of all chains; and the log likelihood is above it."""
    posterior, records = a_posterior(), some_sequences(gaps)
    inference = inferred_chains(records, posterior, 40)
    values, T = records.values[:3], 3
    of_chain, paths = [], all_paths(T, 1)[..., 0]
    for m in range(M):
        start, moves = (part[m] for part in posterior.chain)
        logs = np.log(start[paths[:, 0]]) + np.log(moves[paths[:, :-1], paths[:, 1:]]).sum(axis=1)
        logs = logs + inference.log_likely[np.arange(T), m * K + paths].sum(axis=1)
        of_chain.append(logs - np.logaddexp.reduce(logs))
    joint = all_paths(T, M)
    place = [joint[:, :, m] @ K ** np.arange(T - 1, -1, -1) for m in range(M)]
    log_q = sum(logs[where] for logs, where in zip(of_chain, place, strict=True))
    log_p = np.array([log_joint(posterior, values, path) for path in joint])
    np.testing.assert_allclose(np.exp(log_q).sum(), 1.0)
    np.testing.assert_allclose(inference.bound[0], np.exp(log_q) @ (log_p - log_q), rtol=1e-9)
    likelihood = np.logaddexp.reduce(log_p)
    assert inference.bound[0] < likelihood < inference.bound[0] + 2.0
    shares = (np.exp(log_q)[:, None, None, None] * (joint[..., None] == np.arange(K))).sum(axis=0)
    np.testing.assert_allclose(inference.shares[:T], shares.reshape(T, -1), atol=1e-9)


def test_statistics_are_those_of_the_steps_added_one_by_one():
    posterior, records = a_posterior(), some_sequences(0.4)
    inference = inferred_chains(records, posterior, 3)
    sums = factorial_statistics(records, posterior, 3).weighted_sum(np.array([1.0, 1.0, 0.0, 0.5]))
    both, linear, second = np.zeros((M * K, M * K)), np.zeros((M * K, D)), np.zeros((D, D))
    for t, weight in enumerate([1.0] * 3 + [0.0] + [0.5] * 4):
        if not np.isfinite(records.values[t]).all():
            continue
        z, s = posterior.whitening @ (records.values[t] - posterior.centre), inference.shares[t]
        outer = np.outer(s, s)
        for m in range(M):
            block = slice(m * K, (m + 1) * K)
            outer[block, block] = np.diag(s[block])
        both, linear, second = both + weight * outer, linear + weight * np.outer(s, z), second + weight * np.outer(z, z)
    for name, expected in (("both", both), ("linear", linear), ("second", second)):
        np.testing.assert_allclose(sums[name], expected, rtol=1e-12, atol=1e-12)
    # no step is missing among the chains' moves
    np.testing.assert_allclose(sums["moves"].sum(axis=(1, 2)), 2.0 + 0.5 * 3.0)
    np.testing.assert_allclose(sums["start"].sum(axis=1), 1.5)


def test_one_chain_with_em_is_hmmlearn():
    """Its covariance is the same in all states, which hmmlearn calls tied."""
    train = TRAIN[:200]
    first, last = (FactorialHMM(1, 3, inference="em", privacy=every(n), random_state=0).fit(train) for n in (4, 9))
    peer = Peer(3, "tied", n_iter=5, tol=-np.inf, init_params="", covars_prior=0.0, covars_weight=0.0, means_weight=0.0)
    peer.startprob_, peer.transmat_ = first.startprob_[0], first.transmat_[0]
    peer.means_, peer.covars_ = first.offset_ + first.means_[0], first.covar_
    peer.fit(train.values, train.lengths)
    np.testing.assert_allclose(last.startprob_[0], peer.startprob_, atol=1e-6)
    np.testing.assert_allclose(last.transmat_[0], peer.transmat_, atol=1e-6)
    np.testing.assert_allclose(last.offset_ + last.means_[0], peer.means_, atol=1e-6)
    np.testing.assert_allclose(last.covar_, peer.covars_ if peer.covars_.ndim == 2 else peer.covars_[0], atol=1e-6)
    np.testing.assert_allclose(last.score_samples(TEST).sum(), peer.score(TEST.values, TEST.lengths), rtol=1e-6)


@pytest.mark.slow
def test_divergence_is_the_average_of_log_densities():
    posterior, prior, rng = a_posterior(plug_in=False), Prior(0.7, 4.0, 2.0), np.random.default_rng(0)
    differences, n = [], 4_000
    covs = invwishart.rvs(posterior.dof, posterior.scale, size=n, random_state=rng)
    for cov in covs:
        W = matrix_normal.rvs(posterior.mean, cov, posterior.spread, random_state=rng)
        log_q = matrix_normal.logpdf(W, posterior.mean, cov, posterior.spread)
        log_q += invwishart.logpdf(cov, posterior.dof, posterior.scale)
        log_p = matrix_normal.logpdf(W, np.zeros(W.shape), cov, np.eye(M * K) / prior.precision)
        log_p += invwishart.logpdf(cov, prior.dof, prior.scale * np.eye(D))
        differences.append(log_q - log_p)
    deviation = np.std(differences) / np.sqrt(n)
    assert abs(posterior.divergence_of_emissions(prior) - np.mean(differences)) < 4.0 * deviation
    assert deviation < 0.02 * np.mean(differences)


def test_variational_bayes_takes_expectations():
    """Tables against draws from the posterior of W and the covariance."""
    posterior, rng, n = a_posterior(plug_in=False), np.random.default_rng(0), 4_000
    gains, overlap, logs = [], [], []
    for cov in invwishart.rvs(posterior.dof, posterior.scale, size=n, random_state=rng):
        W = matrix_normal.rvs(posterior.mean, cov, posterior.spread, random_state=rng)
        inverse = np.linalg.inv(cov)
        gains.append(inverse @ W)
        overlap.append(W.T @ inverse @ W)
        logs.append(-0.5 * np.linalg.slogdet(2.0 * np.pi * cov)[1])
    tables = posterior.tables
    for name, draws in (("gains", gains), ("overlap", overlap), ("constant", logs)):
        error = np.abs(getattr(tables, name) - np.mean(draws, axis=0))
        assert (error < 5.0 * np.std(draws, axis=0) / np.sqrt(n)).all(), name


def test_steps_of_variational_bayes_raise_the_bound():
    few, bounds = TRAIN[:40], []
    for n_steps in (2, 3, 5, 9):
        model = FactorialHMM(2, 2, max_iter=60, privacy=every(n_steps), random_state=3).fit(few)
        bounds.append(model.bound(few, model.last_posterior_))
    assert (np.diff(bounds) > -1e-6 * abs(bounds[0])).all()
    assert bounds[-1] > bounds[0] + 40.0


def agreement(model):
    """Share of the steps and switches whose state is found."""
    predicted, best = model.predict(TEST), 0.0
    for order in itertools.permutations(range(2)):
        for flips in itertools.product((0, 1), repeat=2):
            best = max(best, float(np.mean((predicted[:, order] ^ np.array(flips)) == STATES)))
    return best


@pytest.fixture(scope="module")
def plain():
    return FactorialHMM(2, 2, random_state=0).fit(TRAIN)


def test_it_finds_what_was_generated(plain):
    model = plain
    assert agreement(model) > 0.99
    np.testing.assert_allclose(model.offset_, [5.0, 0.0, -3.0], atol=0.2)
    np.testing.assert_allclose(model.covar_, 0.25 * np.eye(3), atol=0.02)
    np.testing.assert_allclose(np.diagonal(model.transmat_, axis1=1, axis2=2), 0.9, atol=0.02)
    order = np.argsort(-np.abs(model.means_[:, 0, 0]))
    steps = np.abs(np.diff(model.means_[order], axis=1)[:, 0])
    np.testing.assert_allclose(steps, np.abs(np.diff(EFFECTS, axis=1)[:, 0]), atol=0.05)
    synthetic, states = model.sample(4_000, 0, lengths=np.full(4_000, 20))
    assert states.shape == (80_000, 2)
    np.testing.assert_allclose(synthetic.values.mean(axis=0), TRAIN.values.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(np.cov(synthetic.values.T), np.cov(TRAIN.values.T), atol=0.12)


@pytest.mark.parametrize(
    ("epsilon", "n", "n_steps"),
    [(8.0, 1_000, 12), *(pytest.param(epsilon, 3_000, 30, marks=pytest.mark.slow) for epsilon in (4.0, 1.0))],
)
def test_a_private_fit_learns(plain, epsilon, n, n_steps, monkeypatch):
    """Share of the way from independent steps to the fit without noise, and switches that are found."""
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, n_steps=n_steps)
    private = FactorialHMM(2, 2, random_state=0, privacy=plan, max_norm=9.0, typical_length=20).fit(TRAIN[:n])
    if n < 3_000:
        monkeypatch.setattr(FactorialHMM, "posterior_", property(lambda model: model.last_posterior_))
    alone = multivariate_normal.logpdf(TEST.values, TRAIN.values.mean(axis=0), np.cov(TRAIN.values.T)).sum()
    share = (private.score_samples(TEST).sum() - alone) / (plain.score_samples(TEST).sum() - alone)
    assert share > 0.85
    assert agreement(private) > 0.97


def test_few_records_and_much_noise_give_a_valid_posterior():
    plan = PrivacyPlan.from_epsilon(epsilon=0.1, delta=1e-5, sampling_rate=1.0, n_steps=30)
    for seed in range(3):
        model = FactorialHMM(3, 2, privacy=plan, max_norm=9.0, random_state=seed).fit(TRAIN[:5])
        assert np.isfinite(model.score_samples(TEST).sum())
        np.testing.assert_allclose(model.transmat_.sum(axis=-1), 1.0)
        assert (np.linalg.eigvalsh(model.covar_) > 0.0).all()


def test_the_view_has_the_margins_of_its_chains():
    rng = np.random.default_rng(0)
    sums = factorial_statistics(
        TRAIN, FactorialHMM(2, 2, privacy=every(5), random_state=0).fit(TRAIN).last_posterior_, 5
    )
    exact = sums.weighted_sum(np.ones(len(TRAIN)))
    noisy = {name: value + 30.0 * rng.standard_normal(value.shape) for name, value in exact.items()}
    noisy["both"] = 0.5 * (noisy["both"] + noisy["both"].T)
    valid = view(noisy, dict.fromkeys(noisy, 30.0))
    both = valid["both"].reshape(2, 2, 2, 2)
    assert both[0, 0, 0, 1] == both[1, 1, 1, 0] == 0.0
    np.testing.assert_allclose(both[0, :, 1].sum(axis=0), np.diag(both[1, :, 1]))
    np.testing.assert_allclose(both[0, :, 1].sum(axis=1), np.diag(both[0, :, 0]))
    np.testing.assert_allclose(valid["both"], valid["both"].T)
    error, before = (np.square(totals["both"] - exact["both"]).sum() for totals in (valid, noisy))
    assert error < before


def test_emissions_are_a_ridge_regression():
    rng = np.random.default_rng(0)
    s, z = rng.dirichlet(np.ones(4), 50), rng.normal(size=(50, 2))
    emissions = next_emissions(s.T @ s, s.T @ z, z.T @ z, 50.0, Prior(2.0, 3.0, 0.5))
    augmented, target = np.vstack([s, np.sqrt(2.0) * np.eye(4)]), np.vstack([z, np.zeros((4, 2))])
    W, *_ = np.linalg.lstsq(augmented, target, rcond=None)
    np.testing.assert_allclose(emissions["mean"], W.T, atol=1e-12)
    residuals = target - augmented @ W
    np.testing.assert_allclose(emissions["scale"], residuals.T @ residuals + 0.5 * np.eye(2), atol=1e-10)
    assert emissions["dof"] == 53.0


def test_noise_passes_for_no_explanation():
    """Chains explain these steps in full; a noisy fit to them leaves at least the noise unexplained."""
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=20)
    model, rng, noise = FactorialHMM(2, 2, privacy=plan, max_norm=3.0), np.random.default_rng(0), 60.0
    model.n_features_in_ = 3
    first = model.start(rng)[1]
    effects, both = rng.normal(size=(4, 3)), np.full((4, 4), 250.0)
    for chain in (slice(0, 2), slice(2, 4)):
        both[chain, chain] = 500.0 * np.eye(2)
    exact = {"start": np.full((2, 2), 25.0), "moves": np.full((2, 2, 2), 200.0), "both": both}
    exact |= {"linear": both @ effects, "second": effects.T @ both @ effects}
    for _ in range(10):
        noisy = {name: value + noise * rng.normal(size=value.shape) for name, value in exact.items()}
        noisy |= {name: 0.5 * (noisy[name] + noisy[name].T) for name in ("both", "second")}
        posterior = model.to_posterior(noisy, dict.fromkeys(noisy, noise), first)
        assert np.linalg.eigvalsh(posterior.scale)[0] > noise


def test_missing_steps_empty_sequences_and_hostile_ones():
    steps = [TRAIN.values[:20], np.empty((0, 3)), np.full((3, 3), np.nan), [[np.inf, 0.0, 1.0]], np.full((2, 3), 1e200)]
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=4)
    model = FactorialHMM(2, 2, privacy=plan, n_features=3, max_norm=9.0).fit(list(map(np.asarray, steps)))
    assert model.predict(steps[:1]).shape == (20, 2)
    assert model.predict_proba(steps[1:3]).shape == (3, 2, 2)
    np.testing.assert_allclose(model.predict_proba(steps[2:3]).sum(axis=-1), 1.0)
    assert model.score_samples(steps[1:3])[0] == 0.0
    np.testing.assert_allclose(model.score_samples(steps[1:3])[1], 0.0, atol=1e-12)  # nothing was seen


def test_chains_in_another_order_are_the_same_model(plain):
    posterior = plain.last_posterior_
    ours, theirs = (inferred_chains(TEST, chains, 50) for chains in (posterior, posterior.in_order(np.array([1, 0]))))
    np.testing.assert_allclose(ours.bound, theirs.bound, atol=1e-6)
    np.testing.assert_allclose(ours.shares[:, :2], theirs.shares[:, 2:], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n_chains": 0}, "n_chains"), ({"n_components": 1.5}, "n_components"), ({"inference": "gibbs"}, "inference"),
        ({"beta_prior": -1.0}, "beta_prior"), ({"max_iter": 0}, "max_iter"),
        ({"privacy": PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=4)}, "max_norm"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(arguments, says):
    with pytest.raises((ValueError, TypeError), match=says):
        FactorialHMM(**arguments).fit(TRAIN)


@pytest.mark.slow
def test_comparison_matches_chains_and_states():
    plan = PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-5, sampling_rate=1.0, n_steps=20)
    private = FactorialHMM(2, 2, privacy=plan, max_norm=9.0, random_state=1).fit(TRAIN)
    plain, swapped = (FactorialHMM(2, 2, privacy=every(15), random_state=0).fit(TRAIN) for _ in range(2))
    posterior, flip = swapped.last_posterior_, np.array([1, 0, 2, 3])
    posterior = replace(
        posterior, mean=posterior.mean[:, flip], spread=posterior.spread[np.ix_(flip, flip)],
        start=Dirichlet(np.array([posterior.start.concentration[0, ::-1], posterior.start.concentration[1]])),
        moves=Dirichlet(np.array([posterior.moves.concentration[0, ::-1, ::-1], posterior.moves.concentration[1]])),
    )  # fmt: skip
    swapped.last_posterior_ = posterior.in_order(np.array([1, 0]))
    assert swapped.score_samples(TEST).sum() == pytest.approx(plain.score_samples(TEST).sum())
    ours, theirs = (vips.compare(private, baseline, TEST) for baseline in (plain, swapped))
    assert sorted(ours.alignment.order) == [0, 1]
    for name in ("start", "moves"):
        totals = [np.sum(comparison.divergences[name].kl_private_baseline) for comparison in (ours, theirs)]
        assert totals[0] == pytest.approx(totals[1], rel=1e-9)
