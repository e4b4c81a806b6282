"""Models that learn from a stream: textbook totals without noise, the noise that is stated with it, who is let in."""

from __future__ import annotations

import copy
import math
import os
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import beta, chi2, norm
from sklearn.base import clone

import vips
from tests.streams.test_strategies import matrices
from vips import (
    BayesianLinearRegression,
    DirichletMultinomial,
    FactorAnalysis,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    PrivacyBudgetError,
    PrivacyLedger,
    PrivacyPlan,
    ProbabilisticPCA,
    SpatialCounts,
    StreamError,
    StreamPlan,
)
from vips.datasets import make_lda_corpus
from vips.streams import stream as stream_module

RNG = np.random.default_rng(0)
COUNTS = RNG.multinomial(1, [0.2, 0.3, 0.5], 600)
ROWS = RNG.uniform(-0.5, 0.5, (600, 2))
TARGETS = ROWS @ [1.0, -1.0] + 0.1 * RNG.normal(size=600)
CUTS = [0, 10, 20, 300, 301, 600]  # one batch holds one record
OF_FIVE = [slice(a, b) for a, b in pairwise(CUTS)]


def plan(n_batches=5, epsilon=1.0, **arguments):
    return StreamPlan(epsilon=epsilon, delta=1e-6, n_batches=n_batches, **arguments)


def without_noise(n_batches=5, **arguments):
    return plan(n_batches, math.inf, **arguments)


