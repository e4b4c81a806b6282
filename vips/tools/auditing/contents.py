"""What a fit leaves behind, as short texts that are equal for equal contents.

A model and its author's code are pickled into a hash by value, also what pickle would only name: functions with their closures
and default arguments, classes, caches. What cannot be pickled (locks, open files, weak references) counts by its type. Files
and requests to the operating system are those of which Python's audit events tell.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import io
import os
import pickle
import random
import sys
import types
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["Contents", "Written", "is_importable"]

_INSTALLED = {"site-packages", "dist-packages"}
_FOREIGN = {"vips", "sklearn", *sys.stdlib_module_names}
_NOT_HELD = {"__dict__", "__weakref__", "__doc__", "__abstractmethods__", "_abc_impl"}
_OPAQUE = ("numba", "llvmlite")  # a pickled kernel has a random name

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_COMPILED = ("__pycache__", ".pyc", ".nbi", ".nbc")  # caches of Python and numba, under these names and temporary ones
_REQUESTS = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.utime", "os.system",
    "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile", "socket.", "subprocess.", "sqlite3.", "urllib.",
)  # fmt: skip

_SHOWN = (str, bytes, os.PathLike, int, tuple, list)  # other arguments are objects with an address

Namespace = dict[str, object]


class Contents:
    """Describes models, the modules and classes of their authors, and what belongs to the whole process.

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
        file = types.SimpleNamespace(write=hashed.update)
        pickler = _ByValue(file, self._is_of_author, [] if spaces is None else spaces)
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


# -- files and requests -------------------------------------------------------------------------------------------


class Written:
    """What this process writes from now on. Python keeps it until the process ends: for a process of its own."""

    def __init__(self) -> None:
        self._requests: list[str] = []
        self._starts: dict[str | bytes, int] = {}  # path -> first byte that was written here
        self._files: dict[str | bytes, str] = {}  # path -> what was written
        sys.addaudithook(self._hear)

    def shown(self, is_last: bool) -> dict[str, str]:
        """Requests and changed files since the last call. Files have numbers, because some have random names."""
        if is_last:  # slow
            for stream in gc.get_objects():
                if type(stream) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom) and not stream.closed:
                    stream.flush()
        requests, self._requests = "\n".join(self._requests), []
        before, self._files = self._files, {path: _content(path, start) for path, start in list(self._starts.items())}
        changed = [text for path, text in self._files.items() if before.get(path) != text]
        return {"requests": requests} | {f"file {i}": text for i, text in enumerate(changed, 1)}

    def _hear(self, event: str, arguments: tuple) -> None:
        texts = [str(argument) for argument in arguments if isinstance(argument, _SHOWN)]
        if not event.startswith(("open", *_REQUESTS)) or any(part in texts[0] for part in _COMPILED if texts):
            return
        if event != "open":
            self._requests.append(f"{event} {texts}")
            if event == "os.rename":
                self._starts[os.path.abspath(arguments[1])] = 0
        elif arguments[2] & _WRITES and not isinstance(arguments[0], int):
            path = os.path.abspath(arguments[0])
            self._requests.append(f"open {path!r}")
            appends = arguments[2] & os.O_APPEND and os.path.isfile(path)
            self._starts.setdefault(path, os.path.getsize(path) if appends else 0)


def _content(path: str | bytes, start: int) -> str:
    """Size and digest of a file from byte ``start`` on."""
    if not os.path.isfile(path):
        return "not there"
    with open(path, "rb") as file:
        file.seek(start)
        written = file.read()
    return f"{len(written)} bytes, {hashlib.blake2b(written, digest_size=12).hexdigest()}"
