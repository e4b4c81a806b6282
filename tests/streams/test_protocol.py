"""Charge, secret, entry of the ledger, release: after a kill, a full disk or a copy of the files at any point, one release of
each batch is on record, and what was charged is what was released."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from contextlib import suppress
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from tests.mutants import check_notices
from tests.persistence.damage import edited
from vips import DirichletMultinomial, LedgerError, PrivacyLedger, StreamError, StreamPlan
from vips._support import files as files_module
from vips.core.ledger.run import LedgerRun
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


POINTS = {
    "charge": (LedgerRun, "charge"), "secret": (stream_module.SecretFile, "write"),
    "entry": (PrivacyLedger, "release_batch"), "checkpoint": (stream_module, "write_archive"),
}  # fmt: skip
PLACES = [
    (n_before, point, when)
    for n_before in (0, 1, 2) for point in POINTS for when in ("before", "after") if not n_before or point != "charge"
]  # fmt: skip


def killed_at(point, when, n_before, ledger, path):
    """A child is killed before or after one call of its batch."""
    owner, name = POINTS[point]
    original = getattr(owner, name)

    def killed(*arguments, **named):
        is_of_batch_before = name == "release_batch" and arguments[2] == n_before
        if when == "after" or is_of_batch_before:
            original(*arguments, **named)
        if not is_of_batch_before:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            setattr(owner, name, killed)
            stream(PrivacyLedger.open(ledger.path), path)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("n_before", "point", "when"), PLACES)
def test_kills_between_any_two_writes(n_before, point, when, ledger, tmp_path):
    """The parent goes on with what the child left."""
    path = tmp_path / "s.vips"
    for _ in range(n_before):
        stream(ledger, path)
    killed_at(point, when, n_before, ledger, path)
    left, model, said = [run.batches for run in ledger.runs()], DirichletMultinomial(privacy=PLAN), "taken"
    try:
        stream(ledger, path, model=model)
    except StreamError:
        said = "counts"
    stream(ledger, path, model=model)
    recorded = [run.batches for run in ledger.runs()]
    is_durable = point in ("entry", "checkpoint") or (point, when) == ("secret", "after")
    is_complete = (point, when) == ("checkpoint", "after")  # which no later process can tell from a call that ended
    assert said == ("counts" if is_durable and not is_complete else "taken")
    seen = n_before + 2 - (said == "counts") + is_durable
    assert model.n_batches_seen_ == seen
    has_entry = point == "checkpoint" or (point, when) == ("entry", "after")
    lost = n_before == 0 and (point, when) in (("charge", "after"), ("secret", "before"))  # charged without a stream
    assert len(left) == (n_before > 0 or (point, when) != ("charge", "before"))
    assert [len(batches) for batches in left] == [n_before + has_entry] * len(left)
    assert [len(batches) for batches in recorded] == [0] * lost + [seen]
    for before, after in zip(left, recorded, strict=False):
        assert after[: len(before)] == before, "an entry was replaced"


# -- disks ----------------------------------------------------------------------------------------------------------------


def test_a_full_disk_costs_nothing(ledger, tmp_path, monkeypatch):
    path = tmp_path / "s.vips"

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(6):
        with monkeypatch.context() as disk:
            disk.setattr(secret_module, "write_archive", full)
            with pytest.raises(OSError, match="No space left"):
                stream(ledger, path)
    spent = ledger.spent()
    stream(ledger, path)
    assert spent == 0.0, f"six attempts without a release spent {spent}"
    assert [run.batches != () for run in ledger.runs()] == [False] * 6 + [True]


def test_a_secret_that_may_be_durable_stays_charged(ledger, tmp_path, monkeypatch):
    """The disk fails when the folder is synced: the secret is in place, so that its release is the one that counts."""
    path = tmp_path / "s.vips"
    with monkeypatch.context() as disk:
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


def test_two_copies_do_not_go_on_under_one_charge(ledger, tmp_path):
    path, copy = tmp_path / "s.vips", tmp_path / "t.vips"
    stream(ledger, path)
    copied(path, copy)
    first = stream(ledger, path)
    second = DirichletMultinomial(privacy=PLAN)
    with suppress(LedgerError):
        stream(ledger, copy, model=second)
    assert not hasattr(second, "last_posterior_"), "two copies went on under one charge"
    assert stream(ledger, path, model=first).n_batches_seen_ == 3


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


def forged(path, change):
    """Write the secret with another search for noise, which ``change`` changes."""

    def edit(header, _):
        change(header["public"]["searched"])

    edited(f"{path}.secret", "stream secret", edit, mode=0o600)


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("noise_multiplier", [1e-4, 1.0])
@pytest.mark.parametrize("has_ledger", [True, False])
def test_a_forged_secret_with_less_noise_is_not_believed(noise, noise_multiplier, has_ledger, ledger, tmp_path):
    """All its numbers fit together."""
    path, ledger = tmp_path / "s.vips", ledger if has_ledger else None
    plan = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=8, noise=noise)
    DirichletMultinomial(privacy=plan).partial_fit(COUNTS, ledger=ledger, checkpoint=path)
    whole, model = Path(f"{path}.secret").read_bytes(), DirichletMultinomial(privacy=plan)

    def less_noise(searched):
        share = noise_multiplier / searched["noise_multiplier"]
        searched |= {name: searched[name] * share for name in ("noise_multiplier", "of_draws")}
        if searched["lattice"]:
            searched["lattice"][0] *= share

    def coarse(searched):
        unit, steps = searched["lattice"]
        searched["lattice"] = [unit * steps / 2, 2]

    for change, says in ((less_noise, "noise"), *[(coarse, "too coarse")] * (noise == "discrete")):
        Path(f"{path}.secret").write_bytes(whole)
        forged(path, change)
        with pytest.raises(StreamError, match=says):
            model.partial_fit(COUNTS, ledger=ledger, checkpoint=path)
        assert not hasattr(model, "last_posterior_")


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


@pytest.mark.parametrize(
    ("mutant", "test", "says"),
    [
        (batches_are_not_recorded, test_two_copies_do_not_go_on_under_one_charge, "two copies went on"),
        (a_charge_counts_as_released_before_its_secret, test_a_full_disk_costs_nothing, "without a release spent"),
        (a_charge_is_given_back_after_any_error, test_a_secret_that_may_be_durable_stays_charged, "was given back"),
    ],
)
def test_mutant_is_noticed(mutant, test, says, ledger, tmp_path, monkeypatch):
    more = [monkeypatch] * ("monkeypatch" in signature(test).parameters)
    check_notices(lambda: test(ledger, tmp_path, *more), mutant, monkeypatch, says)
