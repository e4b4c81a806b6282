"""Ragged records: containers, and rows of them."""

from __future__ import annotations

import pickle
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from vips import GaussianHMM, PrivacyPlan
from vips.data import InMemoryData, Sequences

ARRAYS = [np.array([0, 2, 1]), np.array([], int), np.array([4]), np.array([3, 3])]
DATA = Sequences.from_list(ARRAYS)


def as_lists(sequences):
    return [sequence[:, 0].tolist() for sequence in sequences]


@pytest.mark.parametrize(
    "rows", [slice(1, 3), slice(None), slice(3, 1), np.array([3, 0, 0]), np.array([True, False, True, False]), [1], []]
)
def test_rows_are_those_of_a_list(rows):
    expected = np.empty(4, object)
    expected[:] = ARRAYS
    chosen = np.array(rows, int) if isinstance(rows, list) and not rows else rows
    assert as_lists(DATA[chosen]) == [sequence.tolist() for sequence in expected[chosen]]
    assert DATA[chosen].shape == (len(expected[chosen]), 1)


def test_containers_give_the_same_sequences():
    expected = as_lists(DATA)
    assert as_lists(Sequences.from_lengths(DATA.values, [3, 0, 1, 2])) == expected
    lists = pa.chunked_array([[[0, 2, 1], []], [[4], [3, 3]]])
    assert as_lists(Sequences.from_arrow(lists)) == expected
    assert as_lists(pickle.loads(pickle.dumps(DATA))) == expected
    nulls = Sequences.from_arrow(pa.array([[1, None], None, [3]]))  # which are missing steps
    np.testing.assert_array_equal(nulls.values[:, 0], [1, np.nan, 3])
    np.testing.assert_array_equal(nulls.offsets, [0, 2, 2, 3])


def test_frames_have_ids_and_an_order():
    frame = pd.DataFrame({
        "who": ["b", "a", "b", None, "a", "b"],
        "when": pd.to_datetime(["2024-03-01", "2024-01-01", "2024-02-01", "2024-01-01", "2023-01-01", "2024-04-01"]),
        "what": [1, 2, 3, 4, 5, None],
    })  # fmt: skip
    sequences = Sequences.from_frame(frame, by="who", order="when", columns="what")
    np.testing.assert_array_equal(sequences.values[:, 0], [5, 2, 3, 1, np.nan])
    np.testing.assert_array_equal(sequences.offsets, [0, 2, 5])
    with pytest.raises(ValueError, match="no column 'day'"):
        Sequences.from_frame(frame, by="who", order="day", columns="what")


def test_what_is_no_array_of_numbers_is_a_missing_step():
    sequences = Sequences.from_list([np.array([1.0]), np.array(["x"]), np.zeros((2, 3)), np.array([2.0, 0.0])])
    np.testing.assert_array_equal(sequences.values[:, 0], [1, np.nan, np.nan, 2, 0])


def test_empty_arrays_have_a_width():
    """One sequence does not decide what is public beside empty ones, which have columns but no steps."""
    empty = [np.empty((0, 2))] * 3
    for one in (np.ones((1, 100)), np.ones(4), np.ones((2, 3))):
        assert Sequences.from_list([*empty, one]).values.shape[1] == 2
    assert Sequences.from_list([np.empty(0)] * 3 + [np.ones((1, 2))]).values.shape[1] == 2  # these have no columns


@pytest.mark.parametrize(
    ("values", "offsets"),
    [([1, 2], [0, 1]), ([1, 2], [1, 2]), ([1, 2], [0, 3, 2]), (["a"], [0, 1]), ([1, 2], [0.0, 2.0]), ([1, 2], [])],
)
def test_what_does_not_fit_together_is_refused(values, offsets):
    with pytest.raises((TypeError, ValueError)):
        Sequences(np.array(values), np.array(offsets))


