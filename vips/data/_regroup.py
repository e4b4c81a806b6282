"""Bring the rows of each person together on disk, by buckets: memory does not grow with the data.

First every bucket is a group of raw files to which rows are appended in the order of the source; then ``write_grouped`` brings
the rows of each person of one bucket together.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from vips._support.files import private_file, sync_folder, synced_file, whole_folder
from vips._support.printable import class_and_place
from vips._support.validation import check_integer
from vips.core.mechanism.secret_bits import secret_bytes
from vips.core.records.checks import check_data
from vips.core.records.groups import check_ids, ids_and_numbers, name_of
from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import Ragged, gathered, offsets_of
from vips.core.records.source import DataSource, Partition
from vips.core.records.tables import from_arrow
from vips.data._dask import DaskSource, as_source, column_as_declared, is_dask
from vips.data._grouped import MANIFEST, Manifest, regrouped
from vips.data._order import sortable
from vips.data._sequence_source import SequenceSource
from vips.data._sequences import Sequences
from vips.data._texts import PackedTexts, TextSource
from vips.exceptions import SourceError

__all__ = ["hashes_of_ids", "regroup"]

_MOST_PARTITIONS = 1024  # unless they are asked for
_CHUNK_BYTES = 2**24  # copied at a time


def regroup(X, y=None, *, by, order=None, to: str | os.PathLike, n_partitions: int | None = None) -> DataSource:
    """Write the rows of a source into a new folder, all rows of one person in one partition, one after the other.

    A fit to the result protects persons: ``fit(regroup(source, by="patient_id", to="by_patient"))``. Later,
    ``regrouped("by_patient")`` is the same source.

    Parameters
    ----------
    X : data source, Dask collection, array, CSR matrix or data frame
        Rows, in any order; or a source of texts or of sequences. Sources hold their own labels.
    y : array or Dask collection, optional
        Labels, as in ``fit``.
    by : str, or array, series or Dask collection of length n_rows
        Ids of persons: whole numbers, strings or bytes, equal as in ``fit(..., groups=ids)``. A str names a column of a
        Parquet source or a data frame, or of an array in each file of ``CSRShards``. A column of a data frame is then no
        feature. The name becomes the unit of the fit.
    order : str, or array, series or Dask collection of length n_rows, optional
        Numbers or dates that order the rows of each person; what is missing comes last, and rows that tie stay in their order.
        A column of a data frame is then no feature. None leaves rows in the order of the source.
    to : path
        Folder that does not exist yet. It holds records, and only its owner may read it, whatever the umask: give others the
        permissions that they have for the data.
    n_partitions : int, optional
        By default as many as the source has, at most 1,024. Public.

    Returns
    -------
    DataSource
        What :func:`regrouped` opens.

    Raises
    ------
    FileExistsError
        If ``to`` exists.
    TypeError, ValueError, SourceError
        From public facts: containers, dtypes, names and numbers of columns, files that cannot be read.

    Guarantees
    ----------
    - The folder appears as a whole or not at all. A process that is killed leaves a hidden folder ``*.partial`` beside it,
      which you may delete.
    - A row whose id is missing, or is no whole number, text, bytes, UUID or tuple of these, belongs to nobody and is left out.
    - Which partition a person is in, and its place there, depend on its id and a random key only. The key is not kept.

    Notes
    -----
    Memory: one partition of the source, and about 100 bytes for each row of the largest partition that is written. Disk: the
    rows twice, until the end.

    A Dask collection must compute the same rows in the same order every time: rows, labels and ids may be computed apart, and
    an id beside another row would put that row into the wrong person. Persist one that shuffles, or write it to Parquet.

    The hash is keyed because ids may be chosen by persons: whoever knew the hash could send many persons into one partition,
    or find two ids with one hash.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from vips import DirichletMultinomial, PrivacyPlan
    >>> from vips.data import NpySource, regroup
    >>> folder, visits = Path(tempfile.mkdtemp()), np.eye(4)[np.random.default_rng(0).integers(0, 4, 1000)]
    >>> np.save(folder / "visits.npy", visits)
    >>> source = regroup(NpySource(folder / "visits.npy"), by=np.arange(1000) % 300, to=folder / "by_patient")
    >>> plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=1, max_rows_per_group=3)
    >>> DirichletMultinomial(privacy=plan).fit(source).privacy_.unit
    'all rows of one group'
    """
    source, names, keys = _source(X, y, [by] if order is None else [by, order])
    if not source.n_features:
        raise ValueError("X has no columns.")
    is_key = is_dask(keys[0]) and not hasattr(keys[0], "to_dask_array")  # a Dask array's name is not the user's
    name = None if is_key else name_of(keys[0])
    if n_partitions is None:
        n_partitions = min(max(source.n_partitions, 1), _MOST_PARTITIONS)
    check_integer("n_partitions", n_partitions)
    with whole_folder(to) as folder:
        spilled = folder / "rows"
        spilled.mkdir(0o700)
        buckets = Buckets(spilled, int(n_partitions), source.n_features)
        with np.errstate(all="ignore"):
            _fill(buckets, source, keys)
        facts = source.n_features, names, buckets.kind, source.has_labels
        manifest = Manifest(name, int(n_partitions), *facts, token=uuid.uuid4().hex)
        for i in range(manifest.n_partitions):
            part = folder / manifest.folder_of(i)
            part.mkdir(0o700)
            write_grouped(buckets.arrays(i), part)
            buckets.remove(i)
            sync_folder(part)
        shutil.rmtree(spilled)
        with synced_file(folder / MANIFEST) as file:
            file.write(manifest.to_json().encode())
    return regrouped(to)


def _source(X, y, keys: list) -> tuple[DataSource, tuple[str, ...] | None, list]:
    """The rows, the names of their columns, and the ids and the order; a column of a data frame is taken out of it."""
    if isinstance(X, str | os.PathLike):
        raise TypeError(
            "X must be a data source or a table, got a path: write vips.data.ParquetTable(path, features=[...]), say."
        )
    X = from_arrow(X)
    if hasattr(X, "columns"):
        names = [key for key in keys if isinstance(key, str)]
        for name in names:
            if list(X.columns).count(name) != 1:
                raise ValueError(f"The data frame has no column {name!r}, or two.")
        keys = [X[key] if isinstance(key, str) else key for key in keys]
        X = X.drop(columns=names) if names else X
    if not isinstance(keys[0], str):
        check_ids(keys[0])
    source = as_source(X, y)
    if source is None:
        names = tuple(map(str, X.columns)) if hasattr(X, "columns") else None
        return check_data(X, y), names, keys
    if source.has_groups:
        raise ValueError("The source holds persons already: regroup the one that it was made from.")
    return source, source.feature_names, keys


def _fill(buckets: Buckets, source: DataSource, keys: list) -> None:
    """Write every row that has an id to its bucket; drop the rest."""
    key, kinds = secret_bytes(32), set()
    for name, opened, (ids, *orders) in _rows_and_keys(source, keys):
        n_rows, order = opened.X.shape[0], None
        if len(ids) != n_rows:
            raise SourceError(f"{name}: X and `by` have different numbers of rows.")
        try:
            distinct, numbers = ids_and_numbers(ids, n_rows)
            for column in orders:
                order, kind = sortable(column, n_rows)
                kinds |= {kind} - {None}
        except (TypeError, ValueError) as error:
            raise SourceError(f"{name}: {error}") from None
        if len(kinds) > 1:
            raise SourceError(
                f"{name}: `order` has values of another kind than in the first partitions: {' and '.join(sorted(kinds))}."
            )
        rows = np.flatnonzero(numbers >= 0)
        y = None if opened.y is None else opened.y[rows]
        X = opened.X[rows]
        X = PackedTexts.of(X) if isinstance(X, np.ndarray) and isinstance(source, TextSource) else X
        buckets.add(name, X, y, hashes_of_ids(distinct, key)[numbers[rows]], None if order is None else order[rows])
    if not source.n_partitions:
        no_labels = np.zeros(0) if source.has_labels else None
        nothing = PackedTexts.of([]) if isinstance(source, TextSource) else np.zeros((0, source.n_features))
        nothing = Sequences(nothing, np.zeros(1, np.int64)) if isinstance(source, SequenceSource) else nothing
        buckets.add("no rows", nothing, no_labels, hashes_of_ids([], key))


def hashes_of_ids(ids: Iterable[bytes], key: bytes) -> np.ndarray:
    """Keyed hashes of 128 bits, shape (n_ids, 2). Two of n ids have one hash with probability below n²/2¹²⁹."""
    digests = b"".join(hashlib.blake2b(encoded, digest_size=16, key=key).digest() for encoded in ids)
    return np.frombuffer(digests, np.uint64).reshape(-1, 2)


def _rows_and_keys(source: DataSource, keys: list) -> Iterator[tuple[str, OpenPartition, list]]:
    """The name, the rows, and the ids (and the order) of every partition."""
    open_one, n_rows = _opener(source, keys), 0
    for i, partition in enumerate(source.partitions):
        try:
            opened, ids_and_order = open_one(i, partition, n_rows)
        except SourceError:
            raise
        except Exception as error:
            problem = class_and_place(error)
        else:
            n_rows += opened.X.shape[0]
            yield partition.name, opened, ids_and_order
            continue
        # outside of `except`, so that the original error, which may quote a record, is not attached
        raise SourceError(f"{partition.name} cannot be read: {problem}.")
    for name, key in zip(("by", "order"), keys, strict=False):
        if not (isinstance(key, str) or is_dask(key)) and len(key) != n_rows:
            raise ValueError(f"X and `{name}` have different numbers of rows.")


def _opener(source: DataSource, keys: list) -> Callable:
    """A function of (number of a partition, the partition, number of rows before it): its rows, and their ids and order."""
    chunks = [list(key.to_delayed()) if is_dask(key) else None for key in keys]
    for name, delayed in zip(("by", "order"), chunks, strict=False):
        if delayed is not None and (not isinstance(source, DaskSource) or len(delayed) != source.n_partitions):
            raise ValueError(f"`{name}` is a Dask collection: pass X as one, too, in the same chunks of rows.")

    def open_one(i: int, partition: Partition, before: int) -> tuple[OpenPartition, list]:
        if any(parts is not None for parts in chunks):  # together, so that they are of the same rows
            opened, computed = partition.open_with([None if parts is None else parts[i] for parts in chunks])
            computed = [
                column_as_declared(values, getattr(key, "dtype", None), are_ids=j == 0)
                for j, (key, values) in enumerate(zip(keys, computed, strict=True))
            ]
        else:
            opened, computed = partition.open(), [None] * len(keys)
        rows = slice(before, before + opened.X.shape[0])
        for j, key in enumerate(keys):
            if isinstance(key, str) and computed[j] is None:
                computed[j] = partition.ids(key)
            elif computed[j] is None:
                computed[j] = key.iloc[rows] if hasattr(key, "iloc") else key[rows]
        return opened, computed

    return open_one


# -- buckets ----------------------------------------------------------------------------------------------------------------


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
        arrays = {key: np.zeros((0, *shape), dtype) for key, (dtype, shape) in self.kinds.items()}
        for key, (dtype, shape) in self.kinds.items():
            path = self._path(bucket, key)
            if path.exists() and path.stat().st_size:
                arrays[key] = np.asarray(np.memmap(path, dtype, mode="r")).reshape(-1, *shape)
        return arrays

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
