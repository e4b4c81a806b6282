"""Weights of records: what they count, and that no weight makes a record's share larger."""

from __future__ import annotations

import decimal
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vips
from tests.mutants import check_notices
from vips import (
    BayesianBinomialRegression,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    Block,
    DenseStatistics,
    DirichletMultinomial,
    FactorAnalysis,
    LatentClassAnalysis,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
)
from vips.core.contract import completed_plan, stated_plan
from vips.core.engine import clipped_sum
from vips.core.execution.local import Threads
from vips.core.execution.partitions import Task
from vips.core.phases import phases_of
from vips.data import InMemoryData, Records
from vips.expfam import Dirichlet
from vips.models.components.matching import steps
from vips.models.gaussian_mixtures import contract
from vips.preprocessing import TableEncoder, make_private_pipeline

LARGEST = 4.0
HOSTILE = [0.0, -0.0, 1e-300, 0.5, 4.0, 4.1, 1e308, np.inf, -np.inf, np.nan, -1.0, -1e308]


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3)) / np.sqrt(3.0)
    return X, X @ [2.0, -1.0, 0.0], rng


def records_of(model, n=300, seed=0):
    X, predictor, rng = table(n, seed)
    if isinstance(model, DirichletMultinomial):
        return rng.multinomial(1, [0.5, 0.3, 0.2], n), None
    if isinstance(model, LatentClassAnalysis):
        kind = rng.random((n, 1)) < 0.4
        return (rng.random((n, 6)) < np.where(kind, 0.9, 0.2)).astype(int), None
    if isinstance(model, BayesianLinearRegression):
        return X, predictor + rng.normal(size=n)
    if isinstance(model, BayesianLogisticRegression | BayesianBinomialRegression):
        return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-predictor))).astype(int)
    if isinstance(model, BayesianNegativeBinomialRegression):
        return X, rng.poisson(np.exp(predictor))
    return X, None


ORDINARY = [
    BayesianLogisticRegression(),
    BayesianLogisticRegression(covariance="diagonal"),
    BayesianBinomialRegression(),
    BayesianNegativeBinomialRegression(),
    BayesianLinearRegression(),
    DirichletMultinomial(),
    LatentClassAnalysis(2, random_state=0),
    BayesianGaussianMixture(2, random_state=0),
    FactorAnalysis(1),
]
PRIVATE = [
    BayesianLogisticRegression(max_norm=1.0),
    BayesianLogisticRegression(max_norm=1.0, covariance="diagonal"),
    BayesianNegativeBinomialRegression(max_norm=1.0, max_count=10),
    BayesianLinearRegression(max_norm=1.0, target_range=(-4.0, 4.0)),
    DirichletMultinomial(),
    LatentClassAnalysis(2, categories=[2] * 6, random_state=0),
    BayesianGaussianMixture(2, max_norm=1.0, random_state=0),
]


def named(model):
    return type(model).__name__ + (", diagonal" if getattr(model, "covariance", "") == "diagonal" else "")


@pytest.mark.parametrize("model", ORDINARY, ids=named)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_weight_of_two_counts_as_two_records(model, monkeypatch):
    def halves(points, weights, K, rng):
        return weights[:, None] * np.eye(K)[(points[:, 0] > 0.0).astype(int)]

    monkeypatch.setattr(contract, "clusters", halves)  # k-means draws another start for other numbers of rows
    X, y = records_of(model)
    weights = np.random.default_rng(1).integers(0, 4, len(X))
    rows = np.repeat(np.arange(len(X)), weights)
    plan = {"privacy": PrivacyPlan.non_private(n_steps=30)}
    weighted = vips_clone(model, plan).fit(X, y, sample_weight=weights)
    repeated = vips_clone(model, plan).fit(X[rows], None if y is None else y[rows])
    for first, second in zip(numbers(weighted), numbers(repeated), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-7, atol=1e-9)


def vips_clone(model, settings):
    return type(model)(**model.get_params() | settings)


def numbers(model):
    """Means of all parts of the posterior."""
    return [part.distribution.mean for part in model.posterior_parts(model.last_posterior_)]


# -- the share of a record ------------------------------------------------------------------------------------


def plan_with(noise="gaussian", **settings):
    return PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=6, max_weight=LARGEST, noise=noise, **settings)


