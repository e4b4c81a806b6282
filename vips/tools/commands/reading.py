"""How the cells of a table are written, and CSV files: one physical line is one record, and is parsed alone."""

from __future__ import annotations

import argparse
import codecs
import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache, partial
from itertools import chain
from typing import BinaryIO, Self

import numpy as np

from vips._support.extras import imported
from vips.data._cell_values import date_of, each_cell
from vips.data._texts import check_encoding

__all__ = ["Reading", "stated"]

_BLOCK = 2**21  # bytes of lines that are parsed together
_FIRST = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Reading:
    """How a table is written: public, and declared. ValueError if the settings contradict each other, or are none.

    Guarantees
    ----------
    - What a cell becomes depends on the cell and these settings alone, and in a CSV file on its line. No line and no cell
      raises or warns, whatever bytes it holds; the line of names may.
    - A line that cannot be parsed is a record whose cells are all missing.
    """

    separator: str = ","  # one character, as each sign
    decimal: str = "."
    thousands: str = ""  # none
    encoding: str = "utf-8"
    date_formats: tuple[str, ...] = ()  # as for strptime: a text is read by the first one that fits; empty: ISO 8601
    missing: tuple[str, ...] = ()  # words that mean a missing cell, as the empty one does

    def __post_init__(self) -> None:
        if len(self.separator) != 1 or self.separator in '"\r\n':
            raise ValueError("--separator is one character, as in --separator ';', and no quote.")
        signs = [self.decimal, self.thousands] if self.thousands else [self.decimal]
        if len(set(signs)) < len(signs) or any(len(sign) != 1 or sign.isalnum() or sign in "+-" for sign in signs):
            raise ValueError("--decimal and --thousands are two different signs, as in --decimal , --thousands .")
        check_encoding(self.encoding, "--encoding")
        if not all(map(_is_date_format, self.date_formats)):
            raise ValueError("--date-format says how dates with a year are written, as in --date-format %d.%m.%Y")

    # -- cells --------------------------------------------------------------------------------------------------------

    def numbers(self, cells: Iterable[object]) -> np.ndarray:
        """Parse each text as a finite float; NaN if it is not a number in these signs."""
        texts = [cell if isinstance(cell, str) else "" for cell in each_cell(cells)]
        decimal, thousands = re.escape(self.decimal), re.escape(self.thousands)
        whole = rf"[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+|[0-9]+" if thousands else "[0-9]+"
        pattern = re.compile(rf"[+-]?(?:(?:{whole})(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?")
        known = {text: self._number(pattern, text.strip()) for text in set(texts)}
        return np.fromiter(map(known.__getitem__, texts), np.float64, len(texts))

    def dates(self, cells):
        """A series of objects with the date of each text, None if it is not written so; ISO texts stay as they are."""
        if not self.date_formats:
            return cells
        date = cache(partial(date_of, formats=self.date_formats))
        dates = [date(cell) if isinstance(cell, str) else None for cell in each_cell(cells)]
        return imported("pandas", by="A table").Series(dates, index=cells.index, name=cells.name, dtype=object)

    def _number(self, pattern: re.Pattern, text: str) -> float:
        if not pattern.fullmatch(text):
            return math.nan
        number = float(text.replace(self.thousands, "").replace(self.decimal, "."))
        return number if math.isfinite(number) else math.nan

    # -- lines --------------------------------------------------------------------------------------------------------

    def tables(self, file: BinaryIO) -> Iterator:
        """Data frames of objects, texts or None, with a row for each line of a CSV file after that of names.

        The encoding and the line of names, which are public, may raise ValueError.
        """
        head = file.readline()
        is_wide = "\n".encode(self.encoding) not in (b"\n", codecs.BOM_UTF8 + b"\n")
        if is_wide or head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ValueError(
                "--encoding: lines of UTF-16 and the like cannot be parsed alone. Save the table in UTF-8."
            )
        head = head.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
        if b"\r" in head:
            raise ValueError("The line of names ends with a carriage return alone: save the table with ends of lines.")
        if head.lower().startswith(b"sep="):
            raise ValueError(
                "The first line, 'sep=', is one of Excel, and names no columns: remove it, and say the sign by --separator."
            )
        names = self._names(head)
        yield self._frame([], names)
        for lines in _lines(file):
            rows = self._rows((line.removesuffix(b"\r") for line in lines), len(names))
            yield self._frame(list(chain.from_iterable(rows)), names)

    def texts(self, file: BinaryIO, names: list[str]) -> Iterator:
        """The same for JSON lines: the text or number that a line has under each of these names; None for what is neither."""
        yield self._frame([], names)
        for lines in _lines(file):
            yield self._frame([cell for line in lines for cell in _cells_of_json(line, names)], names)

    def _frame(self, cells: list, names: list[str]):
        table = np.empty(len(cells), object)
        table[:] = cells
        for word in ("", *self.missing):
            table[table == word] = None
        return imported("pandas", by="A table").DataFrame(table.reshape(-1, len(names)), columns=names, dtype=object)

    def _names(self, line: bytes) -> list[str]:
        (names,) = self._rows([line], None)
        if not names:
            raise ValueError(
                "The first line, of names, cannot be read: --encoding and --separator say how it is written."
            )
        if len(names) == 1 and any(sign in names[0] for sign in ";\t|,"):
            raise ValueError("The first line holds one name only: --separator says what separates names, as in ';'.")
        if len(set(names)) < len(names):
            raise ValueError("The first line names two columns alike: give each another name.")
        return names

    def _rows(self, lines: Iterable[bytes], n_cells: int | None) -> Iterator[list]:
        """The cells of each line; as many missing ones if it is not text of the encoding, has others, or an open quote."""
        encoding, separator, defective = self.encoding, self.separator, [None] * (n_cells or 0)
        single = _SingleLine()
        reader = csv.reader(single, delimiter=separator, strict=True)
        for line in lines:
            try:
                text = line.decode(encoding)
                if '"' in text:
                    single.text = text
                    cells = next(reader)
                else:
                    cells = text.split(separator)
            except Exception:  # a line can be any bytes
                cells = defective
            yield cells if len(cells) == n_cells or n_cells is None else defective


def _lines(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a file, some megabytes at a time."""
    while block := file.read(_BLOCK):
        yield (block + file.readline()).removesuffix(b"\n").split(b"\n")


def _cells_of_json(line: bytes, names: list[str]) -> list[str | float | None]:
    try:
        values = json.loads(line)
        cells = [values.get(name) for name in names]
        cells = [cell.encode(errors="replace").decode() if isinstance(cell, str) else cell for cell in cells]
        return [cell if type(cell) in (str, int, float) else None for cell in cells]
    except Exception:  # a line can be any bytes
        return [None] * len(names)


class _SingleLine:
    """Ends after the line that is next, so that a reader never sees two."""

    text: str | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        text, self.text = self.text, None
        if text is None:
            raise StopIteration
        return text


def _is_date_format(text: str) -> bool:
    try:
        return datetime.strptime(_FIRST.strftime(text), text).date() == _FIRST.date()
    except ValueError:
        return False


def stated(options: argparse.Namespace) -> dict[str, object]:
    """The settings of a :class:`Reading` that the command line states."""
    values = {field.name: getattr(options, field.name) for field in fields(Reading)}
    values = {name: value for name, value in values.items() if value is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
