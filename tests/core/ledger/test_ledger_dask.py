"""Two clients of one Dask cluster, each with its own ledger."""

import numpy as np
import pytest

from tests.laws.cases import BetaBernoulli
from vips import PrivacyLedger, PrivacyPlan

distributed = pytest.importorskip("distributed")

PLAN = PrivacyPlan(noise_multiplier=20.0, sampling_rate=0.5, n_steps=3, clip_norm=1.5)
COINS = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)
FITS = 8


def fit(plan, i):
    """Fit on a worker; returns the run that was charged."""
    return BetaBernoulli(privacy=plan).fit(COINS).privacy_.ledger["run"]


def fit_own_plan(i):
    return fit(PrivacyPlan(noise_multiplier=20.0, sampling_rate=0.5, n_steps=3, clip_norm=1.5), i)


def use(address, path, both_began, worker_joined, answers):
    """One client. It starts fits beside the other's, before and after a worker joins, and reads results after its block."""
    ledger = PrivacyLedger.open(path)
    with distributed.Client(address) as client:
        with ledger:
            before = client.map(fit, [PLAN] * FITS, range(FITS), pure=False)
            both_began.wait(120)
            worker_joined.wait(120)
            after = client.map(fit, [PLAN] * FITS, range(FITS), pure=False)
            inside = client.map(ledger.inside(fit_own_plan), range(FITS), pure=False)
        answers.put((path, client.gather(before + after + inside)))


def test_every_fit_is_charged_once_and_to_the_ledger_of_its_client(tmp_path, forkserver):
    ledgers = [PrivacyLedger(tmp_path / f"{i}.ledger", 4.0, 1e-5, f"data {i}") for i in range(2)]
    context = forkserver
    both_began, worker_joined, answers = context.Barrier(3), context.Event(), context.Queue()
    with distributed.LocalCluster(n_workers=1, threads_per_worker=3, dashboard_address=":0") as cluster:
        clients = [
            context.Process(
                target=use, args=(cluster.scheduler_address, ledger.path, both_began, worker_joined, answers)
            )
            for ledger in ledgers
        ]
        for client in clients:
            client.start()
        both_began.wait(120)
        cluster.scale(2)
        cluster.wait_for_workers(2)
        worker_joined.set()
        runs = dict(answers.get(timeout=120) for _ in clients)
        for client in clients:
            client.join()
    for ledger in ledgers:
        assert sorted(run.run for run in ledger.runs()) == sorted(runs[ledger.path])
        assert len(set(runs[ledger.path])) == 3 * FITS
        assert {run.state for run in ledger.runs()} == {"complete"}
