"""Sequences as lists in columns of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vips.data._arrow_lists import steps_and_offsets, width_of
from vips.data._parquet import ParquetSource, group_name, read_group, type_of
from vips.data._records import OpenPartition
from vips.data._sequences import Sequences
from vips.data._source import FileStamp, Partition, SequenceSource
from vips.exceptions import SourceError

__all__ = ["ParquetSequences"]


class ParquetSequences(ParquetSource, SequenceSource):
    """Sequences as lists in declared columns of Parquet files, one sequence in a row. A row group is a partition.

    Memory is bounded by the largest row group: write some thousand sequences in each (``row_group_size=10_000``).

    Parameters
    ----------
    path : path, or list of paths
        As in :class:`ParquetTable`.
    columns : str, or sequence of str
        Name of a column of lists of integers or floating-point numbers, or of lists of vectors: lists of a fixed size. Several
        columns are columns of one sequence: public, in this order.
    pattern : str
        Pattern of the names of files in the folder.

    Notes
    -----
    A null in a list is a missing step; a null list is empty, and so is a sequence whose columns have different lengths.

    Raises
    ------
    SourceError
        If a file cannot be read, or has no such columns.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from vips import CategoricalHMM, PrivacyPlan
    >>> from vips.data import ParquetSequences
    >>> path = tempfile.mkdtemp() + "/visits.parquet"
    >>> pq.write_table(pa.table({"events": [[0, 1, None], [], [1, 1]] * 50}), path, row_group_size=60)
    >>> plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=5)
    >>> CategoricalHMM(2, n_symbols=2, privacy=plan).fit(ParquetSequences(path, "events")).privacy_.unit
    'one sequence'
    """

    def __init__(
        self,
        path: str | os.PathLike | Iterable[str | os.PathLike],
        columns: str | Sequence[str],
        *,
        pattern: str = "*.parquet",
    ) -> None:
        self._columns = (columns,) if isinstance(columns, str) else tuple(columns)
        if not self._columns:
            raise ValueError("`columns` must name at least one column.")
        self.n_features = 0  # until the first file is read
        super().__init__(path, pattern)

    def _check_schema(self, schema, path: str) -> None:
        width = 0
        for name in self._columns:
            kind = type_of(schema, name, path)
            if width_of(kind) is None:
                raise SourceError(
                    f"{path}: column {name!r} has type {kind}; sequences are lists of integers or floating-point numbers, or "
                    "lists of such lists of a fixed size."
                )
            width += width_of(kind)
        if self.n_features not in (0, width):
            raise SourceError(f"{path}: sequences have {width} columns, those of the first file {self.n_features}.")
        self.n_features = width

    def partition(self, i: int) -> Partition:
        file, group, _ = self._groups[i]
        return SequenceGroup(file, group, self._columns)


@dataclass(frozen=True, repr=False)
class SequenceGroup(Partition):
    """One row group of sequences."""

    file: FileStamp
    group: int
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return group_name(self.file, self.group)

    def open(self) -> OpenPartition:
        table = read_group(self.file, self.group, list(self.columns))
        return OpenPartition(Sequences(*steps_and_offsets([table.column(name) for name in self.columns])))
