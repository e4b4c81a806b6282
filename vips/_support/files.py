"""The one door of written files and folders: a temporary one beside is written, synced and renamed.

Nothing passes over a ledger, a device, a pipe or a folder. What a fit will write is proved writable before the fit is paid for.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "check_file_locks",
    "check_writable",
    "name_in_partial",
    "no_fork",
    "partial_of",
    "partials_of",
    "private_file",
    "refuse_endless",
    "sync_folder",
    "synced_file",
    "text_or_file",
    "whole_file",
    "whole_folder",
]

_LONGEST_NAME = 200  # bytes, beside what is added to it; most file systems allow 255 in all
_SQLITE, _COMPANIONS = b"SQLite format 3\0", ("-journal", "-wal", "-shm")


@contextmanager
def whole_file(path: str | os.PathLike, partial: Path | None = None, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a new file for writing; it replaces ``path`` when the block ends without an error.

    The new file keeps the permissions and the owner of the file that it replaces. A symbolic link is followed. Only a regular
    file is replaced, and no ledger.

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
        If the file cannot be written; ``path`` is then unchanged, unless the disk failed when its folder was synced, after the
        new file was in place. FileExistsError if ``partial`` exists, or ``path`` is never replaced.
    """
    path = _replaceable(path)
    is_temporary = partial is None
    partial = partial_of(path) if partial is None else partial
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


def check_writable(path: str | os.PathLike) -> None:
    """Prove that :func:`whole_file` can write ``path``, by a file beside it that is removed at once.

    Raises
    ------
    OSError
        If it cannot: no folder, a folder or ledger of that name, a name that is too long, no permission.
    """
    partial = partial_of(_replaceable(path))
    if not partial.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(partial.parent)!r} to write {os.fspath(path)!r} into.")
    try:
        private_file(partial).close()
    except OSError as error:
        raise type(error)(error.errno, f"nothing can be written there: {error.strerror}", os.fspath(path)) from None
    partial.unlink()


def check_file_locks(what: str, instead: str, error: type[Exception]) -> None:
    """Raise ``error`` on a platform without ``fcntl``, such as Windows, where no lock or durable file of vips is tested."""
    if find_spec("fcntl") is None:
        raise error(
            f"{what} needs file locks (fcntl), which this platform lacks: use Linux or macOS, or {instead}. Nothing was "
            "changed."
        )


def refuse_endless(path: str | os.PathLike) -> None:
    """Raise ValueError, without opening it, if ``path`` is a device or a pipe."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ValueError(f"{os.fspath(path)} is not a file but a device or a pipe, which may have no end.")


def private_file(path: str | os.PathLike, mode: str = "xb") -> BinaryIO:
    """Open a file that, if it is new, only its owner may read, whatever the umask."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


@contextmanager
def synced_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a new :func:`private_file`, which is on the disk when the block ends."""
    with private_file(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def name_in_partial(name: str) -> str:
    """The name of a file, or a hash in its place where the names of its partial files would be too long."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONGEST_NAME else hashlib.blake2b(encoded, digest_size=16).hexdigest()


def partials_of(path: Path) -> list[Path]:
    """What killed processes left of :func:`whole_file`."""
    begin, length = f".{name_in_partial(path.name)}.", len(partial_of(path).name)
    names = [entry.name for entry in os.scandir(path.parent) if len(entry.name) == length]
    return [path.with_name(name) for name in names if name.startswith(begin) and name.endswith(".partial")]


def partial_of(path: Path) -> Path:
    return path.with_name(f".{name_in_partial(path.name)}.{uuid.uuid4().hex}.partial")


def _replaceable(path: str | os.PathLike) -> Path:
    """Where a file may be written: ``path`` without links. FileExistsError if something is there that is never replaced."""
    resolved = Path(os.path.realpath(path))
    if not resolved.name:
        raise FileExistsError(f"{path} is a folder, and is never replaced by a file: choose another path.")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise FileExistsError(f"{path} is {what}, and is never replaced by a file: choose another path.")
    base, dash, ending = str(resolved).rpartition("-")
    is_companion = dash + ending in _COMPANIONS
    if _is_database(resolved) or (is_companion and _is_database(Path(base))):
        raise FileExistsError(
            f"{path} is a ledger or a database, or keeps its last entries, and is never replaced: choose another path."
        )
    return resolved


def _is_database(path: Path) -> bool:
    """Whether a file is one of SQLite, as ledgers are. Waits for a ledger that is open: closing a second descriptor of it would
    drop its locks.
    """
    with no_fork(), suppress(FileNotFoundError):
        if path.is_file():
            with open(path, "rb") as file:
                return file.read(len(_SQLITE)) == _SQLITE
    return False


@contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[Path]:
    """A new folder to write into; it becomes ``path`` when the block ends without an error, and is removed after one.

    Its name until then is hidden and ends in ``.partial``: that is what a killed process leaves. Only its owner may enter. The
    block syncs its own files.

    Raises
    ------
    FileExistsError
        If ``path`` exists.
    """
    path = Path(os.path.abspath(path))
    if os.path.lexists(path):
        raise FileExistsError(f"{path} exists already, and is never overwritten: choose a new folder.")
    partial = partial_of(path)
    partial.mkdir(0o700)
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


_forks = threading.RLock()


def no_fork() -> AbstractContextManager:
    """Forks of other threads wait until the block ends: keep it short. For open files of SQLite, and late imports.

    Otherwise the child would inherit what another thread had half done, and its locks for good.

    This is the lock itself. A generator's context manager could hold the lock for good after a Ctrl-C.
    """
    return _forks


# Hooks are C methods: Python swallows a Ctrl-C in a hook that is written in Python, which would leave the lock held.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.acquire,
        after_in_parent=_forks.release,
        after_in_child=_forks._at_fork_reinit,  # as `logging` does
    )


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable. File systems that cannot say so; an error of the disk is raised."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
