"""Compiled functions, which numba keeps in a file where it finds a place to write one."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numba
from numba.core import event

__all__ = ["compiled"]


class _NoCollection(event.Listener):
    """No search for garbage while a kernel of vips is compiled: it goes through all that numba holds, again and again, which
    takes a sixth of the time. Numba compiles under a lock, so that one thread at a time comes here."""

    depth, is_due = 0, False

    def on_start(self, event) -> None:
        if self.depth == 0 and not event.data["dispatcher"].py_func.__module__.startswith("vips."):
            return
        if self.depth == 0:
            self.is_due = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event) -> None:
        self.depth = max(self.depth - 1, 0)
        if self.depth == 0 and self.is_due:
            self.is_due = False
            gc.enable()


event.register("numba:compile", _NoCollection())


def compiled(**settings) -> Callable[[Callable], Callable]:
    """``numba.njit`` with a cache, or without one: in a package that cannot be written, for a user without a home."""

    settings = {"no_cfunc_wrapper": True} | settings  # takes time, and nobody calls it

    def compiler(function: Callable) -> Callable:
        try:
            return numba.njit(cache=True, **settings)(function)
        except RuntimeError:  # no place for the cache
            return numba.njit(**settings)(function)

    return compiler
