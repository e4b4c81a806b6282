"""Files that a fit writes, and other requests to the operating system, as seen by Python's audit events.

Python cannot remove a hook for audit events. The first audit adds one to the process; it does nothing outside of an audit.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Iterator

from vips.auditing.reach import digest

__all__ = ["Written", "watching"]

MOST_BYTES, MOST_TEXT = 2**24, 2**16  # of one file
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_NAMELESS = getattr(os, "O_TMPFILE", 0) & ~getattr(os, "O_DIRECTORY", 0)
_COMPILED = (".pyc", ".nbi", ".nbc")  # caches of Python and numba, under these names and temporary ones
# Changes of the file system and the environment: event -> how many of its arguments are compared.
_CHANGES = {
    "os.remove": 1, "os.rename": 2, "os.mkdir": 1, "os.rmdir": 1, "os.link": 2, "os.symlink": 2, "os.truncate": 2,
    "os.chmod": 2, "os.chown": 3, "os.utime": 1, "os.setxattr": 3, "os.chdir": 1, "os.putenv": 2, "os.unsetenv": 1,
}  # fmt: skip
# Communication: the event and its arguments are compared; the content that follows is not seen.
_OTHERS = (
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.startfile",
    "pty.spawn", "sqlite3.connect", "syslog.syslog", "urllib.Request", "webbrowser.open",
)  # fmt: skip
_DESCRIPTORS = next((each for each in ("/proc/self/fd", "/dev/fd") if os.path.isdir(each)), None)


class Written:
    """What one fit did to files and sent to others.

    Attributes
    ----------
    events : list of str
        Files opened for writing, changes of the file system, connections, processes.
    contents : dict of str to str
        What was written, by name of the file.
    unseen : list of str
        Events whose content was not seen.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.contents: dict[str, str] = {}
        self.unseen: list[str] = []
        self._starts: dict[str, int] = {}  # path -> first byte that the fit wrote
        self._temporary: dict[str, str] = {}
        self._lock = threading.Lock()
        self._noting: int | None = None  # the thread that is in `note`

    def note(self, event: str, arguments: tuple) -> None:
        """Note one audit event, from any thread."""
        if self._noting == threading.get_ident():  # an event of this method itself
            return
        with self._lock:
            self._noting = threading.get_ident()
            try:
                self._note(event, arguments)
            finally:
                self._noting = None

    def finish(self) -> None:
        """Read what was written."""
        for path, start in self._starts.items():
            self.contents[self._name(path)] = _content(path, start)

    def _note(self, event: str, arguments: tuple) -> None:
        if event in ("tempfile.mkstemp", "tempfile.mkdtemp"):
            self._temporary[_path(arguments[0])] = f"<temporary {len(self._temporary)}>"
        elif event == "open":
            self._opened(*arguments)
        elif event in _CHANGES:
            self._changed(event, arguments)
        elif event in _OTHERS:
            shown = f"{event} {[each for each in arguments if isinstance(each, str | bytes | tuple | list)]!r}"
            self.events.append(shown)
            self.unseen.append(shown)

    def _opened(self, file: object, mode: str | None, flags: int) -> None:
        if not flags & _WRITES or not isinstance(file, str | bytes) or os.fsdecode(file) == os.devnull:
            return
        path = _path(file)
        if _is_compiled(path):
            return
        if os.path.isdir(path):
            if mode is not None or flags & _NAMELESS:
                self.unseen.append(f"a file without a name in {self._name(path)}")
        elif path not in self._starts:
            appended = flags & os.O_APPEND and os.path.isfile(path)
            self._starts[path] = os.path.getsize(path) if appended else 0
        self.events.append(f"open {self._name(path)}")

    def _changed(self, event: str, arguments: tuple) -> None:
        path = _path(arguments[0])
        if _is_compiled(path):
            return
        if event == "os.remove" and path in self._starts:
            self.contents[self._name(path)] = f"removed, {_content(path, self._starts.pop(path))}"
            self.unseen.append(f"{self._name(path)}, which was removed")
        if event == "os.rename":
            self._starts.pop(path, None)
            self._starts[_path(arguments[1])] = 0
        shown = ["an open file" if isinstance(arguments[0], int) else self._name(path)]
        for each in arguments[1 : _CHANGES[event]]:
            shown.append(self._name(_path(each)) if event in ("os.rename", "os.link") else repr(each))
        self.events.append(" ".join([event, *shown]))

    def _name(self, path: str) -> str:
        """The path, without the random part of the name of a temporary file."""
        for root, name in self._temporary.items():
            if path == root or path.startswith(root + os.sep):
                name = f"{name} of {len(root)} characters{os.path.splitext(root)[1]}"
                return os.path.join(os.path.dirname(root), name + path.removeprefix(root))
        return path


@contextlib.contextmanager
def watching() -> Iterator[Written]:
    """Note what any thread does to files in the block."""
    global _written, _is_installed
    if not _is_installed:
        sys.addaudithook(_hook)
        _is_installed = True
    written = Written()
    before = _open_for_writing()
    _written = written
    try:
        yield written
    finally:
        _written = None
        written.finish()
        written.contents |= _grown(before)


_written: Written | None = None
_is_installed = False


def _hook(event: str, arguments: tuple) -> None:
    written = _written
    if written is not None:
        written.note(event, arguments)


def _path(file: object) -> str:
    return os.path.abspath(os.fsdecode(file)) if isinstance(file, str | bytes) else repr(file)


def _is_compiled(path: str) -> bool:
    return any(ending in os.path.basename(path) for ending in _COMPILED)


def _content(path: str, start: int = 0) -> str:
    """A file from byte ``start`` on: its text if that is short, else size and digest."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "no file"
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(MOST_BYTES)
    except OSError as error:
        return f"not there: {error.strerror}"
    with contextlib.suppress(UnicodeDecodeError):
        if len(data) <= MOST_TEXT:
            return data.decode()
    return f"{status.st_size - start} bytes, {digest(data)}"


def _open_for_writing() -> dict[int, os.stat_result]:
    """Open descriptors of ordinary files that can be written to, apart from the standard streams."""
    if _DESCRIPTORS is None:
        return {}
    import fcntl

    found = {}
    for number in map(int, os.listdir(_DESCRIPTORS)):
        with contextlib.suppress(OSError):
            status, access = os.fstat(number), fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
            if stat.S_ISREG(status.st_mode) and access != os.O_RDONLY:
                found[number] = status
    standard = [_identity(found[number]) for number in (1, 2) if number in found]
    return {number: status for number, status in found.items() if _identity(status) not in standard}


def _grown(before: dict[int, os.stat_result]) -> dict[str, str]:
    """What was written to files that were open before."""
    found = {}
    for number, now in _open_for_writing().items():
        old = before.get(number)
        if old is None or _identity(old) != _identity(now):
            continue
        if (old.st_mtime_ns, old.st_size) == (now.st_mtime_ns, now.st_size):
            continue
        start = old.st_size if now.st_size > old.st_size else 0
        found[f"a file that was open before ({_opened_as(number)})"] = _content(f"{_DESCRIPTORS}/{number}", start)
    return found


def _opened_as(number: int) -> str:
    """The path of an open file, if the system tells it: names that differ only by a number are compared as one."""
    try:
        return os.readlink(f"{_DESCRIPTORS}/{number}")
    except OSError:
        return f"descriptor {number}"


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
