"""The one thread of this process that works on ledger files.

Callers of :func:`ask` wait for the result. A Ctrl-C interrupts their wait, never the work: the clerk completes all requests, in
order. So an interrupted charge is on record before the close that follows it.

Python runs ``__del__`` and ends of generators in any thread, the clerk's too, and after all threads have stopped. The clerk
cannot answer there: a request raises an error, and a run that it wanted to close stays charged.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

__all__ = ["ask"]

T = TypeVar("T")


class _Request(Generic[T]):
    """Work, and its result or error. (A Ctrl-C can leave a ``Future`` of the standard library locked.)"""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: BaseException | None = None
        self.pending = threading.Lock()
        self.pending.acquire()

    def answer(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error
        self.pending.release()

    def wait(self) -> T:
        self.pending.acquire()
        try:
            if self.error is not None:
                raise self.error
            return cast(T, self.result)
        finally:
            self.error = None  # its traceback refers to this request


class _Clerk:
    def __init__(self) -> None:
        self.process = os.getpid()
        self._working_threads: list[int] = []  # identifiers of the threads that answer
        self._requests: SimpleQueue[_Request[Any]] = SimpleQueue()
        self._serving, self._started = threading.Lock(), False

    def ask(self, work: Callable[[], T]) -> T:
        if threading.get_ident() in self._working_threads or sys.is_finalizing():
            raise RuntimeError(
                "A ledger cannot be used by a finaliser (`__del__`, the end of a generator) that runs in the thread working on "
                "it, or after Python has stopped its threads. A run that it was to close stays charged until ledger.close(run)."
            )
        request = _Request(work)
        self._requests.put(request)
        if not self._started:
            self._start()
        return request.wait()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._serve, name="vips-ledger", daemon=True).start()
        except RuntimeError:  # no more threads can be started: the caller does the work
            with suppress(Empty):
                self._serve(block=False)
        else:
            self._started = True

    def _serve(self, block: bool = True) -> None:
        thread = threading.get_ident()
        self._working_threads.append(thread)
        try:
            while True:
                with self._serving:  # an interrupted start is repeated: with two threads, requests still run in order
                    self._requests.get(block).answer()
        finally:
            self._working_threads.remove(thread)


_clerk = _Clerk()


def ask(work: Callable[[], T]) -> T:
    """Run ``work()`` in the clerk's thread; returns or raises what it does. ``work`` must not call ``ask``. RuntimeError if a
    finaliser calls it where the clerk cannot answer."""
    if _clerk.process != os.getpid():  # a Ctrl-C interrupted `_in_child`
        _in_child()
    return _clerk.ask(work)


def _in_child() -> None:
    """A forked child has no other threads: it starts with its own clerk, without requests."""
    global _clerk
    _clerk = _Clerk()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
