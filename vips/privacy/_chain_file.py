"""An append-only SQLite file of entries, each bound to the one before it by a hash.

``hash_i = SHA-256(JSON of [i, hash_{i-1}, entry_i])``. An edit, a removal or an insertion inside the file breaks every
later hash. Whoever can rewrite the whole file can also rewrite its hashes, or put an older copy in its place: that shows
only against a head (number and hash of the last entry) that was kept elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from vips._archive import sync_folder

__all__ = ["ChainFile", "LedgerError"]

APPLICATION_ID = 0x76697073  # "vips" in SQLite's header
FORMAT_VERSION = 1
BUSY_SECONDS = 60.0
START = "0" * 64


class LedgerError(ValueError):
    """A ledger refuses, or its file is damaged or foreign. Nothing was changed."""


class ChainFile:
    """Entries 0, 1, 2, … in one file. Every operation opens, locks and closes it, so that instances survive ``fork``.

    Parameters
    ----------
    path : path of an existing file
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, first: dict) -> bool:
        """Make the file with its first entry, whole or not at all; False if there already is one."""
        if path.exists():
            return False
        if not path.parent.is_dir():
            raise LedgerError(f"There is no folder {path.parent} for a ledger.")
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        try:
            with contextlib.closing(_connect(partial, create=True)) as connection:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)"
                )
                _insert(connection, 0, START, first)
                connection.execute("COMMIT")
            try:
                os.link(partial, path)  # fails if the path has come into being meanwhile: nobody's file is replaced
            except FileExistsError:
                return False
            sync_folder(path.parent)
            return True
        except sqlite3.OperationalError as error:
            raise OSError(f"No ledger could be made at {path}: {error}.") from error
        finally:
            partial.unlink(missing_ok=True)

    def read(self, known: int = 0, known_hash: str = START) -> list[tuple[int, dict, str]]:
        """Entries from number ``known`` on, after a check of the chain from ``known_hash``."""
        with self._locked() as connection:
            return _read(connection, known, known_hash, self.path)

    def append(self, known: int, known_hash: str, decide: Callable[[list], list[dict]]) -> list[tuple[int, dict, str]]:
        """One transaction: read what is new, let ``decide(new)`` name further entries, and write them durably.

        Nobody else writes in between. If ``decide`` raises, or the disk is full, nothing is written.
        """
        with self._locked() as connection:
            entries = _read(connection, known, known_hash, self.path)
            for body in decide(entries):
                number, previous = (entries[-1][0] + 1, entries[-1][2]) if entries else (known, known_hash)
                entries.append((number, body, _insert(connection, number, previous, body)))
            connection.execute("COMMIT")  # returns once everything is on the disk
            return entries

    @contextlib.contextmanager
    def _locked(self) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise LedgerError(f"There is no file {self.path}.")
        with self.path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise LedgerError(f"{self.path} is not a ledger (or has been truncated): nothing was changed.")
        try:
            with contextlib.closing(_connect(self.path, create=False)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                identity = connection.execute("PRAGMA application_id").fetchone()[0]
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if identity != APPLICATION_ID:
                    raise LedgerError(f"{self.path} is not a ledger but another SQLite file: nothing was changed.")
                if version != FORMAT_VERSION:
                    raise LedgerError(f"{self.path} has ledger format {version}; this version reads {FORMAT_VERSION}.")
                yield connection  # closing without COMMIT rolls back
        except sqlite3.OperationalError as error:
            raise OSError(f"{self.path} could not be read or written, and nothing was changed: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{self.path} is damaged or not a ledger: {error}.") from error


def _connect(path: Path, create: bool) -> sqlite3.Connection:
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")  # a commit is on the disk, its directory entry too
    connection.execute("PRAGMA fullfsync = 1")
    return connection


def _insert(connection: sqlite3.Connection, number: int, previous: str, body: dict) -> str:
    text = _canonical(body)
    digest = _hash(number, previous, text)
    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, digest))
    return digest


def _read(connection, known: int, known_hash: str, path: Path) -> list[tuple[int, dict, str]]:
    entries, previous = [], known_hash
    rows = connection.execute("SELECT number, body, hash FROM entries WHERE number >= ? ORDER BY number", (known,))
    for expected, (number, text, digest) in enumerate(rows, start=known):
        if number != expected or digest != _hash(number, previous, text):
            raise LedgerError(
                f"{path} has been edited: the hash of entry {expected} does not fit. Nothing was changed."
            )
        entries.append((number, json.loads(text), digest))
        previous = digest
    if not entries:
        kept = connection.execute("SELECT hash FROM entries WHERE number = ?", (known - 1,)).fetchone()
        if kept != (known_hash,):
            raise LedgerError(f"{path} has lost entries that were there before. Nothing was changed.")
    return entries


def _hash(number: int, previous: str, text: str) -> str:
    return hashlib.sha256(_canonical([number, previous, text]).encode()).hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
