"""The loop itself, on a model simple enough to follow by hand, and data access."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.laws.cases import BetaBernoulli
from vips import Block, ConjugateExponentialModel, DenseStatistics, PrivacyPlan, Records, RobbinsMonro
from vips.data import InMemoryData, check_data


def test_full_batch_without_noise_is_the_exact_posterior():
    X = np.random.default_rng(0).integers(0, 2, (30, 4)).astype(float)
    model = BetaBernoulli(privacy=PrivacyPlan.non_private(n_steps=2)).fit(X)
    np.testing.assert_allclose(model.posterior_["a"], 1 + X.sum(axis=0))
    np.testing.assert_allclose(model.posterior_["b"], 1 + (1 - X).sum(axis=0))


def test_private_posterior_is_near_the_exact_one_when_there_is_little_noise():
    X = np.random.default_rng(0).integers(0, 2, (4000, 4)).astype(float)
    plan = PrivacyPlan(noise_multiplier=0.5, sampling_rate=0.5, n_steps=30)
    model = BetaBernoulli(privacy=plan).fit(X)
    assert model.privacy_.plan.clip_norm == pytest.approx(np.sqrt(8.0))
    np.testing.assert_allclose(model.posterior_["a"], 1 + X.sum(axis=0), rtol=0.05)


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
    np.testing.assert_allclose(model.posterior_["xy"], X.T @ y)
    plan = PrivacyPlan(
        noise_multiplier=1e-9, sampling_rate=1.0, n_steps=1, clip_norm=1e6, sampling="full", reproducible_noise=True
    )
    y[4] = np.nan
    private = LinearModel(privacy=plan, random_state=0)
    private.step_size = lambda t: 1.0
    private.fit(X, y)
    keep = np.arange(20) != 4
    np.testing.assert_allclose(private.posterior_["xy"], X[keep].T @ y[keep], atol=0.1)
    with pytest.raises(ValueError, match="different numbers of rows"):
        private.fit(X, y[:-1])
    with pytest.raises(ValueError, match="no default clip norm"):
        LinearModel(privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)).fit(X, y)


def test_default_step_sizes():
    assert BetaBernoulli(privacy=PrivacyPlan.non_private(n_steps=2)).step_size(5) == 1.0
    assert BetaBernoulli(privacy=PrivacyPlan.non_private(sampling_rate=0.5)).step_size(1) == 2.0**-0.7
    assert (
        BetaBernoulli(privacy=PrivacyPlan(noise_multiplier=1, sampling_rate=1.0, n_steps=1)).step_size(3) == 4.0**-0.7
    )
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
    np.testing.assert_allclose(model.posterior_["a"], 9.0)
    np.testing.assert_allclose(model.posterior_["b"], 1.0)


@pytest.mark.parametrize("bad", [1.5, -0.1, np.nan, {"heads": 0.5}])
def test_impossible_step_sizes_stop_the_fit_before_data_are_read(bad, monkeypatch):
    from vips import engine

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


def test_complex_statistics_are_refused():
    with pytest.raises(TypeError, match="real numbers"):
        DenseStatistics({"a": np.ones((2, 3), complex)})


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
    import pandas as pd

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
    found, expected = (SparseSums(plan, 0).fit(data).posterior_ for data in (X, sp.csr_array(rows)))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5)
