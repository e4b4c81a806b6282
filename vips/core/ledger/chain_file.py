"""An append-only SQLite file of entries, each bound to the one before it by a hash.

``hash_i = SHA-256(JSON of [i, hash_{i-1}, entry_i])``. An edit, a removal or an insertion inside the file breaks every
later hash. Whoever can rewrite the whole file can also rewrite its hashes, or put an older copy in its place: that shows
only against a head (number and hash of the last entry) that was kept elsewhere.

Rules for opening the file:

- Only SQLite opens it. A POSIX process that closes any descriptor of a file loses all its locks on it, also those of a
  transaction in another thread. So ``stat`` tells whether the file exists, and SQLite whether it is a ledger.
- One thread of the process (``clerk.py``) opens it for one transaction, and closes it again. A fork waits for that, because
  a child must not inherit an open SQLite connection.
- SQLite uses its rollback journal (``journal_mode = DELETE``) and writes durably (``synchronous = EXTRA``). In WAL mode the
  last entries are in a second file, which copies miss: a file that another tool switched to WAL is refused.
- It has one name. A kill leaves the journal beside the name by which the file was opened; opening it by another name would
  miss the journal. So a file with hard links is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from vips._support.files import check_file_locks, no_fork, partial_of, partials_of, sync_folder
from vips.core.ledger.clerk import ask
from vips.exceptions import LedgerError

__all__ = ["START", "Chain", "ChainFile", "Entry", "UnconfirmedError"]

APPLICATION_ID = 0x76697073  # "vips" in SQLite's header
FORMAT_VERSION = 1
START = "0" * 64
# How long to wait for other processes: in all, and per attempt with the file open.
BUSY_SECONDS, _ATTEMPT_SECONDS = 60.0, 0.1

Entry = tuple[int, dict, str]


class UnconfirmedError(OSError):
    """A transaction that may have left something in the file."""


class Chain:
    """The entries during one transaction. New ones are kept if the transaction ends without an error."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path
        self.last: Entry | None = None  # that was written

    def read(self, known: int = 0, known_hash: str = START) -> list[Entry]:
        """Number, body and hash of the entries from number ``known`` on, checked from ``known_hash``, the hash before them."""
        entries, previous = [], known_hash
        select = "SELECT number, body, hash FROM entries WHERE number >= ? ORDER BY number"
        for expected, (number, text, digest) in enumerate(self._connection.execute(select, (known,)), start=known):
            if number != expected or not isinstance(text, str) or digest != _hash(number, previous, text):
                raise LedgerError(
                    f"{self._path} has been edited: the hash of entry {expected} does not fit. Nothing was changed."
                )
            try:
                entries.append((number, json.loads(text), digest))
            except (ValueError, RecursionError) as error:  # its hash fits, so somebody forged both
                raise LedgerError(f"{self._path} has been forged: entry {number} is not JSON ({error}).") from error
            previous = digest
        if not entries:
            kept = self._connection.execute("SELECT hash FROM entries WHERE number = ?", (known - 1,)).fetchone()
            if kept != (known_hash,):
                raise LedgerError(f"{self._path} has lost entries that were there before. Nothing was changed.")
        return entries

    def write(self, bodies: Iterable[dict], number: int, previous: str) -> list[Entry]:
        """Further entries from ``number`` on, the first after the one whose hash is ``previous``."""
        entries = []
        for body in bodies:
            text = _canonical(body)
            digest = _hash(number, previous, text)
            self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, digest))
            self.last = number, body, digest
            entries.append(self.last)
            number, previous = number + 1, digest
        return entries


