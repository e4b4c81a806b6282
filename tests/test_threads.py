"""Threads for kernels: all of the work, once, whoever does it."""

import multiprocessing
import os
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from vips import _threads
from vips._threads import at_most, n_threads, run_ranges


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    monkeypatch.setattr(_threads.numba.config, "NUMBA_NUM_THREADS", 3)
    _threads._pool.cache_clear()
    yield
    _threads._pool.cache_clear()


def counted(work, **settings):
    seen = np.zeros(len(work) - 1, int)

    def kernel(start, stop):
        assert n_threads() == 1 or start == 0
        seen[start:stop] += 1

    run_ranges(kernel, work, **settings)
    return seen


@pytest.mark.parametrize("parts", [2, 5, 16])
@pytest.mark.parametrize("work", [[0], [0, 7], [0, 0, 0], [0, 1, 1, 100, 100, 101], range(1000), [5, 6, 9]])
def test_everything_is_done_once(work, parts):
    np.testing.assert_array_equal(counted(np.array(work), parts_per_thread=parts), 1)


def test_little_work_is_done_here():
    here = []
    run_ranges(lambda *_: here.append(threading.current_thread()), np.arange(10), least_work=100)
    assert here == [threading.current_thread()]


def workers_of():
    workers = set()

    def kernel(*_):
        workers.add(threading.get_ident())
        time.sleep(0.02)

    run_ranges(kernel, np.arange(100))
    return workers


def test_several_threads_do_it():
    assert len(workers_of()) == 3
    with at_most(1):
        assert workers_of() == {threading.get_ident()}


@pytest.mark.parametrize("who", ["anybody", "helper", "caller"])
def test_an_error_is_raised_after_all_have_stopped(who):
    running, caller = [], threading.get_ident()

    def kernel(*_):
        running.append(None)
        time.sleep(0.01)
        running.pop()
        if who == "anybody" or (threading.get_ident() == caller) == (who == "caller"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_ranges(kernel, np.arange(100))
    assert not running
    np.testing.assert_array_equal(counted(np.arange(50)), 1)


def test_nobody_is_warned_in_other_threads_of_what_nobody_is_warned_of_here():
    """A warning would tell that some record overflows."""

    def kernel(*_):
        time.sleep(0.01)
        np.float64(1e300) * np.full(3, 1e300)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with np.errstate(all="ignore"):
            run_ranges(kernel, np.arange(100))
        assert not caught
        run_ranges(kernel, np.arange(100))
        assert caught


def test_an_interruption_waits_for_those_who_write(monkeypatch):
    running, wait = [], _threads.wait

    def interrupt(helpers):
        monkeypatch.setattr(_threads, "wait", wait)
        raise KeyboardInterrupt

    def kernel(*_):
        running.append(None)
        time.sleep(0.05)
        running.pop()

    monkeypatch.setattr(_threads, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_ranges(kernel, np.arange(30))
    assert not running


def test_the_caller_does_it_all_where_no_thread_can_be_started():
    _threads._pool().shutdown()
    np.testing.assert_array_equal(counted(np.arange(50)), 1)


def no_thread(*_):
    raise RuntimeError("can't start new thread")


def test_what_was_asked_of_a_thread_that_could_not_start_is_waited_for(monkeypatch):
    """It is in the pool's queue, and is taken up by a thread that had other things to do."""
    _threads._pool().submit(time.sleep, 0.05)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    caller, seen = threading.get_ident(), np.zeros(100, int)

    def kernel(start, stop):
        time.sleep(0.02 if threading.get_ident() == caller else 0.5)
        seen[start:stop] += 1

    run_ranges(kernel, np.arange(101))
    np.testing.assert_array_equal(seen, 1)


def test_many_callers_at_once():
    """More of them than there are threads: each gets on with its own work."""
    with ThreadPoolExecutor(8) as pool:
        for seen in pool.map(lambda _: counted(np.arange(200)), range(50)):
            np.testing.assert_array_equal(seen, 1)


def _in_child(results):
    results.put(len(workers_of()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    workers_of()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_in_child, args=(results,))
    child.start()
    assert results.get(timeout=30) == 3
    child.join(30)
    assert child.exitcode == 0
