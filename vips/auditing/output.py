"""Text that a fit writes to the standard streams, to their file descriptors, and to loggers."""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

__all__ = ["listening"]

_DESCRIPTORS = {"descriptor 1": 1, "descriptor 2": 2}
_COMPILERS = ("numba",)  # at low levels they log each function once, when they compile it


@contextlib.contextmanager
def listening() -> Iterator[dict[str, str]]:
    """Hold back all output of the block, from every thread, and collect it.

    Loggers log everything, whatever their levels: another user may set lower levels.

    Yields
    ------
    dict of str to str
        Filled at the end of the block: text by "stdout", "stderr", "descriptor 1", "descriptor 2" and "logging".
    """
    text: dict[str, str] = {}
    out, err, records = io.StringIO(), io.StringIO(), []
    try:
        with _descriptors(text), _loggers(records), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield text
    finally:
        text |= {"stdout": out.getvalue(), "stderr": err.getvalue(), "logging": "\n".join(records)}


@contextlib.contextmanager
def _descriptors(text: dict[str, str]) -> Iterator[None]:
    """Point descriptors 1 and 2 at files: ``os.write``, C libraries and child processes write to them."""
    kept = {}
    _flush()
    for name, number in _DESCRIPTORS.items():
        with contextlib.suppress(OSError):  # a process without a console has no such descriptors
            kept[name] = os.dup(number), tempfile.TemporaryFile()  # noqa: SIM115
            os.dup2(kept[name][1].fileno(), number)
    try:
        yield
    finally:
        _flush()
        for name, (original, file) in kept.items():
            os.dup2(original, _DESCRIPTORS[name])
            os.close(original)
            file.seek(0)
            text[name] = file.read().decode("utf-8", "backslashreplace")
            file.close()


def _flush() -> None:
    """Empty the buffers of Python's streams and of C's."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # a stream can be None, closed, or an object of any class
            stream.flush()
    if _c_library is not None:
        _c_library.fflush(None)


def _load_c_library() -> ctypes.CDLL | None:
    with contextlib.suppress(Exception):
        library = ctypes.CDLL(None)
        library.fflush.argtypes = [ctypes.c_void_p]
        return library
    return None


_c_library = _load_c_library()


@contextlib.contextmanager
def _loggers(records: list[str]) -> Iterator[None]:
    """Collect what any logger is given, before levels, filters and handlers see it."""
    enabled, handle = logging.Logger.isEnabledFor, logging.Logger.handle

    def is_enabled(logger: logging.Logger, level: int) -> bool:
        return not logger.name.startswith(_COMPILERS) or enabled(logger, level)

    def collect(logger: logging.Logger, record: logging.LogRecord) -> None:
        records.append(f"{record.name} {record.levelname}: {_message(record)}")

    logging.Logger.isEnabledFor, logging.Logger.handle = is_enabled, collect
    try:
        yield
    finally:
        logging.Logger.isEnabledFor, logging.Logger.handle = enabled, handle


def _message(record: logging.LogRecord) -> str:
    """The text of a log record, with its error and its extra attributes."""
    usual = logging.makeLogRecord({}).__dict__
    extra = {name: value for name, value in record.__dict__.items() if name not in usual}
    with contextlib.suppress(Exception):
        error = "" if not record.exc_info else f" {record.exc_info[1]!r}"
        return f"{record.getMessage()}{error}{extra or ''}"
    return f"{record.msg!r} {record.args!r}"
