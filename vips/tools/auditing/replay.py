"""Does anything but the noisy totals depend on the records? Fits whose noisy totals were fixed beforehand, in new processes.

Everything that such a fit shows must be the same for every data set. One process fits the same records over and over, another
one their neighbours; the i-th fits of both are compared. Output, files and modules may differ by chance, as times and names of
temporary files do: then both run again, and lines that differ between the two runs are not compared.

In a new process no earlier fit has left anything behind. It gets models by value where their classes cannot be imported, as
those of a notebook or script. It runs no script.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import numpy as np
from sklearn.base import clone

from vips._support.printable import listed
from vips.core.mechanism.sampling import PoissonCoins
from vips.core.phases import completed
from vips.core.plan import PrivacyPlan
from vips.report import report
from vips.tools.auditing.contents import Contents, Written, is_importable
from vips.tools.auditing.records import Table
from vips.tools.auditing.report import Finding
from vips.tools.auditing.search import as_numbers

__all__ = [
    "ADVICE", "KINDS", "Fit", "FrozenPlan", "Process", "Shown", "finding", "fit", "frozen", "pickled", "replay_findings",
    "shown_by", "two_processes", "unfitted", "watched",
]  # fmt: skip

KINDS = ("noisy", "sparse", "exact")
CODE = "from vips.tools.auditing.replay import main"
ADVICE = {
    "errors and warnings": "whether a fit raises or warns must not depend on a record: let `valid_records` drop it, and check "
    "public facts only.",
    "output": "what a fit prints or logs must not depend on a record, nor on their number, whatever the stream or level.",
    "files and processes": "what a fit writes to files or sends to other processes must not depend on a record, nor on their "
    "number.",
    "steps": "number, sizes and shapes of the steps must be public: no stopping on a bound, no step size or vocabulary "
    "computed from the records.",
    "posterior": "the posterior must be a function of noisy totals and constructor arguments. A model that needs the number of "
    "records must sum it, as a block `count`.",
    "fitted object": "everything that can be reached from the object is released with it: keep no count, vocabulary or cache "
    "of the records in attributes, posterior, report or parameters.",
    "classes and modules": "what a fit leaves in classes, modules, functions, the environment or global generators outlives "
    "the model: keep nothing of the records there.",
}
# Aspects that may differ by chance between two fits. The constructor and the totals determine the others.
_BY_CHANCE = ("output", "files and processes", "classes and modules")
_STREAMS = ("stdout", "stderr")
_COMPILERS = ("numba", "llvmlite")  # they log each function once, when they compile it

Shown = dict[str, dict[str, str]]  # aspect (as in the names of the findings) -> name -> text
Process = tuple[subprocess.Popen, Path]  # and the folder that takes its output


@dataclass(frozen=True, kw_only=True)
class FrozenPlan(PrivacyPlan):
    """A plan whose noisy totals are a function of (kind, step), whatever the total; ``seen`` gets the step and shapes of each.

    Totals are like those of a noisy fit; mostly zeros and a few large counts; or, not frozen at all, the total itself.
    """

    kind: str = "noisy"
    seen: list = field(default_factory=list, compare=False, repr=False)

    def sampler(self, randomness, step):
        """All records: random samples would make two fits to the same records differ."""
        return lambda partition: PoissonCoins(1.0, 0, step, partition)

    def add_noise(self, total, blocks, randomness, step):
        self.seen.append((step, {name: np.shape(value) for name, value in total.items()}))
        if self.kind == "exact":
            return as_numbers(total, blocks, self.of_step(step).lattice(blocks))
        rng = np.random.default_rng([step, self.kind == "sparse"])
        return {name: self._drawn(block, rng) for name, block in blocks.items()}

    def _drawn(self, block, rng) -> np.ndarray:
        size = self.clip_norm * block.scale
        if self.kind == "noisy":
            total = rng.normal(7.0 * size, 10.0 * size, block.shape)
        else:
            total = 300.0 * size * (rng.random(block.shape) < 0.05)
        return 0.5 * (total + np.swapaxes(total, -1, -2)) if block.symmetric else total


def frozen(plan: PrivacyPlan, n_steps: int, kind: str = "noisy") -> FrozenPlan:
    """The plan with fixed totals, in fewer steps."""
    plan = replace(plan.with_n_steps(n_steps), report_delta=None)
    return FrozenPlan(**{f.name: getattr(plan, f.name) for f in fields(PrivacyPlan)}, kind=kind)


def unfitted(model, plan: PrivacyPlan):
    """A clone with another plan."""
    return clone(model).set_params(privacy=plan, random_state=0)


def fit(model, table: Table, note: Callable[[str, object], None] = lambda name, value: None) -> list:
    """Fit ``model``, a clone with a frozen plan, and ``note`` what its methods return: the first posterior, and one a step."""
    model.privacy.seen.clear()
    posteriors = []

    def seen(average, noise_std, posterior) -> None:
        note(f"posterior after step {len(posteriors)}", (average, noise_std, posterior))
        posteriors.append(posterior)

    with watched(model, seen, lambda size: note(f"step size {len(posteriors)}", size)):
        table.fit(model)
    return posteriors


@contextlib.contextmanager
def watched(
    model, seen: Callable[..., None], seen_size: Callable[[object], None] = lambda size: None
) -> Iterator[None]:
    """Call ``seen(average, noise_std, posterior)`` at the start of fits and after each step, ``seen_size`` with step sizes."""
    start, phases = model.start, model.phases

    def noting(function, note):
        def noted(*arguments):
            result = function(*arguments)
            note(*arguments, result)
            return result

        return noted

    def seen_start(rng, result):
        average, posterior = result
        seen(average, dict.fromkeys(average, 0.0), posterior)

    def seen_update(average, noise_std, previous, posterior):
        seen(average, noise_std, posterior)

    def noted_phases(n_steps):
        noted = []
        for phase in completed(model, phases(n_steps), n_steps):
            end = None if phase.end is None else noting(phase.end, seen_update)
            size = noting(phase.step_size, lambda s, size: seen_size(size))
            noted.append(replace(phase, update=noting(phase.update, seen_update), end=end, step_size=size))
        return noted

    model.start, model.phases = noting(start, seen_start), noted_phases
    try:
        yield
    finally:
        del model.start, model.phases


# -- comparing what they show -------------------------------------------------------------------------------------------


def replay_findings(
    processes: Sequence[Process], model: bytes, plan: FrozenPlan, records: Table, neighbours: Mapping[str, Table]
) -> list[Finding]:
    """One finding for every aspect, from fits of the :func:`pickled` model to ``records`` and to their neighbours, by name."""
    tables = [records] * len(neighbours), list(neighbours.values())
    fits = [[Fit(model, plan, table) for table in tables_of_run] for tables_of_run in tables]
    same, others = again = shown_by(processes, fits)
    if any(a[aspect] != b[aspect] for a, b in zip(same, others, strict=True) for aspect in _BY_CHANCE):
        with two_processes() as more:
            again = shown_by(more, fits)
    return [finding(aspect, plan.n_steps, list(neighbours), [same, others, *again]) for aspect in ADVICE]


def finding(aspect: str, n_steps: int, neighbours: list[str], runs: list[list[Shown]]) -> Finding:
    """Compare the fits to the same records and to neighbours, both of which were run twice."""
    runs = [[shown[aspect] for shown in run] for run in runs]
    same, others, same_again, others_again = runs
    varying = set()
    if aspect in _BY_CHANCE:
        varying = set().union(*map(_differing, [*same, *others], [*same_again, *others_again]))
    measured, passed = "identical", True
    if varying:
        names = listed(sorted({name for name, _ in varying}), 3)
        measured, passed = f"identical, apart from what differs between fits to the same records: {names}", None
    if aspect == "steps" and same[0]["number"] != str(n_steps):
        measured, passed = f"{same[0]['number']} steps instead of the plan's {n_steps}", False
    for neighbour, *shown in reversed(list(zip(neighbours, *runs, strict=True))):
        places = _differing(*shown[:2]) & _differing(*shown[2:]) - varying
        if places:
            measured, passed = f"{neighbour}: {_text(aspect, places, *shown[:2])}", False
    checked = f"{len(neighbours)} fits to neighbours with the noisy totals fixed"
    return Finding(f"replay: {aspect}", checked, measured, "identical", passed, ADVICE[aspect])


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> set[tuple[str, int]]:
    """Names and line numbers of the lines that differ."""
    texts = [(name, first.get(name), second.get(name)) for name in {**first, **second}]
    lines = {name: zip_longest(*(str(text).split("\n") for text in pair)) for name, *pair in texts}
    return {(name, i) for name, pairs in lines.items() for i, (a, b) in enumerate(pairs) if a != b}


def _text(aspect: str, places: set[tuple[str, int]], expected: Mapping[str, str], shown: Mapping[str, str]) -> str:
    names = {name for name, _ in places}
    if aspect in ("errors and warnings", "steps"):
        name = min(names)
        return f"{name}: {_short(shown.get(name, 'nothing'))} instead of {_short(expected.get(name, 'nothing'))}"
    return listed(sorted(names), 3)  # no values: they may be secrets of this machine


def _short(text: str, length: int = 160) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


# -- sending fits --------------------------------------------------------------------------------------------------


class Fit(NamedTuple):
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
