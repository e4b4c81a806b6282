"""Sequences that are read a partition at a time: one source, whatever its partitions are.

A folder of shards, which :func:`write_sequences` writes, has pairs of files::

    folder/
      00000.values.npy      steps of all sequences, one sequence after the other: (n_steps,) or (n_steps, n_features)
      00000.offsets.npy     integers, (n_sequences + 1,): where each sequence begins, and where the last one ends
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from vips._support.files import sync_folder, synced_file, whole_folder
from vips._support.validation import check_integer
from vips.core.records.arrays import PARTITION_SIZE
from vips.core.records.checks import check_dtype
from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import divides
from vips.core.records.source import DataSource, FileStamp, Partition, PartitionedSource, Paths, found_files
from vips.data._arrow_lists import steps_and_offsets, width_of
from vips.data._dask import BlockPartition, is_dask
from vips.data._npy import mapped
from vips.data._parquet import RowGroup, row_groups, type_of
from vips.data._sequences import Sequences
from vips.exceptions import SourceError

__all__ = ["SequenceSource", "steps_of_persons", "write_sequences"]

_VALUES, _OFFSETS = ".values.npy", ".offsets.npy"
_MOST_STEPS = 2**22  # held until a pair of files is written


class SequenceSource(PartitionedSource):
    """Sequences in partitions: of shards, of Parquet files, of Dask, of a folder of persons, or of your own.

    Parameters
    ----------
    partitions : iterable of Partition
        Each opens as :class:`Sequences`.
    sizes : iterable of int, optional
        Number of sequences of each partition. None: a partition is opened if somebody asks.
    n_features : int
        Number of columns of every sequence: public.

    See Also
    --------
    SequenceSource.from_shards, SequenceSource.from_parquet, SequenceSource.from_dask, vips.data.regroup

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from vips import CategoricalHMM, PrivacyPlan
    >>> from vips.data import SequenceSource
    >>> path = tempfile.mkdtemp() + "/visits.parquet"
    >>> pq.write_table(pa.table({"events": [[0, 1, None], [], [1, 1]] * 50}), path, row_group_size=60)
    >>> plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=5)
    >>> source = SequenceSource.from_parquet(path, "events")
    >>> CategoricalHMM(2, n_symbols=2, privacy=plan).fit(source).privacy_.unit
    'one sequence'
    """

    def __init__(
        self, partitions: Iterable[Partition], sizes: Iterable[int] | None = None, *, n_features: int = 1
    ) -> None:
        super().__init__(partitions, sizes)
        self.n_features = int(n_features)

    @classmethod
    def from_shards(
        cls,
        path: Paths,
        *,
        n_features: int | None = None,
        pattern: str = f"*{_VALUES}",
        partition_size: int = PARTITION_SIZE,
    ) -> SequenceSource:
        """Sequences in pairs of files ``*.values.npy`` and ``*.offsets.npy``, memory-mapped, in ranges of sequences.

        :func:`vips.data.write_sequences` writes them, and so does ``numpy.save``. Workers get paths and map the files. Memory
        is bounded by a chunk: of a sequence no more steps are read than the model's ``max_length``.

        Parameters
        ----------
        path : path, or list of paths
            As in :class:`ParquetTable`; files are those of values.
        n_features : int, optional
            Number of columns: public. By default that of the first file; a file of another width is an error.
        pattern : str
            Pattern of the names of files of values in the folder.
        partition_size : int
            Sequences of a partition; the last of a pair of files may be shorter.

        Raises
        ------
        SourceError
            If there is no file, a pair is not complete, or a file is no array of numbers of the right shape.
        """
        check_integer("partition_size", partition_size)
        shards: list[Shard] = []
        for file in map(os.fspath, found_files(path, pattern)):
            if not file.endswith(_VALUES):
                raise SourceError(f"{file} is not named *{_VALUES}.")
            values, offsets = FileStamp.of(file), FileStamp.of(file.removesuffix(_VALUES) + _OFFSETS)
            n_features = _steps(values, None).shape[1] if n_features is None else int(n_features)
            _steps(values, n_features)
            n_sequences, size = len(_offsets(offsets)) - 1, int(partition_size)
            for first in range(0, n_sequences, size):
                name, last = f"{file}, sequences from {first}", min(first + size, n_sequences)
                shards.append(Shard(name, values, offsets, first, last, n_features))
        return cls(shards, (shard.last - shard.first for shard in shards), n_features=n_features)

    @classmethod
    def from_parquet(cls, path: Paths, columns: str | Sequence[str], *, pattern: str = "*.parquet") -> SequenceSource:
        """Sequences as lists in declared columns of Parquet files, one sequence in a row. A row group is a partition.

        Memory is bounded by the largest row group: write some thousand sequences in each (``row_group_size=10_000``). A null in
        a list is a missing step; a null list is empty, and so is a sequence whose columns have different lengths.

        Parameters
        ----------
        path : path, or list of paths
            As in :class:`ParquetTable`.
        columns : str, or sequence of str
            Name of a column of lists of integers or floating-point numbers, or of lists of vectors: lists of a fixed size.
            Several columns are columns of one sequence: public, in this order.
        pattern : str
            Pattern of the names of files in the folder.

        Raises
        ------
        SourceError
            If a file cannot be read, or has no such columns.
        """
        columns = (columns,) if isinstance(columns, str) else tuple(columns)
        if not columns:
            raise ValueError("`columns` must name at least one column.")
        widths: list[int] = []

        def check(schema, path: str) -> None:
            widths.append(sum(_width(schema, name, path) for name in columns))
            if widths[-1] != widths[0]:
                raise SourceError(f"{path}: sequences have {widths[-1]} columns, those of the first file {widths[0]}.")

        groups, sizes = row_groups(path, pattern, check, partial(_lists, columns=columns))
        return cls(groups, sizes, n_features=widths[0])

    @classmethod
    def from_dask(cls, parts: Iterable[object], n_features: int = 1) -> SequenceSource:
        """Sequences in parts that Dask computes: delayed ones, or a bag. A part is a partition.

        With a ``dask.distributed.Client`` as the executor, workers compute and sum their own parts, and records do not travel.
        Persist parts that fit in memory: otherwise every step computes them again. Other executors compute them, too.

        Parameters
        ----------
        parts : list of delayed objects, or Dask bag
            Each part computes to ``Sequences``, or to a list of arrays; the items of a bag are arrays. From a data frame with a
            row for each step, whose parts hold whole persons:
            ``[delayed(Sequences.from_frame)(part, by="patient", columns="event") for part in frame.to_delayed()]``.
        n_features : int
            Number of columns. Public. An array of another width is a missing sequence.

        Notes
        -----
        The record is a sequence: a person whose steps are in two parts is two records. ``vips.data.regroup`` brings a person's
        rows together.

        Raises
        ------
        TypeError
            If ``parts`` are no objects of Dask.
        """
        check_integer("n_features", n_features)
        parts = list(parts.to_delayed() if hasattr(parts, "to_delayed") else parts)
        if not all(map(is_dask, parts)):
            raise TypeError("SequenceSource.from_dask takes a list of delayed objects, or a Dask bag.")
        from dask import delayed

        blocks = [delayed(_computed)(part, int(n_features)) for part in parts]
        partitions = (BlockPartition(f"part {i}", block, None, int(n_features)) for i, block in enumerate(blocks))
        return cls(partitions, n_features=n_features)


def steps_of_persons(rows: DataSource) -> SequenceSource:
    """A table with a row for each step, as :func:`vips.data.regroup` wrote it: a person's rows are the steps of one sequence.

    Steps are in the order of the source that was regrouped.
    """
    source = SequenceSource(map(StepsOfPersons, rows.partitions), n_features=rows.n_features)
    source.has_groups, source.group_name = True, rows.group_name
    return source


@dataclass(frozen=True, repr=False)
class StepsOfPersons(Partition):
    """A partition of persons' rows, as their sequences."""

    rows: Partition

    @property
    def name(self) -> str:
        return self.rows.name

    def open(self) -> OpenPartition:
        opened = self.rows.open()
        if sp.issparse(opened.X):
            raise SourceError("Steps of sequences must not be sparse: regroup a dense table.")
        begins = opened.starts[:-1]
        sequences = Sequences.of_rows(opened.X, begins, opened.starts[1:] - begins)
        return OpenPartition(sequences, starts=np.arange(len(begins) + 1))


