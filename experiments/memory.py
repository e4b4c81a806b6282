"""Resident memory of a process and its children, sampled while something runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

__all__ = ["largest_process", "run_alone", "run_here"]

_SECONDS = 0.05


@contextmanager
def largest_process(pid: int | None = None) -> Iterator[dict[str, float]]:
    """Watch a process (this one by default) and its descendants while active; ``largest_mib`` is the size of the largest."""
    sizes, stop = {"largest_mib": 0.0}, threading.Event()
    root = psutil.Process(pid)

    def watch() -> None:
        look()  # at least once
        while not stop.wait(_SECONDS):
            look()

    def look() -> None:
        try:
            family = [root, *root.children(recursive=True)]
        except psutil.Error:
            return
        for process in family:
            try:
                sizes["largest_mib"] = max(sizes["largest_mib"], process.memory_info().rss / 2**20)
            except psutil.Error:
                continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield sizes
    finally:
        stop.set()
        watcher.join()


def run_alone(arguments: list[str]) -> dict:
    """Run ``python -m experiments`` with these arguments in its own process, whose last line is JSON; adds ``MiB``, the largest
    resident memory among that process and its children."""
    command = [sys.executable, "-m", "experiments", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    with largest_process(process.pid) as memory:
        printed, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"`{' '.join(arguments)}` ended with status {process.returncode}.")
    return json.loads(printed) | {"MiB": memory["largest_mib"]}


def run_here(fit: Callable[..., dict], *arguments: object) -> dict:
    """The same in this process; a quick run has no time to start another."""
    with largest_process() as memory:
        measured = fit(*arguments)
    return measured | {"MiB": memory["largest_mib"]}
