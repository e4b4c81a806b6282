"""Folders of CSR matrices."""

from __future__ import annotations

import os
import struct
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import numpy as np
import scipy.sparse as sp

from vips.core.records.checks import open_checked
from vips.core.records.partition import OpenPartition
from vips.core.records.source import FileStamp, Partition, PartitionedSource, Paths, found_files
from vips.data._npy import tried_again
from vips.exceptions import SourceError

__all__ = ["CSRShards"]

# Errors of NumPy, struct and zipfile for torn archives; the last two for unknown compression and encryption.
_UNREADABLE = (
    OSError, ValueError, TypeError, EOFError, AttributeError, MemoryError, OverflowError, struct.error, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
)  # fmt: skip

# Offset in a member's own header of the lengths of its name and of the extra field, which come before the data.
_LENGTHS_AT = 26

# Members whose checksum was verified, by what identifies the file and the member.
_intact: set[tuple] = set()


class CSRShards(PartitionedSource):
    """CSR matrices in ``.npz`` files, as ``scipy.sparse.save_npz`` writes them. A file is a partition.

    Write them with ``compressed=False``: every step reads them again, and unpacking takes longer than reading.
    Memory is bounded by the largest shard, which a worker reads whole. Shards of 10,000 to 100,000 rows are a good size: there
    are enough of them to share, and each keeps a worker busy. Empty shards are allowed.

    Parameters
    ----------
    path : path, or list of paths
        As in :class:`ParquetTable`.
    n_features : int, optional
        Number of columns: public. By default that of the first shard; a shard of another width is an error.
    pattern : str
        Pattern of the names of files in the folder.
    labels : str, optional
        Name of an array in each file that holds a label for each row.

    Raises
    ------
    SourceError
        If there is no shard, or the first one cannot be read. Later shards are read by the fit.
    """

    def __init__(
        self, path: Paths, *, n_features: int | None = None, pattern: str = "*.npz", labels: str | None = None
    ) -> None:
        files = [FileStamp.of(file) for file in found_files(path, pattern)]
        self.n_features = _shape(files[0])[1] if n_features is None else int(n_features)
        self.has_labels = labels is not None
        super().__init__(Shard(file, self.n_features, labels) for file in files)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(_shape(partition.file)[0] for partition in self.partitions)


@dataclass(frozen=True, repr=False)
class Shard(Partition):
    """One file."""

    file: FileStamp
    n_features: int
    labels: str | None

    @property
    def name(self) -> str:
        return self.file.path

    def ids(self, by: str) -> object:
        return _read(self.file, ("format", "shape", by))[2]

    def open(self) -> OpenPartition:
        names = ("format", "shape", "data", "indices", "indptr", *([self.labels] if self.labels else []))
        _, shape, data, indices, indptr, *labels = _read(self.file, names)
        if shape[1] != self.n_features:
            raise SourceError(f"{self.name} has {shape[1]} columns, the data source has {self.n_features}.")
        # SciPy would convert them, and raise or warn for some entries
        for name, places in (("indices", indices), ("indptr", indptr)):
            if places.dtype.kind not in "iu":
                raise SourceError(f"{self.name}: {name} must hold integers, not {places.dtype}.")
        try:
            X = sp.csr_array((data, indices, indptr), shape=shape)
        except (TypeError, ValueError):  # the message may hold an entry
            raise SourceError(f"{self.name} is not a CSR matrix: its arrays do not fit together.") from None
        return open_checked(self.name, X, labels[0] if labels else None, self.n_features)


def _shape(file: FileStamp) -> tuple[int, int]:
    return _read(file, ("format", "shape"))[1]


def _read(stamp: FileStamp, names: tuple[str, ...]) -> list:
    """Arrays of a shard, the first two of which are its format and shape."""
    path = stamp.check()
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            arrays = [_member(archive, file, name) for name in names]
        kind, shape = arrays[0].item(), tuple(int(n) for n in arrays[1])
    except KeyError:
        raise SourceError(f"{path} must hold the arrays {', '.join(names)}.") from None
    except _UNREADABLE as error:
        raise SourceError(f"{path} cannot be read as a CSR shard ({type(error).__name__}).") from None
    if kind not in (b"csr", "csr") or len(shape) != 2:
        raise SourceError(f"{path} holds a matrix that is not CSR: write scipy.sparse.save_npz(path, X.tocsr()).")
    return [kind, shape, *arrays[2:]]


@tried_again
def _member(archive: zipfile.ZipFile, file: BinaryIO, name: str) -> np.ndarray:
    """An array of an archive. Uncompressed members are checksummed once, then read directly: every step reads them, the file
    must not change, and checksums took longer than reading."""
    info = archive.getinfo(name if name in archive.namelist() else f"{name}.npy")
    status = os.fstat(file.fileno())
    member = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, info.filename)
    if member in _intact and info.compress_type == zipfile.ZIP_STORED:
        file.seek(info.header_offset + _LENGTHS_AT)
        name_length, extra_length = struct.unpack("<HH", file.read(4))
        file.seek(name_length + extra_length, os.SEEK_CUR)
        return np.lib.format.read_array(file, allow_pickle=False)
    with archive.open(info) as data:
        array = np.lib.format.read_array(data, allow_pickle=False)
        data.read()  # to the end, where the checksum is compared
    _intact.add(member)
    return array
