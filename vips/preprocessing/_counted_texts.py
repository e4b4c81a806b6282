"""Counts of words as a data source: texts are counted where their partition is opened.

Every step opens every partition. Texts of persons, in a folder that :func:`vips.data.regroup` wrote, are counted once: counts
are kept inside that folder, which only its owner may read. Other sources have no such place, and are counted in every step.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp

from vips._support.files import whole_file
from vips.core.records.checks import checked_csr
from vips.core.records.partition import OpenPartition
from vips.core.records.source import DataSource, Partition
from vips.data._npy import tried_again
from vips.data._texts import TextSource
from vips.preprocessing._documents import counts_of_words

__all__ = ["CountedTexts"]

_ARRAYS = ("data", "indices", "indptr")


class CountedTexts(DataSource):
    """Counts of the words of a source of texts, for models. ``settings`` say what a word is; words have the columns of
    ``vocabulary``.

    Guarantees
    ----------
    - Counts that are kept are those of this object, with these settings and this vocabulary: no other object reads them.
    - Their folder has permissions 0700, and its files 0600, whatever the umask. It is there before a text is read, also if it
      stays empty, and is removed with this object. A process that is killed leaves it; you may delete it.
    - Whether counts can be kept changes no count, and raises nothing.
    """

    def __init__(self, texts: TextSource, settings: dict, vocabulary: Mapping[str, int]) -> None:
        self._texts = texts
        self._counted = partial(counts_of_words, settings, vocabulary)  # one object for all partitions
        self.n_features, self.has_labels = len(vocabulary), texts.has_labels
        self.group_name = texts.group_name
        self._folder = None if texts.folder is None else _folder_of_counts(self, texts.folder)

    @property
    def has_groups(self) -> bool:
        return self._texts.has_groups

    @property
    def n_partitions(self) -> int:
        return self._texts.n_partitions

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of records of each partition: private, unless the relation is "replace_one". Counts no word."""
        return self._texts.sizes

    def partition(self, i: int) -> Partition:
        kept = None if self._folder is None else os.path.join(self._folder, f"{i:05d}.npy")
        return CountedPartition(self._texts.partitions[i], self._counted, self.n_features, kept)


@dataclass(frozen=True, repr=False)
class CountedPartition(Partition):
    """A partition of texts, how to count them, and the file where their counts are kept, or None."""

    texts: Partition
    counted: Callable[[Sequence], sp.csr_array]
    n_words: int
    kept: str | None

    @property
    def name(self) -> str:
        return self.texts.name

    @property
    def holds_records(self) -> bool:
        return self.texts.holds_records

    def open(self) -> OpenPartition:
        opened = self.texts.open()  # which looks whether its files have changed
        counts = None if self.kept is None else _read(self.kept, len(opened.X), self.n_words)
        if counts is None:
            counts = self.counted(opened.X)
            if self.kept is not None:
                _write(self.kept, counts)
        return replace(opened, X=counts)


def _folder_of_counts(owner: CountedTexts, folder: str) -> str | None:
    """A new folder in ``folder``, which is removed with its owner; None if nothing can be written there."""
    try:
        path = tempfile.mkdtemp(prefix="counts-", dir=folder)
    except OSError:
        return None
    weakref.finalize(owner, _remove, path, os.getpid())
    return path


def _remove(path: str, process: int) -> None:
    if os.getpid() == process:  # not in a fork
        shutil.rmtree(path, ignore_errors=True)


@tried_again
def _read(path: str, n_rows: int, n_words: int) -> sp.csr_array | None:
    """Counts of a file; None if they are not there."""
    counts = sp.csr_array((n_rows, n_words), dtype=np.int64)
    try:
        with open(path, "rb") as file:
            counts.data, counts.indices, counts.indptr = (np.load(file, allow_pickle=False) for _ in _ARRAYS)
        counts = checked_csr(counts)
    except (OSError, ValueError, EOFError):
        return None
    exists = not len(counts.indices) or 0 <= counts.indices.min() <= counts.indices.max() < n_words
    return counts if exists and counts.data.dtype.kind in "iu" else None


def _write(path: str, counts: sp.csr_array) -> None:
    with suppress(OSError), whole_file(path, mode=0o600) as file:  # a full disk, or a folder that was removed
        for name in _ARRAYS:
            np.save(file, getattr(counts, name), allow_pickle=False)
