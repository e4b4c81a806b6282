"""Gaussian hidden Markov models: against hmmlearn, against records formed one by one, and what one sequence can change."""

from __future__ import annotations

import numpy as np
import pytest
from hmmlearn.hmm import GaussianHMM as PeerEM
from hmmlearn.vhmm import VariationalGaussianHMM
from scipy.stats import multivariate_normal, norm

from tests.known_bits import cached
from tests.plans import every
from vips import GaussianHMM, PrivacyPlan
from vips.core.phases import phases_of
from vips.core.sums import DenseStatistics, gaussian_runs
from vips.data import Sequences
from vips.models._chains import inferred
from vips.models.markov import gaussian
from vips.models.markov.posterior import order_of_mask

K, D = 3, 2
RNG = np.random.default_rng(0)
MEANS = np.array([[-2.0, 0.0], [2.0, 1.0], [0.0, -3.0]])


def generated(n, rng, moves=None):
    """Sequences of three states that stay with probability 0.8."""
    moves = 0.7 * np.eye(K) + 0.1 if moves is None else moves
    lengths, sequences = rng.integers(1, 40, n), []
    for length in lengths:
        states = [rng.integers(K)]
        while len(states) < length:
            states.append(rng.choice(K, p=moves[states[-1]]))
        sequences.append(MEANS[states] + 0.7 * rng.standard_normal((length, D)))
    return Sequences.from_list(sequences)


DATA = generated(80, RNG)
HOSTILE = [
    np.empty((0, D)),
    np.full((30, D), np.nan),
    np.array([[0.0, np.nan], [np.inf, 1.0], [1e300, -1e300], [5e-324, 0.0], [3.0, 1.0]]),
    np.full((5_000, D), 3.0),
    np.tile([[9.0, 9.0], [-9.0, 9.0]], (400, 1)),
]
PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=40, clip_norm=1.0)


@cached
def in_the_middle(kind):
    return GaussianHMM(K, covariance_type=kind, privacy=every(20)).fit(DATA).last_posterior_


def at_a_posterior(kind="full", **arguments):
    """A private model, and a posterior in the middle of a fit."""
    posterior = in_the_middle(kind)
    model = GaussianHMM(K, covariance_type=kind, max_norm=8.0, privacy=PLAN, **arguments)
    model.n_features_in_ = D
    return model, model.at_means(posterior)


