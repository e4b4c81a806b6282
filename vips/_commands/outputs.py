"""What a command writes: checked before a record is read, so that no fit is paid for and then lost."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from vips._support.files import check_writable, whole_file

__all__ = ["check_outputs", "write_table"]


def check_outputs(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Prove every output writable. One that is an input or another output, whatever the names, raises ValueError.

    In a folder among the inputs, files of texts and Parquet files are inputs.
    """
    inputs, earlier = [path for path in inputs if path is not None], []
    for path in outputs:
        if path is None:
            continue
        check_writable(path)
        if any(_is_same(path, other) for other in earlier):
            raise ValueError(f"Two outputs are one file, {path!r}: give each another name.")
        if any(_is_same(path, other) or _is_part_of(path, other) for other in inputs):
            raise ValueError(f"{path!r} is read by this command, and would be replaced: write to another file.")
        earlier.append(path)


def _is_same(path: str, other: str) -> bool:
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def _is_part_of(path: str, folder: str) -> bool:
    path, folder = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    return path.suffix.lower() in (".txt", ".parquet") and folder.is_dir() and folder in path.parents


def write_table(frame, path: str | Path) -> None:
    """As Parquet, or as CSV where the name does not end so. A new file is for its owner only: it holds rows."""
    name = Path(path).name
    with whole_file(path, mode=0o600) as file:
        if name.endswith(".parquet"):
            frame.to_parquet(file)
        else:
            frame.to_csv(file, index=False, compression="gzip" if name.endswith(".gz") else None)
