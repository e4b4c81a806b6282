"""Ledgers at odd moments: interrupted forks, finalisers, several threads that leave at once, files with two names."""

import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests import ROOT
from tests.core.ledger.test_ledger_blocks import PLAN, fit
from vips import PrivacyLedger
from vips._support.files import partial_of
from vips.core.ledger import LedgerError, clerk, current_ledger, open_ledger

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
FROM_OUTSIDE = pickle.dumps(PLAN)


def fit_received():
    return fit(pickle.loads(FROM_OUTSIDE)).privacy_.ledger


@needs_fork
def test_a_forked_child_is_inside_the_block_until_the_block_ends_also_for_plans_pickled_outside(ledger, other):
    """Like the process that forked it. A worker that outlives its block is outside."""
    with ledger:
        pool = multiprocessing.get_context("fork").Pool(1)
        assert pool.apply(fit_received) is not None
        assert fit_received() is not None
    assert len(ledger.runs()) == 2
    with ledger:
        later = multiprocessing.get_context("fork").Pool(1)
    with pool, later:
        assert pool.apply(fit_received) is None
        assert later.apply(fit_received) is None
        with other:
            assert later.apply(fit, (PLAN,)).privacy_.ledger["dataset"] == "other"
    assert len(ledger.runs()) == 2


@needs_fork
def test_no_python_runs_between_the_lock_and_the_fork():
    """An interrupt there would leave the lock held, so that the next use of a ledger would hang."""
    lines = []

    def trace(frame, event, _):
        if Path(frame.f_code.co_filename).name == "_fork.py":
            lines.append(frame.f_lineno)
        return trace

    sys.settrace(trace)
    try:
        child = os.fork()
        if not child:
            os._exit(bool(lines))
    finally:
        sys.settrace(None)
    assert os.waitpid(child, 0)[1] == 0
    assert not lines


@needs_fork
def test_the_clerk_is_that_of_this_process_and_no_finaliser_waits_for_it(ledger, monkeypatch):
    """A child whose hook was interrupted sees the clerk of its parent. The garbage collector may run in the clerk's thread,
    which would otherwise wait for itself forever."""
    ledger.spent()
    monkeypatch.setattr(clerk._clerk, "process", os.getpid() + 1)
    before = clerk._clerk
    assert ledger.spent() == 0.0
    assert clerk._clerk is not before
    with pytest.raises(RuntimeError, match="finaliser"):
        clerk.ask(ledger.spent)
    assert ledger.spent() == 0.0


def test_a_finaliser_after_all_threads_does_not_hang(tmp_path):
    code = textwrap.dedent(f"""
        import builtins
        from vips import PrivacyLedger, PrivacyPlan
        ledger = PrivacyLedger({str(tmp_path / "a.ledger")!r}, epsilon=6.0, delta=1e-5, dataset="letters")
        def closing():
            run = ledger.charge(PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=5, clip_norm=1.5))
            try:
                yield
            finally:
                run.close()
        builtins.kept = closing()  # until the very end
        next(builtins.kept)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert "after Python has stopped its threads" in done.stderr
    (run,) = PrivacyLedger.open(tmp_path / "a.ledger").runs()
    assert run.charged == PLAN.n_steps


def test_threads_that_leave_at_once_leave_a_block_each(ledger, monkeypatch):
    inside, leaving, original = threading.Barrier(2, timeout=120), threading.Barrier(2, timeout=120), open_ledger.leave

    def leave(key):
        original(key)
        leaving.wait()

    def work():
        with ledger:
            inside.wait()

    monkeypatch.setattr(open_ledger, "leave", leave)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert current_ledger() is None


class Late:
    async def __call__(self):
        return fit(replace(PLAN))


async def a_stream():
    yield fit(replace(PLAN))


@pytest.mark.parametrize(
    "function",
    [lambda: map(fit, [PLAN]), lambda: (fit(plan) for plan in [PLAN]), lambda: Late()(), lambda: a_stream()],
    ids=["map", "generator", "coroutine", "stream"],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_what_runs_after_the_call_and_results_that_still_have_something_to_do_are_refused(ledger, function):
    with pytest.raises(TypeError, match="Return a list"):
        ledger.inside(function)()
    for later in (Late(), a_stream):
        with pytest.raises(TypeError, match="after the call"):
            ledger.inside(later)
    assert not ledger.runs()


def test_a_file_with_a_second_name_is_refused_until_it_has_one(ledger, tmp_path):
    """A kill leaves SQLite's journal beside one name. Under the other name SQLite would not undo the changes."""
    os.link(ledger.path, tmp_path / "second")
    for use in (lambda: fit(ledger=ledger), lambda: PrivacyLedger.open(tmp_path / "second"), ledger.spent):
        with pytest.raises(LedgerError, match="has hard links"):
            use()
    (tmp_path / "second").unlink()
    fit(ledger=ledger)
    assert len(ledger.runs()) == 1
    os.link(ledger.path, partial_of(ledger.path))  # which a kill left
    assert ledger.spent() > 0.0
    assert [file.name for file in tmp_path.iterdir()] == [ledger.path.name]
