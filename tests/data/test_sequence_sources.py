"""Sequences in files and in Dask: the fit of those in memory, within a chunk of memory; broken files are named."""

from __future__ import annotations

import os
import pickle
import traceback

import dask
import dask.bag
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.memory import NOISE, peak_of
from vips import BayesianGaussianMixture, CategoricalHMM, GaussianHMM, PrivacyPlan
from vips.data import (
    InMemoryData,
    ParquetTable,
    Sequences,
    SequenceSource,
    SourceError,
    regroup,
    regrouped,
    write_sequences,
)

RNG = np.random.default_rng(0)
LISTS = [RNG.integers(0, 6, n).astype(float) for n in RNG.integers(0, 30, 200)]
LISTS[3][:] = np.nan
LISTS[7] = np.array([0.5, np.inf, -1.0, 9e300, 6.0, 2.0])
SEQUENCES = Sequences.from_list(LISTS)
PARTS = [SEQUENCES[first : first + 50] for first in range(0, 200, 50)]
IDS = RNG.integers(0, 40, 200)


def plan(**settings):
    usual = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "n_steps": 10, "reproducible_noise": True}
    return PrivacyPlan(**(usual | settings))


def totals(data, plan=None, **arguments):
    model = CategoricalHMM(3, n_symbols=6, max_length=20, privacy=plan or globals()["plan"](), random_state=0)
    return model.fit(data, **arguments).noisy_totals_.average["emissions"]


def shards(folder):
    write_sequences(iter(PARTS), folder / "shards")
    return SequenceSource.from_shards(folder / "shards", partition_size=50)


def parquet(folder):
    lists = [[None if np.isnan(code) else code for code in sequence] for sequence in LISTS]
    pq.write_table(pa.table({"codes": lists, "id": IDS}), folder / "a.parquet", row_group_size=50)
    return SequenceSource.from_parquet(folder, "codes")


def delayed(folder):
    return SequenceSource.from_dask([dask.delayed(part) for part in PARTS])


def bag(folder):
    return SequenceSource.from_dask(dask.bag.from_sequence(LISTS, partition_size=50))


@pytest.mark.parametrize("make", [shards, parquet, delayed, bag])
def test_a_fit_is_that_of_sequences_in_memory(make, tmp_path):
    source = make(tmp_path)
    assert (source.n_features, source.sizes, source.n_records) == (1, (50, 50, 50, 50), 200)
    np.testing.assert_array_equal(totals(source), totals(InMemoryData(SEQUENCES, partition_size=50)))
    chunks = [chunk.lengths.tolist() for chunk in source.chunks(300)]
    assert max(map(sum, chunks)) <= 300
    assert [n for lengths in chunks for n in lengths] == SEQUENCES.lengths.tolist()


def test_handles_are_light(tmp_path):
    assert max(len(pickle.dumps(handle)) for handle in shards(tmp_path).partitions) < 1_000


def test_changes_of_a_memory_map_travel(tmp_path):
    np.save(tmp_path / "values.npy", SEQUENCES.values)
    mapped = np.load(tmp_path / "values.npy", mmap_mode="c")
    mapped[:] = 3.0
    handle = InMemoryData(Sequences(mapped, SEQUENCES.offsets)).partition(0)
    sent = handle.__getstate__()["X"].values
    assert not isinstance(sent.base, np.memmap)
    assert (sent == 3.0).all()


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_all_sequences_of_a_person_are_one_record(noise, tmp_path):
    """On disk in another order than in memory, so without sampling, and in few steps, which amplify rounding little."""
    every = plan(n_steps=3, sampling_rate=1.0, noise=noise, max_rows_per_group=4, clip_norm=3.0)
    expected = CategoricalHMM(3, n_symbols=6, max_length=20, privacy=every, random_state=0)
    expected.fit(SEQUENCES, groups=pd.Series(IDS, name="patient"))
    parquet(tmp_path)
    sources = [
        regroup(source, by=by, to=tmp_path / str(i), n_partitions=3)
        for i, (source, by) in enumerate([(parquet(tmp_path), "id"), (shards(tmp_path), IDS)])
    ]
    for source in (*sources, regrouped(tmp_path / "0")):
        assert source.n_records == len(np.unique(IDS))
        emissions = expected.noisy_totals_.average["emissions"]
        np.testing.assert_allclose(totals(source, every), emissions, rtol=1e-9, atol=1e-9)
    assert CategoricalHMM(3, n_symbols=6, privacy=every).fit(sources[0]).privacy_.unit == "all rows of one id"


