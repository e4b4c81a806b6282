"""Charge, secret, entry of the ledger, release: after a kill, a full disk or a copy of the files at any point, one release of
each batch is on record, and what was charged is what was released."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest

from tests import ROOT
from tests.mutants import check_notices
from vips import DirichletMultinomial, LedgerError, PrivacyLedger, StreamError, StreamPlan
from vips import _files as files_module
from vips.persistence.archive import read_archive
from vips.streams import secret as secret_module
from vips.streams import stream as stream_module

PLAN = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=8)
COUNTS = np.eye(3)[[0, 1, 1]]


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "x.ledger", epsilon=4.0, delta=1e-5, dataset="letters")


def fails(*_, **__):
    raise OSError(errno.EIO, "a broken disk")


def stream(ledger, path, n=1, model=None):
    model = DirichletMultinomial(privacy=PLAN) if model is None else model
    for _ in range(n):
        model.partial_fit(COUNTS, ledger=ledger, checkpoint=path)
    return model


# -- kills ----------------------------------------------------------------------------------------------------------------

# Each child is killed before or after one call of its batch; the parent goes on with what the child left.
KILLS = """
import json, os, signal, sys
import numpy as np
from vips import DirichletMultinomial, PrivacyLedger, StreamError, StreamPlan
from vips.privacy.ledger.run import LedgerRun
from vips.streams import stream
folder, counts = sys.argv[1], np.eye(3)[[0, 1, 1]]
plan = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=8)
points = {
    "charge": (LedgerRun, "charge"), "secret": (stream.SecretFile, "write"), "entry": (PrivacyLedger, "release_batch"),
    "checkpoint": (stream, "write_archive"),
}
def killing(owner, name, when):
    original = getattr(owner, name)
    def killed(*arguments, **named):
        if name == "release_batch" and arguments[2] == n_before:  # of the batch before
            return original(*arguments, **named)
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        original(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owner, name, killed)
for n_before in (0, 1, 2):
    for point, (owner, name) in points.items():
        if n_before and point == "charge":
            continue
        for when in ("before", "after"):
            place = f"{folder}/{n_before}-{point}-{when}"
            files = {"checkpoint": place + ".vips"}
            path = place + ".ledger"
            ledger = PrivacyLedger(path, epsilon=4.0, delta=1e-5, dataset="letters")
            for _ in range(n_before):
                DirichletMultinomial(privacy=plan).partial_fit(counts, ledger=ledger, **files)
            child = os.fork()
            if child == 0:
                killing(owner, name, when)
                DirichletMultinomial(privacy=plan).partial_fit(counts, ledger=PrivacyLedger.open(path), **files)
                os._exit(0)
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), place
            ledger, model = PrivacyLedger.open(path), DirichletMultinomial(privacy=plan)
            left = [run.batches for run in ledger.runs()]
            try:
                model.partial_fit(counts, ledger=ledger, **files)
                said = "taken"
            except StreamError as error:
                said = "counts"
            model.partial_fit(counts, ledger=ledger, **files)
            print(json.dumps([n_before, point, when, left, said, model.n_batches_seen_, [r.batches for r in ledger.runs()]]))
