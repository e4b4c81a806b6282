"""Audits replay fits in new processes, which get the classes of scripts and notebooks by value."""

from __future__ import annotations

import runpy
import subprocess
import textwrap
import threading
import types
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from tests.tools.auditing.conftest import serve
from tests.tools.auditing.leaky import Coins
from vips import PrivacyPlan, audit
from vips.tools.auditing import replay

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


@pytest.fixture
def begun(forkserver, monkeypatch):
    """The four processes of an audit that fails have begun before its script, and come from the server."""
    with ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, mp_context=forkserver)) for _ in range(4)]
        for pool in pools:
            pool.submit(int).result()
        of_next = iter(pools)

        class Begun:
            returncode = 0

            def __init__(self, command, stdin, stdout, stderr, env):
                self._pool, self._arguments = next(of_next), (command[-1], stdout.name, stderr.name)

            def communicate(self, job=None):
                if job is not None:
                    self._pool.submit(serve, job, *self._arguments).result()
                    self._pool.shutdown()

            def kill(self):
                pass

        monkeypatch.setattr(replay, "subprocess", types.SimpleNamespace(Popen=Begun, PIPE=subprocess.PIPE))
        yield


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["begun", pytest.param("new", marks=pytest.mark.slow)])
def test_a_script_needs_no_guard_and_its_global_names_are_compared(processes, tmp_path, capsys, request):
    """Although it is the main module, no process of the audit runs it."""
    if processes == "begun":
        request.getfixturevalue("begun")
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    runpy.run_path(str(tmp_path / "script.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == ["begins", "replay: classes and modules: __main__.SEEN"]


def test_what_cannot_be_sent_is_named():
    class Holds(Coins):
        lock = threading.Lock()

    with pytest.raises(ValueError, match=r"cannot pickle '_thread.lock' object\nWrite its class in a module"):
        audit(Holds(privacy=PLAN), np.eye(4), n_runs=0)


def test_a_process_that_ends_early_is_named(monkeypatch):
    monkeypatch.setattr("vips.tools.auditing.replay.CODE", "import os; os.write(2, b'killed'); os._exit(9)")
    with pytest.raises(ValueError, match="killed"):
        audit(Coins(privacy=PLAN), np.eye(4), n_runs=0)