def test_chunks_are_bounded_by_steps_and_first_steps_are_taken():
    data = Sequences.from_list([np.zeros(n) for n in (5, 5, 50, 1, 1, 1, 9)])
    opened = InMemoryData(data).partition(0).open()
    assert [chunk.lengths.tolist() for chunk in opened.chunks(np.arange(7), 10)] == [[5, 5], [50], [1, 1, 1], [9]]
    assert as_lists(DATA.first(2)) == [[0, 2], [], [4], [3, 3]]
    assert repr(DATA) == "<Sequences of 1 columns, float64>"


@pytest.mark.parametrize("cells", [["1", "2", "3"], ["a", 2, None], [Decimal(1), True, np.float32(2.5)], [None] * 3])
def test_values_of_a_frame_do_not_decide_whether_it_is_taken(cells):
    """Only dtypes do: cells of objects are read one by one, and a column of text is refused whatever it holds."""
    frame = pd.DataFrame({"who": [1, 1, 2], "code": pd.Series(cells, dtype=object)})
    codes = Sequences.from_frame(frame, by="who", columns="code").values[:, 0]
    np.testing.assert_array_equal(codes, [np.nan if cell in ("a", None) else float(cell) for cell in cells])
    with pytest.raises(TypeError, match="would depend on the records"):
        Sequences.from_frame(frame.assign(code=pd.Series(["1", "2", "3"], dtype="str")), by="who", columns="code")


VECTORS = [[1.5, 2.0], [None, 4.0], [5.0, 6.0]]


@pytest.mark.parametrize("container", [
    list,
    lambda rows: np.array(rows, dtype=object),
    lambda rows: np.array(rows, dtype=float),
    lambda rows: np.ma.masked_array([[1.5, 2.0], [1e3, 4.0], [5.0, 6.0]], [[0, 0], [1, 0], [0, 0]]),
    lambda rows: np.ma.masked_array(np.array([[1.5, 2.0], ["x", 4.0], [5.0, 6.0]], object), [[0, 0], [1, 0], [0, 0]]),
    pd.DataFrame,
    lambda rows: pd.DataFrame(rows).astype("Float64"),
    lambda rows: pd.DataFrame(rows, dtype=object),
    lambda rows: pa.table({"a": [1.5, None, 5.0], "b": [2.0, 4.0, 6.0]}),
    lambda rows: [[Decimal("1.5"), 2], [pd.NA, Decimal(4)], [5, 6]],
    lambda rows: [[1.5, 2.0], ["<5", 4.0], [5.0, 6.0]],
])  # fmt: skip
def test_what_is_missing_in_a_sequence(container):
    """None, NA, NaN, masks and what is no number are missing entries, in every container; all other entries stay."""
    sequences = Sequences.from_list([container(VECTORS), np.ones((1, 2))], 2)
    np.testing.assert_array_equal(sequences.values, [[1.5, 2.0], [np.nan, 4.0], [5.0, 6.0], [1.0, 1.0]])


def test_a_row_that_is_missing_is_a_missing_step():
    sequences = Sequences.from_list([[[1, 2], None, [3, 4]], [None, None]], 2)
    np.testing.assert_array_equal(sequences.values, [[1, 2], [np.nan] * 2, [3, 4], [np.nan] * 2])
    np.testing.assert_array_equal(Sequences.from_list([[0, None, 2]]).values[:, 0], [0, np.nan, 2])


@pytest.mark.parametrize("odd", [[], np.zeros((2, 7)), np.zeros(4), np.zeros((3, 0)), "abc", None, [[1, 2], [1]]])
def test_one_array_does_not_decide_how_many_columns_there_are(odd):
    others = [np.ones((2, 3)), np.full((1, 3), 2.0)]
    first, last = Sequences.from_list([odd, *others]), Sequences.from_list([*others, odd])
    assert first.shape == last.shape == (3, 3)
    assert [steps.tolist() for steps in first][1:] == [steps.tolist() for steps in last][:2]


def test_an_empty_list_is_an_empty_sequence():
    assert list(Sequences.from_list([[], np.ones((2, 3)), np.ones((2, 3)), np.zeros((0, 2))]).lengths) == [0, 2, 2, 0]
    assert Sequences.from_list([np.zeros((0, 3))]).shape == (1, 3)
    assert Sequences.from_list([]).shape == (0, 1)


