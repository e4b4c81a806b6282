"""Threads for kernels that release the interpreter lock. The number of threads changes no result."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, TypeVar

import numba
import numpy as np
from joblib import cpu_count

__all__ = ["at_most", "n_threads", "run_ranges", "side_by_side"]

T = TypeVar("T")
_most = ContextVar("most_threads", default=sys.maxsize)
_is_inside = ContextVar("is_inside_a_call", default=False)


def n_threads() -> int:
    """Processors that this process may use, or ``OMP_NUM_THREADS``, as in scikit-learn; and no more than ``NUMBA_NUM_THREADS``
    and :func:`at_most` allow. joblib sets both variables in its workers."""
    return min(_processors, int(numba.config.NUMBA_NUM_THREADS), _most.get())  # type: ignore[attr-defined]


def _from_environment() -> int:
    try:
        return max(1, int(os.environ["OMP_NUM_THREADS"].split(",")[0]))
    except (KeyError, ValueError):
        return cpu_count()  # a container's share of them


@contextmanager
def at_most(n: int) -> Iterator[None]:
    """Kernels that this thread starts use at most ``n`` threads, so that workers who share the processors do not fight."""
    before = _most.set(n)
    try:
        yield
    finally:
        _most.reset(before)


def run_ranges(
    kernel: Callable[[int, int], None], cumulative_work: np.ndarray, parts_per_thread: int = 8, least_work: float = 0.0
) -> None:
    """Call ``kernel(start, stop)`` on ranges that cover ``0 … n``, in several threads; kernels in it start no threads.

    Parameters
    ----------
    cumulative_work : ndarray of shape (n + 1,)
        Non-decreasing; the work of item i is ``cumulative_work[i + 1] - cumulative_work[i]``.
    parts_per_thread : int
        Ranges for each thread, at least two, taken in turn: many ranges even out wrong estimates of work, few save starts.
    least_work : float
        Below this total, one thread does all: waking another costs about 0.05 ms.
    """
    n_items, threads = len(cumulative_work) - 1, n_threads()
    if threads == 1 or n_items <= 1 or (least_work and cumulative_work[-1] - cumulative_work[0] < least_work):
        kernel(0, n_items)
        return
    # the pool may hold `work` long after the last call, and with it what `pending` holds
    pending = deque(partial(kernel, *bounds) for bounds in _ranges(cumulative_work, threads * parts_per_thread))

    def work() -> None:
        while True:
            try:
                call = pending.popleft()  # atomic
            except IndexError:
                return
            call()

    helpers: list[Future[None]] = [Future() for _ in range(_pool.started(threads - 1))]
    try:
        with at_most(1):
            # worker threads inherit the caller's `np.errstate`
            for task in [(helper, copy_context(), work) for helper in helpers]:
                _pool.tasks.put(task)
            work()
    finally:
        pending.clear()
        _wait(helpers)
    for helper in helpers:
        if not helper.cancelled():
            helper.result()


def side_by_side(calls: Iterable[Callable[[], T]], n: int) -> Generator[T]:
    """Results of ``calls``, in order, computed by ``n`` threads in the context of the caller.

    A thread without a call helps with the kernels that other calls share (:func:`run_ranges`). At most ``n + 1`` results are
    kept or being computed. A single call is made by the caller, and so are calls inside a call: else results would be kept for
    ``n`` callers, and all threads could wait for calls that no thread is left to make. A call must not wait for a thread that
    makes calls of its own.
    """
    calls, context = iter(calls), copy_context()
    begun: deque[Future[T]] = deque()
    first = list(itertools.islice(calls, 2 if n > 1 and not _is_inside.get() else 0))
    calls = itertools.chain(first, calls)
    n = _pool.started(n) if len(first) == 2 else 0
    context.run(_is_inside.set, True)
    try:
        for call in calls:
            if n == 0:
                yield call()
                continue
            begun.append(Future())
            _pool.tasks.put((begun[-1], context.copy(), call))
            if len(begun) > n:
                yield begun[0].result()
                begun.popleft()
        while begun:
            yield begun[0].result()
            begun.popleft()
    finally:
        _wait(begun)


def _ranges(cumulative_work: np.ndarray, n_parts: int) -> Iterator[tuple[int, int]]:
    """Non-empty ranges of decreasing work, so that all threads end at about the same time."""
    first, last = cumulative_work[0], cumulative_work[-1]
    cuts = (last - (last - first) * _left_after(n_parts)).astype(cumulative_work.dtype)  # else NumPy converts all of it
    for start, stop in itertools.pairwise([0, *cumulative_work.searchsorted(cuts).tolist(), len(cumulative_work) - 1]):
        if start < stop:
            yield start, stop


@cache
def _left_after(n_parts: int) -> np.ndarray:
    """Shares of the work that remain after the first part, the first two, …, all but one."""
    return (np.arange(n_parts - 1, 0, -1) / n_parts) ** 2


def _wait(futures: Iterable[Future]) -> None:
    """Cancel calls that have not started; wait for the rest, even if interrupted: they write to the caller's arrays."""
    try:
        running = [future for future in futures if not future.cancel()]
        for future in running:
            future.exception()
    except BaseException:
        _wait(futures)
        raise


class _Pool:
    """Threads that wait for tasks: starting threads each time took as long as small tasks.

    A woken thread needs the interpreter lock. If the caller still holds it, the thread sleeps again, which costs 0.1 ms: after
    ``tasks.put`` the caller should enter a kernel at once. (Executors of the standard library do more work here.)
    """

    def __init__(self) -> None:
        self.tasks: SimpleQueue[tuple[Future[Any], Context, Callable[[], Any]]] = SimpleQueue()
        self._lock, self._n_threads = threading.Lock(), 0

    def started(self, n: int) -> int:
        """Start up to ``n`` threads in all; how many of ``n`` there are."""
        with self._lock, suppress(RuntimeError):  # no more threads can be started
            while self._n_threads < n:
                threading.Thread(target=_serve, args=(self.tasks,), name="vips", daemon=True).start()
                self._n_threads += 1
        return min(n, self._n_threads)


def _serve(tasks: SimpleQueue) -> None:
    while True:
        future, context, function = tasks.get()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(context.run(function))
            except BaseException as error:
                future.set_exception(error)
        del future, context, function  # they would keep the caller's arrays or an exception alive


def _begin() -> None:
    """Start with an empty pool, also in a forked process, which has no threads."""
    global _pool
    _pool = _Pool()


_processors = _from_environment()
_pool: _Pool
_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
