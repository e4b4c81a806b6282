"""This thread, or threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import joblib

from vips._compute.threads import n_threads, side_by_side
from vips.data import DataSource
from vips.execution.base import Executor, Workers, added_in_order
from vips.execution.partitions import PartitionTask, partition_sum, share_of_worker

__all__ = ["Serial", "SerialWorkers", "Threads"]


class Serial(Executor):
    """One partition after the other in this thread; each uses all threads for its kernels."""

    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        yield SerialWorkers(data)


class SerialWorkers(Workers):
    def sum(self, task: PartitionTask, sampler: Callable[[int], object]) -> dict:
        shares = (partition_sum(task, partition, sampler(i)) for i, partition in enumerate(self.data.partitions))
        return added_in_order(shares, task)


class Threads(Executor):
    """One partition for each processor at a time. A thread without a partition helps with the kernels of others."""

    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        yield ThreadWorkers(data)


class ThreadWorkers(Workers):
    def sum(self, task: PartitionTask, sampler: Callable[[int], object]) -> dict:
        task.prepare()
        shares = (
            partial(share_of_worker, task, partition, sampler(i), n_threads())
            for i, partition in enumerate(self.data.partitions)
        )
        with closing(side_by_side(shares, joblib.cpu_count())) as results:
            return added_in_order(results, task)
