"""What private encoders share: their settings, their privacy report, and their files.

Settings are checked against public facts: names and dtypes of columns. No value is read. Files hold arrays and JSON, without
pickle. What is read from a file is checked: it may be forged.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.printable import listed, shortened
from vips._support.validation import check_number
from vips.core.budget import GAUSSIAN_SHARE, PrivacyBudget, plan_of_one_release
from vips.core.ledger.ledger import PrivacyLedger, delta_for_threshold
from vips.core.plan import PrivacyPlan
from vips.core.records.groups import check_groups_of_source, group_numbers, name_of
from vips.core.units import unit_of_group
from vips.data._cell_values import kind_of
from vips.data._columns import column, columns_of, is_frame
from vips.data._texts import TextSource
from vips.persistence.archive import write_archive
from vips.persistence.settings import decode, encode
from vips.preprocessing._column_kinds import kind_of_column
from vips.report.report import PrivacyReport, Release
from vips.report.report_fields import as_bytes, fingerprint_of

__all__ = [
    "LEARNT_KINDS", "SavableEncoder", "checked_delta", "checked_plan", "column_kind", "column_kinds", "counted_cells",
    "grouped_texts", "names_to_json", "persons_of", "released_texts", "report_of_encoder", "restore_names",
    "saved_facts", "unit_of_persons", "unit_of_source",
]  # fmt: skip

LEARNT_KINDS = ("number", "date", "category")
_LONGEST_UNIT = 10_000  # characters


def column_kinds(columns: Mapping | Sequence | None, X) -> dict[object, str]:
    """How each column of the features is treated, by name or place: "declared", "number", "date" or "category". Reads no value.

    Errors are from ``columns``, the container, and names and dtypes of its columns.
    """
    if columns is None:
        columns = dict.fromkeys(X.columns if is_frame(X) else range(X.shape[1]))
    elif not isinstance(columns, Mapping | list) or not columns:
        raise TypeError(
            "`columns` must map column names to declarations, (low, high) or a list of categories, or be a list with one of "
            f"these per column, got {columns!r}."
        )
    named = columns if isinstance(columns, Mapping) else dict(enumerate(columns))
    if not named:
        raise ValueError("X has no columns.")
    keys = columns_of(X, columns)
    return {
        key: column_kind(repr(place), declared, getattr(column(X, place), "dtype", None), is_frame(X))
        for (key, declared), place in zip(named.items(), keys, strict=True)
    }


def column_kind(title: str, declared: object, dtype, in_frame: bool) -> str:
    """How a column of that dtype is treated: see :func:`column_kinds`."""
    by_dtype = kind_of(dtype)
    if isinstance(declared, tuple | list):
        kind_of_column(declared, title).check(dtype, title, f"X[{title}]" if in_frame else "X", in_frame)
        return "declared"
    if declared is not None and not (isinstance(declared, str) and declared in LEARNT_KINDS):
        raise TypeError(
            f"Column {title} is declared as {declared!r}: write (low, high) or a list to declare it, or one of {LEARNT_KINDS} "
            "to learn its bounds or categories."
        )
    if not in_frame:
        raise TypeError(
            f"To learn column {title}, TableEncoder needs a data frame, whose columns have names and dtypes."
        )
    if declared == "number" and by_dtype == "date":
        raise TypeError(f'Column {title} is to be a number, but its dtype is {dtype}: write "date".')
    if declared == "date" and by_dtype in ("number", "flag"):
        raise TypeError(f'Column {title} is to be a date, but its dtype is {dtype}: write "number".')
    if by_dtype is None:
        raise TypeError(f"Column {title} has dtype {dtype}: convert it to numbers, strings or dates first.")
    return declared or ("declared" if by_dtype == "flag" else by_dtype)


def checked_plan(privacy: object, n_learnt: int) -> PrivacyPlan:
    """The plan with its clip norm, after checks; of a budget, the one release that spends it."""
    quoted = {"report_delta": GAUSSIAN_SHARE * privacy.delta} if isinstance(privacy, PrivacyBudget) else {}
    plan = plan_of_one_release(privacy, "An encoder", math.sqrt(n_learnt), **quoted)
    if plan.noise != "gaussian":
        raise ValueError('An encoder has Gaussian noise in double precision: leave noise="discrete" out.')
    return plan


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


def persons_of(groups: object, n_rows: int, plan: PrivacyPlan | None, unit: str) -> tuple[np.ndarray | None, str]:
    """Number of each row's person, None if every row is a record; and the unit in words, ``unit`` for rows."""
    if groups is None:
        _check_that_rows_are_records(plan)
        return None, unit
    return group_numbers(groups, n_rows), unit_of_persons(groups)


def _check_that_rows_are_records(plan: PrivacyPlan | None) -> None:
    if plan is not None and plan.max_rows_per_group is not None:
        raise ValueError("`max_rows_per_group` bounds the rows of a person: pass the persons' ids as `groups` to fit.")


def grouped_texts(source: TextSource, groups: object) -> TextSource:
    """The same documents, where all of one person are one record; errors are those of :func:`check_groups_of_source`."""
    if groups is None:
        return source
    check_groups_of_source(source, groups)
    return source.grouped(group_numbers(groups, source.n_rows), name_of(groups))