def test_rows_of_a_person_are_the_steps_of_one_sequence(tmp_path):
    steps = pa.table({"code": SEQUENCES.values[:, 0], "who": np.repeat(np.arange(200), SEQUENCES.lengths)})
    pq.write_table(steps, tmp_path / "steps.parquet", row_group_size=100)  # which cuts persons
    table = ParquetTable(tmp_path / "steps.parquet", ["code"])
    source = regroup(table, by="who", to=tmp_path / "by_who", n_partitions=2)
    every = plan(n_steps=3, sampling_rate=1.0)
    expected = totals(SEQUENCES, every, groups=np.arange(200))
    np.testing.assert_allclose(totals(source, every), expected, rtol=1e-9, atol=1e-9)


def test_dates_order_the_steps_of_a_person(tmp_path):
    """In Parquet, pandas and Dask, with dates, numbers and missing ones, which come last."""
    days = pd.Series(pd.to_datetime(["2024-03-01", "2024-01-01", None, "2024-02-01", "2023-01-01", "2024-02-01"]))
    frame = pd.DataFrame({"code": [1.0, 2, 3, 4, 5, 6], "who": ["b", "a", "b", "b", "a", "b"], "day": days})
    expected = sorted([[5.0, 2.0], [4.0, 6.0, 1.0, 3.0]])
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "steps.parquet", row_group_size=4)
    table = ParquetTable(tmp_path / "steps.parquet", ["code"])
    numbers = frame.assign(day=(days - days.min()).dt.days)
    sources = [
        regroup(table, by="who", order="day", to=tmp_path / "parquet"),
        regroup(table, by=frame["who"], order=numbers["day"], to=tmp_path / "array"),
        regroup(frame, by="who", order="day", to=tmp_path / "pandas"),
        regroup(numbers.convert_dtypes(), by="who", order="day", to=tmp_path / "nullable"),
        regroup(dask.dataframe.from_pandas(numbers, npartitions=2), by="who", order="day", to=tmp_path / "dask"),
    ]
    for source in sources:
        opened = [partition.open() for partition in source.partitions]
        persons = [steps[:, 0].tolist() for one in opened for steps in np.split(one.X, one.starts[1:-1])]
        assert sorted(filter(None, persons)) == expected  # a partition may be empty
    with pytest.raises(SourceError, match=r"`order` must hold numbers or dates, got type .*string"):
        regroup(table, by="who", order="who", to=tmp_path / "texts")
    with pytest.raises(ValueError, match="X and `order` have different numbers of rows"):
        regroup(table, by="who", order=np.arange(9), to=tmp_path / "longer")
    assert not (tmp_path / "longer").exists()


def test_a_person_of_many_steps_is_taken_in_pieces(tmp_path):
    source = regroup(InMemoryData(SEQUENCES), by=np.repeat([0, 1], [150, 50]), to=tmp_path / "two", n_partitions=1)
    model = CategoricalHMM(3, n_symbols=6, max_length=20, privacy=plan(n_steps=3, sampling_rate=1.0), random_state=0)
    averages = []
    for model.chunk_size in (100, 1_000_000):
        averages.append(model.fit(source).noisy_totals_.average["emissions"])
    np.testing.assert_allclose(*averages, rtol=1e-9, atol=1e-9)


# -- Parquet and Arrow ------------------------------------------------------------------------------------------------------


def test_vectors_are_lists_of_a_fixed_size_or_columns():
    vectors = pa.array([[[1, 2], None], None, [[3, None]], []], pa.list_(pa.list_(pa.float32(), 2)))
    expected = [[1, 2], [np.nan, np.nan], [3, np.nan]]
    sliced = pa.concat_arrays([vectors[2:], vectors]).slice(2)
    for lists in (vectors, sliced, pa.chunked_array([vectors[:1], vectors[1:]])):
        sequences = Sequences.from_arrow(lists)
        np.testing.assert_array_equal(sequences.values, expected)
        assert sequences.lengths.tolist() == [2, 0, 1, 0]


