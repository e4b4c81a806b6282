"""Parquet files, by row groups. PyArrow is imported when a source is made."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from vips._validation import check_integer
from vips.data._checks import open_checked
from vips.data._records import OpenPartition
from vips.data._source import DataSource, FileStamp, Partition, found_files
from vips.data._texts import TextSource
from vips.exceptions import SourceError

__all__ = ["ParquetDocuments", "ParquetSource", "ParquetTable", "ParquetTexts", "group_name", "read_group", "type_of"]


class ParquetSource(DataSource):
    """What tables and documents share: files, row groups as partitions, and a schema that is the same everywhere."""

    def __init__(self, path: str | os.PathLike | Iterable[str | os.PathLike], pattern: str) -> None:
        files = found_files(path, pattern) if isinstance(path, str | os.PathLike) else list(path)
        if not files:
            raise SourceError("A data source needs at least one file.")
        self._groups = []
        for file in map(FileStamp.of, files):
            with _opened(file) as parquet:
                self._check_schema(parquet.schema_arrow, file.path)
                sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
            self._groups += [(file, i, size) for i, size in enumerate(sizes)]

    @abstractmethod
    def _check_schema(self, schema, path: str) -> None:
        """Raise SourceError unless the declared columns exist and have a usable type."""

    def ids(self, i: int, by: str) -> object:
        file, group, _ = self._groups[i]
        with _opened(file) as parquet:
            type_of(parquet.schema_arrow, by, file.path)
        return read_group(file, group, [by]).column(by)

    @property
    def n_partitions(self) -> int:
        return len(self._groups)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, _, size in self._groups)


class ParquetTable(ParquetSource):
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
        self,
        path: str | os.PathLike | Iterable[str | os.PathLike],
        features: Sequence[str],
        target: str | None = None,
        *,
        pattern: str = "*.parquet",
    ) -> None:
        if isinstance(features, str) or not len(features):
            raise ValueError(f"`features` must be a list of column names, got {features!r}.")
        self.feature_names, self._target = tuple(features), target
        self.n_features, self.has_labels = len(self.feature_names), target is not None
        super().__init__(path, pattern)

    def _check_schema(self, schema, path: str) -> None:
        for name in (*self.feature_names, *([self._target] if self._target else [])):
            if not _is_number(type_of(schema, name, path)):
                raise SourceError(
                    f"{path}: column {name!r} has type {schema.field(name).type}; a table needs booleans, integers or "
                    "floating-point numbers."
                )

    def partition(self, i: int) -> Partition:
        file, group, _ = self._groups[i]
        return TableGroup(file, group, self.feature_names, self._target)


class ParquetDocuments(ParquetSource):
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

    def __init__(
        self,
        path: str | os.PathLike | Iterable[str | os.PathLike],
        column: str,
        vocabulary_size: int,
        *,
        pattern: str = "*.parquet",
    ) -> None:
        check_integer("vocabulary_size", vocabulary_size)
        self._column, self.n_features = column, int(vocabulary_size)
        super().__init__(path, pattern)

    def _check_schema(self, schema, path: str) -> None:
        from pyarrow import types

        kind = type_of(schema, self._column, path)
        is_list = types.is_list(kind) or types.is_large_list(kind)
        if not is_list or not types.is_integer(kind.value_type):
            raise SourceError(f"{path}: column {self._column!r} has type {kind}, not a list of integers.")

    def partition(self, i: int) -> Partition:
        file, group, _ = self._groups[i]
        return DocumentGroup(file, group, self._column, self.n_features)


class ParquetTexts(ParquetSource, TextSource):
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

    def __init__(
        self,
        path: str | os.PathLike | Iterable[str | os.PathLike],
        column: str,
        target: str | None = None,
        *,
        pattern: str = "*.parquet",
    ) -> None:
        self._column, self._target, self.has_labels = column, target, target is not None
        super().__init__(path, pattern)

    def _check_schema(self, schema, path: str) -> None:
        from pyarrow import types

        kind = type_of(schema, self._column, path)
        if not (types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view" or _is_coded(kind)):
            raise SourceError(f"{path}: column {self._column!r} has type {kind}, not strings.")
        if self._target is not None and not _is_number(type_of(schema, self._target, path)):
            kind = type_of(schema, self._target, path)
            raise SourceError(
                f"{path}: column {self._target!r} has type {kind}; labels are booleans, integers or floating-point numbers."
            )

    def partition(self, i: int) -> Partition:
        file, group, _ = self._groups[i]
        return TextGroup(file, group, self._column, self._target)


@dataclass(frozen=True, repr=False)
class TableGroup(Partition):
    """One row group of a table."""

    file: FileStamp
    group: int
    features: tuple[str, ...]
    target: str | None

    @property
    def name(self) -> str:
        return group_name(self.file, self.group)

    def open(self) -> OpenPartition:
        labels = [self.target] if self.target else []
        table = read_group(self.file, self.group, [*self.features, *labels])
        X = np.empty((table.num_rows, len(self.features)))
        for j, name in enumerate(self.features):
            X[:, j] = _numbers(table.column(name))
        y = _numbers(table.column(self.target)) if labels else None
        return open_checked(self.name, X, y, len(self.features))


@dataclass(frozen=True, repr=False)
class DocumentGroup(Partition):
    """One row group of documents."""

    file: FileStamp
    group: int
    column: str
    n_words: int

    @property
    def name(self) -> str:
        return group_name(self.file, self.group)

    def open(self) -> OpenPartition:
        parts = [
            counts(lists, self.n_words)
            for lists in read_group(self.file, self.group, [self.column]).column(self.column).chunks
        ]
        X = sp.vstack(parts, format="csr") if parts else sp.csr_array((0, self.n_words))
        return open_checked(self.name, sp.csr_array(X), None, self.n_words)


@dataclass(frozen=True, repr=False)
class TextGroup(Partition):
    """One row group of texts."""

    file: FileStamp
    group: int
    column: str
    target: str | None

    @property
    def name(self) -> str:
        return group_name(self.file, self.group)

    def open(self) -> OpenPartition:
        table = read_group(self.file, self.group, [self.column, *([self.target] if self.target else [])])
        texts = [text for chunk in table.column(self.column).chunks for text in _texts(chunk)]
        documents = np.array([*texts, None], dtype=object)[:-1]
        return OpenPartition(documents, _numbers(table.column(self.target)) if self.target else None)


def _texts(values) -> list:
    """Texts of an Arrow array as bytes, because they need not be valid; None for what is missing.

    A dictionary is not written out: Arrow raises where that takes more than 2 GB, which depends on the documents.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        texts = [*_texts(values.dictionary), None]
        return [texts[-1 if i is None else i] for i in values.indices.to_pylist()]
    if str(values.type) == "string_view":
        values = values.cast(pa.large_string())
    return values.cast(pa.large_binary()).to_pylist()


