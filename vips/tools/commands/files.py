"""Tables, folders of texts, and their columns, as commands name them."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import chain
from pathlib import Path

import numpy as np

from vips._support.extras import imported
from vips._support.files import refuse_endless
from vips.core.mechanism.secret_bits import secret_bytes
from vips.core.records.groups import ids_and_numbers
from vips.core.records.source import FileStamp
from vips.data._cell_values import as_numbers, each_cell, is_missing, kind_of, one_form
from vips.data._columns import names_like
from vips.data._order import is_text_or_object, sortable
from vips.data._pieces import TableInPieces
from vips.data._regroup import hashes_of_ids
from vips.data._texts import text_of
from vips.tools.commands.reading import Reading

__all__ = [
    "Persons", "as_declared", "column_of", "declarations_of", "events_of", "in_order", "is_of_csv", "is_of_dates",
    "meaning_of", "places_of", "read_folder", "read_table", "read_texts", "sequences_of", "stated_of", "table_of", "texts_in",
]  # fmt: skip

_TABLES, _TEXTS = (".parquet", ".csv", ".csv.gz"), (".jsonl", ".jsonl.gz")
_NULL = "null[pyarrow]"  # a type of columns without a cell
_BATCH = 2**15  # rows of Parquet that are read together
_KINDS = ("number", "category", "date", "drop")


@dataclass(frozen=True)
class _Shard(FileStamp):
    """A file, which is another one if something took its place, whatever its size and time."""

    place: int = 0

    @classmethod
    def of(cls, path: str | os.PathLike) -> _Shard:
        stamp = FileStamp.of(path)
        return cls(**vars(stamp), place=os.stat(stamp.path).st_ino)


def table_of(path: str | Path, reading: Reading, names: Sequence[str] = ()) -> TableInPieces:
    """The table in a file, or in the shards of a folder in the order of their names, all of one kind and with the same columns.

    Cells of CSV are texts; the schemas of Parquet say their types, of which a cell that is missing may change some
    (:func:`_types_of`). With ``names``, the columns of JSON lines, it may be of these. A file that has another ending, is
    damaged, or is a device or a pipe raises ValueError, which quotes no cell.
    """
    imported("pandas", by="A table")
    shards = [_Shard.of(shard) for shard in _shards(Path(path), (*_TABLES, *(_TEXTS if names else ())))]
    heads = {shard.path: next(_frames(Path(shard.check()), reading, list(names))) for shard in shards}
    dtypes = _types_of(heads)

    def pieces() -> Iterator:
        yield heads[shards[0].path].astype(dtypes)
        for shard in shards:
            nothing = {name: dtypes[name] for name, dtype in heads[shard.path].dtypes.items() if dtype == _NULL}
            for piece in _frames(Path(shard.check()), reading, list(names)):  # in each pass the same rows
                if not piece.dtypes.equals(heads[shard.path].dtypes):  # of a damaged file
                    raise _other_columns(shard.path, shards[0].path)
                yield piece.astype(nothing) if nothing else piece
            shard.check()  # it has not changed while it was read, either

    return TableInPieces(pieces)


def _types_of(heads: Mapping) -> dict:
    """Types of the columns of all shards, from a frame of each without rows, by its path.

    A column of no cells in one shard has the type of the others; whole numbers beside other numbers, as they are written
    where one is missing, are numbers. ValueError for other differences.
    """
    (first, head), *others = heads.items()
    dtypes = dict(head.dtypes)
    for path, other in others:
        if not other.columns.equals(head.columns):
            raise _other_columns(path, first)
        for name, dtype in other.dtypes.items():
            if dtypes[name] == _NULL:
                dtypes[name] = dtype
            elif dtype not in (dtypes[name], _NULL):
                if {kind_of(dtype), kind_of(dtypes[name])} != {"number"}:
                    raise _other_columns(path, first)
                dtypes[name] = max(dtypes[name], dtype, key=lambda kept: kept.kind == "f")
    return dtypes


def _other_columns(path: str, first: str) -> ValueError:
    return ValueError(
        f"{path!r} cannot be read as a table with the columns of {first!r}: shards name the same columns in the same order, "
        "with the same types."
    )


def read_table(path: str | Path, reading: Reading):
    """The whole :func:`table_of` a file or folder, as a data frame."""
    table = table_of(path, reading)
    return table.loaded(table.columns)


def _shards(path: Path, endings: tuple[str, ...]) -> list[Path]:
    if not path.is_dir():
        if not path.name.endswith(endings):
            raise ValueError(f"A table is a {', '.join(endings)} file, or a folder of them, not {path.name!r}.")
        if not path.exists():
            raise FileNotFoundError(f"There is no file {str(path)!r}.")
        refuse_endless(path)
        return [path]
    shards = [file for file in sorted(path.iterdir()) if file.name.endswith(endings) and file.name[0] not in "._"]
    kinds = {ending for ending in endings for file in shards if file.name.removesuffix(".gz").endswith(ending)}
    if len(kinds) != 1:
        what = f"files of several kinds, {' and '.join(sorted(kinds))}" if kinds else f"none of {', '.join(endings)}"
        raise ValueError(f"The folder {str(path)!r} has {what}: the shards of a table are files of one kind.")
    for file in shards:
        refuse_endless(file)
    return shards


def is_of_csv(path: str) -> bool:
    """Whether a table has lines of CSV for its rows."""
    return any(name.endswith((".csv", ".csv.gz")) for name in (os.listdir(path) if os.path.isdir(path) else [path]))


def _frames(path: Path, reading: Reading, names: list[str]) -> Iterator:
    """Data frames of a file, one after the other; the first one has no rows."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    try:
        if kind == "parquet":
            from pandas import ArrowDtype
            from pyarrow.parquet import ParquetFile

            with ParquetFile(path) as file:
                for batch in chain([file.schema_arrow.empty_table()], file.iter_batches(_BATCH)):
                    yield _plain(batch).to_pandas(types_mapper=ArrowDtype).reset_index(drop=True)
        else:
            with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
                yield from reading.tables(file) if kind == "csv" else reading.texts(file, names)
        return
    except ImportError:
        raise
    except Exception as error:
        problem, is_of_system = type(error).__name__, isinstance(error, OSError) and error.errno is not None
        if is_of_system or (kind != "parquet" and isinstance(error, ValueError)):  # of the line of names
            raise
    # outside of `except`, so that the original error, which may quote a record, is not attached
    raise ValueError(f"{str(path)!r} cannot be read as a table ({problem}).")


