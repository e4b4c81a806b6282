"""Private noise is drawn in one place: the release of totals, and the mechanism of a stream."""

import ast
from pathlib import Path

import vips

PACKAGE = Path(vips.__file__).parent

# Functions that draw noise, and the modules that may call them. Audit and attack look at the noise itself.
CALLERS = {
    "add_noise": {"core/mechanism/release.py", "core/plan.py", "tools/auditing/attack.py", "tools/auditing/noise.py"},
    "add_discrete_noise": {"core/plan.py"},
    "gaussian_noise": {"core/mechanism/noise.py", "streams/release.py"},
    "discrete_noise": {"core/mechanism/noise.py", "streams/release.py"},
    "noise_bits": {"core/plan.py", "streams/release.py"},
    "with_fresh_noise": {"core/ledger/run.py"},
}


def callers(names):
    """Modules that call functions of these names, or pass them on."""
    files = {name: set() for name in names}
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if not any(name in source for name in names):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", None))
                if called in files:
                    files[called].add(path.relative_to(PACKAGE).as_posix())
    return files


def test_noise_is_drawn_where_totals_are_released_and_nowhere_else():
    assert callers(CALLERS) == CALLERS