def of_hmmlearn(model, kind, n_steps):
    posterior, peer = (
        model.last_posterior_,
        VariationalGaussianHMM(K, kind, n_iter=n_steps, tol=-np.inf, init_params=""),
    )
    components = posterior.gaussians
    shape = (-1, 1, 1) if kind == "full" else (-1, 1)
    values = {
        "startprob_prior_": np.full(K, 1.0 / K), "startprob_posterior_": posterior.start.concentration.copy(),
        "transmat_prior_": np.full((K, K), 1.0 / K), "transmat_posterior_": posterior.moves.concentration.copy(),
        "means_prior_": np.tile(components.prior_mean, (K, 1)), "means_posterior_": components.mean.copy(),
        "beta_prior_": np.ones(K), "beta_posterior_": components.mean_precision.copy(),
        "dof_prior_": np.full(K, float(D)), "dof_posterior_": components.dof.copy(),
        "scale_prior_": 1e-3 * (np.tile(np.eye(D), (K, 1, 1)) if kind == "full" else np.ones((K, D))),
        "scale_posterior_": components.covariances * components.dof.reshape(shape),
        "_covars_": components.covariances, "startprob_": model.startprob_, "transmat_": model.transmat_, "n_features": D,
    }  # fmt: skip
    for name, value in values.items():
        setattr(peer, name, value)
    return peer.fit(DATA.values, DATA.lengths)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_without_noise_it_is_hmmlearn(kind):
    scale = {"scale_prior": 1e-3 * (np.eye(D) if kind == "full" else np.ones(D))}
    start, end = (GaussianHMM(K, covariance_type=kind, privacy=every(n), **scale).fit(DATA) for n in (30, 33))
    peer, components = of_hmmlearn(start, kind, 3), end.last_posterior_.gaussians
    np.testing.assert_allclose(components.mean, peer.means_posterior_, atol=1e-8)
    np.testing.assert_allclose(components.covariances, peer._covars_, atol=1e-8)
    np.testing.assert_allclose(end.last_posterior_.moves.concentration, peer.transmat_posterior_, atol=1e-6)
    np.testing.assert_allclose(end.last_posterior_.start.concentration, peer.startprob_posterior_, atol=1e-6)
    if kind == "full":  # the bound of diagonal covariances takes the Wishart's expectations here
        differences = np.diff([model.bound(DATA, model.last_posterior_) for model in (start, end)])
        one, two = (of_hmmlearn(model, kind, 1).monitor_.history[0] for model in (start, end))
        np.testing.assert_allclose(differences[0], two - one, atol=1e-6)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_em_is_that_of_hmmlearn(kind):
    start, end = (GaussianHMM(K, covariance_type=kind, inference="em", privacy=every(n)).fit(DATA) for n in (10, 13))
    peer = PeerEM(
        K, kind, n_iter=3, tol=-np.inf, init_params="", covars_prior=0.0, covars_weight=D if kind == "full" else 1.0,
        min_covar=0.0, startprob_prior=1.0, transmat_prior=1.0,
    )  # fmt: skip
    peer.startprob_, peer.transmat_, peer.means_ = start.startprob_, start.transmat_, start.means_
    peer.covars_ = start.last_posterior_.gaussians.covariances
    peer.fit(DATA.values, DATA.lengths)
    np.testing.assert_allclose(end.means_, peer.means_, atol=1e-7)
    np.testing.assert_allclose(end.transmat_, peer.transmat_, atol=1e-7)
    np.testing.assert_allclose(end.covars_, peer.covars_, atol=1e-7)
    np.testing.assert_allclose(end.score_samples(DATA).sum(), peer.score(DATA.values, DATA.lengths), rtol=1e-9)
    (ours, states), (theirs, expected) = end.decode(DATA), peer.decode(DATA.values, DATA.lengths)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    np.testing.assert_array_equal(states, expected)


