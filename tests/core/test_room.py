"""The core is a room of its own: a process that imports all of it loads nothing else of vips but what it stands on."""

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import vips.core

MOST_FILES, MOST_LINES = 90, 12_100
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
