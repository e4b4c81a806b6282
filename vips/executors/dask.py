"""A step on a Dask cluster: workers compute shares and add them as a tree, and only the total is sent back.

Every step uses new task keys, so that a cluster never returns a result of another step. Dask computes lost shares again, with
the same coins; where it cannot (the task itself was lost with its last holder) the step begins again. A share uses one thread,
also for BLAS.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import dask
from distributed import CancelledError, Client, KilledWorker, wait
from distributed.comm import CommClosedError
from distributed.scheduler import NoValidWorkerError

from vips.core.execution.base import ATTEMPTS, Executor, Workers, added_in_order
from vips.core.execution.partitions import PartitionTask, share_of_worker
from vips.core.execution.tree import FAN_IN, add
from vips.core.records.source import DataSource
from vips.data._dask import BlockPartition, ComputedBlock
from vips.exceptions import InvalidRecordError, PartitionError, SourceError

__all__ = ["Cluster"]

# Seconds without a single worker after which a step is given up.
PATIENCE = 60.0
_POLL = 1.0
_NO_WORKERS = "The Dask cluster has had no workers"
_CAN_RESUME = "The step was not released; a fit with a checkpoint can go on from the last one."


class Cluster(Executor):
    """The workers of a ``dask.distributed.Client``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def check(self) -> None:
        if self._client.asynchronous:
            raise ValueError("`executor` must be a synchronous Client: fit blocks until it is done.")
        if self._client.status != "running":
            raise ValueError(f"The Dask client is {self._client.status}: it has no cluster to compute on.")
        if not self._client.nthreads():
            raise ValueError(
                "The Dask cluster has no workers, so that the fit would wait forever. Start some first, e.g. cluster.scale(2) "
                "and client.wait_for_workers(1)."
            )

    @contextmanager
    def over(self, data: DataSource) -> Iterator[Workers]:
        yield ClusterWorkers(data, self._client)


class ClusterWorkers(Workers):
    def __init__(self, data: DataSource, client: Client) -> None:
        super().__init__(data)
        self._client = client
        self._partitions: Sequence | None = None

    def sum(self, task: PartitionTask, sampler: Callable[[int], object]) -> dict:
        if not self.data.n_partitions:
            return added_in_order((), task)
        for _ in range(ATTEMPTS):
            try:
                return self._attempt(task, sampler)
            except (SourceError, InvalidRecordError, PartitionError):
                raise
            except (CancelledError, CommClosedError):  # a lost worker had the only copy of some data, or was to get one
                self._partitions = None
                continue
            except KilledWorker as error:
                raise PartitionError(
                    f"A share was given up after {error.allowed_failures + 1} workers in turn died while computing it, perhaps "
                    "because its partition is too large for their memory."
                ) from None
            except NoValidWorkerError:
                raise PartitionError(f"{_NO_WORKERS} to compute a share. {_CAN_RESUME}") from None
            except Exception as error:  # from the user's own graph, outside of `share_of_worker`
                if not task.plan.is_private:
                    raise
                problem = type(error).__name__
            # outside of `except`, so that the original error is not attached
            raise PartitionError(
                f"A chunk or its share could not be computed: {problem}. Its message is not shown, because it may quote a "
                "record."
            )
        raise PartitionError(f"Workers were lost {ATTEMPTS} times in one step, with data that only they held.")

    def _attempt(self, task: PartitionTask, sampler: Callable[[int], object]) -> dict:
        step, depth = f"vips-{uuid.uuid4().hex}", 0
        sent = self._sent(task)  # kept until the end: Dask may need it to compute a lost share again
        if not task.adds_on_workers:
            try:
                return added_in_order(self._in_turn(sent, sampler, step), task)
            finally:
                sent.release()
        level = self._shares(sent, sampler, step, range(len(self._partitions)))
        futures = [sent, *level]
        try:
            while len(level) > 1:
                depth += 1
                groups = [level[first : first + FAN_IN] for first in range(0, len(level), FAN_IN)]
                keys = [f"{step}-sum-{depth}-{i}" for i in range(len(groups))]
                level = self._client.map(add, groups, key=keys, pure=False)
                futures += level
            self._wait(level[0])
            return level[0].result()
        finally:  # at once, not at garbage collection: sums of a step are large, and hold no noise
            for future in futures:
                future.release()

    def _in_turn(self, sent, sampler: Callable[[int], object], step: str) -> Iterator[dict]:
        """Every share, in the order of partitions; the cluster holds a few for each worker."""
        size = 2 * max(1, sum(self._client.nthreads().values()))
        for first in range(0, len(self._partitions), size):
            numbers = range(first, min(first + size, len(self._partitions)))
            waiting = self._shares(sent, sampler, step, numbers)[::-1]
            try:
                while waiting:
                    self._wait(waiting[-1])
                    share = waiting[-1].result()
                    waiting.pop().release()
                    yield share
            finally:
                for future in waiting:
                    future.release()

    def _sent(self, task: PartitionTask):
        """Send the task to every worker, and the partitions once."""
        try:
            sent = self._client.scatter(task, broadcast=True, hash=False, timeout=_patience())
            if self._partitions is None:
                self._partitions = self._placed()
        except TimeoutError:
            raise PartitionError(f"{_NO_WORKERS} to send a step to. {_CAN_RESUME}") from None
        return sent

    def _shares(self, task, sampler: Callable[[int], object], step: str, numbers: range) -> list:
        """A future for the share of each of these partitions."""
        keys = [f"{step}-share-{i}" for i in numbers]
        partitions, coins = self._partitions[numbers.start : numbers.stop], [sampler(i) for i in numbers]
        if not isinstance(partitions[0], BlockPartition):
            return self._client.map(_share, partitions, coins, task=task, key=keys, pure=False)
        shares = [
            dask.delayed(_share_of_block)(p.X, p.y, p.name, p.n_features, partition_coins, task, dask_key_name=key)
            for p, partition_coins, key in zip(partitions, coins, keys, strict=True)
        ]
        return self._client.compute(shares)

    def _placed(self) -> Sequence:
        """Partitions for tasks: handles, records that are placed on workers once, or chunks that Dask computes."""
        partitions = self.data.partitions
        if not partitions[0].holds_records:
            return partitions
        return self._client.scatter(list(partitions), hash=False, timeout=_patience())

    def _wait(self, root) -> None:
        """Wait until ``root`` is done; raise if the cluster has no workers for too long."""
        last_seen = time.monotonic()
        while not root.done():
            try:
                wait([root], timeout=_POLL)
            except TimeoutError:
                now = time.monotonic()
                if self._client.status != "running":
                    raise PartitionError(f"The Dask client is {self._client.status}. {_CAN_RESUME}") from None
                if self._client.nthreads():
                    last_seen = now
                elif now - last_seen > _patience():
                    raise PartitionError(
                        f"{_NO_WORKERS} for {_patience():.0f} s in the middle of a step. {_CAN_RESUME}"
                    ) from None


def _share(partition, coins, task: PartitionTask) -> dict:
    return share_of_worker(task, partition, coins, 1)


def _share_of_block(X, y, name: str, n_features: int, coins, task: PartitionTask) -> dict:
    return share_of_worker(task, ComputedBlock(name, X, y, n_features), coins, 1)


def _patience() -> float:
    """Seconds without workers: Dask's own setting, if there is one."""
    configured = dask.config.get("distributed.scheduler.no-workers-timeout", None)
    return PATIENCE if configured is None else dask.utils.parse_timedelta(configured)
