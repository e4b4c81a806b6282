"""Processes with threads share ledgers and write a log beside them; processes may be killed at random.

Every thread charges, releases, closes and resumes runs, its own and those of others, and fits models. It uses one ledger until
the ledger refuses, then the next. When a call has returned, the thread logs what the call granted, with one system call
``write``, so that a kill leaves the line whole.

The check compares the log with the entries that SQLite reads from the file and with the formula of the filter. It fails if the
ledger lacks a granted charge or release, if more steps were released than the budget pays for, and on any error except two:
the budget is used up, or another thread resumed the run.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.stats import norm

from tests.laws.cases import BetaBernoulli
from vips import LedgerError, PrivacyBudgetError, PrivacyLedger, PrivacyPlan

EPSILON, DELTA = 1.0, 1e-5
PLAN = PrivacyPlan(noise_multiplier=40.0, sampling="full", n_steps=6, clip_norm=1.5)
COINS = np.random.default_rng(0).integers(0, 2, (20, 3)).astype(float)


def worker(folder: Path, n_threads: int) -> None:
    """One process of the crowd, which runs until the file ``stop`` exists."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(**what) -> None:
        os.write(log, (json.dumps(what) + "\n").encode())

    def work() -> None:
        number, shared = 0, None
        while not (folder / "stop").exists():
            path = folder / f"{number}.ledger"
            try:
                if shared is None or shared.path != path:
                    shared = ledger_of_process(path)
                ledger = shared if random.random() < 0.5 else PrivacyLedger.open(path)
                one_round(ledger, note)
            except PrivacyBudgetError:
                note(did="refused", ledger=path.name)
                number += 1
            except BaseException as error:
                overtaken = isinstance(error, LedgerError) and "resumed elsewhere" in str(error)
                note(
                    did="overtaken" if overtaken else "failed",
                    ledger=path.name,
                    error=f"{type(error).__name__}: {error}",
                )

    ledgers, lock = {}, threading.Lock()

    def ledger_of_process(path: Path) -> PrivacyLedger:
        """One instance that all threads share."""
        with lock:
            if path not in ledgers:
                ledgers[path] = PrivacyLedger(path, EPSILON, DELTA, "crowd")
            return ledgers[path]

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one_round(ledger: PrivacyLedger, note) -> None:
    """One run, finished or not."""
    name = ledger.path.name
    kind = random.choice(["charge", "charge and close", "resume", "fit", "take over"])
    if kind == "fit":
        model = BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger)
        run = model.privacy_.ledger["run"]
        note(did="charge", ledger=name, run=run)
        note(did="release", ledger=name, run=run, steps=PLAN.n_steps)
        return
    if kind == "take over":  # as after a kill, also if no process was killed
        unfinished = [run for run in ledger.runs() if run.last_step < PLAN.n_steps]
        if unfinished:
            before = random.choice(unfinished)
            run = ledger.resume(before.run, before.last_step, PLAN)
            run.record(before.last_step + 1)
            note(did="release", ledger=name, run=run.run, steps=1)
            run.close()
        return
    run = ledger.charge(PLAN)
    note(did="charge", ledger=name, run=run.run)
    for step in (1, 2):
        run.record(step)
        note(did="release", ledger=name, run=run.run, steps=1)
    if kind == "resume":
        run = ledger.resume(run.run, 1, PLAN)  # step 2 is released again
        run.record(2)
        note(did="release", ledger=name, run=run.run, steps=1)
    if kind != "charge":
        run.close()
        note(did="close", ledger=name, run=run.run)
    ledger.spent()


def supervise(folder: Path, n_processes: int, n_threads: int, seconds: float, kill: bool) -> int:
    """Run the crowd for at least ``seconds`` and until much has happened; returns the number of kills."""
    begun, kills, seen = time.monotonic(), 0, -1

    def started() -> multiprocessing.Process:
        child = multiprocessing.get_context("fork").Process(target=worker, args=(folder, n_threads))
        child.start()
        return child

    def much_has_happened() -> bool:
        done = Counter(line["did"] for line in log_of(folder))
        return done["charge"] > 20 and (kills >= 3 if kill else done["refused"] > 0)

    children = [started() for _ in range(n_processes)]
    while time.monotonic() < begun + seconds or not much_has_happened():
        time.sleep(random.uniform(0.0, min(1.0, seconds / 4)))
        assert time.monotonic() < begun + seconds + 300.0, "the crowd gets nowhere"
        written = len(log_of(folder)) if kill else seen
        if written > seen:  # else the processes started last do not work yet
            victim, seen = random.randrange(n_processes), written
            if children[victim].is_alive():
                children[victim].kill()
                kills += 1
            children[victim].join()
            children[victim] = started()
    (folder / "stop").touch()
    for child in children:
        child.join(120.0)
        assert child.exitcode == 0, "a process of the crowd failed"
    return kills


def log_of(folder: Path) -> list[dict]:
    log = folder / "log"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def entries_of(path: Path) -> list[dict]:
    """The entries as SQLite reads them, after its own check of the file."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), f"{path} is destroyed"
    bodies = [json.loads(body) for (body,) in connection.execute("SELECT body FROM entries ORDER BY number")]
    connection.close()
    return bodies


def check(folder: Path) -> Counter:
    """Compare ledgers with the log."""
    log = log_of(folder)
    counts = Counter(line["did"] for line in log)
    failures = [line["error"] for line in log if line["did"] == "failed"]
    assert not failures, (len(failures), failures[:3])
    for path in sorted(folder.glob("*.ledger")):
        lines = [line for line in log if line["ledger"] == path.name]
        known = Counter()
        for body in entries_of(path):
            known[body["kind"], body.get("run")] += 1
        granted = Counter()
        for line in lines:
            granted[line["did"], line.get("run")] += line.get("steps", 1)
        missing = {key: n for key, n in granted.items() if key[0] in ("charge", "release") and known[key] < n}
        assert not missing, (
            f"{path.name}: {len(missing)} things that were granted are missing: {list(missing.items())[:3]}"
        )
        # all that was released is one Gaussian mechanism: δ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)
        released = sum(n for (did, _), n in granted.items() if did == "release")
        mu = math.sqrt(max(released, 1)) / PLAN.noise_multiplier
        delta = norm.cdf(mu / 2.0 - EPSILON / mu) - math.exp(EPSILON) * norm.cdf(-mu / 2.0 - EPSILON / mu)
        assert delta <= 0.9 * DELTA * (1.0 + 1e-9), (
            f"{path.name}: {released} steps were released, too many for the budget"
        )
        counts["budgets reached"] += granted["refused", None] > 0
        counts["ledgers"] += 1
        PrivacyLedger.open(path).verify()
    return counts


def crowd(folder: Path, n_processes: int, n_threads: int, seconds: float, kill: bool) -> Counter:
    """Counts of what has happened."""
    kills = supervise(folder, n_processes, n_threads, seconds, kill)
    return check(folder) + Counter(kills=kills)
