"""Audits find output to streams, loggers, files and processes that depends on the records."""

from __future__ import annotations

import ctypes
import logging
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.auditing.leaky import Coins, replayed, summary_of, with_e_step, with_step

pytestmark = pytest.mark.usefixtures("one_thread")

C_LIBRARY = ctypes.CDLL(None)
QUIET = logging.getLogger("tests.quiet")
QUIET.propagate = False
QUIET.setLevel(logging.ERROR)
OWN_HANDLER = logging.getLogger("tests.own_handler")
OWN_HANDLER.propagate = False
OWN_HANDLER.addHandler(logging.StreamHandler(sys.__stderr__))


def in_a_thread(records):
    thread = threading.Thread(target=print, args=(summary_of(records),))
    thread.start()
    thread.join()


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


@pytest.mark.parametrize("say", SAYS.values(), ids=SAYS)
def test_output_that_depends_on_the_records_is_found(say):
    findings = replayed(with_e_step(say))
    assert findings["output"].passed is False


@pytest.mark.filterwarnings("ignore:[0-9]+:UserWarning")
def test_warnings_that_depend_on_the_records_are_found():
    findings = replayed(with_e_step(lambda records: warnings.warn(f"{summary_of(records)}", stacklevel=2)))
    assert findings["errors and warnings"].passed is False


@pytest.mark.parametrize("hook", ["fit", "valid_records"])
def test_output_of_any_method_is_heard(hook):
    class Loud(Coins):
        pass

    def loud(self, records, *arguments, **options):
        logging.getLogger("tests.hook").debug("%s", summary_of(records))
        return getattr(Coins, hook)(self, records, *arguments, **options)

    setattr(Loud, hook, loud)
    assert replayed(Loud)["output"].passed is False


# -- files ----------------------------------------------------------------------------------------


def opened(records):
    with open("leak", "w") as file:
        file.write(summary_of(records))


def with_os_open(records):
    descriptor = os.open("leak", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, summary_of(records).encode())
    os.close(descriptor)


def appended(records):
    with open("leak", "a") as file:
        file.write(f"{summary_of(records)}\n")


def renamed(records):
    Path("leak.tmp").write_text(summary_of(records))
    os.replace("leak.tmp", "leak")


def temporary(records):
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
        file.write(summary_of(records))


FILES = {
    "open": opened,
    "os.open": with_os_open,
    "numpy": lambda records: np.save("leak", records),
    "pathlib": lambda records: Path("leak").write_bytes(records.tobytes()),
    "appended": appended,
    "renamed": renamed,
    "a temporary file": temporary,
    "a name": lambda records: Path(f"leak {summary_of(records)}").touch(),
    "a folder": lambda records: Path(f"folder {summary_of(records)}").mkdir(exist_ok=True),
    "a process": lambda records: subprocess.run(["true", summary_of(records)], check=False),
}


@pytest.mark.parametrize("write", FILES.values(), ids=FILES)
def test_files_and_processes_that_depend_on_the_records_are_found(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    findings = replayed(with_e_step(write))
    assert findings["files and processes"].passed is False


def test_files_that_were_open_before_are_read(tmp_path):
    with open(tmp_path / "log", "w") as file:

        def write(records):
            file.write(f"{summary_of(records)}\n")
            file.flush()

        findings = replayed(with_e_step(write))
    assert findings["files and processes"].passed is False


def test_a_file_that_was_open_before_does_not_hide_another(tmp_path):
    with open(tmp_path / "times", "w") as times, open(tmp_path / "log", "w") as file:

        def write(records):
            for log, text in ((times, "." * (time.time_ns() // 1000 % 100)), (file, summary_of(records))):
                log.write(text)
                log.flush()

        findings = replayed(with_e_step(write))
    assert findings["files and processes"].passed is False


# -- output that tells nothing about the records --------------------------------------------------


def write_a_public_file():
    Path("public").write_text("3 steps")


HARMLESS = {
    "text": lambda: print("a step"),
    "descriptor": lambda: os.write(2, b"a step\n"),
    "logging": lambda: logging.getLogger("tests.step").info("a step"),
    "a file": write_a_public_file,
}


@pytest.mark.parametrize("action", HARMLESS.values(), ids=HARMLESS)
def test_output_that_is_always_the_same_passes(action, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    findings = replayed(with_step(action))
    assert all(finding.passed is not False for finding in findings.values())
    assert findings["output"].passed
    assert findings["files and processes"].passed


def random_name():
    tempfile.TemporaryDirectory(dir=".").cleanup()
    Path(f"log-{time.time_ns()}").write_text("a step")


CHANGING = {
    "times": ("output", lambda: print(f"a step\ntook {time.perf_counter():.6f} s")),
    "times in logs": ("output", lambda: logging.getLogger("tests.step").info("took %.9f s", time.perf_counter())),
    "names of files": ("files and processes", random_name),
}


@pytest.mark.parametrize(("aspect", "action"), CHANGING.values(), ids=CHANGING)
def test_output_that_changes_from_fit_to_fit_is_only_noted(aspect, action, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    findings = replayed(with_step(action), repeats=10)
    assert all(finding.passed is not False for finding in findings.values())
    assert findings[aspect].passed is None
    assert "differs between fits to the same" in findings[aspect].measured


def test_output_that_changes_now_and_then_passes():
    coin = random.SystemRandom()
    findings = replayed(with_step(lambda: print(f"took {coin.getrandbits(1)} s")), repeats=8)
    assert findings["output"].passed is not False


def test_a_count_among_times_is_found():
    findings = replayed(with_e_step(lambda records: print(f"{time.time_ns()}\n{summary_of(records)}")))
    assert findings["output"].passed is False
