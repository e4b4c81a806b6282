"""Data frames and Arrow tables: which columns are numbers is decided by their types, never by their values."""

from __future__ import annotations

import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline

from vips import (
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyPlan,
    SigmoidBeliefNetwork,
)
from vips.core.records.groups import group_numbers
from vips.core.records.tables import from_arrow, with_numpy_numbers
from vips.data import check_data
from vips.preprocessing import TableEncoder, make_private_pipeline

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, reproducible_noise=True)
RNG = np.random.default_rng(0)
BITS = RNG.integers(0, 2, (60, 3))
LABELS = RNG.integers(0, 2, 60)
NAMES = ["a", "b", "c"]


class Exported:
    """A stand-in for a frame of polars: it exports an Arrow stream, and has columns and dtypes of its own."""

    def __init__(self, table):
        self._table = table
        self.columns, self.dtypes, self.shape = table.column_names, table.schema.types, table.shape

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)

    def to_numpy(self):
        raise AssertionError("its dtype would depend on missing values")


class ExportedColumn:
    """A stand-in for a series of polars."""

    def __init__(self, column):
        self._column, self.dtype, self.shape = column, column.type, (len(column),)

    def __len__(self):
        return len(self._column)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._column.__arrow_c_stream__(requested_schema)


def arrow(values=BITS):
    return pa.table({name: values[:, i] for i, name in enumerate(NAMES)})


def frame(dtype="int64"):
    return pd.DataFrame(BITS, columns=NAMES).astype(dtype)


TABLES = {
    "Int64": frame("Int64"), "boolean": frame(bool).astype("boolean"), "Float32": frame("Float32"),
    "Arrow columns": frame("int64[pyarrow]"), "sparse columns": frame(pd.SparseDtype(int, 0)),
    "mixed": frame().astype({"a": "Int64", "b": "float32", "c": bool}),
    "NumPy booleans and floats": frame().astype({"a": bool, "b": float}), "PyArrow": arrow(),
    "record batch": arrow().to_batches()[0], "exported": Exported(arrow()),
}  # fmt: skip
MODELS = {
    "topics": lambda plan: LatentDirichletAllocation(2, vocabulary=3, privacy=plan, random_state=0),
    "logistic": lambda plan: BayesianLogisticRegression(max_norm=2.0, privacy=plan, random_state=0),
    "counts": lambda plan: BayesianNegativeBinomialRegression(
        dispersion=5.0, max_count=5, max_norm=2.0, privacy=plan, random_state=0
    ),
    "proportions": lambda plan: DirichletMultinomial(privacy=plan, random_state=0),
    "network": lambda plan: SigmoidBeliefNetwork(2, privacy=plan, random_state=0),
}


@pytest.mark.parametrize("plan", [PLAN, None], ids=["private", "plain"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_arrow_tables_with_nullable_labels(name, plan):
    labels = [LABELS] if name in ("logistic", "counts") else []
    expected = MODELS[name](plan).fit(BITS.astype(float), *labels)
    labels = [ExportedColumn(pa.chunked_array([LABELS])) for _ in labels]
    fit = MODELS[name](plan).fit(Exported(arrow()), *labels)
    assert list(fit.feature_names_in_) == NAMES
    for part, other in zip(*(model.posterior_parts(model.last_posterior_) for model in (fit, expected)), strict=True):
        np.testing.assert_allclose(part.distribution.mean, other.distribution.mean, rtol=1e-9)


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_numbers_are_those_of_floats(name):
    X = np.asarray(check_data(TABLES[name]).arrays[0])
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X, BITS)


IN_PANDAS = pd.Series(LABELS, dtype="Int64"), pd.Series(LABELS == 1, dtype="boolean")


@pytest.mark.parametrize("y", [*IN_PANDAS, pa.array(LABELS), pa.array(LABELS == 1)])
def test_labels_may_be_nullable(y):
    labels = check_data(BITS, y).arrays[1]
    assert labels.dtype == np.float64
    np.testing.assert_array_equal(labels, LABELS)
    model = MODELS["logistic"](PLAN).fit(frame("Int64"), y)
    np.testing.assert_array_equal(model.coef_, MODELS["logistic"](PLAN).fit(frame("float"), LABELS).coef_)
    assert model.predict_proba(Exported(arrow())).shape == (60, 2)


COLUMNS = {
    "Int64": pd.Series([1, 2**60, None], dtype="Int64"),
    "boolean": pd.Series([True, False, None], dtype="boolean"),
    "Float64": pd.Series([0.5, np.inf, None], dtype="Float64"),
    "uint64[pyarrow]": pd.Series([1, 2**64 - 1, None], dtype="uint64[pyarrow]"),
    "bool[pyarrow]": pd.Series([True, False, None], dtype="bool[pyarrow]"),
    "float[pyarrow]": pd.Series([0.5, np.inf, None], dtype="float[pyarrow]"),
    "decimal": pd.Series([Decimal("1.5"), Decimal("-9e30"), None], dtype=pd.ArrowDtype(pa.decimal128(38, 4))),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("rows", [slice(0, 0), slice(0, 1), slice(0, 2), slice(2, 3), slice(0, 3)], ids=str)
def test_no_missing_value_decides_a_dtype(name, rows):
    """A fit sees one dtype with and without the record that has a missing value, and without any record."""
    column = COLUMNS[name].iloc[rows]
    table = pd.DataFrame({"a": column, "b": np.ones(len(column), dtype=int)})
    X = check_data(table).arrays[0]
    assert (X.dtype, X.shape) == (np.float64, (len(column), 2))
    np.testing.assert_array_equal(np.isnan(X[:, 0]), column.isna())
    assert check_data(np.ones((len(column), 1)), column).arrays[1].dtype == np.float64
    converted = with_numpy_numbers(table)
    assert list(converted.dtypes) == [np.float64, np.int64]
    assert table.dtypes["a"] == column.dtype  # the caller's table is left alone


def test_a_missing_value_makes_its_record_defective_and_nothing_else():
    X = frame("Int64")
    X.iloc[7, 1] = pd.NA
    kept = np.arange(60) != 7
    full = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2, reproducible_noise=True)
    fitted, expected = MODELS["logistic"](full).fit(X, LABELS), MODELS["logistic"](full).fit(BITS[kept], LABELS[kept])
    np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=1e-6)


