"""One fit at a time works with a checkpoint: another one is refused in words before it is charged."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from tests.laws.cases import BetaBernoulli
from tests.mutants import check_notices
from vips import (
    BayesianGaussianMixture,
    DirichletMultinomial,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
    PrivacyWarning,
    StreamPlan,
)
from vips.exceptions import CheckpointError, StreamError
from vips.persistence import checkpoint as checkpoint_module
from vips.preprocessing import TableEncoder, make_private_pipeline

PLAN = PrivacyPlan(noise_multiplier=4.0, sampling="full", n_steps=4, clip_norm=1.5)
COINS = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)
TABLE = pd.DataFrame({"age": np.arange(20.0, 50.0), "ward": ["A", "B", "C"] * 10})


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "a.ledger", 20.0, 1e-5, "coins")


def coins(ledger=None):
    return lambda path: BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=path)


def table(ledger=None):
    steps = TableEncoder(), BayesianGaussianMixture(2)
    return lambda path: make_private_pipeline(*steps, privacy=PrivacyBudget(1.0, 1e-6), n_steps=3).fit(
        TABLE, ledger=ledger, checkpoint=path
    )


class During(Exception):
    """Ends a fit from inside."""


def during(patch, first, what, at=2):
    """Do ``what`` while the fit ``first`` writes the checkpoint of its step ``at``."""
    original, calls = checkpoint_module.Journal.commit, []

    def commit(journal, step, *state):
        original(journal, step, *state)
        if step == at and not calls:
            calls.append(1)
            what()

    with patch.context() as during_first:
        during_first.setattr(checkpoint_module.Journal, "commit", commit)
        first()
    assert calls


def error_of(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def in_thread(function):
    def runs():
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    return runs


def in_child(function):
    """In a forked process, which inherits what its parent holds."""

    def runs():
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                function()
            finally:
                os._exit(0)
        os.close(write)
        os.close(read)
        os.wait()

    return runs


def check_a_second_fit_is_refused(makes, where, path, ledger, monkeypatch, other=None):
    """``where`` says in which thread or process the second one runs."""
    said = path.with_name("said")
    fits = makes(ledger)

    def second():
        said.write_text(error_of(makes(ledger), other or path))

    first = []
    during(monkeypatch, lambda: first.append(error_of(fits, path)), where(second))
    assert first == [""], "it disturbs the first"
    assert said.read_text().startswith("CheckpointError: A fit with a checkpoint is at work on "), "it is not refused"
    assert "Nothing was changed." in said.read_text()
    assert [run.state for run in ledger.runs()] == ["complete"], "it was charged"
    assert ledger.runs()[0].returned == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("where", [lambda f: f, in_thread, in_child], ids=["inside", "thread", "fork"])
@pytest.mark.parametrize("makes", [coins, table])
def test_a_second_fit_is_refused_before_it_is_charged(makes, where, tmp_path, ledger, monkeypatch):
    check_a_second_fit_is_refused(makes, where, tmp_path / "fit.vips", ledger, monkeypatch)


def test_a_second_fit_through_a_link_is_refused(tmp_path, ledger, monkeypatch):
    link = tmp_path / "link.vips"
    link.symlink_to(tmp_path / "fit.vips")
    check_a_second_fit_is_refused(coins, in_thread, tmp_path / "fit.vips", ledger, monkeypatch, other=link)


def test_both_files_of_a_pipeline_are_locked(tmp_path, monkeypatch):
    path, said = tmp_path / "fit.vips", []
    second = lambda: said.extend(error_of(coins(), place) for place in (path, f"{path}.encoder"))  # noqa: E731
    during(monkeypatch, lambda: table()(path), second)
    assert len(said) == 2
    assert all("is at work on" in error for error in said)


def test_a_stream_does_not_share_a_checkpoint_and_fits_without_one_and_beside_it_run_at_once(tmp_path, monkeypatch):
    path, said = tmp_path / "fit.vips", []
    stream = DirichletMultinomial(privacy=StreamPlan(epsilon=1.0, delta=1e-6, n_batches=3))

    def others():
        said.append(error_of(lambda: stream.partial_fit(COINS, checkpoint=path)))
        said.extend([error_of(coins(), None), error_of(coins(), tmp_path / "other.vips")])

    during(monkeypatch, lambda: coins()(path), others)
    assert said[0].startswith("StreamError: A stream with a checkpoint is at work on ")
    assert said[1:] == ["", ""]


@pytest.mark.parametrize("at", [1, 3])
def test_a_killed_fit_frees_its_checkpoint_and_pays_for_what_it_repeats(at, tmp_path, ledger, monkeypatch):
    path = tmp_path / "fit.vips"
    parent = os.fork()
    if parent == 0:
        during(monkeypatch, lambda: coins(ledger)(path), lambda: os.kill(os.getpid(), signal.SIGKILL), at)
    os.waitpid(parent, 0)
    coins(ledger)(path)
    assert [run.state for run in ledger.runs()] == ["complete"]
    assert ledger.runs()[0].released == PLAN.n_steps  # the kill came after the step's checkpoint


def test_the_next_fit_has_the_checkpoint_after_every_end(tmp_path, monkeypatch):
    path = tmp_path / "fit.vips"

    def ends():
        raise During

    with pytest.raises(During):
        during(monkeypatch, lambda: coins()(path), ends)
    coins()(path)
    with pytest.warns(PrivacyWarning, match="finished fit"):
        coins()(path)
    coins()(tmp_path / ("n" * 255))  # a name as long as the system allows
    assert (tmp_path / ".fit.vips.lock").stat().st_mode & 0o777 == 0o600, "the lock file stays, for its owner"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_says_so_before_a_charge(number, tmp_path, ledger, monkeypatch):
    def fails(file, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(CheckpointError, match=r"choose a path on a local disk, or fit without `checkpoint`"):
        coins(ledger)(tmp_path / "fit.vips")
    monkeypatch.undo()
    assert not ledger.runs()
    coins(ledger)(tmp_path / "fit.vips")


def test_a_lock_file_that_cannot_be_opened_is_one_error(tmp_path, ledger):
    (tmp_path / ".fit.vips.lock").mkdir()
    with pytest.raises(CheckpointError, match="Is a directory"):
        coins(ledger)(tmp_path / "fit.vips")
    with pytest.raises(StreamError, match="Is a directory"):
        DirichletMultinomial(privacy=StreamPlan(epsilon=1.0, delta=1e-6, n_batches=3)).partial_fit(
            COINS, checkpoint=tmp_path / "fit.vips"
        )
    assert not ledger.runs()


def nothing_is_locked(patch):
    patch.setattr(checkpoint_module, "one_writer", lambda path, *words: nullcontext(path))


@pytest.mark.parametrize("makes", [coins, table])
def test_a_missing_lock_is_noticed(makes, tmp_path, ledger, monkeypatch):
    def check():
        check_a_second_fit_is_refused(makes, in_thread, tmp_path / "fit.vips", ledger, monkeypatch)

    check_notices(check, nothing_is_locked, monkeypatch)
