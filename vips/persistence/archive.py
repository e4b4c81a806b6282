"""Files of arrays and JSON: a zip of ``header.json`` and ``NAME.npy``, without compression. No pickle is written or read.

A file is written beside its place, synced and renamed: a reader sees the whole old file or the whole new one. Reading first
compares the sizes of members with that of the file, so that a small file cannot take much memory.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vips._support.files import refuse_endless, whole_file
from vips.data._npy import tried_again

__all__ = ["one_error", "read_archive", "restored_from", "write_archive"]

FORMAT, VERSION = "vips", 1
_KINDS = "biufcSU"  # allowed kinds of dtypes: numbers and strings


def write_archive(
    path: str | os.PathLike,
    kind: str,
    header: dict,
    arrays: Mapping[str, np.ndarray],
    partial: Path | None = None,
    mode: int = 0o666,
) -> None:
    """Write a file of that kind, atomically and durably; ``partial`` and ``mode`` as in :func:`whole_file`.

    Raises
    ------
    OSError
        If the file cannot be written; an older one is then unchanged.
    """
    full = {"format": FORMAT, "version": VERSION, "kind": kind, **header, "arrays": sorted(arrays)}
    with whole_file(path, partial, mode) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", json.dumps(full, indent=1))
        for name, array in arrays.items():
            # as np.savez does, without a copy in memory
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)


def read_archive(path: str | os.PathLike, *kinds: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of a file of one of those kinds.

    Raises
    ------
    ValueError
        If the file is foreign, torn, forged, of another kind or of another version.
    OSError
        If it cannot be opened.
    """
    refuse_endless(path)  # a folder is an OSError below
    with open(path, "rb") as file, one_error(path), zipfile.ZipFile(file) as archive:
        _check_sizes(archive, os.path.getsize(path))
        header = json.loads(archive.read("header.json"))  # zipfile verifies the checksum of every member
        if header["format"] != FORMAT or header["kind"] not in kinds:
            raise ValueError(f"it holds {header['kind']!r}, not a {kinds[0]!r}")
        if header["version"] != VERSION:
            raise ValueError(f"it has version {header['version']}; this version of vips reads {VERSION}")
        names = header["arrays"]
        if sorted([*(f"{name}.npy" for name in names), "header.json"]) != sorted(archive.namelist()):
            raise ValueError("its arrays are not those that its header names")
        return header, {name: _read_array(archive, name) for name in names}


def restored_from(path: str | os.PathLike, readers: Mapping[str, Callable[[dict, dict[str, np.ndarray]], Any]]) -> Any:
    """What the reader of the file's kind makes of its header and arrays; ``readers`` are those of the kinds that may be read.
    Errors are those of :func:`read_archive`; whatever a reader raises is a ValueError."""
    header, arrays = read_archive(path, *readers)
    with one_error(path):
        return readers[header["kind"]](header, arrays)


@contextmanager
def one_error(path: str | os.PathLike) -> Iterator[None]:
    """Turn any error in reading a file into a ValueError."""
    try:
        yield
    except Exception as error:
        problem = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is not a file of vips that can be read here: {problem.rstrip('.')}.") from error


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ValueError unless members are uncompressed, and together no larger than the file."""
    members = archive.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size for info in members):
        raise ValueError("it is compressed, which files of vips are not")
    if sum(info.file_size for info in members) > size:
        raise ValueError("its members are larger than the file")


@tried_again
def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of the ``.npy`` format. ``np.load`` would allocate what its header says before it misses the values."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"array {name!r} is in version {version} of the .npy format")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(member)
        if dtype.kind not in _KINDS or not dtype.itemsize or is_fortran:
            raise ValueError(f"array {name!r} has dtype {dtype}, or its columns come first")
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError(f"array {name!r} has another size than its header says")
    with archive.open(info) as member:
        values = np.lib.format.read_array(member, allow_pickle=False)
        member.read()  # to the end, where zip checks the checksum
    return values.view(np.uint8) != 0 if dtype.kind == "b" else values
