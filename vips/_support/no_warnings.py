"""Warnings that a record could cause are suppressed, in all threads together."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import TypeVar

from vips._support.signals import surely_ended

__all__ = ["without_warnings"]

T = TypeVar("T")

_silent, _n_silent, _filters = threading.Lock(), 0, None


def without_warnings(work: Callable[[], T]) -> T:
    """``work()`` without warnings, which could depend on a record: of functions among the settings, say."""
    return surely_ended(_mute, work, _hear)


def _mute() -> None:
    """Filters of warnings belong to the process. So the first of several threads suppresses them, and the last one restores
    them by :func:`_hear`."""
    global _n_silent, _filters
    with _silent:
        _n_silent += 1
        if _n_silent == 1:
            _filters = warnings.catch_warnings()
            _filters.__enter__()
            warnings.simplefilter("ignore")


def _hear() -> None:
    """Undo one :func:`_mute`."""
    global _n_silent
    with _silent:
        _n_silent -= 1
        if not _n_silent:
            _filters.__exit__(None, None, None)
