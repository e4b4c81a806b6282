"""Memory-mapped ``.npy`` files."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np

from vips.core.records.arrays import PARTITION_SIZE
from vips.core.records.checks import check_dtype, open_checked
from vips.core.records.partition import OpenPartition
from vips.core.records.source import DataSource, FileStamp, Partition
from vips.exceptions import SourceError

__all__ = ["NpySource", "mapped", "tried_again"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_ATTEMPTS = 50


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

    @functools.wraps(read)
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
