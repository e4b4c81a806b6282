"""The loop itself, on a model simple enough to follow by hand, and data access."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from tests.laws.cases import BetaBernoulli, SecondMoments
from vips import (
    Block,
    ConjugateExponentialModel,
    DenseStatistics,
    FitPhase,
    PrivacyPlan,
    Records,
    RecordStatistics,
    RobbinsMonro,
)
from vips.core import engine
from vips.data import InMemoryData, check_data
from vips.persistence.checkpoint import Journal


def test_full_batch_without_noise_is_the_exact_posterior():
    X = np.random.default_rng(0).integers(0, 2, (30, 4)).astype(float)
    model = BetaBernoulli(privacy=PrivacyPlan.non_private(n_steps=2)).fit(X)
    np.testing.assert_allclose(model.last_posterior_["a"], 1 + X.sum(axis=0))
    np.testing.assert_allclose(model.last_posterior_["b"], 1 + (1 - X).sum(axis=0))


def test_private_posterior_is_near_the_exact_one_when_there_is_little_noise():
    plan = PrivacyPlan(noise_multiplier=1e-3, sampling_rate=1.0, n_steps=1)
    assert BetaBernoulli(privacy=plan).fit(np.ones((500, 1))).last_posterior_["a"] == pytest.approx(501.0, rel=1e-2)
    X = np.random.default_rng(0).integers(0, 2, (4000, 4)).astype(float)
    plan = PrivacyPlan(noise_multiplier=0.5, sampling_rate=0.5, n_steps=30)
    model = BetaBernoulli(privacy=plan).fit(X)
    assert model.privacy_.plan.clip_norm == pytest.approx(np.sqrt(8.0))
    np.testing.assert_allclose(model.last_posterior_["a"], 1 + X.sum(axis=0), rtol=0.05)


class LinearModel(ConjugateExponentialModel):
    """Sums of x y: a model that needs labels."""

    def __init__(self, privacy=None, random_state=None):
        self.privacy, self.random_state = privacy, random_state

    def blocks(self):
        return {"xy": Block((self.n_features_in_,))}

    def initial(self, rng):
        return {"xy": np.zeros(self.n_features_in_)}

    def expected_statistics(self, records, posterior):
        assert isinstance(records, Records)
        return DenseStatistics({"xy": records.X * records.y[:, None]})

    def to_posterior(self, average, noise_std, previous):
        return {"xy": average["xy"], "noise_std": noise_std["xy"]}


def test_labels_reach_the_model_and_defective_labels_count_for_nothing():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    model = LinearModel(privacy=PrivacyPlan.non_private(n_steps=1)).fit(X, y)
    np.testing.assert_allclose(model.last_posterior_["xy"], X.T @ y)
    exact = {"noise_multiplier": 1e-9, "clip_norm": 1e6, "sampling": "full", "reproducible_noise": True}
    plan = PrivacyPlan(n_steps=1, **exact)
    y[4] = np.nan
    private = LinearModel(privacy=plan, random_state=0)
    private.step_size = lambda t: 1.0
    private.fit(X, y)
    keep = np.arange(20) != 4
    np.testing.assert_allclose(private.last_posterior_["xy"], X[keep].T @ y[keep], atol=0.1)
    with pytest.raises(ValueError, match="different numbers of rows"):
        private.fit(X, y[:-1])
    with pytest.raises(ValueError, match="no default clip norm"):
        LinearModel(privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)).fit(X, y)


def test_default_step_sizes():
    assert BetaBernoulli(privacy=PrivacyPlan.non_private(n_steps=2)).step_size(5) == 1.0
    assert BetaBernoulli(privacy=PrivacyPlan.non_private(sampling_rate=0.5)).step_size(1) == 2.0**-0.7
    private = PrivacyPlan(noise_multiplier=1, sampling_rate=1.0, n_steps=1)
    assert BetaBernoulli(privacy=private).step_size(3) == 4.0**-0.7
    assert RobbinsMonro(0.0, 0.5)(4) == 0.5
    with pytest.raises(ValueError, match="offset"):
        RobbinsMonro(-1.0)
    with pytest.raises(ValueError, match="decay"):
        RobbinsMonro(1.0, 2.0)


def test_step_sizes_by_block():
    class TwoSpeeds(BetaBernoulli):
        def step_size(self, t):
            return {"heads": 1.0, "count": 0.25}

    X = np.ones((8, 2))
    model = TwoSpeeds(privacy=PrivacyPlan.non_private(n_steps=1)).fit(X)
    np.testing.assert_allclose(model.last_posterior_["a"], 9.0)
    np.testing.assert_allclose(model.last_posterior_["b"], 1.0)


@pytest.mark.parametrize("bad", [1.5, -0.1, np.nan, {"heads": 0.5}])
def test_impossible_step_sizes_stop_the_fit_before_data_are_read(bad, monkeypatch):
    def read(*_):
        raise AssertionError("the data were read")

    monkeypatch.setattr(engine, "clipped_sum", read)
    model = BetaBernoulli(privacy=PrivacyPlan.non_private(n_steps=1))
    model.step_size = lambda t: bad
    with pytest.raises(ValueError, match="step_size must"):
        model.fit(np.ones((3, 2)))


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_blocks_are_checked(shape):
    with pytest.raises(ValueError, match="symmetric"):
        Block(shape, symmetric=True)
    with pytest.raises(ValueError, match="scale"):
        Block((2,), scale=0.0)


def test_statistics_that_do_not_match_their_declaration():
    statistics = DenseStatistics({"a": np.ones((2, 3))})
    with pytest.raises(ValueError, match="declares"):
        statistics.norms({"b": Block((3,))})
    with pytest.raises(ValueError, match="declared"):
        statistics.norms({"a": Block((4,))})
    with pytest.raises(TypeError, match="real numbers"):
        DenseStatistics({"a": np.ones((2, 3), complex)})


def test_chunks_cover_the_sample_in_order():
    X = np.arange(20.0)[:, None]
    picked = np.array([1, 5, 6, 7, 19])
    for data in (InMemoryData(X), InMemoryData(sp.csr_array(X))):
        chunks = list(data.partition(0).open().chunks(picked, 2))
        rows = [chunk.toarray() if sp.issparse(chunk) else chunk for chunk in chunks]
        np.testing.assert_array_equal(np.concatenate(rows)[:, 0], picked)
        assert [len(chunk) for chunk in rows] == [2, 2, 1]


def test_only_public_facts_are_checked_before_a_private_fit():
    check_data(np.array([[np.nan, np.inf]]))
    check_data(sp.coo_array(np.eye(3)))
    for bad, error, says in (
        (np.array([["a"]]), TypeError, "X has dtype <U1"),
        (np.ones(3), ValueError, "Expected 2D array"),
        ([[1, 2], [3]], TypeError, "got list"),
    ):
        with pytest.raises(error, match=says):
            check_data(bad)


class Quoting:
    """A column of numbers whose conversion fails with an error that quotes a value."""

    dtype = np.dtype(float)

    def to_numpy(self):
        raise ValueError("could not convert string to float: 'name@example.org'")


@pytest.mark.parametrize("arguments", [(Quoting(),), (np.eye(3), Quoting())], ids=["X", "y"])
def test_the_original_error_of_a_container_is_not_attached(arguments):
    with pytest.raises(TypeError, match="cannot be read as an array") as raised:
        check_data(*arguments)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float16, ">f8", np.longdouble, complex, object])
def test_whether_a_dtype_is_refused_does_not_depend_on_the_records(n, container, dtype):
    if container is sp.csr_array:
        try:
            X = sp.csr_array((np.ones(n, dtype), np.arange(n), np.arange(n + 1)), shape=(n, 3))
        except (ValueError, TypeError):
            pytest.skip("scipy has no such matrix")
    else:
        X = np.ones((n, 3), dtype)
    error = ValueError if dtype is complex else TypeError  # as in scikit-learn
    with pytest.raises(error, match="X has dtype"):
        check_data(X)
    with pytest.raises(error, match="y has dtype"):
        check_data(np.ones((n, 3)), np.ones(n, dtype))


def test_lists_and_torn_matrices_are_refused_by_private_fits():
    for rows in ([], [[1, 2]], [["a", 1]], [[1], [2, 3]]):
        with pytest.raises(TypeError, match="got list"):
            check_data(rows)
    torn = sp.csr_array(np.eye(3))
    torn.indptr[1] = 200_000_000
    with pytest.raises(ValueError, match="indptr decreases"):
        check_data(torn)
    BetaBernoulli(privacy=PrivacyPlan.non_private(n_steps=1)).fit([[0.0, 1.0], [1.0, 1.0]])


def test_every_record_of_every_partition_is_read_once():
    X = np.arange(21.0)[:, None]
    for rows in (X, sp.csr_array(X)):
        data = InMemoryData(rows, partition_size=8)
        assert data.sizes == (8, 8, 5)
        assert data.n_records == 21
        chunks = [chunk.toarray() if sp.issparse(chunk) else chunk for chunk in data.chunks(3)]
        np.testing.assert_array_equal(np.concatenate(chunks), X)
    assert InMemoryData(X[:0]).sizes == (0,)


def test_pandas_types_are_converted_by_their_type_and_categories_are_refused():
    """A conversion by pandas would depend on whether a value is missing."""
    for values, dtype in (([True, False], "boolean"), ([1, 2], "Int64")):
        for column in (pd.array(values, dtype=dtype), pd.array([values[0], None], dtype=dtype)):
            X, _ = check_data(pd.DataFrame({"a": column, "b": [1.0, 2.0]}), pd.Series(column)).arrays
            assert X.dtype == np.float64
            assert np.isnan(X[1, 0]) == pd.isna(column[1])
    for column in (pd.Categorical([1, 2]), pd.Categorical([1, None])):
        with pytest.raises(TypeError, match="dtype category"):
            check_data(pd.DataFrame({"a": column, "b": [1.0, 2.0]}))


class SparseSums(BetaBernoulli):
    """A naive model for CSR, which does not check for columns that do not exist."""

    valid_records = ConjugateExponentialModel.valid_records

    def expected_statistics(self, records, posterior):
        return DenseStatistics({"heads": records.toarray(), "count": np.ones(records.shape[0])})


@pytest.mark.parametrize("column", [4, 7, -1, 2**40])
@pytest.mark.parametrize("dtype", [float, int])
def test_a_column_that_does_not_exist_makes_its_record_defective(column, dtype):
    """Otherwise its entry would be added to another record's row, or anywhere in memory."""
    X = sp.csr_array((np.ones(4, dtype), np.array([0, column, 1, 2]), np.arange(5)), shape=(4, 4))
    rows = np.eye(4)[[0, 1, 2]]
    plan = PrivacyPlan(noise_multiplier=1e-9, sampling="full", n_steps=1, clip_norm=10.0, reproducible_noise=True)
    posterior, expected = (SparseSums(plan, 0).fit(data).last_posterior_ for data in (X, sp.csr_array(rows)))
    for name, value in expected.items():
        np.testing.assert_allclose(posterior[name], value, atol=1e-5)