def totals(model, X, y, weights, groups=None, n_steps=6):
    """Exact sum of the first and the last phase, over block scales, as one vector; and the clip norm."""
    plan = completed_plan(model, stated_plan(model))
    data = InMemoryData(X, y).with_weights(weights)
    data = data if groups is None else data.grouped(groups)
    model.use_plan(plan)
    vectors = []
    for phase, step in zip((phases_of(model, n_steps)[0], phases_of(model, n_steps)[-1]), (1, n_steps), strict=True):
        posterior = model.shaped_after(step - 1)
        randomness = plan.randomness(None)
        total = clipped_sum(model, phase, data, posterior, plan, randomness, step)
        if lattice := plan.lattice(phase.blocks):
            total = {name: lattice.values(total[name], block) for name, block in phase.blocks.items()}
        vectors.append(np.concatenate([np.ravel(total[b]) / block.scale for b, block in phase.blocks.items()]))
    model.use_plan(None)
    return vectors, plan.clip_norm


def moves_at_most_the_clip(model, noise):
    model = vips_clone(model, {"privacy": plan_with(noise)})
    X, y = records_of(model, 40)
    model.n_features_in_ = X.shape[1]
    if isinstance(model, BayesianLogisticRegression):
        model.classes_ = np.array([0, 1])
    y = None if y is None else np.asarray(y, float)
    X = np.asarray(X, float)
    for row in range(3):
        weights, others = np.random.default_rng(row).uniform(0.0, 5.0, len(X)), np.arange(len(X)) != row
        without, _ = totals(model, X[others], None if y is None else y[others], weights[others])
        for weight in HOSTILE:
            weights[row] = weight
            with_it, clip = totals(model, X, y, weights)
            for one, other in zip(with_it, without, strict=True):
                assert np.isfinite(one).all()
                assert np.linalg.norm(one - other) <= clip * (1.0 + (2e-3 if noise == "discrete" else 1e-9))


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("model", PRIVATE, ids=named)
def test_no_weight_makes_a_share_larger_than_the_clip(model, noise):
    moves_at_most_the_clip(model, noise)


def weights_as_they_are(patch):
    patch.setattr(PrivacyPlan, "shares_of", lambda plan, weights: weights)


@pytest.mark.parametrize("model", [PRIVATE[0], PRIVATE[3], PRIVATE[4]], ids=named)
def test_weights_above_the_declared_largest_would_be_noticed(model, monkeypatch):
    check_notices(lambda: moves_at_most_the_clip(model, "gaussian"), weights_as_they_are, monkeypatch)


@pytest.mark.parametrize("model", PRIVATE, ids=named)
def test_a_person_moves_the_sum_by_at_most_the_clip(model):
    model = vips_clone(model, {"privacy": plan_with()})
    model.chunk_size = 64
    X, y = records_of(model, 900)
    model.n_features_in_ = X.shape[1]
    if isinstance(model, BayesianLogisticRegression):
        model.classes_ = np.array([0, 1])
    y = None if y is None else np.asarray(y, float)
    persons = np.concatenate([np.zeros(500, np.int64), np.repeat([1, 2], [100, 250]), np.arange(3, 53)])
    weights = np.random.default_rng(0).choice(HOSTILE, len(X))
    with_it, clip = totals(model, np.asarray(X, float), y, weights, persons)
    for person in (0, 1, 2, 10):
        others = persons != person
        rows = np.asarray(X, float)[others], None if y is None else y[others]
        without, _ = totals(model, *rows, weights[others], persons[others])
        for one, other in zip(with_it, without, strict=True):
            assert np.linalg.norm(one - other) <= clip * (1.0 + 1e-9)


class _Sums(vips.ConjugateExponentialModel):
    """A user's own model, of sums of signed numbers."""

    unit, ignores_labels, exact_rows = "one row", True, True

    def __init__(self, *, privacy=None, on_invalid="drop", random_state=None):
        self.privacy, self.on_invalid, self.random_state = privacy, on_invalid, random_state

    def blocks(self):
        return {"sum": Block((1,))}

    def expected_statistics(self, records, posterior):
        return DenseStatistics({"sum": records})

    def to_posterior(self, average, noise_std, previous):
        return Dirichlet(np.ones(2))


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("n_rows", [2, 240, 1000])
def test_rows_that_cancel_are_clipped_as_if_they_did_not_where_weights_leave_one_sign(noise, n_rows):
    model = _Sums(privacy=plan_with(noise, clip_norm=1.0, max_rows_per_group=n_rows))
    X = 8.0 * np.where(np.arange(n_rows) % 2, -1.0, 1.0)[:, None]
    vectors, clip = totals(with_columns(model, X), X, None, LARGEST * (X[:, 0] > 0.0), np.zeros(n_rows, np.int64))
    assert max(np.linalg.norm(vector) for vector in vectors) <= clip * (1.0 + 2e-3)


