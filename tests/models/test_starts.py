"""Where ordinary fits begin: against peers, and on records that leave little to begin at."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hmmlearn import hmm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from vips import (
    BayesianGaussianMixture,
    CategoricalHMM,
    GaussianHMM,
    LatentClassAnalysis,
    MixedLatentClassAnalysis,
    PoissonHMM,
    PrivacyPlan,
)
from vips.core import engine
from vips.core.records.arrays import InMemoryData
from vips.data import Sequences
from vips.models import _starts

KINDS = ("full", "tied", "diag", "spherical")


def points(rng, K):
    """Clusters of other sizes, spreads, units and places."""
    d, n = int(rng.choice([1, 2, 5])), int(rng.choice([300, 1500]))
    members = rng.choice(K, n, p=rng.dirichlet(np.full(K, 3.0)))
    means, spreads = rng.choice([1.5, 3.0, 6.0]) * rng.normal(size=(K, d)), rng.gamma(3.0, 0.33, (K, d))
    X = means[members] + spreads[members] * rng.normal(size=(n, d))
    return X * rng.choice([1.0, 100.0], d) + rng.choice([0.0, 50.0], d)


def chains(rng, K):
    n_sequences, length, stays = int(rng.choice([10, 40])), int(rng.choice([30, 80])), rng.choice([0.5, 0.8, 0.95])
    moves = np.where(rng.random((n_sequences, length)) < stays, -1, rng.integers(K, size=(n_sequences, length)))
    moves[:, 0] = rng.integers(K, size=n_sequences)
    last = np.maximum.accumulate(np.where(moves >= 0, np.arange(length), 0), axis=1)
    return np.take_along_axis(moves, last, axis=1)


def mixture_case(kind):
    def case(rng, K, seed):
        X = points(rng, K)
        d = X.shape[1]
        peers = [GaussianMixture(K, covariance_type=kind, random_state=k, max_iter=500).fit(X) for k in range(3)]
        ours = BayesianGaussianMixture(K, covariance_type=kind, inference="em", random_state=seed).fit(X)
        covariances = {"full": K * d * (d + 1) / 2, "tied": d * (d + 1) / 2, "diag": K * d, "spherical": K}[kind]
        return ours.score_samples(X).sum(), [peer.score(X) * len(X) for peer in peers], K * d + K - 1 + covariances

    return case


def numbers_case(rng, K, seed):
    X = points(rng, K)
    bounds = [(column.min() - 1.0, column.max() + 1.0) for column in X.T]
    peers = [GaussianMixture(K, covariance_type="diag", random_state=k, max_iter=500).fit(X) for k in range(3)]
    ours = MixedLatentClassAnalysis(K, columns=bounds, inference="em", random_state=seed).fit(X)
    return ours.score_samples(X).sum(), [peer.score(X) * len(X) for peer in peers], 2 * K * X.shape[1] + K - 1


def chain_case(name, kind="diag"):
    def case(rng, K, seed):
        states, d, settings = chains(rng, K), int(rng.choice([1, 2])), {"inference": "em", "random_state": seed}
        if name == "numbers":
            means, spreads = 3.0 * rng.normal(size=(K, d)), rng.gamma(3.0, 0.33, (K, d))
            X = means[states] + spreads[states] * rng.normal(size=(*states.shape, d))
            ours, width = GaussianHMM(K, covariance_type=kind, **settings), 2 * d
            peers = [hmm.GaussianHMM(K, covariance_type=kind, n_iter=200, random_state=k) for k in range(3)]
        elif name == "counts":
            X = rng.poisson(rng.gamma(1.0, 6.0, (K, d))[states])
            ours, width = PoissonHMM(K, max_count=300, **settings), d
            peers = [hmm.PoissonHMM(K, n_iter=200, random_state=k) for k in range(3)]
        else:
            below = rng.dirichlet(np.full(8, 0.3), K).cumsum(axis=1)[states]
            X = np.minimum((below < rng.random(states.shape)[:, :, None]).sum(axis=2), 7)[:, :, None]
            ours, width = CategoricalHMM(K, n_symbols=8, **settings), 7
            peers = [hmm.CategoricalHMM(K, n_features=8, n_iter=100, random_state=k) for k in range(3)]
        steps, lengths = np.concatenate(list(X)), [len(steps) for steps in X]
        scores = [peer.fit(steps, lengths).score(steps, lengths) for peer in peers]
        return ours.fit(list(X)).score_samples(list(X)).sum(), scores, K * K - 1 + K * width

    return case


CASES = {f"mixtures, {kind}": mixture_case(kind) for kind in KINDS} | {
    "classes of numbers": numbers_case, "chains of numbers": chain_case("numbers"),
    "chains of counts": chain_case("counts"), "chains of symbols": chain_case("symbols"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "seeds"),
    [(name, range(1)) for name in CASES] + [pytest.param(name, range(1, 21), marks=pytest.mark.slow) for name in CASES],
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.repeated("mixtures, full-seeds0")
def test_maximum_likelihood_is_no_worse_than_the_worst_start_of_a_peer(name, seeds):
    """By half a nat for each free parameter, of tables that differ in all respects."""
    short = {}
    for seed in seeds:
        rng = np.random.default_rng([seed, 5])
        got, theirs, n_parameters = CASES[name](rng, int(rng.integers(2, 6)), seed)
        short[seed] = round((min(theirs) - got) / n_parameters, 2)
    assert max(short.values()) < 0.5, short


@pytest.mark.parametrize(("max_count", "seed"), [(20, 1), (300, 0)])
def test_clear_states_of_counts_are_found_whatever_the_seed(max_count, seed):
    rates, rng = np.random.default_rng(5).gamma(1.0, 3.0, (4, 6)), np.random.default_rng(0)
    states = [(np.cumsum(rng.random(250) > 0.95) + k) % 4 for k in range(20)]
    X = [rng.poisson(rates[of]) for of in states]
    model = PoissonHMM(4, max_count=max_count, inference="em", random_state=seed).fit(X)
    truth = hmm.PoissonHMM(4, n_iter=50, random_state=0, init_params="st")
    truth.lambdas_ = rates
    lengths = [len(x) for x in X]
    truth.fit(np.concatenate(X), lengths)
    assert model.score_samples(X).sum() > truth.score(np.concatenate(X), lengths) - 5.0


@pytest.mark.parametrize("inference", ["vb", "em"])
@pytest.mark.parametrize("column", ["numbers", "counts"])
def test_classes_of_a_single_column_are_told_apart(inference, column):
    rng = np.random.default_rng(0)
    is_old = rng.random(3000) < 0.4
    X = np.where(is_old, rng.normal(75.0, 6.0, 3000), rng.normal(40.0, 10.0, 3000))
    X, columns = (X, [(18.0, 100.0)]) if column == "numbers" else (rng.poisson(np.where(is_old, 12, 1)), [range(31)])
    model = MixedLatentClassAnalysis(2, columns=columns, inference=inference, random_state=0).fit(X[:, None])
    agreement = np.mean(model.predict(X[:, None]) == is_old)
    assert max(agreement, 1.0 - agreement) > 0.96


def test_a_private_fit_refuses_a_start_that_may_depend_on_records():
    model = BayesianGaussianMixture(
        2, max_norm=5.0, privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=4)
    )
    model.n_features_in_ = 2
    start = model.start(np.random.default_rng(0))[1]
    with pytest.raises(ValueError, match="may depend on the records"):
        engine.run(model, InMemoryData(np.zeros((5, 2))), model.privacy, None, start=start)


def test_a_private_fit_does_not_look_for_a_start(monkeypatch):
    def looks(*_):
        raise AssertionError("a private fit looked at records")

    monkeypatch.setattr(_starts, "_sample", looks)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=8)
    X = np.random.default_rng(0).normal(size=(50, 2))
    BayesianGaussianMixture(2, max_norm=5.0, privacy=plan).fit(X)
    MixedLatentClassAnalysis(2, columns=[(-5.0, 5.0)] * 2, privacy=plan).fit(X)
    PoissonHMM(2, max_count=5, n_features=1, privacy=plan).fit([np.ones((4, 1))] * 10)
    GaussianHMM(2, max_norm=5.0, n_features=1, privacy=plan).fit([np.ones((4, 1))] * 10)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", [1, 2, 5])
def test_fewer_records_than_components(n):
    X = np.arange(2.0 * n).reshape(n, 2)
    for model in (BayesianGaussianMixture(4), MixedLatentClassAnalysis(4, columns=[(-1.0, 20.0)] * 2)):
        assert np.isfinite(model.fit(X).score_samples(X)).all()
    for model in (GaussianHMM(4), PoissonHMM(4, max_count=20)):
        assert np.isfinite(model.fit([X]).score_samples([X])).all()


def test_the_sample_holds_the_records_that_count():
    """Rows of weight 0 and defective rows are never in it, and heavy rows more often; of sequences it counts steps."""
    rng, model = np.random.default_rng(0), BayesianGaussianMixture(2, privacy=PrivacyPlan.non_private())
    X = np.arange(60_000.0)[:, None]
    weights = np.repeat([0.0, 1.0, 3.0], 20_000)
    X[5] = np.nan
    model.n_features_in_, model.chunk_size = 1, 700
    model.use_plan(PrivacyPlan.non_private(n_steps=2))
    everybody, ones = _starts._sample(model, InMemoryData(X[:10_000]), rng)
    np.testing.assert_array_equal(everybody, np.delete(X[:10_000], 5, axis=0))
    model._fitting_plan = PrivacyPlan(
        noise_multiplier=0.0, sampling_rate=1.0, n_steps=2, clip_norm=np.inf, max_weight=np.inf
    )
    sample, ones = _starts._sample(model, InMemoryData(X).with_weights(weights), rng)
    assert len(np.unique(sample)) == len(sample)
    assert abs(len(sample) - 20_000) < 2
    assert (ones == 1.0).all()
    few, kept = _starts._sample(model, InMemoryData(X[15_000:25_000]).with_weights(3.0 * weights[15_000:25_000]), rng)
    assert few.min() == 20_000.0
    assert (kept == 3.0).all()
    share = np.mean(sample >= 40_000.0)
    assert sample.min() >= 20_000.0
    assert abs(share - 0.682) < 0.012  # drawn without replacement: 1 - e³ with e + e³ = 1, and 3.5 deviations
    chain = GaussianHMM(2, privacy=PrivacyPlan.non_private(n_steps=2))
    drawn, _ = _starts._sample(
        chain, InMemoryData(Sequences.from_lengths(np.zeros((100_000, 1)), np.full(1000, 100))), rng
    )
    assert abs(drawn.lengths.sum() - 20_000) <= 100


@pytest.mark.filterwarnings("ignore:.*mostly what the prior or a floor adds")
@pytest.mark.filterwarnings("ignore:.*has not settled")
def test_components_without_records_have_no_estimates():
    """A prior's mean is no estimate, and a component that another one repeats is none of the records'."""
    rng = np.random.default_rng(0)
    answers = (rng.random((500, 6)) < np.where(rng.random(500) < 0.5, 0.1, 0.9)[:, None]).astype(int)
    sparse = LatentClassAnalysis(6, categories=[2] * 6, class_prior=1e-6, random_state=0).fit(answers)
    with pytest.warns(ConvergenceWarning, match=r"class \d.* hold no record"):
        table = sparse.summary()
    assert (table["typical answers"] == "").sum() >= 2
    X = np.concatenate([np.full((50, 1), 3.0), np.full((50, 1), 8.0)])
    numbers = MixedLatentClassAnalysis(2, columns=[(0.0, 10.0)], random_state=0).fit(X[:50])
    with pytest.warns(ConvergenceWarning, match="alike|no record"):
        numbers.summary()
    with pytest.warns(ConvergenceWarning, match="no record"):
        table = (
            BayesianGaussianMixture(
                3,
                weight_concentration_prior_type="dirichlet_distribution",
                weight_concentration_prior=1e-9,
                random_state=0,
            )
            .fit(X)
            .summary()
        )
    assert table.iloc[-1][["mean x0", "std x0"]].isna().all()
    with pytest.warns(ConvergenceWarning, match="alike|no record"):
        PoissonHMM(3, max_count=10, random_state=0).fit(list(X.reshape(10, 10, 1))).summary()


def test_clear_components_are_not_warned_of():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(k, 0.5, (100, 2)) for k in (0.0, 5.0, 10.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        BayesianGaussianMixture(6, random_state=0).fit(X).summary()  # a Dirichlet process
        MixedLatentClassAnalysis(3, columns=[(-5.0, 15.0)] * 2, random_state=0).fit(X).summary()
        GaussianHMM(3, random_state=0).fit([X]).summary()
        one_place = np.concatenate([rng.normal(size=500), 10.0 * rng.normal(size=500)])[:, None]
        one_place -= np.where(np.arange(1000) < 500, one_place[:500].mean(), one_place[500:].mean())[:, None]
        BayesianGaussianMixture(2, random_state=0).fit(one_place).summary()  # they differ by their deviations
        GaussianHMM(2, random_state=0).fit([one_place]).summary()
        days = np.add.outer([738_000.0, 738_004.0], rng.normal(0.0, 0.3, 400)).reshape(-1, 1)
        BayesianGaussianMixture(2, random_state=0).fit(days).summary()  # far from 0, beside how far they are apart
        MixedLatentClassAnalysis(2, columns=[(730_000.0, 740_000.0)], random_state=0).fit(days).summary()
        GaussianHMM(2, random_state=0).fit([days]).summary()


@pytest.mark.parametrize("model", [
    BayesianGaussianMixture(2, inference="em", random_state=0), BayesianGaussianMixture(2, random_state=0),
    MixedLatentClassAnalysis(2, columns=[(0, 100), (-10, 1e6)], random_state=0),
])  # fmt: skip
def test_a_deviation_that_is_the_floors_or_the_priors_is_said(model):
    """Nine of ten records have next to no gain: 0.01, where 1 or 40 is printed."""
    rng = np.random.default_rng(0)
    gains = np.where(rng.random(1_000) < 0.9, 0.0, rng.lognormal(8.0, 1.0, 1_000)) + 0.01 * rng.normal(size=1_000)
    fit = model.fit(np.column_stack([rng.normal(40.0, 10.0, 1_000), gains]))
    with pytest.warns(ConvergenceWarning, match="its deviation of 'x1' is mostly what the prior or a floor adds"):
        fit.summary()
    clear = rng.normal(size=(1_000, 2)) + np.where(rng.random((1_000, 1)) < 0.5, 0.0, 5.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).fit(clear).summary()
