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

The hash of a person is in partition (second word modulo the number of partitions), and there once. A partition checks both when
it is opened, so that no two of them can hold parts of one person.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from vips._files import refuse_endless
from vips.data._checks import open_checked
from vips.data._npy import mapped
from vips.data._records import OpenPartition
from vips.data._source import DataSource, FileStamp, Partition, SequenceSource
from vips.data._texts import PackedTexts, TextSource
from vips.data._unread import UnreadSequences
from vips.exceptions import SourceError

__all__ = ["MANIFEST", "GroupedRows", "GroupedSequences", "GroupedTexts", "Manifest"]

MANIFEST = "manifest.json"
_FORMAT, _VERSION = "vips rows grouped by person", 1


@dataclass(frozen=True)
class Manifest:
    """What a folder says of itself: public facts. Written last, so that a folder without it is not complete."""

    grouped_by: str | None
    n_partitions: int
    n_features: int
    feature_names: tuple[str, ...] | None
    is_sparse: bool
    has_labels: bool
    token: str
    are_texts: bool = False
    are_sequences: bool = False

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays of a partition."""
        rows = ("data", "indices", "indptr") if self.is_sparse else ("X",)
        rows = ("data", "indptr") if self.are_texts or self.are_sequences else rows
        return ("persons", "starts", *rows, *(("y",) if self.has_labels else ()))

    def folder_of(self, i: int) -> str:
        """Name of the folder of partition ``i``."""
        return f"{i:05d}-{self.token}"

    def to_json(self) -> str:
        facts = {name: value for name, value in self.__dict__.items() if not name.startswith("are_") or value}
        return json.dumps({"format": _FORMAT, "version": _VERSION} | facts, indent=2)

    @property
    def kind(self) -> str:
        """Name of the class that reads the folder."""
        if self.are_sequences:
            return "GroupedSequences"
        return "GroupedTexts" if self.are_texts else "GroupedRows"

    def _is_usable(self) -> bool:
        numbers, names = (self.n_partitions, self.n_features), self.feature_names
        return (
            all(type(n) is int and n > 0 for n in numbers)
            and (names is None or len(names) == self.n_features)
            and isinstance(self.grouped_by, str | None)
            and str(self.token).isalnum()
        )

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


class GroupedFolder(DataSource):
    """What rows and texts of persons share: a folder with a manifest."""

    has_groups = True
    _partitions: type[GroupedPartition]

    def __init__(self, folder: str | os.PathLike) -> None:
        folder = Path(os.path.abspath(folder))
        self._manifest = manifest = Manifest.read(folder)
        if manifest.kind != type(self).__name__:
            raise SourceError(f"{folder} is to be read with vips.data.{manifest.kind}(folder).")
        self.n_features, self.feature_names = manifest.n_features, manifest.feature_names
        self.has_labels, self.group_name = manifest.has_labels, manifest.grouped_by
        self._files = [
            {name: FileStamp.of(folder / manifest.folder_of(i) / f"{name}.npy") for name in manifest.arrays}
            for i in range(manifest.n_partitions)
        ]

    @property
    def n_partitions(self) -> int:
        return self._manifest.n_partitions

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of persons of each partition: private, unless the relation is "replace_one"."""
        return tuple(len(mapped(files["persons"])) for files in self._files)

    def partition(self, i: int) -> Partition:
        name = os.path.dirname(self._files[i]["persons"].path)
        return self._partitions(name, self._files[i], i, self.n_partitions, self.n_features)


@dataclass(frozen=True, repr=False)
class GroupedPartition(Partition):
    """One partition: files of arrays."""

    name: str
    files: dict[str, FileStamp]
    number: int
    n_partitions: int
    n_features: int

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
        return replace(opened, starts=starts)

    def _opened(self, arrays: dict[str, np.ndarray]) -> OpenPartition:
        return open_checked(self.name, self._rows(arrays), arrays.get("y"), self.n_features)

    def _rows(self, arrays: dict[str, np.ndarray]):
        if "X" in arrays:
            return arrays["X"]
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


class GroupedDocuments(GroupedPartition):
    """One partition of texts."""

    def _opened(self, arrays: dict[str, np.ndarray]) -> OpenPartition:
        texts = PackedTexts(np.array(arrays["data"]), np.array(arrays["indptr"]))
        if not texts.is_valid():
            raise TypeError
        return OpenPartition(texts.documents(), arrays.get("y"))


class GroupedLists(GroupedPartition):
    """One partition of sequences."""

    def _opened(self, arrays: dict[str, np.ndarray]) -> OpenPartition:
        steps = open_checked(self.name, arrays["data"], None, self.n_features).X
        ends = np.array(arrays["indptr"])
        are_ends = ends.dtype == np.int64 and ends.ndim == 1 and len(ends) > 0
        if not are_ends or ends[0] != 0 or ends[-1] != len(steps) or (np.diff(ends) < 0).any():
            raise TypeError
        return OpenPartition(UnreadSequences(steps, ends[:-1], np.diff(ends)), arrays.get("y"))


class GroupedRows(GroupedFolder):
    """Rows of persons, from a folder that :func:`vips.data.regroup` wrote. A record is all rows of one person.

    ``fit(source)`` protects persons: one coin, one clip and one share of the sum for all rows of a person, as
    ``fit(X, y, groups=ids)`` does for arrays. Rows are memory-mapped. Memory is bounded by a chunk and, for sparse rows, by the
    rows of one person. Workers get paths, so they need access to the folder.

    Parameters
    ----------
    folder : path

    Raises
    ------
    SourceError
        If ``regroup`` did not finish writing the folder, or a file of it is missing.

    Guarantees
    ----------
    Every person is one record of one partition. A partition that lost this property, because files were mixed or edited, is
    refused when it is opened.
    """

    _partitions = GroupedPartition

    @property
    def is_sparse(self) -> bool:
        """Whether rows are those of a CSR matrix."""
        return self._manifest.is_sparse


class GroupedTexts(GroupedFolder, TextSource):
    """Texts of persons, from a folder that :func:`vips.data.regroup` wrote. A record is all documents of one person.

    ``fit(source)`` of a ``PrivateCountVectorizer``, and of a pipeline that begins with one, protects persons. Memory is bounded
    by the documents of a partition. The rest is as for :class:`GroupedRows`.

    Parameters
    ----------
    folder : path
    """

    _partitions = GroupedDocuments


class GroupedSequences(GroupedFolder, SequenceSource):
    """Sequences of persons, from a folder that :func:`vips.data.regroup` wrote. A record is all sequences of one person.

    Sequences are memory-mapped. The rest is as for :class:`GroupedRows`.

    Parameters
    ----------
    folder : path
    """

    _partitions = GroupedLists
