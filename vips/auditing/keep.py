"""Restores the contents of objects: classes, functions, containers, arrays, random generators, caches."""

from __future__ import annotations

import functools
import io
import random
import types
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial

import numpy as np

__all__ = ["change", "keep"]

MOST_BYTES = 2**26  # larger arrays are not copied
_NEVER_SET = ("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl")


def keep(value: object, own: Callable[[type], bool]) -> Callable[[], None] | None:
    """A function that restores the present contents of ``value``; None if there is nothing to restore.

    Parameters
    ----------
    value : object
        Its parts are not restored; each needs a function of its own.
    own : function of a class
        Whether instances of that class may be changed. Containers, functions, arrays, generators and caches always may.
    """
    if isinstance(value, type):
        return partial(_change_class, value, dict(vars(value)))
    if isinstance(value, types.FunctionType):
        return _keep_function(value)
    if isinstance(value, functools._lru_cache_wrapper):
        return value.cache_clear
    if isinstance(value, np.ndarray):
        usable = value.flags.writeable and value.nbytes <= MOST_BYTES
        return partial(np.copyto, value, value.copy()) if usable else None
    if isinstance(value, list | bytearray):
        return partial(value.__setitem__, slice(None), value.copy())
    if isinstance(value, dict):
        return partial(change, value, dict(value))
    if isinstance(value, set | deque):
        return partial(_refill, value, value.copy())
    if isinstance(value, io.StringIO | io.BytesIO) and not value.closed:
        return partial(value.__setstate__, value.__getstate__())
    if isinstance(value, np.random.Generator):
        return partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return partial(value.set_state, value.get_state())
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return partial(value.setstate, value.getstate())
    if hasattr(value, "__dict__") and (own(type(value)) or isinstance(value, types.SimpleNamespace)):
        return partial(change, vars(value), dict(vars(value)))
    return None


def change(values: MutableMapping, before: Mapping) -> None:
    """Make ``values`` equal to ``before``, without setting entries that already are the same object."""
    for key in [key for key in values if key not in before]:
        del values[key]
    for key, value in before.items():
        if values.get(key, ...) is not value:
            values[key] = value
    if isinstance(values, dict) and list(values) != list(before):  # the order of entries can be compared, too
        values.clear()
        values.update(before)


def _change_class(kind: type, before: Mapping[str, object]) -> None:
    now = vars(kind)
    for name in [name for name in now if name not in before]:
        delattr(kind, name)
    for name, value in before.items():
        if now.get(name, ...) is not value and name not in _NEVER_SET:
            setattr(kind, name, value)


def _keep_function(function: types.FunctionType) -> Callable[[], None]:
    held = {name: getattr(function, name) for name in ("__defaults__", "__kwdefaults__", "__code__")}
    attributes = dict(vars(function))
    cells = [(cell, cell.cell_contents) for cell in function.__closure__ or () if cell != types.CellType()]

    def put_back() -> None:
        for name, value in held.items():
            if getattr(function, name) is not value:
                setattr(function, name, value)
        change(vars(function), attributes)
        for cell, content in cells:
            cell.cell_contents = content

    return put_back


def _refill(values: set | deque, before: set | deque) -> None:
    values.clear()
    (values.update if isinstance(values, set) else values.extend)(before)
