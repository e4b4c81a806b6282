import copy
import datetime
import subprocess
import sys
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from vips import load
from vips.data._cell_values import cells_of_categories
from vips.preprocessing import TableEncoder


class Hostile:
    """A value whose comparison and hash fail."""

    def __eq__(self, other):
        raise RuntimeError("compared")

    def __hash__(self):
        raise RuntimeError("hashed")


class Impostor:
    """A value with the hash of a category, whose comparison fails."""

    def __eq__(self, other):
        raise RuntimeError("compared")

    def __hash__(self):
        return hash("red")


COLUMNS = {"colour": ["red", "green", "blue"], "age": (0, 100), "level": [1, 2], "height": (-1.5, 2.5)}
NUMBERS = [0.0, 50.0, 100.0, -3.0, 1e308, -1e308, 5e-324, np.nan, np.inf, -np.inf]
OBJECTS = [
    "red", "blue", "RED", "", None, np.nan, pd.NA, pd.NaT, 1, 2.0, True, [1], {"a": 1}, {1}, b"red", np.array([1, 2]),
    np.array("red"), Decimal("sNaN"), ("red",), Hostile(), Impostor(), float("inf"), "\ud800", object(),
]  # fmt: skip


def hostile_table(n, seed=0):
    rng = np.random.default_rng(seed)

    def column(values):
        drawn = np.empty(n, dtype=object)
        drawn[:] = [values[i] for i in rng.permutation(np.arange(n) % len(values))]
        return drawn

    table = {"age": column(NUMBERS).astype(float), "colour": column(OBJECTS), "other": np.arange(n)}
    height = column([0.0, 1.0, -3.0, 3e38, np.nan, np.inf, -np.inf]).astype(np.float32)
    return pd.DataFrame(table | {"level": column(OBJECTS), "height": height})


def cases():
    for sparse in (False, True):
        yield TableEncoder(COLUMNS, sparse_output=sparse), hostile_table(60)
        objects = [hostile_table(60)["colour"], hostile_table(60, 1)["level"]]
        array = np.empty((60, 2), dtype=object)
        array[:, 0], array[:, 1] = objects
        yield TableEncoder([["red", "blue"], [1, 2, "b"]], sparse_output=sparse), array
    yield TableEncoder(COLUMNS, unit_norm=False), hostile_table(60)
    yield TableEncoder({"height": (0, 1), "age": (0, 1e-300)}), hostile_table(60)
    yield TableEncoder([(-1e300, 1e300), (-1e300, 1e300)]), hostile_table(60)[["age", "height"]].to_numpy()


CASES = list(cases())
NAMES = [f"{type(transformer.columns).__name__} {i}" for i, (transformer, _) in enumerate(CASES)]


def dense(features):
    return features.toarray() if sp.issparse(features) else features


@pytest.mark.parametrize(("transformer", "table"), CASES, ids=NAMES)
class TestEveryTable:
    def test_rows_are_treated_alone_and_no_value_raises_or_warns(self, transformer, table):
        transformer = clone(transformer)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "X has columns that are not declared")  # names, and no values
            with np.errstate(all="raise"):
                whole = transformer.fit_transform(table)
                rows = [table[i : i + 1] for i in range(len(table))]
                alone = np.vstack([dense(clone(transformer).fit(row).transform(row)) for row in rows])
                later = dense(transformer.transform(table[::-1]))[::-1]
        assert sp.issparse(whole) == transformer.sparse_output
        np.testing.assert_array_equal(dense(whole), alone)
        np.testing.assert_array_equal(dense(whole), later)
        assert len(np.unique(alone, axis=0)) > 2  # not a constant

    def test_fit_learns_nothing_and_zero_rows_are_ordinary(self, transformer, table):
        full, empty = clone(transformer).fit(table), clone(transformer).fit(table[:0])
        state = copy.deepcopy(vars(empty))
        assert state.keys() == vars(full).keys()
        for name in set(state) - {"feature_names_in_"}:
            assert state[name] == vars(full)[name]
        np.testing.assert_array_equal(dense(empty.transform(table)), dense(full.transform(table)))
        n_features = len(empty.get_feature_names_out())
        assert full.transform(table).shape == (len(table), n_features)
        assert full.transform(table[:0]).shape == (0, n_features)
        assert full.transform(table[:0]).dtype == full.transform(table).dtype == np.float64

    def test_settings_are_parameters(self, transformer, table):
        again = clone(transformer)
        assert again.get_params() == transformer.get_params()
        assert again.fit(table) is again
        assert again.get_params() == transformer.get_params()
        assert all(isinstance(text, str) and len(text) < 200 for text in clone(transformer).declared_public)


