"""One writer at a time, over threads and processes: a lock file beside what is written, whose lock dies with its holder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from vips._support.files import check_file_locks, name_in_partial, private_file

__all__ = ["one_writer"]


class _Held(os.PathLike):
    """A path whose lock is held: who gets it may write there, and takes no second lock."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path, self.file = os.fspath(path), None
        self.file: IO | None

    def __fspath__(self) -> str:
        return self.path


_held: dict[str, _Held] = {}  # in this process, by lock file


@contextmanager
def one_writer(path: str | os.PathLike, what: str, instead: str, error: type[Exception]) -> Iterator[os.PathLike]:
    """Hold the lock of what is written at ``path`` until the block ends; never waits for it.

    The lock is on ``.NAME.lock`` beside the file that ``path`` names, links followed. That file is never removed: who has it
    open would then lock a file that nobody else sees.

    Parameters
    ----------
    path : path
        One that an outer block has yielded is locked already.
    what, instead : str
        What needs the lock, and what needs none, in words.
    error : type of exception

    Yields
    ------
    path
        To be passed on to what writes there.

    Raises
    ------
    error
        If somebody else holds the lock, or this platform or this file system has none.

    Guarantees
    ----------
    - Two blocks of one path never run at once, in threads or processes of one machine.
    - The lock is freed when its process dies, also if a forked child lives on.
    """
    if isinstance(path, _Held) and path.file is not None:
        yield path
        return
    check_file_locks(what, instead, error)
    place, held = Path(os.path.realpath(path)), _Held(path)
    lock = str(place.with_name(f".{name_in_partial(place.name)}.lock"))
    try:
        _lock(lock, held, f"{what} is at work on {place} already: wait until it ends, or {instead}. Nothing was changed.",
              f"{what} locks {lock}, and that file system says {{}}: choose a path on a local disk, or {instead}. Nothing "
              "was changed.", error)  # fmt: skip
        yield held
    finally:
        if _held.get(lock) is held:  # and not in a forked child, whose parent holds it
            _free(held)
            del _held[lock]


def _lock(lock: str, held: _Held, is_held: str, fails: str, error: type[Exception]) -> None:
    import fcntl

    # where locks belong to processes, as on some network file systems, closing a second descriptor would drop the first one's
    if _held.setdefault(lock, held) is not held:
        raise error(is_held)
    try:
        held.file = private_file(lock, "ab")
        fcntl.flock(held.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise error(is_held) from None
    except OSError as failed:
        raise error(fails.format(failed.strerror)) from None


def _free(held: _Held) -> None:
    import fcntl

    file, held.file = held.file, None
    if file is not None:
        with file, suppress(OSError):  # of a file system without locks
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that is just being started may have a copy of the descriptor


def _forget() -> None:
    """In a forked child, which would hold its parent's locks for as long as it lives."""
    for held in _held.values():
        if held.file is not None:
            held.file.close()
            held.file = None
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
