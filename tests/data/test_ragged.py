"""Ragged rows: what is selected, what is read, and copies by several threads."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from vips.core.records import ragged as _ragged
from vips.core.records.ragged import Ragged, divides, places
from vips.data import Sequences


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int16, np.int64, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("pointers", [np.int32, np.int64])
def test_rows_are_those_of_scipy(dtype, pointers, monkeypatch):
    monkeypatch.setattr(_ragged, "_LEAST_VALUES", 0)
    monkeypatch.setattr("vips.core.exact.threads.n_threads", lambda: 3)
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.5, (200, 30)).astype(dtype))
    X.indptr, X.indices = X.indptr.astype(pointers), X.indices.astype(pointers)
    X.indices[:40] = 10**6  # in columns that do not exist
    for rows in (np.flatnonzero(rng.random(200) < 0.4), np.arange(200), np.array([0]), np.array([], dtype=int)):
        copied, expected = _ragged.some_rows(X, rows), X[rows]
        assert type(copied) is type(expected)
        assert copied.shape == expected.shape
        assert copied.dtype == expected.dtype
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(copied, name), getattr(expected, name))
            assert not np.may_share_memory(getattr(copied, name), getattr(X, name))


LENGTHS = np.array([3, 0, 1, 7, 2, 0, 5])
TABLES = {
    "bytes": np.arange(18, dtype=np.uint8), "codes": np.arange(18.0),
    "vectors": np.arange(54, dtype=np.float32).reshape(18, 3), "columns": np.asfortranarray(np.arange(54.0).reshape(18, 3)),
    "no columns": np.zeros((18, 0)), "flags": np.arange(18) % 3 == 0, "long doubles": np.arange(18, dtype=np.longdouble),
}  # fmt: skip
CHOSEN = [slice(1, 4), slice(None), slice(None, None, -2), [3, 0, 3], np.arange(7) % 2 == 0, [], slice(4, 4), [1], [6]]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_selected_rows_are_those_of_a_list(table, n_threads, monkeypatch):
    monkeypatch.setattr(_ragged, "_LEAST_VALUES", 0)
    monkeypatch.setattr("vips.core.exact.threads.n_threads", lambda: n_threads)
    rows = np.empty(7, object)
    rows[:] = np.split(table, np.cumsum(LENGTHS)[:-1])
    for chosen in CHOSEN:
        expected = rows[np.array(chosen, int) if isinstance(chosen, list) else chosen]
        selected = Ragged(table, None, LENGTHS)[chosen]
        assert selected.storage is table, "rows are read before somebody asks for them"
        for form in (selected, selected[:], pickle.loads(pickle.dumps(selected)), selected.packed(), selected.copy()):
            assert [row.tolist() for row in form] == [row.tolist() for row in expected]
            values = np.concatenate([table[:0], *expected])
            np.testing.assert_array_equal(form.values, values)
            assert (form.values.dtype, form.shape) == (table.dtype, (len(expected), *table.shape[1:]))
            assert form.offsets.tolist() == [0, *np.cumsum([len(row) for row in expected])]
        assert [row.tolist() for row in selected.first(2)] == [row[:2].tolist() for row in expected]


def test_values_of_a_selection_can_be_written_and_are_in_c_order():
    """Kernels are compiled for such arrays. What was passed stays as it is."""
    table = np.asfortranarray(np.arange(54.0).reshape(18, 3))
    table.flags.writeable = False
    rows = Ragged(table, None, LENGTHS)
    assert rows.values is table
    for chosen in (slice(2, 5), [0, 4], slice(None)):
        flags = rows[chosen].values.flags
        assert flags.writeable
        assert flags.c_contiguous


def test_values_are_read_once_and_then_selected_from():
    rows = Ragged(np.arange(18.0), None, LENGTHS)[[3, 0]]
    rows.values[:] = -1.0
    assert [row.tolist() for row in rows[[1]]] == [[-1.0] * 3]


def test_a_pickle_holds_no_other_rows():
    sequences = Sequences(np.arange(100_000.0), np.arange(100_001))
    for chosen in (slice(5, 7), [9, 3]):
        assert len(pickle.dumps(sequences[chosen])) < 2_000


def test_places_are_those_of_every_value():
    assert places(np.array([2, 0, 3])).tolist() == [0, 1, 0, 1, 2]
    assert places(np.array([2, 0, 3]), np.array([7, 9, 4])).tolist() == [7, 8, 4, 5, 6]


@pytest.mark.parametrize(
    ("offsets", "is_so"),
    [([0, 2, 2, 5], True), ([0], False), ([], False), ([0, 3, 2, 5], False), ([1, 5], False), ([0, 4], False),
     ([0.0, 5.0], False), ([[0, 5]], False)],
)  # fmt: skip
def test_offsets_divide_values_or_do_not(offsets, is_so):
    assert divides(np.array(offsets), 5) is is_so
    if np.array(offsets).dtype.kind == "i":
        assert divides(np.array(offsets, np.uint64), 5) is is_so
    assert divides(np.array([0, 2**64 - 1, 5], np.uint64), 5) is False
