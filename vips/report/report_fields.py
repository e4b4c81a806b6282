"""A privacy report as JSON, and the fingerprint of what was released, by which a page and a file are known to be of one fit.

Reading checks every field by its type, because the file may come from anywhere.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import get_args, get_origin, get_type_hints

import numpy as np

from vips.core.plan import PrivacyPlan

__all__ = ["as_bytes", "as_plain", "fingerprint", "fingerprint_of", "finite", "from_plain"]

LONGEST_TEXT, LONGEST_LIST = 1_000_000, 10_000  # characters, items
MOST_PARTS = 1_000  # releases of a report, and phases of a plan
LARGEST_INTEGER = 2**53  # larger ones are not exact as floats


def as_plain(value: object) -> object:
    """A report, a release or a plan as dicts, lists, texts and numbers; without the fields that ``repr`` leaves out."""
    if is_dataclass(value):
        kind = PrivacyPlan if isinstance(value, PrivacyPlan) else type(value)
        return {name: as_plain(getattr(value, name)) for name in _types(kind)}
    if isinstance(value, tuple):
        return [as_plain(item) for item in value]
    return value


def finite(value: object) -> object:
    """With None in place of numbers that are not finite, and lists in place of tuples: ready for JSON."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float):  # NumPy's, too
        return float(value) if math.isfinite(value) else None
    return value


def from_plain(kind: type, value: object, name: str = "a privacy report") -> object:
    """Inverse of :func:`as_plain`, for parsed JSON from anywhere: a dataclass, a tuple or dict of strings, a text or a number;
    or one of these or None. ValueError, which says the ``name``, if names are missing or unknown, or something has the wrong
    type, is too long or out of range."""
    if isinstance(kind, UnionType):
        (kind,) = {*get_args(kind)} - {NoneType}
        return None if value is None else from_plain(kind, value, name)
    if is_dataclass(kind):
        return _object(kind, value, name)
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
        most = MOST_PARTS if is_dataclass(kind) else LONGEST_LIST
        if not isinstance(value, list) or len(value) > most:
            raise _error(name, f"a list of at most {most:,} items", value)
        return tuple(from_plain(kind, item, f"{name}[{place}]") for place, item in enumerate(value))
    if get_origin(kind) is dict:
        if not isinstance(value, Mapping) or len(value) > LONGEST_LIST:
            raise _error(name, f"an object of at most {LONGEST_LIST:,} strings", value)
        return {
            _single(str, key, f"{name}, a name"): _single(str, text, f"{name}.{key:.20}") for key, text in value.items()
        }
    return _single(kind, value, name)


@lru_cache
def _types(kind: type) -> dict[str, object]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.repr}


def _object(kind: type, value: object, name: str) -> object:
    types = _types(kind)
    if not isinstance(value, Mapping):
        raise _error(name, "an object with names", value)
    unknown, missing = [key for key in value if key not in types], [key for key in types if key not in value]
    if unknown:
        raise ValueError(f"{_called(name)} has no fields {reprlib.repr(unknown)}.")
    if missing:
        raise ValueError(f"{_called(name)} lacks the fields {reprlib.repr(missing)}.")
    before = "" if name == "a privacy report" else f"{name}."
    read = {key: from_plain(types[key], value[key], before + key) for key in types}
    try:
        return kind(**read)
    except ValueError as error:
        raise ValueError(f"{_called(name)} cannot be one: {error!s:.300}") from error


def _single(kind: type, value: object, name: str) -> object:
    """A text, a number, or true or false."""
    allowed = (float, int) if kind is float else (kind,)  # and a bool is no int here
    if type(value) not in allowed:
        raise _error(name, f"of type {kind.__name__}", value)
    if kind is str and len(value) > LONGEST_TEXT:
        raise _error(name, f"a string of at most {LONGEST_TEXT:,} characters", value)
    if type(value) is int and abs(value) > LARGEST_INTEGER:
        raise _error(name, f"at most {LARGEST_INTEGER:,}", value)
    return value


def _called(name: str) -> str:
    return "A privacy report" if name == "a privacy report" else f"`{name}` of a privacy report"


def _error(name: str, allowed: str, value: object) -> ValueError:
    return ValueError(f"{_called(name)} must be {allowed}, got {reprlib.repr(value)[:100]}.")


def fingerprint(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays with their names, on every machine the same.

    Each array, in the order of names, is a line of JSON with name, dtype and shape, then its numbers row by row,
    least significant byte first.

    Examples
    --------
    >>> fingerprint({"a": np.zeros(2)}) == fingerprint({"a": np.zeros(2, dtype=">f8")})
    True
    >>> fingerprint({"a": np.zeros(2)}) == fingerprint({"a": np.array([0.0, 5e-324])})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.asarray(arrays[name], order="C")
        values = values.astype(values.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{json.dumps([name, values.dtype.str, values.shape])}\n".encode())
        digest.update(values.reshape(-1).view(np.uint8))
    return digest.hexdigest()


def fingerprint_of(released: Callable[[], Mapping[str, np.ndarray]]) -> str:
    """That of the arrays that a function gives; empty if these cannot be saved, which must not end a fit."""
    try:
        return fingerprint(released())
    except Exception:
        return ""


def as_bytes(values: object) -> np.ndarray:
    """What JSON can say, as an array of the bytes of its text with sorted names."""
    return np.frombuffer(json.dumps(values, sort_keys=True).encode(), np.uint8)
