"""Files that are written whole or not at all: beside their place, synced, and renamed."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["sync_folder", "whole_file"]


@contextmanager
def whole_file(path: str | os.PathLike, partial: Path | None = None) -> Iterator[BinaryIO]:
    """A new file to write, which takes its place when the block ends without an error.

    The permissions and the owner of a file that it replaces are kept, and a symbolic link is followed.

    Parameters
    ----------
    path : str or path
    partial : path, optional
        Name until then, in the same folder. It stays if the block raises or the process is killed, so that somebody can see
        that it was there. None is a name of this call's own, which is removed if the block raises.

    Raises
    ------
    OSError
        If it cannot be written; what was there before is still there. FileExistsError if ``partial`` is there.
    """
    path = Path(os.path.realpath(path))
    own = partial is None
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial") if partial is None else partial
    try:
        with _created(partial, like=path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        if own:
            partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def _created(path: Path, like: Path) -> Iterator[BinaryIO]:
    """A new file, with permissions and owner of ``like`` if that exists."""
    try:
        old = like.stat()
    except FileNotFoundError:
        old = None
    mode = 0o666 if old is None else 0o600  # less the umask
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        if old is not None and os.name == "posix":
            os.fchmod(file.fileno(), _kept_mode(file.fileno(), old))
        yield file


def _kept_mode(descriptor: int, old: os.stat_result) -> int:
    """The permissions of a file; without those of its group, if the new one cannot have that group."""
    with suppress(OSError):
        os.fchown(descriptor, old.st_uid, -1)
    try:
        os.fchown(descriptor, -1, old.st_gid)
    except OSError:
        return stat.S_IMODE(old.st_mode) & ~stat.S_IRWXG
    return stat.S_IMODE(old.st_mode)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable, where the system can and lets us."""
    if os.name != "posix":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