def test_batches_without_noise_are_one_fit():
    proportions = DirichletMultinomial(privacy=without_noise())
    regression = BayesianLinearRegression(privacy=without_noise())
    for part in OF_FIVE:
        proportions.partial_fit(COUNTS[part])
        regression.partial_fit(ROWS[part], TARGETS[part])
    np.testing.assert_allclose(
        proportions.last_posterior_.mean, DirichletMultinomial().fit(COUNTS).last_posterior_.mean, rtol=1e-12
    )
    whole = BayesianLinearRegression().fit(ROWS, TARGETS)
    np.testing.assert_allclose(regression.coef_, whole.coef_, rtol=1e-9)
    np.testing.assert_allclose(regression.last_posterior_.cov, whole.last_posterior_.cov, rtol=1e-8)
    assert proportions.n_batches_seen_ == 5
    # bounds hold without noise too: a stream to compare with
    ids, stream = pd.Series(np.arange(10) // 5, name="person"), without_noise(2, max_rows_per_group=2, clip_norm=1.0)
    total = DirichletMultinomial(privacy=stream).partial_fit(np.eye(3)[np.zeros(10, int)], groups=ids).noisy_totals_
    np.testing.assert_allclose(total.average["counts"], [2.0, 0.0, 0.0])


def test_topics_without_noise_are_streaming_variational_bayes():
    """λ is the prior plus the expected counts of all batches, each at the topics before it (Broderick et al., 2013)."""
    corpus = make_lda_corpus(n_documents=400, n_topics=3, n_words=30, document_length=40, random_state=0).counts
    model = LatentDirichletAllocation(3, vocabulary=30, privacy=without_noise(4, decay=0.8), random_state=1)
    total, before = 0.0, None
    for k in range(4):
        batch = corpus[k * 100 : (k + 1) * 100]
        model.partial_fit(batch)
        if before is not None:
            statistics = model.expected_statistics(batch.astype(float), before).weighted_sum(np.ones(100))
            total = 0.8 * total + statistics["topic_word"]
            np.testing.assert_allclose(model.noisy_totals_.average["topic_word"], total, rtol=1e-6)
        else:
            total = model.noisy_totals_.average["topic_word"]
        before = copy.deepcopy(model.last_posterior_)


def delta_of_normal(sigma):
    """δ at ε = 1 of one Gaussian of sensitivity 1, by Balle and Wang's closed form (2018)."""
    a = 0.5 / sigma
    return norm.cdf(a - sigma) - np.exp(1.0) * norm.cdf(-a - sigma)


ANSWERS = (RNG.random((2_000, 6)) < np.where(RNG.random((2_000, 1)) < 0.4, 0.9, 0.2)).astype(int)


def test_classes_without_noise_are_streaming_expectation_maximisation():
    """The first batch is in all classes alike; each later one is added at the classes before it."""
    stream = without_noise(4, decay=0.9)
    model = LatentClassAnalysis(2, categories=[2] * 6, inference="em", privacy=stream, random_state=0)
    total = None
    for part in np.split(ANSWERS, 4):
        if total is None:
            total = np.tile((part[:, :, None] == [0, 1]).sum(axis=0).ravel() / 2, (2, 1))
        else:
            log_likelihood = np.stack([part @ np.log(p[1::2]) + (1 - part) @ np.log(p[::2]) for p in model.components_])
            shares = model.weights_[:, None] * np.exp(log_likelihood)
            shares /= shares.sum(axis=0)
            total = 0.9 * total + np.einsum("kn,njl->kjl", shares, part[:, :, None] == [0, 1]).reshape(2, 12)
        model.partial_fit(part)
        np.testing.assert_allclose(model.noisy_totals_.average["cells"], total, rtol=1e-9)
    with pytest.raises(ValueError, match="categories"):
        LatentClassAnalysis(2, privacy=without_noise()).partial_fit(ANSWERS[:5])


def test_private_streams_find_classes():
    stream = plan(10, 4.0, decay=0.7)
    model = LatentClassAnalysis(2, categories=[2] * 6, privacy=stream, random_state=0)
    for part in np.split(ANSWERS, 10):
        model.partial_fit(part)
    likes = np.sort(model.components_[:, 1::2].mean(axis=1))
    assert likes[1] - likes[0] > 0.35  # of [0.2, 0.9]; before the second batch they are alike


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("mechanism", ["toeplitz", "tree", "independent"])
@pytest.mark.parametrize(("participation", "decay"), [(1, 1.0), (2, 0.9)])
def test_all_releases_together_are_the_gaussian_that_is_paid_for(mechanism, participation, decay, noise):
    """Without records R = B z, so that B⁻¹ R is white, with the deviation that ε needs for the largest pattern of batches."""
    T, d = 6, 4_000
    stream = plan(T, participation=participation, decay=decay, mechanism=mechanism, noise=noise)
    model = DirichletMultinomial(privacy=stream)
    released = np.stack([model.partial_fit(np.zeros((0, d))).noisy_totals_.average["counts"] for _ in range(T)])
    A, B = matrices(stream.strategy)
    C = np.linalg.solve(B, A)
    largest = max(np.linalg.norm(C[:, list(steps)].sum(axis=1)) for steps in combinations(range(T), participation))
    longer = 1.0 if noise == "gaussian" else 1.0 + 2.0**-9  # shares that are rounded
    needed = brentq(lambda sigma: delta_of_normal(sigma) - 1e-6, 0.5, 50.0) * longer * largest * model.default_clip()
    white = np.linalg.solve(B, released) / needed
    variances = np.square(white).mean(axis=1)
    low, high = chi2.ppf([1e-6, 1 - 1e-6], d) / d
    assert (variances > low).all()
    assert (variances < (high if mechanism != "tree" else 1.8)).all()  # the tree's sensitivity is a bound
    products = white @ white.T / d
    assert np.abs(products - np.diag(np.diag(products))).max() < 6.0 / np.sqrt(d) * variances.max()
    np.testing.assert_allclose(released.std(axis=1), [stream.noise_std(t) for t in range(1, T + 1)], rtol=0.08)
    assert model.noisy_totals_.noise_std["counts"] == pytest.approx(stream.noise_std(T) * model.default_clip())
    assert model.privacy_.epsilon() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("mechanism", "participation", "noise"),
    [("toeplitz", 1, "gaussian"), ("toeplitz", 2, "gaussian"), ("tree", 1, "gaussian"), ("toeplitz", 1, "discrete")],
)
def test_canaries_come_near_the_claim_and_do_not_exceed_it(mechanism, participation, noise):
    """Each of 2,000 categories may have a canary: a person of 100 counts in the worst batches, whom only she has.

    The most powerful test of all releases, C x against 0; its two error rates bound μ (Dong, Roth and Su, 2022), with
    Clopper and Pearson's limits.
    """
    T, d = 40, 2_000
    rows = 1 if noise == "discrete" else None
    stream = plan(T, 8.0, participation=participation, mechanism=mechanism, noise=noise, max_rows_per_group=rows)
    A, B = matrices(stream.strategy)
    C = np.linalg.solve(B, A)
    worst = max(combinations(range(T), participation), key=lambda steps: np.linalg.norm(C[:, list(steps)].sum(axis=1)))
    is_in = np.random.default_rng(0).random(d) < 0.5
    batches = [100 * np.eye(d)[is_in] if t in worst else np.zeros((0, d)) for t in range(T)]
    model, released = DirichletMultinomial(privacy=stream), []
    for batch in batches:
        ids = pd.Series(np.flatnonzero(is_in)[: len(batch)], name="person")
        released.append(model.partial_fit(batch, groups=ids).noisy_totals_.average["counts"].copy())
    direction = C[:, list(worst)].sum(axis=1)
    scores = direction @ np.linalg.solve(B, np.stack(released))
    claim = brentq(
        lambda mu: norm.cdf(mu / 2 - 8.0 / mu) - np.exp(8.0) * norm.cdf(-mu / 2 - 8.0 / mu) - 1e-6, 0.1, 10.0
    )
    is_above = scores > direction @ direction * model.default_clip() / 2
    right = is_above[is_in], ~is_above[~is_in]
    limits = [norm.ppf(beta.ppf(1e-4, hits.sum(), len(hits) - hits.sum() + 1)) for hits in right]
    assert (0.65 if noise == "gaussian" else 0.5) * claim < sum(limits) <= claim


