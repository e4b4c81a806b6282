"""Hidden Markov models of counts: against a reference written down anew, SciPy, hmmlearn; what one sequence can change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma, gammaln
from scipy.stats import poisson

import vips
from tests.plans import every
from vips import PoissonHMM, PrivacyPlan
from vips.core.phases import phases_of
from vips.data import Sequences
from vips.expfam import Gamma
from vips.models.components.columns import Posteriors
from vips.models.components.component import Frame

K, D = 3, 2
RATES = np.array([[0.5, 4.0], [3.0, 1.0], [8.0, 9.0]])


def sequences(n, seed=0, missing=0.05, length=(1, 30)):
    """Sequences of well separated states, and the states."""
    rng = np.random.default_rng(seed)
    lengths, stay = rng.integers(*length, n), 0.85
    states = []
    for steps in lengths:
        path = [rng.integers(K)]
        for _ in range(steps - 1):
            path.append(path[-1] if rng.random() < stay else rng.integers(K))
        states.append(np.array(path))
    counts = [np.where(rng.random((len(path), D)) < missing, np.nan, rng.poisson(RATES[path])) for path in states]
    return Sequences.from_list(counts), np.concatenate(states)


DATA, _ = sequences(60)


def fitted(n_steps, data=DATA, **settings):
    return PoissonHMM(K, max_count=40, random_state=0, privacy=every(n_steps), **settings).fit(data)


def log_densities(counts, rates_shape, rates_rate, expected_log):
    logs = digamma(rates_shape) - np.log(rates_rate) if expected_log else np.log(rates_shape / rates_rate)
    by_cell = counts[:, None] * logs - rates_shape / rates_rate - gammaln(counts + 1.0)[:, None]
    return np.nansum(by_cell, axis=2)


def reference_step(data, start, moves, shape, rate, priors, expected_log):
    """One step of VB or EM, from concentrations, shapes and rates to the next; and the log likelihood before it."""

    def chances(concentration):
        if expected_log:
            return np.exp(digamma(concentration) - digamma(concentration.sum(axis=-1, keepdims=True)))
        return concentration / concentration.sum(axis=-1, keepdims=True)

    first, move = chances(start), chances(moves)
    of_start, of_moves = np.zeros(K), np.zeros((K, K))
    of_shape, of_rate, log_likelihood = np.zeros((K, D)), np.zeros((K, D)), 0.0
    for counts in data:
        seen = np.exp(log_densities(counts, shape, rate, expected_log))
        forward, backward = np.zeros((2, len(counts), K))
        forward[0], backward[-1] = first * seen[0], 1.0
        for t in range(1, len(counts)):
            forward[t] = forward[t - 1] @ move * seen[t]
        for t in range(len(counts) - 2, -1, -1):
            backward[t] = move @ (seen[t + 1] * backward[t + 1])
        total = forward[-1].sum()
        shares = forward * backward / total
        log_likelihood += np.log(total)
        of_start += shares[0]
        for t in range(1, len(counts)):
            of_moves += forward[t - 1][:, None] * move * (seen[t] * backward[t]) / total
        of_shape += shares.T @ np.nan_to_num(counts)
        of_rate += shares.T @ ~np.isnan(counts)
    totals = of_start, of_moves, of_shape, of_rate
    return tuple(prior + total for prior, total in zip(priors, totals, strict=True)), log_likelihood


def arrays(posterior):
    return (
        posterior.start.concentration,
        posterior.moves.concentration,
        posterior.columns["counts"].shape,
        posterior.columns["counts"].rate,
    )


@pytest.mark.parametrize("inference", ["vb", "em"])
def test_without_noise_it_is_the_reference(inference):
    start, end = (fitted(n, inference=inference) for n in (2, 12))
    parameters, is_vb = arrays(start.last_posterior_), inference == "vb"
    priors = (1.0 / K, 1.0 / K, 1.0, 1.0 / 40.0) if is_vb else (1e-12, 1e-12, 0.0, 0.0)
    for _ in range(10):
        parameters, _ = reference_step(DATA, *parameters, priors, is_vb)
    for ours, theirs in zip(arrays(end.last_posterior_), parameters, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    _, log_likelihood = reference_step(DATA, *parameters, priors, False)
    np.testing.assert_allclose(end.score_samples(DATA).sum(), log_likelihood, rtol=1e-9)


def test_it_is_hmmlearn_by_maximum_likelihood():
    hmm = pytest.importorskip("hmmlearn.hmm")
    data, _ = sequences(40, 1, missing=0.0)
    start, end = (fitted(n, data, inference="em") for n in (2, 12))
    peer = hmm.PoissonHMM(K, n_iter=10, tol=-np.inf, init_params="")
    peer.startprob_prior, peer.transmat_prior = 1.0, 1.0  # no prior: hmmlearn takes the mode
    peer.startprob_, peer.transmat_, peer.lambdas_ = start.startprob_, start.transmat_, start.lambdas_
    peer.fit(data.values.astype(int), data.lengths)
    for name in ("startprob_", "transmat_", "lambdas_"):
        np.testing.assert_allclose(getattr(end, name), getattr(peer, name), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        end.score_samples(data).sum(), peer.score(data.values.astype(int), data.lengths), rtol=1e-9
    )


def test_likelihoods_are_those_of_scipy():
    model = fitted(5)
    likely, log_scale = model.likely(DATA, model.at_means(model.last_posterior_))
    expected = np.nansum(poisson.logpmf(DATA.values[:, None], model.lambdas_), axis=2)
    np.testing.assert_allclose(np.log(likely) + log_scale[:, None], expected, rtol=1e-9, atol=1e-9)


def test_states_are_found():
    data, states = sequences(2_000, 2)
    model = fitted(20, data)
    order = np.argsort(model.lambdas_[:, 0])
    np.testing.assert_allclose(model.lambdas_[order], RATES, rtol=0.05)
    assert (np.argsort(order)[model.predict(data)] == states).mean() > 0.9


@pytest.mark.parametrize(
    ("epsilon", "n"), [(8.0, 1_000), *(pytest.param(e, 4_000, marks=pytest.mark.slow) for e in (1.0, 4.0))]
)
def test_states_are_found_privately(epsilon, n):
    data, _ = sequences(n, 3, length=(20, 30))
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, n_steps=40)
    model = PoissonHMM(K, max_count=40, privacy=plan, random_state=0).fit(data)
    order = np.argsort(model.lambdas_[:, 0])
    np.testing.assert_allclose(model.lambdas_[order], RATES, atol=0.5)


def test_pairs_are_counts_of_neighbouring_bins():
    model = PoissonHMM(K, max_count=[3, 2], privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=20))
    model.n_features_in_ = D
    counts = [np.array([[0.0, 2.0], [3.0, np.nan], [9.0, 1.0]]), np.zeros((0, 2)), np.array([[1.0, 1.0]])]
    average, posterior = model.start(np.random.default_rng(0))
    assert not posterior.marginals.any()
    statistics = model._pair_statistics(Sequences.from_list(counts), posterior)
    expected = np.zeros((7, 7))  # bins 0 to 3 of the first column, and 0 to 2 of the second
    for before, after in [(0, 3), (6, 3), (3, 3), (3, 5)]:
        expected[before, after] += 1.0
    blocks = phases_of(model, 20)[1].blocks
    np.testing.assert_array_equal(statistics.weighted_sum(np.ones(3))["pairs"], expected)
    norm = np.sqrt((expected**2).sum()) / blocks["pairs"].scale
    np.testing.assert_allclose(statistics.norms(blocks), [norm, 0.0, 0.0], rtol=1e-8)
    assert average["pairs"].shape == blocks["pairs"].shape


def test_large_counts_are_cut_and_what_is_none_is_missing():
    model = fitted(5)
    values = np.array([[41.0, 1.0], [-1.0, 1.0], [0.5, np.inf], [1e300, 1.0]])
    cleaned = np.array([[40.0, 1.0], [np.nan, 1.0], [np.nan, np.nan], [40.0, 1.0]])
    with pytest.raises(ValueError, match="X holds -1, but steps are counts"):
        model.score_samples([values])
    model.set_params(privacy=PrivacyPlan(noise_multiplier=0.5, sampling_rate=1.0, n_steps=30))
    np.testing.assert_array_equal(model.score_samples([values]), model.score_samples([cleaned]))


def test_a_missing_cell_drops_only_its_column():
    model = fitted(5)
    whole = model.posterior_
    rates, frame = whole.columns["counts"], Frame(*(value[:1] for value in vars(whole.frame).values()))
    alone = replace(whole, columns=Posteriors(counts=Gamma(rates.shape[:, :1], rates.rate[:, :1])), frame=frame)
    other = PoissonHMM(K, max_count=40, privacy=every(2))
    other.n_features_in_, other.last_posterior_ = 1, alone
    values = np.array([[2.0, np.nan], [5.0, np.nan], [0.0, np.nan]])
    np.testing.assert_allclose(model.score_samples([values]), other.score_samples([values[:, :1]]), rtol=1e-10)


@pytest.mark.parametrize("inference", ["vb", "em"])
def test_a_mask_forbids_moves(inference):
    masks = {"startprob_mask": [True, False, False], "transmat_mask": np.triu(np.ones((K, K), bool))}
    for privacy in (PrivacyPlan(noise_multiplier=0.5, sampling_rate=1.0, n_steps=12), every(8)):
        model = PoissonHMM(K, max_count=40, privacy=privacy, inference=inference, random_state=0, **masks).fit(DATA)
        np.testing.assert_array_equal(model.startprob_, [1.0, 0.0, 0.0])
        assert not np.tril(model.transmat_, -1).any()


def test_readers_see_rates_of_columns():
    model = fitted(10)
    table = model.summary(names=["visits", "calls"])
    np.testing.assert_allclose(table[["mean visits", "mean calls"]].to_numpy(), model.lambdas_)
    drawn, states = model.sample(3_000, random_state=0, lengths=[5] * 3_000)
    for k in range(K):
        np.testing.assert_allclose(drawn.values[states == k].mean(axis=0), model.lambdas_[k], rtol=0.1)
    order = np.array([2, 0, 1])
    np.testing.assert_array_equal(
        model.in_order(model.last_posterior_, order).columns["counts"].mean, model.lambdas_[order]
    )


def test_comparisons_match_states_by_rates():
    baseline = fitted(20)
    private = PoissonHMM(
        K, max_count=40, privacy=PrivacyPlan(noise_multiplier=0.01, sampling_rate=1.0, n_steps=30), random_state=3
    ).fit(DATA)
    order = vips.compare(private, baseline).alignment.order
    np.testing.assert_allclose(private.lambdas_, baseline.lambdas_[order], rtol=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "`max_count` is required"),
        ({"max_count": 0}, "max_count"),
        ({"max_count": [3, 4, 5]}, "3 numbers, and X has 2 columns"),
        ({"max_count": 5, "lambdas_prior": 0.0}, "lambdas_prior"),
        ({"max_count": 5, "transmat_mask": np.eye(2)}, "shape"),
    ],
)
def test_arguments_that_cannot_work_are_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PoissonHMM(K, **settings).fit(DATA)


@pytest.mark.parametrize("max_count", [{"a": 3}, [None], [[3, 4]], "many", 2.5])
def test_bounds_of_counts_are_whole_numbers(max_count):
    with pytest.raises((TypeError, ValueError), match="max_count"):
        PoissonHMM(2, max_count=max_count).fit(DATA)


def test_settings_of_a_huge_model_are_read_without_its_arrays():
    """A forged file would take the memory of all moves before it is refused."""
    PoissonHMM(10**7, max_count=3).check_parameters()