def test_columns_of_different_lengths_are_an_empty_sequence(tmp_path):
    pq.write_table(pa.table({"a": [[1, 2], [3], None], "b": [[4.0, None], [5.0, 6.0], []]}), tmp_path / "a.parquet")
    sequences = SequenceSource.from_parquet(tmp_path / "a.parquet", ["b", "a"]).partition(0).open().X
    np.testing.assert_array_equal(sequences.values, [[4, 1], [np.nan, 2]])
    assert sequences.lengths.tolist() == [2, 0, 0]


def test_columns_are_public_facts(tmp_path):
    pairs = pa.array([[[1, 2]]], pa.list_(pa.list_(pa.int8(), 2)))
    table = pa.table({"codes": [[1]], "names": [["x"]], "number": [1], "pairs": pairs})
    pq.write_table(table, tmp_path / "a.parquet")
    for columns, message in (("nowhere", "no column"), ("names", "type list<"), ("number", "type int64")):
        with pytest.raises(SourceError, match=message):
            SequenceSource.from_parquet(tmp_path, columns)
    pq.write_table(table.set_column(0, "codes", table["pairs"]), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b\.parquet: sequences have 2 columns, those of the first file 1"):
        SequenceSource.from_parquet(tmp_path, "codes")
    assert SequenceSource.from_parquet(tmp_path / "b.parquet", ["codes", "pairs"]).n_features == 4


def test_arrow_memory_that_does_not_fit_together_is_refused():
    ends = pa.py_buffer(np.array([0, 1_000_000, 3], np.int32).tobytes())
    forged = pa.ListArray.from_buffers(pa.list_(pa.int64()), 2, [None, ends], children=[pa.array([1, 2, 3])])
    with pytest.raises(ValueError, match=r"[Oo]ffset"):
        Sequences.from_arrow(forged)


# -- shards: writing, hostile files, memory -----------------------------------------------------------------------------------


def test_small_parts_are_written_together(tmp_path):
    source = write_sequences((LISTS[i : i + 1] for i in range(200)), tmp_path / "shards", n_features=1)
    assert sorted(os.listdir(tmp_path / "shards")) == ["00000.offsets.npy", "00000.values.npy"]
    np.testing.assert_array_equal(source.partition(0).open().X[:].values, SEQUENCES.values)
    with pytest.raises(FileExistsError):
        write_sequences(SEQUENCES, tmp_path / "shards")
    with pytest.raises(ValueError, match="has 2 columns, not 1"):
        write_sequences([SEQUENCES, Sequences.from_list([np.zeros((3, 2))])], tmp_path / "others")
    with pytest.raises(ValueError, match="n_features=1"):
        write_sequences([LISTS], tmp_path / "others")
    assert not (tmp_path / "others").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def promise_too_much(path):
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})


def replace_by(make):
    """Another kind of file in its place."""

    def replace(path):
        path.unlink()
        make(path)

    return replace


def other_array(change):
    """A file of a changed array in its place."""
    return lambda path: np.save(path, change(np.load(path)))


def descend(ends):
    ends[60] = ends[55]
    return ends


