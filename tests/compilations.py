"""A plugin of pytest: at the end it names the kernels that workers compiled. `make test` compiles most before they start.

Kernels that a test compiles in a process of its own, or after it has emptied the cache, are not counted.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from numba.core import event

_KEY, _SECONDS = "kernels", "seconds"
_compiled: Counter[str] = Counter()  # times that a kernel was compiled, and seconds of all


class _Listener(event.Listener):
    """A kernel may compile others: the outermost one has their seconds."""

    depth, begun = 0, 0.0

    def on_start(self, event):
        if self.depth == 0:
            self.begun = time.perf_counter()
        self.depth += 1
        _compiled[event.data["dispatcher"].py_func.__qualname__] += 1

    def on_end(self, event):
        self.depth -= 1
        if self.depth == 0:
            _compiled[_SECONDS] += time.perf_counter() - self.begun


def pytest_configure() -> None:
    event.register("numba:compile", _Listener())


def pytest_sessionfinish(session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_KEY] = dict(_compiled)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    _compiled.update(getattr(node, "workeroutput", {}).get(_KEY, {}))


def pytest_terminal_summary(terminalreporter) -> None:
    names = {name: number for name, number in _compiled.items() if name != _SECONDS and "<locals>" not in name}
    listed = ", ".join(f"{name} {number}" for name, number in sorted(names.items()))
    seconds = _compiled[_SECONDS]
    terminalreporter.write_line(f"{sum(names.values())} kernels compiled in {seconds:.0f} s: {listed or 'none'}")
