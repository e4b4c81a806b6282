"""A folder of partitions that hold whole persons, as :func:`vips.data.regroup` writes it.

::

    folder/
      manifest.json           public facts: name of the ids, columns, number of partitions, the folder's token
      00000-<token>/          a partition; the token is in the names, so that parts of two folders are not mixed
        persons.npy           two 64-bit words for each person, ascending: a keyed hash of the id, whose key is not kept
        starts.npy            where each person's rows begin, and where the last one's end
        X.npy                 rows; or those of a CSR matrix: data.npy, indices.npy, indptr.npy; or texts or sequences:
                              data.npy, indptr.npy
        y.npy                 labels, if there are any
      counts-<random>/        while texts are fitted: counts of their words (vips/preprocessing/_documents.py)

The hash of a person is in partition (second word modulo the number of partitions), and there once. A partition checks both when
it is opened, so that no two of them can hold parts of one person.
"""

from __future__ import annotations

import json
import os
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from vips._support.files import refuse_endless
from vips.core.records.checks import open_checked
from vips.core.records.partition import OpenPartition
from vips.core.records.ragged import divides
from vips.core.records.source import DataSource, FileStamp, Partition, PartitionedSource
from vips.data._npy import mapped
from vips.data._sequence_source import SequenceSource
from vips.data._sequences import Sequences
from vips.data._texts import PackedTexts, TextSource
from vips.exceptions import SourceError

__all__ = ["MANIFEST", "Manifest", "regrouped", "with_numbers_of_persons"]

MANIFEST = "manifest.json"
_FORMAT, _VERSION = "vips rows grouped by person", 1
_KINDS = {  # the class of the source, and the arrays of a partition
    "rows": (PartitionedSource, ("X",)),
    "sparse rows": (PartitionedSource, ("data", "indices", "indptr")),
    "texts": (TextSource, ("data", "indptr")),
    "sequences": (SequenceSource, ("data", "indptr")),
}


@dataclass(frozen=True)
class Manifest:
    """What a folder says of itself: public facts. Written last, so that a folder without it is not complete."""

    grouped_by: str | None
    n_partitions: int
    n_features: int
    feature_names: tuple[str, ...] | None
    kind: str
    has_labels: bool
    token: str

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays of a partition."""
        return ("persons", "starts", *_KINDS[self.kind][1], *(("y",) if self.has_labels else ()))

    def folder_of(self, i: int) -> str:
        """Name of the folder of partition ``i``."""
        return f"{i:05d}-{self.token}"

    def to_json(self) -> str:
        return json.dumps({"format": _FORMAT, "version": _VERSION} | self.__dict__, indent=2)

    def _is_usable(self) -> bool:
        names = self.feature_names
        are_numbers = all(type(n) is int and n > 0 for n in (self.n_partitions, self.n_features))
        are_named = isinstance(self.grouped_by, str | None) and (names is None or len(names) == self.n_features)
        return are_numbers and are_named and self.kind in _KINDS and str(self.token).isalnum()

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder; SourceError if there is none that this version can read."""
        try:
            refuse_endless(folder / MANIFEST)
            facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if facts.pop("format") != _FORMAT:
                raise ValueError
            version = facts.pop("version")
            names = facts.pop("feature_names")
            manifest = cls(feature_names=None if names is None else tuple(map(str, names)), **facts)
            is_usable = manifest._is_usable()
        except Exception:  # whatever a damaged file leads to
            raise SourceError(
                f"{folder} is not a folder that vips.data.regroup finished writing: it has no readable {MANIFEST}."
            ) from None
        if version != _VERSION or not is_usable:
            raise SourceError(f"{folder / MANIFEST} is of version {version!r}, or damaged: regroup the data again.")
        return manifest


def regrouped(folder: str | os.PathLike) -> PartitionedSource:
    """Open a folder that :func:`vips.data.regroup` wrote. A record is all rows, all texts or all sequences of one person.

    ``fit(source)`` protects persons: one coin, one clip and one share of the sum for all rows of a person, as
    ``fit(X, y, groups=ids)`` does for arrays. Files are memory-mapped. Memory is bounded by a chunk and, for sparse rows, by
    the rows of one person. Workers get paths, so they need access to the folder.

    Parameters
    ----------
    folder : path

    Returns
    -------
    DataSource
        A ``TextSource`` for texts, a ``SequenceSource`` for sequences.

    Raises
    ------
    SourceError
        If ``regroup`` did not finish writing the folder, or a file of it is missing.

    Guarantees
    ----------
    Every person is one record of one partition. A partition that lost this property, because files were mixed or edited, is
    refused when it is opened.
    """
    folder = Path(os.path.abspath(folder))
    manifest = Manifest.read(folder)
    partitions = []
    for i in range(manifest.n_partitions):
        path = folder / manifest.folder_of(i)
        files = {name: FileStamp.of(path / f"{name}.npy") for name in manifest.arrays}
        facts = manifest.n_partitions, manifest.n_features, manifest.kind
        partitions.append(GroupedPartition(str(path), files, i, *facts))
    source = _KINDS[manifest.kind][0](partitions)
    source.n_features, source.folder = manifest.n_features, str(folder)
    source.feature_names, source.has_labels = manifest.feature_names, manifest.has_labels
    source.has_groups, source.group_name = True, manifest.grouped_by
    return source