def counts(lists, n_words: int) -> sp.csr_array:
    """Word counts, shape (n_documents, n_words); NaN in a document with a null or a number outside of the vocabulary."""
    import pyarrow as pa

    missing = np.asarray(lists.is_null())
    lists = lists.cast(pa.large_list(pa.int64()), safe=False)
    lengths = np.where(
        missing, 0, np.diff(lists.offsets.to_numpy())
    )  # a null may hide entries, which flatten() leaves out
    words = lists.flatten()
    bad = np.asarray(words.is_null())
    words = words.fill_null(0).to_numpy(zero_copy_only=False)
    bad = bad | (words < 0) | (words >= n_words)
    # one more entry for a document that is missing: its NaN
    indptr = np.concatenate([[0], np.cumsum(lengths + missing)])
    values, columns = np.full(indptr[-1], np.nan), np.zeros(indptr[-1], np.int64)
    present = np.ones(indptr[-1], dtype=bool)
    present[indptr[:-1][missing]] = False
    values[present], columns[present] = np.where(bad, np.nan, 1.0), np.where(bad, 0, words)
    matrix = sp.csr_array((values, columns, indptr), shape=(len(lengths), n_words))
    matrix.sum_duplicates()
    return matrix


def _numbers(column) -> np.ndarray:
    """A column as float64, NaN where it is null. The conversion depends on its declared type alone, not on values."""
    import pyarrow as pa

    return column.cast(pa.float64(), safe=False).to_numpy()


def _is_coded(kind) -> bool:
    """Whether this is a dictionary of strings."""
    from pyarrow import types

    return types.is_dictionary(kind) and (types.is_string(kind.value_type) or types.is_large_string(kind.value_type))


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


def read_group(file: FileStamp, group: int, columns: list[str]):
    import pyarrow as pa

    with _opened(file) as parquet:
        try:
            return parquet.read_row_group(group, columns=columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            problem = type(error).__name__
    raise SourceError(f"{group_name(file, group)} cannot be read ({problem}).")


def group_name(file: FileStamp, group: int) -> str:
    return f"{file.path}, row group {group}"
