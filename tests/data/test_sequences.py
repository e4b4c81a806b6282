"""Ragged records: containers, and rows of them."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from vips.data import InMemoryData, Sequences

ARRAYS = [np.array([0, 2, 1]), np.array([], int), np.array([4]), np.array([3, 3])]
DATA = Sequences.from_list(ARRAYS)


def as_lists(sequences):
    return [each[:, 0].tolist() for each in sequences]


@pytest.mark.parametrize(
    "some", [slice(1, 3), slice(None), slice(3, 1), np.array([3, 0, 0]), np.array([True, False, True, False]), [1], []]
)
def test_rows_are_those_of_a_list(some):
    expected = np.empty(4, object)
    expected[:] = ARRAYS
    chosen = np.array(some, int) if isinstance(some, list) and not some else some
    assert as_lists(DATA[chosen]) == [each.tolist() for each in expected[chosen]]
    assert DATA[chosen].shape == (len(expected[chosen]), 1)


def test_containers_give_the_same_sequences():
    expected = as_lists(DATA)
    assert as_lists(Sequences.from_lengths(DATA.values, [3, 0, 1, 2])) == expected
    lists = pa.chunked_array([[[0, 2, 1], []], [[4], [3, 3]]])
    assert as_lists(Sequences.from_arrow(lists)) == expected
    assert as_lists(pickle.loads(pickle.dumps(DATA))) == expected


def test_frames_have_ids_and_an_order():
    frame = pd.DataFrame({
        "who": ["b", "a", "b", None, "a", "b"],
        "when": pd.to_datetime(["2024-03-01", "2024-01-01", "2024-02-01", "2024-01-01", "2023-01-01", "2024-04-01"]),
        "what": [1, 2, 3, 4, 5, None],
    })  # fmt: skip
    found = Sequences.from_frame(frame, by="who", order="when", columns="what")
    np.testing.assert_array_equal(found.values[:, 0], [5, 2, 3, 1, np.nan])
    np.testing.assert_array_equal(found.offsets, [0, 2, 5])
    with pytest.raises(ValueError, match="no column 'day'"):
        Sequences.from_frame(frame, by="who", order="day", columns="what")


def test_what_is_no_array_of_numbers_is_a_missing_step():
    found = Sequences.from_list([np.array([1.0]), np.array(["x"]), np.zeros((2, 3)), np.array([2.0, 0.0])])
    np.testing.assert_array_equal(found.values[:, 0], [1, np.nan, np.nan, 2, 0])


def test_nulls_are_missing_steps():
    found = Sequences.from_arrow(pa.array([[1, None], None, [3]]))
    np.testing.assert_array_equal(found.values[:, 0], [1, np.nan, 3])
    np.testing.assert_array_equal(found.offsets, [0, 2, 2, 3])


@pytest.mark.parametrize(
    ("values", "offsets"),
    [([1, 2], [0, 1]), ([1, 2], [1, 2]), ([1, 2], [0, 3, 2]), (["a"], [0, 1]), ([1, 2], [0.0, 2.0]), ([1, 2], [])],
)
def test_what_does_not_fit_together_is_refused(values, offsets):
    with pytest.raises((TypeError, ValueError)):
        Sequences(np.array(values), np.array(offsets))


def test_chunks_are_bounded_by_steps():
    data = Sequences.from_list([np.zeros(n) for n in (5, 5, 50, 1, 1, 1, 9)])
    opened = InMemoryData(data).partition(0).open()
    assert [chunk.lengths.tolist() for chunk in opened.chunks(np.arange(7), 10)] == [[5, 5], [50], [1, 1, 1], [9]]


def test_first_steps():
    assert as_lists(DATA.first(2)) == [[0, 2], [], [4], [3, 3]]
    assert repr(DATA) == "<Sequences of 1 columns, int64>"


def test_values_of_a_frame_do_not_decide_whether_it_is_taken():
    """Only dtypes do: an order of mixed types is sorted somehow, and a column of objects is refused whatever it holds."""
    frame = pd.DataFrame({"who": [1, 1, 2], "when": pd.Series(["b", 3, None], dtype=object), "code": [0, 1, 2]})
    assert Sequences.from_frame(frame, by="who", order="when", columns="code").lengths.tolist() == [2, 1]
    for values in (["1", "2", "3"], ["a", 2, None]):
        frame["words"] = pd.Series(values, dtype=object)
        with pytest.raises(TypeError, match="would depend on the records"):
            Sequences.from_frame(frame, by="who", columns="words")