def numbers(bounds, X):
    """Features of an array of numbers, each divided by nothing."""
    return TableEncoder(bounds, unit_norm=False).fit_transform(X)


def test_a_number_is_scaled_and_clipped_and_a_missing_one_is_the_middle():
    X = np.array([[0.0, 5.0], [2.0, np.nan], [8.0, np.inf], [-1.0, -np.inf]])
    scaled = numbers([(0, 4), (0, 10)], X)
    np.testing.assert_array_equal(scaled, [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    same = MinMaxScaler((-1, 1), clip=True).fit(np.array([[0.0, 0.0], [4.0, 10.0]]))
    np.testing.assert_allclose(scaled[:, 0], same.transform(np.nan_to_num(X))[:, 0])
    np.testing.assert_array_equal(numbers([(0, 2), (0, 2)], np.array([[True, False]])), [[0.0, -1.0]])
    np.testing.assert_array_equal(numbers([(0, 2)], np.array([[1]], np.uint8)), [[0.0]])


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.floats(), max_size=5),
)
def test_scaled_values_are_between_minus_one_and_one(one, other, values):
    low, high = sorted((one, other))
    encoder = TableEncoder([(low, high)])
    if low == high or not np.isfinite(high - low):
        with pytest.raises(ValueError, match="low < high"):
            encoder.fit(np.zeros((0, 1)))
        return
    values = np.array(values, dtype=float).reshape(-1, 1)
    scaled = encoder.fit_transform(values)
    assert (np.abs(scaled) <= 1).all()
    assert (scaled[~np.isfinite(values)] == 0.0).all()


def test_one_hot_equals_scikit_learn_on_declared_values():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.choice(["a", "b", "c"], 50), rng.choice(["x", "y"], 50)]).astype(object)
    categories = [["c", "a", "b"], ["x", "y"]]
    ours = TableEncoder(categories, unit_norm=False, sparse_output=True).fit(X)
    theirs = OneHotEncoder(categories=categories).fit(X)
    assert (ours.transform(X) != theirs.transform(X)).nnz == 0
    assert ours.transform(X).has_canonical_format
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    named = ["first", "second"]
    assert ours.get_feature_names_out(named).tolist() == theirs.get_feature_names_out(named).tolist()


@pytest.mark.parametrize("dtype", [object, "str", "string", pd.CategoricalDtype(["b", "unused", "z", "a"])], ids=str)
def test_values_of_pandas_columns_count_whatever_holds_them(dtype):
    frame = pd.DataFrame({"c": pd.Series(["b", None, "a", "z"], index=[7, 7, 3, 1]).astype(dtype)})
    expected = [[0, 1], [0, 0], [1, 0], [0, 0]]
    np.testing.assert_array_equal(TableEncoder({"c": ["a", "b"]}).fit_transform(frame), expected)


def test_a_column_without_values_that_was_read_as_numbers_gives_zeros():
    np.testing.assert_array_equal(TableEncoder({"c": ["a"]}).fit_transform(pd.DataFrame({"c": [np.nan]})), [[0]])


@pytest.mark.parametrize("dtype", ["int8", "Int64", float, bool])
def test_numbers_can_be_categories(dtype):
    frame = pd.DataFrame({"c": pd.Series([1, 0]).astype(dtype)})
    np.testing.assert_array_equal(TableEncoder({"c": [0, 1]}).fit_transform(frame), [[0, 1], [1, 0]])


