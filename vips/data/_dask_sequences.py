"""Sequences that Dask computes, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from vips._validation import check_integer
from vips.data._dask import BlockPartition, is_dask
from vips.data._sequences import Sequences
from vips.data._source import Partition, SequenceSource
from vips.exceptions import SourceError

__all__ = ["DaskSequences"]


class DaskSequences(SequenceSource):
    """Sequences in parts that Dask computes: delayed ones, or a bag. A part is a partition.

    With a ``dask.distributed.Client`` as the executor, workers compute and sum their own parts, and records do not travel.
    Persist parts that fit in memory: otherwise every step computes them again. Other executors compute them, too.

    Parameters
    ----------
    parts : list of delayed objects, or Dask bag
        Each part computes to ``Sequences``, or to a list of arrays; the items of a bag are arrays. From a data frame with a row
        for each step, whose parts hold whole persons: ``[delayed(Sequences.from_frame)(part, by="patient", columns="event") for
        part in frame.to_delayed()]``.
    n_features : int
        Number of columns. Public. An array of another width is a missing sequence.

    Notes
    -----
    The record is a sequence: a person whose steps are in two parts is two records. ``vips.data.regroup`` brings a person's rows
    together.

    Raises
    ------
    TypeError
        If ``parts`` are no objects of Dask.
    """

    def __init__(self, parts: Iterable[object], n_features: int = 1) -> None:
        check_integer("n_features", n_features)
        self.n_features = int(n_features)
        self._parts = list(parts.to_delayed() if hasattr(parts, "to_delayed") else parts)
        if not all(map(is_dask, self._parts)):
            raise TypeError("DaskSequences takes a list of delayed objects, or a Dask bag.")

    @property
    def n_partitions(self) -> int:
        return len(self._parts)

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        from dask import delayed

        return tuple(
            BlockPartition(f"part {i}", delayed(_sequences)(part, self.n_features), None, self.n_features)
            for i, part in enumerate(self._parts)
        )

    def partition(self, i: int) -> Partition:
        return self.partitions[i]


def _sequences(part, n_features: int):
    """What a part computes to, as sequences."""
    if isinstance(part, Sequences):
        return part.astype(np.float64)  # whose dtype may be one sequence's
    if isinstance(part, list | tuple) or hasattr(part, "__next__"):
        return Sequences.from_list(list(part), n_features)
    raise SourceError(
        f"A part of sequences must compute to vips.data.Sequences or a list of arrays, got {type(part).__name__}."
    )
