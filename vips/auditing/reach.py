"""Everything that can be reached from an object, as paths and short texts that are equal for equal contents.

``model.posterior_.mean`` is one path, ``model.posterior_.mean.base`` another: a view of a larger array keeps the larger one.
Attributes, slots, items of containers, default arguments, closures, variables of suspended generators
and weak references are followed. Modules and importable classes are not; a class that was made during a fit is.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import io
import itertools
import pickle
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import numpy as np

__all__ = ["digest", "reachable", "walk"]

MOST_OBJECTS = 50_000
MOST_BYTES = 2**24  # only a part of larger arrays and buffers is compared
SHORT = 60

Children = list[tuple[str, object]]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, type(...), type(NotImplemented), range, slice)
_PRINTED = {
    "datetime",
    "decimal",
    "fractions",
    "pathlib",
    "uuid",
    "re",
    "enum",
    "zoneinfo",
}  # repr() shows the whole value
_WITH_STATE = {"random", "randomgen"}  # and numpy.random: their state is not in attributes
_OPAQUE = {"_thread", "threading", "_queue", "queue", "concurrent", "numba", "llvmlite", "logging", "_abc", "tqdm"}
_MACHINERY = {"builtins", "collections", "functools", "itertools", "operator", "types"}  # holds references for others
_STATIC = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_NOT_FOLLOWED = (type, types.ModuleType, types.CodeType, types.FrameType)
_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_NOT_HELD = {"__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__", "_abc_impl", "__annotations__"}


def reachable(roots: Mapping[str, object], own: Callable[[type], bool] | None = None) -> dict[str, str]:
    """Descriptions of everything that is reached from ``roots``, by path; arguments as of :func:`walk`.

    An object that is reached again is described by its first path.
    """
    return {path: text for path, _, text in walk(roots, own)}


def walk(roots: Mapping[str, object], own: Callable[[type], bool] | None = None) -> Iterator[tuple[str, object, str]]:
    """Path, object and description of everything that is reached from ``roots``, nearest first.

    Parameters
    ----------
    roots : dict of str to object
    own : function of a class, optional
        Whether to follow its instances; by default all are followed. Containers, functions and arrays always are.
    """
    first: dict[int, tuple[str, object]] = {}  # holds the objects, so that no id is reused
    pending = deque(roots.items())
    while pending:
        path, value = pending.popleft()
        try:
            if isinstance(value, _PLAIN):
                yield path, value, _plain(value)
                continue
            if id(value) in first:
                yield path, value, f"the same as {first[id(value)][0]}"
                continue
            first[id(value)] = path, value
            if len(first) > MOST_OBJECTS:
                yield path, value, "further objects are not looked at"
                return
            text, children = _described(value, own)
        except Exception as error:  # objects of foreign classes may raise at any access
            text, children = f"{_type_name(value)}: {type(error).__name__}", []
        yield path, value, text
        pending.extend((path + label, child) for label, child in children)


def digest(data: object) -> str:
    """Hash of a buffer, or of the repr of anything else."""
    data = data if isinstance(data, bytes | bytearray | memoryview) else repr(data).encode()
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _importable(kind: type) -> bool:
    """Whether a class is found by its name in its module, or was not made by Python code."""
    if not kind.__flags__ & _MADE_BY_PYTHON:
        return True
    found: object = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is kind


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _plain(value: object) -> str:
    text = value.hex() if isinstance(value, float) else repr(value)
    return text if len(text) <= SHORT else f"{type(value).__name__} of {len(text)} characters, {digest(text)}"


def _described(value: object, own) -> tuple[str, Children]:
    """A description of the object itself; and the objects that it refers to, each with the part of the path to it."""
    name = _type_name(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}", [] if _importable(value) else _namespace(vars(value))
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}", []
    if isinstance(value, types.FunctionType):
        return f"function {value.__qualname__}, {_code(value.__code__)}", _function(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list | tuple | deque):
        return _sequence(value)
    if isinstance(value, set | frozenset):
        members = sorted(
            value, key=lambda each: _described(each, own)[0] if _key(each) == _type_name(each) else _key(each)
        )
        return f"{name} of {len(value)}", [(f"{{{i}}}", each) for i, each in enumerate(members)]
    if isinstance(value, io.IOBase):
        return _stream(value), []
    if isinstance(value, weakref.ref):
        return "weak reference", [("()", value())]
    package = type(value).__module__.partition(".")[0]
    if isinstance(value, bytearray | memoryview) or package in ("mmap", "array"):
        return f"{name} {digest(bytes(value[: MOST_BYTES // memoryview(value).itemsize]))}", []
    if package in _WITH_STATE or name.startswith("numpy.random."):
        return f"{name} in state {digest(pickle.dumps(value))}", []
    if isinstance(value, np.dtype | itertools.count) or package in _PRINTED:
        return f"{name} {_plain(repr(value))}", []
    if name == "_thread._local":
        return name, _attributes(value)
    known = package in _MACHINERY or own is None or own(type(value))
    if package in _OPAQUE or isinstance(value, _STATIC) or not known:
        return name, []
    return _instance(value, name)


def _array(array: np.ndarray) -> tuple[str, Children]:
    children = _attributes(array)
    whole = array.flags.contiguous and array.nbytes == getattr(array.base, "nbytes", None)
    if array.base is not None and not whole:
        children.append((".base", array.base))
    if array.dtype.hasobject:
        entries = [(f"[{i}]", each) for i, each in enumerate(array.ravel().tolist())]
        return f"{_type_name(array)} of {array.shape} objects", entries + children
    entries = array if array.nbytes <= MOST_BYTES else array.ravel()[:: -(-array.nbytes // MOST_BYTES)]
    text = digest(np.ascontiguousarray(entries).reshape(-1).view(np.uint8).data)
    return f"array {array.dtype.str} {array.shape} {array.strides} {text}", children


def _mapping(values: Mapping) -> tuple[str, Children]:
    items = [(f"[{_key(key)}]", values[key]) for key in list(values)]
    keys = [(f"<key {_key(key)}>", key) for key in values if not isinstance(key, _PLAIN)]
    return f"{_type_name(values)} of {digest([label for label, _ in items])}", items + keys + _attributes(values)


def _sequence(values: list | tuple | deque) -> tuple[str, Children]:
    name = type(values).__name__
    if len(values) > SHORT and all(isinstance(each, _PLAIN) for each in values):
        return f"{name} of {len(values)}, {digest([_plain(each) for each in values])}", _attributes(values)
    return f"{name} of {len(values)}", [(f"[{i}]", each) for i, each in enumerate(values)] + _attributes(values)


def _stream(stream: io.IOBase) -> str:
    """The contents of a stream in memory, or the name of a file; flushes the file, because its contents are compared there."""
    name = _type_name(stream)
    if stream.closed:
        return f"{name}, closed"
    if isinstance(stream, io.BytesIO | io.StringIO):
        return f"{name} at {stream.tell()}, {digest(stream.getvalue())}"
    if stream.writable():
        stream.flush()
    return f"{name} {getattr(stream, 'name', '')!r}"


def _instance(value: object, name: str) -> tuple[str, Children]:
    children = _attributes(value)
    text = name
    if isinstance(value, functools._lru_cache_wrapper):
        cached = [each for each in gc.get_referents(value) if not isinstance(each, dict)]
        children += [(f"<cached {i}>", each) for i, each in enumerate(cached)]
        return f"cache of {value.cache_info().currsize} after {value.cache_info().misses} misses", children
    if isinstance(value, types.GeneratorType | types.CoroutineType):
        frame = getattr(value, "gi_frame", getattr(value, "cr_frame", None))
        children += [] if frame is None else [(f"<variable {key}>", each) for key, each in frame.f_locals.items()]
    if not _importable(type(value)):
        children.append((".__class__", type(value)))
    known = {id(child) for _, child in children} | {id(getattr(value, "__dict__", None)), id(type(value))}
    for i, other in enumerate(gc.get_referents(value)):
        if id(other) not in known and not isinstance(other, _NOT_FOLLOWED):
            children.append((f"<{i}>", other))
    if not children and not gc.is_tracked(value):
        text = f"{name} {digest(pickle.dumps(value))}"
    return text, children


def _attributes(value: object) -> Children:
    """Attributes in ``__dict__`` and in slots."""
    found = _namespace(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            private = slot.startswith("__") and not slot.endswith("__")
            slot = f"_{kind.__name__.lstrip('_')}{slot}" if private else slot
            if slot not in _NOT_HELD and hasattr(value, slot):
                found.append((f".{slot}", getattr(value, slot)))
    return found


def _namespace(names: Mapping[str, object]) -> Children:
    return [(f".{name}", each) for name, each in list(names.items()) if name not in _NOT_HELD]


def _function(function: types.FunctionType) -> Children:
    defaults = [(".__defaults__", function.__defaults__), (".__kwdefaults__", function.__kwdefaults__)]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure = [(f"<closure {name}>", cell.cell_contents) for name, cell in cells if cell != types.CellType()]
    return [(label, held) for label, held in defaults if held] + closure + _namespace(function.__dict__)


@functools.lru_cache(4096)
def _code(code: types.CodeType) -> str:
    inner = [_code(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    constants = [repr(each) for each in code.co_consts if not isinstance(each, types.CodeType)]
    return digest([code.co_code, constants, code.co_names, inner])


def _key(key: object) -> str:
    """A short text for a key, the same in every process."""
    plain = isinstance(key, _PLAIN) or (isinstance(key, tuple) and all(isinstance(each, _PLAIN) for each in key))
    return _plain(key) if plain else _type_name(key)
