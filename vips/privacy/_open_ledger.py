"""Which ledger is open around the code that runs: in this process and in the processes that it starts.

The path travels in the environment, which children inherit. Worker processes that were already running learn of it from
the plans that are sent to them (a plan pickled under an open ledger names it). Idle workers of joblib are stopped when a
ledger is opened or closed, because they keep the environment of their start.
"""

from __future__ import annotations

import os
import sys

__all__ = ["adopt", "close", "open_path", "open_with", "tag"]

VARIABLE = "VIPS_OPEN_LEDGER"
_adopted: str | None = None
_used = False  # whether this process ever opened a ledger


def open_with(path: str) -> str | None:
    """Note that a ledger is open; returns what was open before, for ``close``."""
    global _used
    _used = True
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = path
    _stop_idle_workers()
    return before


def close(before: str | None) -> None:
    """Undo ``open_with``."""
    if before is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = before
    _stop_idle_workers()


def open_path() -> str | None:
    """Path of the ledger that is open here, if any."""
    return os.environ.get(VARIABLE) or _adopted


def tag() -> tuple[int, str | None] | None:
    """What a pickled plan carries: this process and its open ledger; nothing in a process without ledgers."""
    path = open_path()
    return (os.getpid(), path) if _used or path else None


def adopt(tagged: tuple[int, str | None] | None) -> None:
    """In a worker of the process that pickled a plan: the ledger that was open there, if any, is open here."""
    global _adopted
    if tagged is not None and tagged[0] == os.getppid():
        _adopted = tagged[1]


def _stop_idle_workers() -> None:
    if "joblib.externals.loky.reusable_executor" in sys.modules:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)
