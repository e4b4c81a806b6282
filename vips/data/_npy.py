"""Files of NumPy: memory-mapped arrays, and folders of CSR matrices."""

from __future__ import annotations

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import BinaryIO, ParamSpec, TypeVar

import numpy as np
import scipy.sparse as sp

from vips.core.records.arrays import PARTITION_SIZE
from vips.core.records.checks import check_dtype, open_checked
from vips.core.records.partition import OpenPartition
from vips.core.records.source import DataSource, FileStamp, Partition, PartitionedSource, Paths, found_files
from vips.exceptions import SourceError

__all__ = ["CSRShards", "NpySource", "mapped", "tried_again"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_ATTEMPTS = 50

# Errors of NumPy, struct and zipfile for torn archives; the last two for unknown compression and encryption.
_UNREADABLE = (
    OSError, ValueError, TypeError, EOFError, AttributeError, MemoryError, OverflowError, struct.error, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
)  # fmt: skip

# Offset in a member's own header of the lengths of its name and of the extra field, which come before the data.
_LENGTHS_AT = 26

# Members whose checksum was verified, by what identifies the file and the member.
_intact: set[tuple] = set()


class NpySource(DataSource):
    """Rows of an array in a ``.npy`` file, with optional labels in another one, in ranges of rows.

    Workers get the paths and map the files themselves, so they need access to them. Memory is bounded by a chunk.

    Parameters
    ----------
    X : path
        Array of shape (n_records, n_features), as ``numpy.save`` writes it.
    y : path, optional
        Array of shape (n_records, ...).
    partition_size : int
        Rows of a partition, as in :class:`InMemoryData`: with equal sizes both give the same fit.

    Raises
    ------
    SourceError
        If a file cannot be read.
    TypeError, ValueError
        If dtypes or shapes cannot be used.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> from vips import DirichletMultinomial, PrivacyPlan
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "X.npy", np.eye(4)[np.random.default_rng(0).integers(0, 4, 20_000)])
    >>> plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=1)
    >>> model = DirichletMultinomial(privacy=plan).fit(NpySource(folder / "X.npy"))
    >>> bool(np.allclose(model.posterior_.mean, 0.25, atol=0.02))
    True
    """

    def __init__(
        self, X: str | os.PathLike, y: str | os.PathLike | None = None, *, partition_size: int = PARTITION_SIZE
    ) -> None:
        self._X, self._partition_size = FileStamp.of(X), partition_size
        self._y = None if y is None else FileStamp.of(y)
        table = mapped(self._X)
        if table.ndim != 2:
            raise ValueError(f"{X} holds an array of {table.ndim} dimensions, not a table with a row for each record.")
        check_dtype(table, str(X))
        if self._y is not None:
            labels = mapped(self._y)
            check_dtype(labels, str(y))
            if labels.shape[:1] != table.shape[:1]:
                raise ValueError(f"{X} and {y} have different numbers of rows.")
        self._n_records, self.n_features = table.shape
        self.has_labels = y is not None

    @property
    def n_partitions(self) -> int:
        return -(-self._n_records // self._partition_size)

    def partition(self, i: int) -> Partition:
        start = i * self._partition_size
        rows = slice(start, min(start + self._partition_size, self._n_records))
        return NpyPartition(f"{self._X.path}, partition {i}", self._X, self._y, rows, self.n_features)


@dataclass(frozen=True, repr=False)
class NpyPartition(Partition):
    """A range of rows of a file."""

    name: str
    X: FileStamp
    y: FileStamp | None
    rows: slice
    n_features: int

    def open(self) -> OpenPartition:
        y = None if self.y is None else mapped(self.y)[self.rows]
        return open_checked(self.name, mapped(self.X)[self.rows], y, self.n_features)


def tried_again(read: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A function that opens and reads files of NumPy, called again after a ``SystemError``.

    NumPy parses the header of an array with ``ast.literal_eval``. In Python 3.11 a parse fails with ``SystemError: AST
    constructor recursion depth mismatch`` when another thread parses at the same time (CPython issue 106905).
    """

    @wraps(read)
    def attempts(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        for _ in range(_ATTEMPTS - 1):
            try:
                return read(*args, **kwargs)
            except SystemError:
                continue
        return read(*args, **kwargs)

    return attempts


@tried_again
def mapped(file: FileStamp) -> np.ndarray:
    """The array of a ``.npy`` file, memory-mapped if it has entries."""
    path = file.check()
    try:
        try:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except ValueError:  # an array without entries cannot be mapped
            return np.load(path, allow_pickle=False)
    except (OSError, ValueError, TypeError, EOFError, MemoryError, OverflowError, SyntaxError) as error:
        # a header may lie
        raise SourceError(f"{path} is not a readable .npy array of numbers ({type(error).__name__}).") from None


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
