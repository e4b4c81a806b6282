"""A signal at any moment leaves the process as it was; what its handler raises ends the search."""

from __future__ import annotations

import dis
import logging
import signal
import sys
import threading
import warnings

import pytest

from tests.mutants import check_notices
from vips import _no_warnings
from vips._compute import signals
from vips._no_warnings import without_warnings
from vips.privacy.selection import TrialCount
from vips.search import trials
from vips.search.trials import best_of

pytestmark = pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals")
_LOOKS = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
_TRACED = {each.__file__ for each in (trials, signals, _no_warnings)}


def state_of_process():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    filters = list(warnings.filters), warnings.showwarning
    open_silences = trials._silence._depth, _no_warnings._n_silent
    return sys.stdout, sys.stderr, logging.root.manager.disable, filters, handlers, open_silences


def with_signal_at(place, work):
    """Call ``work`` with a Ctrl-C at one step of the traced files; whether there was such a step, and whether it raised."""
    steps, has_raised = 0, False

    def trace(frame, event, argument):
        nonlocal steps
        if frame.f_code.co_filename not in _TRACED:
            return None
        frame.f_trace_opcodes = True
        # where Python looks for signals: when a function begins or is called, and when it has returned to its caller
        is_opcode = event == "opcode" and dis.opname[frame.f_code.co_code[frame.f_lasti]] in _LOOKS
        if is_opcode or event == "return":
            steps += 1
            if steps == place:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        has_raised = True
    finally:
        sys.settrace(None)
    return steps >= place, has_raised


def check_every_step(work, step=1):
    before, place, raised = state_of_process(), 1, 0
    warnings.simplefilter("default")
    before = state_of_process()
    while True:
        was_there, has_raised = with_signal_at(place, work)
        assert state_of_process() == before, f"a Ctrl-C at step {place} has left the process changed"
        assert has_raised == was_there, f"a Ctrl-C at step {place} was lost"
        raised += has_raised
        if not was_there:
            break
        place += step
    assert raised > 100 // step


def one_trial():
    return best_of(TrialCount(2.0), lambda: (1.0, None))


@pytest.fixture(autouse=True)
def handlers():
    """Those of this test end with it, whatever it leaves."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    streams = sys.stdout, sys.stderr
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with warnings.catch_warnings():
        yield
    sys.stdout, sys.stderr = streams
    logging.disable(logging.NOTSET)
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    trials._silence = trials._Silence()
    _no_warnings._n_silent = 0


def test_an_interrupt_at_any_step_of_a_search(monkeypatch):
    monkeypatch.setattr(TrialCount, "draw", lambda self: 2)
    check_every_step(one_trial)


def test_an_interrupt_at_any_step_without_warnings():
    check_every_step(lambda: without_warnings(lambda: None))


def as_a_context(begin, work, end):
    begin()
    try:
        return work(signals.Signals())
    finally:
        end()


def test_a_context_that_signals_can_break_is_noticed(monkeypatch):
    monkeypatch.setattr(TrialCount, "draw", lambda self: 2)

    def mutant(patch):
        patch.setattr(trials, "surely_ended", as_a_context)
        patch.setattr(
            trials._silence, "_lock", threading.RLock()
        )  # one that is left locked would make the next call wait
        patch.setattr(_no_warnings, "_silent", threading.RLock())

    check_notices(lambda: check_every_step(one_trial), mutant, monkeypatch, "has left the process changed")


@pytest.mark.parametrize("error", [SystemExit(7), TimeoutError("late")])
def test_what_a_handler_raises_ends_the_search(error):
    calls = []

    def handler(number, frame):
        raise error

    signal.signal(signal.SIGTERM, handler)

    def trial():
        calls.append(1)
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException:  # as a model may do that tries again
            return 1.0, None
        return 2.0, None

    with pytest.raises(type(error)) as caught:
        best_of(TrialCount(50.0), trial)
    assert caught.value is error
    assert len(calls) == 1
    assert caught.value.__context__ is None
    names, trace = [], caught.value.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[-1] == "best_of"


def test_a_handler_that_raises_nothing_is_called_at_once():
    heard = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))

    def trial():
        signal.raise_signal(signal.SIGTERM)
        return 1.0, len(heard)

    assert best_of(TrialCount(2.0), trial)[1] == 1
    assert heard
