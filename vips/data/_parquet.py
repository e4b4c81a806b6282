"""Parquet files, by row groups. PyArrow is imported when a source is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from vips._support.validation import check_integer
from vips.core.records.checks import open_checked
from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import offsets_of
from vips.core.records.source import FileStamp, Partition, PartitionedSource, Paths, found_files
from vips.data._arrow_lists import floats_of
from vips.data._texts import TextSource, bytes_of_arrow, is_text_type
from vips.exceptions import SourceError

__all__ = ["ParquetDocuments", "ParquetTable", "ParquetTexts", "RowGroup", "row_groups", "type_of"]


class ParquetTable(PartitionedSource):
    """Declared columns of Parquet files as a table of float64 numbers. A row group is a partition.

    Memory is bounded by the largest row group.

    Parameters
    ----------
    path : path, or list of paths
        A folder (its files that match ``pattern``, in the order of their names), one file, or files in the order given.
    features : sequence of str
        Names of the columns of X, in this order: public. Booleans, integers or floating-point numbers.
    target : str, optional
        Name of the column of labels, of the same types.
    pattern : str
        Pattern of the names of files in the folder.

    Notes
    -----
    A null makes its record defective, as NaN does.
    """

    def __init__(
        self, path: Paths, features: Sequence[str], target: str | None = None, *, pattern: str = "*.parquet"
    ) -> None:
        if isinstance(features, str) or not len(features):
            raise ValueError(f"`features` must be a list of column names, got {features!r}.")
        self.feature_names, self.has_labels = tuple(features), target is not None
        self.n_features = len(self.feature_names)

        def check(schema, path: str) -> None:
            for name in (*self.feature_names, *([target] if target else [])):
                if not _is_number(type_of(schema, name, path)):
                    raise SourceError(
                        f"{path}: column {name!r} has type {schema.field(name).type}; a table needs booleans, integers or "
                        "floating-point numbers."
                    )

        super().__init__(*row_groups(path, pattern, check, partial(_rows, features=self.feature_names, target=target)))


class ParquetDocuments(PartitionedSource):
    """Documents as lists of word numbers in a column of Parquet files. Models get word counts. A row group is a partition.

    Memory is bounded by the largest row group.

    Parameters
    ----------
    path : path, or list of paths
        As in :class:`ParquetTable`.
    column : str
        Name of a column of lists of integers.
    vocabulary_size : int
        Number of words: public, and never read from the documents.
    pattern : str
        Pattern of the names of files in the folder.

    Notes
    -----
    A null, or a number outside of the vocabulary, makes its document defective. An empty list is an empty document.
    """

    def __init__(self, path: Paths, column: str, vocabulary_size: int, *, pattern: str = "*.parquet") -> None:
        check_integer("vocabulary_size", vocabulary_size)
        self.n_features = int(vocabulary_size)

        def check(schema, path: str) -> None:
            from pyarrow import types

            kind = type_of(schema, column, path)
            is_list = types.is_list(kind) or types.is_large_list(kind)
            if not is_list or not types.is_integer(kind.value_type):
                raise SourceError(f"{path}: column {column!r} has type {kind}, not a list of integers.")

        super().__init__(*row_groups(path, pattern, check, partial(_counts, column=column, n_words=self.n_features)))


class ParquetTexts(TextSource):
    """Texts in a column of Parquet files, for ``PrivateCountVectorizer`` and pipelines. A row group is a partition.

    Memory is bounded by the largest row group: write some thousand documents in each (``row_group_size=10_000``).

    Parameters
    ----------
    path : path, or list of paths
        As in :class:`ParquetTable`.
    column : str
        Name of a column of strings, which may be stored as a dictionary.
    target : str, optional
        Name of a column of labels: booleans, integers or floating-point numbers.
    pattern : str
        Pattern of the names of files in the folder.

    Notes
    -----
    A null, or text that is not valid, has no words, or marks in place of what is not valid.
    """

    def __init__(self, path: Paths, column: str, target: str | None = None, *, pattern: str = "*.parquet") -> None:
        self.has_labels = target is not None

        def check(schema, path: str) -> None:
            kind = type_of(schema, column, path)
            if not is_text_type(kind):
                raise SourceError(f"{path}: column {column!r} has type {kind}, not strings.")
            if target is not None and not _is_number(kind := type_of(schema, target, path)):
                raise SourceError(
                    f"{path}: column {target!r} has type {kind}; labels are booleans, integers or floating-point numbers."
                )

        super().__init__(*row_groups(path, pattern, check, partial(_documents, column=column, target=target)))


@dataclass(frozen=True, repr=False)
class RowGroup(Partition):
    """One row group, and what its columns become."""

    file: FileStamp
    group: int
    read: Callable[[RowGroup], OpenPartition]

    @property
    def name(self) -> str:
        return f"{self.file.path}, row group {self.group}"

    def open(self) -> OpenPartition:
        return self.read(self)

    def columns(self, names: Sequence[str]) -> list:
        """Those columns, as Arrow's chunked arrays."""
        import pyarrow as pa

        with _opened(self.file) as parquet:
            try:
                table = parquet.read_row_group(self.group, columns=list(names), use_threads=False)
            except (OSError, pa.ArrowException) as error:
                problem = type(error).__name__
            else:
                return [table.column(name) for name in names]
        raise SourceError(f"{self.name} cannot be read ({problem}).")

    def ids(self, by: str) -> object:
        with _opened(self.file) as parquet:
            type_of(parquet.schema_arrow, by, self.file.path)
        return self.columns([by])[0]


