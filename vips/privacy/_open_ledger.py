"""Which ledger is open around the code that runs: in this process and in the processes that it starts.

The path travels in the environment, which children inherit, and with every plan that is pickled under an open ledger, so that
worker processes that were already running learn of it (and of its end). Idle workers of joblib are stopped when a ledger is
opened or closed, because they keep the environment of their start. Whatever is open is open for every thread.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from dataclasses import dataclass, field

__all__ = ["adopt", "close", "open_path", "open_with", "tag"]

VARIABLE = "VIPS_OPEN_LEDGER"
_UNKNOWN = object()


@dataclass
class _Process:
    """What this process knows. A forked child begins anew: what its parent opened, it inherits by the environment."""

    number: int
    opened: list[str] = field(default_factory=list)
    used: bool = False
    adopted: object = _UNKNOWN
    inherited: str | None = field(default_factory=lambda: os.environ.get(VARIABLE))


_lock = threading.RLock()
_process = _Process(os.getpid())


def _here() -> _Process:
    global _process
    if _process.number != os.getpid():
        _process = _Process(os.getpid())
    return _process


def open_with(path: str) -> bool:
    """Note that a ledger is open; False, and nothing noted, if another one is."""
    with _lock:
        around = open_path()
        if around is not None and around != path:
            return False
        here = _here()
        here.opened.append(path)
        here.used = True
        os.environ[VARIABLE] = path
        if len(here.opened) == 1:
            _stop_idle_workers()
        return True


def close() -> None:
    """Undo one ``open_with``; with the last one, no ledger of this process is open."""
    with _lock:
        here = _here()
        here.opened.pop()
        if here.opened:
            return
        if here.inherited is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = here.inherited
        _stop_idle_workers()


def open_path() -> str | None:
    """Path of the ledger that is open here, if any."""
    with _lock:
        here = _here()
        if here.opened:
            return here.opened[-1]
        return here.inherited if here.adopted is _UNKNOWN else here.adopted


def tag() -> tuple[str, int, str | None] | None:
    """What a pickled plan carries: machine, process and open ledger; nothing in a process without ledgers."""
    path = open_path()
    return (socket.gethostname(), os.getpid(), path) if _here().used or path else None


def adopt(tagged: tuple[str, int, str | None] | None) -> None:
    """In another process than the one that pickled a plan: what was open there is open here, and what is closed is not.

    Not if that process has ended, as that of a pickle in a file has.
    """
    if tagged is None:
        return
    machine, process, path = tagged
    if process == os.getpid() or (machine == socket.gethostname() and not _is_alive(process)):
        return
    with _lock:
        _here().adopted = path


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OSError):
        return True
    return True


def _stop_idle_workers() -> None:
    if "joblib.externals.loky.reusable_executor" in sys.modules:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)