class SplitBySign(RecordStatistics):
    """Statistics of two blocks; its norms are over those that are asked for, its sums have both."""

    def __init__(self, rows):
        self._arrays = {"positive": np.maximum(rows, 0.0), "negative": np.minimum(rows, 0.0)}

    def norms(self, blocks):
        return np.sqrt(sum(np.square(self._arrays[name]).sum(axis=1) for name in blocks))

    def weighted_sum(self, weights):
        return {name: weights @ rows for name, rows in self._arrays.items()}


class TwoPhases(ConjugateExponentialModel):
    """Positive parts in the first half of the steps, negative ones in the second."""

    exact_rows = True

    def __init__(self, privacy=None, random_state=None):
        self.privacy, self.random_state = privacy, random_state

    def blocks(self):
        return dict.fromkeys(("positive", "negative"), Block((self.n_features_in_,)))

    def phases(self, n_steps):
        ones, first = {"step_size": lambda s: 1.0}, n_steps // 2
        return [
            FitPhase("first", first, blocks=["positive"], released="sums above 0", **ones),
            FitPhase("others", n_steps - first, blocks=["negative"], released="sums below 0", **ones),
        ]

    def expected_statistics(self, records, posterior):
        return SplitBySign(records)

    def to_posterior(self, average, noise_std, previous):
        return {name: value.copy() for name, value in average.items()} | {f"{k}_std": v for k, v in noise_std.items()}