def formed(model, posterior, sequence):
    """Statistics of one sequence: forward-backward in probabilities, and moments in the states' coordinates."""
    X, (start, moves), components = np.asarray(sequence), posterior.chain, posterior.gaussians
    norms = np.linalg.norm(X, axis=1)
    seen = np.isfinite(X).all(axis=1)
    X = np.where(seen[:, None], X * np.minimum(1.0, model.max_norm / np.maximum(norms, 1e-300))[:, None], 0.0)
    covariances = (
        components.covariances if model.covariance_type == "full" else [np.diag(c) for c in components.covariances]
    )
    likely = np.stack(
        [multivariate_normal.pdf(X, m, c) for m, c in zip(components.mean, covariances, strict=True)], axis=-1
    )
    likely = np.where(seen[:, None], likely.reshape(len(X), K), 1.0)
    forward, backward = np.empty((len(X), K)), np.ones((len(X), K))
    for t in range(len(X)):
        forward[t] = (start if t == 0 else forward[t - 1] @ moves) * likely[t]
        forward[t] /= forward[t].sum()
    for t in range(len(X) - 1, 0, -1):
        backward[t - 1] = moves @ (likely[t] * backward[t])
        backward[t - 1] /= backward[t - 1].sum()
    shares = forward * backward
    shares /= shares.sum(axis=1, keepdims=True)
    pairs = np.zeros((K, K))
    for t in range(1, len(X)):
        pair = forward[t - 1][:, None] * moves * (likely[t] * backward[t])
        pairs += pair / pair.sum()
    scale, is_full = {name: block.scale for name, block in model.blocks().items()}, model.covariance_type == "full"
    count, linear, second = np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D))
    largest, centre = model._largest_step(), model._centre()
    for t in np.flatnonzero(seen):
        y = np.stack(
            [
                np.linalg.solve(np.linalg.cholesky(c), X[t] - m)
                for m, c in zip(components.mean, covariances, strict=True)
            ]
        )
        fourth = (y**2).sum(axis=1) ** 2 if is_full else (y**4).sum(axis=1)
        squares = 1.0 / scale["count"] ** 2 + (y**2).sum(axis=1) / scale["linear"] ** 2 + fourth / scale["second"] ** 2
        r = shares[t] * min(1.0, largest / np.sqrt(shares[t] ** 2 @ squares))
        count += r
        linear += r[:, None] * y
        second += r[:, None, None] * (y[:, :, None] * y[:, None, :] - centre * np.eye(D))
    second = second if is_full else np.diagonal(second, axis1=1, axis2=2)
    return {"start": shares[0], "moves": pairs, "count": count, "linear": linear, "second": second}


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_statistics_are_those_formed_one_by_one(kind):
    model, posterior = at_a_posterior(kind)
    long = np.concatenate([*DATA[:30]])  # of several runs
    sequences = [*DATA[:10], np.array([[1.0, 2.0], [np.nan, 0.0], [7.0, -7.0]]), long, long[:257]]
    records = Sequences.from_list(sequences)
    statistics, blocks = model.expected_statistics(records, posterior), phases_of(model, 40)[-1].blocks
    of_sequences = [formed(model, posterior, sequence) for sequence in sequences]
    dense = DenseStatistics({name: np.stack([one[name] for one in of_sequences]) for name in blocks})
    np.testing.assert_allclose(statistics.norms(blocks), dense.norms(blocks), rtol=1e-7)
    weights = np.linspace(0.0, 1.0, len(sequences))
    for name, expected in dense.weighted_sum(weights).items():
        np.testing.assert_allclose(statistics.weighted_sum(weights)[name], expected, atol=1e-6)


def test_transport_carries_sums_to_the_coordinates_of_the_next_posterior():
    """The carried total is the total that the same records would have had, with the same shares."""
    model, posterior = at_a_posterior()
    other = GaussianHMM(K, privacy=every(22)).fit(DATA).last_posterior_
    shares = np.random.default_rng(1).dirichlet(np.ones(K), len(DATA.values))

    def totals(of):
        tables = of.tables
        y = np.einsum("kij,nj->nki", tables.rows, DATA.values) - tables.shifts
        second = np.einsum("nk,nki,nkj->kij", shares, y, y) - model._centre() * shares.sum(axis=0)[
            :, None, None
        ] * np.eye(D)
        linear = np.einsum("nk,nki->ki", shares, y)
        return {
            "start": np.ones(K),
            "moves": np.ones((K, K)),
            "count": shares.sum(axis=0),
            "linear": linear,
            "second": second,
        }

    carried, _ = model.transport(totals(posterior), dict.fromkeys(model.blocks(), 0.0), posterior, other)
    for name, expected in totals(other).items():
        np.testing.assert_allclose(carried[name], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "n", "n_steps"), [(4.0, 1_500, 20), pytest.param(1.0, 3_000, 40, marks=pytest.mark.slow)]
)
def test_private_fits_find_the_states(epsilon, n, n_steps):
    train = generated(n, np.random.default_rng(2))
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-6, sampling_rate=1.0, n_steps=n_steps)
    model = GaussianHMM(K, max_norm=6.0, privacy=plan).fit(train)
    order = [int(np.argmin(((model.means_ - mean) ** 2).sum(axis=1))) for mean in MEANS]
    np.testing.assert_allclose(model.means_[order], MEANS, atol=0.15)
    np.testing.assert_allclose(model.transmat_[np.ix_(order, order)], 0.7 * np.eye(K) + 0.1, atol=0.06)
    drawn, states = model.sample(300, 0, lengths=np.full(300, 20))
    assert model.score_samples(drawn).sum() / len(drawn.values) == pytest.approx(
        model.score_samples(train).sum() / len(train.values), abs=0.15
    )
    assert (model.predict(drawn) == states).mean() > 0.9


