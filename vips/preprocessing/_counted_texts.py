"""Counts of words as a data source: texts are counted where their partition is opened, in every step anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from vips.data import DataSource, OpenPartition, Partition, TextSource
from vips.preprocessing._documents import counts_of_words

__all__ = ["CountedTexts"]


class CountedTexts(DataSource):
    """Counts of the words of a source of texts, for models. No partition is kept.

    Parameters
    ----------
    texts : TextSource
    settings : dict
        What a word is.
    vocabulary : dict of str to int
        Words, and their columns.
    """

    def __init__(self, texts: TextSource, settings: dict, vocabulary: Mapping[str, int]) -> None:
        self._texts, self._counter = texts, Counter(settings, vocabulary)
        self.n_features, self.has_labels = len(vocabulary), texts.has_labels
        self.group_name = texts.group_name

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
        return CountedPartition(self._texts.partitions[i], self._counter)


@dataclass(frozen=True, repr=False)
class Counter:
    """A function of documents. One object for all partitions."""

    settings: dict
    vocabulary: Mapping[str, int]

    def __call__(self, documents):
        return counts_of_words(self.settings, self.vocabulary, documents)


@dataclass(frozen=True, repr=False)
class CountedPartition(Partition):
    """A partition of texts, and how to count them."""

    texts: Partition
    counter: Counter

    @property
    def name(self) -> str:
        return self.texts.name

    @property
    def holds_records(self) -> bool:
        return self.texts.holds_records

    def open(self) -> OpenPartition:
        opened = self.texts.open()
        return replace(opened, X=self.counter(opened.X))