def unit_of_source(source: TextSource, plan: PrivacyPlan, unit: str) -> str:
    """What one record of a source is, in words: ``unit`` if it is a row."""
    if not source.has_groups:
        _check_that_rows_are_records(plan)
        return unit
    return unit_of_group(source.group_name or "group")


def unit_of_persons(groups: object) -> str:
    """The unit of a fit with these ids, in words."""
    return unit_of_group(name_of(groups) or "group")


# -- report --------------------------------------------------------------------------------------------------------


def report_of_encoder(
    encoder: SavableEncoder,
    plan: PrivacyPlan,
    threshold_delta: float,
    unit: str,
    released: tuple[str, ...],
    declared: tuple[str, ...],
    mechanism: str,
    ledger: dict | None,
) -> PrivacyReport:
    """The report of one release by a fitted encoder; for further arguments see :class:`vips.privacy.Release`."""
    release = Release(
        what="encoder", plan=plan, released=released, declared=declared, mechanism=mechanism, threshold_delta=threshold_delta,
        ledger=ledger, sha256=fingerprint_of(lambda: {"learnt": as_bytes(encoder.learnt_to_json())}),
    )  # fmt: skip
    return PrivacyReport((release,), unit, preprocessing="not stated")


def saved_facts(
    values: object, plan: PrivacyPlan, threshold_delta: float, of_budget: bool
) -> tuple[float, str, dict | None]:
    """δ of the threshold, unit and ledger's entry of a saved report; ValueError unless its plan and threshold are those of the
    settings. For a budget, a ledger may have had less for the threshold."""
    report = PrivacyReport.from_json(values)
    delta = report.releases[0].threshold_delta
    is_stated = len(report.releases) == 1 and len(report.unit) <= _LONGEST_UNIT
    is_allowed = 0.0 < delta <= threshold_delta if of_budget and threshold_delta else delta == threshold_delta
    if not is_stated or report.plan != plan or not is_allowed:
        raise ValueError("its statement is not that of its settings")
    return delta, report.unit, report.ledger


def counted_cells(plan: PrivacyPlan, threshold_delta: float, columns: str = "all columns that are learnt") -> str:
    """How cells of columns were counted, in one sentence."""
    rare = f"; a category of one record alone is released with probability at most {threshold_delta:g}"
    return (
        f"noisy counts of the cells of {columns}, together of L2 norm {plan.clip_norm:.4g} for a record; "
        f"Gaussian noise of standard deviation {plan.noise_std():.4g} on each (noise multiplier "
        f"{plan.noise_multiplier:.4g}){rare if threshold_delta else ''}"
    )


def released_texts(kinds: Mapping, unread: Mapping) -> tuple[str, ...]:
    """What is learnt about columns of these kinds, of which noisy shares of cells could not be read."""
    names = {
        "bounds": [str(name) for name, kind in kinds.items() if kind in ("number", "date")],
        "categories": [str(name) for name, kind in kinds.items() if kind == "category"],
    }
    shares = [f"about {share:.0%} of {name}" for name, share in unread.items()]
    texts = (
        f"{what} of {len(columns)} column{'s' * (len(columns) > 1)} ({listed(columns)})"
        for what, columns in names.items()
        if columns
    )
    return *texts, *([f"how many cells could not be read ({listed(shares)})"] if shares else ())


# -- files ---------------------------------------------------------------------------------------------------------


class SavableEncoder:
    """Base of encoders that can be saved."""

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted encoder to a file of arrays and JSON, without pickle; ``vips.load`` reads it.

        Raises
        ------
        NotFittedError
        TypeError
            If a setting cannot be written as data, such as a function.
        """
        check_is_fitted(self)
        write_archive(path, "encoder", {"encoder": self.to_json() | self.fit_to_json()}, {})

    def to_json(self) -> dict:
        """Class and settings. Raises TypeError if a setting cannot be written as data."""
        parameters = {name: encode(value) for name, value in self.get_params(deep=False).items()}
        return {"class": type(self).__name__, "parameters": parameters}

    @classmethod
    def from_json(cls, values: dict) -> Self:
        """The fitted encoder that :meth:`to_json` and :meth:`fit_to_json` describe; an error if no fit makes it."""
        encoder = cls(**{name: decode(value) for name, value in values["parameters"].items()})
        encoder.restore_fit(values)
        return encoder

    def fit_to_json(self) -> dict:
        """What ``fit`` has set."""
        report = getattr(self, "privacy_", None)
        return self.learnt_to_json() | ({} if report is None else {"report": report.to_plain()})

    @abstractmethod
    def learnt_to_json(self) -> dict:
        """The same without the report."""

    @abstractmethod
    def restore_fit(self, values: dict) -> None:
        """Inverse of :meth:`fit_to_json`, checked against the settings."""


def names_to_json(encoder) -> dict:
    """Number and names of the columns that an encoder was fitted to."""
    names = encode(list(getattr(encoder, "feature_names_in_", [])))
    return {"n_features_in": encoder.n_features_in_, "names_in": names}


def restore_names(encoder, values: dict) -> None:
    """Inverse of :func:`names_to_json`."""
    names, encoder.n_features_in_ = decode(values["names_in"]), int(values["n_features_in"])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its names of columns are not strings")
    if names:  # of strings only, as in scikit-learn
        encoder.feature_names_in_ = np.array(names, dtype=object)
