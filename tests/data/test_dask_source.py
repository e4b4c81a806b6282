"""Dask collections as data."""

from __future__ import annotations

import pickle

import cloudpickle
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from vips import BayesianLogisticRegression, DirichletMultinomial, PrivacyPlan
from vips.data import DaskSource, InMemoryData, SourceError, as_source, regroup

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, reproducible_noise=True)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)), RNG.integers(0, 2, 60).astype(float)


def regression(**settings):
    return BayesianLogisticRegression(**({"privacy": PLAN, "max_norm": 3.0, "random_state": 0} | settings))


def test_dask_arrays_are_taken_as_they_are():
    expected = regression().fit(InMemoryData(X, Y, partition_size=20)).last_posterior_.mean
    x, y = da.from_array(X, chunks=(20, 3)), da.from_array(Y, chunks=20)
    source = as_source(x, y)
    assert (source.n_features, source.sizes, source.has_labels) == (3, (20, 20, 20), True)
    np.testing.assert_array_equal(regression().fit(x, y).last_posterior_.mean, expected)
    np.testing.assert_array_equal(regression().fit(DaskSource(x, y)).last_posterior_.mean, expected)


def test_data_frames_name_their_columns():
    frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y), npartitions=3)
    fitted = regression().fit(frame[["a", "b", "c"]], frame["y"])
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    source = as_source(frame[["a", "b", "c"]], frame["y"])
    assert source.sizes == (20, 20, 20)  # counted, because Dask does not know
    in_memory = regression().fit(InMemoryData(X, Y, partition_size=20))
    np.testing.assert_array_equal(fitted.last_posterior_.mean, in_memory.last_posterior_.mean)
    frame["name"] = "x"
    with pytest.raises(TypeError, match="NumPy dtypes"):
        regression().fit(frame[["a", "name"]], frame["y"])


def test_chunks_hold_whole_rows():
    with pytest.raises(ValueError, match="whole rows"):
        DaskSource(da.from_array(X, chunks=(20, 2)))
    x, y = da.from_array(X, chunks=(20, 3)), da.from_array(Y, chunks=30)
    with pytest.raises(ValueError, match=r"same chunks .* write y\.rechunk\(X\.chunks\[0\]\)"):
        DaskSource(x, y)
    assert DaskSource(x, y.rechunk(x.chunks[0])).sizes == (20, 20, 20)
    with pytest.raises(ValueError, match="requires y"):
        regression().fit(da.from_array(X, chunks=(20, 3)))
    with pytest.raises(TypeError, match="y must be a Dask array"):
        regression().fit(da.from_array(X, chunks=(20, 3)), Y)


def test_labels_of_a_frame_in_other_partitions():
    """What the words suggest brings labels to their rows."""
    frame, labels = dd.from_pandas(pd.DataFrame(X), npartitions=4), dd.from_pandas(pd.Series(X[:, 0]), npartitions=3)
    with pytest.raises(ValueError, match=r"write y\.repartition\(divisions=X\.divisions\)"):
        DaskSource(frame, labels)
    source = DaskSource(frame, labels.repartition(divisions=frame.divisions))
    for opened in (partition.open() for partition in source.partitions):
        np.testing.assert_array_equal(opened.X[:, 0], opened.y)


def from_parts(parts, dtype, name="v"):
    """A series whose chunks are computed as they are written, whatever dtype it declares."""
    return dd.from_map(
        lambda i: pd.Series(parts[i], name=name), range(len(parts)), meta=pd.Series([], dtype=dtype, name=name)
    )


LATER = {
    "as before": [1.0, 2.0], "missing": [1.0, np.nan], "None": pd.Series([1.0, None], dtype=object),
    "text": [1.0, "name@example.org"], "a large number": [1.0, 10**400], "nothing": pd.Series([], dtype=object),
}  # fmt: skip


@pytest.mark.parametrize("declared", ["float64", "float32", "int64"])
@pytest.mark.parametrize("later", LATER)
def test_a_record_of_a_later_chunk_decides_no_dtype(later, declared, tmp_path):
    """It is missing if it is no number: in a fit, and in a folder of persons."""
    first = np.array([3, 4], dtype=declared)
    n = len(LATER[later])
    table = from_parts([first, LATER[later]], declared).to_frame().assign(w=1.0)
    model = DirichletMultinomial(privacy=PLAN).fit(table)
    assert model.n_features_in_ == 2
    opened = as_source(table).partition(1).open()
    assert opened.X.dtype == as_source(table).partition(0).open().X.dtype
    assert np.isnan(opened.X).any() == (later not in ("as before", "nothing"))
    persons = from_parts([[1, 2], list(range(n))], "int64", "who")
    source = regroup(table, by=persons, to=tmp_path / "persons", n_partitions=1)
    assert sum(source.sizes) == len({1, 2, *range(n)})


def test_a_chunk_of_other_ids_or_of_another_order_raises_nothing(tmp_path):
    table = dd.from_pandas(pd.DataFrame({"v": [1.0, 2.0, 3.0, 4.0], "w": 1.0}), npartitions=2)
    others = [pd.NaT, pd.NaT], [pd.Timestamp("2020"), pd.NaT], [None, None], ["a", 2], [2.0, np.nan]
    for i, ids in enumerate(others):
        persons = regroup(table, by=from_parts([[1, 2], ids], "object"), to=tmp_path / str(i))
        assert sum(persons.sizes) in (2, 3), ids
    who, dates = from_parts([[1, 2], [1, 2]], "int64", "who"), pd.to_datetime(["2020", "2021"])
    for i, order in enumerate(([1, None], [None, None], ["x", 2])):
        for dtype, first in (("int64", [1, 2]), ("datetime64[ns]", dates)):
            when = from_parts([first, pd.Series(order, dtype=object)], dtype)
            persons = regroup(table, by=who, to=tmp_path / f"{dtype} {i}", order=when)
            assert sum(persons.sizes) == 2, (dtype, order)


def test_chunks_of_another_kind_are_named():
    odd = da.from_array(np.ones((40, 3)), chunks=(20, 3)).map_blocks(
        lambda block, block_info: block.astype(complex) if block_info[0]["chunk-location"][0] else block, dtype=float
    )
    with pytest.raises(SourceError, match=r"chunk 1: .*dtype complex128"):
        DirichletMultinomial(privacy=PLAN).fit(odd)


def test_a_handle_takes_no_other_chunks_along():
    """Pickled, as handles go to other processes."""
    rows = np.random.default_rng(0).random((2000, 50))
    frame = dd.from_pandas(pd.DataFrame(rows), npartitions=20)
    for source in (DaskSource(da.from_array(rows, chunks=(100, 50))), DaskSource(frame)):
        handles = [cloudpickle.dumps(handle) for handle in source.partitions]
        assert max(map(len, handles)) < 1.2 * rows.nbytes / 20
        np.testing.assert_array_equal(np.vstack([pickle.loads(handle).open().X for handle in handles]), rows)