# -- squares ----------------------------------------------------------------------------------------------------


def test_squares_of_weights_are_summed():
    X, _ = records_of(DirichletMultinomial())
    weights = np.random.default_rng(0).uniform(0.0, 5.0, len(X))
    shares = np.minimum(weights / LARGEST, 1.0)
    vectors, _ = totals(with_columns(DirichletMultinomial(privacy=plan_with()), X), X * 1.0, None, weights)
    np.testing.assert_allclose(vectors[0][:3], shares @ X)
    np.testing.assert_allclose(vectors[0][3:] * 3.0, shares**2 @ X)


def test_moments_by_squared_weights_are_summed():
    model = BayesianLinearRegression(max_norm=2.0, target_range=(-40.0, 40.0), privacy=replace(plan_with(), n_steps=1))
    X, y = records_of(model)
    weights = np.random.default_rng(0).uniform(0.0, 5.0, len(X))
    shares = np.minimum(weights / LARGEST, 1.0)
    vectors, _ = totals(with_columns(model, X), X, y, weights, n_steps=1)
    d = X.shape[1] + 2
    second, squares = vectors[0].reshape(2, d, d)
    np.testing.assert_allclose(second[:3, :3] * 4.0, (X * shares[:, None]).T @ X)
    np.testing.assert_allclose(squares[:3, :3] * 12.0, (X * shares[:, None] ** 2).T @ X)


@pytest.mark.parametrize("chunk_size", [16, 4096])
@pytest.mark.parametrize("sizes", [[200, 240, 160], [600]], ids=["three persons", "one in pieces"])
def test_squares_of_scores_are_those_of_weighted_sums_over_a_persons_rows(chunk_size, sizes):
    model = BayesianLogisticRegression(max_norm=1.0, privacy=plan_with(clip_norm=1e6))
    model.chunk_size = chunk_size
    X, y = records_of(model, 600)
    with_columns(model, X).classes_ = np.array([0, 1])
    weights = np.random.default_rng(0).uniform(0.0, 5.0, len(X))
    (_, last), _ = totals(model, X, y * 1.0, weights, np.repeat(np.arange(len(sizes)), sizes))
    model.use_plan(completed_plan(model, model.privacy))
    blocks, search = model.blocks(), model.shaped_after(5).search
    model.use_plan(None)
    assert not search.point.any()
    at = np.hstack([X, np.full((600, 1), 0.5)])  # rows before the first zoom
    scores = (np.minimum(weights / LARGEST, 1.0) * (y - 0.5))[:, None] * at
    sums = np.add.reduceat(scores, np.cumsum([0, *sizes[:-1]]))
    np.testing.assert_allclose(last[-4:] * blocks["squares"].scale * search.size, np.square(sums).sum(axis=0))


@pytest.mark.parametrize("model", PRIVATE[-2:], ids=named)
def test_counts_of_components_by_squared_weights_are_summed(model):
    model = vips_clone(model, {"privacy": plan_with(clip_norm=1e6)})
    X, weights = np.asarray(records_of(model)[0], float), np.random.default_rng(0).uniform(0.0, 5.0, 300)
    task = Task.of_step(with_columns(model, X), phases_of(model, 6)[-1], model.shaped_after(0), model.privacy, False)
    statistics = task.statistics_of(Records(X, weights[:, None]))
    shares = model.privacy.shares_of(weights)
    sums = statistics.weighted_sum(shares)
    counted = statistics.weighted(shares)["count"]
    np.testing.assert_allclose(sums["count"], counted.sum(axis=0))
    np.testing.assert_allclose(sums["count_by_squares"], shares @ counted)


