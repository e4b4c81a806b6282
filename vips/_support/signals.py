"""Work between a beginning and an end that no signal can leave half done: a Ctrl-C, or another signal whose handler raises.

Python runs handlers of signals in the main thread, between any two of its steps. A context manager could be interrupted after
it has begun and before its block, or at the end before it has undone anything.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["surely_ended"]

T = TypeVar("T")


class _Signals:
    """Handlers of signals, in whose place signals are held back or delivered. In other threads than the main one, nothing."""

    def __init__(self) -> None:
        self._handlers: dict[int, Callable] = {}
        self._is_held, self._waiting = False, []

    def take_over(self) -> None:
        """Hold signals back."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._is_held = True
        try:
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler):  # a function of Python
                    self._handlers[number] = handler
                    signal.signal(number, self._arrived)
        except BaseException:
            self.give_back()
            raise

    def deliver(self) -> None:
        """Call the handlers of signals that were held back, and of further ones as they arrive."""
        self._is_held = False
        while self._waiting:
            self._arrived(self._waiting.pop(0), sys._getframe())

    def hold(self) -> None:
        """Hold further signals back."""
        self._is_held = True

    def give_back(self) -> None:
        """The former handlers are in their places, and called for signals that were held back."""
        self._is_held = True
        try:
            self._restore()
        finally:
            self._restore()  # again, if a handler that was back has raised
        for number in self._waiting:
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _arrived(self, number: int, frame) -> None:
        if self._is_held:
            self._waiting.append(number)
            return
        try:
            self._handlers[number](number, frame)
        except BaseException:
            self._is_held = True
            raise


def surely_ended(begin: Callable[[], None], work: Callable[[], T], end: Callable[[], None]) -> T:
    """``begin()``, ``work()``, ``end()``: whatever signal arrives and whatever is raised, what was begun is ended."""
    signals = _Signals()
    signals.take_over()
    try:
        begin()
        try:
            signals.deliver()
            result = work()
        finally:
            try:
                signals.hold()
            finally:
                end()
    finally:
        signals.give_back()
    return result
