"""Processes that are killed at any instant, and processes that race, over one ledger and one checkpoint.

Every scenario runs in a process of its own that forks children (``python -m tests.test_fault_injection NAME N FOLDER``).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import vips.checkpoint
from tests.laws.cases import BetaBernoulli
from vips import PrivacyBudgetError, PrivacyLedger, PrivacyPlan
from vips._archive import read_archive

PLAN = PrivacyPlan(noise_multiplier=40.0, sampling_rate=0.5, n_steps=25, clip_norm=1.5)
COINS = np.random.default_rng(0).integers(0, 2, (30, 3)).astype(float)


def in_child(function) -> int:
    """Run it in a forked child; its process number."""
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return child


def a_fit(folder: Path):
    """A fit that goes on from its checkpoint and logs every released step that it uses."""
    log = os.open(folder / "used", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    class Logs(BetaBernoulli):
        def expected_statistics(self, records, posterior):
            os.write(log, f"{journal.last}\n".encode())  # the posterior of that step is in use now
            return super().expected_statistics(records, posterior)

    class journal:
        last = 0

    original = vips.checkpoint.Journal.commit

    def commit(self, step, *rest):
        original(self, step, *rest)
        journal.last = step

    vips.checkpoint.Journal.commit = commit
    ledger = PrivacyLedger(folder / "a.ledger", 50.0, 1e-5, "coins")
    Logs(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=folder / "fit.vips")


def check(folder: Path) -> dict:
    """What must hold after a kill, whenever it came."""
    ledger_file, checkpoint = folder / "a.ledger", folder / "fit.vips"
    if not ledger_file.exists():
        assert not checkpoint.exists(), "a step without a ledger"
        return {}
    ledger = PrivacyLedger.open(ledger_file)
    ledger.verify()
    runs = {run.run: run for run in ledger.runs()}
    assert all(run.released <= run.charged for run in runs.values()), "a released step was not charged"
    assert ledger.spent() <= 50.0
    used = [int(line) for line in (folder / "used").read_text().split()] if (folder / "used").exists() else []
    if checkpoint.exists():
        header, arrays = read_archive(checkpoint, "checkpoint")
        run = runs[header["run"]]
        assert header["step"] <= run.last_step, "the checkpoint is ahead of the ledger"
        assert np.isfinite(arrays["average/heads"]).all()
        assert max(used, default=0) <= header["step"], "a step was used that no checkpoint holds"
    else:
        assert max(used, default=0) == 0
    return {"charged": sum(run.charged for run in runs.values()), "runs": len(runs)}


def kills(number: int, folder: Path) -> dict:
    """Kill a fit at random instants until so many kills are done; finished fits give way to new ones."""
    rng = random.Random()
    done = finished = 0
    while done < number:
        child = in_child(lambda: a_fit(folder))
        # from before the ledger is opened to several steps later
        time.sleep(rng.choice([rng.uniform(0.0, 0.02), rng.uniform(0.0, 0.2)]))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        check(folder)
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
    return {"kills": done, "finished": finished} | check(folder)


def exact_kills(number: int, folder: Path) -> dict:
    """Kill exactly between two actions of a step: every place of the commit protocol, ``number`` times each."""
    from vips import _archive, engine
    from vips.privacy.ledger import PrivacyLedger as Ledger

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
        "before the charge": (Ledger, "charge", 1),
        "after the charge, before the sum": (engine, "clipped_sum", 1),
        "after the sum, before the noise": (PrivacyPlan, "add_noise", 4),
        "after the noise, before the ledger": (Ledger, "release", 4),
        "after the ledger, before the checkpoint": (vips.checkpoint, "write_archive", 4),
        "inside the checkpoint, before its rename": (_archive.os, "replace", 4),
        "after the checkpoint, before the next step": (engine, "clipped_sum", 5),
    }
    # steps that the finished fit was charged beyond T: only the kill behind the ledger repeats one
    further = dict.fromkeys(places, 0) | {
        "after the ledger, before the checkpoint": 1,
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
                assert [run.charged for run in runs] == [25, 25], place
            else:
                assert [run.charged for run in runs] == [25 + further[place]], (place, runs)
    return {"places": len(places)}


def races(number: int, folder: Path) -> dict:
    """Two processes race for the last of the budget."""
    winners = []
    for i in range(number):
        ledger = PrivacyLedger(folder / f"{i}.ledger", 1.0, 1e-5, "race")
        steps = ledger.affordable_steps(PLAN)
        plan = PrivacyPlan(
            noise_multiplier=40.0, sampling_rate=0.5, n_steps=steps // 2 + 1, clip_norm=1.5
        )  # room for one
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
        check(folder)
    assert refused > 0
    BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger)  # with room again
    return {"refused": refused}


SCENARIOS = {function.__name__: function for function in (kills, exact_kills, races, full_disk)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")
@pytest.mark.parametrize(
    ("scenario", "number"), [("kills", 200), ("exact_kills", 2), ("races", 100), ("full_disk", 12)]
)
def test_survives(scenario, number, tmp_path):
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.test_fault_injection", scenario, str(number), str(tmp_path)],
        capture_output=True, text=True, cwd=Path(__file__).parents[1], env=environment, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    if scenario == "kills":
        assert result["kills"] == number
        assert result["runs"] >= 1


if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))))
