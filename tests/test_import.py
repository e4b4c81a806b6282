"""What ``import vips`` imports at once, and what it imports only on use."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vips

HEAVY = ("numpy", "scipy", "sklearn", "numba", "joblib")


def in_a_new_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_imports_nothing_heavy():
    loaded = in_a_new_process("import vips, sys; print(*sys.modules)").split()
    assert "vips" in loaded
    assert not set(HEAVY) & set(loaded)


FITS = """
import vips.tools.comparison.compare, vips
print(vips.compare.__name__, vips.datasets.__name__, end=" ")
import gc
import numpy as np
from numba.core.registry import CPUDispatcher
from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyPlan, SigmoidBeliefNetwork
plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2)
X = (np.random.default_rng(0).random((50, 6)) < 0.5).astype(float)
LatentDirichletAllocation(2, vocabulary=6, privacy=plan).fit(X)
BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X, X[:, 0])
SigmoidBeliefNetwork(2, privacy=plan).fit(X)
kernels = [thing for thing in gc.get_objects() if isinstance(thing, CPUDispatcher)]
print(sum(kernel.stats.cache_hits.total() for kernel in kernels), end=" ")
print(sum(kernel.stats.cache_misses.total() for kernel in kernels))
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_compare_is_the_function_whatever_was_imported_first():
    *names, hits, misses = in_a_new_process(FITS).split()
    if misses != "0":  # now the cache on disk is full
        *names, hits, misses = in_a_new_process(FITS).split()
    assert names == ["compare", "vips.datasets"]
    assert int(hits) > 0
    assert misses == "0"


@pytest.mark.parametrize("name", vips.__all__)
def test_every_name_is_there(name):
    assert getattr(vips, name).__name__.removeprefix("vips.") == name
    assert name in dir(vips)


@pytest.mark.parametrize("package", [vips, vips.models, vips.core.ledger], ids=lambda package: package.__name__)
def test_type_checkers_see_the_same_names(package):
    """A stub imports exactly the names in its ``__all__``."""
    tree = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imported = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    (names,) = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assert sorted(imported) == sorted(names) == sorted(package.__all__)


def test_unknown_names_are_errors():
    with pytest.raises(AttributeError, match="No vips attribute nothing"):
        vips.nothing  # noqa: B018