def _plain(batch):
    """The batch with values in place of dictionaries, whose type depends on how many different cells a file has."""
    from pyarrow import Table, types

    schema, columns = batch.schema, list(batch.columns)
    for i, field in enumerate(schema):
        if types.is_dictionary(field.type):
            schema = schema.set(i, field.with_type(field.type.value_type))
            columns[i] = columns[i].cast(field.type.value_type)
    return Table.from_arrays(columns, schema=schema)


def texts_in(cells) -> list[str]:
    """The texts of a column; a cell without text becomes an empty text."""
    return [cell if isinstance(cell, str) else "" for cell in each_cell(cells)]


def read_texts(path: str | Path, reading: Reading, text: str | None = None, unit: str | None = None) -> tuple:
    """Texts, and ids of persons or None.

    The texts are the .txt files of a folder, in the order of their names, or the column ``text`` of a table or of JSON lines.
    Ids are the column ``unit``, or the folders in the folder if that is "folder".
    """
    path = Path(path)
    if text is not None:
        table = table_of(path, reading, columns := [name for name in (text, unit) if name is not None])
        column_of(table.head, text, "--text")
        column_of(table.head, unit, "--unit")
        frame = table.loaded(dict.fromkeys(columns), unit)
        return texts_in(frame[text]), None if unit is None else frame[unit]
    if not path.is_dir():
        raise ValueError(
            f"{str(path)!r} is not a folder of .txt files. For a table or JSON lines, --text names the column of texts."
        )
    if unit not in (None, "folder"):
        raise ValueError(
            "A folder has no columns: write --unit folder, and keep the texts of each person in a folder of their own."
        )
    texts, frame = read_folder(path, reading, "*" if unit is None else "*/**/*")
    if not texts:
        what = "no .txt file. For texts in folders, one for each person, write --unit folder"
        raise ValueError(f"The folder {str(path)!r} has {what if unit is None else 'no folder with a .txt file'}.")
    return texts, None if unit is None else frame["text"].str.partition("/")[0].rename(unit)


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


class Persons:
    """Numbers of persons from pieces of a column of ids, kept as keyed hashes of 128 bits.

    Guarantees: rows have one number if and only if they have one id, but with probability below n²/2¹²⁹ for n ids.
    """

    def __init__(self) -> None:
        self._key, self._hashes = secret_bytes(32), [np.zeros((0, 2), np.uint64)]

    def add(self, ids) -> None:
        """The next rows."""
        different, numbers = ids_and_numbers(ids, len(ids))
        nobody = np.zeros((1, 2), np.uint64)  # in the place -1
        self._hashes.append(np.vstack([hashes_of_ids(different, self._key), nobody])[numbers])

    def numbers(self) -> np.ndarray:
        """The number of each row's person, -1 for a row of nobody."""
        hashes = np.concatenate(self._hashes)
        order = np.lexsort(hashes.T)
        numbers, sorted_hashes = np.zeros(len(hashes), np.int64), hashes[order]
        numbers[order[1:]] = (sorted_hashes[1:] != sorted_hashes[:-1]).any(axis=1).cumsum()
        numbers[~hashes.any(axis=1)] = -1
        return numbers


def events_of(path: str, needs: dict, reading: Reading):
    """A data frame of the columns of persons, events and order."""
    table, names = table_of(path, reading), ("unit", "event", "order")
    for name in names:
        column_of(table.head, needs[name], f"--{name}")
    if len({needs[name] for name in names}) < 3:
        raise ValueError("--unit, --event and --order name three different columns.")
    return table.loaded((name for name in table.columns if name in [needs[name] for name in names]), needs["unit"])


def sequences_of(table, needs: dict, reading: Reading) -> tuple:
    """Pathways, and the rows of the table in their order."""
    from vips.data._sequences import Sequences

    rows = in_order(table[needs["order"]], reading)
    codes = places_of(table[needs["event"]], needs["catalogue"], reading)
    # names of our own, whatever those of the table are
    coded = {"unit": table[needs["unit"]].array, "code": codes, "row": np.arange(len(table))}
    coded = imported("pandas", by="A table").DataFrame(coded).iloc[rows]
    both = Sequences.from_frame(coded, by="unit", columns=["code", "row"])
    return Sequences(both.values[:, 0], both.offsets), both.values[:, 1].astype(np.int64)
