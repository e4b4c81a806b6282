"""The core is a room of its own: a process that imports all of it loads nothing else of vips but what it stands on.

Locks, context variables and caches of a module exist once, by whatever path a user comes.
"""

import importlib
import json
import pkgutil
import subprocess
import sys
import threading
from collections import defaultdict
from contextvars import ContextVar
from functools import _lru_cache_wrapper
from pathlib import Path

import vips
import vips.core
from tests.test_layers import sources

MOST_FILES, MOST_LINES = 76, 12_000
STANDS_ON = ("vips._support", "vips.exceptions")
LOADED = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps({name: module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "vips"}))
"""


def modules_of_core() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(vips.core.__path__, "vips.core.")]


def test_the_core_loads_nothing_else_of_vips():
    names = json.dumps(modules_of_core())
    run = subprocess.run([sys.executable, "-c", LOADED, names], capture_output=True, text=True, check=True)
    loaded = json.loads(run.stdout)
    assert loaded.keys() >= set(modules_of_core())
    others = {name for name in loaded if name not in ("vips", "vips.core") and not name.startswith("vips.core.")}
    assert not [name for name in others if not name.startswith(STANDS_ON)]


def test_the_core_can_be_read():
    files = list(Path(vips.core.__file__).parent.rglob("*.py"))
    assert 60 < len(files) <= MOST_FILES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= MOST_LINES


STATES = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.local,
    ContextVar,
    _lru_cache_wrapper,
    list,
    dict,
    set,
)


def states() -> dict[tuple[str, str], dict[int, set[str]]]:
    """Locks, context variables, caches and variables of all modules: under file name and name, objects and their modules."""
    places = defaultdict(lambda: defaultdict(set))
    for name in sources():
        if name == "vips.__main__":
            continue
        for attribute, value in vars(importlib.import_module(name)).items():
            if isinstance(value, STATES) and not (attribute.startswith("__") or attribute.isupper()):
                places[name.rsplit(".")[-1], attribute][id(value)].add(name)
    return places


def test_no_state_exists_twice():
    places = states()
    assert {("open_ledger", "_call"), ("clerk", "_lock")} & places.keys()
    assert not {place: list(objects.values()) for place, objects in places.items() if len(objects) > 1}


def test_every_path_leads_to_one_object():
    for face in (vips, vips.data, vips.privacy):
        for name in face.__all__:
            thing = getattr(face, name)
            home = getattr(thing, "__module__", None)
            if isinstance(thing, type) or callable(thing):
                assert getattr(importlib.import_module(home), thing.__name__) is thing, name
