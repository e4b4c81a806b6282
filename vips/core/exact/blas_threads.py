"""BLAS with one thread: those of NumPy and SciPy, whose wheels bring one each.

``threadpoolctl`` sets the number of threads. Its own limits do not suffice where two fits overlap in two threads: the first to
end would give threads back to the BLAS of the other, and the last to end would leave the process with one thread for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["all_blas_threads", "one_blas_thread"]

# The lock may be taken again by its holder: the collector of garbage may end a block at any time.
_lock = threading.RLock()
_asking: set[object] = set()
_before: list[int] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS has one thread in the block. It then also lets the process fork while it computes.

    Caveat: a child forked while OpenBLAS holds its lock, for nanoseconds of each product, deadlocks.

    Most libraries have one number for the whole process: they have one thread while any thread is in such a block, and the last
    to leave restores the number of before. With MKL and OpenMP each thread has a number of its own: every thread that computes
    sets it. A block inside another one of the same thread changes nothing.
    """
    thread, of_this_thread = threading.get_ident(), []
    if thread in _asking:
        yield
        return
    try:
        _ask(thread)
        for library in _libraries(of_threads=True):
            of_this_thread.append((library, library.num_threads))
            library.set_num_threads(1)
        yield
    finally:
        try:
            _leave(thread, of_this_thread)
        finally:
            _leave(thread, of_this_thread)  # again, if a Ctrl-C has ended the first


@contextmanager
def all_blas_threads() -> Iterator[None]:
    """Inside of :func:`one_blas_thread`: this thread does not ask for the limit, if its library has one number for all."""
    thread = threading.get_ident()
    if thread not in _asking:
        yield
        return
    try:
        _leave(thread, [])
        yield
    finally:
        _ask(thread)


def _ask(thread: int) -> None:
    with _lock:
        _asking.add(thread)
        _apply()


def _leave(thread: int, of_this_thread: list[tuple]) -> None:
    for library, before in of_this_thread:
        library.set_num_threads(before)
    with _lock:
        _asking.discard(thread)
        _apply()


def _apply() -> None:
    """Give one thread to the libraries with one number while anybody asks, else the numbers of before."""
    global _before
    if _asking and not _before:
        _before = [library.num_threads for library in _libraries(of_threads=False)]
    for library, before in zip(_libraries(of_threads=False), _before, strict=False):
        wanted = 1 if _asking else before
        if library.num_threads != wanted:
            _set(library, wanted)
    if not _asking:
        _before = []


def _set(library: Any, n: int) -> None:
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


def _forget_other_threads() -> None:
    """A forked process has one thread. What the others asked for ends at its next block."""
    global _lock
    _lock = threading.RLock()
    _asking.intersection_update({threading.get_ident()})


if hasattr(os, "register_at_fork"):
    # Nobody may be setting the number of threads during a fork: the child would wait forever for a lock inside of OpenBLAS.
    os.register_at_fork(
        before=lambda: _lock.acquire(), after_in_parent=lambda: _lock.release(), after_in_child=_forget_other_threads
    )