@pytest.mark.slow
def test_a_mask_orders_the_states():
    rng = np.random.default_rng(3)
    moves = np.array([[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]])
    sequences = []
    for _ in range(2_000):
        states = [0]
        while len(states) < 25:
            states.append(rng.choice(K, p=moves[states[-1]]))
        sequences.append(MEANS[states] + 0.7 * rng.standard_normal((25, D)))
    masks = {"startprob_mask": [True, False, False], "transmat_mask": np.triu(np.ones((K, K)))}
    plan = PrivacyPlan.from_epsilon(epsilon=4.0, delta=1e-6, sampling_rate=1.0, n_steps=40)
    for privacy in (None, plan):
        model = GaussianHMM(K, max_norm=6.0, n_features=D, privacy=privacy, **masks).fit(sequences)
        np.testing.assert_allclose(model.means_, MEANS, atol=0.15)
        np.testing.assert_allclose(model.transmat_, moves, atol=0.05)
        assert not np.tril(model.transmat_, -1).any()


def test_the_order_of_a_mask_has_most_allowed_moves():
    moves = np.array([[5.0, 0.0, 9.0], [8.0, 5.0, 1.0], [0.0, 0.0, 5.0]])  # 1 → 0 → 2
    order = order_of_mask(
        np.array([0.0, 9.0, 0.0]), moves, (np.array([True, False, False]), np.triu(np.ones((3, 3), bool)))
    )
    np.testing.assert_array_equal(order, [1, 0, 2])


def test_a_step_far_from_all_states_does_not_stop_a_chain():
    model = GaussianHMM(K, privacy=every(20), startprob_mask=[1, 0, 0], transmat_mask=np.triu(np.ones((K, K)))).fit(
        DATA
    )
    far = Sequences.from_list([np.array([[0.0, 0.0], [1e6, -1e6], [1e154, 0.0], [0.0, 1.0]])])
    assert np.isfinite(model.predict_proba(far)).all()


