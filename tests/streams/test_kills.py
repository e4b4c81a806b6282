"""Processes that are killed at any moment of a batch: nothing is lost, and no batch has two releases.

What was released is written to a log beside the stream, by the process that releases, and compared with the stream's files.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from vips import DirichletMultinomial, PrivacyLedger, StreamPlan

ROWS = np.eye(3)[[0, 1]]


def plan_of(n_batches: int) -> StreamPlan:
    return StreamPlan(epsilon=1.0, delta=1e-6, n_batches=n_batches)


def stream(folder: Path, n_batches: int, say) -> None:
    """What a process does: it goes on with the stream, and logs every release."""
    ledger = PrivacyLedger(folder / "x.ledger", epsilon=1.25, delta=1e-5, dataset="letters")
    model = DirichletMultinomial(privacy=plan_of(n_batches))
    files = {"ledger": ledger, "checkpoint": folder / "s.vips"}
    with open(folder / "log", "a") as log:
        model.partial_fit(None if (folder / "s.vips.secret").exists() else ROWS, **files)
        while True:
            released = [model.n_batches_seen_, model.noisy_totals_.average["counts"].tolist()]
            print(json.dumps(released), file=log, flush=True)
            os.fsync(log.fileno())
            say("ready ")
            if model.n_batches_seen_ == n_batches:
                return
            model.partial_fit(ROWS, **files)


def run_and_kill(folder: Path, n_batches: int, after: float) -> str:
    """Fork a process, kill it so many seconds after it is ready, and return what it said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        say = lambda text: os.write(write, text.encode())  # noqa: E731
        try:
            stream(folder, n_batches, say)
            say("end")
        except BaseException as error:
            say(repr(error))
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        first = pipe.read(1)
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return first + pipe.read()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("n_kills", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_lose_nothing_and_release_nothing_twice(tmp_path, n_kills):
    rng, n_batches = np.random.default_rng(n_kills), 40 * n_kills
    killed, log = 0, tmp_path / "log"
    plan_of(n_batches).noise_std(1)  # searched once, and not in every process
    # on a busy machine most processes die before their first batch: the others wait longer, until there are enough
    while killed < n_kills or log.read_text().count("\n") <= 2 * n_kills:
        printed = run_and_kill(tmp_path, n_batches, float(rng.uniform(0.0, 0.2)) * 2.0 ** (killed // n_kills))
        assert "Error" not in printed, printed
        killed += 1
        if "end" in printed:
            break
    run_and_kill(tmp_path, n_batches, 0.01)
    lines = [line for line in log.read_text().splitlines() if line.endswith("]]")]
    seen: dict[int, list] = {}
    for t, released in map(json.loads, lines):
        assert seen.setdefault(t, released) == released, f"batch {t} was released twice"
    assert sorted(seen) == list(range(1, max(seen) + 1)), "a release was lost"
    runs = PrivacyLedger(tmp_path / "x.ledger", epsilon=1.25, delta=1e-5, dataset="letters").runs()
    assert len(runs) == 1, "the stream was charged more than once, or not at all"
