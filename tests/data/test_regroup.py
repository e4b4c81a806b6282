"""Persons on disk: `regroup` brings their rows together, and a fit to its folder protects them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from dataclasses import replace
from decimal import Decimal

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import vips
from tests.data.test_groups import KINDS, NOBODY, PLAN, SAME, clipped_sum, coordinates, grouped, of_every_kind, prepared
from tests.laws.cases import BetaBernoulli
from tests.laws.checks import last_phase
from tests.memory import peak_of
from tests.mutants import check_notices
from tests.steps import Stop, stopped_after
from vips import DirichletMultinomial, LatentDirichletAllocation, LedgerError, PrivacyLedger
from vips.core.records.groups import canonical_id
from vips.data import (
    CSRShards,
    DaskSource,
    DataSource,
    InMemoryData,
    NpySource,
    ParquetDocuments,
    ParquetTable,
    Sequences,
    SequenceSource,
    SourceError,
    regroup,
    regrouped,
    write_sequences,
)
from vips.data import _grouped as grouped_module
from vips.data import _regroup as regroup_module

RNG = np.random.default_rng(0)
N = 90
X, Y = RNG.integers(0, 3, (N, 4)).astype(float), RNG.integers(0, 2, N).astype(float)
IDS = RNG.integers(0, 25, N)
N_PERSONS = len(np.unique(IDS))


def persons_of(source: DataSource) -> list[list]:
    """The rows of each person, in their order; labels are last columns."""
    persons = []
    for partition in source.partitions:
        opened = partition.open()
        rows = opened.X.toarray() if sp.issparse(opened.X) else opened.X
        rows = rows if opened.y is None else np.column_stack([rows, opened.y])
        persons += [rows[a:b].tolist() for a, b in zip(opened.starts[:-1], opened.starts[1:], strict=True)]
    return sorted(persons)


def persons_in(rows, ids) -> list[list]:
    return sorted(rows[ids == person].tolist() for person in np.unique(ids))


# -- sources ------------------------------------------------------------------------------------------------


def write_parquet(folder, ids):
    folder.mkdir()
    columns = {f"x{i}": X[:, i] for i in range(4)} | {"y": Y, "words": [list(map(int, row)) for row in X]}
    table = pa.table(columns | {"pid": ids})
    for first in range(0, N, 30):
        pq.write_table(table.slice(first, 30), folder / f"{first}.parquet", row_group_size=11)
    return folder


def write_shards(folder, rows=X, labels=Y, ids=IDS, size=30):
    folder.mkdir()
    for first in range(0, rows.shape[0], size):
        part, span = sp.csr_array(rows[first : first + size]), slice(first, first + size)
        parts = {"data": part.data, "indices": part.indices, "indptr": part.indptr, "y": labels[span], "pid": ids[span]}
        np.savez(folder / f"{first:05d}.npz", format=b"csr", shape=part.shape, **parts)
    return folder


def parquet_table(path):
    return {"X": ParquetTable(write_parquet(path, IDS), [f"x{i}" for i in range(4)], "y"), "by": "pid"}


def shards(path):
    return {"X": CSRShards(write_shards(path), labels="y"), "by": "pid"}


def shards_and_array(path):
    return {"X": CSRShards(write_shards(path), labels="y"), "by": pd.Series(IDS, index=IDS, name="pid")}


def memory_map(path):
    path.mkdir()
    np.save(path / "X.npy", X)
    np.save(path / "y.npy", Y)
    return {"X": NpySource(path / "X.npy", path / "y.npy", partition_size=20), "by": pa.array(IDS.astype(str))}


def arrays(path):
    return {"X": X, "y": Y, "by": IDS.tolist()}


def data_frame(path):
    return {"X": pd.DataFrame(X, columns=list("abcd")).assign(pid=IDS.astype(str)), "y": Y, "by": "pid"}


def dask_arrays(path):
    x, y, ids = (da.from_array(array, chunks=(20, *array.shape[1:])) for array in (X, Y, IDS))
    return {"X": x, "y": y, "by": ids}


def dask_frame(path):
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(y=Y, pid=IDS.astype(str)), npartitions=4)
    return {"X": frame.drop(columns="y"), "y": frame["y"], "by": "pid"}


SOURCES = [parquet_table, shards, shards_and_array, memory_map, arrays, data_frame, dask_arrays, dask_frame]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("n_partitions", [None, 1, 7])
def test_rows_of_every_source_are_brought_together(make, n_partitions, tmp_path):
    call = make(tmp_path / "source")
    source = regroup(**call, to=tmp_path / "g", n_partitions=n_partitions)
    assert persons_of(source) == persons_in(np.column_stack([X, Y]), IDS)
    assert source.n_records == N_PERSONS
    assert source.n_features == 4
    assert source.has_groups
    names_ids = isinstance(call["by"], str | pd.Series)
    assert source.group_name == ("pid" if names_ids else None)
    assert source.n_partitions == n_partitions or n_partitions is None
    assert persons_of(regrouped(tmp_path / "g")) == persons_of(source)
    if make in (data_frame, dask_frame):
        assert source.feature_names == ("a", "b", "c", "d")


def test_documents(tmp_path):
    documents = ParquetDocuments(write_parquet(tmp_path / "p", IDS), "words", 3)
    source = regroup(documents, by="pid", to=tmp_path / "g", n_partitions=3)
    counts = np.stack([(word == X).sum(axis=1) for word in range(3)], axis=1).astype(float)
    assert persons_of(source) == persons_in(counts, IDS)
    model = LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN, random_state=0).fit(source)
    assert model.privacy_.unit == "all rows of one pid"


def test_an_empty_source_is_ordinary(tmp_path):
    empty = {name: pa.array([], kind) for name, kind in (("a", pa.float64()), ("b", pa.int8()), ("pid", pa.int64()))}
    pq.write_table(pa.table(empty), tmp_path / "t.parquet")
    for i, (rows, by) in enumerate(
        [(ParquetTable(tmp_path / "t.parquet", ["a", "b"]), "pid"), (np.ones((0, 2)), []), (np.ones((3, 2)), [None, 1.5, [7]]),
         (sp.csr_array((3, 2)), [None] * 3)]
    ):  # fmt: skip
        source = regroup(rows, by=by, to=tmp_path / str(i), n_partitions=2)
        assert source.sizes == (0, 0)
        assert np.isfinite(DirichletMultinomial(privacy=PLAN).fit(source).last_posterior_.mean).all()


def test_rows_of_nobody_are_left_out(tmp_path):
    ids = [1, None, 1.0, np.nan, "x", True, 1.5, "x", b"x", 2.0**60, 2**60, np.float32(3), "3"]
    rows = np.arange(13.0)[:, None]
    source = regroup(rows, by=ids, to=tmp_path / "g", n_partitions=3)
    assert persons_of(source) == [[[0], [2], [5]], [[4], [7], [8]], [[10]], [[12]]]
    ids = np.array(["a", "b", "a"])
    ids.view(np.uint32)[1] = 0x7FFFFFFF  # which Python cannot read
    assert persons_of(regroup(np.arange(3.0)[:, None], by=ids, to=tmp_path / "unread")) == [[[0], [2]]]


def test_files_whose_ids_have_different_types_hold_the_same_persons(tmp_path):
    kinds = [
        pa.int64(), pa.string(), pa.float64(), pa.binary(), pa.dictionary(pa.int8(), pa.string()), pa.decimal128(9, 0),
    ]  # fmt: skip
    for i, kind in enumerate(kinds):
        ids = pa.array([*map(Decimal, "789")] if pa.types.is_decimal(kind) else list("789"))
        pq.write_table(pa.table({"x": np.arange(3.0) + 10 * i, "pid": ids.cast(kind)}), tmp_path / f"{i}.parquet")
    source = regroup(ParquetTable(tmp_path, ["x"]), by="pid", to=tmp_path / "g", n_partitions=2)
    assert persons_of(source) == [[[person + 10.0 * i] for i in range(len(kinds))] for person in range(3)]


def test_hostile_ids_are_those_in_memory(tmp_path):
    ids = [value for values in SAME for value in values] + NOBODY
    rows = np.arange(float(len(ids)))[:, None]
    forms = [canonical_id(value) for value in ids]
    expected = [rows[[form == person for form in forms]].tolist() for person in set(forms) - {None}]
    source = regroup(InMemoryData(rows, partition_size=3), by=ids, to=tmp_path / "g", n_partitions=4)
    assert persons_of(source) == sorted(expected)
    assert source.n_records == len(SAME)


ID_TYPES = [
    pa.int64(), pa.int8(), pa.uint64(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
    pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64()), pa.binary(2),
]  # fmt: skip


@pytest.mark.parametrize("kind", ID_TYPES, ids=str)
def test_ids_in_parquet_are_those_in_memory(kind, tmp_path):
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(value) or pa.types.is_large_string(value) or value == pa.string_view()
    is_bytes = pa.types.is_binary(value) or pa.types.is_fixed_size_binary(value)
    forms = (f"{code:02d}" if is_text else f"{code:02d}".encode() if is_bytes else int(code) for code in IDS)
    ids = np.array([*forms], object)
    ids[::10] = None
    column = pa.array(ids.tolist(), value)
    column = column.dictionary_encode().cast(kind) if value != kind else column
    source = ParquetTable(write_parquet(tmp_path / "p", column), [f"x{i}" for i in range(4)])
    known = ids != None  # noqa: E711
    expected = persons_in(X[known], ids[known])
    assert persons_of(regroup(source, by="pid", to=tmp_path / "a", n_partitions=3)) == expected
    assert persons_of(regroup(X, by=ids.tolist(), to=tmp_path / "b", n_partitions=2)) == expected
    assert persons_of(regroup(X, by=column, to=tmp_path / "c")) == expected


def test_one_person_may_have_ids_of_several_dtypes(tmp_path):
    """Chunks of Dask where one has a missing id, and was converted to floats."""
    parts = [{"a": [1.0, 2.0], "pid": [7, 8]}, {"a": [3.0, 4.0, 5.0], "pid": [7.0, np.nan, 8.0]}]
    frame = dd.from_map(pd.DataFrame, parts, meta=pd.DataFrame(parts[1]))
    assert persons_of(regroup(frame, by="pid", to=tmp_path / "g", n_partitions=3)) == [[[1], [3]], [[2], [5]]]


# -- sums ---------------------------------------------------------------------------------------------------


def as_sources(records, ids, tmp_path, tag):
    """The records as shards (if sparse, or sequences) or memory maps, scattered over files."""
    rows, labels = records[0], records[1] if len(records) > 1 else None
    if isinstance(rows, Sequences):
        write_sequences([rows[:15], rows[15:]], tmp_path / f"{tag}-source")
        return SequenceSource.from_shards(tmp_path / f"{tag}-source", partition_size=7)
    folder = tmp_path / f"{tag}-source"
    if sp.issparse(rows):
        write_shards(folder, rows, np.zeros(len(ids)) if labels is None else labels, ids, size=7)
        return CSRShards(folder, labels=None if labels is None else "y")
    folder.mkdir()
    np.save(folder / "X.npy", rows)
    if labels is not None:
        np.save(folder / "y.npy", labels)
    return NpySource(folder / "X.npy", None if labels is None else folder / "y.npy", partition_size=7)


def sum_on_disk(model, records, ids, plan, posterior, tmp_path, tag):
    source = regroup(as_sources(records, ids, tmp_path, tag), by=ids, to=tmp_path / tag, n_partitions=3)
    return clipped_sum(model, model.records_of(source, None), plan, posterior)


@of_every_kind
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_sums_are_those_of_persons_in_memory(case, noise, tmp_path):
    model, posterior, plan, records, ids = prepared(case, noise, n_persons=8)
    sums = sum_on_disk(model, records, ids, plan, posterior, tmp_path, "g")
    expected = clipped_sum(model, grouped(model, records, ids, plan), plan, posterior)
    for name, value in expected.items():
        if noise == "discrete":  # a function of the set of persons
            np.testing.assert_array_equal(sums[name], value)
        else:
            np.testing.assert_allclose(sums[name], value, rtol=1e-9, atol=1e-9 * plan.clip_norm)


def hostile_rows(rows):
    """Rows that are enormous, opposite, NaN and infinite."""
    rows = rows.copy()
    values = rows.data if sp.issparse(rows) else getattr(rows, "values", rows)
    values[::3] *= 1e6
    values[1::7] = -values[1::7]
    values[:2] = [np.nan, np.inf] if values.ndim == 1 else [[np.nan], [np.inf]]
    return rows


@of_every_kind
def test_a_person_moves_the_sum_by_at_most_one_clip(case, tmp_path):
    model, posterior, plan, records, ids = prepared(case, n_persons=8)
    person, rng = 3, np.random.default_rng(3)
    rows_of_person = np.flatnonzero(ids == person)
    added = [
        hostile_rows(records[0][rng.choice(rows_of_person, 50)].astype(float)),
        *(array[rng.choice(rows_of_person, 50)] for array in records[1:]),
    ]
    stack = sp.vstack if sp.issparse(records[0]) else np.concatenate
    stack = Sequences.joined if isinstance(records[0], Sequences) else stack
    rows = stack([records[0], added[0]])
    everybody = [sp.csr_array(rows) if sp.issparse(rows) else rows] + [
        np.concatenate([a, b]) for a, b in zip(records[1:], added[1:], strict=True)
    ]
    order = rng.permutation(90)
    everybody, ids = [array[order] for array in everybody], np.append(ids, np.full(50, person))[order]
    sums = []
    for tag, kept in (("with", ids >= 0), ("without", ids != person)):
        part = sum_on_disk(model, [array[kept] for array in everybody], ids[kept], plan, posterior, tmp_path, tag)
        sums.append(coordinates(part, last_phase(model).blocks))
    moved = np.linalg.norm(sums[0] - sums[1])
    assert moved <= plan.clip_norm * (1.0 + 1e-6), "a person moves the sum by more than one clip"


def test_coins_are_of_persons(tmp_path):
    """With few persons of many rows, samples hold all rows of a person or none."""
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(50), 40))
    rows = np.zeros((2000, 50))
    rows[np.arange(2000), ids] = 1.0
    np.save(tmp_path / "X.npy", rows)
    source = regroup(NpySource(tmp_path / "X.npy", partition_size=100), by=ids, to=tmp_path / "g", n_partitions=4)
    plan = replace(PLAN, clip_norm=1e6, noise_multiplier=1e-6)
    model = DirichletMultinomial(privacy=plan, random_state=0).fit(source)
    totals = clipped_sum(model, source, plan, model.last_posterior_)
    counts = np.concatenate([np.ravel(value) for value in totals.values()])
    assert set(np.unique(counts)) == {0.0, 40.0}, "a sample holds some rows of a person"
    assert 5 < (counts > 0).sum() < 45


def key_of_each_partition(patch):
    """Hashes of one id differ from one partition of the source to the next."""
    original = regroup_module.hashes_of_ids
    patch.setattr(regroup_module, "hashes_of_ids", lambda ids, key: original(ids, os.urandom(32)))


def persons_by_rows(patch):
    """Every row is a person of its own."""
    original = grouped_module.GroupedPartition.open
    patch.setattr(grouped_module.GroupedPartition, "open", lambda self: replace(original(self), starts=None))


def rows_out_of_step(patch):
    """Persons are sorted, and their rows are not."""
    patch.setattr(regroup_module, "_chunks", lambda order, size: [np.sort(order)])


@pytest.mark.parametrize("mutant", [key_of_each_partition, persons_by_rows, rows_out_of_step])
def test_checks_notice_broken_copies(mutant, tmp_path, monkeypatch):
    check_notices(lambda: test_coins_are_of_persons(tmp_path), mutant, monkeypatch, "some rows of a person")


@pytest.mark.parametrize("mutant", [key_of_each_partition, persons_by_rows])
def test_the_law_of_one_clip_notices_broken_copies(mutant, tmp_path, monkeypatch):
    case = next(case for case in KINDS if isinstance(case.make_model(), DirichletMultinomial))

    check = lambda: test_a_person_moves_the_sum_by_at_most_one_clip(case, tmp_path)  # noqa: E731
    check_notices(check, mutant, monkeypatch, "more than one clip")


def test_rows_beyond_the_bound_are_the_last_ones(tmp_path):
    rows, ids = np.repeat(np.eye(4), 5, axis=0)[RNG.permutation(20)], np.zeros(20, int)
    np.save(tmp_path / "X.npy", rows)
    source = regroup(NpySource(tmp_path / "X.npy", partition_size=3), by=ids, to=tmp_path / "g")
    plan = replace(PLAN, sampling_rate=1.0, clip_norm=1e6, max_rows_per_group=7)
    model = DirichletMultinomial(privacy=plan).fit(source)
    total = clipped_sum(model, source, plan, model.last_posterior_)
    np.testing.assert_array_equal(np.ravel(next(iter(total.values()))), rows[:7].sum(axis=0))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_person_of_more_rows_than_a_chunk(sparse, tmp_path, monkeypatch):
    monkeypatch.setattr(regroup_module, "_CHUNK_BYTES", 256)
    rows = RNG.integers(0, 2, (3000, 4)).astype(float)
    ids = np.where(np.arange(3000) % 5, 1, np.arange(3000))
    data = InMemoryData(sp.csr_array(rows) if sparse else rows, partition_size=70)
    source = regroup(data, by=ids, to=tmp_path / "g", n_partitions=2)
    assert persons_of(source) == persons_in(rows, ids)
    model = BetaBernoulli if not sparse else DirichletMultinomial
    assert model(privacy=PLAN).fit(source).privacy_.unit == "all rows of one group"


def test_memory_does_not_grow_with_the_rows_of_a_person(tmp_path, monkeypatch):
    monkeypatch.setattr(regroup_module, "_CHUNK_BYTES", 2**19)
    n, width = 20_000, 128
    rows = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, (n, width))
    rows[:] = 0.5
    rows.flush()
    ids = np.arange(n) // 19_000
    data, folder = NpySource(tmp_path / "X.npy", partition_size=1000), tmp_path / "g"
    assert peak_of(lambda: regroup(data, by=ids, to=folder, n_partitions=2), only_once=True) < rows.nbytes / 3
    assert peak_of(lambda: BetaBernoulli(privacy=PLAN).fit(regrouped(folder))) < rows.nbytes / 3


def test_entries_of_columns_that_do_not_exist_stay_defective(tmp_path):
    wide = sp.csr_array((np.ones(4), np.array([0, 2**32 + 1, -1, 1]), np.arange(5)), shape=(4, 2**33))
    wide.indices = wide.indices.astype(np.int64)
    view = sp.csr_array((4, 3))
    view.data, view.indices, view.indptr = wide.data, wide.indices, wide.indptr
    source = regroup(InMemoryData(view), by=[1, 2, 3, 4], to=tmp_path / "g")
    model = DirichletMultinomial(privacy=replace(PLAN, sampling_rate=1.0, clip_norm=10.0)).fit(source)
    total = clipped_sum(model, source, model.privacy, model.last_posterior_)
    np.testing.assert_array_equal(np.ravel(next(iter(total.values()))), [1, 1, 0])


# -- the folder ---------------------------------------------------------------------------------------------


def test_the_folder_holds_no_id_and_no_key(tmp_path, monkeypatch):
    keys = []
    original = regroup_module.hashes_of_ids
    monkeypatch.setattr(regroup_module, "hashes_of_ids", lambda ids, key: keys.append(key) or original(ids, key))
    regroup(np.zeros((2, 2)), by=pd.Series(["Ada Lovelace", "Grace Hopper"], name="who"), to=tmp_path / "g")
    content = b"".join(file.read_bytes() for file in (tmp_path / "g").rglob("*") if file.is_file())
    assert len(keys) == 1
    for secret in (keys[0], keys[0].hex().encode(), b"Ada Lovelace", canonical_id("Ada Lovelace")):
        assert secret not in content
    facts = json.loads((tmp_path / "g" / "manifest.json").read_text())
    assert facts.pop("token").isalnum()
    assert facts == {
        "format": "vips rows grouped by person", "version": 1, "grouped_by": "who", "n_partitions": 1, "n_features": 2,
        "feature_names": None, "kind": "rows", "has_labels": False,
    }  # fmt: skip


@pytest.mark.fresh_bits
def test_keys_are_fresh(tmp_path):
    first, second = (np.load(regroup(X, by=IDS, to=tmp_path / to).partition(0).files["persons"].path) for to in "ab")
    assert not np.isin(first, second).any()


def test_an_existing_folder_is_never_overwritten(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("empty", "file", "link"):
        with pytest.raises(FileExistsError, match="never overwritten"):
            regroup(X, by=IDS, to=tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "link"]


def killed_at(where, name, call, folder):
    """Killed instead of this call."""
    owner, calls = {"regroup": regroup_module, "os": os, "manifest": regroup_module.Manifest}[where], []
    original = getattr(owner, name)

    def function(*arguments, **settings):
        calls.append(0)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **settings)

    setattr(owner, name, function)
    regroup(InMemoryData(np.ones((90, 2)), partition_size=10), by=np.arange(90) % 20, to=folder / "g", n_partitions=4)


@pytest.mark.parametrize(
    ("where", "name", "call"),
    [
        ("regroup", "hashes_of_ids", 5), ("regroup", "write_grouped", 4), ("os", "rename", 1), ("regroup", "hashes_of_ids", 1),
        ("regroup", "write_grouped", 1), ("manifest", "to_json", 1),
    ],
)  # fmt: skip
@pytest.mark.representatives("regroup-write_grouped-4", "os-rename-1")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_killed_process_leaves_nothing_to_be_taken_for_complete(where, name, call, tmp_path, forkserver):
    process = forkserver.Process(target=killed_at, args=(where, name, call, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "g").exists()
    (left,) = tmp_path.iterdir()
    assert re.fullmatch(r"\.g\.[0-9a-f]+\.partial", left.name)
    if name != "rename":  # where only the name is missing
        with pytest.raises(SourceError, match="finished writing"):
            regrouped(left)
    assert regroup(X, by=IDS, to=tmp_path / "g").n_records == N_PERSONS


def test_an_error_removes_what_was_written(tmp_path):
    rows = da.from_array(np.ones((40, 2)), chunks=(10, 2)).map_blocks(fails_in_the_third)
    for by in (np.arange(40), da.from_array(np.arange(40), chunks=10)):
        says = "chunk 2 cannot be computed: RuntimeError in fails_in_the_third"
        with pytest.raises(SourceError, match=says) as failed:
            regroup(rows, by=by, to=tmp_path / "g")
        assert "secret" not in str(failed.value)
        assert failed.value.__context__ is failed.value.__cause__ is None
    assert not list(tmp_path.iterdir())


def fails_in_the_third(block, block_info=None):
    if block_info and block_info[0]["chunk-location"][0] == 2:
        raise RuntimeError("secret")
    return block


def two_folders(tmp_path):
    return [regroup(X, Y, by=IDS, to=tmp_path / name, n_partitions=3) for name in ("a", "b")]


def files_of(source, i):
    return {name: stamp.path for name, stamp in source.partition(i).files.items()}


def another_partition(a, b):
    for name, path in files_of(a, 0).items():
        shutil.copy(files_of(a, 1)[name], path)


def a_person_twice(a, b):
    for name in ("persons", "X", "y"):
        path = files_of(a, 0)[name]
        array = np.load(path)
        np.save(path, np.concatenate([array, array]))
    starts = np.load(files_of(a, 0)["starts"])
    np.save(files_of(a, 0)["starts"], np.concatenate([starts, starts[1:] + starts[-1]]))


def a_person_in_two_partitions(a, b):
    persons = np.load(files_of(a, 0)["persons"])
    persons[-1] = np.load(files_of(a, 1)["persons"])[-1]
    np.save(files_of(a, 0)["persons"], persons)


def more_rows(a, b):
    for name in ("X", "y"):
        array = np.load(files_of(a, 0)[name])
        np.save(files_of(a, 0)[name], np.concatenate([array, array[:1]]))


def starts_that_fall(a, b):
    starts = np.load(files_of(a, 0)["starts"])
    starts[1:3] = starts[2:0:-1]
    np.save(files_of(a, 0)["starts"], starts)


def starts_of_floats(a, b):
    np.save(files_of(a, 0)["starts"], np.load(files_of(a, 0)["starts"]).astype(float))


CHANGES = [another_partition, a_person_twice, a_person_in_two_partitions, more_rows, starts_that_fall, starts_of_floats]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_folders_are_refused(tmp_path, change):
    change(*two_folders(tmp_path))
    try:
        DirichletMultinomial(privacy=PLAN).fit(regrouped(tmp_path / "a"))
    except SourceError as error:
        assert "whole persons any more" in str(error), error  # noqa: PT017
    else:
        raise AssertionError(f"{change.__name__} is not noticed")


def test_the_check_of_changes_notices_its_absence(tmp_path, monkeypatch):
    def unchecked(patch):
        patch.setattr(grouped_module.GroupedPartition, "_holds_whole_persons", lambda *arguments: True)

    check = lambda: test_changed_folders_are_refused(tmp_path, a_person_in_two_partitions)  # noqa: E731
    check_notices(check, unchecked, monkeypatch, "not noticed")


def test_folders_that_were_mixed_are_refused(tmp_path):
    _, b = two_folders(tmp_path)
    model = DirichletMultinomial(privacy=PLAN)
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)  # complete: partitions of `a` are ignored
    assert persons_of(regrouped(tmp_path / "a")) == persons_of(b)
    shutil.rmtree(tmp_path / "a" / os.path.basename(b.partition(1).name))
    with pytest.raises(SourceError, match="cannot be read"):
        regrouped(tmp_path / "a")
    source = regrouped(tmp_path / "b")
    more_rows(b, b)
    with pytest.raises(SourceError, match="changed since"):
        model.fit(source)


@pytest.mark.parametrize(
    "facts",
    [{"version": 2}, {"n_partitions": 0}, {"n_partitions": 1.5}, {"token": "../x"}, {"token": 5}, {"n_features": None},
     {"feature_names": ["a"]}, {"kind": "columns"}, {"grouped_by": 5}, {"format": "other"}, {"more": 1}],
    ids=str,
)  # fmt: skip
def test_other_manifests_are_refused(facts, tmp_path):
    regroup(X, by=IDS, to=tmp_path / "g")
    path = tmp_path / "g" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))
    with pytest.raises(SourceError):
        regrouped(tmp_path / "g")
    for content in ("", "[]", "{", '{"format": []}'):
        path.write_text(content)
        with pytest.raises(SourceError, match=r"no readable manifest\.json"):
            regrouped(tmp_path / "g")


# -- fits ---------------------------------------------------------------------------------------------------


def test_a_fit_states_its_unit_everywhere(tmp_path):
    source = regroup(X, by=pd.Series(IDS, name="patient_id"), to=tmp_path / "g")
    ledger = PrivacyLedger(tmp_path / "a.ledger", 20.0, 1e-5, "patient_id")
    model = DirichletMultinomial(privacy=PLAN).fit(source, ledger=ledger)
    assert model.privacy_.unit == "all rows of one patient_id"
    assert len(ledger.runs()) == 1
    assert "one record is all rows with one id" in str(model.privacy_)
    with pytest.raises(LedgerError):
        DirichletMultinomial(privacy=PLAN).fit(X, ledger=ledger)
    with pytest.raises(Stop):
        stopped_after(DirichletMultinomial(privacy=PLAN), 1).fit(source, checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="unit"):
        DirichletMultinomial(privacy=PLAN).fit(X, checkpoint=tmp_path / "fit")
    DirichletMultinomial(privacy=PLAN).fit(source, checkpoint=tmp_path / "fit")
    model.save(tmp_path / "m.vips")
    assert vips.load(tmp_path / "m.vips").privacy_.unit == "all rows of one patient_id"


def test_fits_that_are_not_private_count_persons_and_have_the_bound_of_all_rows(tmp_path):
    source = regroup(X, Y, by=IDS, to=tmp_path / "g", n_partitions=2)
    mean = DirichletMultinomial(random_state=0).fit(source).last_posterior_.mean
    np.testing.assert_allclose(mean, DirichletMultinomial(random_state=0).fit(X, groups=IDS).last_posterior_.mean)
    on_disk, in_memory = (vips.BayesianLogisticRegression(max_norm=4.0, random_state=0) for _ in range(2))
    fitted, expected = on_disk.fit(source), in_memory.fit(X, Y, groups=IDS)
    np.testing.assert_allclose(fitted.last_posterior_.mean, expected.last_posterior_.mean, rtol=1e-5)  # by other steps
    np.testing.assert_allclose(fitted.bound_, expected.bound_)


def test_no_other_source_takes_persons_for_rows(tmp_path):
    regroup(X, by=IDS, to=tmp_path / "g")
    for make in (CSRShards, NpySource, lambda path: ParquetTable(path, ["x0"])):
        with pytest.raises(SourceError):
            make(tmp_path / "g")


def test_what_has_no_guarantee_is_refused(tmp_path):
    source = regroup(X, by=pd.Series(IDS, name="pid"), to=tmp_path / "g")
    with pytest.raises(ValueError, match="holds persons already, by pid"):
        DirichletMultinomial(privacy=PLAN).fit(source, groups=IDS)
    with pytest.raises(ValueError, match="max_rows_per_group"):
        DirichletMultinomial(privacy=replace(PLAN, noise="discrete")).fit(source)
    with pytest.raises(ValueError, match="holds persons already"):
        regroup(source, by=IDS, to=tmp_path / "h")
    DirichletMultinomial(privacy=replace(PLAN, noise="discrete", max_rows_per_group=3)).fit(source)
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize(
    ("rows", "by", "error", "message"),
    [
        ("visits", IDS, TypeError, "got a path"),
        (X, "pid", ValueError, "no column to take ids from"),
        (X, 5, TypeError, "one id for each row"),
        (X, IDS[:-1], ValueError, "different numbers of rows"),
        (X, np.append(IDS, 1), ValueError, "different numbers of rows"),
        (X, np.zeros(N, "M8[s]"), TypeError, "to int64 or strings"),
        (X, da.from_array(IDS), ValueError, "pass X as one, too"),
        (da.from_array(X, chunks=(30, 4)), da.from_array(IDS, chunks=20), ValueError, "same chunks"),
        (da.from_array(X, chunks=(30, 4)), da.from_array(IDS, chunks=(29, 31, 30)), ValueError, "different numbers of rows"),
        (pd.DataFrame(X), "pid", ValueError, "no column 'pid'"),
        (pd.DataFrame(X, columns=list("aabb")), "a", ValueError, "no column 'a', or two"),
        (X.tolist(), IDS, TypeError, "got list"),
        (X[:, :0], IDS, ValueError, "no columns"),
    ],
)  # fmt: skip
def test_bad_arguments(rows, by, error, message, tmp_path):
    with pytest.raises(error, match=message):
        regroup(rows, by=by, to=tmp_path / "g")
    assert not list(tmp_path.iterdir())


def test_columns_and_dtypes_are_public_facts(tmp_path):
    days = pa.array(np.zeros(N), pa.float64()).cast(pa.int64()).cast(pa.timestamp("s"))
    source = ParquetTable(write_parquet(tmp_path / "p", days), ["x0"])
    for by, message in (("pid", "to int64 or strings"), ("nowhere", "no column 'nowhere'")):
        with pytest.raises(SourceError, match=message):
            regroup(source, by=by, to=tmp_path / "g")
    rounded = pa.array(IDS.tolist(), pa.float32())
    with pytest.raises(SourceError, match="to int64 or strings"):
        regroup(ParquetTable(write_parquet(tmp_path / "q", rounded), ["x0"]), by="pid", to=tmp_path / "g")
    with pytest.raises(SourceError, match="must hold the arrays"):
        regroup(CSRShards(write_shards(tmp_path / "s")), by="nowhere", to=tmp_path / "g")
    odd = da.from_array(X.astype(np.int8), chunks=(30, 4)).map_blocks(
        lambda block, block_info: block * 1j if block_info[0]["chunk-location"][0] else block, dtype=np.int8
    )
    with pytest.raises(SourceError, match=r"chunk 1: .*complex128"):
        regroup(odd, by=IDS, to=tmp_path / "g")
    for n_partitions in (0, 1.5, True):
        with pytest.raises(ValueError, match="n_partitions"):
            regroup(X, by=IDS, to=tmp_path / "g", n_partitions=n_partitions)
    assert not (tmp_path / "g").exists()


def suggested(fit, names, folder):
    """What the error of a fit proposes, done."""
    with pytest.raises(TypeError, match="cannot promise that all rows of a person") as refused:
        fit()
    code = re.search(r"vips\.data\.regroup\(.*\)", str(refused.value))[0]
    return eval(code.replace("a_new_folder", str(folder)), {"vips": vips} | names)


def test_fits_to_other_sources_say_what_to_write(tmp_path):
    model = DirichletMultinomial(privacy=PLAN)
    expected = persons_in(X, IDS)
    table = ParquetTable(write_parquet(tmp_path / "p", IDS), [f"x{i}" for i in range(4)])
    source = suggested(lambda: model.fit(table, groups="pid"), {"X": table}, tmp_path / "a")
    assert persons_of(source) == expected
    collection = DaskSource(da.from_array(X, chunks=(20, 4)))
    ids = da.from_array(IDS, chunks=20)
    source = suggested(lambda: model.fit(collection, groups=ids), {"X": collection, "groups": ids}, tmp_path / "b")
    assert persons_of(source) == expected
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(pid=IDS, y=Y), npartitions=3)
    rows, y = frame[["a", "b", "c", "d", "pid"]], frame["y"]
    regression = vips.BayesianLogisticRegression(privacy=PLAN, max_norm=3.0)
    source = suggested(lambda: regression.fit(rows, y, groups="pid"), {"X": rows, "y": y}, tmp_path / "c")
    assert persons_of(source) == persons_in(np.column_stack([X, Y]), IDS)
    assert regression.fit(source).privacy_.unit == "all rows of one pid"
