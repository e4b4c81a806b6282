"""Differentially private variational inference (Jälkö et al., 2017), by d3p with NumPyro.

d3p 0.2.0 needs JAX of its own time, in an environment whose interpreter is given as ``--d3p PYTHON``::

    python3 -m venv DIR
    DIR/bin/pip install d3p==0.2.0 jax==0.4.25 jaxlib==0.4.25 numpyro==0.13.2 "numpy<2" "scipy<1.13"

DP-SGD on the evidence lower bound: a diagonal Gaussian posterior, prior N(0, 100), Adam. Its guarantee is for replacing one
record, by d3p's own accountant: a stronger relation than that of the other methods.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from experiments.regression.methods import Method, TunedMethod, linear_scores

__all__ = ["methods"]


class Settings(NamedTuple):
    """Sampling rate, steps, clip norm and learning rate."""

    rate: float
    n_steps: int
    clip_norm: float
    learning_rate: float


CANDIDATES = tuple(Settings(0.02, 1000, clip, learning_rate) for clip in (0.5, 2.0) for learning_rate in (0.02, 0.1))

# The other interpreter runs `python -c SCRIPT folder epsilon delta rate steps clip learning_rate seed`.
SCRIPT = """
import sys
import jax, jax.numpy as jnp, numpy as np, numpyro, scipy.sparse as sp
import numpyro.distributions as dist
import d3p.random
from d3p.dputil import approximate_sigma
from d3p.minibatch import subsample_batchify_data
from d3p.svi import DPSVI
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoDiagonalNormal

folder = sys.argv[1]
epsilon, delta, rate = map(float, sys.argv[2:5])
n_steps, seed = int(sys.argv[5]), int(sys.argv[8])
clip, learning_rate = map(float, sys.argv[6:8])
X, y = sp.load_npz(folder + "/X.npz").toarray().astype(np.float32), np.load(folder + "/y.npy").astype(np.int32)
X = np.column_stack([X, np.ones(len(X), np.float32)])

def model(xs, ys=None):
    w = numpyro.sample("w", dist.Normal(0.0, 10.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(X), xs.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=xs @ w), obs=ys)

guide = AutoDiagonalNormal(model, init_scale=0.05)
sigma, _, _ = approximate_sigma(epsilon, delta, rate, n_steps, force_smaller=True)
svi = DPSVI(model, guide, numpyro.optim.Adam(learning_rate), Trace_ELBO(), clip, sigma)
key, first, batches = d3p.random.split(d3p.random.PRNGKey(seed), 3)
init, get = subsample_batchify_data((X, y), batch_size=max(1, int(rate * len(X))))
_, state_of_batches = init(batches)
state = svi.init(first, *get(0, state_of_batches))

@jax.jit
def step(i, state):
    return svi.update(state, *get(i, state_of_batches))[0]

for i in range(n_steps):
    state = step(i, state)
location = np.asarray(svi.get_params(state)["auto_loc"], float)
np.save(folder + "/coef.npy", location)
"""


def fit(python: str, X, y, epsilon: float, delta: float, settings: Settings, seed: int) -> np.ndarray:
    """Mean of the posterior, the intercept last; shape (d + 1,)."""
    with tempfile.TemporaryDirectory() as folder:
        sp.save_npz(Path(folder) / "X.npz", sp.csr_matrix(X), compressed=False)
        np.save(Path(folder) / "y.npy", y)
        numbers = (epsilon, delta, *settings, seed)
        subprocess.run([python, "-W", "ignore", "-c", SCRIPT, folder, *map(str, numbers)], check=True)
        return np.load(Path(folder) / "coef.npy")


def methods(python: str | None, X, y, delta: float) -> list[Method]:
    """One method, whose settings are chosen on these training records."""
    if python is None:
        print("Private variational inference is left out: no --d3p PYTHON.")
        return []

    def fit_with(settings, X, y, epsilon, seed):
        return partial(linear_scores, coef=fit(python, X, y, epsilon, delta, settings, seed)[:-1])

    return [TunedMethod("DP-VI (d3p)", fit_with, CANDIDATES, X, y, note="tuned for each ε")]
