"""Threads for kernels that release the interpreter lock. The number of threads changes no result."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache

import numba
import numpy as np

__all__ = ["at_most", "n_threads", "run_ranges"]

_here = threading.local()


def n_threads() -> int:
    """Numba's setting: the processors of this process, or ``NUMBA_NUM_THREADS``, which joblib's workers set to share.

    No more than :func:`at_most` says around the call.
    """
    return min(numba.config.NUMBA_NUM_THREADS, getattr(_here, "most", numba.config.NUMBA_NUM_THREADS))


@contextmanager
def at_most(n: int) -> Iterator[None]:
    """Kernels that this thread starts use at most ``n`` threads, so that workers who share the processors do not fight."""
    before = getattr(_here, "most", None)
    _here.most = n
    try:
        yield
    finally:
        if before is None:
            del _here.most
        else:
            _here.most = before


def run_ranges(
    kernel: Callable[[int, int], None], cumulative_work: np.ndarray, parts_per_thread: int = 8, least_work: float = 0.0
) -> None:
    """Call ``kernel(start, stop)`` on ranges that cover ``0 … n``, in several threads; kernels in it start no threads.

    Parameters
    ----------
    cumulative_work : ndarray of shape (n + 1,)
        Non-decreasing; the work of item i is ``cumulative_work[i + 1] - cumulative_work[i]``.
    parts_per_thread : int
        Ranges for each thread, at least two, taken in turn: many even out what the work did not say, few save starts.
    least_work : float
        Below this much work in all, one thread does it: waking another one costs about 0.05 ms.
    """
    n_items, threads = len(cumulative_work) - 1, n_threads()
    if threads == 1 or n_items <= 1 or (least_work and cumulative_work[-1] - cumulative_work[0] < least_work):
        kernel(0, n_items)
        return
    pending = deque(_ranges(cumulative_work, threads * parts_per_thread))

    def work() -> None:
        with at_most(1):
            while True:
                try:
                    start, stop = pending.popleft()  # atomic
                except IndexError:
                    return
                kernel(start, stop)

    errors = np.geterr()

    def help_out() -> None:
        with np.errstate(**errors):  # what nobody is to be warned of, nobody is warned of in other threads
            work()

    helpers = []
    try:
        for _ in range(threads - 1):
            helpers.append(Future())
            with suppress(RuntimeError):  # no thread can be started; it may be taken up later, all the same
                _pool().submit(_run, helpers[-1], help_out)
        work()
    finally:
        pending.clear()
        _wait(helpers)
    for helper in helpers:
        if not helper.cancelled():
            helper.result()


def _ranges(cumulative_work: np.ndarray, n_parts: int) -> Iterator[tuple[int, int]]:
    """Smaller and smaller, so that all threads end at about one time; none of them is empty."""
    first, last = cumulative_work[0], cumulative_work[-1]
    cuts = (last - (last - first) * _left_after(n_parts)).astype(cumulative_work.dtype)  # else NumPy converts all of it
    for start, stop in itertools.pairwise([0, *cumulative_work.searchsorted(cuts).tolist(), len(cumulative_work) - 1]):
        if start < stop:
            yield start, stop


@cache
def _left_after(n_parts: int) -> np.ndarray:
    """Shares of the work that are left after the first part, the first two, …, all but one."""
    return (np.arange(n_parts - 1, 0, -1) / n_parts) ** 2


def _run(future: Future, function: Callable[[], None]) -> None:
    """Unless it was cancelled. (The pool's own futures are not known where a thread could not be started.)"""
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
            del future  # whom its own error would keep in memory


def _wait(helpers: list[Future]) -> None:
    """Until all have stopped, even if it is interrupted: they write to the caller's arrays."""
    try:
        wait([helper for helper in helpers if not helper.cancel()])  # others' work may have kept some from starting
    except BaseException:
        _wait(helpers)
        raise


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that wait for work: starting them each time took as long as some of it."""
    return ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, thread_name_prefix="vips")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has no threads
