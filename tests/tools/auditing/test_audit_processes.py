"""Audits replay fits in new processes, which get the classes of scripts and notebooks by value."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from tests import ROOT
from tests.tools.auditing.leaky import Coins
from vips import PrivacyPlan, audit

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, clip_norm=1.5)

SCRIPT = """
    import functools
    import numpy as np
    from tests.tools.auditing.leaky import Coins
    from tests.tools.auditing.test_audit_processes import PLAN
    from vips import audit

    SEEN = {}

    @functools.lru_cache
    def half(n):
        return n / 2

    def note(n):
        SEEN[n] = half(2)

    class Notes(Coins):
        def expected_statistics(self, records, posterior):
            note(records.sum())
            return super().expected_statistics(records, posterior)

    print("begins")
    finding, = audit(Notes(privacy=PLAN), np.eye(4), n_runs=0, random_state=0).failed
    print(finding.name, finding.measured.rpartition(": ")[2], sep=": ")
"""


def test_a_script_needs_no_guard_and_its_global_names_are_compared(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["begins", "replay: classes and modules: __main__.SEEN"]


def test_what_cannot_be_sent_is_named():
    class Holds(Coins):
        lock = threading.Lock()

    with pytest.raises(ValueError, match=r"cannot pickle '_thread.lock' object\nWrite its class in a module"):
        audit(Holds(privacy=PLAN), np.eye(4), n_runs=0)


def test_a_process_that_ends_early_is_named(monkeypatch):
    monkeypatch.setattr("vips.tools.auditing.replay.CODE", "import os; os.write(2, b'killed'); os._exit(9)")
    with pytest.raises(ValueError, match="killed"):
        audit(Coins(privacy=PLAN), np.eye(4), n_runs=0)
