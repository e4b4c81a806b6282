"""A plugin of pytest: at the end it names the kernels that workers compiled. `make test` compiles all before they start.

Kernels that a test compiles in a process of its own, or after it has emptied the cache, are not counted.
"""

from __future__ import annotations

from collections import Counter

import pytest
from numba.core import event

_KEY = "kernels that were compiled"
_compiled: Counter[str] = Counter()


class _Listener(event.Listener):
    def on_start(self, event):
        _compiled[event.data["dispatcher"].py_func.__qualname__] += 1

    def on_end(self, event):
        pass


def pytest_configure() -> None:
    event.register("numba:compile", _Listener())


def pytest_sessionfinish(session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_KEY] = dict(_compiled)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    _compiled.update(getattr(node, "workeroutput", {}).get(_KEY, {}))


def pytest_terminal_summary(terminalreporter) -> None:
    terminalreporter.write_line(f"{_compiled.total()} {_KEY}: {', '.join(sorted(_compiled)) or 'none'}")
