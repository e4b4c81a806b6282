"""Which ledger pays for a fit without ``ledger=``: that of a block ``with ledger:``, in this process or where it was sent from.

A block is open for all threads of its process, and forked children stay inside it. Plans and models carry it to other
processes: each pickle records the block in which it was made, and keeps this record wherever it is unpickled or sent on.
Unpickling changes nothing in a process. The fit looks for the ledger when it begins, and is refused if it cannot reach that
very file.
"""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vips.exceptions import LedgerError

__all__ = [
    "OUTSIDE",
    "Block",
    "SentFrom",
    "call_inside",
    "enter",
    "is_open_here",
    "leave",
    "paying",
    "prepaid",
    "sent_from",
    "takes_prepaid",
]

# `sent_from` of what was pickled outside of every block.
OUTSIDE = "outside"


@dataclass(frozen=True)
class Block:
    """One ``with ledger:``, as other processes recognise it.

    Attributes
    ----------
    path : str
        Path of the ledger's file.
    identity : str
        Hash of the ledger's first entry.
    token : str
        Random. Opening the block enters it in the ledger, so that older copies lack it.
    device, inode : int
        Numbers of the file; newer copies have others.
    machine : str
        The machine on which ``device`` has a meaning.
    """

    path: str
    identity: str
    token: str
    device: int
    inode: int
    machine: str

    def is_same_ledger(self, other: Block) -> bool:
        """Whether both are blocks of one file."""
        return (self.identity, self.inode) == (other.identity, other.inode)

    def has_this_file(self) -> bool:
        """Whether the file at ``path`` here is that file, as far as ``stat`` tells."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return False
        return stat.st_ino == self.inode and (stat.st_dev == self.device or self.machine != this_machine())


SentFrom = Block | str | None


@cache
def this_machine() -> str:
    """A name that all containers on one kernel share, and no other machine has."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


class _Blocks(dict[object, Block]):
    """Open blocks, by a key of their opener. Forked children see whether a block is still open."""

    def __init__(self) -> None:
        super().__init__()
        self.flags: dict[object, mmap.mmap] = {}

    def open(self, key: object, block: Block) -> None:
        flag = mmap.mmap(-1, 1)  # memory that a forked child shares
        flag[0] = 1
        self.flags[key] = flag
        self[key] = block

    def close(self, key: object) -> None:
        """Close a block; may be called again."""
        self.pop(key, None)
        flag = self.flags.get(key)
        if flag is not None:
            flag[0] = 0
        self.flags.pop(key, None)

    def shared(self) -> list[tuple[Block, mmap.mmap]]:
        return [(block, self.flags[key]) for key, block in self.items()]


class _Process:
    """The blocks that are open in this process, and those that were open in its parents when it was forked."""

    def __init__(self, inherited: Iterable[tuple[Block, mmap.mmap]] = ()) -> None:
        self.blocks, self.calls = _Blocks(), _Blocks()
        self._inherited = tuple(inherited)

    def forked(self) -> _Process:
        return _Process([*self.blocks.shared(), *self.calls.shared(), *self._inherited])

    def inherited(self, open_still: bool = False) -> list[Block]:
        return [block for block, flag in self._inherited if flag[0] or not open_still]


_process = _Process()
_call: ContextVar[Block | None] = ContextVar("vips_call_inside", default=None)
_prepaid: ContextVar[list | None] = ContextVar("vips_prepaid", default=None)


def _after_fork_in_child() -> None:
    global _process
    _process = _process.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def enter(key: object, block: Block) -> None:
    """Open a block for all threads, until ``leave(key)``.

    Raises
    ------
    LedgerError
        If a block of another ledger is open. Nothing is opened then.
    """
    process = _process
    process.blocks.open(key, block)  # before the check, so that two threads with different ledgers cannot both pass it
    for other in (*process.blocks.values(), *process.calls.values(), *process.inherited()):
        if not other.is_same_ledger(block):
            leave(key)
            raise LedgerError(f"Another ledger, {other.path}, is open: a fit is charged to one of them.")


def leave(key: object) -> None:
    """Close the block that was opened with this key, if any."""
    _process.blocks.close(key)


@contextmanager
def call_inside(block: Block) -> Iterator[None]:
    """Open a block around a call: for fits of this thread, and in other threads for those that no pickle brought."""
    process, key = _process, object()
    before = _call.set(block)
    try:
        process.calls.open(key, block)
        yield
    finally:
        process.calls.close(key)
        _call.reset(before)


@contextmanager
def prepaid(plan: object) -> Iterator[None]:
    """Around a fit that a larger charge has paid for: the first one with this very plan object, in this thread, costs nothing.

    Only the first one, and only inside: code that runs in that fit may fit again, or keep its context for later.
    """
    unused = [plan]
    before = _prepaid.set(unused)
    try:
        yield
    finally:
        unused.clear()
        _prepaid.reset(before)


def takes_prepaid(plan: object) -> bool:
    """Whether a larger charge has paid for a fit with this plan object, here and now; then it is used up."""
    unused = _prepaid.get()
    if plan is None or not unused or unused[0] is not plan:
        return False
    with suppress(IndexError):  # if another thread with this context was faster
        return unused.pop() is plan
    return False


def is_open_here(block: Block) -> bool:
    """Whether this process opened that very block and has not left it."""
    return block in list(_process.blocks.values())


def sent_from(before: SentFrom = None) -> Block | str:
    """The origin to record in a pickle that is made now; ``before`` is the origin with which the object arrived, if any."""
    if isinstance(before, Block):
        return before
    return paying(before) or OUTSIDE


def paying(*sent: SentFrom) -> Block | None:
    """The block that pays for a fit whose plan and model arrived with the origins ``sent``; None if there is none.

    Raises
    ------
    LedgerError
        If blocks of several ledgers could be meant.
    """
    process = _process
    direct = [block for block in (*sent, _call.get()) if isinstance(block, Block)]
    general = list(process.blocks.values())
    if not direct and OUTSIDE in sent:  # still open, because a worker that was forked inside may outlive the block
        general += process.inherited(open_still=True)
    elif not direct:
        general += [*process.inherited(), *process.calls.values()]
    candidates = direct + general
    for block in candidates:
        if not block.is_same_ledger(candidates[0]):
            raise LedgerError(
                f"It is not clear which ledger pays for this fit, {candidates[0].path} or {block.path}: it was sent from "
                "inside of a block of one, and runs inside of a block of the other. Leave one of the blocks first."
            )
    return candidates[0] if candidates else None
