"""Who computes the partitions of a step: this thread, threads, processes, whatever joblib reaches, or a Dask cluster.

An executor gets partitions once per fit and a task once per step, and returns one total. Its contract is
:class:`Executor`; what it runs is ``vips.partitions.partition_sum``, and how shares are added does not depend on it.
"""

from __future__ import annotations

import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache, partial

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from vips._threads import n_threads, side_by_side
from vips.data import DataSource, Partition
from vips.partitions import PartitionError, Task, TreeSum, partition_sum, share_of_worker

__all__ = ["Executor", "Workers", "resolve"]

# How often a step is begun again because workers were lost.
ATTEMPTS = 3


class Workers(ABC):
    """An executor at work on the partitions of one fit."""

    def __init__(self, data: DataSource) -> None:
        self.data = data

    @abstractmethod
    def sum(self, task: Task, sampler: Callable[[int], object]) -> dict:
        """The total of one step over all partitions, in the order of the tree.

        ``sampler(i)`` gives the coins of partition i. Returns when every share is in, or raises: there is no total of some.
        """


class Executor(ABC):
    """What ``fit(..., executor=...)`` stands for."""

    def check(self) -> None:  # noqa: B027
        """Raise unless there is somebody to compute. Runs before anything is charged or read."""

    @abstractmethod
    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        """Workers for one fit; resources are given back at the end."""


def resolve(executor: object) -> Executor:
    """The executor that a user's argument names.

    Parameters
    ----------
    executor : None, "serial", "threads", "processes", "joblib" or dask.distributed.Client
        None is "serial". "threads" and "processes" take as many workers as there are processors; "joblib" does what
        ``joblib.parallel_config`` says around the fit.

    Raises
    ------
    TypeError, ValueError
        For anything else, and for a cluster without workers.
    """
    if isinstance(executor, Executor):
        found = executor
    elif executor is None or (isinstance(executor, str) and executor in _BY_NAME):
        found = _BY_NAME[executor or "serial"]()
    elif _is_dask_client(executor):
        from vips._dask_executor import Cluster

        found = Cluster(executor)
    else:
        error = ValueError if isinstance(executor, str) else TypeError
        names = ", ".join(f'"{name}"' for name in _BY_NAME)
        raise error(f"`executor` must be None, {names} or a dask.distributed.Client, got {executor!r}.")
    found.check()
    return found


def _is_dask_client(executor: object) -> bool:
    distributed = sys.modules.get("distributed")  # who has a client has loaded it
    return distributed is not None and isinstance(executor, distributed.Client)


def _added(shares: Iterable[dict], task: Task) -> dict:
    """In the order of the tree."""
    total = TreeSum()
    for share in shares:
        total.push(share)
    return total.result() or task.zeros()


class Serial(Executor):
    """Here, one partition after the other; each with all threads."""

    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        yield SerialWorkers(data)


class SerialWorkers(Workers):
    def sum(self, task: Task, sampler: Callable[[int], object]) -> dict:
        shares = (partition_sum(task, partition, sampler(i)) for i, partition in enumerate(self.data.partitions))
        return _added(shares, task)


class Threads(Executor):
    """One partition for each processor at a time. A thread that has none left helps with the kernels of others."""

    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        yield ThreadWorkers(data)


class ThreadWorkers(Workers):
    def sum(self, task: Task, sampler: Callable[[int], object]) -> dict:
        task.model.prepare(task.posterior)
        shares = (
            partial(share_of_worker, task, partition, sampler(i), n_threads(), 1)
            for i, partition in enumerate(self.data.partitions)
        )
        with closing(side_by_side(shares, joblib.cpu_count())) as results:
            return _added(results, task)


class Joblib(Executor):
    """As ``joblib.parallel_config`` says.

    Parameters
    ----------
    backend : str, optional
        In its place, one process per processor of this backend.
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
            # Arrays are mapped into processes copy-on-write: kernels are compiled for arrays that can be written to.
            parallel = joblib.Parallel(
                n_jobs=joblib.cpu_count(), backend=self._backend, return_as="generator", mmap_mode="c"
            )
            are_threads = False
        with parallel:  # what is mapped stays mapped from step to step
            yield JoblibWorkers(data, parallel, are_threads)


class JoblibWorkers(Workers):
    """Of ``parallel``. Each uses an equal part of the processors."""

    def __init__(self, data: DataSource, parallel: joblib.Parallel, are_threads: bool) -> None:
        super().__init__(data)
        self._parallel, self._are_threads = parallel, are_threads
        self._threads = max(1, joblib.cpu_count() // max(1, joblib.effective_n_jobs(parallel.n_jobs)))

    def sum(self, task: Task, sampler: Callable[[int], object]) -> dict:
        for _ in range(ATTEMPTS):
            try:
                return self._attempt(task, sampler)
            except TerminatedWorkerError:  # nothing of this step was released; its coins fall the same way again
                continue
        raise PartitionError(
            f"Workers ended {ATTEMPTS} times in one step, perhaps because a partition is too large for their memory."
        )

    def _attempt(self, task: Task, sampler: Callable[[int], object]) -> dict:
        # As bytes to processes: arrays in it would be written to disk, step by step, and stay there until the end of the fit.
        sent = task if self._are_threads else pickle.dumps(joblib.wrap_non_picklable_objects(task, keep_wrapper=False))
        if self._are_threads:
            task.model.prepare(task.posterior)
        shares = self._parallel(
            joblib.delayed(_share)(sent, partition, sampler(i), self._threads)
            for i, partition in enumerate(self.data.partitions)
        )
        return _added(map(_writable, shares), task)


def _share(sent: Task | bytes, partition: Partition, coins, threads: int) -> dict:
    return share_of_worker(_unpacked(sent) if isinstance(sent, bytes) else sent, partition, coins, threads, threads)


@lru_cache(maxsize=1)
def _unpacked(sent: bytes) -> Task:
    """Once for all partitions that a process gets, so that what a posterior caches serves them all."""
    return pickle.loads(sent)


def _writable(share: dict) -> dict:
    """What came back through shared memory may be read-only."""
    return {name: value if value.flags.writeable else value.copy() for name, value in share.items()}


_BY_NAME: dict[str, Callable[[], Executor]] = {
    "serial": Serial,
    "threads": Threads,
    "processes": lambda: Joblib("loky"),
    "joblib": Joblib,
}