@pytest.mark.parametrize("kind", ["Int64", "boolean", "int64", "date32", "decimal"])
def test_a_missing_value_of_the_order_changes_no_other_sequence(kind):
    types = {"int64": pa.int64(), "date32": pa.date32(), "decimal": pa.decimal128(20, 1)}
    values = pd.Series([3, 2, 1, 0])
    if kind.lower() == "int64":
        values += 2**60  # too large for floats
    if kind in types:
        values = pa.array(values, pa.int32() if kind == "date32" else pa.int64()).cast(types[kind])
        values = pd.Series(pd.arrays.ArrowExtensionArray(values))
    else:
        values = (values > 1).astype(kind) if kind == "boolean" else values.astype(kind)
    frame = pd.DataFrame({"who": [1, 1, 1, 2], "when": values, "code": [0, 1, 2, 3]})
    changed = frame.copy()
    changed.loc[3, "when"] = None
    for table in (frame, changed):
        lists = as_lists(Sequences.from_frame(table, by="who", order="when", columns="code"))
        assert ([2, 0, 1] if kind == "boolean" else [2, 1, 0]) in lists


@pytest.mark.parametrize("name", ["by", "order", "columns"])
def test_columns_are_named(name):
    """Ids in an array of their own are refused in words, and what the words suggest works."""
    frame, ids = pd.DataFrame({"day": [2, 1, 1], "event": [0, 1, 2]}), [1, 1, 2]
    arguments = {"by": "day", "order": "day", "columns": "event"} | {name: [ids] if name == "columns" else ids}
    with pytest.raises(TypeError, match=r"frame\.assign\(patient=ids\)"):
        Sequences.from_frame(frame, **arguments)
    sequences = Sequences.from_frame(frame.assign(patient=ids), by="patient", order="day", columns="event")
    assert sequences.values.ravel().tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize("odd", [["a", 1.0], [[1.0], [2.0, 3.0]], np.array([1.0, "<5"], dtype=object), 7.0])
def test_ordinary_fits_refuse_what_is_no_number(odd):
    """And say which sequence it is; a private fit takes it for missing."""
    lists = [[0.5, None, 1.0], np.array([1.0, np.nan, 0.0]), [pd.NA, 0.2, 0.1]]
    with pytest.raises(ValueError, match="Sequence 3 of X"):
        GaussianHMM(1).fit([*lists, odd])
    assert GaussianHMM(1).fit(lists).means_[0, 0] == pytest.approx(np.mean([0.5, 1.0, 1.0, 0.0, 0.2, 0.1]))
    with pytest.raises(ValueError, match="Sequence 0 of X"):
        GaussianHMM(1).fit(lists).predict([odd])
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    assert GaussianHMM(1, n_features=1, max_norm=1.0, privacy=plan).fit([*lists, odd]).means_.shape == (1, 1)


def test_masks_hide_steps_below_each_other():
    X = np.ma.masked_array([[1.0], [1e6], [3.0]], [[0], [1], [0]])
    for sequences in (Sequences(X, np.array([0, 3])), Sequences.from_lengths(X, [3])):
        np.testing.assert_array_equal(sequences.values[:, 0], [1.0, np.nan, 3.0])
    assert GaussianHMM(1, means_prior=[0.0], beta_prior=1e-9).fit(X, [3]).means_[0, 0] == pytest.approx(2.0)


def test_no_cell_warns():
    """A warning would tell of a record."""
    huge = np.ma.array([np.longdouble("1e4000")], mask=[True])
    odd = [list(np.ma.array([0, 1, 1], mask=[0, 1, 0])), huge, ["1e400", "nan"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sequences = Sequences.from_list([*odd, [2.0]], 1)
    np.testing.assert_array_equal(sequences.values[:, 0], [0, np.nan, 1, np.nan, np.nan, np.nan, 2])
    hidden = np.ma.masked_array(np.array(["x", 1.0, 2.0], dtype=object), [True, False, False])
    assert GaussianHMM(1).fit([hidden, [3.0]]).means_[0, 0] == pytest.approx(2.0)
