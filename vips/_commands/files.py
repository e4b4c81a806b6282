"""Tables, folders of texts, and their columns, as commands name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["as_columns", "read_table", "read_texts", "write_table"]

_KINDS = ("number", "category", "date")


def read_table(path: str | Path):
    """A data frame from a Parquet or CSV file.

    Raises
    ------
    ImportError
        Without pandas.
    ValueError
        If the file has another ending.
    OSError
        If it cannot be read.
    """
    pandas, path = _pandas(), Path(path)
    if path.suffix == ".parquet":
        return pandas.read_parquet(path)
    if path.name.endswith((".csv", ".csv.gz")):
        return pandas.read_csv(path)
    raise ValueError(f"A table is a .parquet, .csv or .csv.gz file, not {path.name!r}.")


def read_texts(folder: str | Path) -> list[str]:
    """The .txt files of a folder, in the order of their names.

    Raises
    ------
    ValueError
        If it is no folder, or has no .txt file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is no folder: texts are the .txt files of one.")
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise ValueError(f"The folder {str(folder)!r} has no .txt file.")
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths]


def write_table(frame, path: str | Path) -> None:
    """As Parquet, or as CSV where the name ends so."""
    path = Path(path)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)


def as_columns(frame, declared: Sequence[str]) -> dict:
    """What each column is, for :class:`~vips.preprocessing.PrivateTableEncoder`.

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
    pandas, found = _pandas(), {}
    for name in frame.columns:
        kind, types = frame[name].dtype, pandas.api.types
        if types.is_datetime64_any_dtype(kind):
            found[name] = "date"
        else:
            is_number = types.is_numeric_dtype(kind) and not types.is_bool_dtype(kind)
            found[name] = "number" if is_number else "category"
    for each in declared:
        name, equals, what = each.partition("=")
        if not equals or not what or name not in found:
            raise ValueError(
                f"--column {each!r}: write NAME=number, NAME=date, NAME=category, NAME=LOW:HIGH, NAME=A,B,C or NAME=drop, "
                f"with a column of the table: {', '.join(map(str, found))}."
            )
        if what == "drop":
            del found[name]
        else:
            found[name] = what if what in _KINDS else _declared(each, what)
    return found


def _declared(each: str, what: str) -> tuple[float, float] | list[str]:
    low, colon, high = what.partition(":")
    if not colon:
        return what.split(",")
    try:
        return float(low), float(high)
    except ValueError:
        raise ValueError(f"--column {each!r}: the bounds must be numbers, as in age=0:110.") from None


def _pandas():
    try:
        import pandas
    except ImportError:
        raise ImportError("Tables need pandas: pip install 'vips[tables]'.") from None
    return pandas
