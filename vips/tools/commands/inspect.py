"""Commands that look at files: ``inspect``, how the cells of a table are read, and ``certificate check``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from vips._support.extras import imported
from vips._support.printable import printable
from vips.data._cell_values import each_cell, is_missing
from vips.data._order import is_text_or_object
from vips.tools.commands.files import as_declared, is_of_dates, meaning_of, read_table, stated_of
from vips.tools.commands.reading import Reading, stated

__all__ = ["check_certificate", "inspect_table"]


def inspect_table(options: argparse.Namespace) -> None:
    """Print how the cells of a table are read."""
    from vips.preprocessing import Inspection, inspect

    reading = Reading(**stated(options))
    table = read_table(options.data, reading)
    declared = stated_of(table, options.column, reading)
    columns = []
    for name in table.columns:
        what = declared.get(name)
        if what != "drop":
            declaration = None if what is None else {name: meaning_of(name, what)}
            columns += inspect(_cells(table[[name]], reading, what), declaration).columns
    n_empty = int(table.isna().all(axis=1).sum())
    if n_empty:
        print(
            f"{n_empty:,} lines hold no cell: they are empty, or have another number of cells, a quote that does not close, or "
            f"bytes that are not {reading.encoding}. Each counts as a record without values."
        )
    print(Inspection(tuple(columns)))


@dataclass(frozen=True)
class _Unread:
    """A text that is not what its column holds."""

    text: object

    def __str__(self) -> str:
        return str(self.text)


def _cells(column, reading: Reading, what: str | None = None):
    """A table of one column, as ``fit`` reads it, with the texts that cannot be read."""
    (name,) = column.columns
    cells, meaning = column[name], None if what is None else meaning_of(name, what)
    if not is_text_or_object(cells.dtype):
        return column if what is None else as_declared(column, {name: what}, reading)
    if isinstance(meaning, list) or meaning == "category":
        return column
    texts, ways = each_cell(cells), (reading.numbers, reading.dates)
    for way in ways if what is None else ways[is_of_dates(meaning) :]:
        read = [
            text if is_missing(text) else _Unread(text) if is_missing(cell) else cell
            for cell, text in zip(each_cell(way(cells)), texts, strict=True)
        ]
        n_read = sum(not isinstance(cell, _Unread) and not is_missing(cell) for cell in read)
        if what is not None or n_read > 0.5 * sum(not is_missing(text) for text in texts):
            series = imported("pandas", by="A table").Series(read, index=column.index, dtype=object)
            return column.assign(**{name: series})
    return column


# -- certificates --------------------------------------------------------------------------------------------------


def check_certificate(options: argparse.Namespace) -> int:
    """Print what agrees and what does not; 0 if all agree, 1 if something differs."""
    from vips.saving import load_for_shell

    imported("jinja2", by="certificate check")
    from vips.report.certificate.check import findings

    if options.model is None and options.ledger is None:
        raise ValueError("Name a file to compare the page with: --model, --ledger, or both.")
    report = None if options.model is None else getattr(load_for_shell(options.model)[0], "privacy_", None)
    if options.model is not None and report is None:
        raise ValueError(f"{options.model} holds no privacy statement.")
    results = findings(options.page, report, options.ledger)
    print("\n".join(printable(result) for result in results))
    return int(any(result.is_right is False for result in results))
