"""Fits in new Python processes, where no earlier fit has left anything behind; and what each of them shows.

A process gets models by value where their classes cannot be imported, as those of a notebook or script. It runs no script.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import pickle
import random
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np

from vips.auditing.contents import Contents, is_importable
from vips.auditing.frozen import FrozenPlan, fit, unfitted
from vips.auditing.records import Table
from vips.auditing.writing import Written
from vips.report import report

__all__ = ["Fit", "Process", "Shown", "pickled", "shown_by", "two_processes"]

CODE = "from vips.auditing.child import main"
_STREAMS = ("stdout", "stderr")
_COMPILERS = ("numba", "llvmlite")  # they log each function once, when they compile it

Shown = dict[str, dict[str, str]]  # aspect (as in the names of the findings) -> name -> text
Process = tuple[subprocess.Popen, Path]  # and the folder that takes its output


@dataclass(frozen=True)
class Fit:
    """A fit to run: a model (see :func:`pickled`), its plan and records."""

    model: bytes
    plan: FrozenPlan
    table: Table


def pickled(model: object) -> bytes:
    """The model for another process, with its class if that cannot be imported there."""
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(model)
    except Exception as error:
        raise _not_sent(f"{type(error).__name__}: {error}") from error
    return stream.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Also sends caches of functions that cannot be imported, without their entries."""

    def reducer_override(self, value):
        if isinstance(value, functools._lru_cache_wrapper) and not is_importable(value):
            return _cached, (value.__wrapped__, value.cache_parameters())
        return super().reducer_override(value)


def _cached(function: Callable, parameters: dict) -> Callable:
    return functools.lru_cache(**parameters)(function)


def _not_sent(reason: str) -> ValueError:
    return ValueError(
        f"An audit fits the model in another Python process, which failed. {reason}\nWrite its class in a module that Python "
        "finds there, or in the script itself, and let parameters, closures and globals of the class hold nothing that cannot "
        "be pickled, such as open files and locks."
    )


# -- in this process ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def two_processes() -> Iterator[list[Process]]:
    """Start two new Python processes, which import what fits need; they end with the block."""
    with _process() as first, _process() as second:
        yield [first, second]


def shown_by(processes: Sequence[Process], lists: Sequence[Sequence[Fit]]) -> list[list[Shown]]:
    """Run each list of fits in a process of its own, one after the other: all may write the same files."""
    return [_shown_by(*process, fits) for process, fits in zip(processes, lists, strict=True)]


@contextlib.contextmanager
def _process() -> Iterator[Process]:
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # the order of sets is the same in every process
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        code = f"import sys; sys.path[:] = {sys.path!r}; {CODE}; main({name!r})"
        command = [sys.executable, "-u", "-c", code]
        stdout, stderr = (stack.enter_context(open(Path(name, stream), "wb")) for stream in _STREAMS)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=environment)
        try:
            yield process, Path(name)
        finally:
            process.kill()
            process.communicate()


def _shown_by(process: subprocess.Popen, folder: Path, fits: Sequence[Fit]) -> list[Shown]:
    process.communicate(pickle.dumps(list(fits)))
    streams = {name: (folder / name).read_text("utf-8", "backslashreplace") for name in _STREAMS}
    if process.returncode:
        raise _not_sent("".join(streams["stderr"].splitlines()[-1:]) or f"Its exit code is {process.returncode}.")
    shown = pickle.loads((folder / "shown").read_bytes())
    shown[-1]["output"] |= {f"{name} in all": text for name, text in streams.items()}  # some is written at the end
    return shown


# -- in the other process ----------------------------------------------------------------------------------------


def main(folder: str) -> None:
    """Run the fits that come by standard input; this process writes its output to files in ``folder``."""
    fits = pickle.load(sys.stdin.buffer)
    written, streams = Written(), {name: open(Path(folder, name), "rb") for name in _STREAMS}  # noqa: SIM115
    _log_everything()
    report.today = str  # at midnight, fits would differ
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    load, shown = functools.cache(pickle.loads), []
    models = [load(request.model) for request in fits]
    contents = Contents(models)
    for i, (model, request) in enumerate(zip(models, fits, strict=True), 1):
        shown.append(_shown(unfitted(model, request.plan), request.table, contents))
        texts = {name: stream.read().decode(errors="backslashreplace") for name, stream in streams.items()}
        shown[-1] |= {"output": texts, "files and processes": written.shown(is_last=i == len(fits))}
    Path(folder, "shown").write_bytes(pickle.dumps(shown))


def _shown(model, table: Table, contents: Contents) -> Shown:
    noted, messages = {}, {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fit(model, table, lambda name, value: noted.update({name: contents.digest(value)}))
        except BaseException as error:
            messages["error"] = "".join(_chain(error))
    messages |= {f"warning {i}": f"{warning.category.__name__}: {warning.message}" for i, warning in enumerate(caught)}
    steps = {f"shapes {i}": str(shapes) for i, shapes in enumerate(model.privacy.seen)}
    steps["number"] = str(len(model.privacy.seen))
    return {
        "errors and warnings": messages,
        "steps": steps | {name: text for name, text in noted.items() if name.startswith("step size")},
        "posterior": {name: text for name, text in noted.items() if name.startswith("posterior")},
        "fitted object": contents.of_model(model),
        "classes and modules": contents.changed(),
    }


def _chain(error: BaseException | None) -> Iterator[str]:
    """Text of an error, its notes, and the errors that led to it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield from traceback.format_exception_only(error)
        error = error.__cause__ or error.__context__


def _log_everything() -> None:
    """Loggers write to standard error, whatever their levels, filters and handlers: another user may set others."""
    enabled, usual = logging.Logger.isEnabledFor, logging.makeLogRecord({}).__dict__

    def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
        extra = {name: value for name, value in vars(record).items() if name not in usual}
        print(record.name, record.levelname, record.msg, record.args, record.exc_info, extra or "", file=sys.stderr)

    logging.Logger.handle = handle
    logging.Logger.isEnabledFor = lambda logger, level: not logger.name.startswith(_COMPILERS) or enabled(logger, level)