PLACES, NO_DIVISION, NO_ARRAY = np.arange(201), "do not divide the steps", "not a readable"
BROKEN = {
    "descend": ("offsets", other_array(descend), NO_DIVISION),
    "beyond": ("offsets", other_array(lambda ends: ends + 10**9 * (PLACES >= 60)), NO_DIVISION),
    "negative": ("offsets", other_array(lambda ends: ends - 5 * (PLACES == 0)), NO_DIVISION),
    "other values": ("values", other_array(lambda values: values[:-1]), NO_DIVISION),
    "huge unsigned": ("offsets", other_array(lambda ends: np.where(PLACES == 60, 2**64 - 1, ends.astype(np.uint64))),
                      NO_DIVISION),
    "floats": ("offsets", other_array(lambda ends: ends.astype(float)), "must hold integers as offsets"),
    "no offsets": ("offsets", other_array(lambda ends: ends[:0]), "must hold integers as offsets"),
    "complex": ("values", other_array(lambda values: values.astype(complex)), "complex128"),
    "objects": ("values", other_array(lambda values: np.array([None, {}])), NO_ARRAY),
    "torn": ("values", cut, NO_ARRAY),
    "torn offsets": ("offsets", cut, NO_ARRAY),
    "promises too much": ("values", promise_too_much, NO_ARRAY),
    "wide": ("values", other_array(lambda values: np.zeros((len(values), 2, 2))), "3 dimensions"),
    "pipe": ("offsets", replace_by(os.mkfifo), "is not a file"),
    "loop": ("offsets", replace_by(lambda path: path.symlink_to(path)), "cannot be read"),
    "missing": ("offsets", os.remove, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize(("array", "spoil", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_shards_are_named(array, spoil, message, tmp_path):
    shards(tmp_path)
    spoil(tmp_path / "shards" / f"00000.{array}.npy")
    with pytest.raises(SourceError, match=message):
        totals(SequenceSource.from_shards(tmp_path / "shards", partition_size=50))


def test_shards_that_change_stop_the_fit(tmp_path):
    source = shards(tmp_path)
    other_array(descend)(tmp_path / "shards" / "00000.offsets.npy")
    with pytest.raises(SourceError, match="has changed"):
        totals(source)
    other = write_sequences([[np.zeros((3, 2))]], tmp_path / "pairs", n_features=2)
    with pytest.raises(SourceError, match="has 2 columns, the data source has 1"):
        SequenceSource.from_shards(tmp_path / "pairs", n_features=1)
    with pytest.raises(TypeError, match="takes rows of a table"):
        BayesianGaussianMixture(2, max_norm=1.0, privacy=plan()).fit(other)


def test_memory_is_bounded_by_a_chunk_of_steps(tmp_path):
    """Short sequences, one of a quarter of a million steps, and all of one person: less is held at once than the files have."""
    rng = np.random.default_rng(0)
    parts = [list(rng.integers(0, 6, (1_000, 75))) for _ in range(5)] + [[rng.integers(0, 6, 250_000)]]
    source = write_sequences(parts, tmp_path / "shards", n_features=1)
    on_disk = sum(file.stat().st_size for file in (tmp_path / "shards").iterdir())  # 5 MB
    ids = np.zeros(source.n_records, int)
    person = regroup(source, by=ids, to=tmp_path / "person", n_partitions=1)
    model = CategoricalHMM(3, n_symbols=6, privacy=plan(n_steps=1), random_state=0)
    model.chunk_size = 5_000
    for data in (source, person):
        assert peak_of(lambda data=data: model.fit(data)) < on_disk / 3 + NOISE


def test_what_dask_computes_is_checked():
    for part, message in ((np.zeros(3), "must compute to"), (Sequences.from_list([np.zeros((3, 2))]), "2 columns")):
        with pytest.raises(SourceError, match=message):
            totals(SequenceSource.from_dask([dask.delayed(part)]))
    assert totals(SequenceSource.from_dask([dask.delayed([[0, 1], [[1], [2, 3]], np.zeros((2, 2))])])).shape == (3, 6)
    with pytest.raises(TypeError, match="list of delayed objects"):
        SequenceSource.from_dask(LISTS)
    for collection in (dask.bag.from_sequence(LISTS), dask.dataframe.from_dict({"a": [1]}, npartitions=1)):
        with pytest.raises(TypeError, match=r"from_dask\(parts\).*regroup"):
            totals(collection)


def test_an_error_of_what_dask_computes_is_not_quoted(tmp_path):
    """It may quote a record."""
    source = SequenceSource.from_dask([dask.delayed(quoting)(np.full((2, 2), 9.0))], 2)
    fits = [
        lambda: GaussianHMM(2, privacy=plan(n_steps=1, sampling_rate=1.0), max_norm=3.0).fit(source),
        lambda: regroup(source, by=np.zeros(1, int), to=tmp_path / "by"),
    ]
    for fit in fits:
        with pytest.raises(SourceError, match="ValueError in quoting") as caught:
            fit()
        assert "diagnosis" not in "".join(traceback.format_exception(caught.value))


def quoting(part):
    raise ValueError(f"diagnosis {part.max()} of patient 17")
