"""Names of encoded features: a function of public declarations, without two that are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["distinct", "names_of_columns"]


def distinct(names: Sequence[str], precise: Sequence[str]) -> list[str]:
    """The names, where they differ. A name that occurs several times gives way to its precise form, or else to a number.

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


def names_of_columns(columns: Iterable[tuple[object, object]]) -> list[str]:
    """Names of the features of columns: ``age`` for a number, ``age_missing`` behind it, ``job_nurse`` for a category.

    Columns are pairs of name and kind: see ``_column_kinds.py``.
    """
    names, precise = [], []
    for column, kind in columns:
        if kind.categories is None:
            names += [str(column), f"{column}_missing"][: kind.n_features]
            precise += [str(column), f"{column} is missing"][: kind.n_features]
        else:
            names += [f"{column}_{category}" for category in kind.categories]
            precise += [f"{column}={category!r}" for category in kind.categories]
    return distinct(names, precise)
