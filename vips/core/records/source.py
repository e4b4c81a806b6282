"""The contract of a data source: public facts, and handles that a worker opens to read records.

A record is addressed by (partition, row), and its coins depend on that address. So another division into partitions draws other
samples: it may depend on files and settings, never on the executor.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from vips.core.records.partition import OpenPartition
from vips.exceptions import SourceError

__all__ = ["DataSource", "FileStamp", "Partition", "PartitionedSource", "Paths", "found_files"]

Paths = str | os.PathLike | Iterable[str | os.PathLike]  # a file, a folder, or files


class Partition(ABC):
    """A light handle of some records: pickled, sent to a worker, and opened there.

    Attributes
    ----------
    name : str
        Its name in errors. Public.
    holds_records : bool
        Whether its pickle holds the records themselves, not only where to find them.
    """

    name: str
    holds_records: bool = False

    @abstractmethod
    def open(self) -> OpenPartition:
        """The records. Any number of workers may open a partition, any number of times, in any thread: they see the same rows.

        Raises
        ------
        SourceError
            From public facts only: a file that is missing, torn, changed, or of another width or dtype.
        """

    def ids(self, by: str) -> object:
        """Ids of the rows, from a column of that name, as :func:`vips.data.regroup` needs them."""
        raise SourceError(
            f"{self.name} has no column to take ids from: pass an array with an id for each row instead of {by!r}."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"  # workers write arguments into logs


class DataSource(ABC):
    """Records that a fit reads partition by partition.

    A source is immutable: its files or its collection must not change until the last fit that uses it has ended. A file whose
    size or time changed stops the fit.

    Attributes
    ----------
    n_features : int
        Number of columns. Public.
    feature_names : tuple of str or None
        Public, too.
    has_labels : bool
        Whether a record has a label.
    has_groups : bool
        Whether a record is all rows of one person. Such a source promises that a person's rows are in one partition, where
        ``OpenPartition.starts`` says which they are.
    group_name : str or None
        Name of the persons' ids, for the unit of a fit. Public.
    """

    n_features: int
    feature_names: tuple[str, ...] | None = None
    has_labels: bool = False
    has_groups: bool = False
    group_name: str | None = None
    is_checked: bool = False  # whether the values of a non-private fit were validated before

    @property
    @abstractmethod
    def n_partitions(self) -> int:
        """Number of partitions."""

    @abstractmethod
    def partition(self, i: int) -> Partition:
        """The handle of partition ``i``. Reads no record."""

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """All handles, in order. The same objects every time, so that workers can keep them between steps."""
        return tuple(self.partition(i) for i in range(self.n_partitions))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of records of each partition: private, unless the relation is "replace_one"."""
        return tuple(partition.open().n_records for partition in self.partitions)

    @property
    def n_records(self) -> int:
        """Number of records: private. Only for non-private fits, and for plans in which it is public."""
        return sum(self.sizes)

    def chunks(self, chunk_size: int) -> Iterator:
        """Yield all rows in order, ignoring groups, in chunks of at most ``chunk_size``."""
        for partition in self.partitions:
            opened = replace(partition.open(), starts=None)
            yield from opened.chunks(np.arange(opened.n_records), chunk_size)


class PartitionedSource(DataSource):
    """A source whose partitions are known when it is made.

    Parameters
    ----------
    partitions : iterable of Partition
    sizes : iterable of int, optional
        Number of records of each partition. None: a partition is opened if somebody asks.

    Attributes
    ----------
    folder : str or None
        A folder of records that vips wrote, and only its owner may read: what is derived from them may be kept there.
    """

    folder: str | None = None

    def __init__(self, partitions: Iterable[Partition], sizes: Iterable[int] | None = None) -> None:
        self.partitions = tuple(partitions)
        if sizes is not None:
            self.sizes = tuple(sizes)

    @property
    def n_partitions(self) -> int:
        return len(self.partitions)

    def partition(self, i: int) -> Partition:
        return self.partitions[i]


@dataclass(frozen=True)
class FileStamp:
    """A file, with its size and time when its source was made."""

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: str | os.PathLike) -> FileStamp:
        path = os.path.abspath(path)
        try:
            status = os.stat(path)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, a device read without end
            raise SourceError(f"{path} is not a file.")
        return cls(path, status.st_size, status.st_mtime_ns)

    def check(self) -> str:
        """Its path, unless the file changed."""
        if type(self).of(self.path) != self:
            raise SourceError(f"{self.path} has changed since the data source was made: sources are immutable.")
        return self.path


def found_files(path: Paths, pattern: str) -> Sequence[str | os.PathLike]:
    """A file, the files of a folder that match ``pattern`` by name, in the order of their names, or those given."""
    if not isinstance(path, str | os.PathLike):
        files = list(path)
        if not files:
            raise SourceError("A data source needs at least one file.")
        return files
    path = Path(path)
    if not path.is_dir():
        return [path]
    inside = sorted(file for file in path.glob(pattern) if file.is_file())
    if not inside:
        raise SourceError(f"{path} holds no file {pattern}.")
    return inside
