"""Everything that can be reached from an object, as a list of places and contents that can be compared.

The walk enters attributes, slots, items, closures, defaults, bound objects, suspended generators, weak references, and the base
of a view. It names types, modules and compiled code without entering them; ``vips_globals`` enters the modules of vips.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections import deque

import numpy as np
import scipy.sparse as sp

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), np.dtype, range, slice)
NAMED = (type, types.ModuleType, types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType)


def walk(root, name: str = "") -> list[tuple[str, object]]:
    """``(place, content)`` of everything inside, in a fixed order."""
    contents, seen, ahead = [], {}, deque([(name, root)])
    while ahead:
        place, value = ahead.popleft()
        if isinstance(value, PLAIN):
            contents.append((place, f"{type(value).__name__} {value!r}"))
            continue
        if id(value) in seen:
            contents.append((place, f"as {seen[id(value)][0]}"))
            continue
        seen[id(value)] = place, value  # kept, so that no other object gets its id
        content, children = _opened(value)
        contents.append((place, content))
        ahead.extend((f"{place}{suffix}", child) for suffix, child in children)
    return contents


def _opened(value) -> tuple[object, list[tuple[str, object]]]:
    """The content of an object itself, and the objects in it."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, np.ndarray) and value.dtype != object:
        base = [] if value.base is None else [(".base", value.base)]
        return (kind, str(value.dtype), value.shape, value.tobytes()), base
    if isinstance(value, np.ndarray):
        return (kind, value.shape), [(f"[{i}]", item) for i, item in enumerate(value.ravel())]
    if isinstance(value, np.generic | bytearray | memoryview):
        return (kind, bytes(value)), []
    if isinstance(value, np.random.Generator | np.random.RandomState):
        state = value.bit_generator.state if isinstance(value, np.random.Generator) else value.get_state()
        return kind, [(".state", state)]
    if isinstance(value, NAMED):
        return (kind, getattr(value, "__qualname__", getattr(value, "__name__", ""))), []
    if isinstance(value, types.FunctionType):
        cells = [(f".{n}", _cell(c)) for n, c in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)]
        settings = [(".defaults", value.__defaults__), (".kwdefaults", value.__kwdefaults__), (".dict", value.__dict__)]
        return (kind, value.__qualname__), cells + settings
    if isinstance(value, types.MethodType):
        return kind, [(".self", value.__self__), (".func", value.__func__)]
    if isinstance(value, functools.partial):
        return kind, [(".func", value.func), (".args", value.args), (".keywords", value.keywords)]
    if isinstance(value, types.GeneratorType):
        return kind, [(".locals", dict(value.gi_frame.f_locals) if value.gi_frame else None)]
    if isinstance(value, weakref.ref):
        return kind, [("()", value())]
    return kind, _items(value) + _attributes(value)


def _cell(cell):
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _items(value) -> list[tuple[str, object]]:
    if isinstance(value, dict | types.MappingProxyType):
        places = [f"[{key!r}]" if isinstance(key, PLAIN) else f"[{i}]" for i, key in enumerate(value)]
        return [*zip(places, value.values(), strict=True), (".keys", list(value))]
    if isinstance(value, list | tuple | deque):
        return [(f"[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return [(f"[{i}]", item) for i, item in enumerate(sorted(value, key=repr))]
    return []


def _attributes(value) -> list[tuple[str, object]]:
    slots = [name for cls in type(value).__mro__ for name in _slots(cls)]
    names = list(vars(value)) if hasattr(value, "__dict__") else []
    attributes = [(f".{name}", vars(value)[name]) for name in names]
    attributes += [(f".{name}", getattr(value, name)) for name in slots if hasattr(value, name)]
    if not attributes and not isinstance(
        value, dict | list | tuple | set | frozenset | deque
    ):  # compiled: everything it refers to
        attributes = [(f".held[{i}]", referent) for i, referent in enumerate(gc.get_referents(value))]
    return attributes


def _slots(cls) -> list[str]:
    slots = cls.__dict__.get("__slots__", ())
    slots = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in slots if name not in ("__dict__", "__weakref__")]


def vips_globals() -> list[tuple[str, object]]:
    """What the modules of vips keep between two fits: their variables and those of their classes.

    Not entered: names of Python itself, such as ``__dataclass_fields__``, functions, compiled kernels, caches of functions (of
    public numbers), locks, pools of threads.
    """
    data = {}
    for name, module in sorted(sys.modules.items()):
        if module is None or not (name == "vips" or name.startswith("vips.")):
            continue
        for key, value in [item for item in vars(module).items() if not item[0].startswith("__")]:
            if isinstance(value, type) and value.__module__ == name:
                fields = [item for item in vars(value).items() if not item[0].startswith("__")]
                data |= {f"{name}.{key}.{field}": held for field, held in fields if _is_data(held)}
            elif _is_data(value):
                data[f"{name}.{key}"] = value
    return walk(data, "modules")


def _is_data(value) -> bool:
    return isinstance(value, (*PLAIN, dict, list, tuple, set, deque, np.ndarray, np.generic)) or sp.issparse(value)