def test_table_features_come_in_the_declared_order():
    frame = pd.DataFrame({"b": [5.0], "a": ["y"], "unused": [None], "c": [True]})
    columns = {"c": (0, 1), "a": ["x", "y"], "b": (0, 10)}
    for sparse in (False, True):
        encoder = TableEncoder(columns, unit_norm=False, sparse_output=sparse)
        np.testing.assert_array_equal(dense(encoder.fit_transform(frame)), [[1, 0, 1, 0.0]])
        assert encoder.get_feature_names_out().tolist() == ["c", "a_x", "a_y", "b"]
        assert encoder.n_features_out == 4
        assert encoder.max_norm == pytest.approx(np.sqrt(3))
        unit = TableEncoder(columns, sparse_output=sparse)
        np.testing.assert_allclose(dense(unit.fit_transform(frame)), np.array([[1, 0, 1, 0.0]]) / np.sqrt(3))
        assert unit.max_norm == 1.0
    only = TableEncoder({"a": ["y"]}).fit(frame)
    np.testing.assert_array_equal(only.transform(frame), [[1.0]])
    np.testing.assert_array_equal(TableEncoder({"b": (0, 10)}).fit_transform(frame), [[0.0]])
    assert TableEncoder(columns).declared_public == (
        "bounds of 2 numeric columns (c: 0 to 1, b: 0 to 10)",
        "categories of 1 column (a: x, y)",
    )
    with_set_output = TableEncoder(columns).set_output(transform="pandas").fit_transform(frame.set_index([[42]]))
    assert list(with_set_output.columns) == ["c", "a_x", "a_y", "b"]
    assert list(with_set_output.index) == [42]


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(1, 40))
def test_no_row_is_longer_than_the_stated_norm(data, n_columns):
    """In exact arithmetic, which would show one rounding too many in 1/√k."""
    numeric = data.draw(st.lists(st.booleans(), min_size=n_columns, max_size=n_columns))
    columns = {f"c{i}": (-1.0, 3.0) if is_number else ["a", "b"] for i, is_number in enumerate(numeric)}
    extreme = [3.0, 1e300, -1e300, 2.999999]
    row = {
        name: [data.draw(st.sampled_from(extreme if isinstance(declared, tuple) else ["a", "b", "z", None]))]
        for name, declared in columns.items()
    }
    for unit_norm in (True, False):
        encoder = TableEncoder(columns, unit_norm=unit_norm)
        features = encoder.fit_transform(pd.DataFrame(row))[0]
        squares = sum(Fraction(value) ** 2 for value in features)
        assert squares <= (1 if unit_norm else n_columns)
        assert np.linalg.norm(features) <= encoder.max_norm * (1 + 1e-15 * n_columns)


def test_the_norm_bound_is_reached_for_every_number_of_columns():
    for k in range(1, 60):
        columns = {str(i): (0, 1) for i in range(k)}
        row = TableEncoder(columns).fit_transform(pd.DataFrame({str(i): [1] for i in range(k)}))[0]
        assert 1 - 1e-15 <= k * Fraction(row[0]) ** 2 <= 1
        assert (row == row[0]).all()


