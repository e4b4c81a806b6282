"""The loop over trials: its law, and what it lets out."""

from __future__ import annotations

import logging
import math
import random
import sys
import threading
import warnings

import numpy as np
import pytest
from scipy.stats import binomtest

from tests.mutants import check_notices
from tests.privacy.test_selection import law_of_best, the_number_of_trials_is_fixed
from vips.privacy.selection import TrialCount
from vips.search import trials
from vips.search.trials import best_of, in_silence

LAW = np.array([0.5, 0.3, 0.15, 0.05])


def drawing(law=LAW):
    """A trial with four outcomes, in the order of their scores."""
    rng = random.SystemRandom()
    ends = np.cumsum(law)

    def run():
        outcome = int(np.searchsorted(ends, rng.random(), side="right"))
        return float(outcome), outcome

    return run


def check_the_best_has_its_law():
    count, n, run = TrialCount(4.0), 4000, drawing()
    drawn = np.bincount([trials._best(count, run)[1] for _ in range(n)], minlength=4)
    for outcome, expected in enumerate(law_of_best(count, LAW)):
        assert binomtest(int(drawn[outcome]), n, expected).pvalue > 1e-10, (
            f"outcome {outcome} is {drawn[outcome] / n:.3f}"
        )


def test_the_best_has_its_law():
    check_the_best_has_its_law()


def test_ties_are_broken_at_random():
    """The first of equal scores stays; which it is has the law of one trial."""
    rng = random.SystemRandom()
    drawn = [best_of(TrialCount(8.0), lambda: (1.0, rng.random() < 0.25))[1] for _ in range(2000)]
    assert binomtest(sum(drawn), 2000, 0.25).pvalue > 1e-10


def raising(error):
    def run():
        raise error

    return run


@pytest.mark.parametrize(
    "error", [ValueError("a record"), MemoryError(), SystemExit(3), RecursionError(), GeneratorExit()]
)
def test_a_trial_that_fails_is_the_worst(error):
    assert best_of(TrialCount(3.0), raising(error)) == (-math.inf, None)
    outcomes = iter([raising(error), lambda: (-1e300, "found")] * 5000)
    found = [best_of(TrialCount(20.0), lambda: next(outcomes)()) for _ in range(50)]
    assert (-1e300, "found") in found
    assert {score for score, _ in found} <= {-math.inf, -1e300}


def test_an_interrupt_passes_and_tells_nothing():
    def run():
        raise KeyboardInterrupt("in trial 3")

    with pytest.raises(KeyboardInterrupt) as caught:
        best_of(TrialCount(5.0), run)
    assert caught.value.args == ()
    assert caught.value.__context__ is caught.value.__cause__ is None
    names, trace = [], caught.value.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[-1] == "best_of"
    assert "_best" not in names


def test_trials_are_silent_and_leave_the_process_as_it_was(capfd, caplog):
    logger = logging.getLogger("a model")

    def run():
        print("printed")
        sys.stderr.write("written\n")
        warnings.warn("warned", stacklevel=1)
        logger.critical("logged")
        random.random()
        np.random.random()  # noqa: NPY002
        np.log(np.zeros(1))
        return 0.0, None

    before = random.getstate(), np.random.get_state()[1].tolist(), logging.root.manager.disable, sys.stdout  # noqa: NPY002
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        best_of(TrialCount(10.0), run)
    assert not caught
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), logging.root.manager.disable, sys.stdout)  # noqa: NPY002


def test_silence_ends_with_an_error():
    with pytest.raises(ZeroDivisionError):
        in_silence(lambda _: 1 / 0)
    assert logging.root.manager.disable == 0


def test_threads_share_the_silence(capfd):
    """The first thread leaves while the second one still searches."""
    inside, leave = threading.Event(), threading.Event()

    def second(_):
        inside.set()
        leave.wait(120)
        print("printed")

    thread = threading.Thread(target=in_silence, args=(second,))

    def first(_):
        thread.start()
        inside.wait(120)

    in_silence(first)
    leave.set()
    thread.join()
    print("heard")
    assert capfd.readouterr().out == "heard\n"
    assert logging.root.manager.disable == 0


def the_last_trial_is_released(patch):
    def last(count, run):
        found = (-math.inf, None)
        for _ in range(count.draw()):
            found = trials._guarded(run)
        return found

    patch.setattr(trials, "_best", last)


@pytest.mark.parametrize(
    ("mutant", "check", "says"),
    [
        (the_number_of_trials_is_fixed, check_the_best_has_its_law, "outcome"),
        (the_last_trial_is_released, check_the_best_has_its_law, "outcome"),
    ],
)
def test_mutants_are_noticed(mutant, check, says, monkeypatch):
    check_notices(check, mutant, monkeypatch, says)
