"""Processes that share a ledger and a checkpoint are killed or interrupted at any instant, fork, and race.

Every scenario runs in a process that forks children. A log beside the ledger and the
checkpoint shows what they should hold: one line for every release that the ledger granted, and one for every step whose
posterior was used. The check reads the ledger's entries with SQLite itself.
"""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vips.persistence.checkpoint
from tests.core.ledger.ledger_crowd import entries_of
from tests.laws.cases import BetaBernoulli
from vips import PrivacyBudgetError, PrivacyLedger, PrivacyPlan
from vips.core.accounting.gaussian import gaussian_epsilon
from vips.core.ledger import current_ledger
from vips.core.ledger.run import LedgerRun
from vips.persistence.archive import read_archive

PLAN = PrivacyPlan(noise_multiplier=80.0, sampling="full", n_steps=12, clip_norm=1.5)
COINS = np.random.default_rng(0).integers(0, 2, (30, 3)).astype(float)


def in_child(function) -> int:
    """Run ``function`` in a forked child; returns its process number."""
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return child


def logs_releases(folder: Path) -> None:
    """Make this process log every release, once the ledger has granted it."""
    log = os.open(folder / "released", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    record = LedgerRun.record

    def logged(self, step):
        record(self, step)
        os.write(log, f"{self.run} {step}\n".encode())

    LedgerRun.record = logged


def a_fit(folder: Path):
    """A fit that goes on from its checkpoint and logs every released step that it uses."""
    log = os.open(folder / "used", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    class Logs(BetaBernoulli):
        def expected_statistics(self, records, posterior):
            os.write(log, f"{journal.last}\n".encode())  # the posterior of that step is in use now
            return super().expected_statistics(records, posterior)

    class journal:
        last = 0

    original = vips.persistence.checkpoint.Journal.commit

    def commit(self, step, *arguments):
        original(self, step, *arguments)
        journal.last = step

    vips.persistence.checkpoint.Journal.commit = commit
    logs_releases(folder)
    ledger = PrivacyLedger(folder / "a.ledger", 50.0, 1e-5, "coins")
    Logs(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=folder / "fit.vips")


def steps_of(path: Path) -> dict[str, dict[str, int]]:
    """Steps that each run was charged and released, added up from the entries."""
    runs: dict[str, dict[str, int]] = {}
    for body in entries_of(path):
        if body["kind"] == "charge":
            runs[body["run"]] = {"charged": body["steps"], "released": 0, "last": 0}
        elif body["kind"] == "release":
            runs[body["run"]]["released"] += 1
            runs[body["run"]]["last"] = max(runs[body["run"]]["last"], body["step"])
        elif body["kind"] in ("resume", "close"):
            runs[body["run"]]["charged"] += body.get("further", 0) - body.get("returned", 0)
    return runs


def check(folder: Path, in_flight: int = 1) -> dict:
    """Check what must hold after a kill at any time; at most ``in_flight`` releases were granted and not yet logged."""
    ledger_file, checkpoint = folder / "a.ledger", folder / "fit.vips"
    used = [int(line) for line in lines_of(folder / "used")]
    if not ledger_file.exists():
        assert not checkpoint.exists(), "a step without a ledger"
        assert not used
        return {}
    ledger, runs = PrivacyLedger.open(ledger_file), steps_of(ledger_file)
    ledger.verify()
    logged = Counter(line.split()[0] for line in lines_of(folder / "released"))
    assert set(logged) <= set(runs), "a release without a charge"
    for name, run in runs.items():
        assert logged[name] <= run["released"] <= run["charged"], "a release is missing, or was not paid for"
    assert sum(run["released"] for run in runs.values()) <= sum(logged.values()) + in_flight, (
        "more releases than were granted"
    )
    # so many steps are one Gaussian mechanism
    charged = sum(run["charged"] for run in runs.values())
    epsilon = gaussian_epsilon(math.sqrt(charged) / PLAN.noise_multiplier, 0.9e-5) if charged else 0.0
    assert ledger.spent() == pytest.approx(epsilon, rel=1e-9)
    if checkpoint.exists():
        header, arrays = read_archive(checkpoint, "checkpoint")
        assert header["step"] <= runs[header["run"]]["last"], "the checkpoint is ahead of the ledger"
        assert np.isfinite(arrays["average/heads"]).all()
        assert max(used, default=0) <= header["step"], "a step was used that no checkpoint holds"
    else:
        assert max(used, default=0) == 0
    return {"charged": charged, "runs": len(runs)}


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def kills(number: int, folder: Path) -> dict:
    """Kill fits at random instants, ``number`` times; a new fit follows each finished one."""
    rng = random.Random()
    done = finished = 0
    while done < number:
        child = in_child(lambda: a_fit(folder))
        # from before the ledger is opened to several steps later
        time.sleep(rng.choice([rng.uniform(0.0, 0.02), rng.uniform(0.0, 0.2)]))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        check(folder, in_flight=done + 1)
        if os.WIFSIGNALED(status):
            done += 1
            continue
        assert os.WEXITSTATUS(status) == 0, "a fit could not go on after a kill"
        finished += 1
        (folder / "fit.vips").unlink()
        (folder / "used").unlink()
    # whatever happened, the last fit can be finished
    child = in_child(lambda: a_fit(folder))
    assert os.waitpid(child, 0)[1] == 0
    header, _ = read_archive(folder / "fit.vips", "checkpoint")
    assert header["step"] == PLAN.n_steps
    left = [path.name for path in folder.iterdir() if "partial" in path.name and "fit.vips" in path.name]
    assert not left, f"left behind: {left}"
    return {"kills": done, "finished": finished} | check(folder, in_flight=done)


def exact_kills(number: int, folder: Path) -> dict:
    """Kill exactly between two actions of a step: every place of the commit protocol, ``number`` times each."""
    from vips.core import engine
    from vips.persistence import archive

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def before(owner, name, call):
        """Die instead of the ``call``-th call."""
        original, count = getattr(owner, name), []

        def dies(*arguments, **keywords):
            count.append(1)
            return die() if len(count) == call else original(*arguments, **keywords)

        setattr(owner, name, dies)

    places = {
        "before the charge": (LedgerRun, "charge", 1),
        "after the charge, before the sum": (engine, "clipped_sum", 1),
        "after the sum, before the ledger": (PrivacyLedger, "release", 4),
        "after the ledger, before the noise": (PrivacyPlan, "add_noise", 4),
        "after the noise, before the checkpoint": (vips.persistence.checkpoint, "write_archive", 4),
        "inside the checkpoint, before its rename": (archive.os, "replace", 4),
        "after the checkpoint, before the next step": (engine, "clipped_sum", 5),
    }
    # steps that the finished fit was charged beyond T: only kills between ledger and checkpoint repeat one
    further = dict.fromkeys(places, 0) | {
        "after the ledger, before the noise": 1,
        "after the noise, before the checkpoint": 1,
        "inside the checkpoint, before its rename": 1,
    }
    for place, (owner, name, call) in places.items():
        for i in range(number):
            here = folder / f"{place} {i}".replace(" ", "_").replace(",", "")
            here.mkdir()

            def killed(owner=owner, name=name, call=call, here=here):
                before(owner, name, call)
                a_fit(here)

            status = os.waitpid(in_child(killed), 0)[1]
            assert os.WIFSIGNALED(status), place
            check(here)
            assert os.waitpid(in_child(lambda here=here: a_fit(here)), 0)[1] == 0
            check(here)
            runs = PrivacyLedger.open(here / "a.ledger").runs()
            if name == "clipped_sum" and call == 1:  # charged, and no checkpoint names the run: it stays charged
                assert [run.charged for run in runs] == [PLAN.n_steps] * 2, place
            else:
                assert [run.charged for run in runs] == [PLAN.n_steps + further[place]], (place, runs)
    return {"places": len(places)}


def races(number: int, folder: Path) -> dict:
    """Two processes race for the last of the budget."""
    winners = []
    for i in range(number):
        ledger = PrivacyLedger(folder / f"{i}.ledger", 1.0, 1e-5, "race")
        steps = ledger.affordable(PLAN)
        plan = replace(PLAN, n_steps=steps // 2 + 1)  # room for one
        ready, go = os.pipe()

        def attempt(ready=ready, go=go, plan=plan, path=ledger.path):
            os.close(go)
            os.read(ready, 1)  # returns when the parent closes its end
            try:
                PrivacyLedger.open(path).charge(plan)
            except PrivacyBudgetError:
                os._exit(3)

        children = [in_child(attempt) for _ in range(2)]
        os.close(ready)
        os.close(go)
        codes = sorted(os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children)
        assert codes == [0, 3], codes
        assert len(ledger.runs()) == 1
        winners.append(codes)
    # and two processes race to make the file
    for i in range(number):
        path = folder / f"new {i}.ledger"
        children = [in_child(lambda path=path: PrivacyLedger(path, 1.0, 1e-5, "race").charge(PLAN)) for _ in range(2)]
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
        assert len(PrivacyLedger.open(path).runs()) == 2
    return {"races": len(winners)}


def full_disk(number: int, folder: Path) -> dict:
    """A file that may not grow: the fit is refused or ends, and what was written stays valid."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ledger = PrivacyLedger(folder / "a.ledger", 50.0, 1e-5, "coins")
    refused = 0
    for extra in range(number):

        def limited(extra=extra):
            size = ledger.path.stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 512 * extra, resource.RLIM_INFINITY))
            try:
                BetaBernoulli(privacy=PLAN).fit(COINS, ledger=PrivacyLedger.open(ledger.path))
            except OSError as error:
                os._exit(3 if "could not be read or written" in str(error) else 4)

        code = os.WEXITSTATUS(os.waitpid(in_child(limited), 0)[1])
        assert code in (0, 3)
        refused += code == 3
        check(folder, in_flight=10**6)  # these fits write no log
    assert refused > 0
    BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger)  # with room again
    return {"refused": refused}


class Interrupter:
    """Interrupts a repeated function ``times`` times, half a millisecond apart, from a random instant on."""

    def __init__(self, times: int) -> None:
        self.left = times
        signal.signal(signal.SIGALRM, self.strike)

    def strike(self, *_) -> None:
        self.left -= 1
        if self.left <= 0:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        if self.left >= 0:
            raise KeyboardInterrupt

    def over(self, function, seconds: float) -> None:
        """Repeat ``function``, which takes ``seconds``, until all interrupts have come."""
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, seconds), 5e-4)
                while self.left > 0:
                    function()
            except KeyboardInterrupt:
                while self.left > 0:  # the second may also come right here
                    function()
        except KeyboardInterrupt:
            assert self.left <= 0


def interrupts(number: int, folder: Path, times: int = 1) -> dict:
    """Ctrl-C at random instants of fits: what was not released is given back, and no block stays open."""
    logs_releases(folder)
    ledger = PrivacyLedger(folder / "a.ledger", 50.0, 1e-5, "coins")
    model = BetaBernoulli(privacy=replace(PLAN, n_steps=60))

    def with_ledger() -> None:
        model.fit(COINS, ledger=ledger)

    def in_block() -> None:
        with ledger:
            model.fit(COINS)

    with_ledger()
    begun = time.monotonic()
    with_ledger()
    seconds = time.monotonic() - begun
    for i in range(number):
        Interrupter(times).over(in_block if i % 2 else with_ledger, seconds)
        if times > 1 and current_ledger() is not None:  # the second came while the block was being left
            ledger.__exit__()
        assert current_ledger() is None, "the block is still open"
    assert ledger.spent() == PrivacyLedger.open(ledger.path).spent(), "the ledger in memory is not that of the file"
    check(folder, in_flight=number * times)
    stuck = [run for run in steps_of(ledger.path).values() if run["charged"] != run["released"]]
    closed = sum(body["kind"] == "close" for body in entries_of(ledger.path))
    return {"interrupted": number, "closed": closed, "stuck": len(stuck)}


def double_interrupts(number: int, folder: Path) -> dict:
    """Two interrupts each, the second perhaps while the first is handled."""
    return interrupts(number, folder, times=2)


def injected(stride: int, folder: Path) -> dict:
    """Ctrl-C at every ``stride``-th line of vips that a fit runs in its own thread."""
    ledger, model = (
        PrivacyLedger(folder / "a.ledger", 50.0, 1e-5, "coins"),
        BetaBernoulli(privacy=replace(PLAN, n_steps=1)),
    )
    model.fit(COINS, ledger=ledger)
    line, hit, fits = stride, True, 1

    def trace(frame, event, _):
        nonlocal left, hit
        if f"{os.sep}vips{os.sep}" not in frame.f_code.co_filename:
            return None
        left -= event in ("call", "line")
        if not left:
            hit = True
            raise KeyboardInterrupt
        return trace

    while hit:
        left, hit = line, False
        sys.settrace(trace)
        with suppress(KeyboardInterrupt), ledger:
            model.fit(COINS)
        sys.settrace(None)
        if current_ledger() is not None:  # the interrupt came inside __exit__
            ledger.__exit__()
        assert current_ledger() is None, "the block is still open"
        line, fits = line + stride, fits + 1
    runs = steps_of(ledger.path).values()
    assert all(run["charged"] == run["released"] for run in runs), "a fit that was interrupted stays charged"
    assert ledger.spent() == PrivacyLedger.open(ledger.path).spent()
    return {"lines": line, "charged": len(runs), "released": sum(run["released"] for run in runs), "fits": fits}


def forks(number: int, folder: Path) -> dict:
    """Forked children use a ledger instance that other threads of the parent use all the time."""
    ledger, go_on = PrivacyLedger(folder / "a.ledger", 50.0, 1e-5, "coins"), [True]

    def use() -> None:
        while go_on:
            run = ledger.charge(PLAN)
            ledger.spent()
            run.close()

    def child() -> None:
        signal.alarm(30)  # ends a child that hangs
        with ledger:
            BetaBernoulli(privacy=PLAN).fit(COINS)

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(number):
            time.sleep(random.uniform(0.0, 0.02))
            assert os.waitpid(in_child(child), 0)[1] == 0, "a child hangs"
    finally:
        go_on.clear()
        for thread in threads:
            thread.join()
    complete = [run for run in steps_of(ledger.path).values() if run["released"] == PLAN.n_steps]
    assert len(complete) == number
    return {"forks": number}


SCENARIOS = {
    function.__name__: function
    for function in (kills, exact_kills, races, full_disk, interrupts, double_interrupts, injected, forks)
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")
@pytest.mark.parametrize(
    "numbers",
    [
        {"kills": 4, "exact_kills": 1, "full_disk": 3, "forks": 1, "interrupts": 6, "double_interrupts": 6},
        pytest.param({"injected": 101, "races": 3}, marks=pytest.mark.slow),
        *[
            pytest.param({scenario: number}, marks=pytest.mark.slow)
            for scenario, number in [
                ("kills", 200), ("exact_kills", 2), ("races", 100), ("full_disk", 12), ("interrupts", 60),
                ("double_interrupts", 60), ("forks", 20),
            ]
        ],
    ],
    ids=" ".join,
)  # fmt: skip
def test_survives(numbers, tmp_path, new_process):
    for name, number in numbers.items():
        (tmp_path / name).mkdir()
        result = new_process(SCENARIOS[name], number, tmp_path / name)
        if name == "kills":
            assert result["kills"] == number
            assert result["runs"] >= 1
        if name == "interrupts":
            assert result["stuck"] == 0
            if number >= 60:  # four of five come while a run is open
                assert result["closed"] > number / 2