def test_arrow_columns_keep_their_types():
    text = pa.array(["x", None])
    others = {"bytes": pa.array([b"\xff", None], pa.binary_view()), "category": text.dictionary_encode()}
    table = pa.table({"text": text, "view": text.cast(pa.string_view())} | others | {"whole": pa.array([1, None])})
    converted = from_arrow(Exported(table))
    assert [str(dtype) for dtype in converted.dtypes] == [
        "string[pyarrow]", "large_string[pyarrow]", "large_binary[pyarrow]",
        "dictionary<values=string, indices=int32, ordered=0>[pyarrow]",
        "int64[pyarrow]",
    ]  # fmt: skip
    columns = {name: ["x", "y"] for name in ("text", "view", "category")} | {"whole": [1, 2]}
    encoder = TableEncoder(columns, unit_norm=False)
    np.testing.assert_array_equal(encoder.fit_transform(Exported(table)), [[1, 0] * 4, [0] * 8])


PEOPLE = pd.DataFrame(
    {
        "age": pd.Series([30, None, 60, 80] * 15, dtype="Int64"),
        "smoker": pd.Series(["yes", None, "no", "no"] * 15, dtype="string"),
        "wealth": pd.Series([0.5, 1.0, None, 0.8] * 15, dtype="Float64"),
    }
)
AS_FLOATS = PEOPLE.astype({"age": float, "smoker": object, "wealth": float})


@pytest.mark.parametrize("table", [PEOPLE, Exported(pa.Table.from_pandas(PEOPLE))], ids=["nullable", "Arrow"])
def test_declared_columns_are_read_from_nullable_and_arrow_tables(table):
    encoder = TableEncoder({"age": (0, 100), "smoker": ["no", "yes"], "wealth": (0, 1)})
    fitted, expected = (
        make_pipeline(encoder, MODELS["logistic"](PLAN)).fit(cells, pa.array(LABELS)) for cells in (table, AS_FLOATS)
    )
    np.testing.assert_allclose(fitted[-1].coef_, expected[-1].coef_)
    complete = PEOPLE.dropna().reset_index(drop=True)
    complete = complete if isinstance(table, pd.DataFrame) else Exported(pa.Table.from_pandas(complete))
    assert fitted.predict_proba(complete).shape == (30, 2)


def test_private_encoders_take_arrow_tables():
    columns = {"age": (0, 100), "smoker": "category"}
    encoded = []
    for table in (Exported(pa.Table.from_pandas(PEOPLE)), AS_FLOATS):
        steps = TableEncoder(columns), MODELS["logistic"](None)
        fitted = make_private_pipeline(*steps, privacy=PrivacyBudget(100.0, 1e-3)).fit(table, pa.array(LABELS))
        encoded.append(fitted.steps_[0][1].transform(table))
    np.testing.assert_array_equal(*encoded)


def test_plain_pipelines_and_scores_take_arrow_tables():
    pipeline = make_pipeline(TableEncoder([(0, 1)] * BITS.shape[1]), MODELS["logistic"](None))
    pipeline.fit(Exported(arrow()), pa.array(LABELS))
    assert pipeline.score(Exported(arrow()), pa.array(LABELS)) == pipeline.score(BITS.astype(float), LABELS)


class PolarsObjects:
    """A stand-in for a series of polars of Python's own objects, of which Arrow gets the addresses."""

    __module__ = "polars.series"
    dtype, name = "Object", "who"

    def __init__(self, values):
        self._values = values

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)

    def to_arrow(self):
        return pa.array([i.to_bytes(8, "little") for i in range(len(self))], pa.binary(8))

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.chunked_array([self.to_arrow()]).__arrow_c_stream__(requested_schema)


def test_objects_of_polars_are_read_one_by_one_or_refused():
    """Each of four equal ids would be a person of its own."""
    ids = PolarsObjects([uuid.UUID(int=7) for _ in range(4)])
    assert group_numbers(ids, 4).tolist() == [0, 0, 0, 0]
    with pytest.raises(TypeError, match="polars' dtype Object: convert it"):
        from_arrow(ids)


def test_frames_of_polars_themselves():
    with pytest.raises(TypeError, match="collect"):
        from_arrow(polars.LazyFrame({"x": [1.0]}))
    rng = np.random.default_rng(0)
    columns = {"age": rng.integers(18, 90, 300), "town": rng.choice(["A", "B"], 300), "x": rng.normal(size=300)}
    frame, y, ids = polars.DataFrame(columns), polars.Series("ill", rng.random(300) < 0.5), rng.integers(0, 99, 300)
    encoder = TableEncoder({"age": (18, 90), "town": ["A", "B"], "x": (-5, 5)})
    np.testing.assert_array_equal(encoder.fit(frame).transform(frame), encoder.transform(pd.DataFrame(columns)))
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=2)
    model = BayesianLogisticRegression(privacy=plan, max_norm=90.0)
    model.fit(frame.select("age", "x"), y, groups=polars.Series("person", ids))
    assert model.privacy_.unit == "all rows of one person"
    assert list(model.feature_names_in_) == ["age", "x"]