class ChainFile:
    """Entries 0, 1, 2, … in one file.

    Parameters
    ----------
    path : path of an existing file
    """

    def __init__(self, path: Path) -> None:
        _check_platform()
        self.path = path

    @classmethod
    def create(cls, path: Path, first: dict) -> bool:
        """Create the file with its first entry, atomically; False if it exists already."""
        _check_platform()
        if path.exists():
            return False
        if not path.parent.is_dir():
            raise LedgerError(f"There is no folder {path.parent} for a ledger.")
        return ask(lambda: _create(path, first))

    @contextlib.contextmanager
    def transaction(self, to_write: bool = False) -> Iterator[Chain]:
        """One atomic transaction, durable once the block has ended. For the clerk's thread only.

        Raises
        ------
        LedgerError
            If the file is missing, foreign, damaged, of another version or in another journal mode.
        OSError
            If the file cannot be read or written. In both cases, and if the block raises, nothing is written; but see below.
        UnconfirmedError
            If the disk reports an error at the end, and entries are there nevertheless, or nobody can tell.
        """
        if self.path.is_dir():
            raise LedgerError(
                f"{self.path} is a folder: write the path of a file in it, such as {self.path / 'my.ledger'}."
            )
        if not self.path.is_file():
            raise LedgerError(f"There is no file {self.path}.")
        _check_single_name(self.path)
        deadline, chain = time.monotonic() + BUSY_SECONDS, None
        try:
            while True:
                with no_fork(), contextlib.ExitStack() as closing:
                    connection = self._begin(closing, to_write, is_last=time.monotonic() > deadline)
                    if connection is not None:
                        self._check(connection)
                        chain = Chain(connection, self.path)
                        yield chain
                        connection.execute("COMMIT")  # returns once everything is on the disk
                        return
                time.sleep(random.uniform(0.0, 0.01))  # with the file closed
        except sqlite3.OperationalError as error:
            is_there = False if chain is None or chain.last is None else self._holds(chain.last)
            if is_there is False:
                raise OSError(f"{self.path} could not be read or written, and nothing was changed: {error}.") from error
            known = "are there, and count" if is_there else "may be there, which cannot be read now"
            raise UnconfirmedError(
                f"The disk reported an error when a transaction of {self.path} ended: {error}. Its entries {known}. To see "
                "them, and to give back unreleased steps of a run: python -m vips ledger show, and close."
            ) from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite's messages quote the file
            raise LedgerError(f"{self.path} is damaged or not a ledger: {error}.") from error

    def _holds(self, entry: Entry) -> bool | None:
        """Whether an entry is in the file, after its transaction failed; None if that cannot be read."""
        number, _, digest = entry
        try:
            with no_fork(), _connected(self.path, create=False) as connection:
                select = "SELECT hash FROM entries WHERE number = ?"
                return connection.execute(select, (number,)).fetchone() == (digest,)
        except sqlite3.Error:
            return None

    def _begin(self, closing: contextlib.ExitStack, to_write: bool, is_last: bool) -> sqlite3.Connection | None:
        """A connection in a transaction; None if another process has the file, and this is not the last attempt."""
        try:
            connection = closing.enter_context(_connected(self.path, create=False))
            connection.execute("BEGIN EXCLUSIVE" if to_write else "BEGIN")
            connection.execute("PRAGMA schema_version").fetchone()  # SQLite takes the lock at the first read
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or is_last:
                raise
            return None
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raise LedgerError unless this is a ledger, in the format and the journal mode that this version uses."""
        identity, version, journal = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version", "journal_mode")
        )
        if identity != APPLICATION_ID:
            raise LedgerError(f"{self.path} is empty, cut off, or not a ledger but another file: nothing was changed.")
        if version != FORMAT_VERSION:
            raise LedgerError(f"{self.path} has ledger format {version}; this version reads {FORMAT_VERSION}.")
        if journal != "delete":
            raise LedgerError(
                f"{self.path} is in SQLite's journal mode {journal!r}: another tool switched it, and its last entries may be "
                "in another file, so that a copy of the ledger would miss what was spent. Close that tool, and switch it back: "
                f"sqlite3 {self.path} 'PRAGMA journal_mode = DELETE'"
            )


def _check_platform() -> None:
    check_file_locks("A ledger", "fit without `ledger`: nothing counts the fit then", LedgerError)


@contextlib.contextmanager
def _connected(path: Path, create: bool) -> Iterator[sqlite3.Connection]:
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=_ATTEMPT_SECONDS, isolation_level=None
    )
    try:
        connection.execute("PRAGMA synchronous = EXTRA")  # a commit is on the disk, its directory entry too
        connection.execute("PRAGMA fullfsync = 1")
        yield connection
    finally:
        connection.close()


def _create(path: Path, first: dict) -> bool:
    partial = partial_of(path)
    try:
        with no_fork(), _connected(partial, create=True) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)"
            )
            Chain(connection, partial).write([first], 0, START)
            connection.execute("COMMIT")
        is_made = _moved_into_place(partial, path)
        sync_folder(path.parent)
        return is_made
    except sqlite3.OperationalError as error:
        raise OSError(f"No ledger could be made at {path}: {error}.") from error
    finally:
        partial.unlink(missing_ok=True)


def _moved_into_place(partial: Path, path: Path) -> bool:
    """Move ``partial`` to ``path``; False if a file of that name exists by now, which is not replaced."""
    with contextlib.suppress(OSError):  # not every file system has hard links
        os.link(partial, path)
        return True
    try:
        path.open("xb").close()  # empty for a moment; an empty file is refused as a ledger
    except FileExistsError:
        return False
    os.replace(partial, path)
    return True


def _check_single_name(path: Path) -> None:
    """Raise LedgerError unless the file has one name. A second one, left by a kill in ``_moved_into_place``, is removed."""
    if path.stat().st_nlink == 1:
        return
    path = path.resolve()
    for other in partials_of(path):
        with contextlib.suppress(FileNotFoundError):
            if other.samefile(path):
                other.unlink()
    if path.stat().st_nlink > 1:
        raise LedgerError(
            f"{path} has hard links: a process that is killed leaves a journal beside one of the names, and opening the ledger "
            f"by another name would lose charges. Nothing was changed. Remove the other names (find / -samefile {path}); "
            "symbolic links work."
        )


def _hash(number: int, previous: str, text: str) -> str:
    return hashlib.sha256(_canonical([number, previous, text]).encode()).hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
