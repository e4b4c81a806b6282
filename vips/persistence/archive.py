"""Files of arrays and JSON: a zip of ``header.json`` and ``NAME.npy``, without compression. No pickle is written or read.

A file is written beside its place, synced and renamed: a reader sees the whole old file or the whole new one. Reading first
compares the sizes of members with that of the file, so that a small file cannot take much memory.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from vips._files import whole_file

__all__ = ["one_error", "read_archive", "write_archive"]

FORMAT, VERSION = "vips", 1
_KINDS = "biufcSU"  # allowed kinds of dtypes: numbers and strings


def write_archive(
    path: str | os.PathLike, kind: str, header: dict, arrays: Mapping[str, np.ndarray], partial: Path | None = None
) -> None:
    """Write a file of that kind, atomically and durably; ``partial`` as in :func:`whole_file`.

    Raises
    ------
    OSError
        If the file cannot be written; an older one is then unchanged.
    """
    full = {"format": FORMAT, "version": VERSION, "kind": kind, **header, "arrays": sorted(arrays)}
    with whole_file(path, partial) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", json.dumps(full, indent=1))
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getbuffer())


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
        header = json.loads(archive.read("header.json"))  # zipfile verifies the checksum of every member
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
