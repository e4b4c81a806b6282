"""Files of arrays and JSON: a zip of ``header.json`` and ``NAME.npy``, without compression. No pickle is written or read.

A file is written beside its place, synced and renamed: a reader sees the old one or the new one, whole. What is read is checked
against the size of the file first: nobody can write a small file that takes much memory.
"""

from __future__ import annotations

import io
import json
import os
import stat
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

__all__ = ["one_error", "read_archive", "sync_folder", "whole_file", "write_archive"]

FORMAT, VERSION = "vips", 1
_KINDS = "biufcSU"  # of arrays: numbers and words


def write_archive(
    path: str | os.PathLike, kind: str, header: dict, arrays: Mapping[str, np.ndarray], partial: Path | None = None
) -> None:
    """Write a file of that kind, atomically and durably; ``partial`` as in :func:`whole_file`.

    Raises
    ------
    OSError
        If it cannot be written; what was there before is still there.
    """
    full = {"format": FORMAT, "version": VERSION, "kind": kind, **header, "arrays": sorted(arrays)}
    with whole_file(path, partial) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", json.dumps(full, indent=1))
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getbuffer())


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


def read_archive(path: str | os.PathLike, kind: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of a file of that kind.

    Raises
    ------
    ValueError
        If the file is foreign, torn, forged, of another kind or of another version.
    OSError
        If it cannot be opened.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):  # a folder is an OSError below
        raise ValueError(f"{path} is not a file but a device or a pipe, which may have no end.")
    with open(path, "rb") as file, one_error(path), zipfile.ZipFile(file) as archive:
        _check_sizes(archive, os.path.getsize(path))
        header = json.loads(archive.read("header.json"))  # zip checks the checksum of every member
        if header["format"] != FORMAT or header["kind"] != kind:
            raise ValueError(f"it holds {header['kind']!r}, not a {kind!r}")
        if header["version"] != VERSION:
            raise ValueError(f"it has version {header['version']}; this version of vips reads {VERSION}")
        names = header["arrays"]
        if sorted([*(f"{name}.npy" for name in names), "header.json"]) != sorted(archive.namelist()):
            raise ValueError("its arrays are not those that its header names")
        return header, {name: _read_array(archive.read(f"{name}.npy"), name) for name in names}


@contextmanager
def one_error(path: str | os.PathLike) -> Iterator[None]:
    """Whatever a file makes code raise that reads it is a ValueError."""
    try:
        yield
    except Exception as error:
        problem = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is not a file of vips that can be read here: {problem.rstrip('.')}.") from error


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Members hold what they say, and not more than the file."""
    members = archive.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size for info in members):
        raise ValueError("it is compressed, which files of vips are not")
    if sum(info.file_size for info in members) > size:
        raise ValueError("its members are larger than the file")


def _read_array(content: bytes, name: str) -> np.ndarray:
    """An array of the ``.npy`` format. Its header is believed only if it describes exactly what follows."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"array {name!r} is in version {version} of the .npy format")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in _KINDS or is_fortran:
        raise ValueError(f"array {name!r} has dtype {dtype}, or its columns come first")
    values = np.frombuffer(content, np.uint8 if dtype.kind == "b" else dtype, offset=file.tell())
    values = values != 0 if dtype.kind == "b" else values
    return values.reshape(shape).copy()  # an error if these are not as many


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
