"""What one record is, in words."""

from __future__ import annotations

import re

__all__ = ["each_of", "is_group", "is_same_unit", "noun_of", "unit_of_group"]

_OF_GROUP = "all rows of one "
# Of patient_id, "patient number", patientID.
_ENDING = re.compile(r"([\s_.-]+([Ii][Dd]s?|key|number|nr)|(?<=[a-z])I[Dd]s?)$")
_ROWS = "one row"  # how models call a record of a table
_NO_NAMES = ("", "group", "groups", "id")
_ONE = re.compile(r"one ([a-z]+)( .*)?")


def unit_of_group(name: str) -> str:
    """The unit of a fit with groups. A ledger whose unit is the group's name accepts it."""
    return f"{_OF_GROUP}{name}"


def is_group(unit: str | None) -> bool:
    """Whether a unit is that of a fit with groups."""
    return unit is not None and unit.startswith(_OF_GROUP)


def is_same_unit(unit: str, counted: str) -> bool:
    """Whether a fit that protects ``unit`` protects what a ledger counts by: the same words, a column named like it, or ids
    without a name.

    Examples
    --------
    >>> is_same_unit(unit_of_group("patient_id"), "one patient"), is_same_unit(unit_of_group("group"), "patient")
    (True, True)
    >>> is_same_unit(unit_of_group("visit_id"), "patient"), is_same_unit("one row of X", "patient")
    (False, False)
    >>> is_same_unit(unit_of_group("group"), "one row of X")
    False
    """
    if unit == counted:
        return True
    if not is_group(unit):
        return False
    if unit.removeprefix(_OF_GROUP).lower() in _NO_NAMES:
        return not counted.startswith(_ROWS)
    of_ledger = unit_of_group(counted.removeprefix(_OF_GROUP).removeprefix("one "))
    return noun_of(unit).lower() == noun_of(of_ledger).lower()


def noun_of(unit: str) -> str:
    """One record in a word: what the ids of a fit with groups are of, or what a model calls a record.

    Examples
    --------
    >>> noun_of(unit_of_group("patient_id")), noun_of(unit_of_group("group")), noun_of("one row of X"), noun_of("votes")
    ('patient', 'person', 'row', 'record')
    """
    if not is_group(unit):
        one = _ONE.fullmatch(unit)
        return one[1] if one else "record"
    name = unit.removeprefix(_OF_GROUP)
    name = re.sub(r"[\s_]+", " ", _ENDING.sub("", name)).strip()
    return "person" if name.lower() in _NO_NAMES else name


def each_of(unit: str) -> str:
    """The unit for a page that people read who know no code.

    Examples
    --------
    >>> each_of(unit_of_group("patient_id")), each_of("one row of X with its label"), each_of("votes")
    ('each patient, with all of their rows', 'each row of the table with its label', 'each record: votes')
    """
    if is_group(unit):
        return f"each {noun_of(unit)}, with all of their rows"
    one = _ONE.fullmatch(unit)
    return f"each {unit.removeprefix('one ').replace(' of X', ' of the table')}" if one else f"each record: {unit}"
