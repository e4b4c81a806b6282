"""A signal at any moment leaves the process as it was; what its handler raises ends the work."""

import dis
import signal
import sys
import threading
import warnings

import pytest

from tests.mutants import check_notices
from vips._support import no_warnings as _no_warnings
from vips._support import signals
from vips._support.no_warnings import without_warnings

pytestmark = pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals")
_LOOKS = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
_TRACED = {signals.__file__, _no_warnings.__file__}


def state_of_process():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return list(warnings.filters), warnings.showwarning, handlers, _no_warnings._n_silent


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


def test_an_interrupt_at_any_step():
    place = 1
    warnings.simplefilter("default")
    before = state_of_process()
    while True:
        was_there, has_raised = with_signal_at(place, lambda: without_warnings(lambda: None))
        assert state_of_process() == before, f"a Ctrl-C at step {place} has left the process changed"
        assert has_raised == was_there, f"a Ctrl-C at step {place} was lost"
        if not was_there:
            break
        place += 1
    assert place > 100


@pytest.fixture(autouse=True)
def handlers():
    """Those of this test end with it, whatever it leaves."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with warnings.catch_warnings():
        yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    _no_warnings._n_silent = 0


def as_a_context(begin, work, end):
    begin()
    try:
        return work()
    finally:
        end()


def test_a_context_that_signals_can_break_is_noticed(monkeypatch):
    def mutant(patch):
        patch.setattr(_no_warnings, "surely_ended", as_a_context)
        patch.setattr(_no_warnings, "_silent", threading.RLock())  # left locked, it would make the next call wait

    check_notices(test_an_interrupt_at_any_step, mutant, monkeypatch, "has left the process changed")


@pytest.mark.parametrize("error", [SystemExit(7), TimeoutError("late")])
def test_what_a_handler_raises_ends_the_work(error):
    def handler(number, frame):
        raise error

    signal.signal(signal.SIGTERM, handler)
    before = state_of_process()
    with pytest.raises(type(error)) as caught:
        without_warnings(lambda: signal.raise_signal(signal.SIGTERM))
    assert caught.value is error
    assert state_of_process() == before


def test_a_handler_that_raises_nothing_is_called_at_once():
    heard = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))

    def work():
        signal.raise_signal(signal.SIGTERM)
        return len(heard)

    assert without_warnings(work) == 1
