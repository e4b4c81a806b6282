"""Folders of sequences in pairs of ``.npy`` files, memory-mapped.

::

    folder/
      00000.values.npy      steps of all sequences, one sequence after the other: (n_steps,) or (n_steps, n_features)
      00000.offsets.npy     integers, (n_sequences + 1,): where each sequence begins, and where the last one ends
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vips._validation import check_integer
from vips.data._arrays import PARTITION_SIZE
from vips.data._checks import check_dtype
from vips.data._npy import mapped
from vips.data._records import OpenPartition
from vips.data._source import FileStamp, Partition, SequenceSource, found_files
from vips.data._unread import UnreadSequences
from vips.exceptions import SourceError

__all__ = ["OFFSETS", "VALUES", "SequenceShards"]

VALUES, OFFSETS = ".values.npy", ".offsets.npy"


class SequenceShards(SequenceSource):
    """Sequences in pairs of files ``*.values.npy`` and ``*.offsets.npy``, in ranges of sequences.

    :func:`vips.data.write_sequences` writes them, and so does ``numpy.save``. Workers get paths and map the files. Memory is
    bounded by a chunk: of a sequence no more steps are read than the model's ``max_length``.

    Parameters
    ----------
    path : path, or list of paths
        A folder (its files that match ``pattern``, in the order of their names), one file of values, or files of values in the
        order given.
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

    def __init__(
        self,
        path: str | os.PathLike | Iterable[str | os.PathLike],
        *,
        n_features: int | None = None,
        pattern: str = f"*{VALUES}",
        partition_size: int = PARTITION_SIZE,
    ) -> None:
        check_integer("partition_size", partition_size)
        files = found_files(path, pattern) if isinstance(path, str | os.PathLike) else list(path)
        if not files:
            raise SourceError("A data source needs at least one file.")
        self.n_features, self._ranges = n_features, []
        for file in map(os.fspath, files):
            if not file.endswith(VALUES):
                raise SourceError(f"{file} is not named *{VALUES}.")
            values, offsets = FileStamp.of(file), FileStamp.of(file.removesuffix(VALUES) + OFFSETS)
            width, n_sequences = _table(values, None).shape[1], len(_offsets(offsets)) - 1
            self.n_features = width if self.n_features is None else int(self.n_features)
            _check_width(values.path, width, self.n_features)
            size = int(partition_size)
            for first in range(0, n_sequences, size):
                self._ranges.append((values, offsets, first, min(first + size, n_sequences)))

    @property
    def n_partitions(self) -> int:
        return len(self._ranges)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(last - first for _, _, first, last in self._ranges)

    def partition(self, i: int) -> Partition:
        values, offsets, first, last = self._ranges[i]
        name = f"{values.path}, sequences from {first}"
        return ShardRange(name, values, offsets, first, last, self.n_features)


@dataclass(frozen=True, repr=False)
class ShardRange(Partition):
    """A range of the sequences of a pair of files."""

    name: str
    values: FileStamp
    offsets: FileStamp
    first: int
    last: int
    n_features: int

    def open(self) -> OpenPartition:
        return OpenPartition(
            opened(self.name, self.values, self.offsets, slice(self.first, self.last + 1), self.n_features)
        )


def opened(name: str, values: FileStamp, offsets: FileStamp, span: slice, n_features: int) -> UnreadSequences:
    """Sequences of a pair of files, whose offsets are in order; only those of ``span`` are read.

    Raises
    ------
    SourceError
        If the files do not fit together: nothing is read beyond them.
    """
    table, all_ends = _table(values, n_features), _offsets(offsets)
    ends = np.array(all_ends[span], np.int64)
    fit = len(ends) == span.stop - span.start and ends[0] >= 0 and ends[-1] <= len(table) and (np.diff(ends) >= 0).all()
    if not fit or all_ends[0] != 0 or all_ends[-1] != len(table):
        raise SourceError(
            f"{name}: the offsets do not divide the steps; they must ascend from 0 to the number of steps."
        )
    return UnreadSequences(table, ends[:-1], np.diff(ends))


def _offsets(file: FileStamp) -> np.ndarray:
    offsets = mapped(file)
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        raise SourceError(
            f"{file.path} must hold integers as offsets, shape (n_sequences + 1,), got dtype {offsets.dtype} and "
            f"{offsets.ndim} dimensions."
        )
    return offsets


def _table(file: FileStamp, n_features: int | None) -> np.ndarray:
    values = mapped(file)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise SourceError(f"{file.path} holds an array of {values.ndim} dimensions, not a row for each step.")
    try:
        check_dtype(values, "the array")
    except (TypeError, ValueError) as error:
        raise SourceError(f"{file.path}: {error}") from None
    if n_features is not None:
        _check_width(file.path, values.shape[1], n_features)
    return values


def _check_width(path: str, width: int, n_features: int) -> None:
    if width != n_features:
        raise SourceError(f"{path} has {width} columns, the data source has {n_features}.")
