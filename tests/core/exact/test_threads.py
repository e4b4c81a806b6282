"""Threads for kernels do all of the work exactly once."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

import numpy as np
import pytest

from tests.processors import with_processors
from vips.core.exact import threads
from vips.core.exact.threads import at_most, n_threads, run_ranges, side_by_side


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    with_processors(monkeypatch, 3, is_pool_new=True)


def counted(work, **settings):
    seen = np.zeros(len(work) - 1, int)

    def kernel(start, stop):
        assert n_threads() == 1 or start == 0
        seen[start:stop] += 1

    run_ranges(kernel, work, **settings)
    return seen


@pytest.mark.parametrize("work", [[0], [0, 7], [0, 0, 0], [0, 1, 1, 100, 100, 101], range(1000), [5, 6, 9]])
def test_everything_is_done_once_and_little_work_here(work):
    for parts in (2, 5, 16):
        np.testing.assert_array_equal(counted(np.array(work), parts_per_thread=parts), 1, err_msg=f"{parts} parts")
    here = []
    run_ranges(lambda *_: here.append(threading.current_thread()), np.arange(10), least_work=100)
    assert here == [threading.current_thread()]


def workers_of(n=1):
    """The threads that help; those that come first wait for ``n``."""
    workers, arrived = set(), threading.Barrier(n, timeout=120)

    def kernel(*_):
        if threading.get_ident() not in workers:
            workers.add(threading.get_ident())
            arrived.wait()
        time.sleep(0.02)

    run_ranges(kernel, np.arange(100))
    return workers


def test_several_threads_do_it():
    assert len(workers_of(3)) == 3
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


def test_other_threads_inherit_the_settings_for_floating_point_warnings():
    """A warning would reveal that some record overflows."""

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


def test_an_interruption_waits_for_running_threads(monkeypatch):
    running, wait = [], threads.Future.exception

    def interrupt(helper):
        monkeypatch.setattr(threads.Future, "exception", wait)
        raise KeyboardInterrupt

    def kernel(*_):
        running.append(None)
        time.sleep(0.05)
        running.pop()

    monkeypatch.setattr(threads.Future, "exception", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_ranges(kernel, np.arange(30))
    assert not running


def no_thread(*_):
    raise RuntimeError("can't start new thread")


def test_the_caller_does_it_all_where_no_thread_can_be_started(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    np.testing.assert_array_equal(counted(np.arange(50)), 1)
    assert threads._pool.tasks.empty()
    assert list(side_by_side((threading.get_ident for _ in range(3)), 2)) == [threading.get_ident()] * 3


def test_those_threads_that_could_be_started_help(monkeypatch):
    assert threads._pool.started(1) == 1
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert len(workers_of(2)) == 2


def test_busy_threads_are_not_waited_for():
    release = threading.Event()
    for _ in range(threads._pool.started(2)):
        threads._pool.tasks.put((Future(), copy_context(), release.wait))
    assert workers_of() == {threading.get_ident()}
    release.set()


def test_calls_that_no_thread_has_taken_keep_no_arrays():
    """Chunk after chunk would be kept beside busy threads."""

    class Kernel:
        def __call__(self, *_):
            pass

    release = threading.Event()
    for _ in range(threads._pool.started(2)):
        threads._pool.tasks.put((Future(), copy_context(), release.wait))
    kernel = Kernel()
    run_ranges(kernel, np.arange(100))
    gone, kernel = weakref.ref(kernel), None
    assert not threads._pool.tasks.empty()
    assert gone() is None
    release.set()


def test_threads_that_begin_late_are_waited_for(monkeypatch):
    """The only thread is busy at first."""
    assert threads._pool.started(1) == 1
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    threads._pool.tasks.put((Future(), copy_context(), partial(time.sleep, 0.05)))
    caller, seen = threading.get_ident(), np.zeros(100, int)

    def kernel(start, stop):
        time.sleep(0.02 if threading.get_ident() == caller else 0.5)
        seen[start:stop] += 1

    run_ranges(kernel, np.arange(101))
    np.testing.assert_array_equal(seen, 1)


def test_threads_that_wait_for_work_keep_nothing():
    class Kernel:
        def __call__(self, *_):
            time.sleep(0.001)

    kernel = Kernel()
    run_ranges(kernel, np.arange(100))
    gone, kernel = weakref.ref(kernel), None
    for _ in range(1000):
        if gone() is None:
            return
        time.sleep(0.01)
    raise AssertionError("a thread keeps the last kernel")


def test_many_callers_at_once():
    """With more callers than threads, each caller does its own work."""
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
    assert results.get(timeout=120) == 3
    child.join(30)
    assert child.exitcode == 0


# -- calls side by side ---------------------------------------------------------------------------------------------------


def slow(i, log):
    time.sleep(0.03 if i % 3 == 0 else 0.001)
    log.append(i)
    return i


@pytest.mark.parametrize("n", [1, 2, 5])
def test_results_come_in_order_and_are_not_heaped_up(n):
    log, taken = [], []
    for result in side_by_side((partial(slow, i, log) for i in range(20)), n):
        taken.append(result)
        assert len(log) <= len(taken) + 2 * n
    assert taken == list(range(20)) == sorted(log)


@pytest.mark.parametrize("ending", ["error", "left", "interrupted"])
def test_no_call_runs_after_the_end(ending, monkeypatch):
    log = []

    def call(i):
        if i == 2 and ending == "error":
            raise ZeroDivisionError
        return slow(i, log)

    results = side_by_side((partial(call, i) for i in range(30)), 3)
    if ending == "error":
        with pytest.raises(ZeroDivisionError):
            list(results)
    elif ending == "left":
        next(results)
        results.close()
    else:
        next(results)
        with pytest.raises(KeyboardInterrupt):
            results.throw(KeyboardInterrupt)
    done = len(log)
    assert done < 30
    time.sleep(0.1)
    assert len(log) == done


def test_calls_that_have_not_begun_are_not_waited_for():
    log = []

    def call(i):
        if i == 0:
            raise ZeroDivisionError
        time.sleep(0.2)
        log.append(i)

    with pytest.raises(ZeroDivisionError):
        list(side_by_side((partial(call, i) for i in range(4)), 2))
    assert 3 not in log


def test_kernels_of_calls_are_shared_among_all():
    for workers in side_by_side((partial(workers_of, n) for n in (*[1] * 9, 3)), 3):
        assert 1 <= len(workers) <= 3
    assert len(workers) == 3  # the last call waited for all threads, which had no other call


def test_a_single_call_and_calls_inside_a_call_are_made_by_the_caller():
    def inner(i):
        caller = threading.get_ident()
        assert list(side_by_side((threading.get_ident for _ in range(3)), 2)) == [caller] * 3
        return i, caller

    assert list(side_by_side([threading.get_ident], 2)) == [threading.get_ident()]
    results = list(side_by_side((partial(inner, i) for i in range(6)), 2))
    assert [i for i, _ in results] == list(range(6))
    assert threading.get_ident() not in {caller for _, caller in results}


def test_the_environment_or_else_the_container_says_how_many_threads(monkeypatch):
    code = "from vips.core.exact.threads import n_threads; print(n_threads())"
    command = [sys.executable, "-c", code]
    variables = os.environ | {"NUMBA_NUM_THREADS": "1"}
    assert subprocess.run(command, env=variables, capture_output=True, text=True).stdout.strip() == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    monkeypatch.setattr(threads, "cpu_count", lambda: 7)
    assert threads._from_environment() == 7
    for value, expected in (("1", 1), ("4,2", 4), ("0", 1), ("many", 7)):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert threads._from_environment() == expected
