"""Secret bits have one source, the operating system, which nothing that a user can set replaces; no two draws are the same."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import vips
from tests import ROOT
from tests.test_layers import sources
from vips.core.mechanism.secret_bits import secret_bits, secret_bytes

PACKAGE = Path(vips.__file__).parent
SOURCE = "vips.core.mechanism.secret_bits"
# Functions of Python and NumPy that draw from the operating system, or from a generator that all share.
DRAWING = {"urandom", "getrandom", "token_bytes", "token_hex", "randbits", "randbelow", "getrandbits", "SystemRandom"}
UNSEEDED = {"default_rng", "SeedSequence", "PCG64", "AESCounter", "RandomState"}
# They compare, save or restore the state of Python's shared generator, or wait for a random time.
NO_DRAWS = {"tools.auditing.contents", "tools.auditing.replay", "tools.auditing.noise", "core.ledger.chain_file"}


def other_draws(tree: ast.Module) -> list[str]:
    """Calls that draw bits without secret_bytes, and imports of modules that do. (Names of files and runs are uuid4's.)"""
    calls = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in DRAWING or (name in UNSEEDED and not (node.args or node.keywords)):
                calls.append(ast.unparse(node))
        elif isinstance(node, ast.Import):
            calls += [alias.name for alias in node.names if alias.name in ("secrets", "random")]
        elif isinstance(node, ast.ImportFrom) and node.module in ("secrets", "random"):
            calls.append(node.module)
    return calls


def test_every_draw_goes_through_one_function():
    calls_by_module = {}
    for name, tree in sources().items():
        calls = other_draws(tree)
        if name.removeprefix("vips.") in NO_DRAWS:
            calls.remove("random")
        if calls and name != SOURCE:
            calls_by_module[name] = calls
    assert not calls_by_module


@pytest.mark.parametrize(
    "line",
    ["rng = np.random.default_rng()", "import secrets", "key = os.urandom(16)", "from random import getrandbits"],
)
def test_another_draw_is_noticed(line):
    assert other_draws(ast.parse(line))


def test_the_source_reads_nothing_that_could_fix_it():
    tree = ast.parse((PACKAGE / "core/mechanism/secret_bits.py").read_text(encoding="utf-8"))
    (function,) = [node for node in tree.body if getattr(node, "name", "") == "secret_bytes"]
    assert [ast.unparse(line) for line in function.body[1:]] == ["return os.urandom(n_bytes)"]
    assert ast.unparse(function.args) == "n_bytes: int"
    assert [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)] == [
        "from __future__ import annotations",
        "import os",
    ]
    attributes = {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os"
    }
    assert attributes == {"urandom"}


# Each of them imports the package; what that needs of others, which takes longest, is there.
TWO_PROCESSES = """
import os, joblib, numba, numpy, randomgen, scipy.linalg, scipy.sparse, scipy.stats, sklearn.base
for _ in range(2):
    if os.fork() == 0:
        import vips
        from vips.core.mechanism.secret_bits import secret_bits
        from vips.core.mechanism.noise import Randomness
        print(vips.__file__, Randomness.for_fit(0, False).sampling_key, secret_bits(128), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.fresh_bits
def test_the_wheel_has_no_switch(tmp_path):
    """The package as it is installed, in an environment that asks for the tests' bits in every way there is."""
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling: pip install --group test")
    (path,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "installed")
    installed = {file.name for file in (tmp_path / "installed").iterdir() if not file.name.endswith(".dist-info")}
    assert installed == {"vips"}
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path / "installed"), "VIPS_TESTS_NAME": "x", "PYTHONHASHSEED": "0",
        "VIPS_TESTS_DRAW": "known", "HYPOTHESIS_PROFILE": "same",
    }  # fmt: skip
    command = [sys.executable, "-c", TWO_PROCESSES]
    printed = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True).stdout.split()
    assert printed[0] == printed[3] == str(tmp_path / "installed" / "vips" / "__init__.py")
    assert len({*printed[1:3], *printed[4:]}) == 4


@pytest.mark.fresh_bits
def test_threads_and_forks_share_no_bits():
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: secret_bits(128), range(400)))
    for _ in range(5):
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, b"%d" % secret_bits(128))
            os._exit(0)
        os.wait()
        keys += [int(os.read(read, 100)), secret_bits(128)]
        os.close(read)
        os.close(write)
    assert len(set(keys)) == 410


def test_tests_share_no_bits_either():
    """The known bits of a test are as distinct as fresh ones: of calls, threads and forks."""
    test_threads_and_forks_share_no_bits()


def test_numbers_are_below_their_limit_and_reach_it(monkeypatch):
    assert len(secret_bytes(7)) == 7
    for n_bits in (1, 5, 8, 9, 64):
        monkeypatch.setattr("vips.core.mechanism.secret_bits.secret_bytes", lambda n: b"\xff" * n)
        assert secret_bits(n_bits) == 2**n_bits - 1
        monkeypatch.setattr("vips.core.mechanism.secret_bits.secret_bytes", bytes)
        assert secret_bits(n_bits) == 0
