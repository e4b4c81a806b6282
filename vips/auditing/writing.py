"""Files that a process writes, and its other requests to the operating system, as Python's audit events tell them."""

from __future__ import annotations

import gc
import hashlib
import io
import os
import sys

__all__ = ["Written"]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_COMPILED = ("__pycache__", ".pyc", ".nbi", ".nbc")  # caches of Python and numba, under these names and temporary ones
_REQUESTS = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.utime", "os.system",
    "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile", "socket.", "subprocess.", "sqlite3.", "urllib.",
)  # fmt: skip


class Written:
    """What this process writes from now on. Python keeps it until the process ends: for a process of its own."""

    def __init__(self) -> None:
        self._requests: list[str] = []
        self._starts: dict[str, int] = {}  # path -> first byte that was written here
        self._files: dict[str, str] = {}  # path -> what was written
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
        texts = [os.fsdecode(each) if isinstance(each, bytes) else str(each) for each in arguments if _is_plain(each)]
        if any(ending in text for ending in _COMPILED for text in texts[:1]):
            return
        if event == "open" and isinstance(arguments[0], str | bytes) and arguments[2] & _WRITES:
            path = os.path.abspath(texts[0])
            self._requests.append(f"open {path}")
            self._starts.setdefault(path, _size(path) if arguments[2] & os.O_APPEND else 0)
        elif event.startswith(_REQUESTS):
            self._requests.append(f"{event} {texts}")
            if event == "os.rename":
                self._starts[os.path.abspath(texts[1])] = 0


def _is_plain(argument: object) -> bool:
    return isinstance(argument, str | bytes | int | tuple | list)


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


def _content(path: str, start: int) -> str:
    """Size and digest of a file from byte ``start`` on."""
    if not os.path.isfile(path):
        return "not there"
    with open(path, "rb") as file:
        file.seek(start)
        written = file.read()
    return f"{len(written)} bytes, {hashlib.blake2b(written, digest_size=12).hexdigest()}"
