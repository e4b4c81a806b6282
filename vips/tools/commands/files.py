"""Tables, folders of texts, and their columns, as commands name them."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path

import numpy as np

from vips._support.extras import imported
from vips._support.files import refuse_endless
from vips.data._cell_values import as_numbers, each_cell, is_missing, kind_of, one_form
from vips.data._columns import names_like
from vips.data._order import is_text_or_object, sortable
from vips.data._texts import text_of
from vips.tools.commands.reading import Reading

__all__ = [
    "as_declared", "column_of", "declarations_of", "in_order", "is_of_dates", "meaning_of", "named", "places_of", "read_folder",
    "read_table", "read_texts", "stated_of",
]  # fmt: skip

_KINDS = ("number", "category", "date", "drop")


def read_table(path: str | Path, reading: Reading):
    """A data frame from a Parquet file, whose types its schema says, or from a CSV file, whose cells are texts.

    A file that has another ending, is damaged, or is a device or a pipe raises ValueError, which quotes no cell.
    """
    pandas, path = imported("pandas", by="A table"), Path(path)
    if not path.name.endswith((".parquet", ".csv", ".csv.gz")):
        raise ValueError(f"A table is a .parquet, .csv or .csv.gz file, not {path.name!r}.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    refuse_endless(path)
    try:
        if path.suffix == ".parquet":
            return pandas.read_parquet(path, dtype_backend="pyarrow")
        file = path.read_bytes()
        file = gzip.decompress(file) if path.suffix == ".gz" else file
    except ImportError:
        raise
    except Exception as error:
        problem, is_of_system = type(error).__name__, isinstance(error, OSError) and error.errno is not None
        if is_of_system:
            raise
    else:
        return reading.table(file)
    # outside of `except`, so that the original error, which may quote a record, is not attached
    raise ValueError(f"{str(path)!r} cannot be read as a table ({problem}).")


def read_texts(path: str | Path, reading: Reading, text: str | None = None, unit: str | None = None) -> tuple:
    """Texts, ids of persons or None, and a data frame of what else is known: other columns, or the name of each file.

    The texts are the .txt files of a folder, in the order of their names, or the column ``text`` of a table, where a cell that
    holds none is empty. Ids are the column ``unit``, or the folders in the folder if that is "folder".
    """
    path = Path(path)
    if not path.is_dir():
        if text is None:
            raise ValueError(
                f"{str(path)!r} is not a folder of .txt files. For a table, --text names the column of texts."
            )
        frame = read_table(path, reading)
        cells, groups = column_of(frame, text, "--text"), column_of(frame, unit, "--unit")
        return [cell if isinstance(cell, str) else "" for cell in each_cell(cells)], groups, frame.drop(columns=[text])
    if unit not in (None, "folder"):
        raise ValueError(
            "A folder has no columns: write --unit folder, and keep the texts of each person in a folder of their own."
        )
    texts, frame = read_folder(path, reading, "*" if unit is None else "*/**/*")
    if not texts:
        what = "no .txt file. For texts in folders, one for each person, write --unit folder"
        raise ValueError(f"The folder {str(path)!r} has {what if unit is None else 'no folder with a .txt file'}.")
    groups = None if unit is None else frame["text"].str.partition("/")[0].rename(unit)
    return texts, groups, frame


def read_folder(path: Path, reading: Reading, pattern: str) -> tuple:
    """The .txt files of a folder, in the order of their names: their texts, and a data frame of the names."""
    paths = sorted(file for file in path.glob(pattern) if file.suffix.lower() == ".txt" and file.is_file())
    texts = [text_of(file.read_bytes(), reading.encoding) for file in paths]
    names = [file.relative_to(path).as_posix() for file in paths]
    return texts, imported("pandas", by="A table").DataFrame({"text": names}, dtype=object)


def column_of(frame, name: str | None, option: str):
    """The column that an option of the command names; None without a name. That there is none is a public fact.

    The error quotes no columns that are there: in a file without a line of names these are the cells of a person.
    """
    if name is not None and name not in frame.columns:
        raise ValueError(
            f"{option}: the table has no column {name!r}. The first line of a CSV file holds names of columns, and this one "
            f"is not among them. --separator and --encoding say how they are written.{names_like(name, frame.columns)}"
        )
    return None if name is None else frame[name]


def declarations_of(
    frame, declared: Sequence[str], reading: Reading, names: Sequence[str] | None = None
) -> dict[str, str]:
    """What each column is, as in ``--column NAME=WHAT``, by its name; those to drop are left out.

    ``names`` are those of the first line, if the frame has not all of them.

    The types of the frame, which are public, say what is not declared: numbers, dates, and categories for all others. A CSV
    file has none: there each column is to be declared. Declarations are ``NAME=number``, ``NAME=date``, ``NAME=category``,
    ``NAME=LOW:HIGH`` of numbers or ISO dates, perhaps with ``,(missing)`` behind them, ``NAME=A,B,C`` or ``NAME=drop``.
    """
    stated = stated_of(frame, declared, reading)
    columns = {name: stated.get(name) or _kind_of_type(frame[name].dtype) for name in frame.columns}
    names = list(columns if names is None else names)
    unknown = [str(1 + names.index(name)) for name, what in columns.items() if what is None]
    if unknown:  # not by their names: in a file without a line of names these are cells
        raise ValueError(
            "A CSV file does not say what its columns are: write --column NAME=WHAT for each but --target and --unit, or "
            f"NAME=drop. It is missing for number {', '.join(unknown)} in the order of the first line."
        )
    return {name: what for name, what in columns.items() if what != "drop"}


def stated_of(frame, declared: Sequence[str], reading: Reading) -> dict[str, str]:
    """As :func:`declarations_of`, but only what is declared, columns to drop included."""
    stated = {}
    for declaration in declared:
        name, equals, what = declaration.partition("=")
        if not equals or not what or name not in frame.columns:
            raise ValueError(
                f"--column {declaration!r}: write NAME=number, NAME=date, NAME=category, NAME=LOW:HIGH, NAME=A,B,C or "
                "NAME=drop, with a column of the table, which the first line of a CSV file names."
                f"{names_like(name, frame.columns)}"
            )
        meaning = meaning_of(name, what)
        if is_of_dates(meaning) and is_text_or_object(frame[name].dtype) and not reading.date_formats:
            raise ValueError(
                f"--column {declaration!r}: the column holds texts. --date-format says how its dates are written, as in "
                "--date-format %d.%m.%Y or %Y-%m-%d"
            )
        stated[name] = what
    return stated


def _kind_of_type(dtype) -> str | None:
    """What a column of this type is if nothing is declared; None for one of CSV, which are objects."""
    by_type = {"number": "number", "date": "date", "flag": "False,True"}
    return None if isinstance(dtype, np.dtype) and dtype.kind == "O" else by_type.get(kind_of(dtype), "category")


def meaning_of(name: str, what: str) -> str | tuple | list[str]:
    """What ``--column NAME=WHAT`` declares, as :class:`~vips.preprocessing.TableEncoder` takes it."""
    low, colon, high = what.partition(":")
    if what in _KINDS:
        return what
    if not colon:
        return what.split(",")
    high, *words = high.split(",")
    for bound in (float, date.fromisoformat) if words in ([], ["(missing)"]) else ():
        with suppress(ValueError):
            return bound(low), bound(high), *words
    raise ValueError(
        f"--column '{name}={what}': the bounds must be two numbers or two dates, as in age=0:110 or "
        "visit=2019-01-01:2021-12-31; behind them may stand ',(missing)', a feature of missing cells."
    )


def as_declared(frame, declared: Mapping[str, str], reading: Reading):
    """A data frame of the declared columns. Each text is read by itself, as what its column is."""
    columns = {name: _read(frame[name], meaning_of(name, what), reading) for name, what in declared.items()}
    return imported("pandas", by="A table").DataFrame(columns, index=frame.index)


def is_of_dates(meaning: str | tuple | list | None) -> bool:
    """Whether cells of such a column are dates."""
    return meaning == "date" or (isinstance(meaning, tuple) and isinstance(meaning[0], date))


def _read(cells, meaning: str | tuple | list, reading: Reading):
    if is_text_or_object(cells.dtype):
        if is_of_dates(meaning):
            return reading.dates(cells)
        return reading.numbers(cells) if meaning == "number" or isinstance(meaning, tuple) else cells
    is_number = kind_of(cells.dtype) in ("number", "flag")
    return named(cells, meaning, reading) if isinstance(meaning, list) and is_number else cells


def places_of(cells, names: Sequence[str], reading: Reading, *, by_number: bool = False) -> np.ndarray:
    """The place of each cell among names, as a float; NaN if it is none of them. Each cell is read by itself.

    Texts are the names themselves; with ``by_number`` 1.0 is 1, as it always is for cells that are numbers.
    """
    place = {one_form(name): float(i) for i, name in enumerate(names)}
    items, is_text = each_cell(cells), is_text_or_object(cells.dtype)
    places = np.fromiter((place.get(_text(item), np.nan) for item in items), np.float64, len(items))
    if by_number or not is_text:
        numbers = reading.numbers(items) if is_text else as_numbers(cells, "number")
        for number, i in zip(reading.numbers(names), place.values(), strict=True):
            places[np.isnan(places) & (numbers == number)] = i
    return places


def _text(item: object) -> str | None:
    return one_form(item) if isinstance(item, str) else None if is_missing(item) else str(item)


def named(cells, names: Sequence[str], reading: Reading, *, by_number: bool = False):
    """The cells as a series of objects: names, where :func:`places_of` finds them, or texts."""
    texts = np.array([*map(_text, each_cell(cells)), None], dtype=object)[:-1]
    places = places_of(cells, names, reading, by_number=by_number)
    for place, name in enumerate(names):
        texts[places == place] = name
    return imported("pandas", by="A table").Series(texts, index=cells.index, dtype=object)


def in_order(cells, reading: Reading) -> np.ndarray:
    """Rows by number or date; texts are numbers or ISO dates, or dates of a stated format. What is neither comes last."""
    if not is_text_or_object(cells.dtype):
        return np.lexsort(sortable(cells, len(cells))[0].T[::-1])
    days = as_numbers(reading.dates(cells), "date")
    return np.lexsort((days,) if reading.date_formats else (days, reading.numbers(cells)))
