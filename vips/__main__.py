"""``python -m vips``: private fits, predictions, certificates, privacy questions and ledgers from the shell."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from types import SimpleNamespace
from typing import Any

from vips._support.printable import printable
from vips.exceptions import PrivacyBudgetError
from vips.tools.commands.parsers import configured, parser_of_commands

_INTERRUPTED, _NO_READER = 128 + 2, 128 + 13  # as the shell shows commands that SIGINT and SIGPIPE have ended
_LOGGER = logging.getLogger("vips")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status, which ``--help`` explains.

    Guarantees
    ----------
    In ``fit`` the status and every line of the logger ``vips`` are functions of arguments, schema, ledger and machine, and of
    what the fit releases. No cell and no row decides them.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what is paid for is shown on a terminal of any encoding
            stream.reconfigure(errors="backslashreplace")
    with _logged():
        try:
            options = parser_of_commands().parse_args(configured(sys.argv[1:] if arguments is None else arguments))
            with warnings.catch_warnings(), _without_notes() if options.quiet else nullcontext():
                warnings.showwarning = lambda message, *_: _LOGGER.warning("Note: %s", message)
                status = options.run(options)
                sys.stdout.flush()
        except BrokenPipeError:
            return _NO_READER
        except KeyboardInterrupt:
            _LOGGER.error("Interrupted. `python -m vips ledger show` says what stays charged.")
            return _INTERRUPTED
        except (ImportError, KeyError, TypeError, ValueError, OSError) as error:
            _LOGGER.error("%s: %s", type(error).__name__, error)
            return 3 if isinstance(error, PrivacyBudgetError) else 2
    return status or 0


@contextmanager
def _logged() -> Iterator[None]:
    """The logger writes to the error stream: what goes wrong, notes, and on a terminal what is being done."""
    handler, level = logging.StreamHandler(), _LOGGER.level
    handler.format = lambda record: printable(record.getMessage())  # type: ignore[method-assign]
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO if sys.stderr.isatty() else logging.WARNING)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(level)


def _without_notes() -> redirect_stderr:
    """Errors alone are logged; no bar is drawn where there is no terminal."""
    _LOGGER.setLevel(logging.ERROR)
    stream: Any = SimpleNamespace(write=sys.stderr.write, flush=sys.stderr.flush, isatty=lambda: False)
    return redirect_stderr(stream)


if __name__ == "__main__":
    status = main()
    if status == _NO_READER:  # Python would write what is left when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
