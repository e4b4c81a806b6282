"""What is written replaces no ledger, device, pipe, folder or input, and is proved writable before a fit is paid for."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from vips import (
    BayesianLogisticRegression,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
)
from vips.__main__ import main
from vips._support.files import check_writable
from vips.core.ledger.reader import append_entries
from vips.exceptions import CheckpointError
from vips.preprocessing import TableEncoder, make_private_pipeline

pd = pytest.importorskip("pandas")
posix = pytest.mark.skipif(os.name != "posix", reason="pipes and devices")
PLAN = PrivacyPlan.from_epsilon(epsilon=0.5, delta=1e-6, sampling_rate=1.0, n_steps=1)
FIT = shlex.split(
    "fit visits.csv --model logistic --target again --classes 0,1 --column age=0:110 --epsilon 1 --delta 1e-6 --ledger v.ledger"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A data set and a saved model."""
    folder, rng = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(18, 90, 300), "again": rng.integers(0, 2, 300)})
    with contextlib.chdir(folder):
        table.to_csv("visits.csv", index=False)
        assert main([*FIT[:-2], "--save", "m.vips"]) == 0
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """Both, and an empty ledger, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("visits.csv", "m.vips"):
        shutil.copy(made / name, name)
    PrivacyLedger("v.ledger", 2.0, 1e-6, "Visits")
    return tmp_path


def refused(arguments, capsys, message):
    before = {file: file.read_bytes() for file in _files(".")}
    capsys.readouterr()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert {file: file.read_bytes() for file in _files(".")} == before
    assert PrivacyLedger.open("v.ledger").spent() == 0.0


def _files(folder):
    return [file for file in Path(folder).iterdir() if file.is_file()]


@posix
@pytest.mark.parametrize("option", ["--save", "--report"])
def test_nothing_replaces_a_ledger_an_input_or_what_is_no_file(folder, capsys, option):
    os.mkfifo("pipe")
    os.symlink("pipe", "link")
    os.symlink("v.ledger", "link of ledger")
    os.mkdir("inside")
    for path, message in (
        ("v.ledger", "is never replaced"),
        ("v.ledger-journal", "is never replaced"),
        ("link of ledger", "is never replaced"),
        ("pipe", "is never replaced"),
        ("link", "is never replaced"),
        ("/dev/null", "is never replaced"),
        ("inside", "is never replaced"),
        ("visits.csv", "is read by this command"),
        ("inside/../visits.csv", "is read by this command"),
        ("no/folder", "There is no folder"),
        ("n" * 300, "too long"),
    ):
        refused([*FIT, option, path], capsys, message)
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


def test_two_outputs_are_two_files_and_predictions_replace_neither_model_nor_data(folder, capsys):
    refused([*FIT, "--save", "new", "--report", "./new"], capsys, "Two outputs are one file")
    assert not (folder / "new").exists()
    for path, message in (
        ("m.vips", "is read by this command"),
        ("visits.csv", "is read by this command"),
        ("v.ledger", "is never replaced"),
    ):
        refused(["predict", "m.vips", "visits.csv", "--out", path], capsys, message)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_predictions_are_for_their_owner_only(folder, ending):
    assert main(["predict", "m.vips", "visits.csv", "--out", f"new.{ending}"]) == 0
    predictions = pd.read_parquet("new.parquet") if ending == "parquet" else pd.read_csv(f"new.{ending}")
    assert len(predictions) == 300
    assert os.name != "posix" or stat.S_IMODE(os.stat(f"new.{ending}").st_mode) == 0o600


def test_a_text_that_is_read_is_not_replaced(folder, capsys):
    (folder / "letters").mkdir()
    (folder / "letters" / "a.txt").write_text("harbour")
    command = shlex.split("fit letters --model topics --epsilon 1 --delta 1e-6 --ledger v.ledger --save")
    for name in ("letters/a.txt", "letters/new.txt"):
        refused([*command, name], capsys, "is read by this command")


def test_a_report_needs_jinja2_before_anything_is_paid(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    refused([*FIT, "--report", "page.html"], capsys, "pip install 'vips[plot]'")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_found_before_anything_is_paid(folder, capsys):
    (folder / "locked").mkdir(0o500)
    refused([*FIT, "--save", "locked/m.vips"], capsys, "nothing can be written there")


def test_a_file_system_that_refuses_is_found_before_anything_is_paid(folder, capsys, monkeypatch):
    opened = os.open

    def refusing(path, flags, *more, **named):
        if str(path).endswith(".partial"):
            raise OSError(30, "Read-only file system", path)
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    refused([*FIT, "--save", "new.vips"], capsys, "Read-only file system")


@pytest.mark.parametrize("name", ["m" * 245, "m" * 255, "ü" * 127])
def test_long_names_are_written(folder, name):
    assert main([*FIT, "--save", name]) == 0
    assert main(["predict", name, "visits.csv", "--out", "new.csv"]) == 0
    assert not [entry for entry in os.listdir() if entry.endswith(".partial")]


def test_a_terminal_of_few_characters_shows_the_statement(folder):
    with open("out.txt", "w", encoding="ascii") as out, contextlib.redirect_stdout(out):
        assert main(FIT) == 0
    assert "Unit: one row of X with its label." in (folder / "out.txt").read_text(encoding="ascii")


def test_files_of_python_replace_no_ledger(folder):
    model = DirichletMultinomial(privacy=PLAN).fit(np.eye(3))
    before = (folder / "v.ledger").read_bytes()
    for write in (model.save, model.privacy_.to_html, model.privacy_.to_json, check_writable):
        for path in ("v.ledger", "v.ledger-journal", folder):
            with pytest.raises(FileExistsError, match="never replaced"):
                write(path)
    assert (folder / "v.ledger").read_bytes() == before


def test_a_checkpoint_is_proved_writable_before_anything_is_charged(folder):
    (folder / "folder").mkdir()
    ledger = PrivacyLedger.open("v.ledger")
    plan = PrivacyPlan.from_epsilon(epsilon=0.5, delta=1e-6, sampling_rate=0.5, n_steps=2)
    model, before = LatentDirichletAllocation(2, vocabulary=3, privacy=plan), (folder / "v.ledger").read_bytes()
    for name in ("v.ledger", "none/c.vips", "folder", "n" * 256):
        with pytest.raises((CheckpointError, OSError)):
            model.fit(np.eye(3), ledger=ledger, checkpoint=name)
        assert (folder / "v.ledger").read_bytes() == before, f"{name}: charged, and perhaps given back"
    assert model.fit(np.eye(3), checkpoint="c" * 255).privacy_ is not None, "a long name works"


@pytest.mark.parametrize("name", ["c" * 250, "c" * 248])
def test_a_checkpoint_of_a_pipeline_is_proved_writable_before_anything_is_charged(folder, name):
    """So is its second file, whose name is longer: ``.encoder`` follows."""
    ledger, table = PrivacyLedger.open("v.ledger"), pd.read_csv("visits.csv")
    encoder = TableEncoder({"age": "number"})
    pipeline = make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=PrivacyBudget(1.0, 1e-6))
    with pytest.raises(CheckpointError, match="too long"):
        pipeline.fit(table[["age"]], table["again"], ledger=ledger, checkpoint=name)
    assert ledger.spent() == 0.0


@posix
def test_looking_at_a_ledger_keeps_the_locks_of_an_open_transaction(folder, monkeypatch):
    """A second descriptor that is closed while a transaction is open would let another process in."""
    ledger = PrivacyLedger.open("v.ledger")
    inside, looked, locked = threading.Event(), threading.Event(), []

    def look():
        inside.wait()
        with pytest.raises(FileExistsError):
            check_writable("v.ledger")
        looked.set()

    thread = threading.Thread(target=look)
    thread.start()

    def slow(book):
        inside.set()
        looked.wait(1.0)  # the thread waits for the end of this transaction
        command = f"import sqlite3; sqlite3.connect({str(folder / 'v.ledger')!r}, timeout=0).execute('BEGIN IMMEDIATE')"
        locked.append(subprocess.run([sys.executable, "-c", command], capture_output=True).returncode != 0)
        return book.accepting("one letter")

    append_entries(ledger, slow)
    thread.join()
    assert locked == [True]
    assert looked.is_set()
