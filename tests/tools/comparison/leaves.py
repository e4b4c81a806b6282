"""Every value that an object holds, found by its fields, and copies of the object with other values in their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial

import numpy as np

__all__ = ["leaves", "with_leaf"]

Path = tuple[tuple[str, object], ...]


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """(path, value) of everything that is not a container, including keys of dicts but not arrays of numbers."""
    if isinstance(value, dict):
        for key in value:
            yield (*path, ("key", key)), key
    parts = list(_parts(value))
    if not parts and not isinstance(value, dict | list | tuple | np.ndarray) and not is_dataclass(value):
        yield path, value
    for step, part in parts:
        yield from leaves(part, (*path, step))


def _parts(value: object) -> Iterator[tuple[tuple[str, object], object]]:
    if is_dataclass(value):
        yield from ((("field", f.name), getattr(value, f.name)) for f in fields(value))
    elif isinstance(value, dict):
        yield from ((("item", key), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((("place", place), item) for place, item in enumerate(value))
    elif isinstance(value, partial):
        yield from ((("argument", place), item) for place, item in enumerate(value.args))


def with_leaf(value: object, path: Path, new: object) -> object:
    """A copy with ``new`` at ``path``. No constructor is called, so that no check is made."""
    if not path:
        return new
    (kind, key), *subpath = path
    if kind == "key":
        return {new if name == key else name: item for name, item in value.items()}
    if kind == "item":
        return {name: with_leaf(item, subpath, new) if name == key else item for name, item in value.items()}
    if kind == "place":
        return type(value)(with_leaf(item, subpath, new) if place == key else item for place, item in enumerate(value))
    if kind == "argument":
        return partial(value.func, *with_leaf(value.args, (("place", key), *subpath), new))
    changed = object.__new__(type(value))
    changed.__dict__.update(value.__dict__ | {key: with_leaf(getattr(value, key), subpath, new)})
    return changed
