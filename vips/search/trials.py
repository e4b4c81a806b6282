"""The best of a secret number of trials. Nothing of the others, and not their number, leaves this file."""

from __future__ import annotations

import io
import logging
import math
import random
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import TypeVar

import numpy as np

from vips._compute.signals import Signals, surely_ended
from vips._no_warnings import hear_warnings, mute_warnings
from vips.privacy.selection import TrialCount

__all__ = ["best_of", "in_silence"]

T = TypeVar("T")
Trial = tuple[float, object]


def best_of(trials: TrialCount, run: Callable[[], Trial]) -> Trial:
    """Run a secret number of trials; the score and the result of the best one.

    Parameters
    ----------
    trials : TrialCount
    run : function without arguments
        One trial: a score, and a result. An error other than KeyboardInterrupt is the result None with the score -∞. What a
        handler of a signal raises ends the search.

    Guarantees
    ----------
    - The number of trials has the law of ``trials`` and depends on nothing else.
    - Of two equal scores the first one stays. Trials are independent and alike, so that this is a tie-break at random.
    - A Ctrl-C leaves without a traceback that could hold the number of trials, and so does what another handler raises.
    - The process is afterwards as it was before, whenever a signal arrives.
    """
    raised: list[BaseException] = []

    def search(signals: Signals) -> Trial:
        try:
            return _best(trials, lambda: _unless_left(run, signals))
        finally:
            if signals.error is not None:
                raised.append(signals.error)

    try:
        return in_silence(search)
    except BaseException as error:  # trials raise nothing else
        left = raised[0] if raised else error
    if isinstance(left, KeyboardInterrupt):
        raise KeyboardInterrupt  # another one: a trial may have raised the first one, with words
    left.__context__ = left.__cause__ = None
    raise left.with_traceback(None)  # which held the loop


def _best(trials: TrialCount, run: Callable[[], Trial]) -> Trial:
    best: Trial = (-math.inf, None)
    for _ in range(trials.draw()):
        trial = _guarded(run)
        if trial[0] > best[0]:
            best = trial
        del trial
    return best


class _Left(BaseException):
    """Ends a search because a handler of a signal has raised."""


def _unless_left(run: Callable[[], Trial], signals: Signals) -> Trial:
    """One trial; raises if a handler has raised meanwhile, whatever the trial did with that error."""
    try:
        return run()
    finally:
        if signals.error is not None:
            raise _Left


def _guarded(run: Callable[[], Trial]) -> Trial:
    try:
        return run()
    except (KeyboardInterrupt, _Left):
        raise
    except BaseException:  # of `sys.exit`, too
        return -math.inf, None


class _Nowhere(io.TextIOBase):
    """Takes what is printed."""

    def write(self, text: str) -> int:
        return len(text)


class _Silence:
    """Is shared by all threads that search: the first one begins it, and the last one ends it."""

    def __init__(self) -> None:
        self._lock, self._depth, self._undo = threading.Lock(), 0, ExitStack()

    def begin(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth > 1:
                return
            undo = self._undo = ExitStack()
            undo.callback(logging.disable, logging.root.manager.disable)
            undo.callback(random.setstate, random.getstate())
            undo.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
            undo.enter_context(redirect_stdout(_Nowhere()))
            undo.enter_context(redirect_stderr(_Nowhere()))
            undo.callback(hear_warnings)  # whose filters texts share
            mute_warnings()
            logging.disable(sys.maxsize)

    def end(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._undo.close()


_silence = _Silence()


def in_silence(work: Callable[[Signals], T]) -> T:
    """``work`` without output, log or warning; NumPy's and Python's global generators are afterwards as they were."""

    def without_errors(signals: Signals) -> T:
        with np.errstate(all="ignore"):
            return work(signals)

    return surely_ended(_silence.begin, without_errors, _silence.end)
