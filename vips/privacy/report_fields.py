"""The fields of a privacy report as JSON. Reading checks each of them, because the file may come from anywhere."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import NoneType

from vips.privacy.plan import PrivacyPlan

__all__ = ["checked_fields", "plan_fields", "saved_fields"]

LONGEST_TEXT, LONGEST_LIST = 100_000, 10_000  # characters, items
LARGEST_INTEGER = 2**53  # larger ones are not exact as floats
_LEDGER = ("dataset", "run", "charged_steps")
# Allowed types, by the annotation of a plan's field.
_TYPES: dict[str, tuple[type, ...]] = {
    "float": (float, int),
    "float | None": (float, int, NoneType),
    "int": (int,),
    "int | None": (int, NoneType),
    "str": (str,),
    "bool": (bool,),
}


def plan_fields(plan: PrivacyPlan) -> dict:
    """The fields by which plans are compared."""
    return {name: getattr(plan, name) for name in _annotations()}


def saved_fields(report) -> dict:
    """The fields of a report, ready for JSON; inverse of :func:`checked_fields`.

    Raises
    ------
    TypeError
        If the plan is of a subclass, which could not be restored.
    ValueError
        If a field is not what :func:`checked_fields` reads.
    """
    if type(report.plan) is not PrivacyPlan:
        raise TypeError(f"A {type(report.plan).__name__} cannot be saved: only a PrivacyPlan itself can be read back.")
    values = {field.name: getattr(report, field.name) for field in fields(report)} | {"plan": plan_fields(report.plan)}
    checked_fields(values)
    return values


def checked_fields(values: object) -> dict:
    """Arguments for the constructor of a privacy report.

    Parameters
    ----------
    values : object
        The parsed JSON of a saved report.

    Raises
    ------
    ValueError
        If ``values`` is not a dict with exactly the fields of a report, or a field has the wrong type, is too long or out of
        range.
    """
    _check_names("a privacy report", values, _READERS)
    return {name: read(name, values[name]) for name, read in _READERS.items()}


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise _error(name, f"a string of at most {LONGEST_TEXT:,} characters", value)
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > LONGEST_LIST:
        raise _error(name, f"a list of at most {LONGEST_LIST:,} strings", value)
    return tuple(_text(f"{name}[{place}]", item) for place, item in enumerate(value))


def _on_invalid(name: str, value: object) -> str:
    if value not in ("drop", "raise"):
        raise _error(name, '"drop" or "raise"', value)
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _error(name, "true or false", value)
    return value


def _count(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_INTEGER:
        raise _error(name, "an integer ≥ 0", value)
    return value


def _versions(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > LONGEST_LIST:
        raise _error(name, f"an object of at most {LONGEST_LIST:,} strings", value)
    return {_text(f"a name in {name}", key): _text(f"a value in {name}", item) for key, item in value.items()}


def _ledger(name: str, value: object) -> dict | None:
    if value is None:
        return None
    _check_names(f"`{name}` of a privacy report", value, _LEDGER)
    steps = value["charged_steps"]
    if type(steps) is not int or not 1 <= steps <= LARGEST_INTEGER:
        raise _error(f"{name}.charged_steps", "an integer ≥ 1", steps)
    return {key: _text(f"{name}.{key}", value[key]) for key in ("dataset", "run")} | {"charged_steps": steps}


def _search(name: str, value: object) -> dict | None:
    if value is None:
        return None
    _check_names(f"`{name}` of a privacy report", value, ("epsilon", "delta"))
    for field, high in (("epsilon", math.inf), ("delta", 1.0)):
        number = value[field]
        if type(number) not in (float, int) or not 0.0 < number < high:
            raise _error(f"{name}.{field}", f"a number above 0 and below {high:g}", number)
    return {field: float(value[field]) for field in ("epsilon", "delta")}


def _plan(name: str, value: object) -> PrivacyPlan:
    annotations = _annotations()
    _check_names(f"`{name}` of a privacy report", value, annotations)
    for field, annotation in annotations.items():
        _check_type(f"{name}.{field}", annotation, value[field])
    try:
        return PrivacyPlan(**value)
    except ValueError as error:
        raise ValueError(f"`{name}` of a privacy report is not a plan: {error}") from error


def _check_type(name: str, annotation: str, value: object) -> None:
    allowed = _TYPES[annotation]
    is_other = isinstance(value, bool) and bool not in allowed  # a bool is an int to isinstance
    if is_other or not isinstance(value, allowed):
        raise _error(name, f"of type {annotation}", value)
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise _error(name, f"at most {LARGEST_INTEGER:,}", value)


def _annotations() -> dict[str, str]:
    return {field.name: field.type for field in fields(PrivacyPlan) if field.compare}


def _check_names(what: str, value: object, names) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what[0].upper()}{what[1:]} must be an object with names, got {reprlib.repr(value)}.")
    unknown, missing = [key for key in value if key not in names], [key for key in names if key not in value]
    if unknown:
        raise ValueError(f"{what[0].upper()}{what[1:]} has no fields {reprlib.repr(unknown)}.")
    if missing:
        raise ValueError(f"{what[0].upper()}{what[1:]} lacks the fields {reprlib.repr(missing)}.")


def _error(name: str, allowed: str, value: object) -> ValueError:
    return ValueError(f"`{name}` of a privacy report must be {allowed}, got {reprlib.repr(value)}.")


_READERS: dict[str, Callable[[str, object], object]] = {
    "plan": _plan,
    "unit": _text,
    "released": _texts,
    "declared_public": _texts,
    "on_invalid": _on_invalid,
    "ledger": _ledger,
    "repeated_steps": _count,
    "only_noise": _flag,
    "search": _search,
    "preprocessing": _text,
    "tuning": _text,
    "not_covered": _texts,
    "versions": _versions,
}
