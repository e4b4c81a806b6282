"""Processes that are killed at any moment of a batch: nothing is lost, and no batch has two releases.

What was released is written to a log beside the stream, by the process that releases, and compared with the stream's files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests import ROOT

SCRIPT = """
import json, os, sys
import numpy as np
from vips import DirichletMultinomial, PrivacyLedger, StreamError, StreamPlan
folder, n = sys.argv[1], int(sys.argv[2])
ledger = PrivacyLedger(folder + "/x.ledger", epsilon=1.25, delta=1e-5, dataset="letters")
plan = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=n)
log = open(folder + "/log", "a")
def say(model):
    print(json.dumps([model.n_batches_seen_, model.noisy_totals_.average["counts"].tolist()]), file=log, flush=True)
    os.fsync(log.fileno())
model = DirichletMultinomial(privacy=plan)
try:
    if os.path.exists(folder + "/s.vips.secret"):
        model.partial_fit(None, ledger=ledger, checkpoint=folder + "/s.vips")
    else:
        model.partial_fit(np.eye(3)[[0, 1]], ledger=ledger, checkpoint=folder + "/s.vips")
    say(model)
    print("ready", flush=True)
    while getattr(model, "n_batches_seen_", 0) < n:
        model.partial_fit(np.eye(3)[[0, 1]], ledger=ledger, checkpoint=folder + "/s.vips")
        say(model)
except Exception as error:
    print(repr(error), flush=True)
    raise
print("end", flush=True)
"""


def run_and_kill(folder: Path, n_batches: int, after: float | None) -> str:
    """Run the script, kill it so many seconds after it is ready, and return what it printed."""
    command = [sys.executable, "-c", SCRIPT, str(folder), str(n_batches)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        if after is not None:
            time.sleep(after)
            os.kill(process.pid, signal.SIGKILL)
        return first + process.stdout.read()


def check_kills(folder: Path, n_kills: int, seed: int) -> None:
    rng, n_batches = np.random.default_rng(seed), 40 * n_kills
    killed, log = 0, folder / "log"
    # on a busy machine most processes die before their first batch: the others wait longer, until there are enough
    while killed < n_kills or log.read_text().count("\n") <= n_kills // 2:
        printed = run_and_kill(folder, n_batches, float(rng.uniform(0.0, 0.06)) * 2.0 ** (killed // n_kills))
        assert "Error" not in printed, printed
        killed += 1
        if "end" in printed:
            break
    run_and_kill(folder, n_batches, 0.01)
    lines = [line for line in log.read_text().splitlines() if line.endswith("]]")]
    seen: dict[int, list] = {}
    for t, released in map(json.loads, lines):
        assert seen.setdefault(t, released) == released, f"batch {t} was released twice"
    assert sorted(seen) == list(range(1, max(seen) + 1)), "a release was lost"
    from vips import PrivacyLedger

    runs = PrivacyLedger(folder / "x.ledger", epsilon=1.25, delta=1e-5, dataset="letters").runs()
    assert len(runs) == 1, "the stream was charged more than once, or not at all"


@pytest.mark.thorough
def test_kills_lose_nothing_and_release_nothing_twice(tmp_path):
    check_kills(tmp_path, 2, seed=0)


@pytest.mark.slow
def test_two_hundred_kills(tmp_path):
    check_kills(tmp_path, 200, seed=1)
