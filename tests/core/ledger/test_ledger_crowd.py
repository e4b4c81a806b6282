"""Threads of several processes use the same ledgers, which are compared with a log: see ``ledger_crowd``."""

import json
import os
import subprocess
import sys

import pytest

from tests import ROOT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs kill -9")
@pytest.mark.parametrize(
    "how",
    [
        ["--processes=2", "--threads=6", "--seconds=2"],
        ["--processes=2", "--threads=4", "--seconds=2", "--kill"],
        pytest.param(["--processes=4", "--threads=6", "--seconds=10"], marks=pytest.mark.slow),
        pytest.param(["--processes=4", "--threads=4", "--seconds=10", "--kill"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
@pytest.mark.repeated("--processes=2 --threads=6 --seconds=2")
def test_a_crowd_loses_no_charge_and_exceeds_no_budget(how, tmp_path):
    command = [sys.executable, "-m", "tests.core.ledger.ledger_crowd", str(tmp_path), *how]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)
    assert counts["charge"] > 20
    if "--kill" in how:
        assert counts["kills"] >= 3
    else:
        assert counts["budgets reached"] >= 1
