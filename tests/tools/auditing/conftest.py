"""Audits on every change replay fits to fewer neighbours than users' audits do, in processes that start fast."""

import io
import os
import subprocess
import sys
import types

import pytest

from vips.tools.auditing import replay


@pytest.fixture(autouse=True)
def few_neighbours(request, monkeypatch):
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("vips.tools.auditing.audit.REPLAYED", 8)


@pytest.fixture(scope="module")
def forked(forkserver):
    """Processes of an audit come from a server that has imported the package, which takes seconds."""

    class Forked:
        def __init__(self, command, stdin, stdout, stderr, env):
            self._arguments = (command[-1], stdout.name, stderr.name)

        def communicate(self, job=None):
            if job is not None:
                process = forkserver.Process(target=serve, args=(job, *self._arguments))
                process.start()
                process.join()
                self.returncode = process.exitcode

        def kill(self):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "subprocess", types.SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE))
        yield


def serve(job, code, *streams):
    """What a new process does that gets its job by standard input."""
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    sys.stdin = types.SimpleNamespace(buffer=io.BytesIO(job))
    sys.modules.pop("sitecustomize", None)  # the tests' bits, which are others after each fork
    exec(code)
