"""How many threads BLAS uses: those of NumPy and SciPy, whose wheels bring one each.

``threadpoolctl`` sets these numbers. Its own limits do not suffice where two fits overlap in two threads: the first to end
would give threads back to the BLAS of the other, and the last to end would leave the process with one thread for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["at_most_threads"]


class _Limit:
    """What one thread asks for, inside ``at_most_threads``."""

    def __init__(self, n: int) -> None:
        self.n, self.thread = n, threading.get_ident()


class _OfThread(threading.local):
    """The strictest limit of a thread: a weak reference, or None."""

    strictest = None

    def has(self, n: int) -> bool:
        """Whether the thread has a limit of ``n`` or fewer already."""
        limit = self.strictest and self.strictest()
        return limit is not None and limit.n <= n and limit in _limits


@contextmanager
def at_most_threads(n: int) -> Iterator[None]:
    """Limit BLAS to ``n`` threads in the block. With one thread, BLAS also lets the process fork while it computes.

    (Not quite: for some nanoseconds of each product OpenBLAS holds a lock, for which the child of just then waits forever.)

    Most libraries have one number for the whole process: the smallest limit of any thread counts, and the last thread to leave
    restores the number of before. With MKL and OpenMP each thread has a number of its own: every thread that computes sets it.
    A block inside a stricter one of the same thread changes nothing.
    """
    if _own.has(n):
        yield
        return
    limit, of_this_thread, outer = _Limit(n), [], _own.strictest
    try:
        with _lock:
            _limits[limit] = n
            _apply()
        _own.strictest = weakref.ref(limit)
        for library in _libraries(of_threads=True):
            of_this_thread.append((library, library.num_threads))
            library.set_num_threads(min(library.num_threads, n))
        yield
    finally:
        _own.strictest = outer
        for library, before in of_this_thread:
            library.set_num_threads(before)
        with _lock:
            _limits.pop(limit, None)
            _apply()


# Weak, so that an interrupted thread does not hold its limit. The finaliser may run under the lock, hence RLock.
_lock, _limits = threading.RLock(), weakref.WeakKeyDictionary()
_own = _OfThread()
_applied, _before = None, []  # the limit that the libraries have, and their numbers before


def _forget_other_threads() -> None:
    """A forked process has one thread. The limits of the others end at its next call of ``at_most_threads``."""
    global _lock
    _lock = threading.RLock()
    for limit in list(_limits):
        if limit.thread != threading.get_ident():
            del _limits[limit]


if hasattr(os, "register_at_fork"):
    # Nobody may be setting the number of threads during a fork: the child would wait forever for a lock inside of OpenBLAS.
    os.register_at_fork(
        before=lambda: _lock.acquire(),
        after_in_parent=lambda: _lock.release(),
        after_in_child=_forget_other_threads,
    )


def _apply() -> None:
    """Give the smallest limit to the libraries with one number, unless they have it."""
    global _applied, _before
    while (smallest := min(list(_limits.values()), default=None)) != _applied:
        if _applied is None:
            _before = [library.num_threads for library in _libraries(of_threads=False)]
        _applied = 0  # no limit at all: after an interruption here, the next call applies its limit to every library
        for library, before in zip(_libraries(of_threads=False), _before, strict=True):
            wanted = before if smallest is None else min(before, smallest)
            if library.num_threads != wanted:
                _set(library, wanted)
        _applied = smallest


def _set(library, n: int) -> None:
    # from 3.8 on, threadpoolctl obeys only the thread that set a library's number first, unless it is released
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(n)
    release(force=True)


@cache
def _libraries(of_threads: bool) -> list:
    """The libraries with a number for each thread, or the others."""
    import scipy.linalg.cython_blas  # noqa: F401  (loads SciPy's BLAS: the answer is cached)

    return [
        library
        for library in ThreadpoolController().select(user_api="blas").lib_controllers
        if of_threads == (library.internal_api == "mkl" or getattr(library, "threading_layer", "") == "openmp")
    ]
