"""Compiled kernels from a folder that this process may read and not write: an installed package, or a folder of an image."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core import caching

__all__ = ["is_kept_here", "with_cache"]


def _check_readable(locator: Any) -> None:
    if not os.access(locator.get_cache_path(), os.R_OK | os.X_OK):
        raise OSError


class _Folders(caching.CompileResultCacheImpl):
    """Where kernels are looked for: in ``NUMBA_CACHE_DIR``, else beside the package."""

    _locator_classes = [
        type(kind.__name__, (kind,), {"ensure_cache_path": _check_readable})
        for kind in caching.CacheImpl._locator_classes[:2]
    ]


class _Kept(caching.FunctionCache):
    """A cache from which kernels are loaded, and into which none is written."""

    _impl_class = _Folders

    def save_overload(self, sig: Any, data: Any) -> None:
        pass


def with_cache(function: Callable, settings: dict) -> Any:
    """The compiled function, which is loaded from a folder of kernels, and written into it if this process may do so.

    Numba by itself does not read a folder that it cannot write.
    """
    try:
        return numba.njit(cache=True, **settings)(function)
    except RuntimeError:  # no place to write
        kernel = numba.njit(**settings)(function)
    with suppress(Exception):  # it depends on names of Numba that are not public
        kernel._cache = _Kept(function)
    return kernel


def is_kept_here(kernel: Any) -> bool:
    """Whether this process may write what it compiles of this kernel."""
    return isinstance(kernel._cache, caching.FunctionCache) and not isinstance(kernel._cache, _Kept)