def test_a_phase_releases_its_blocks_only():
    rows, released = np.random.default_rng(0).normal(size=(300, 200)), []

    def commit(journal, step, noisy, *state):
        released.append(noisy)

    plan = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=4, clip_norm=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "commit", commit)
        model = TwoPhases(privacy=plan).fit(rows)
    assert [set(noisy) for noisy in released] == [{"positive"}] * 2 + [{"negative"}] * 2
    part = np.maximum(rows, 0.0)
    share = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1.0)).sum(axis=0)
    noise = released[0]["positive"] - share  # of a sum that is clipped by the norm of this block alone
    assert np.std(noise) == pytest.approx(2.0, rel=0.25)
    assert model.noisy_totals_.noise_std == {"positive": 2.0, "negative": 2.0}
    np.testing.assert_array_equal(model.noisy_totals_.average["positive"], released[1]["positive"])
    assert model.privacy_.releases[0].released == ("sums above 0 (steps 1 to 2)", "sums below 0 (steps 3 to 4)")
    short = TwoPhases(privacy=PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1, clip_norm=1.0)).fit(rows)
    assert short.noisy_totals_.noise_std == {"positive": 0.0, "negative": 2.0}
    assert not short.noisy_totals_.average["positive"].any()


def test_sums_of_another_phase_are_noticed(monkeypatch):
    original = engine.clipped_sum

    def everything(model, phase, *others):
        return original(model, replace(phase, blocks=model.blocks()), *others)

    monkeypatch.setattr(engine, "clipped_sum", everything)
    with pytest.raises(AssertionError):
        test_a_phase_releases_its_blocks_only()


