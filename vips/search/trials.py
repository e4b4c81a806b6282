"""The best of a secret number of trials. Nothing of the others, and not their number, leaves this file."""

from __future__ import annotations

import io
import logging
import math
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout

import numpy as np

from vips._no_warnings import no_warnings
from vips.privacy.selection import TrialCount

__all__ = ["best_of", "in_silence"]

Trial = tuple[float, object]


def best_of(trials: TrialCount, run: Callable[[], Trial]) -> Trial:
    """Run a secret number of trials; the score and the result of the best one.

    Parameters
    ----------
    trials : TrialCount
    run : function without arguments
        One trial: a score, and a result. An error other than KeyboardInterrupt is the result None with the score -∞.

    Guarantees
    ----------
    - The number of trials has the law of ``trials`` and depends on nothing else.
    - Of two equal scores the first one stays. Trials are independent and alike, so that this is a tie-break at random.
    - A Ctrl-C leaves without a traceback that could hold the number of trials.
    """
    try:
        with in_silence():
            return _best(trials, run)
    except KeyboardInterrupt:
        pass
    raise KeyboardInterrupt  # another one: the first one's traceback holds the loop


def _best(trials: TrialCount, run: Callable[[], Trial]) -> Trial:
    best: Trial = (-math.inf, None)
    for _ in range(trials.draw()):
        trial = _guarded(run)
        if trial[0] > best[0]:
            best = trial
        del trial
    return best


def _guarded(run: Callable[[], Trial]) -> Trial:
    try:
        return run()
    except KeyboardInterrupt:
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
            undo.enter_context(no_warnings())  # whose filters texts share
            logging.disable(sys.maxsize)

    def end(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._undo.close()


_silence = _Silence()


@contextmanager
def in_silence() -> Iterator[None]:
    """No output, no log, no warning; NumPy's and Python's global generators are afterwards as they were."""
    _silence.begin()
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _silence.end()
