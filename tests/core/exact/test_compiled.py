"""Kernels are compiled where numba finds no place for its files: a package that cannot be written, a user without a home."""

import subprocess
import sys

import pytest

CODE = """
import numba.core.caching as caching
def ensure(self):
    raise OSError(30, "Read-only file system")
caching._CacheLocator.ensure_cache_path = ensure
import numpy as np, vips
from vips.data import Sequences
{fits}
from numba.core.registry import CPUDispatcher
import vips.models.markov.kernels as kernels
print(isinstance(kernels.fill_missing, CPUDispatcher), kernels.fill_missing._cache.__class__.__name__)
"""


FITS = {
    "one kernel": "vips.DirichletMultinomial().fit(np.eye(4))",
    "many": "vips.BayesianLogisticRegression(max_norm=1.0).fit(np.eye(4), [0, 1, 0, 1]);"
    "vips.GaussianHMM(1).fit(Sequences.from_list([[0.0, 1.0], [2.0]]))",
}


@pytest.mark.repeated("many")
@pytest.mark.parametrize("fits", FITS)
def test_models_are_fitted_without_a_cache_of_kernels(fits):
    code = CODE.replace("{fits}", FITS[fits])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "_Kept"]  # a cache that is only read
