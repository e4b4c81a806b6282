"""Audits find output to streams, loggers, files and processes that depends on the records."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.tools.auditing.leaky import Coins, missed, replayed, summary_of
from vips.tools.auditing.replay import finding

C_LIBRARY = ctypes.CDLL(None)
QUIET = logging.getLogger("tests.quiet")
QUIET.propagate = False
QUIET.setLevel(logging.ERROR)
OWN_HANDLER = logging.getLogger("tests.own_handler")
OWN_HANDLER.propagate = False
OWN_HANDLER.addHandler(logging.StreamHandler(sys.__stderr__))


def in_a_thread(records):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(print, summary_of(records)).result()


SAYS = {
    "print": lambda records: print(summary_of(records)),
    "a value": lambda records: print("large" if records.sum() > 70 else "small"),
    "stderr": lambda records: sys.stderr.write(f"{summary_of(records)}\n"),
    "the first stderr": lambda records: sys.__stderr__.write(f"{summary_of(records)}\n"),
    "descriptor 1": lambda records: os.write(1, summary_of(records).encode()),
    "descriptor 2": lambda records: os.write(2, summary_of(records).encode()),
    "C": lambda records: C_LIBRARY.puts(summary_of(records).encode()),
    "a thread": in_a_thread,
    "a child process": lambda records: subprocess.run(
        ["head", "-c", "5"], input=summary_of(records).encode(), check=False
    ),
    "logging, root": lambda records: logging.warning("%s ones", summary_of(records)),
    "logging, debug": lambda records: logging.getLogger("tests.debug").debug("%s ones", summary_of(records)),
    "logging, not propagated": lambda records: QUIET.info("%s ones", summary_of(records)),
    "logging, own handler": lambda records: OWN_HANDLER.error("%s ones", summary_of(records)),
    "logging, extra": lambda records: logging.getLogger("tests.extra").debug("", extra={"n": summary_of(records)}),
}


class Tells(Coins):
    """Calls an action with the records in the E-step, or in a method that takes them."""

    def __init__(self, action="", hook="expected_statistics", privacy=None, random_state=None):
        self.action, self.hook, self.privacy, self.random_state = action, hook, privacy, random_state

    def _tell(self, records, hook):
        if hook == self.hook:
            ACTIONS[self.action](records)

    def fit(self, X, y=None, **options):
        self._tell(X, "fit")
        return super().fit(X, y, **options)

    def valid_records(self, records):
        self._tell(records, "valid_records")
        return super().valid_records(records)

    def expected_statistics(self, records, posterior):
        self._tell(records, "expected_statistics")
        return super().expected_statistics(records, posterior)

    def to_posterior(self, average, noise_std, previous):
        self._tell(None, "to_posterior")
        return super().to_posterior(average, noise_std, previous)


def warned(records):
    warnings.warn(summary_of(records), stacklevel=2)


def counted_among_times(records):
    print(f"{time.time_ns()}\n{summary_of(records)}")


# -- files ----------------------------------------------------------------------------------------


def opened(records):
    with open("leak", "w") as file:
        file.write(summary_of(records))


def with_os_open(records):
    descriptor = os.open("leak", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, summary_of(records).encode())
    os.close(descriptor)


def appended(records):
    with open("log", "a") as file:
        file.write(f"{summary_of(records)}\n")


def renamed(records):
    Path("leak.tmp").write_text(summary_of(records))
    os.replace("leak.tmp", "renamed")


def temporary(records):
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
        file.write(summary_of(records))


def kept_open(records, files=[]):  # noqa: B006
    if not files:
        files.append(open("kept open", "w"))  # noqa: SIM115
    files[0].write(f"{summary_of(records)}\n")


FILES = {
    "open": opened, "os.open": with_os_open, "numpy": lambda records: np.save("leak", records),
    "pathlib": lambda records: Path("leak").write_bytes(records.tobytes()), "appended": appended,
    "renamed": renamed, "a temporary file": temporary,
    "a name": lambda records: Path(f"leak {summary_of(records)}").touch(),
    "a folder": lambda records: Path(f"folder {summary_of(records)}").mkdir(exist_ok=True),
    "a process": lambda records: subprocess.run(["true", summary_of(records)], check=False),
    "a file that stays open": kept_open,  # and is written when the last fit ends
}  # fmt: skip


# -- output that tells nothing about the records --------------------------------------------------

HARMLESS = {
    "text": lambda _: print("a step"),
    "descriptor": lambda _: os.write(2, b"a step\n"),
    "logging": lambda _: logging.getLogger("tests.step").info("a step"),
    "a file": lambda _: Path("public").write_text("3 steps"),
    "a line in a file": lambda _: open("lines", "a").write("a step\n"),  # noqa: SIM115
}


def random_name(_):
    tempfile.TemporaryDirectory(dir=".").cleanup()
    Path(f"log-{time.time_ns()}").write_text("a step")


CHANGING = {
    "times": lambda _: print(f"a step\ntook {time.perf_counter():.6f} s"),
    "times in logs": lambda _: logging.getLogger("tests.step").info("took %.9f s", time.perf_counter()),
    "names of files": random_name,
}

ACTIONS = SAYS | {"warned": warned, "counted among times": counted_among_times} | HARMLESS | CHANGING | FILES


@pytest.fixture(scope="module")
def findings(tmp_path_factory, forked):
    models = {hook: Tells("logging, debug", hook) for hook in ("fit", "valid_records")}
    hooks = dict.fromkeys(HARMLESS | CHANGING, "to_posterior")
    models |= {name: Tells(name, hooks.get(name, "expected_statistics")) for name in ACTIONS}
    with contextlib.chdir(tmp_path_factory.mktemp("folder")):
        return replayed(models)


def test_what_depends_on_the_records_is_found(findings):
    assert not missed(findings, [*SAYS, "counted among times", "fit", "valid_records"], "output")
    assert not missed(findings, FILES, "files and processes")
    assert not missed(findings, ["warned"], "errors and warnings")


def test_output_that_is_always_the_same_passes(findings):
    assert all(finding.passed for name in HARMLESS for finding in findings[name].values())


def test_output_that_changes_from_fit_to_fit_is_only_noted(findings):
    for name in CHANGING:
        assert all(finding.passed is not False for finding in findings[name].values())
        noted = findings[name]["files and processes" if name == "names of files" else "output"]
        assert noted.passed is None
        assert "differs between fits to the same" in noted.measured


def test_output_that_changes_now_and_then_passes():
    coins = np.random.default_rng(0).integers(0, 2, (4, 20))
    runs = [[{"output": {"stdout": f"took {coin} s"}} for coin in run] for run in coins]
    assert finding("output", 2, [str(i) for i in range(20)], runs).passed is None
