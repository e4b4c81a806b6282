"""Files of arrays and JSON: a zip of ``header.json`` and ``NAME.npy``. No pickle is written or read.

A file is written beside its place, synced and renamed: a reader sees the old one or the new one, whole.
"""

from __future__ import annotations

import glob
import io
import json
import os
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

__all__ = ["read_archive", "sync_folder", "whole_file", "write_archive"]

FORMAT, VERSION = "vips", 1


def write_archive(path: str | os.PathLike, kind: str, header: dict, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file of that kind, atomically and durably.

    Raises
    ------
    OSError
        If it cannot be written; what was there before is still there.
    """
    full = {"format": FORMAT, "version": VERSION, "kind": kind, **header, "arrays": sorted(arrays)}
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", json.dumps(full, indent=1))
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getbuffer())


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A new file to write, which takes its place when the block ends without an error, and disappears otherwise.

    Raises
    ------
    OSError
        If it cannot be written; what was there before is still there.
    """
    path = Path(path).absolute()
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    finally:
        # ours, if it could not be finished, and what a killed process left
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
            left.unlink(missing_ok=True)


def read_archive(path: str | os.PathLike, kind: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of a file of that kind.

    Raises
    ------
    ValueError
        If the file is foreign, torn, of another kind or of another version.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("header.json"))  # zip checks the checksum of every member
            if header.get("format") != FORMAT or header.get("kind") != kind:
                raise ValueError(f"it holds {header.get('kind')!r}, not a {kind!r}")
            if header["version"] != VERSION:
                raise ValueError(f"it has version {header['version']}; this version of vips reads {VERSION}")
            arrays = {
                name: np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
                for name in header["arrays"]
            }
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is not a file of vips that can be read here: {error}.") from error
    return header, arrays


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
