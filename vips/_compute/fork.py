"""A lock that forks wait for: the child would inherit what another thread had half done, and its locks for good."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager

__all__ = ["no_fork"]

_lock = threading.RLock()


def no_fork() -> AbstractContextManager:
    """Forks of other threads wait until the block ends: keep it short. For open files of SQLite, and late imports.

    This is the lock itself. A generator's context manager could hold the lock for good after a Ctrl-C.
    """
    return _lock


# Hooks are C methods: Python swallows a Ctrl-C in a hook that is written in Python, which would leave the lock held.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire,
        after_in_parent=_lock.release,
        after_in_child=_lock._at_fork_reinit,  # as `logging` does
    )
