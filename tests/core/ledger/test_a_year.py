"""A year of nights, many of which are killed: a stream, and a fit on every 30th night, charged to one ledger."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np
import pytest

from vips import BayesianLogisticRegression, DirichletMultinomial, PrivacyLedger, PrivacyPlan, StreamPlan

N_NIGHTS = 365
STREAM = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=N_NIGHTS)
PLAN = PrivacyPlan(noise_multiplier=60.0, sampling="full", n_steps=20)


def spend(night):
    """The job of a night, as often as it is started."""
    ledger, rng = PrivacyLedger.open("v.ledger"), np.random.default_rng(night)
    model = DirichletMultinomial(privacy=STREAM)
    if night:
        model.partial_fit(None, ledger=ledger, checkpoint="s.vips")  # completes what was determined
    if not night or model.n_batches_seen_ == night:
        model.partial_fit(np.eye(3)[rng.integers(0, 3, 200)], ledger=ledger, checkpoint="s.vips")
    if night % 30 == 0:
        X = rng.normal(size=(400, 2))
        model = BayesianLogisticRegression(max_norm=2.0, privacy=PLAN)
        model.fit(X, (X[:, 0] > 0).astype(int), ledger=ledger, checkpoint=f"{night}.fit")


def started(night, seconds):
    """Whether a process of that night ended by itself, and the most memory that it held."""
    child = os.fork()
    if not child:
        status = 1
        try:
            spend(night)
            status = 0
        finally:
            os._exit(status)
    limit, ended = time.monotonic() + seconds, (0, 0, None)
    while not ended[0]:
        if time.monotonic() > limit:
            os.kill(child, signal.SIGKILL)
        ended = os.wait4(child, os.WNOHANG)
        time.sleep(0.001)
    assert os.WIFSIGNALED(ended[1]) or not os.WEXITSTATUS(ended[1])
    return not os.WIFSIGNALED(ended[1]), ended[2].ru_maxrss


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that are killed")
@pytest.mark.filterwarnings("ignore")
def test_what_a_year_of_killed_nights_is_charged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = PrivacyLedger("v.ledger", 4.0, 1e-5, "Visits", unit="one row of X")
    ledger.accept_unit("one row of X with its label")
    rng, most, n_kills = random.Random(0), [], 0
    spend(0)
    for night in range(1, N_NIGHTS):
        is_done = False
        while not is_done:
            is_done, memory = started(night, rng.choice([rng.uniform(0, 0.2), rng.uniform(0, 1), 60, 60]))
            n_kills += not is_done
            most.append(memory)
    assert n_kills > 20
    assert max(most[-50:]) < 1.1 * max(most[:50])
    ledger.verify()
    runs = ledger.runs()
    streams, fits = [run for run in runs if run.batches], [run for run in runs if not run.batches]
    assert [len(run.batches) for run in streams] == [N_NIGHTS]
    assert sum(run.state == "complete" for run in fits) == len(range(0, N_NIGHTS, 30))
    for run in fits:  # killed before its first checkpoint; another start was charged anew
        if run.state != "complete":
            assert run.released <= 1
            ledger.close(run.run)
    steps = sum(run.released for run in fits)  # by the log outside, repeated ones among them
    charged = sum(run.cost().mu2 for run in ledger.runs())
    assert charged == pytest.approx(streams[0].whole.mu2 + steps * PLAN.gdp_mu() ** 2 / PLAN.n_steps)
