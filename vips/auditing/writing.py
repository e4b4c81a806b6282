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

_SHOWN = (str, bytes, os.PathLike, int, tuple, list)  # other arguments are objects with an address


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
