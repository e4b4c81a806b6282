"""The one thread of this process that works on ledger files.

Whoever asks waits for the answer. A Ctrl-C interrupts the waiting, never the work: what was asked is done whole, and in the
order in which it was asked, so that a charge that was interrupted is on record before the close that follows it is tried.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

__all__ = ["ask"]

T = TypeVar("T")


class _Question(Generic[T]):
    """Work, and what came of it. (A ``Future`` of the standard library can be left locked by a Ctrl-C.)"""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work, self.result, self.error = work, None, None
        self.open = threading.Lock()
        self.open.acquire()

    def answer(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error
        self.open.release()

    def wait(self) -> T:
        self.open.acquire()
        try:
            if self.error is not None:
                raise self.error
            return self.result
        finally:
            self.error = None  # its traceback refers to this question


class _Clerk:
    def __init__(self) -> None:
        self._asked: SimpleQueue[_Question] = SimpleQueue()
        self._serving, self._started = threading.Lock(), False

    def ask(self, work: Callable[[], T]) -> T:
        question = _Question(work)
        self._asked.put(question)
        if not self._started:
            self._start()
        return question.wait()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._serve, name="vips-ledger", daemon=True).start()
        except RuntimeError:  # no more threads can be started: whoever asks does the work
            with suppress(Empty):
                while True:
                    self._answer_next(block=False)
        else:
            self._started = True

    def _serve(self) -> None:
        while True:
            self._answer_next()

    def _answer_next(self, block: bool = True) -> None:
        with self._serving:  # a start that was interrupted is repeated: two threads still work in order
            self._asked.get(block).answer()


_clerk = _Clerk()


def ask(work: Callable[[], T]) -> T:
    """What ``work()`` returns or raises, done by the clerk. ``work`` must not ask in turn."""
    return _clerk.ask(work)


def _in_child() -> None:
    """A forked child has no other threads: it begins with a clerk of its own, who was asked nothing."""
    global _clerk
    _clerk = _Clerk()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