@pytest.mark.parametrize("size", [1, 200])
def test_moments_that_are_held_in_pieces_have_the_same_bits(size, monkeypatch):
    model, posterior = at_a_posterior()
    records, blocks = Sequences.from_list([*HOSTILE, *DATA[:30]]), phases_of(model, 40)[-1].blocks

    def of(n):
        with np.errstate(all="ignore"):
            statistics = model.expected_statistics(records, posterior)
            return statistics.norms(blocks), statistics.weighted_sum(np.arange(len(records)) == n)

    whole = [of(n) for n in range(len(records))]
    monkeypatch.setattr(gaussian_runs, "_PIECE", size)
    for n, (norms, sums) in enumerate(whole):
        in_pieces, parts = of(n)
        np.testing.assert_array_equal(in_pieces, norms)
        for name in blocks:
            np.testing.assert_array_equal(parts[name], sums[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"covariance_type": "tied"}, "covariance_type"),
        ({"scale_prior": -np.eye(2)}, "positive definite"),
        ({"scale_prior": [[1.0, 0.5], [0.0, 1.0]]}, "positive definite"),  # not symmetric
        ({"means_prior": [0.0]}, "means_prior"),
        ({"dof_prior": 0.5}, "dof_prior"),
        ({"privacy": PLAN}, "max_norm"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GaussianHMM(K, **arguments).fit(DATA)


def test_growth_leaves_steps_for_what_follows():
    for n_steps in (3, 10, 40, 100):
        for n_components in (1, 2, 8, 30):
            model = GaussianHMM(
                n_components, max_norm=1.0, privacy=PrivacyPlan(noise_multiplier=1, sampling_rate=1.0, n_steps=n_steps)
            )
            model.n_features_in_ = 20  # of so many columns pairs are not counted
            growing = sum(phase.n_steps for phase in model.phases(n_steps) if phase.name == "growing")
            assert growing <= max(1, n_steps // 3 + gaussian._SETTLES)


def test_pairs_are_counts_of_neighbouring_bins():
    model, posterior = at_a_posterior()
    sequences = [np.array([[-9.0, 0.0], [9.0, np.nan], [0.0, 0.0], [5.0, -5.0]]), np.empty((0, D)), np.ones((1, D))]
    statistics, blocks = (
        model._pair_statistics(Sequences.from_list(sequences), posterior),
        phases_of(model, 40)[1].blocks,
    )
    mean = posterior.gaussians.mean
    shares = posterior.gaussians.concentration / posterior.gaussians.concentration.sum()
    variance = np.diagonal(posterior.gaussians.covariances, axis1=1, axis2=2) + (mean - shares @ mean) ** 2
    edges = [
        norm(m, s).ppf(np.arange(1, 6) / 6) for m, s in zip(shares @ mean, np.sqrt(shares @ variance), strict=True)
    ]
    before, after = ([(edges[j] <= step[j]).sum() + 6 * j for j in (0, 1)] for step in scaled_steps(sequences[0][2:]))
    expected = np.zeros((12, 12))
    for i in before:  # only the last two steps are neighbours: a step with a missing number is missing
        for j in after:
            expected[i, j] += 1.0
    np.testing.assert_array_equal(statistics.weighted_sum(np.ones(3))["pairs"], expected)
    np.testing.assert_allclose(statistics.norms(blocks), [2.0 / blocks["pairs"].scale, 0.0, 0.0], rtol=1e-8)


def scaled_steps(X, max_norm=8.0):
    return X * np.minimum(1.0, max_norm / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300))


def test_single_precision_is_close_to_double():
    double, single = (GaussianHMM(K, privacy=every(30), dtype=dtype).fit(DATA) for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(single.means_, double.means_, atol=1e-4)
    np.testing.assert_allclose(single.transmat_, double.transmat_, atol=1e-4)
    far = Sequences.from_list([np.array([[0.0, 0.0], [1e6, -1e6], [1e154, 0.0], [0.0, 1.0]])])
    assert np.isfinite(single.predict_proba(far)).all()


@pytest.mark.parametrize(("dtype", "low"), [(np.float64, 1e-90), (np.float32, 1e-18)])
@pytest.mark.parametrize("n_states", [3, 8])
def test_a_sequence_that_contradicts_the_mask_counts(n_states, dtype, low):
    """It looks as if it were in the last state from the start, where the mask lets nobody be."""
    start, n_steps = np.eye(n_states)[0], 2 * n_states
    moves = 0.9 * np.eye(n_states) + 0.1 * np.eye(n_states, k=1)
    moves[-1, -1] = 1.0
    likely = np.full((n_steps, n_states), low)
    likely[:, -1] = 1.0
    shares, pairs, _ = inferred(np.array([0, n_steps]), start, moves, likely, np.zeros(n_steps), dtype=dtype)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(pairs.sum(), n_steps - 1.0, rtol=1e-5)
    np.testing.assert_allclose(shares[n_states:, -1], 1.0, rtol=1e-5)
    np.testing.assert_allclose(shares[np.arange(n_states - 1), np.arange(n_states - 1)], 1.0, rtol=1e-5)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_the_means_that_are_compared_have_the_variances_of_their_states(kind):
    """Cov(μ_k) is that of the state, divided by the weight of its steps."""
    model = GaussianHMM(K, covariance_type=kind, privacy=every(20)).fit(DATA)
    (means,) = (part.distribution for part in model.posterior_parts(model.last_posterior_) if part.name == "means")
    expected = np.diagonal(model.covars_, axis1=1, axis2=2) / model.last_posterior_.gaussians.mean_precision[:, None]
    np.testing.assert_allclose(means.var, expected, rtol=1e-9)
