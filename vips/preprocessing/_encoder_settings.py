"""Settings of a private encoder, checked against public facts: names and dtypes of columns. No value is read."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from vips._printable import shortened
from vips._validation import check_number
from vips.data import TextSource, as_source
from vips.data._cell_values import kind_of
from vips.data._columns import column, columns_of, is_frame
from vips.data._groups import check_groups_of_source, group_numbers, name_of
from vips.preprocessing._table import TableEncoder, check_columns
from vips.privacy import PrivacyBudget, PrivacyPlan
from vips.privacy.budget import GAUSSIAN_SHARE, plan_of_one_release
from vips.privacy.ledger.charge import delta_for_threshold
from vips.privacy.ledger.ledger import PrivacyLedger
from vips.privacy.units import unit_of_group

__all__ = [
    "LEARNT_KINDS",
    "check_quantiles",
    "checked_delta",
    "checked_plan",
    "column_kinds",
    "declared_as",
    "grouped_texts",
    "persons_of",
    "unit_of_persons",
    "unit_of_source",
]

LEARNT_KINDS = ("number", "date", "category", "missing")


def column_kinds(columns: Mapping | None, X) -> dict[object, str]:
    """How each column of the features is treated: "declared", "number", "date", "category", or "missing" for declared bounds of
    a column that may hold missing values, whose number is learnt. Reads no value.

    Raises
    ------
    TypeError, ValueError
        From ``columns``, the container, and names and dtypes of its columns.
    """
    if not is_frame(X) or as_source(X) is not None:
        raise TypeError(
            f"PrivateTableEncoder needs a pandas data frame in memory, got {type(X).__name__}: columns have "
            "names and dtypes there, which are public."
        )
    if columns is None:
        kinds = dict.fromkeys(X.columns)
    elif isinstance(columns, Mapping) and columns:
        kinds = {name: _stated_kind(name, declaration) for name, declaration in columns.items()}
    else:
        raise TypeError(f"`columns` must be None or a mapping of column names, got {columns!r}.")
    if not kinds:
        raise ValueError("X has no columns.")
    columns_of(X, kinds)
    for name, kind in kinds.items():
        dtype = column(X, name).dtype
        by_dtype = kind_of(dtype)
        if kind == "number" and by_dtype == "date":
            raise TypeError(f'Column {name!r} is to be a number, but its dtype is {dtype}: write "date".')
        if kind == "date" and by_dtype in ("number", "flag"):
            raise TypeError(f'Column {name!r} is to be a date, but its dtype is {dtype}: write "number".')
        if by_dtype is None:
            raise TypeError(f"Column {name!r} has dtype {dtype}: convert it to numbers, strings or dates first.")
        kinds[name] = kind or ("declared" if by_dtype == "flag" else by_dtype)
        if kind == "declared" and isinstance(columns[name], tuple) and _may_be_missing(dtype):
            kinds[name] = "missing"
    declared = {name: declared_as(columns, name) for name, kind in kinds.items() if kind in ("declared", "missing")}
    if all(kind == "declared" for kind in kinds.values()):
        raise ValueError(
            "Nothing is to be learnt: every column is declared, or boolean. Use TableEncoder, which costs nothing."
        )
    if declared:  # bounds and lists; a date's or nullable number's values are converted by the encoder itself
        TableEncoder(declared).in_column_units()
        known = {name: declaration for name, declaration in declared.items() if kinds[name] == "declared"}
        if known:
            check_columns(known, X)
    return kinds


def checked_plan(privacy: object, n_learnt: int) -> PrivacyPlan:
    """The plan with its clip norm, after checks; of a budget, the one release that spends it."""
    quoted = {"report_delta": GAUSSIAN_SHARE * privacy.delta} if isinstance(privacy, PrivacyBudget) else {}
    plan = plan_of_one_release(privacy, "An encoder", math.sqrt(n_learnt), **quoted)
    if plan.noise != "gaussian":
        raise ValueError('An encoder has Gaussian noise in double precision: leave noise="discrete" out.')
    return plan


def check_quantiles(quantiles: tuple[float, float]) -> None:
    """Raise ValueError unless these are a low and a high share."""
    low, high = quantiles
    check_number("quantiles[0]", low, 0.0, 0.5, "in [0, 0.5)", open_high=True)
    check_number("quantiles[1]", high, 0.5, 1.0, "in (0.5, 1]", open_low=True)


def checked_delta(
    threshold_delta: float | None, kinds: Mapping, privacy: PrivacyBudget | PrivacyPlan, ledger: PrivacyLedger | None
) -> float:
    """δ of the threshold, as stated or as a budget and the ledger have it; 0 where no categories are learnt."""
    names = [repr(name) for name, kind in kinds.items() if kind == "category"]
    if names and threshold_delta is None and isinstance(privacy, PrivacyBudget):
        threshold_delta = delta_for_threshold(privacy.delta_0, ledger)
    if threshold_delta is not None:
        check_number("threshold_delta", threshold_delta, 1e-100, 0.1, "between 1e-100 and 0.1")
    elif names:
        raise ValueError(
            f"The categories of {shortened(names)} are to be learnt: write `threshold_delta`, e.g. a tenth of the δ of the "
            "plan, or declare the categories as a list."
        )
    return float(threshold_delta) if names else 0.0


def persons_of(groups: object, n_rows: int, plan: PrivacyPlan, unit: str) -> tuple[np.ndarray | None, str]:
    """Number of each row's person, None if every row is a record; and the unit in words, ``unit`` for rows."""
    if groups is None:
        _check_that_rows_are_records(plan)
        return None, unit
    return group_numbers(groups, n_rows), unit_of_persons(groups)


def _check_that_rows_are_records(plan: PrivacyPlan) -> None:
    if plan.max_rows_per_group is not None:
        raise ValueError("`max_rows_per_group` bounds the rows of a person: pass the persons' ids as `groups` to fit.")


def grouped_texts(source: TextSource, groups: object) -> TextSource:
    """The same documents, where all of one person are one record.

    Raises
    ------
    TypeError, ValueError
        If ``groups`` are given, and the source cannot promise that all documents of a person are in one partition.
    """
    if groups is None:
        return source
    check_groups_of_source(source, groups)
    return source.grouped(group_numbers(groups, source.n_rows), name_of(groups))


def unit_of_source(source: TextSource, plan: PrivacyPlan, unit: str) -> str:
    """The unit of a fit to a source in words, ``unit`` for rows."""
    if not source.has_groups:
        _check_that_rows_are_records(plan)
        return unit
    return unit_of_group(source.group_name or "group")


def unit_of_persons(groups: object) -> str:
    """The unit of a fit with these ids, in words."""
    return unit_of_group(name_of(groups) or "group")


def _may_be_missing(dtype) -> bool:
    """Whether a column of numbers or dates of this dtype can hold missing values."""
    return not (isinstance(dtype, np.dtype) and dtype.kind in "iub")


def _stated_kind(name, stated) -> str:
    if isinstance(stated, tuple | list):
        return "declared"
    if stated in LEARNT_KINDS[:3]:
        return stated
    raise TypeError(
        f"Column {name!r} is declared as {stated!r}: write (low, high) or a list to declare it, or one of {LEARNT_KINDS[:3]} "
        "to learn its bounds or categories."
    )


def declared_as(columns: Mapping | None, name) -> tuple | list:
    """The declaration of a column; of a boolean one that is not named, both values."""
    return [False, True] if columns is None else columns[name]