# -- Parquet and Dask -------------------------------------------------------------------------------------------------------


def _width(schema, name: str, path: str) -> int:
    kind = type_of(schema, name, path)
    width = width_of(kind)
    if width is None:
        raise SourceError(
            f"{path}: column {name!r} has type {kind}; sequences are lists of integers or floating-point numbers, or lists of "
            "such lists of a fixed size."
        )
    return width


def _lists(group: RowGroup, columns: Sequence[str]) -> OpenPartition:
    return OpenPartition(Sequences(*steps_and_offsets(group.columns(columns))))


def _computed(part, n_features: int):
    """What a part of Dask computes to, as sequences."""
    if isinstance(part, Sequences):
        return part.without_ids().astype(np.float64)  # whose dtype may be one sequence's
    if isinstance(part, list | tuple) or hasattr(part, "__next__"):
        return Sequences.from_list(list(part), n_features)
    raise SourceError(
        f"A part of sequences must compute to vips.data.Sequences or a list of arrays, got {type(part).__name__}."
    )


# -- shards -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Shard(Partition):
    """A range of the sequences of a pair of files."""

    name: str
    values: FileStamp
    offsets: FileStamp
    first: int
    last: int
    n_features: int

    def open(self) -> OpenPartition:
        """The sequences, whose offsets are in order: nothing is read beyond the files."""
        steps, offsets = _steps(self.values, self.n_features), _offsets(self.offsets)
        bounds = np.array(offsets[self.first : self.last + 1], np.int64)
        is_whole = len(bounds) == self.last + 1 - self.first and divides(bounds - bounds[0], bounds[-1] - bounds[0])
        if not is_whole or bounds[0] < 0 or bounds[-1] > len(steps) or offsets[0] != 0 or offsets[-1] != len(steps):
            raise SourceError(
                f"{self.name}: the offsets do not divide the steps; they must ascend from 0 to the number of steps."
            )
        return OpenPartition(Sequences.of_rows(steps, bounds[:-1], np.diff(bounds)))