def widths_follow_squared_weights(model):
    """Where records of a component weigh alike, its parameters are as sure as without weights."""
    rng = np.random.default_rng(0)
    kind = rng.random(4_000) < 0.4
    if isinstance(model, LatentClassAnalysis):
        X = (rng.random((4_000, 6)) < np.where(kind, 0.95, 0.05)[:, None]).astype(int)
    else:
        X = rng.normal(np.where(kind, 0.4, -0.4)[:, None], 0.1, (4_000, 2))
    plan = PrivacyPlan(noise_multiplier=0.3, sampling="full", n_steps=40, reproducible_noise=True)
    usual = deviations(vips_clone(model, {"privacy": plan}).fit(X))
    weighted = vips_clone(model, {"privacy": replace(plan, max_weight=LARGEST)})
    for weights in (np.full(4_000, 0.5 * LARGEST), np.where(kind, 0.2, 1.0) * LARGEST):
        ratios = deviations(weighted.fit(X, sample_weight=weights)) / usual
        np.testing.assert_allclose(ratios, 1.0, atol=0.1)


def deviations(model):
    """Root mean squares of those of the means or first answers of each component, in their order."""
    part = model.posterior_parts(model.posterior_)[1].distribution
    deviations = np.sqrt(np.square(part.std).reshape(2, -1).mean(axis=1))
    return deviations[np.argsort(part.mean.reshape(2, -1)[:, 0])]


@pytest.mark.parametrize("model", PRIVATE[-2:], ids=named)
@pytest.mark.slow
def test_widths_of_components_follow_squared_weights(model):
    widths_follow_squared_weights(model)


def weights_in_full(patch):
    patch.setattr(steps, "_ratios", lambda last: None)


def weights_alike_in_all_components(patch):
    usual = steps.variance_ratios
    patch.setattr(steps, "variance_ratios", lambda *sums: np.full(2, usual(*sums).mean()))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [weights_in_full, weights_alike_in_all_components])
@pytest.mark.parametrize("model", PRIVATE[-2:], ids=named)
def test_widths_of_other_weights_would_be_noticed(model, mutant, monkeypatch):
    check_notices(lambda: widths_follow_squared_weights(model), mutant, monkeypatch)


def with_columns(model, X):
    model.n_features_in_ = X.shape[1]
    return model


# -- doors ------------------------------------------------------------------------------------------------------


def test_the_largest_weight_is_declared_before_anything_is_charged(tmp_path):
    X, y = records_of(BayesianLogisticRegression())
    ledger = PrivacyLedger(tmp_path / "ledger", epsilon=2.0, delta=1e-6, dataset="table")
    model = BayesianLogisticRegression(max_norm=1.0, privacy=PrivacyBudget(1.0, 1e-7))
    with pytest.raises(ValueError, match="max_weight"):
        model.fit(X, y, sample_weight=np.ones(len(X)), ledger=ledger)
    model.privacy = PrivacyBudget(1.0, 1e-7).plan(max_weight=LARGEST)
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, y, ledger=ledger)
    with pytest.raises((ValueError, TypeError), match="sample_weight"):
        model.fit(X, y, sample_weight=np.ones(3), ledger=ledger)
    with pytest.raises((ValueError, TypeError), match="sample_weight"):
        model.fit(X, y, sample_weight=np.array(["much"] * len(X)), ledger=ledger)
    assert len(ledger.runs()) == 0
    model.fit(X, y, sample_weight=np.ones(len(X)), ledger=ledger)
    assert len(ledger.runs()) == 1
    assert any("max_weight = 4" in line for line in model.privacy_.releases[0].declared)


def test_a_source_has_no_place_for_weights(tmp_path):
    X, y = records_of(BayesianLogisticRegression())
    np.save(tmp_path / "X.npy", X), np.save(tmp_path / "y.npy", y)
    source = vips.data.NpySource(tmp_path / "X.npy", tmp_path / "y.npy")
    model = BayesianLogisticRegression(max_norm=1.0, privacy=plan_with())
    with pytest.raises(TypeError, match="arrays and data frames"):
        model.fit(source, sample_weight=np.ones(len(X)))


@pytest.mark.parametrize("weight", [np.nan, -1.0, np.inf])
def test_an_ordinary_fit_refuses_weights_that_are_none(weight):
    X, y = records_of(BayesianLogisticRegression())
    with pytest.raises(ValueError, match="sample_weight"):
        BayesianLogisticRegression().fit(X, y, sample_weight=np.append(np.ones(len(X) - 1), weight))


