"""Somebody edits the file of a ledger."""

import sqlite3
from contextlib import closing

from vips.core.ledger import chain_file


def sql(path, statement, *values):
    """Run a statement; returns its rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def entries(path):
    """Number, text and hash of every entry."""
    return sql(path, "SELECT number, body, hash FROM entries ORDER BY number")


def rewrite(path, edit):
    """Write entries anew with the texts that ``edit`` returns for their numbers and texts, and with hashes that fit."""
    previous, rows = chain_file.START, []
    for number, body, _ in entries(path):
        body = edit(number, body)
        previous = chain_file._hash(number, previous, body)
        rows.append((body, previous, number))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("UPDATE entries SET body = ?, hash = ? WHERE number = ?", rows)


def append(path, body):
    """Append an entry of this text whose hash fits."""
    last, _, previous = entries(path)[-1]
    digest = chain_file._hash(last + 1, previous, body)
    sql(path, "INSERT INTO entries VALUES (?, ?, ?)", last + 1, body, digest)
