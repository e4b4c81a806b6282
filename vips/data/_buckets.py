"""Rows on disk, sorted into buckets by person, and then within each bucket: memory does not grow with the data.

First every bucket is a group of raw files to which rows are appended in the order of the source; then ``write_grouped`` brings
the rows of each person of one bucket together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from vips._support.files import private_file, synced_file
from vips.core.records.ragged import Ragged, gathered, offsets_of
from vips.exceptions import SourceError

__all__ = ["Buckets", "write_grouped"]

_CHUNK_BYTES = 2**24  # copied at a time


class Buckets:
    """Raw files of rows, for each bucket, in a folder that exists, and that the caller removes.

    Attributes
    ----------
    kinds : dict of str to (dtype, shape of one row)
        Arrays of a bucket: those of the first rows that were added.
    """

    def __init__(self, folder: Path, n_buckets: int, n_features: int) -> None:
        self._folder, self._n_buckets, self._n_features = folder, n_buckets, n_features
        self.kinds: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}

    @property
    def kind(self) -> str:
        """What the rows are, as a manifest names it."""
        if "indices" in self.kinds or "data" not in self.kinds:
            return "sparse rows" if "indices" in self.kinds else "rows"
        return "sequences" if len(self.kinds["data"][1]) == 1 else "texts"

    def add(self, name: str, X, y: np.ndarray | None, persons: np.ndarray, order: np.ndarray | None = None) -> None:
        """Append rows; those of one person keep their order, unless ``order`` has keys to sort them by.

        Parameters
        ----------
        name : str
            Where the rows come from, for errors. Public.
        X : ndarray or CSR of shape (n_rows, n_features); or Ragged, of n_rows texts or sequences
        persons : ndarray of uint64, shape (n_rows, 2)
            Hashes; the second word modulo ``n_buckets`` is the bucket.
        order : ndarray of float64, shape (n_rows, 2), optional
            Keys of :func:`vips.data._order.sortable`.

        Raises
        ------
        SourceError
            If dtypes or shapes are not those of the first rows: public facts.
        """
        buckets = persons[:, 1] % np.uint64(self._n_buckets)
        by_bucket = np.argsort(buckets, kind="stable")
        cuts = np.searchsorted(buckets[by_bucket], np.arange(self._n_buckets + 1, dtype=np.uint64))
        columns = {"persons": persons, "y": y, "order": order}
        rows = {key: values[by_bucket] for key, values in columns.items() if values is not None}
        entries, X, ends = {}, X[by_bucket], None
        if sp.issparse(X):
            indices = X.indices
            exists = (indices >= 0) & (indices < self._n_features)  # others stay defective, in any dtype of indices
            narrow = np.int32 if self._n_features < 2**31 else np.int64
            entries = {"data": X.data, "indices": np.where(exists, indices, -1).astype(narrow)}
            rows["lengths"], ends = np.diff(X.indptr).astype(np.int64), X.indptr
        elif isinstance(X, Ragged):
            entries, rows["lengths"], ends = {"data": X.values}, X.lengths, X.offsets
        else:
            rows["X"] = X
        rows, entries = (
            {key: self._alike(name, key, array) for key, array in arrays.items()} for arrays in (rows, entries)
        )
        if set(rows) | set(entries) != set(self.kinds):
            raise SourceError(
                f"{name} is not like the first partition: one has labels or sparse rows, the other has not."
            )
        for bucket in np.flatnonzero(np.diff(cuts)):
            part = slice(cuts[bucket], cuts[bucket + 1])
            stored = None if ends is None else slice(*ends[[part.start, part.stop]])
            for key, array in rows.items():
                self._append(bucket, key, array[part])
            for key, array in entries.items():
                self._append(bucket, key, array[stored])

    def _alike(self, name: str, key: str, array: np.ndarray) -> np.ndarray:
        dtype, shape = self.kinds.setdefault(key, (array.dtype, array.shape[1:]))
        if array.shape[1:] != shape or not np.can_cast(array.dtype, dtype, "safe"):
            raise SourceError(
                f"{name}: {key} has dtype {array.dtype} and rows of shape {array.shape[1:]}, the first partition has {dtype} "
                f"and {shape}. Convert all partitions to one dtype, such as float64."
            )
        return array.astype(dtype, copy=False)

    def _path(self, bucket: int, key: str) -> Path:
        return self._folder / f"{bucket}.{key}"

    def _append(self, bucket: int, key: str, array: np.ndarray) -> None:
        with private_file(self._path(bucket, key), "ab") as file:
            file.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")

    def arrays(self, bucket: int) -> dict[str, np.ndarray]:
        """The rows of a bucket, memory-mapped."""
        return {key: _mapped(self._path(bucket, key), dtype, shape) for key, (dtype, shape) in self.kinds.items()}

    def remove(self, bucket: int) -> None:
        for key in self.kinds:
            self._path(bucket, key).unlink(missing_ok=True)


def write_grouped(arrays: dict[str, np.ndarray], folder: Path) -> None:
    """Write a bucket's rows into ``.npy`` files, by person; see ``vips/data/_grouped.py``.

    Memory: about 100 bytes for each row, beside chunks.
    """
    persons = np.array(arrays.pop("persons"))
    keys = np.array(arrays.pop("order")).T[::-1] if "order" in arrays else ()
    order = np.lexsort((*keys, persons[:, 1], persons[:, 0]))  # stable
    persons = persons[order]
    is_first = np.ones(len(persons), dtype=bool)
    is_first[1:] = (persons[1:] != persons[:-1]).any(axis=1)
    firsts = np.flatnonzero(is_first)
    _write(folder / "persons.npy", np.uint64, (len(firsts), 2), [persons[firsts]])
    starts = np.append(firsts, len(persons)).astype(np.int64)
    _write(folder / "starts.npy", np.int64, starts.shape, [starts])
    del persons, is_first, firsts
    if "lengths" in arrays:
        _write_entries(arrays, order, folder)
    for key in {"X", "y"} & set(arrays):
        array = arrays[key]
        size = max(1, array.dtype.itemsize * int(np.prod(array.shape[1:])))
        _write(folder / f"{key}.npy", array.dtype, array.shape, (array[rows] for rows in _chunks(order, size)))


def _write_entries(arrays: dict[str, np.ndarray], order: np.ndarray, folder: Path) -> None:
    lengths = np.array(arrays["lengths"])
    begins = offsets_of(lengths)[:-1]
    indptr = offsets_of(lengths[order])
    # one dtype of all indices, so that SciPy need not copy them
    dtype = np.dtype(np.int64) if indptr[-1] >= 2**31 or "indices" not in arrays else arrays["indices"].dtype
    _write(folder / "indptr.npy", dtype, indptr.shape, [indptr.astype(dtype)])
    kinds = {"data": arrays["data"].dtype} | ({"indices": dtype} if "indices" in arrays else {})
    for key, kind in kinds.items():
        array = arrays[key]
        size = 16 * max(1, len(array) // max(1, len(order)))
        parts = (gathered(array, begins[rows], offsets_of(lengths[rows])).astype(kind) for rows in _chunks(order, size))
        _write(folder / f"{key}.npy", kind, array.shape, parts)


def _chunks(order: np.ndarray, bytes_of_row: int) -> Iterator[np.ndarray]:
    size = max(1, _CHUNK_BYTES // bytes_of_row)
    return (order[first : first + size] for first in range(0, len(order), size))


def _write(path: Path, dtype, shape: tuple[int, ...], parts) -> None:
    """An ``.npy`` file of arrays one after the other."""
    kind, shape = np.lib.format.dtype_to_descr(np.dtype(dtype)), tuple(map(int, shape))
    with synced_file(path) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
        for part in parts:
            file.write(np.ascontiguousarray(part).data.cast("B") if part.size else b"")


def _mapped(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    size = path.stat().st_size if path.exists() else 0
    if not size:
        return np.zeros((0, *shape), dtype)
    return np.asarray(np.memmap(path, dtype, mode="r")).reshape(-1, *shape)
