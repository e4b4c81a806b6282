"""The command ``predict``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from vips.data._columns import names_like
from vips.tools.commands import files
from vips.tools.commands.outputs import check_outputs, checked_needs, write_table
from vips.tools.commands.reading import Reading, stated

__all__ = ["predict"]


def predict(options: argparse.Namespace) -> None:
    """Write the predictions for a table or texts, a piece at a time."""
    from vips.saving import load_for_shell

    check_outputs([options.out], (options.model, options.data))
    model, needs = load_for_shell(options.model)
    needs, reading = checked_needs(needs, model, options.model)
    write_table(
        _PREDICTIONS[needs["model"]](model, options.data, needs, replace(reading, **stated(options))), options.out
    )
    print(f"written: {options.out}")


def _predicted_shares(model, path: str, needs: dict, reading: Reading) -> Iterator:
    if needs["text"] is not None:
        names = [name for name in (needs["text"], needs["unit"]) if name is not None]
        table = files.table_of(path, reading, names)
        files.column_of(table.head, needs["text"], "--text")
        for piece in filter(len, table.pieces()):
            yield _with_shares(model, files.texts_in(piece[needs["text"]]), piece.drop(columns=[needs["text"]]))
    elif Path(path).is_dir():
        texts, table = files.read_folder(Path(path), reading, "**/*")
        if not texts:
            raise ValueError(f"The folder {path!r} has no .txt file.")
        yield _with_shares(model, texts, table)
    else:
        raise ValueError("The model was fitted to a folder: write each text into a .txt file, and name their folder.")


def _with_shares(model, texts: list[str], table):
    return table.assign(**{f"topic {k}": share for k, share in enumerate(np.asarray(model.transform(texts)).T)})


def _predicted_states(model, path: str, needs: dict, reading: Reading) -> Iterator:
    table = files.events_of(path, needs, reading)
    pathways, rows = files.sequences_of(table, needs, reading)
    yield table.iloc[rows][[needs["unit"], needs["order"], needs["event"]]].assign(state=model.predict(pathways))


def _predicted_classes(model, path: str, needs: dict, reading: Reading) -> Iterator:
    table = files.table_of(path, reading)
    missing = [name for name in needs["columns"] if name not in table.columns]
    if missing:
        other = names_like(missing[0], table.columns)
        raise ValueError(f"The table has no column {missing[0]!r}, which the model was fitted with.{other}")
    declared, yes = dict(zip(needs["columns"], needs["declared"], strict=True)), needs["classes"][1]
    place = list(model.classes_).index(yes)
    for piece in filter(len, table.pieces()):
        probabilities = model.predict_proba(files.as_declared(piece, declared, reading))
        yield piece.assign(**{f"P({yes})": probabilities[:, place]})


_PREDICTIONS = {"logistic": _predicted_classes, "topics": _predicted_shares, "pathways": _predicted_states}
