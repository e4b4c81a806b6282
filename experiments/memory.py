"""Resident memory of a process and its children, sampled while something runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

__all__ = ["largest_process"]

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
