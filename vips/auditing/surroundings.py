"""What a fit leaves behind outside of the fitted object: in modules, classes, the environment, random generators, threads.

Every fit starts from the same state: the contents of the author's modules and classes (see ``modules.py``) are put back first.
Whatever a fit leaves there can then be compared. Other modules are not put back, since that could break them: only the names
that a fit added or bound anew there are compared.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import pickle
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator

import numpy as np

from vips.auditing.keep import change, keep
from vips.auditing.modules import in_package, is_own, own_modules, packages_of
from vips.auditing.reach import digest, reachable, walk

__all__ = ["Surroundings"]

_DATA = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, np.ndarray, np.generic)
_NUMBERS = (int, float)
_OF_PYTHON = {
    "__builtins__", "__cached__", "__dict__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__path__",
    "__spec__", "__warningregistry__", "__weakref__",
}  # fmt: skip
_OUR_THREADS = "vips"  # beginning of their names


class Surroundings:
    """State that a model's code reaches without the model.

    Parameters
    ----------
    model : ConjugateExponentialModel
        :meth:`put_back` restores the state that it reaches when this object is made.
    """

    def __init__(self, model: object) -> None:
        self._packages = packages_of(model)
        self._spaces = own_modules(model)
        self._kinds = [kind for kind in type(model).__mro__ if self._is_own(kind)]
        self._foreign = {path: vars(owner) for path, owner in self._foreign_owners(model)}  # as it changes
        ours = [
            (f"{module}.{name}", each) for module, names in in_package("vips").items() for name, each in names.items()
        ]
        self._foreign |= {name: each for name, each in ours if isinstance(each, dict) and "__" not in name}
        self._caches = {name: each for name, each in ours if isinstance(each, functools._lru_cache_wrapper)}
        self._noted = {path: dict(names) for path, names in self._foreign.items()}
        self._loaded = set(sys.modules)
        self._put_back = self._kept()

    def put_back(self) -> None:
        """Undo what fits did to the author's modules and classes, the environment, the current folder, global generators."""
        for each in self._put_back:
            each()

    def begin(self) -> None:
        """Call before a fit: notes the sizes of caches and the running threads, to see which ones the fit adds."""
        self._counts = {name: each.cache_info() for name, each in self._caches.items()}
        self._threads = set(threading.enumerate())

    def contents(self, context: contextvars.Context) -> dict[str, str]:
        """Path -> description of the present state; for other modules, of what is new since the last call.

        Parameters
        ----------
        context : contextvars.Context
            The context in which the fit ran.
        """
        found = reachable(self._near(), self._is_own)
        for name, each in self._caches.items():
            found[name] = f"{each.cache_info().misses - self._counts[name].misses} new entries"
        for path in self._changed():
            found |= reachable(self._new_names(path), self._is_own)
        found |= reachable(self._new_modules(), self._is_own)
        found |= reachable({f"context variable {each.name!r}": held for each, held in context.items()}, self._is_own)
        found |= {f"environment variable {name!r}": value for name, value in os.environ.items()}
        generators = {"numpy.random": np.random.get_state(), "random": random.getstate()}  # noqa: NPY002
        found |= {f"state of {name}": digest(pickle.dumps(state)) for name, state in generators.items()}
        started = [thread.name for thread in threading.enumerate() if thread not in self._threads]
        started = [name for name in started if not name.startswith(_OUR_THREADS)]
        return found | {"current folder": _current_folder(), "threads that still run": ", ".join(sorted(started))}

    def _changed(self) -> list[str]:
        """Paths of owners whose names may be bound to other objects. Fast, because there are thousands of modules."""
        found = []
        for (path, names), noted in zip(self._foreign.items(), self._noted.values(), strict=True):
            try:
                if names != noted:
                    found.append(path)
            except Exception:  # comparing two arrays raises
                found.append(path)
        return found

    def _new_names(self, path: str) -> dict[str, object]:
        """Data under names that an owner did not have at first, and names that were bound anew since the last call.

        A number is described by its change, so that a count of fits looks the same after each.
        """
        noted, names, found = self._noted[path], dict(self._foreign[path]), {}
        for name in {**noted, **names}:
            before, now = noted.get(name, _MISSING), names.get(name, _MISSING)
            if now is before or name in _OF_PYTHON or isinstance(now, types.ModuleType):
                continue
            numbers = type(now) in _NUMBERS and type(before) in _NUMBERS
            found[f"{path}.{name}"] = f"{now - before:+}" if numbers else now
            if now is _MISSING:
                del noted[name]
            elif before is not _MISSING or not isinstance(now, _DATA):
                noted[name] = now
        return found

    def _new_modules(self) -> dict[str, object]:
        """Contents of the author's modules that were loaded, or made, after this object."""
        new = [(name, sys.modules[name]) for name in list(sys.modules) if name not in self._loaded]
        return {
            f"{name}.{key}": each
            for name, module in new
            if isinstance(module, types.ModuleType) and is_own(vars(module), self._packages)
            for key, each in list(vars(module).items())
            if key not in _OF_PYTHON
        }

    def _near(self) -> dict[str, object]:
        """Path -> object for every name in the author's modules and classes."""
        spaces = dict(self._spaces) | {f"{kind.__module__}.{kind.__qualname__}": vars(kind) for kind in self._classes()}
        return {
            f"{space}.{name}": each
            for space, names in spaces.items()
            for name, each in list(names.items())
            if name not in _OF_PYTHON
        }

    def _classes(self) -> list[type]:
        """The author's classes, and classes inside of them."""
        found: dict[type, None] = {}
        pending = [*self._kinds, *(each for names in self._spaces.values() for each in list(names.values()))]
        while pending:
            each = pending.pop()
            if isinstance(each, type) and self._is_own(each) and each not in found:
                found[each] = None
                pending.extend(vars(each).values())
        return list(found)

    def _is_own(self, kind: type) -> bool:
        return kind.__module__ in self._spaces

    def _foreign_owners(self, model: object) -> Iterator[tuple[str, object]]:
        """All other modules, foreign base classes, classes of vips, and foreign objects that the author's modules name."""
        for name, module in list(sys.modules.items()):
            if name not in self._spaces and isinstance(module, types.ModuleType):
                yield name, module
        yield from ((f"class {kind.__qualname__}", kind) for kind in type(model).__mro__ if not self._is_own(kind))
        for module, names in in_package("vips").items():
            yield from ((f"{module}.{name}", each) for name, each in list(names.items()) if isinstance(each, type))
        for module, names in self._spaces.items():
            for name, each in list(names.items()):
                with contextlib.suppress(Exception):  # objects of foreign classes may raise at any access
                    home = each if isinstance(each, type | types.FunctionType) else type(each)
                    attributes = None if isinstance(each, types.ModuleType) else getattr(each, "__dict__", None)
                    if home.__module__ not in self._spaces and isinstance(attributes, dict | types.MappingProxyType):
                        yield f"attributes of {module}.{name}", each

    def _kept(self) -> list[Callable[[], None]]:
        never = {id(sys.modules), *(id(vars(module)) for module in list(sys.modules.values()) if module)}
        objects = [each for _, each, _ in walk(self._near(), self._is_own) if id(each) not in never]
        objects += [*self._spaces.values(), *self._classes()]
        environment, folder = dict(os.environ), _current_folder()
        generators = np.random.get_state(), random.getstate()  # noqa: NPY002

        def put_back_process() -> None:
            if dict(os.environ) != environment:
                change(os.environ, environment)
            if _current_folder() != folder:
                os.chdir(folder)
            np.random.set_state(generators[0])  # noqa: NPY002
            random.setstate(generators[1])

        kept = []
        for each in objects:
            with contextlib.suppress(Exception):  # as above
                kept.append(keep(each, self._is_own))
        return [*(each for each in kept if each is not None), put_back_process]


_MISSING = type("Nothing", (), {"__repr__": lambda self: "nothing"})()


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # somebody removed it
        return ""
