"""The author's modules: the one that holds the model, and those that its code can reach.

The standard library, installed packages and vips itself are foreign, apart from the package that the model is part of.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

__all__ = ["in_package", "is_own", "own_modules", "package", "packages_of"]

_NEVER_OWN = {"vips", "sklearn", "numpy", "scipy", *sys.stdlib_module_names} - {"__main__"}
_INSTALLED = tuple(
    os.path.join(os.path.abspath(path), "")
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.ndarray)

Namespace = dict[str, object]


def own_modules(model: object) -> dict[str, Namespace]:
    """Name -> global names of every module of the author that code of ``model`` reaches.

    The search goes from an object to its class; from a class to its methods; from a function to its global names, closure,
    defaults and imports; to entries of containers, attributes of the model, and everything in a module.
    """
    packages = packages_of(model)
    pending: list[object] = [type(model), *vars(model).values()]
    seen: dict[int, object] = {}  # holds the objects, so that no id is reused
    found: dict[str, Namespace] = {}
    while pending:
        each = pending.pop()
        if id(each) in seen or type(each) in _PLAIN:
            continue
        seen[id(each)] = each
        with contextlib.suppress(Exception):  # objects of foreign classes may raise at any access
            for space in _global_names(each):
                name = space.get("__name__")
                if name not in found and is_own(space, packages):
                    found[name] = space
                    pending.extend(space.values())
            pending.extend(_parts(each, found))
    return found


def package(module: str) -> str:
    """The first part of a module's name."""
    return module.partition(".")[0]


def in_package(name: str) -> dict[str, Namespace]:
    """Name -> global names of all loaded modules of one package."""
    return {each: vars(module) for each, module in list(sys.modules.items()) if package(each) == name and module}


def packages_of(model: object) -> set[str]:
    """Packages that the model's class and its bases are part of, apart from foreign ones."""
    return {package(kind.__module__) for kind in type(model).__mro__} - _NEVER_OWN


def is_own(space: Namespace, packages: set[str]) -> bool:
    """Whether a module with these global names is the author's: part of ``packages``, or not installed."""
    name, file = space.get("__name__"), space.get("__file__")
    if not isinstance(name, str) or package(name) in _NEVER_OWN:
        return False
    if package(name) in packages:
        return True
    if file is None:  # made by code, or a notebook
        return space.get("__spec__") is None
    return not os.path.abspath(file).startswith(_INSTALLED)


def _namespace(module: object) -> Namespace:
    found = sys.modules.get(module) if isinstance(module, str) else None
    return getattr(found, "__dict__", {})


def _global_names(each: object) -> Iterator[Namespace]:
    """The global names that an object belongs to, or whose module it names."""
    if isinstance(each, types.ModuleType):
        yield vars(each)
    elif isinstance(each, types.FunctionType):
        yield each.__globals__
        pending = [each.__code__]
        while pending:
            code = pending.pop()
            yield from (_namespace(name) for name in code.co_names)
            pending.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    else:
        kind = each if isinstance(each, type) else type(each)
        yield _namespace(kind.__module__)


def _parts(each: object, found: Mapping[str, Namespace]) -> Iterable[object]:
    """Objects that the search visits from here; none from classes and functions of foreign modules."""
    if isinstance(each, dict):
        return list(each.values())
    if isinstance(each, list | tuple | set | frozenset):
        return list(each)
    if isinstance(each, property | staticmethod | classmethod | functools.partial | functools.cached_property):
        names = ("fget", "fset", "__func__", "func", "args", "keywords")
        return [getattr(each, name, None) for name in names]
    if isinstance(each, type) and each.__module__ in found:
        return [*each.__mro__, *vars(each).values()]
    if isinstance(each, types.FunctionType) and each.__module__ in found:
        cells = [cell.cell_contents for cell in each.__closure__ or () if cell != types.CellType()]
        return [*cells, *(each.__defaults__ or ()), *(each.__kwdefaults__ or {}).values(), *vars(each).values()]
    if isinstance(each, types.MethodType):
        return [each.__func__, each.__self__]
    return [getattr(each, "__wrapped__", None)] if callable(each) and type(each).__module__ == "functools" else ()
