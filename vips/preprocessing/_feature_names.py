"""Names of encoded features: a function of public declarations, without two that are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["distinct", "names_of_columns"]


def distinct(names: Sequence[str], precise: Sequence[str]) -> list[str]:
    """The names, where they differ. A name that occurs several times gives way to its precise form, or else to a number.

    Parameters
    ----------
    names, precise : sequences of str
        Two forms of the same names.

    Examples
    --------
    >>> distinct(["job_b_c", "job_b_c", "age"], ["job='b_c'", "job_b='c'", "age"])
    ["job='b_c'", "job_b='c'", 'age']
    """
    counts = Counter(names)
    wanted = [full if counts[name] > 1 else name for name, full in zip(names, precise, strict=True)]
    taken, result = set(), []
    for name in wanted:
        number, candidate = 2, name
        while candidate in taken or (number > 2 and candidate in wanted):
            candidate, number = f"{name} ({number})", number + 1
        taken.add(candidate)
        result.append(candidate)
    return result


def names_of_columns(columns: Sequence[tuple[object, Sequence | None]], missing: Sequence = ()) -> list[str]:
    """Names of the features of columns: ``age`` for a number, ``job_nurse`` for a category, ``age_missing`` for an indicator.

    Parameters
    ----------
    columns : sequence of pairs
        Name and categories; None for a number.
    missing : sequence
        Columns that have an indicator of missing values; these come last.
    """
    names, precise = [], []
    for column, categories in columns:
        names += [str(column)] if categories is None else [f"{column}_{category}" for category in categories]
        precise += [str(column)] if categories is None else [f"{column}={category!r}" for category in categories]
    names += [f"{column}_missing" for column in missing]
    precise += [f"{column} is missing" for column in missing]
    return distinct(names, precise)
