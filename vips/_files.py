"""Atomic writes of files and folders: a temporary one beside is written, synced and renamed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["sync_folder", "text_or_file", "whole_file", "whole_folder"]


@contextmanager
def whole_file(path: str | os.PathLike, partial: Path | None = None, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a new file for writing; it replaces ``path`` when the block ends without an error.

    The new file keeps the permissions and the owner of the file that it replaces. A symbolic link is followed.

    Parameters
    ----------
    path : str or path
    partial : path, optional
        Name of the file until then, in the same folder. It stays if the block raises or the process is killed, so that a later
        start sees it. None uses a new name, and removes the file if the block raises.
    mode : int
        Permissions of a file that replaces none, less the umask.

    Raises
    ------
    OSError
        If the file cannot be written; ``path`` is then unchanged. FileExistsError if ``partial`` exists.
    """
    path = Path(os.path.realpath(path))
    is_temporary = partial is None
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial") if partial is None else partial
    try:
        with _created(partial, like=path, mode=mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        if is_temporary:
            partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def text_or_file(values: object, path: str | os.PathLike | None) -> str | None:
    """``values`` as JSON: the text, or None after it was written to ``path``."""
    text = json.dumps(values, ensure_ascii=False, indent=1)
    if path is None:
        return text
    with whole_file(path) as file:
        file.write(f"{text}\n".encode("utf-8", errors="replace"))
    return None


@contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[Path]:
    """A new folder to write into; it becomes ``path`` when the block ends without an error, and is removed after one.

    Its name until then is hidden and ends in ``.partial``: that is what a killed process leaves. The block syncs its own files.

    Raises
    ------
    FileExistsError
        If ``path`` exists.
    """
    path = Path(os.path.abspath(path))
    if os.path.lexists(path):
        raise FileExistsError(f"{path} exists already, and is never overwritten: choose a new folder.")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    partial.mkdir()
    try:
        yield partial
        sync_folder(partial)
        os.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync_folder(path.parent)


@contextmanager
def _created(path: Path, like: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file, with the permissions and owner of ``like`` if that exists."""
    try:
        old = like.stat()
    except FileNotFoundError:
        old = None
    mode = mode if old is None else 0o600
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        if old is not None and os.name == "posix":
            os.fchmod(file.fileno(), _kept_mode(file.fileno(), old))
        yield file


def _kept_mode(descriptor: int, old: os.stat_result) -> int:
    """Give the new file the old owner and group, and return the old mode; without group permissions if the group fails."""
    with suppress(OSError):
        os.fchown(descriptor, old.st_uid, -1)
    try:
        os.fchown(descriptor, -1, old.st_gid)
    except OSError:
        return stat.S_IMODE(old.st_mode) & ~stat.S_IRWXG
    return stat.S_IMODE(old.st_mode)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable, where the system allows it."""
    if os.name != "posix":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
