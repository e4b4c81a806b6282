"""Threads of several processes use the same ledgers, which are compared with a log: see ``ledger_crowd``."""

import os

import pytest

from tests.core.ledger.ledger_crowd import crowd


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs kill -9")
@pytest.mark.parametrize(
    ("n_processes", "n_threads", "seconds", "kill"),
    [
        (2, 4, 1.0, True),
        pytest.param(2, 6, 2.0, False, marks=pytest.mark.slow),
        pytest.param(4, 6, 10.0, False, marks=pytest.mark.slow),
        pytest.param(4, 4, 10.0, True, marks=pytest.mark.slow),
    ],
)
def test_a_crowd_loses_no_charge_and_exceeds_no_budget(n_processes, n_threads, seconds, kill, tmp_path, new_process):
    counts = new_process(crowd, tmp_path, n_processes, n_threads, seconds, kill)
    assert counts["charge"] > 20
    assert counts["kills"] >= 3 if kill else counts["budgets reached"] >= 1
