"""Threads of several processes use the same ledgers, which are compared with a log: see ``ledger_crowd``."""

import json
import os
import subprocess
import sys

import pytest

from tests import ROOT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs kill -9")
@pytest.mark.parametrize("how", [["--processes=4", "--threads=6"], ["--processes=2", "--threads=4", "--kill"]])
def test_a_crowd_loses_no_charge_and_exceeds_no_budget(how, tmp_path):
    command = [sys.executable, "-m", "tests.privacy.ledger.ledger_crowd", str(tmp_path), "--seconds=4", *how]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)
    assert counts["charge"] > 20
    if "--kill" in how:
        assert counts["kills"] >= 3
    else:
        assert counts["budgets reached"] >= 1