def test_a_person_is_in_so_many_batches_and_no_more():
    """Fifty ids are in every batch; totals, with next to no noise, count them once, or twice."""
    for most in (1, 2):
        model = DirichletMultinomial(privacy=plan(4, 1e4, participation=most), max_total=1.0)
        totals = []
        for k in range(4):
            ids = pd.Series([f"p{i}" for i in range(50)] + ([f"new{k}"] * 3), name="person")
            model.partial_fit(np.eye(3)[np.zeros(53, int)], groups=ids)
            totals.append(model.noisy_totals_.average["counts"].sum())
        expected = [51.0] * most + [1.0] * (4 - most)  # a person's rows are one share
        np.testing.assert_allclose(np.diff(totals, prepend=0.0), expected, atol=0.5)
        assert model.privacy_.unit == "all rows of one person"
        assert "register" in str(model.privacy_)
    # on the second day an id of text turns the column into text: 300 persons who were there the day before stay out
    model = DirichletMultinomial(privacy=plan(2, 1e4, participation=1), max_total=1.0)
    for ids in (pd.Series(np.arange(300), name="person"), pd.Series([*map(str, range(300)), "X7"], name="person")):
        model.partial_fit(np.eye(3)[np.zeros(len(ids), int)], groups=ids)
    np.testing.assert_allclose(model.noisy_totals_.average["counts"].sum(), 301.0, atol=0.5)


def test_a_stream_is_charged_once_and_refused_beyond_the_budget(tmp_path):
    ledger = PrivacyLedger(tmp_path / "x.ledger", epsilon=1.25, delta=1e-5, dataset="letters")
    model = DirichletMultinomial(privacy=plan(3)).partial_fit(COUNTS[:10], ledger=ledger)
    spent = ledger.spent()
    for _ in range(2):
        model.partial_fit(COUNTS[:10], ledger=ledger)
    assert ledger.spent() == spent > 0.8
    assert len(ledger.runs()) == 1
    with pytest.raises(StreamError, match="3 batches"):
        model.partial_fit(COUNTS[:10], ledger=ledger)
    with pytest.raises(PrivacyBudgetError):
        DirichletMultinomial(privacy=plan(3)).partial_fit(COUNTS[:10], ledger=ledger)
    assert ledger.spent() == spent
    other = DirichletMultinomial(privacy=plan(3)).partial_fit(COUNTS[:10])
    with pytest.raises(StreamError, match="without a ledger"):
        other.partial_fit(COUNTS[:10], ledger=ledger)


