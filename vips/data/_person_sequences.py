"""Rows of persons as sequences: a person's rows are the steps of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vips.data._grouped import GroupedRows
from vips.data._records import OpenPartition
from vips.data._source import Partition, SequenceSource
from vips.data._unread import UnreadSequences
from vips.exceptions import SourceError

__all__ = ["PersonSequences"]


class PersonSequences(SequenceSource):
    """A table with a row for each step, as :func:`vips.data.regroup` wrote it: a person is one sequence.

    ``fit(GroupedRows("folder"))`` of a model of sequences uses it. Steps are in the order of the source that was regrouped.

    Parameters
    ----------
    rows : GroupedRows

    Raises
    ------
    SourceError
        If the rows are sparse.
    """

    has_groups = True

    def __init__(self, rows: GroupedRows) -> None:
        if rows.is_sparse:
            raise SourceError("Steps of sequences must not be sparse: regroup a dense table.")
        self._rows, self.n_features, self.group_name = rows, rows.n_features, rows.group_name

    @property
    def n_partitions(self) -> int:
        return self._rows.n_partitions

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._rows.sizes

    def partition(self, i: int) -> Partition:
        return StepsOfPersons(self._rows.partition(i))


@dataclass(frozen=True, repr=False)
class StepsOfPersons(Partition):
    """One partition."""

    rows: Partition

    @property
    def name(self) -> str:
        return self.rows.name

    def open(self) -> OpenPartition:
        opened = self.rows.open()
        begins, ends = opened.starts[:-1], opened.starts[1:]
        return OpenPartition(UnreadSequences(opened.X, begins, ends - begins), starts=np.arange(len(begins) + 1))