def row_groups(
    path: Paths, pattern: str, check: Callable[[object, str], None], read: Callable[[RowGroup], OpenPartition]
) -> tuple[list[RowGroup], list[int]]:
    """The row groups of files, and the number of rows of each.

    ``check`` raises SourceError unless a file of this schema and path has the declared columns, in usable types. ``read`` opens
    a row group, and can be pickled.
    """
    groups, sizes = [], []
    for file in map(FileStamp.of, found_files(path, pattern)):
        with _opened(file) as parquet:
            check(parquet.schema_arrow, file.path)
            n_groups = parquet.metadata.num_row_groups
            sizes += [parquet.metadata.row_group(i).num_rows for i in range(n_groups)]
        groups += [RowGroup(file, i, read) for i in range(n_groups)]
    return groups, sizes


def _rows(group: RowGroup, features: Sequence[str], target: str | None) -> OpenPartition:
    columns = group.columns([*features, *([target] if target else [])])
    X = np.empty((len(columns[0]), len(features)))
    for j in range(len(features)):
        X[:, j] = floats_of(columns[j])
    return open_checked(group.name, X, floats_of(columns[-1]) if target else None, len(features))


def _counts(group: RowGroup, column: str, n_words: int) -> OpenPartition:
    parts = [counts(lists, n_words) for lists in group.columns([column])[0].chunks]
    X = sp.vstack(parts, format="csr") if parts else sp.csr_array((0, n_words))
    return open_checked(group.name, sp.csr_array(X), None, n_words)


def _documents(group: RowGroup, column: str, target: str | None) -> OpenPartition:
    texts, *labels = group.columns([column, *([target] if target else [])])
    documents = np.array([*(text for chunk in texts.chunks for text in bytes_of_arrow(chunk)), None], dtype=object)[:-1]
    return OpenPartition(documents, floats_of(labels[0]) if labels else None)


def counts(lists, n_words: int) -> sp.csr_array:
    """Word counts, shape (n_documents, n_words); NaN in a document with a null or a number outside of the vocabulary."""
    import pyarrow as pa

    missing = np.asarray(lists.is_null())
    lists = lists.cast(pa.large_list(pa.int64()), safe=False)
    lengths = np.where(missing, 0, np.diff(lists.offsets.to_numpy()))  # flatten() leaves out what a null hides
    words = lists.flatten()
    bad = np.asarray(words.is_null())
    words = words.fill_null(0).to_numpy(zero_copy_only=False)
    bad = bad | (words < 0) | (words >= n_words)
    # one more entry for a document that is missing: its NaN
    indptr = offsets_of(lengths + missing)
    values, columns = np.full(indptr[-1], np.nan), np.zeros(indptr[-1], np.int64)
    present = np.ones(indptr[-1], dtype=bool)
    present[indptr[:-1][missing]] = False
    values[present], columns[present] = np.where(bad, np.nan, 1.0), np.where(bad, 0, words)
    matrix = sp.csr_array((values, columns, indptr), shape=(len(lengths), n_words))
    matrix.sum_duplicates()
    return matrix


def _is_number(kind) -> bool:
    from pyarrow import types

    return types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)


def type_of(schema, name: str, path: str):
    if schema.get_field_index(name) < 0:
        raise SourceError(f"{path} has no column {name!r}, or two.")
    return schema.field(name).type


def _opened(file: FileStamp):
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError('Parquet sources need PyArrow: pip install "vips[parquet]".') from None
    path = file.check()
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        problem = type(error).__name__
    # outside of `except`, so that the original error, which may quote a record, is not attached
    raise SourceError(f"{path} is not a readable Parquet file ({problem}).")
