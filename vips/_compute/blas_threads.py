"""How many threads BLAS uses: those of NumPy and SciPy, whose wheels bring one each."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["at_most_threads"]


class _Asker:
    """A thread inside ``at_most_threads``."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


@contextmanager
def at_most_threads(n: int) -> Iterator[None]:
    """Inside, BLAS uses at most ``n`` threads. With one thread, it also lets the process fork while it computes.

    Most libraries have one number for the whole process: it is the fewest that any thread asks for at the time, and what it was
    before when nobody asks any more, whoever else changed it meanwhile. With MKL and OpenMP each thread has its own: who starts
    threads has them ask too.
    """
    asker, own = _Asker(), []
    try:
        with _lock:
            _askers[asker] = n
            _tell_all()
        for library in _libraries(of_threads=True):
            own.append((library, library.num_threads))
            library.set_num_threads(min(library.num_threads, n))
        yield
    finally:
        for library, before in own:
            library.set_num_threads(before)
        with _lock:
            _askers.pop(asker, None)
            _tell_all()


# Weak: who is interrupted before leaving is not asked for ever. Its last words may be heard while the lock is held.
_lock, _askers = threading.RLock(), weakref.WeakKeyDictionary()
_told, _before = None, []  # what libraries were told, and had before


def _keep_own() -> None:
    """In a forked process, which has no other threads. What they asked for ends when somebody asks or leaves."""
    global _lock
    _lock = threading.RLock()
    for asker in list(_askers):
        if asker.thread != threading.get_ident():
            del _askers[asker]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_own)


def _tell_all() -> None:
    """Tell the libraries that have one number, if it is not what they were told."""
    global _told, _before
    while (fewest := min(list(_askers.values()), default=None)) != _told:
        if _told is None:
            _before = [library.num_threads for library in _libraries(of_threads=False)]
        _told = 0  # nothing that anybody asks for: who comes after an interruption tells all of them again
        for library, before in zip(_libraries(of_threads=False), _before, strict=True):
            # threadpoolctl from 3.8 on obeys only the thread that told a library first; it has this for others
            release = getattr(library, "clear_controlling_thread", lambda force: None)
            release(force=True)
            library.set_num_threads(before if fewest is None else min(before, fewest))
            release(force=True)
        _told = fewest


@cache
def _libraries(of_threads: bool) -> list:
    """Libraries each thread of which has a number of its own, or the others."""
    import scipy.linalg.cython_blas  # noqa: F401  (SciPy's is loaded now, if it was not: it would be missing ever after)

    return [
        library
        for library in ThreadpoolController().select(user_api="blas").lib_controllers
        if of_threads == (library.internal_api == "mkl" or getattr(library, "threading_layer", "") == "openmp")
    ]