def _offsets(file: FileStamp) -> np.ndarray:
    offsets = mapped(file)
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        raise SourceError(
            f"{file.path} must hold integers as offsets, shape (n_sequences + 1,), got dtype {offsets.dtype} and "
            f"{offsets.ndim} dimensions."
        )
    return offsets


def _steps(file: FileStamp, n_features: int | None) -> np.ndarray:
    values = mapped(file)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise SourceError(f"{file.path} holds an array of {values.ndim} dimensions, not a row for each step.")
    try:
        check_dtype(values, "the array")
    except (TypeError, ValueError) as error:
        raise SourceError(f"{file.path}: {error}") from None
    if n_features not in (None, values.shape[1]):
        raise SourceError(f"{file.path} has {values.shape[1]} columns, the data source has {n_features}.")
    return values


def write_sequences(
    parts: Sequences | Iterable[Sequences | Sequence[np.ndarray]],
    to: str | os.PathLike,
    *,
    n_features: int | None = None,
) -> SequenceSource:
    """Write sequences into a new folder of memory-mapped files. Later, ``SequenceSource.from_shards(to)`` is the same source.

    Parameters
    ----------
    parts : Sequences, or iterable of Sequences or of lists of arrays
        A generator reads, say, one file after the other; ``source.chunks(100_000)`` are the sequences of another source.
    to : path
        Folder that does not exist yet; who may read it is as for :func:`vips.data.regroup`.
    n_features : int, optional
        Number of columns: public, and needed for lists. An array of another width is a missing sequence.

    Returns
    -------
    SequenceSource

    Raises
    ------
    FileExistsError
        If ``to`` exists.
    ValueError
        If there is no part, if one has another number of columns than the first, or a list comes without ``n_features``.

    Guarantees
    ----------
    The folder appears as a whole or not at all. A process that is killed leaves a hidden folder ``*.partial`` beside it.

    Notes
    -----
    Memory: a part, and four million steps. A pair of files has at most 16,384 sequences, or those of one part.

    Examples
    --------
    >>> import tempfile
    >>> from vips.data import write_sequences
    >>> months = ([np.array([0, 2, 1]), np.array([month])] for month in range(12))
    >>> source = write_sequences(months, to=tempfile.mkdtemp() + "/visits", n_features=1)
    >>> source.n_records
    24
    """
    with whole_folder(to) as folder:
        width, i = n_features, -1
        for i, part in enumerate(_gathered(parts, n_features)):
            width = part.shape[1] if width is None else width
            if part.shape[1] != width:
                raise ValueError(f"A part has {part.shape[1]} columns, not {width}.")
            for ending, array in ((_VALUES, part.values), (_OFFSETS, part.offsets)):
                with synced_file(folder / f"{i:05d}{ending}") as file:
                    np.save(file, array, allow_pickle=False)
        if i < 0:
            raise ValueError("There is no part to write.")
        sync_folder(folder)
    return SequenceSource.from_shards(to)


def _gathered(parts, n_features: int | None) -> Iterator[Sequences]:
    """Parts, of which small ones are put together."""
    held, n_sequences, n_steps = [], 0, 0
    for part in [parts] if isinstance(parts, Sequences) else parts:
        if not isinstance(part, Sequences):
            if n_features is None:
                raise ValueError(
                    "Lists need the number of columns, which one array would decide otherwise: write n_features=1, say."
                )
            part = Sequences.from_list(part, n_features)
        is_full = n_sequences + len(part) > PARTITION_SIZE or n_steps + len(part.values) > _MOST_STEPS
        is_other = held and (part.values.dtype != held[0].values.dtype or part.shape[1] != held[0].shape[1])
        if held and (is_full or is_other):
            yield Sequences.joined(held)
            held, n_sequences, n_steps = [], 0, 0
        held.append(part)
        n_sequences, n_steps = n_sequences + len(part), n_steps + len(part.values)
    if held:
        yield Sequences.joined(held)
