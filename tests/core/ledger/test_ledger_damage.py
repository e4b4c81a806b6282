"""Damaged and forged ledgers are LedgerErrors; an error of the disk at the end of a transaction is told as it is."""

from __future__ import annotations

import json
import random
import sqlite3

import numpy as np
import pytest

from tests.core.ledger.forgery import entries, rewrite, sql
from tests.persistence.damage import changed, flipped
from vips import DirichletMultinomial, LedgerError, PrivacyLedger, PrivacyPlan
from vips.core.ledger import chain_file

PLAN = PrivacyPlan.from_epsilon(epsilon=0.3, delta=1e-6, sampling="full", n_steps=2)
SAMPLED = PrivacyPlan(noise_multiplier=8.0, sampling_rate=0.5, n_steps=2)
ODD = [None, True, -1, 10**30, 1e308, -0.5, "", "x", [], {}, [[]], 2**63, "[" * 50]


@pytest.fixture
def ledger(tmp_path):
    """One with an entry of every kind."""
    ledger = PrivacyLedger(tmp_path / "l.ledger", 3.0, 1e-5, "letters", pure=0.5)
    ledger.charge(SAMPLED)
    ledger.charge_event("sum", unit="one record", relation="add_or_remove", epsilon=0.1, delta=1e-7)
    for _ in range(2):
        run = ledger.charge(PLAN, "a model")
    run.record(1)
    run.resume(1, PLAN)
    ledger.close(run.run)
    ledger.accept_unit("one letter")
    with ledger:
        pass
    return ledger


def use(path):
    ledger = PrivacyLedger.open(path)
    ledger.spent(), ledger.runs(), ledger.remaining(), ledger.history(), ledger.verify(), repr(ledger)
    ledger.charge(PLAN)


def refusals(path, changes):
    """How many of the changes are refused; any error but a LedgerError or one of the system passes through."""
    refused = 0
    for change in changes:
        change()
        try:
            use(path)
        except (LedgerError, OSError):
            refused += 1
    return refused


def test_flipped_and_missing_bytes(ledger):
    whole, rng = ledger.path.read_bytes(), random.Random(0)
    assert refusals(ledger.path, [lambda: ledger.path.write_bytes(flipped(whole, rng))] * 100) > 50


def test_forged_entries_whose_hashes_fit(ledger):
    whole, rng, n_entries = ledger.path.read_bytes(), random.Random(0), len(entries(ledger.path))

    def change():
        chosen = rng.randrange(n_entries)

        def forged(number, text):
            if number != chosen:
                return text
            if rng.random() < 0.1:
                return rng.choice(["[]", "null", '{"kind":[]}', "[[[["])
            return json.dumps(changed(json.loads(text), rng, ODD))

        ledger.path.write_bytes(whole)
        rewrite(ledger.path, forged)

    assert refusals(ledger.path, [change] * 100) > 50


def test_cells_of_other_types(ledger):
    whole = ledger.path.read_bytes()

    def change(column, value):
        ledger.path.write_bytes(whole)
        sql(ledger.path, f"UPDATE entries SET {column} = ? WHERE number = 2", value)

    values = [b"\xff\xfe", 5, 1.5, "", "\x00", b""]
    changes = [lambda c=c, v=v: change(c, v) for c in ("body", "hash") for v in values]
    assert refusals(ledger.path, changes) == len(changes)


class Disk:
    """Connections to SQLite whose disk fails after it has done the last COMMIT, or before."""

    def __init__(self, is_done, is_lost=False):
        self.is_done, self.is_lost, self.has_failed = is_done, is_lost, False
        self._connect = sqlite3.connect

    def connect(disk, *arguments, **named):
        class Connection(sqlite3.Connection):
            def execute(self, statement, *more):
                if disk.has_failed and disk.is_lost:
                    raise sqlite3.OperationalError("disk I/O error")
                if statement == "COMMIT" and not disk.has_failed and self.in_transaction and self.total_changes:
                    disk.has_failed = True
                    super().execute("COMMIT" if disk.is_done else "ROLLBACK")
                    raise sqlite3.OperationalError("disk I/O error")
                return super().execute(statement, *more)

        return disk._connect(*arguments, factory=Connection, **named)


@pytest.mark.parametrize(
    ("disk", "says"),
    [
        (Disk(False), "nothing was changed"),
        (Disk(True), "entries are there, and count"),
        (Disk(True, is_lost=True), "entries may be there"),
    ],
)
def test_an_error_at_the_end_of_a_transaction_says_what_is_in_the_file(tmp_path, monkeypatch, disk, says):
    ledger = PrivacyLedger(tmp_path / "l.ledger", 3.0, 1e-5, "letters")
    monkeypatch.setattr(chain_file.sqlite3, "connect", disk.connect)
    with pytest.raises(OSError, match=says) as caught:
        ledger.charge(PLAN)
    assert ("nothing was changed" in str(caught.value)) == (not disk.is_done)
    monkeypatch.undo()
    assert (ledger.spent() > 0.0) == disk.is_done
    assert len(ledger.runs()) == disk.is_done


def test_a_fit_whose_charge_was_not_confirmed_gives_it_back(tmp_path, monkeypatch):
    ledger = PrivacyLedger(tmp_path / "l.ledger", 3.0, 1e-5, "letters")
    monkeypatch.setattr(chain_file.sqlite3, "connect", Disk(True).connect)
    with pytest.raises(OSError, match="entries are there"):
        DirichletMultinomial(privacy=PLAN).fit(np.eye(3), ledger=ledger)
    assert [run.state for run in ledger.runs()] == ["closed at 0"]
    assert ledger.spent() == 0.0
