"""What a model and its author's code hold, as short texts that are equal for equal contents.

Objects are pickled into a hash by value, also what pickle would only name: functions with their closures and default arguments,
classes, caches. What cannot be pickled (locks, open files, weak references) counts by its type.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import pickle
import random
import sys
import types
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["Contents", "is_importable"]

_INSTALLED = {"site-packages", "dist-packages"}
_FOREIGN = {"vips", "sklearn", *sys.stdlib_module_names}
_NOT_HELD = {"__dict__", "__weakref__", "__doc__", "__abstractmethods__", "_abc_impl"}
_OPAQUE = ("numba", "llvmlite")  # a pickled kernel has a random name

Namespace = dict[str, object]


class Contents:
    """Describes models, the modules and classes of their authors, and what belongs to the whole process.

    Parameters
    ----------
    models : sequence of ConjugateExponentialModel
        The authors' modules are the packages of the models' classes, and all that were not installed.
    """

    def __init__(self, models: Sequence[object]) -> None:
        kinds = dict.fromkeys(kind for model in models for kind in type(model).__mro__)
        packages = {_package(kind.__module__) for kind in kinds} - _FOREIGN
        self._is_of_author = lambda module: _package(module) in packages or _is_not_installed(module)
        self._kinds = [kind for kind in kinds if self._is_of_author(kind.__module__)]
        self._state = self._of_code() | self._of_process()

    def changed(self) -> dict[str, str]:
        """What is new in code and process since the last call: name -> contents."""
        before, self._state = self._state, self._of_code() | self._of_process()
        names = before | self._state
        return {name: self._state.get(name, "gone") for name in names if before.get(name) != self._state.get(name)}

    def of_model(self, model: object) -> dict[str, str]:
        """Attributes, and the state that pickle would store: the class may choose that."""
        return {name: self.digest(value) for name, value in (vars(model) | {"(pickled)": _reduced(model)[2:]}).items()}

    def _of_code(self) -> dict[str, str]:
        """The classes of the models, and the global names of the authors' modules and functions.

        Functions that came to this process without their module have global names of their own.
        """
        spaces = [vars(module) for name, module in list(sys.modules.items()) if module and self._is_of_author(name)]
        texts = {f"class {kind.__qualname__}": self.digest(kind, spaces) for kind in self._kinds}
        for space in spaces:  # functions found on the way add theirs
            names = [name for name in space if name[:2] != "__"]
            texts |= {f"{space.get('__name__')}.{name}": self.digest(space[name], spaces) for name in names}
        return texts

    def _of_process(self) -> dict[str, str]:
        """The environment, the current folder, and the generators that all code shares."""
        generators = {"numpy.random": np.random.get_state(), "random": random.getstate()}  # noqa: NPY002
        texts = {f"state of {name}": self.digest(state) for name, state in generators.items()}
        return texts | {f"environment variable {k!r}": v for k, v in os.environ.items()} | {"folder": os.getcwd()}

    def digest(self, value: object, spaces: list[Namespace] | None = None) -> str:
        """A short text for whatever can be reached from ``value``; the global names of functions are added to ``spaces``."""
        hashed = hashlib.blake2b(digest_size=12)
        pickler = _ByValue(
            types.SimpleNamespace(write=hashed.update), self._is_of_author, [] if spaces is None else spaces
        )
        try:
            pickler.dump(value)
        except Exception as error:  # objects of foreign classes may raise at any access
            return f"{type(value).__qualname__}: {type(error).__name__}"
        return hashed.hexdigest()


class _ByValue(pickle.Pickler):
    """Writes what can be compared, and not read."""

    def __init__(self, file: object, is_of_author: Callable[[str], bool], spaces: list[Namespace]) -> None:
        super().__init__(file)
        self._is_of_author, self._spaces = is_of_author, spaces

    def reducer_override(self, value: object) -> object:
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return _text(value.dtype.str, value.shape, value.tobytes())
        if isinstance(value, np.dtype):  # one dtype may be several objects
            return _text(value.str)
        if isinstance(value, type | types.FunctionType):
            if self._is_of_author(value.__module__ or ""):
                return object, (), self._members(value)
            return NotImplemented if is_importable(value) else _text(value.__qualname__)
        if isinstance(value, functools._lru_cache_wrapper):
            keys = [list(held) for held in gc.get_referents(value) if isinstance(held, dict)]
            return object, (), (keys, value.__wrapped__)
        if isinstance(value, property | staticmethod | classmethod):
            return object, (), [getattr(value, name, None) for name in ("fget", "fset", "__func__")]
        return _reduced(value)

    def _members(self, value: type | types.FunctionType) -> object:
        if isinstance(value, type):
            return {name: member for name, member in vars(value).items() if name not in _NOT_HELD}
        if not any(space is value.__globals__ for space in self._spaces):
            self._spaces.append(value.__globals__)
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        return value.__qualname__, value.__defaults__, value.__kwdefaults__, cells, vars(value)


def _reduced(value: object) -> tuple:
    """What pickle stores of an object; its type if it cannot."""
    kind = type(value)
    try:
        reduced = kind.__qualname__ if kind.__module__.startswith(_OPAQUE) else value.__reduce_ex__(4)
    except Exception:
        reduced = kind.__qualname__
    return reduced if isinstance(reduced, tuple) else _text(reduced)


def _text(*parts: object) -> tuple:
    return tuple, (parts,)


def is_importable(value: Callable) -> bool:
    """Whether another process finds a class or function under its name."""
    known: object = None if value.__module__ == "__main__" else sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        known = getattr(known, part, None)
    return known is value


def _package(module: str) -> str:
    return module.partition(".")[0]


@functools.cache
def _is_not_installed(name: str) -> bool:
    """Whether a module is neither part of vips or Python, nor installed."""
    module = sys.modules.get(name)
    if _package(name) in _FOREIGN:
        return False
    file = getattr(module, "__file__", None)
    if file is None:  # made by code, or a notebook
        return getattr(module, "__spec__", None) is None
    return not _INSTALLED & set(file.split(os.sep))
