"""Parquet: declared columns, nulls, lists of words. Only public facts raise, whatever a record holds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyPlan
from vips.data import InMemoryData, ParquetDocuments, ParquetTable, SourceError
from vips.data._parquet import counts

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=3, reproducible_noise=True)
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=60), RNG.integers(0, 5, 60), RNG.integers(0, 2, 60)])
Y = RNG.integers(0, 2, 60)
DOCUMENTS = [RNG.integers(0, 8, RNG.integers(0, 9)).tolist() for _ in range(60)]


def write_table(path, rows=slice(None), **changes):
    columns = {
        "label": pa.array(Y[rows], pa.int8()), "a": pa.array(X[rows, 0]), "b": pa.array(X[rows, 1], pa.uint16()),
        "c": pa.array(X[rows, 2] > 0), "name": pa.array(["x"] * len(X[rows])),
    }  # fmt: skip
    pq.write_table(pa.table(columns | changes), path, row_group_size=15)


def regression(**settings):
    return BayesianLogisticRegression(**({"privacy": PLAN, "max_norm": 4.0, "random_state": 0} | settings))


def topics(**settings):
    return LatentDirichletAllocation(2, **({"vocabulary": 8, "privacy": PLAN, "random_state": 0} | settings))


def test_a_table_is_its_declared_columns_in_row_groups(tmp_path):
    (tmp_path / "parts").mkdir()
    write_table(tmp_path / "parts" / "0.parquet", slice(0, 30))
    write_table(tmp_path / "parts" / "1.parquet", slice(30, 60))
    (tmp_path / "parts" / "_SUCCESS").touch()
    source = ParquetTable(tmp_path / "parts", ["a", "b", "c"], "label")
    assert (source.n_features, source.sizes, source.has_labels) == (3, (15, 15, 15, 15), True)
    opened = source.partition(2).open()
    np.testing.assert_array_equal(opened.X, X[30:45])
    np.testing.assert_array_equal(opened.y, Y[30:45])
    expected = regression().fit(InMemoryData(X, Y.astype(float), partition_size=15))
    fitted = regression().fit(source)
    np.testing.assert_array_equal(fitted.last_posterior_.mean, expected.last_posterior_.mean)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(source.partition(0).open().X[:, ::-1], ParquetTable(
        tmp_path / "parts", ["c", "b", "a"]).partition(0).open().X)  # fmt: skip


def test_a_null_makes_its_record_defective(tmp_path):
    b, labels = pa.array([None, *X[1:, 1].astype(int)], pa.uint16()), pa.array([*Y[:-1], None], pa.int8())
    write_table(tmp_path / "t.parquet", b=b, label=labels)
    source = ParquetTable(tmp_path / "t.parquet", ["a", "b", "c"], "label")
    first = source.partition(0).open()
    assert np.isnan(first.X[0, 1])
    assert first.X.dtype == first.y.dtype == np.float64
    keep = InMemoryData(np.where(np.arange(60)[:, None] > 0, X, np.nan), np.append(Y[:-1], np.nan), partition_size=15)
    means = [regression().fit(data).last_posterior_.mean for data in (source, keep)]
    np.testing.assert_array_equal(*means)
    with pytest.raises(ValueError, match="A record is not valid"):
        regression(privacy=None).fit(source)


@pytest.mark.parametrize(
    ("features", "target", "message"),
    [(["a", "nowhere"], None, "no column 'nowhere'"), (["a", "name"], None, "'name' has type string"),
     (["a"], "name", "'name' has type string")],
)  # fmt: skip
def test_columns_and_types_are_public_facts(features, target, message, tmp_path):
    write_table(tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=message):
        ParquetTable(tmp_path / "t.parquet", features, target)
    with pytest.raises(ValueError, match="list of column names"):
        ParquetTable("t.parquet", "a")


def test_torn_files_are_named(tmp_path):
    write_table(tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[:-5])
    with pytest.raises(SourceError, match=r"t\.parquet is not a readable Parquet file") as torn:
        ParquetTable(tmp_path / "t.parquet", ["a"])
    assert torn.value.__context__ is None
    (tmp_path / "t.parquet").write_bytes(content[:4] + b"\xff" * 200 + content[204:])  # pages, not the schema
    source = ParquetTable(tmp_path / "t.parquet", ["a", "b"], "label")
    with pytest.raises(SourceError, match=r"row group 0 cannot be read") as torn:
        regression().fit(source)
    assert torn.value.__context__ is None


# -- documents ------------------------------------------------------------------------------------------------------------


def as_counts(documents, n_words=8):
    dense = np.zeros((len(documents), n_words))
    for row, words in zip(dense, documents, strict=True):
        np.add.at(row, words, 1.0)
    return dense


def write_documents(path, documents=DOCUMENTS, kind=None):
    pq.write_table(pa.table({"words": pa.array(documents, kind or pa.list_(pa.int32()))}), path, row_group_size=15)


def test_documents_are_lists_of_words(tmp_path):
    write_documents(tmp_path / "d.parquet")
    source = ParquetDocuments(tmp_path / "d.parquet", "words", 8)
    assert (source.n_features, source.sizes) == (8, (15, 15, 15, 15))
    np.testing.assert_array_equal(source.partition(1).open().X.toarray(), as_counts(DOCUMENTS[15:30]))
    memory = InMemoryData(sp.csr_array(as_counts(DOCUMENTS)), partition_size=15)
    np.testing.assert_array_equal(topics().fit(source).components_, topics().fit(memory).components_)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.uint64()), pa.list_(pa.int8())])
def test_what_is_no_word_makes_its_document_defective(kind, tmp_path):
    strange = [[1, 1], None, [8], [], [2, None], [7, 0]]
    if kind != pa.large_list(pa.uint64()):
        strange[2] = [-1]
    matrix = counts(pa.array(strange, kind), 8)
    assert matrix.has_canonical_format
    defective = np.isnan(matrix.toarray()).any(axis=1)
    assert defective.tolist() == [False, True, True, False, True, False]
    good = [0, 3, 5]
    np.testing.assert_array_equal(matrix[good].toarray(), as_counts([strange[i] for i in good]))
    sliced = pa.array([[3], *strange], kind).slice(1)  # offsets that do not begin at 0
    np.testing.assert_array_equal(counts(sliced, 8).toarray(), matrix.toarray())
    write_documents(tmp_path / "d.parquet", [*DOCUMENTS[:45], None, [77], [None], *DOCUMENTS[48:]])
    source = ParquetDocuments(tmp_path / "d.parquet", "words", 8)
    assert np.isfinite(topics().fit(source).components_).all()
    with pytest.raises(ValueError, match="A record is not valid"):
        topics(privacy=None).fit(source)


def test_numbers_beyond_the_largest_are_no_words():
    matrix = counts(pa.array([[2**63 + 3], [2**64 - 1], [5]], pa.list_(pa.uint64())), 8).toarray()
    assert np.isnan(matrix[:2]).any(axis=1).all()
    assert matrix[2, 5] == 1.0
    # a null may hide entries
    values, offsets = pa.array([1, 2, 3, 4]), pa.array([0, 1, 3, 4], pa.int32())
    hidden = pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True, False]))
    matrix = counts(hidden, 8).toarray()
    np.testing.assert_array_equal(matrix[[0, 2]], as_counts([[1], [4]]))
    assert np.isnan(matrix[1]).any()


def test_the_vocabulary_is_declared(tmp_path):
    write_documents(tmp_path / "d.parquet")
    for wrong in (0, 2.5):
        with pytest.raises(ValueError, match="vocabulary_size"):
            ParquetDocuments(tmp_path / "d.parquet", "words", wrong)
    with pytest.raises(ValueError, match="7 columns but the vocabulary has 8"):
        topics().fit(ParquetDocuments(tmp_path / "d.parquet", "words", 7))
    write_documents(tmp_path / "s.parquet", [["a"]], pa.list_(pa.string()))
    with pytest.raises(SourceError, match="not a list of integers"):
        ParquetDocuments(tmp_path / "s.parquet", "words", 8)


def test_an_empty_file_is_ordinary(tmp_path):
    write_documents(tmp_path / "d.parquet", [])
    source = ParquetDocuments(tmp_path / "d.parquet", "words", 8)
    assert source.n_records == 0
    assert np.isfinite(topics().fit(source).components_).all()


def test_pyarrow_is_optional():
    code = (
        "import sys; sys.modules |= dict.fromkeys(('pyarrow', 'dask', 'distributed'))\n"
        "import numpy as np, vips, vips.data\n"
        "vips.DirichletMultinomial().fit(np.eye(3))\n"
        "try: vips.data.ParquetTable(sys.executable, ['a'])\n"
        "except ImportError as error: assert 'vips[parquet]' in str(error)\n"
        "else: raise AssertionError\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