"""


def test_kills_between_any_two_writes(tmp_path):
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 8 + 6 + 6
    for n_before, point, when, left, said, seen, recorded in lines:
        where = f"{n_before} batches before a kill {when} the {point}"
        is_durable = point in ("entry", "checkpoint") or (point, when) == ("secret", "after")
        is_complete = (point, when) == ("checkpoint", "after")  # which no later process can tell from a call that ended
        assert said == ("counts" if is_durable and not is_complete else "taken"), where
        assert seen == n_before + 2 - (said == "counts") + is_durable, where
        has_entry = point == "checkpoint" or (point, when) == ("entry", "after")
        lost = n_before == 0 and (point, when) in (
            ("charge", "after"),
            ("secret", "before"),
        )  # charged without a stream
        assert len(left) == (n_before > 0 or (point, when) != ("charge", "before")), where
        assert [len(batches) for batches in left] == [n_before + has_entry] * len(left), where
        assert [len(batches) for batches in recorded] == [0] * lost + [seen], where
        for before, after in zip(left, recorded, strict=False):
            assert after[: len(before)] == before, f"{where}: an entry was replaced"


# -- disks ----------------------------------------------------------------------------------------------------------------


def check_a_full_disk_costs_nothing(ledger, path, patch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(6):
        with patch.context() as disk:
            disk.setattr(secret_module, "write_archive", full)
            with pytest.raises(OSError, match="No space left"):
                stream(ledger, path)
    spent = ledger.spent()
    stream(ledger, path)
    assert spent == 0.0, f"six attempts without a release spent {spent}"
    assert [run.batches != () for run in ledger.runs()] == [False] * 6 + [True]


def test_a_full_disk_costs_nothing(ledger, tmp_path, monkeypatch):
    check_a_full_disk_costs_nothing(ledger, tmp_path / "s.vips", monkeypatch)


def check_a_secret_that_may_be_durable_stays_charged(ledger, path, patch):
    """The disk fails when the folder is synced: the secret is in place, so that its release is the one that counts."""

    with patch.context() as disk:
        disk.setattr(files_module, "sync_folder", fails)
        with pytest.raises(OSError, match="a broken disk"):
            stream(ledger, path)
    charged = ledger.spent()
    assert charged > 0.0, "a charge was given back although its secret is in place"
    model = DirichletMultinomial(privacy=PLAN)
    with pytest.raises(StreamError, match="1 batches count"):
        model.partial_fit(COUNTS, ledger=ledger, checkpoint=path)
    assert model.n_batches_seen_ == 1
    assert ledger.spent() == charged


def test_a_secret_that_may_be_durable_stays_charged(ledger, tmp_path, monkeypatch):
    check_a_secret_that_may_be_durable_stays_charged(ledger, tmp_path / "s.vips", monkeypatch)


@pytest.mark.parametrize(("number", "is_raised"), [(errno.EIO, True), (errno.EINVAL, False), (errno.ENOTSUP, False)])
def test_an_error_of_the_disk_is_raised_where_a_folder_is_synced(number, is_raised, tmp_path, monkeypatch):
    def fails(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files_module.os, "fsync", fails)
    if not is_raised:
        return files_module.sync_folder(tmp_path)
    with pytest.raises(OSError, match=os.strerror(number)):
        files_module.sync_folder(tmp_path)


def test_an_entry_that_fails_leaves_the_stream_in_memory_uncharged_or_pending(ledger, monkeypatch):
    model = DirichletMultinomial(privacy=PLAN)

    for n_before in (0, 1):
        with monkeypatch.context() as patch:
            record = PrivacyLedger.release_batch
            patch.setattr(
                PrivacyLedger,
                "release_batch",
                lambda *a: fails() if a[2] == n_before + 1 else record(*a),  # noqa: B023
            )
            with pytest.raises(OSError, match="a broken disk"):
                model.partial_fit(COUNTS, ledger=ledger)
        assert (ledger.spent() > 0.0) == (n_before == 1)
        if n_before:
            with pytest.raises(StreamError, match="2 batches count"):
                model.partial_fit(COUNTS, ledger=ledger)
        else:
            model.partial_fit(COUNTS, ledger=ledger)
        assert model.n_batches_seen_ == n_before + 1
    assert [len(run.batches) for run in ledger.runs()] == [0, 2]


# -- copies, and forged files -----------------------------------------------------------------------------------------------


def copied(path, to):
    shutil.copy(path, to)
    shutil.copy(f"{path}.secret", f"{to}.secret")
    return to


def check_two_copies_do_not_go_on_under_one_charge(ledger, path, copy):
    stream(ledger, path)
    copied(path, copy)
    first = stream(ledger, path)
    second = DirichletMultinomial(privacy=PLAN)
    with suppress(LedgerError):
        stream(ledger, copy, model=second)
    assert not hasattr(second, "last_posterior_"), "two copies went on under one charge"
    assert stream(ledger, path, model=first).n_batches_seen_ == 3


def test_two_copies_do_not_go_on_under_one_charge(ledger, tmp_path):
    check_two_copies_do_not_go_on_under_one_charge(ledger, tmp_path / "s.vips", tmp_path / "t.vips")


def test_a_copy_that_has_drawn_is_refused_in_every_later_call(ledger, tmp_path, monkeypatch):
    """Its secret is at the same batch, with another release, whose hash is not the one on record."""
    path, copy = tmp_path / "s.vips", tmp_path / "t.vips"
    stream(ledger, path)
    copied(path, copy)
    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "release_batch", fails)
        with pytest.raises(OSError, match="a broken disk"):
            stream(ledger, copy)
    stream(ledger, path)
    for records in (COUNTS, None):
        with pytest.raises(LedgerError, match="two copies"):
            DirichletMultinomial(privacy=PLAN).partial_fit(records, ledger=ledger, checkpoint=copy)


def test_older_copies_of_both_files_are_refused(ledger, tmp_path):
    path, kept = tmp_path / "s.vips", tmp_path / "kept"
    stream(ledger, path)
    copied(path, kept)
    stream(ledger, path, 2)
    copied(kept, path)
    with pytest.raises(LedgerError, match="older copy"):
        stream(ledger, path)


def test_nothing_is_released_under_a_charge_that_was_given_back(ledger, tmp_path, monkeypatch):
    path = tmp_path / "s.vips"
    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "release_batch", fails)
        with pytest.raises(OSError, match="a broken disk"):
            stream(ledger, path)
    assert ledger.spent() > 0.0
    ledger.close(ledger.runs()[0].run)
    assert ledger.spent() == 0.0
    model = DirichletMultinomial(privacy=PLAN)
    with pytest.raises(LedgerError, match="charge was given back"):
        model.partial_fit(None, ledger=ledger, checkpoint=path)
    assert not hasattr(model, "noisy_totals_")


def forged(path, noise_multiplier):
    """The secret with less noise, all numbers of which fit together."""
    header, arrays = read_archive(f"{path}.secret", "stream secret")
    header = {part: header[part] for part in ("stream", "t", "public")}
    searched = header["public"]["searched"]
    share = noise_multiplier / searched["noise_multiplier"]
    searched["noise_multiplier"] *= share
    searched["of_draws"] *= share
    if searched["lattice"]:
        searched["lattice"][0] *= share
    secret_module.write_archive(f"{path}.secret", "stream secret", header, dict(arrays), mode=0o600)


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("noise_multiplier", [1e-4, 1.0])
@pytest.mark.parametrize("has_ledger", [True, False])
def test_a_forged_secret_with_less_noise_is_not_believed(noise, noise_multiplier, has_ledger, ledger, tmp_path):
    path, ledger = tmp_path / "s.vips", ledger if has_ledger else None
    plan = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=8, noise=noise)
    DirichletMultinomial(privacy=plan).partial_fit(COUNTS, ledger=ledger, checkpoint=path)
    forged(path, noise_multiplier)
    model = DirichletMultinomial(privacy=plan)
    with pytest.raises(StreamError, match="noise"):
        model.partial_fit(COUNTS, ledger=ledger, checkpoint=path)
    assert not hasattr(model, "last_posterior_")


def test_a_forged_lattice_that_is_coarse_is_not_believed(tmp_path):
    path = tmp_path / "s.vips"
    plan = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=8, noise="discrete")
    DirichletMultinomial(privacy=plan).partial_fit(COUNTS, checkpoint=path)
    header, arrays = read_archive(f"{path}.secret", "stream secret")
    header = {part: header[part] for part in ("stream", "t", "public")}
    unit, steps = header["public"]["searched"]["lattice"]
    header["public"]["searched"]["lattice"] = [unit * steps / 2, 2]
    secret_module.write_archive(f"{path}.secret", "stream secret", header, dict(arrays), mode=0o600)
    with pytest.raises(StreamError, match="too coarse"):
        DirichletMultinomial(privacy=plan).partial_fit(COUNTS, checkpoint=path)


# -- locks ------------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_does_not_keep_the_lock_of_a_killed_parent(tmp_path):
    path, read, write = tmp_path / "s.vips", *os.pipe()
    parent = os.fork()
    if parent == 0:
        with secret_module.SecretFile(path).locked():
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            os.write(write, b"%d" % child)
            time.sleep(60)
    child = int(os.read(read, 20))
    time.sleep(0.05)
    os.kill(parent, 9)
    os.waitpid(parent, 0)
    try:
        with secret_module.SecretFile(path).locked():
            pass
    finally:
        os.kill(child, 9)


# -- broken copies ------------------------------------------------------------------------------------------------------------


def batches_are_not_recorded(patch):
    patch.setattr(stream_module._Stream, "_record", lambda self, secret: None)


def a_charge_counts_as_released_before_its_secret(patch):
    original = stream_module._Stream._secret_after

    def secret_after(self, *arguments):
        secret = original(self, *arguments)
        if self.begun is not None:
            self.begun.record(1)
        return secret

    patch.setattr(stream_module._Stream, "_secret_after", secret_after)


def a_charge_is_given_back_after_any_error(patch):
    patch.setattr(secret_module.SecretFile, "outlives_errors", lambda self: False)


def test_copies_without_records_are_noticed(ledger, tmp_path, monkeypatch):
    def check():
        check_two_copies_do_not_go_on_under_one_charge(ledger, tmp_path / "s.vips", tmp_path / "t.vips")

    check_notices(check, batches_are_not_recorded, monkeypatch, "two copies went on")


def test_a_charge_that_counts_too_early_is_noticed(ledger, tmp_path, monkeypatch):
    def check():
        check_a_full_disk_costs_nothing(ledger, tmp_path / "s.vips", monkeypatch)

    check_notices(check, a_charge_counts_as_released_before_its_secret, monkeypatch, "without a release spent")


def test_a_charge_that_is_given_back_too_often_is_noticed(ledger, tmp_path, monkeypatch):
    def check():
        check_a_secret_that_may_be_durable_stays_charged(ledger, tmp_path / "s.vips", monkeypatch)

    check_notices(check, a_charge_is_given_back_after_any_error, monkeypatch, "was given back")
