"""Where there is no ``fcntl`` and no fork, as on Windows: everything can be imported, fits work, and what does not says so."""

import os
import subprocess
import sys

import pytest

from tests import ROOT

# What others import there is their own matter: they come first.
WITHOUT_POSIX = """
import os, pathlib, sys
import joblib, numba, numpy as np, randomgen, scipy.linalg, scipy.sparse, sklearn.linear_model, threadpoolctl, tqdm.auto
import dask.distributed, dp_accounting.pld, dp_accounting.rdp, matplotlib.figure, pandas, polyagamma, pyarrow.parquet

for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "register_at_fork", "geteuid", "getuid", "O_CLOEXEC", "O_DIRECTORY"):
    delattr(os, name)

import importlib, pkgutil
import vips

for module in pkgutil.walk_packages(vips.__path__, "vips."):
    if module.name != "vips.__main__":
        importlib.import_module(module.name)

from vips import DirichletMultinomial, PrivacyLedger, PrivacyPlan, StreamPlan

folder = pathlib.Path(sys.argv[1])
plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=1)
model = DirichletMultinomial(privacy=plan).fit(np.eye(3))
model.save(folder / "model")
assert np.array_equal(vips.load(folder / "model").last_posterior_.mean, model.last_posterior_.mean)
print("fitted, saved and loaded")

stream = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=2)
for use in (
    lambda: PrivacyLedger(folder / "ledger", 1.0, 1e-6, "votes"),
    lambda: PrivacyLedger.open(folder / "other"),
    lambda: DirichletMultinomial(privacy=stream).partial_fit(np.eye(3), checkpoint=folder / "stream"),
    lambda: DirichletMultinomial(privacy=plan).fit(np.eye(3), checkpoint=folder / "fit"),
):
    try:
        use()
    except ValueError as error:
        print(type(error).__name__, error)
DirichletMultinomial(privacy=stream).partial_fit(np.eye(3)).partial_fit(np.eye(3))
print(*sorted(path.name for path in folder.iterdir()))
"""


@pytest.mark.slow
def test_without_fcntl_everything_can_be_imported_and_what_does_not_work_says_so(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_POSIX, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"MPLBACKEND": "agg"})
    assert done.returncode == 0, done.stderr
    fitted, *refused, left = done.stdout.splitlines()
    assert fitted == "fitted, saved and loaded"
    needs = "needs file locks (fcntl), which this platform lacks: use Linux or macOS, or"
    instead = "fit without `ledger`: nothing counts the fit then. Nothing was changed."
    assert refused == [
        f"LedgerError A ledger {needs} {instead}",
        f"LedgerError A ledger {needs} {instead}",
        f"StreamError A stream with a checkpoint {needs} call partial_fit without `checkpoint`: the stream then ends with its "
        "process. Nothing was changed.",
        f"CheckpointError A fit with a checkpoint {needs} fit without `checkpoint`. Nothing was changed.",
    ]
    assert left == "model"  # of the ledger, the stream and the checkpoint there is nothing
