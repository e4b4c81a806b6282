"""Files that a command writes, checked before a record is read, so that no paid fit is lost; and what predictions need.

Predictions need more than the model, such as names of columns: these are part of the file that ``fit --save`` writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from vips._support.files import check_writable, whole_file
from vips.report.report_fields import from_plain
from vips.tools.commands.files import meaning_of
from vips.tools.commands.reading import Reading

__all__ = ["check_outputs", "checked_needs", "write_table"]

_READ = (".txt", ".parquet", ".csv", ".jsonl")
# By kind of model: the method that predicts, and for each setting whether it is a name or a list of names. Texts may lack both.
_METHODS = {"logistic": "predict_proba", "topics": "transform", "pathways": "predict"}
_SETTINGS = {
    "logistic": {"columns": list, "classes": list, "declared": list},
    "topics": {"text": str, "unit": str},
    "pathways": {"unit": str, "event": str, "order": str, "catalogue": list},
}


def check_outputs(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Prove every output writable. One that is an input or another output, whatever the names, raises ValueError.

    In a folder among the inputs, texts and shards of tables are inputs.
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
    return path.name.lower().removesuffix(".gz").endswith(_READ) and folder.is_dir() and folder in path.parents


def write_table(frames: Iterable, path: str | Path) -> None:
    """Data frames, one below the other, as Parquet, or as CSV where the name does not end so.

    A new file is for its owner only: it holds rows.
    """
    name, frames = Path(path).name, (frame for frame in frames if len(frame))
    with whole_file(path, mode=0o600) as file:
        first = next(frames, None)
        if first is None:
            raise ValueError("There is no row to predict.")
        if name.endswith(".parquet"):
            _write_parquet(chain([first], frames), file)
            return
        for i, frame in enumerate(chain([first], frames)):
            frame.to_csv(file, index=False, header=i == 0, compression="gzip" if name.endswith(".gz") else None)


def _write_parquet(frames: Iterable, file: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    writer, schema = None, None
    for frame in frames:
        texts = dict.fromkeys(frame.select_dtypes(object), "string")  # even if all are missing
        table = pa.Table.from_pandas(frame.astype(texts), schema, preserve_index=False)
        schema, writer = table.schema, writer or ParquetWriter(file, table.schema)
        writer.write_table(table)
    writer.close()


# -- what predictions need -----------------------------------------------------------------------------------------


def checked_needs(needs: object, model: object, path: str) -> tuple[dict, Reading]:
    """What a file holds, if it fits to its model; and how the fitted table was written. A forged file raises ValueError."""
    if needs is None:
        raise ValueError(
            f"{path} was saved from Python, without the names of columns that `predict` needs: write one with `fit --save`, or "
            f"use vips.load({path!r}) in Python."
        )
    kind = needs.get("model") if isinstance(needs, dict) else None
    settings = _SETTINGS.get(kind) if isinstance(kind, str) else None
    if settings is None or set(needs) != {"model", "reading", *settings} or not hasattr(model, _METHODS[kind]):
        raise _forged(path, "it names another kind of model")
    for name, expected in settings.items():
        value = needs[name]
        is_right = isinstance(value, expected) or (kind == "topics" and value is None)
        if not is_right or (expected is list and not all(isinstance(text, str) for text in value)):
            raise _forged(path, f"its {name!r} is no name, or no list of names")
    if kind == "logistic":
        if len(needs["classes"]) != 2 or len(needs["columns"]) != len(needs["declared"]):
            raise _forged(path, "it does not name two classes, and what columns are")
        for name, what in zip(needs["columns"], needs["declared"], strict=True):
            meaning_of(name, what)
    try:
        return needs, from_plain(Reading, needs["reading"])
    except ValueError:
        raise _forged(path, "it does not say how the table was written") from None


def _forged(path: str, why: str) -> ValueError:
    return ValueError(f"{path} was not written by `fit --save`: {why}.")
