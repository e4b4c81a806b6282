"""Tables, folders of texts, and their columns, as commands name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from vips._files import refuse_endless

__all__ = [
    "as_columns",
    "as_labels",
    "as_numbers",
    "column_of",
    "read_features",
    "read_table",
    "read_texts",
]

_KINDS = ("number", "category", "date")


def read_table(path: str | Path, texts: Iterable[str | None] = ()):
    """A data frame from a Parquet or CSV file, whose missing values decide no dtype.

    Parameters
    ----------
    path : path
    texts : iterable of str
        Columns that are read from a CSV file as they are written there. What others are depends on all of their values.

    Raises
    ------
    ImportError
        Without pandas.
    ValueError
        If the file has another ending, is damaged, or is a device or a pipe. No cell is quoted.
    OSError
        If it cannot be opened.
    """
    pandas, path = _pandas(), Path(path)
    if not path.name.endswith((".parquet", ".csv", ".csv.gz")):
        raise ValueError(f"A table is a .parquet, .csv or .csv.gz file, not {path.name!r}.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    refuse_endless(path)
    try:
        if path.suffix == ".parquet":
            return pandas.read_parquet(path, dtype_backend="pyarrow")
        # in chunks, the number 5 would be another value than the text "5"
        return pandas.read_csv(path, dtype={name: str for name in texts if name is not None}, low_memory=False)
    except ImportError:
        raise
    except Exception as error:
        problem, is_of_system = type(error).__name__, isinstance(error, OSError) and error.errno is not None
        if is_of_system:
            raise
    # outside of `except`, so that the original error, which may quote a record, is not attached
    raise ValueError(
        f"{str(path)!r} cannot be read as a table ({problem}). A CSV file is in UTF-8, its first line holds the names of "
        "columns, and every other line has as many cells."
    )


def read_features(path: str | Path, declared: Sequence[str], texts: Iterable[str | None] = ()):
    """As :func:`read_table`, where every cell of a column that ``declared`` names is read by itself; see :func:`as_columns`."""
    kinds = {name: what for name, _, what in (declaration.partition("=") for declaration in declared)}
    named = [name for name, what in kinds.items() if what not in ("date", "drop")]
    frame = read_table(path, (*named, *texts))
    for name in named:
        is_number = (kinds[name] == "number" or ":" in kinds[name]) and name not in texts
        if is_number and name in frame and frame[name].dtype.kind == "O":
            frame[name] = as_numbers(frame[name])
    return frame


def as_numbers(cells: Iterable[object]) -> np.ndarray:
    """Parse each cell as a float; NaN if it is not a number."""
    return np.fromiter(map(_number, cells), np.float64)


def as_labels(cells, labels: Mapping[str, object]):
    """Labels of the cells of a column, by their names. Each cell is read by itself; 1.0 is 1.

    Parameters
    ----------
    cells : series
    labels : mapping of names to labels
        Labels are all texts, or all numbers.

    Returns
    -------
    series
        A cell with another name keeps its text, or is NaN where labels are numbers: a defective record.
    """
    texts, numbers = cells.astype(str).to_numpy(object), as_numbers(cells)
    named = any(isinstance(label, str) for label in labels.values())
    values = texts.copy() if named else np.full(len(texts), np.nan)
    for name, label in labels.items():
        values[(texts == name) | (numbers == _number(name))] = label
    return _pandas().Series(values, index=cells.index, name=cells.name)


def _number(cell: object) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def read_texts(path: str | Path, text: str | None = None, unit: str | None = None) -> tuple:
    """The .txt files of a folder, in the order of their names, or a column of a table.

    Parameters
    ----------
    path : path
    text : str
        Column of texts. A cell that holds none is an empty text.
    unit : str, optional
        Column of ids; "folder" for texts in folders, each of which holds those of one person.

    Returns
    -------
    texts : list of str
    groups : series of ids, or None
    frame : data frame
        What else is known of each text: other columns, or the name of its file.

    Raises
    ------
    ValueError
        If there is no such column, folder or file.
    """
    pandas, path = _pandas(), Path(path)
    if not path.is_dir():
        if text is None:
            raise ValueError(
                f"{str(path)!r} is not a folder of .txt files. For a table, --text names the column of texts."
            )
        frame = read_table(path, (text, unit))
        cells, groups = column_of(frame, text, "--text"), column_of(frame, unit, "--unit")
        return [cell if isinstance(cell, str) else "" for cell in cells], groups, frame.drop(columns=[text])
    if unit not in (None, "folder"):
        raise ValueError(
            "A folder has no columns: write --unit folder, and keep the texts of each person in a folder of their own."
        )
    paths = sorted(file for file in path.glob("*.txt" if unit is None else "*/**/*.txt") if file.is_file())
    if not paths:
        what = "no .txt file. For texts in folders, one for each person, write --unit folder"
        raise ValueError(f"The folder {str(path)!r} has {what if unit is None else 'no folder with a .txt file'}.")
    names = [file.relative_to(path) for file in paths]
    groups = None if unit is None else pandas.Series([name.parts[0] for name in names], name=unit)
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in paths]
    return texts, groups, pandas.DataFrame({"text": [name.as_posix() for name in names]})


def column_of(frame, name: str | None, option: str):
    """The column that an option of the command names; None without a name.

    Raises
    ------
    ValueError
        If there is none: a public fact. Columns that are there are not quoted: in a file without a line of names these are the
        cells of a person.
    """
    if name is not None and name not in frame.columns:
        raise ValueError(
            f"{option}: the table has no column {name!r}. The first line of a CSV file holds names of columns, and this one "
            "is not among them."
        )
    return None if name is None else frame[name]


def as_columns(frame, declared: Sequence[str]) -> dict:
    """What each column is, for :class:`~vips.preprocessing.TableEncoder`.

    Parameters
    ----------
    frame : DataFrame
        Its dtypes, which are taken as public, say what is not declared: numbers, dates, and categories for all others.
    declared : sequence of str
        ``NAME=number``, ``NAME=date``, ``NAME=category``, ``NAME=LOW:HIGH``, ``NAME=A,B,C`` or ``NAME=drop``.

    Raises
    ------
    ValueError
        If a declaration cannot be read, or names no column.
    """
    pandas, columns = _pandas(), {}
    for name in frame.columns:
        kind, types = frame[name].dtype, pandas.api.types
        if types.is_datetime64_any_dtype(kind):
            columns[name] = "date"
        else:
            is_number = types.is_numeric_dtype(kind) and not types.is_bool_dtype(kind)
            columns[name] = "number" if is_number else "category"
    for declaration in declared:
        name, equals, what = declaration.partition("=")
        if not equals or not what or name not in columns:
            raise ValueError(
                f"--column {declaration!r}: write NAME=number, NAME=date, NAME=category, NAME=LOW:HIGH, NAME=A,B,C or "
                "NAME=drop, with a column of the table, which the first line of a CSV file names."
            )
        if what == "drop":
            del columns[name]
        else:
            columns[name] = what if what in _KINDS else _declared(declaration, what)
    return columns


def _declared(declaration: str, what: str) -> tuple[float, float] | list[str]:
    low, colon, high = what.partition(":")
    if not colon:
        return what.split(",")
    try:
        return float(low), float(high)
    except ValueError:
        raise ValueError(f"--column {declaration!r}: the bounds must be numbers, as in age=0:110.") from None


def _pandas():
    try:
        import pandas
    except ImportError:
        raise ImportError("Tables need pandas: pip install 'vips[tables]'.") from None
    return pandas
