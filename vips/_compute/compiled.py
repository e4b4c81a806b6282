"""Compiled functions, which numba keeps in a file where it finds a place to write one."""

from __future__ import annotations

from collections.abc import Callable

import numba

__all__ = ["compiled"]


def compiled(**settings) -> Callable[[Callable], Callable]:
    """``numba.njit`` with a cache, or without one: in a package that cannot be written, for a user without a home."""

    settings = {"no_cfunc_wrapper": True} | settings  # takes time, and nobody calls it

    def compiler(function: Callable) -> Callable:
        try:
            return numba.njit(cache=True, **settings)(function)
        except RuntimeError:  # no place for the cache
            return numba.njit(**settings)(function)

    return compiler
