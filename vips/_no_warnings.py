"""Warnings that a record could cause are suppressed, in all threads together."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_warnings"]

_silent, _n_silent, _filters = threading.Lock(), 0, None


@contextmanager
def no_warnings() -> Iterator[None]:
    """Suppress warnings, which could depend on a record: of functions among the settings, say.

    Filters of warnings belong to the process. So the first of several threads suppresses them, and the last one restores them.
    """
    global _n_silent, _filters
    with _silent:
        _n_silent += 1
        if _n_silent == 1:
            _filters = warnings.catch_warnings()
            _filters.__enter__()
            warnings.simplefilter("ignore")
    try:
        yield
    finally:
        with _silent:
            _n_silent -= 1
            if not _n_silent:
                _filters.__exit__(None, None, None)
