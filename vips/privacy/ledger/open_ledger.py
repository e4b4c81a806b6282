"""Which ledger pays for a fit that is not told: a block ``with ledger:`` around it, here or where it was sent from.

Here, a block is open for all threads of the process, and a forked child goes on inside it. To other processes a fit takes the
block along: every plan and model that is pickled says where it was sent from, and says the same whoever unpickles it or sends
it on. Nothing in a process changes when one arrives; the fit looks when it begins, and is refused if it cannot reach that very
ledger.
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

from vips.exceptions import LedgerError

__all__ = ["OUTSIDE", "Block", "SentFrom", "call_inside", "enter", "is_open_here", "leave", "paying", "sent_from"]

# Of what was pickled outside of every block.
OUTSIDE = "outside"


@dataclass(frozen=True)
class Block:
    """One ``with ledger:``, as other processes recognise it.

    Attributes
    ----------
    path : str
        Of the ledger's file.
    identity : str
        Hash of the ledger's first entry.
    token : str
        Random; an entry of the ledger since the block was opened, so that older copies lack it.
    device, inode : int
        Of the file, by which newer copies differ.
    machine : str
        Where ``device`` means something.
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
        """Whether what is at ``path`` here is that file, as far as can be seen from outside."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return False
        return stat.st_ino == self.inode and (stat.st_dev == self.device or self.machine != this_machine())


SentFrom = Block | str | None


@cache
def this_machine() -> str:
    """A name that containers on one kernel share, and that others have not."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


class _Blocks(dict[object, Block]):
    """Open blocks by a key of whoever opened them; children that are forked see whether they are open still."""

    def __init__(self) -> None:
        super().__init__()
        self.flags: dict[object, mmap.mmap] = {}

    def open(self, key: object, block: Block) -> None:
        flag = mmap.mmap(-1, 1)  # memory that a forked child shares
        flag[0] = 1
        self.flags[key] = flag
        self[key] = block

    def close(self, key: object) -> None:
        """Once or twice."""
        self.pop(key, None)
        flag = self.flags.get(key)
        if flag is not None:
            flag[0] = 0
        self.flags.pop(key, None)

    def shared(self) -> list[tuple[Block, mmap.mmap]]:
        return [(block, self.flags[key]) for key, block in self.items()]


class _Process:
    """What is open in this process, and what was where it was forked."""

    def __init__(self, inherited: Iterable[tuple[Block, mmap.mmap]] = ()) -> None:
        self.blocks, self.calls = _Blocks(), _Blocks()
        self._inherited = tuple(inherited)

    def forked(self) -> _Process:
        return _Process([*self.blocks.shared(), *self.calls.shared(), *self._inherited])

    def inherited(self, open_still: bool = False) -> list[Block]:
        return [block for block, flag in self._inherited if flag[0] or not open_still]


_process = _Process()
_call: ContextVar[Block | None] = ContextVar("vips_call_inside", default=None)


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
        If one of another ledger is open. Nothing is opened then.
    """
    process = _process
    process.blocks.open(key, block)  # before looking around: of two threads with different ledgers, not both go on
    for other in (*process.blocks.values(), *process.calls.values(), *process.inherited()):
        if not other.is_same_ledger(block):
            leave(key)
            raise LedgerError(f"Another ledger, {other.path}, is open: a fit is charged to one of them.")


def leave(key: object) -> None:
    """Close what was opened with this key, if anything was."""
    _process.blocks.close(key)


@contextmanager
def call_inside(block: Block) -> Iterator[None]:
    """The block around a call: of what this thread does, and of threads without one of their own if there is no other."""
    process, key = _process, object()
    before = _call.set(block)
    try:
        process.calls.open(key, block)
        yield
    finally:
        process.calls.close(key)
        _call.reset(before)


def is_open_here(block: Block) -> bool:
    """Whether this process opened that very block and has not left it."""
    return block in list(_process.blocks.values())


def sent_from(before: SentFrom = None) -> Block | str:
    """What something that is pickled now says, if it arrived here saying ``before``."""
    if isinstance(before, Block):
        return before
    return paying(before) or OUTSIDE


def paying(*sent: SentFrom) -> Block | None:
    """The block that pays for a fit of things that arrived saying ``sent``; None if there is none.

    Raises
    ------
    LedgerError
        If blocks of several ledgers could be meant.
    """
    process = _process
    own = [block for block in (*sent, _call.get()) if isinstance(block, Block)]
    general = list(process.blocks.values())
    if not own and OUTSIDE in sent:  # perhaps for a worker that was forked inside, and outlives the block
        general += process.inherited(open_still=True)
    elif not own:
        general += [*process.inherited(), *process.calls.values()]
    found = own + general
    for block in found:
        if not block.is_same_ledger(found[0]):
            raise LedgerError(
                f"It is not clear which ledger pays for this fit, {found[0].path} or {block.path}: it was sent from inside of "
                "a block of one, and runs inside of a block of the other. Leave one of the blocks first."
            )
    return found[0] if found else None
