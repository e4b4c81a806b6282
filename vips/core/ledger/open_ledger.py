"""Which ledger pays for a fit without ``ledger=``: that of a scope ``with ledger:``, in this process or where it was sent from.

A scope is open for all threads of its process, and forked children stay inside it. Plans and models carry it to other
processes: each pickle records the scope in which it was made, and keeps this record wherever it is unpickled or sent on.
Unpickling changes nothing in a process. The fit looks for the ledger when it begins, and is refused if it cannot reach that
very file.
"""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from vips.exceptions import LedgerError

__all__ = [
    "OUTSIDE",
    "KeepsItsScope",
    "Scope",
    "SentFrom",
    "call_inside",
    "enter",
    "is_open_here",
    "leave",
    "paying",
    "sent_from",
]

# `sent_from` of what was pickled outside of every scope.
OUTSIDE = "outside"


@dataclass(frozen=True)
class Scope:
    """One ``with ledger:``, as other processes recognise it.

    Attributes
    ----------
    path : str
        Path of the ledger's file.
    identity : str
        Hash of the ledger's first entry.
    token : str
        Random. Opening the scope enters it in the ledger, so that older copies lack it.
    device, inode : int
        Numbers of the file; newer copies have others.
    machine : str
        The machine on which ``device`` has a meaning.
    purpose : str
        What is charged is for this.
    """

    path: str
    identity: str
    token: str
    device: int
    inode: int
    machine: str
    purpose: str = ""

    def is_same_ledger(self, other: Scope) -> bool:
        """Whether both are scopes of one file."""
        return (self.identity, self.inode) == (other.identity, other.inode)

    def has_this_file(self) -> bool:
        """Whether the file at ``path`` here is that file, as far as ``stat`` tells."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return False
        return stat.st_ino == self.inode and (stat.st_dev == self.device or self.machine != this_machine())


SentFrom = Scope | str | None


@cache
def this_machine() -> str:
    """A name that all containers on one kernel share, and no other machine has."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


class _Scopes(dict[object, Scope]):
    """Open scopes, by a key of their opener. Forked children see whether a scope is still open."""

    def __init__(self) -> None:
        super().__init__()
        self.flags: dict[object, mmap.mmap] = {}

    def open(self, key: object, scope: Scope) -> None:
        flag = mmap.mmap(-1, 1)  # memory that a forked child shares
        flag[0] = 1
        self.flags[key] = flag
        self[key] = scope

    def close(self, key: object) -> None:
        """Close a scope; may be called again."""
        self.pop(key, None)
        flag = self.flags.get(key)
        if flag is not None:
            flag[0] = 0
        self.flags.pop(key, None)


class _Process:
    """The scopes that are open in this process, and those that were open in its parents when it was forked."""

    def __init__(self, inherited: Iterable[tuple[Scope, mmap.mmap]] = ()) -> None:
        self.scopes, self.calls = _Scopes(), _Scopes()
        self._inherited = tuple(inherited)

    def forked(self) -> _Process:
        shared = ((scope, held.flags[key]) for held in (self.scopes, self.calls) for key, scope in held.items())
        return _Process([*shared, *self._inherited])

    def inherited(self, open_still: bool = False) -> list[Scope]:
        return [scope for scope, flag in self._inherited if flag[0] or not open_still]


_process = _Process()
_call: ContextVar[Scope | None] = ContextVar("vips_call_inside", default=None)


def _after_fork_in_child() -> None:
    global _process
    _process = _process.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def enter(key: object, scope: Scope) -> None:
    """Open a scope for all threads, until ``leave(key)``. LedgerError, and no scope, if one of another ledger is open."""
    process = _process
    process.scopes.open(key, scope)  # before the check, so that two threads with different ledgers cannot both pass it
    for other in (*process.scopes.values(), *process.calls.values(), *process.inherited()):
        if not other.is_same_ledger(scope):
            leave(key)
            raise LedgerError(f"Another ledger, {other.path}, is open: a fit is charged to one of them.")


def leave(key: object) -> None:
    """Close the scope that was opened with this key, if any."""
    _process.scopes.close(key)


@contextmanager
def call_inside(scope: Scope) -> Iterator[None]:
    """Open a scope around a call: for fits of this thread, and in other threads for those that no pickle brought."""
    process, key = _process, object()
    before = _call.set(scope)
    try:
        process.calls.open(key, scope)
        yield
    finally:
        process.calls.close(key)
        _call.reset(before)


def is_open_here(scope: Scope) -> bool:
    """Whether this process opened that very scope and has not left it."""
    return scope in list(_process.scopes.values())


def sent_from(before: SentFrom = None) -> Scope | str:
    """The origin to record in a pickle that is made now; ``before`` is the origin with which the object arrived, if any."""
    if isinstance(before, Scope):
        return before
    return paying(before) or OUTSIDE


class KeepsItsScope:
    """Base of plans and budgets, values with a field ``sent_from``.

    A pickle names the open scope, whose ledger pays for what is fitted with it, wherever it is unpickled. A copy stays in this
    process.
    """

    sent_from: SentFrom

    def __getstate__(self) -> dict:
        return self.__dict__ | {"sent_from": sent_from(self.sent_from)}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self


def paying(*sent: SentFrom) -> Scope | None:
    """The scope that pays for a fit whose plan and model arrived with the origins ``sent``; None if there is none.

    Raises
    ------
    LedgerError
        If scopes of several ledgers could be meant.
    """
    process = _process
    direct = [scope for scope in (*sent, _call.get()) if isinstance(scope, Scope)]
    general = list(process.scopes.values())
    if not direct and OUTSIDE in sent:  # still open, because a worker that was forked inside may outlive the scope
        general += process.inherited(open_still=True)
    elif not direct:
        general += [*process.inherited(), *process.calls.values()]
    candidates = direct + general
    for scope in candidates:
        if not scope.is_same_ledger(candidates[0]):
            raise LedgerError(
                f"It is not clear which ledger pays for this fit, {candidates[0].path} or {scope.path}: it was sent from "
                "inside of a scope of one, and runs inside of a scope of the other. Leave one of the scopes first."
            )
    return candidates[0] if candidates else None