@pytest.mark.parametrize(
    ("phases", "error", "message"),
    [
        ([FitPhase("first", 3)], ValueError, "have 3 steps, and the plan has 4"),
        ([4], TypeError, "must give a list of vips.FitPhase"),
    ],
)
def test_phases_that_are_none_are_refused_before_anything_is_read(phases, error, message):
    model = TwoPhases(privacy=PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=4, clip_norm=1.0))
    model.phases = lambda n_steps: phases
    with pytest.raises(error, match=message):
        model.fit(np.zeros((3, 2)))


class Skewed(SecondMoments):
    """Rounds the two halves of its matrix apart."""

    def expected_statistics(self, records, posterior):
        statistics = super().expected_statistics(records, posterior)
        rounded_sum = statistics.rounded_sum

        def skewed(weights, blocks, lattice):
            sums = rounded_sum(weights, blocks, lattice)
            return sums | {"second": sums["second"] + np.triu(np.full_like(sums["second"], 3), 1)}

        statistics.rounded_sum = skewed
        return statistics


def test_no_half_of_a_matrix_is_released_without_noise():
    """Noise is drawn for one half and mirrored: the difference of the halves would have none."""
    plan = PrivacyPlan(noise_multiplier=4.0, sampling="full", n_steps=2, noise="discrete")
    model = Skewed(privacy=plan, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 3)))
    second = model.noisy_totals_.average["second"]
    np.testing.assert_array_equal(second, second.T)
