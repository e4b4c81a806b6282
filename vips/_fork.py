"""What no other thread may be doing while this process forks: the child would keep it half done, and its locks for good."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager

__all__ = ["no_fork"]

_lock = threading.RLock()


def no_fork() -> AbstractContextManager:
    """Inside, forks of other threads wait: keep it short. For open files of SQLite, and late imports.

    (The lock itself, not a generator: a Ctrl-C could leave that one holding it.)
    """
    return _lock


def _before() -> None:
    _lock.acquire()


def _in_parent() -> None:
    _lock.release()


def _in_child() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