def test_columns_by_place_are_those_by_name():
    frame = hostile_table(30)[list(COLUMNS)]
    for sparse in (False, True):
        by_place = TableEncoder(list(COLUMNS.values()), sparse_output=sparse).fit(frame)
        by_name = TableEncoder(COLUMNS, sparse_output=sparse).fit(frame)
        np.testing.assert_array_equal(dense(by_place.transform(frame)), dense(by_name.transform(frame)))
        assert by_place.get_feature_names_out().tolist() == by_name.get_feature_names_out().tolist()
        for ours, theirs in zip(by_place.in_column_units(), by_name.in_column_units(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    array = TableEncoder([(0, 1), ["a"]]).fit(np.zeros((0, 2)))
    assert array.get_feature_names_out().tolist() == ["x0", "x1_a"]


def test_it_works_inside_scikit_learn():
    table = hostile_table(30)
    parts = ColumnTransformer([
        ("numbers", TableEncoder({"age": (0, 100), "height": (-1.5, 2.5)}, unit_norm=False), ["height", "age"]),
        ("lists", TableEncoder({"colour": COLUMNS["colour"], "level": [1, 2]}, unit_norm=False), ["colour", "level"]),
    ])  # fmt: skip
    whole = TableEncoder(COLUMNS, unit_norm=False).fit(table)
    joined = make_pipeline(parts).set_output(transform="pandas").fit_transform(table)
    joined.columns = [name.split("__")[1] for name in joined.columns]
    np.testing.assert_array_equal(joined[whole.get_feature_names_out()].to_numpy(), whole.transform(table))


def test_values_that_pyarrow_cannot_give_have_no_category():
    text = pa.array([b"red", b"\xff", b"blue"]).cast(pa.binary()).view(pa.binary())
    not_text = pa.StringArray.from_buffers(3, text.buffers()[1], text.buffers()[2])  # the second is not UTF-8
    far_off = pa.array([0, 2**60, 86_400], pa.timestamp("s"))
    frame = pd.DataFrame({"c": pd.arrays.ArrowExtensionArray(not_text), "t": pd.arrays.ArrowExtensionArray(far_off)})
    days = datetime.date(1970, 1, 1), datetime.date(1970, 1, 2), "(missing)"
    encoder = TableEncoder({"c": ["red", "blue"], "t": days}, unit_norm=False)
    np.testing.assert_array_equal(encoder.fit_transform(frame), [[1, 0, -1, 0], [0, 0, 1, 0], [0, 1, 1, 0]])


@pytest.mark.parametrize("dtype", ["str", "string", "string[python]", "string[pyarrow]", "large_string[pyarrow]"])
def test_columns_of_text_have_the_cells_of_objects(dtype):
    words = ["b", "a", None, "", "b", " b", "é", "e\u0301", "(other)", "(missing)", "1", "x" * 300, None, "b\0"]
    objects, text = pd.Series(words * 2, dtype=object), pd.Series(words * 2, dtype=dtype)
    for of_objects, of_text in ((objects, text), (objects[1::3], text[1::3]), (objects[:0], text[:0])):
        categories, cells = cells_of_categories(of_text)
        expected, expected_cells = cells_of_categories(of_objects)
        assert categories == expected
        assert set(map(type, categories)) <= {str}
        np.testing.assert_array_equal(cells, expected_cells, strict=True)


@pytest.mark.parametrize("option", [pytest.param("-b", marks=pytest.mark.slow), "-bb"])
def test_bytes_have_no_category_even_where_comparing_them_warns_or_is_an_error_and_pandas_is_optional(option):
    code = (
        "import sys; sys.modules['pandas'] = None; import vips.preprocessing, vips.datasets\n"  # None: importing it fails
        "import numpy as np; from vips.preprocessing import TableEncoder as E\n"
        "assert E([['red']]).fit_transform(np.array([[b'red'], ['red']], object)).tolist() == [[0], [1]]"
    )
    done = subprocess.run([sys.executable, option, "-c", code], check=True, capture_output=True, text=True)
    assert "BytesWarning" not in done.stderr


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_matrices_are_read_as_plain_arrays_and_masks_hide_cells():
    X = np.array([[0.0, 1.0], [2.0, 1.0]])
    for columns in ([(0, 2), (0, 2)], [[2, 0], [1]]):
        for container, cells in ((np.matrix(X), X), (np.ma.masked_equal(X, 1.0), np.where(X == 1.0, np.nan, X))):
            expected = TableEncoder(columns).fit_transform(cells)
            np.testing.assert_array_equal(TableEncoder(columns).fit_transform(container), expected)
            alone = TableEncoder(columns).fit(container[:0]).transform(container[:1])
            np.testing.assert_array_equal(alone, expected[:1])


def test_a_long_text_is_read_in_time_that_grows_with_its_length():
    """A pattern that tries every way to divide the digits would take hours."""
    cells = np.array([["1" * 300_000 + "x"], ["1" * 300_000], ["3"]], dtype=object)
    np.testing.assert_array_equal(TableEncoder([(0, 4)], unit_norm=False).fit_transform(cells), [[0.0], [0.0], [0.5]])


def test_numbers_of_all_kinds_are_equal_categories():
    cells = [[Decimal(1)], [Decimal("2.0")], [1.0], [True], [np.int8(2)], ["1"], [Decimal("sNaN")]]
    cells = np.array(cells, dtype=object)
    encoded = TableEncoder([[1, 2]], unit_norm=False).fit_transform(cells)
    np.testing.assert_array_equal(encoded, [[1, 0], [0, 1], [1, 0], [1, 0], [0, 1], [0, 0], [0, 0]])


def test_masks_hide_dates():
    days = np.ma.masked_array(np.array([["2020-01-01"], ["1999-01-01"]], dtype="M8[ns]"), [[False], [True]])
    bounds = datetime.date(2020, 1, 1), datetime.date(2021, 1, 1), "(missing)"
    np.testing.assert_array_equal(TableEncoder([bounds], unit_norm=False).fit_transform(days), [[-1, 0], [0, 1]])
    with pytest.raises(TypeError, match="write two dates"):
        TableEncoder([(0, 1)]).fit(days)


def test_the_largest_norm_is_one_in_exact_arithmetic():
    for k in range(1, 40):
        encoder = TableEncoder([(0, 1)] * k, unit_norm=False)
        row = encoder.fit_transform(np.ones((1, k)))[0]
        assert sum(Fraction(value) ** 2 for value in row) <= Fraction(encoder.max_norm) ** 2


@pytest.mark.parametrize(
    "bounds",
    [
        (datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)),
        (datetime.datetime(2020, 1, 1, 6, tzinfo=datetime.UTC), datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)),
        (np.datetime64("2020-01-01", "ns"), np.datetime64("2021-01-01", "ns")),
        (pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")),
    ],
    ids=["date", "time", "datetime64", "timestamp"],
)
def test_bounds_of_dates_are_saved(bounds, tmp_path):
    frame = pd.DataFrame({"day": pd.date_range("2019-12-01", periods=9, freq="60D")})
    encoder = TableEncoder({"day": bounds}).fit(frame)
    encoder.save(tmp_path / "encoder.vips")
    loaded = load(tmp_path / "encoder.vips")
    np.testing.assert_array_equal(loaded.transform(frame), encoder.transform(frame))
    assert loaded.declared_public == encoder.declared_public