@pytest.mark.parametrize("cell", [np.nan, -1.0, -np.inf, 0.0])
def test_a_weight_that_is_none_leaves_its_record_out(cell):
    X, _ = records_of(DirichletMultinomial(), 50)
    plan = PrivacyPlan(noise_multiplier=1e-9, sampling="full", n_steps=1, max_weight=3.0)
    for weights in (np.append(np.full(49, 1.5), cell), pd.Series([1.5] * 49 + [cell])):
        model = DirichletMultinomial(privacy=plan).fit(X, sample_weight=weights)
        np.testing.assert_allclose(model.noisy_totals_.average["counts"], 0.5 * X[:49].sum(axis=0), atol=1e-6)


@pytest.mark.parametrize(
    "cell", [1.5, "x", "<5", None, decimal.Decimal("NaN"), pd.NA, object()], ids=lambda cell: type(cell).__name__
)
def test_weights_of_a_dtype_that_may_hold_anything_are_refused_whatever_they_hold(cell):
    X, _ = records_of(DirichletMultinomial(), 50)
    with pytest.raises(TypeError, match=r"`sample_weight` is read like y\. .*dtype object"):
        DirichletMultinomial(privacy=plan_with()).fit(X, sample_weight=pd.Series([1.5] * 49 + [cell], dtype=object))


class Pickled(Threads):
    """Partitions are as other processes get them."""

    def over(self, data):
        return super().over(pickle.loads(pickle.dumps(data)))


@pytest.mark.parametrize("other", [Pickled(), pytest.param("processes", marks=pytest.mark.slow)])
def test_weights_go_through_processes_and_files(other, tmp_path):
    X, y = records_of(BayesianLogisticRegression())
    weights = np.random.default_rng(0).uniform(0.0, 5.0, len(X))
    plan = PrivacyPlan(noise_multiplier=1e-9, sampling="full", n_steps=3, max_weight=LARGEST)
    fits = [
        BayesianLogisticRegression(max_norm=1.0, privacy=plan).fit(X, y, sample_weight=weights, executor=executor)
        for executor in (None, other)
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-6)
    for model in (fits[0], BayesianLogisticRegression().fit(X, y, sample_weight=weights)):
        model.save(tmp_path / "model.vips")
        np.testing.assert_array_equal(vips.load(tmp_path / "model.vips").coef_, model.coef_)


def test_pipelines_pass_weights_to_their_model():
    X, y = records_of(BayesianLogisticRegression(), 2_000)
    frame, kinds = pd.DataFrame(X, columns=["a", "b", "c"]), np.random.default_rng(0).random(2_000) < 0.5
    y = np.where(kinds, y, 1 - y)  # an effect of one sign in one half, of the other in the other
    steps = TableEncoder(dict.fromkeys(frame.columns, (-1.0, 1.0))), BayesianLogisticRegression()
    effects = []
    for weights in (np.where(kinds, 2.0, 0.0), np.where(kinds, 0.0, 2.0)):
        pipeline = make_private_pipeline(*steps, privacy=PrivacyBudget(20.0, 1e-6), max_weight=2.0)
        effects.append(pipeline.fit(frame, y, sample_weight=weights).summary()["mean"].iloc[0])
    assert effects[0] > 0.0 > effects[1]
    with pytest.raises(ValueError, match="max_weight"):
        make_private_pipeline(*steps, privacy=PrivacyBudget(1.0, 1e-6)).fit(frame, y, sample_weight=weights)


def test_a_pipeline_with_weights_is_charged_once_and_comes_back(tmp_path):
    X, y = records_of(BayesianLogisticRegression(), 500)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    ledger = PrivacyLedger(tmp_path / "ledger", epsilon=2.0, delta=1e-6, dataset="table")
    steps = TableEncoder({"a": (-1.0, 1.0), "b": (-1.0, 1.0)}), BayesianLogisticRegression()  # "c" is learnt
    pipeline = make_private_pipeline(*steps, privacy=PrivacyBudget(1.0, 1e-6), max_weight=2.0)
    pipeline.fit(frame, y, sample_weight=np.full(500, 0.5), ledger=ledger)
    assert len(ledger.runs()) == 1
    assert ledger.spent() < 1.1
    pipeline.save(tmp_path / "pipeline.vips")
    restored = vips.load(tmp_path / "pipeline.vips")
    assert restored.max_weight == 2.0
    np.testing.assert_array_equal(restored.predict_proba(frame), pipeline.predict_proba(frame))
