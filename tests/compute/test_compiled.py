"""How kernels are compiled: without a search for garbage meanwhile; and where numba finds no place for its files, in a package
that cannot be written, for a user without a home."""

import gc
import subprocess
import sys

import numba
import pytest
from numba.core import event

import vips._compute.compiled  # noqa: F401  (listens to numba)

CODE = """
import numba.core.caching as caching
def ensure(self):
    raise OSError(30, "Read-only file system")
caching._CacheLocator.ensure_cache_path = ensure
import numpy as np, vips
from vips.data import Sequences
vips.BayesianLogisticRegression(max_norm=1.0).fit(np.eye(4), [0, 1, 0, 1])
vips.GaussianHMM(1).fit(Sequences.from_list([[0.0, 1.0], [2.0]]))
from numba.core.registry import CPUDispatcher
import vips.models.markov.kernels as kernels
print(isinstance(kernels.fill_missing, CPUDispatcher), kernels.fill_missing._cache.__class__.__name__)
"""


def test_models_are_fitted_without_a_cache_of_kernels():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "NullCache"]


class WhetherGarbageIsSearchedFor(event.Listener):
    """At the start of each compilation."""

    def __init__(self):
        self.answers = []

    def on_start(self, event):
        self.answers.append(gc.isenabled())

    def on_end(self, event):
        pass


def compile_in(module, *arguments):
    """Compile a function of this module; whether garbage was searched for meanwhile."""

    def add_one(x):
        return x + 1

    add_one.__module__ = module
    listener = WhetherGarbageIsSearchedFor()
    with event.install_listener("numba:compile", listener):
        for argument in arguments:
            try:
                numba.njit(add_one)(argument)
            except numba.TypingError:
                assert argument is None
    return listener.answers


@pytest.mark.parametrize("was_enabled", [True, False])
def test_no_garbage_is_searched_for_while_a_kernel_is_compiled(was_enabled):
    (gc.enable if was_enabled else gc.disable)()
    try:
        assert compile_in("vips.kernels", 1, None, 1.0) == [False] * 3  # None is refused
        assert gc.isenabled() == was_enabled
        assert compile_in("others", 1, None, 1.0) == [was_enabled] * 3
    finally:
        gc.enable()
