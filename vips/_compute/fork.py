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


# Methods in C, one a hook: a Ctrl-C in a hook of Python would be swallowed, with the lock held for good.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire,
        after_in_parent=_lock.release,
        after_in_child=_lock._at_fork_reinit,  # as `logging` does
    )
