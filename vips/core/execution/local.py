"""Threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from vips.core.exact.blas_threads import one_blas_thread
from vips.core.exact.threads import side_by_side
from vips.core.execution.base import Executor, Workers, added_in_order
from vips.core.execution.partitions import PartitionTask, added
from vips.core.execution.tree import Totals
from vips.core.records.source import DataSource

if TYPE_CHECKING:
    from vips.core.mechanism.sampling import PoissonCoins

__all__ = ["ThreadWorkers", "Threads"]


class Threads(Executor):
    """Chunk after chunk of every partition, as many at a time as there are threads; one without a chunk helps with the kernels
    of others.

    BLAS has one thread during the whole fit: after a product its threads spin for some 20 ms, on the processors of ours.
    """

    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        with one_blas_thread():
            yield ThreadWorkers(data)


class ThreadWorkers(Workers):
    def sum(self, task: PartitionTask, sampler: Callable[[int], PoissonCoins]) -> Totals:
        task.prepare()
        calls = (  # this thread opens the next partition while others compute
            lambda i=i, call=call: (i, call())
            for i, partition in enumerate(self.data.partitions)
            for call in task.calls(partition, sampler(i))
        )
        with closing(side_by_side(calls, task.most_calls())) as sums:
            shares = (added(share for _, share in group) for _, group in groupby(sums, itemgetter(0)))
            return added_in_order(shares, task)
