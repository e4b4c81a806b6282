"""Worker processes, or the workers that ``joblib.parallel_config`` sets."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from vips.core.execution.base import ATTEMPTS, Executor, Workers, added_in_order
from vips.core.execution.partitions import PartitionTask, share_of_worker
from vips.core.records.source import DataSource, Partition
from vips.exceptions import PartitionError

__all__ = ["Joblib"]


class Joblib(Executor):
    """Workers as ``joblib.parallel_config`` sets them.

    Parameters
    ----------
    backend : str, optional
        A backend to use instead, with one process per processor.
    """

    def __init__(self, backend: str | None = None) -> None:
        self._backend = backend

    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        if self._backend is None:
            backend, _ = joblib.parallel.get_active_backend()
            streams = getattr(backend, "supports_return_generator", False)
            parallel = joblib.Parallel(return_as="generator" if streams else "list")
            are_threads = getattr(backend, "uses_threads", False)
        else:
            # Arrays are mapped into processes copy-on-write, because kernels are compiled for writable arrays.
            parallel = joblib.Parallel(
                n_jobs=joblib.cpu_count(), backend=self._backend, return_as="generator", mmap_mode="c"
            )
            are_threads = False
        with parallel:  # keeps memory maps from step to step
            yield JoblibWorkers(data, parallel, are_threads)


class JoblibWorkers(Workers):
    """Workers of a ``joblib.Parallel``. Each uses an equal part of the processors."""

    def __init__(self, data: DataSource, parallel: joblib.Parallel, are_threads: bool) -> None:
        super().__init__(data)
        self._parallel, self._are_threads = parallel, are_threads
        self._threads = max(1, joblib.cpu_count() // max(1, joblib.effective_n_jobs(parallel.n_jobs)))

    def sum(self, task: PartitionTask, sampler: Callable[[int], object]) -> dict:
        for _ in range(ATTEMPTS):
            try:
                return self._attempt(task, sampler)
            except TerminatedWorkerError:  # nothing of this step was released; the next attempt has the same coins
                continue
        raise PartitionError(
            f"Workers ended {ATTEMPTS} times in one step, perhaps because a partition is too large for their memory."
        )

    def _attempt(self, task: PartitionTask, sampler: Callable[[int], object]) -> dict:
        # Processes get the task as bytes: joblib would write its arrays to disk in every step and keep them until the fit ends.
        sent = task if self._are_threads else pickle.dumps(joblib.wrap_non_picklable_objects(task, keep_wrapper=False))
        if self._are_threads:
            task.prepare()
        shares = self._parallel(
            joblib.delayed(_share)(sent, partition, sampler(i), self._threads)
            for i, partition in enumerate(self.data.partitions)
        )
        # those from shared memory may be read-only
        writable = ({name: v if v.flags.writeable else v.copy() for name, v in share.items()} for share in shares)
        return added_in_order(writable, task)


def _share(sent: PartitionTask | bytes, partition: Partition, coins, threads: int) -> dict:
    return share_of_worker(_unpacked(sent) if isinstance(sent, bytes) else sent, partition, coins, threads)


@lru_cache(maxsize=1)
def _unpacked(sent: bytes) -> PartitionTask:
    """Cached, so that all partitions of a process share what a posterior caches."""
    return pickle.loads(sent)
