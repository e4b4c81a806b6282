"""``python -m vips inspect``: how the cells of a file are read, for the eyes of its holder."""

from __future__ import annotations

import argparse

import numpy as np

from vips._commands.files import declarations_of, meaning_of, read_table
from vips._commands.reading import Reading, add_options, stated
from vips.data._order import is_text_or_object

__all__ = ["add_inspect"]


def add_inspect(commands) -> None:
    """Add the parser of ``inspect``."""
    inspect = commands.add_parser(
        "inspect",
        help="how the cells of a table are read, and which are not: not private, for its holder",
        description="Not private: for those who hold the table. What is declared because of it is not covered by ε.",
    )
    inspect.add_argument("data", help="a .parquet, .csv or .csv.gz table")
    inspect.add_argument(
        "--column", action="append", default=[], metavar="NAME=WHAT",
        help="as in fit: number, date, category, LOW:HIGH, A,B,C or drop; may be repeated",
    )  # fmt: skip
    add_options(inspect)
    inspect.set_defaults(run=_inspect)


def _inspect(options: argparse.Namespace) -> None:
    from vips.preprocessing import Inspection, inspect

    reading = Reading(**stated(options))
    table = read_table(options.data, reading)
    named = [name for name in table.columns if any(text.startswith(f"{name}=") for text in options.column)]
    declared = declarations_of(table[named], options.column, reading)
    columns = []
    for name in table.columns:
        what = declared.get(name)
        if what is not None or name not in named:  # else it is to be dropped
            declaration = None if what is None else {name: meaning_of(name, what)}
            columns += inspect(_cells(table[[name]], reading, what), declaration).columns
    n_empty = int(table.isna().all(axis=1).sum())
    if n_empty:
        print(
            f"{n_empty:,} lines hold no cell: they are empty, or have another number of cells, a quote that does not close, or "
            f"bytes that are not {reading.encoding}. Each counts as a record without values."
        )
    print(Inspection(tuple(columns)))


def _cells(column, reading: Reading, what: str | None = None):
    """A table of one column, with numbers and dates in place of texts that are read as such."""
    (name,) = column.columns
    cells = column[name]
    if not is_text_or_object(cells.dtype):
        return column
    meaning = None if what is None else meaning_of(name, what)
    if what is None or meaning == "number" or isinstance(meaning, tuple):
        read = reading.numbers(cells).astype(object)
        read = np.where(np.isnan(read.astype(float)), cells, read)
        is_number = meaning is not None or sum(isinstance(cell, float) for cell in read) > 0.5 * cells.notna().sum()
        return column.assign(**{name: read}) if is_number else column
    return column.assign(**{name: reading.dates(cells).where(cells.notna())}) if meaning == "date" else column