def test_an_error_before_the_release_leaves_everything_as_it_was(tmp_path, monkeypatch):
    ledger = PrivacyLedger(tmp_path / "x.ledger", epsilon=2.0, delta=1e-5, dataset="letters")
    model, path = DirichletMultinomial(privacy=plan(3)), tmp_path / "s.vips"
    with monkeypatch.context() as broken:
        broken.setattr(stream_module.engine, "clipped_sum", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(COUNTS[:10], ledger=ledger, checkpoint=path)
    assert not hasattr(model, "stream_")
    assert ledger.spent() == 0.0
    model.partial_fit(COUNTS[:10], ledger=ledger, checkpoint=path)
    before = model.noisy_totals_.average["counts"].copy()
    with pytest.raises(ValueError, match="columns"):
        model.partial_fit(COUNTS[:, :2], ledger=ledger, checkpoint=path)
    np.testing.assert_array_equal(model.noisy_totals_.average["counts"], before)
    assert model.partial_fit(COUNTS[:10], ledger=ledger, checkpoint=path).n_batches_seen_ == 2


MODELS = {
    "linear": (BayesianLinearRegression(), {"max_norm": 1.0, "target_range": (-1.0, 1.0)}, (3.0 + ROWS, TARGETS)),
    "components": (ProbabilisticPCA(1), {"max_norm": 1.0}, (3.0 + ROWS,)),
    "factors": (FactorAnalysis(1), {"max_norm": 1.0}, (3.0 + ROWS,)),
    "classes": (LatentClassAnalysis(2), {"categories": [2, 2, 2]}, (COUNTS,)),
    "topics": (LatentDirichletAllocation(2), {"vocabulary": 3}, (COUNTS,)),
    "areas": (SpatialCounts(areas=["0", "1"]), {"max_count": 1}, (COUNTS[:, 0], COUNTS[:, 1])),
    "proportions": (DirichletMultinomial(), {}, (COUNTS,)),
}


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_of_an_ordinary_fit_before_the_stream(name, goes_on, tmp_path):
    """Its attributes are exact functions of records: means of columns, categories that occur."""
    model, declared, records = MODELS[name]
    checkpoint = {"checkpoint": tmp_path / "s.vips"} if goes_on else {}
    fresh = clone(model).set_params(privacy=plan(3), **declared).partial_fit(*records, **checkpoint)
    model = clone(model).fit(*records).set_params(privacy=plan(3), **declared)
    model.partial_fit(*((None,) if goes_on else records), **checkpoint)
    assert set(vars(model)) <= set(vars(fresh))
    assert not {"centre_", "spreads_"} & set(vars(model))


def test_another_process_goes_on_from_the_checkpoint(tmp_path):
    path = tmp_path / "s.vips"
    for k in range(3):
        model = DirichletMultinomial(privacy=plan(3)).partial_fit(COUNTS[k * 100 : (k + 1) * 100], checkpoint=path)
    assert model.n_batches_seen_ == 3
    np.testing.assert_allclose(model.last_posterior_.mean, [0.2, 0.3, 0.5], atol=0.2)
    again = DirichletMultinomial(privacy=plan(3)).partial_fit(None, checkpoint=path)
    np.testing.assert_array_equal(again.last_posterior_.mean, model.last_posterior_.mean)


def test_what_cannot_go_on_is_refused(tmp_path):
    path = tmp_path / "s.vips"
    new = lambda **arguments: DirichletMultinomial(privacy=plan(4, **arguments))  # noqa: E731
    new().partial_fit(COUNTS[:10], checkpoint=path)
    old = (path.read_bytes(), (tmp_path / "s.vips.secret").read_bytes())
    with pytest.raises(StreamError, match="plan"):
        new(decay=0.9).partial_fit(COUNTS[:10], checkpoint=path)
    with pytest.raises(StreamError, match="groups"):
        new().partial_fit(COUNTS[:10], checkpoint=path, groups=np.arange(10))
    new().partial_fit(COUNTS[:10], checkpoint=path)
    new().partial_fit(COUNTS[:10], checkpoint=path)
    (tmp_path / "s.vips.secret").write_bytes(old[1])  # an older secret would use its noise twice
    with pytest.raises(StreamError, match="older copy"):
        new().partial_fit(COUNTS[:10], checkpoint=path)
    os.chmod(tmp_path / "s.vips.secret", 0o644)
    with pytest.raises(StreamError, match="chmod"):
        new().partial_fit(COUNTS[:10], checkpoint=path)
    (tmp_path / "s.vips.secret").unlink()
    with pytest.raises(StreamError, match="missing"):
        new().partial_fit(COUNTS[:10], checkpoint=path)
    with pytest.raises(TypeError, match="partial_fit"):
        new().fit(COUNTS)
    with pytest.raises(AttributeError, match="partial_fit"):
        DirichletMultinomial(privacy=PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=1)).partial_fit(COUNTS)
    with pytest.raises(TypeError, match="add up"):
        vips.BayesianLogisticRegression(privacy=plan(4), max_norm=1.0).partial_fit(ROWS, TARGETS > 0)
    for arguments in ({"n_batches": 0}, {"epsilon": 0.0}, {"participation": 0}, {"decay": 1.5}, {"mechanism": "magic"}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            plan(**arguments)


@pytest.mark.parametrize(("n_batches", "decay", "participation"), [(24, 0.98, 10), (500, 1.0, 365), (730, 0.999, 730)])
def test_plans_whose_fit_ends_at_its_limits_have_noise(n_batches, decay, participation):
    """Rounding once took the sum of ω above 1 in these plans."""
    stream = plan(n_batches, decay=decay, participation=participation)
    assert np.isfinite(stream.noise_std(n_batches))


@pytest.mark.parametrize("make", [
    lambda: (DirichletMultinomial(privacy=plan()), COUNTS, None),
    lambda: (LatentDirichletAllocation(2, vocabulary=3, privacy=plan(decay=0.9), random_state=0), COUNTS, None),
    lambda: (LatentClassAnalysis(2, categories=[2] * 6, privacy=plan(), random_state=0), ANSWERS, None),
    lambda: (BayesianLinearRegression(privacy=plan(), max_norm=1.0, target_range=(-2.0, 2.0)), ROWS, TARGETS),
])  # fmt: skip
def test_a_model_of_a_stream_can_be_saved_and_goes_on(make, tmp_path):
    """Nothing secret is in its file, and the stream goes on where its own secret is."""
    model, X, y = make()
    for part in OF_FIVE[:2]:
        model.partial_fit(X[part], None if y is None else y[part], checkpoint=tmp_path / "s.vips")
    model.save(tmp_path / "m.vips")
    loaded = vips.load(tmp_path / "m.vips")
    for name, value in model.noisy_totals_.average.items():
        np.testing.assert_array_equal(loaded.noisy_totals_.average[name], value)
    assert loaded.noisy_totals_.noise_std == model.noisy_totals_.noise_std
    assert loaded.stream_ == model.stream_
    assert str(loaded.privacy_) == str(model.privacy_)
    assert b"buffers" not in (tmp_path / "m.vips").read_bytes()
    part = OF_FIVE[2]
    loaded.partial_fit(X[part], None if y is None else y[part], checkpoint=tmp_path / "s.vips")
    assert loaded.n_batches_seen_ == 3


def test_a_model_does_not_change_streams_and_is_told_that_another_one_overtook_it(tmp_path):
    """The checkpoint of another stream with the same settings is refused, and not touched."""
    one, other, later = (DirichletMultinomial(privacy=plan()) for _ in range(3))
    one.partial_fit(COUNTS[:5], checkpoint=tmp_path / "a.vips")
    other.partial_fit(COUNTS[5:9], checkpoint=tmp_path / "b.vips")
    before = {file.name: file.read_bytes() for file in tmp_path.glob("b.vips*")}
    with pytest.raises(StreamError, match="another stream than this model"):
        one.partial_fit(COUNTS[9:], checkpoint=tmp_path / "b.vips")
    assert {file.name: file.read_bytes() for file in tmp_path.glob("b.vips*")} == before
    assert one.partial_fit(COUNTS[9:], checkpoint=tmp_path / "a.vips").n_batches_seen_ == 2
    later.partial_fit(COUNTS[5:9], checkpoint=tmp_path / "b.vips")
    with pytest.raises(StreamError, match="2 batches count"):
        other.partial_fit(COUNTS[5:9], checkpoint=tmp_path / "b.vips")
    assert other.n_batches_seen_ == 2