def with_numbers_of_persons(source: DataSource) -> DataSource | None:
    """What :func:`regrouped` opens, with a number from 0 to 1 of each row's person in a column after its label: a function of
    the person's id and the folder's key. None for other sources."""
    if not (isinstance(source, PartitionedSource) and isinstance(source.partition(0), GroupedPartition)):
        return None
    source = copy(source)
    source.partitions = tuple(replace(partition, numbers_persons=True) for partition in source.partitions)
    return source


@dataclass(frozen=True, repr=False)
class GroupedPartition(Partition):
    """One partition: files of arrays."""

    name: str
    files: dict[str, FileStamp]
    number: int
    n_partitions: int
    n_features: int
    kind: str
    numbers_persons: bool = False

    def open(self) -> OpenPartition:
        arrays = {name: mapped(file) for name, file in self.files.items()}
        persons, starts = arrays["persons"], np.array(arrays["starts"])
        try:
            opened = self._opened(arrays)
            is_whole = self._holds_whole_persons(persons, starts, opened.X.shape[0])
        except SourceError:  # a width or a dtype, which are public
            raise
        except (TypeError, ValueError):  # the message may hold an entry
            is_whole = False
        if not is_whole:
            raise SourceError(
                f"{self.name} does not hold whole persons any more: its files were changed or mixed with others after "
                "vips.data.regroup wrote them, and a person could be in several records. Regroup the data again."
            )
        if self.numbers_persons:
            if opened.y.ndim != 1:
                raise SourceError(f"{self.name}: y must have one label for each row of X, shape (n_records,).")
            numbers = np.repeat(persons[:, 0] / 2.0**64, np.diff(starts))
            opened = replace(opened, y=np.column_stack([opened.y, numbers]))
        return replace(opened, starts=starts)

    def _opened(self, arrays: dict[str, np.ndarray]) -> OpenPartition:
        if self.kind == "texts":
            return OpenPartition(PackedTexts.of_rows(*self._ragged(arrays, arrays["data"], np.uint8)), arrays.get("y"))
        if self.kind == "sequences":
            steps = open_checked(self.name, arrays["data"], None, self.n_features).X
            return OpenPartition(Sequences.of_rows(*self._ragged(arrays, steps, steps.dtype)), arrays.get("y"))
        X = arrays["X"] if self.kind == "rows" else self._sparse(arrays)
        return open_checked(self.name, X, arrays.get("y"), self.n_features)

    def _ragged(self, arrays: dict[str, np.ndarray], values: np.ndarray, dtype) -> tuple:
        """What :class:`vips.core.records.ragged.Ragged` takes."""
        offsets = np.array(arrays["indptr"])
        if values.dtype != dtype or offsets.dtype != np.int64 or not divides(offsets, len(values)):
            raise TypeError
        return values, offsets[:-1], np.diff(offsets)

    def _sparse(self, arrays: dict[str, np.ndarray]):
        for name in ("indices", "indptr"):
            if arrays[name].dtype.kind != "i":
                raise TypeError
        shape = (len(arrays["indptr"]) - 1, self.n_features)
        return sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)

    def _holds_whole_persons(self, persons: np.ndarray, starts: np.ndarray, n_rows: int) -> bool:
        """Whether each person is of this partition, is there once, and has rows of its own; and each row has a person."""
        if persons.dtype != np.uint64 or persons.ndim != 2 or persons.shape[1] != 2:
            return False
        if starts.dtype != np.int64 or starts.shape != (len(persons) + 1,) or starts[0] != 0 or starts[-1] != n_rows:
            return False
        first, second = persons[:, 0], persons[:, 1]
        ascends = (first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] > second[:-1]))
        is_here = second % np.uint64(self.n_partitions) == self.number
        return bool(ascends.all() and is_here.all() and (np.diff(starts) > 0).all())
