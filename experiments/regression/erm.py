"""Empirical risk minimisation by scikit-learn, and by objective perturbation of diffprivlib (Chaudhuri et al., 2011).

diffprivlib does not work with the scikit-learn version that vips uses. It runs in its own environment, whose interpreter is
given as ``--diffprivlib PYTHON``::

    python3 -m venv DIR && DIR/bin/pip install "diffprivlib==0.6.6" "scikit-learn==1.7.2"

Its guarantee is pure: δ = 0.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from experiments.regression.methods import Method, TunedMethod, linear_scores

__all__ = ["fit", "methods"]

REGULARISATION = (0.01, 0.1, 1.0, 10.0)  # C: the penalty is ‖w‖² / (2 C) beside a sum over records
WITHOUT_PRIVACY = (1.0, 10.0, 100.0)

# The other interpreter runs `python -c SCRIPT folder epsilon C seed`. The rows are in the unit ball already; the
# library's own clipping would change nothing, and accepts dense arrays only.
SCRIPT = """
import sys
import numpy as np, scipy.sparse as sp
from diffprivlib.models import LogisticRegression

folder, epsilon, C, seed = sys.argv[1], *map(float, sys.argv[2:4]), int(sys.argv[4])
LogisticRegression._clip_to_norm = lambda self, rows, norm: rows
X, y = sp.csr_matrix(sp.load_npz(folder + "/X.npz")), np.load(folder + "/y.npy")
X = X if X.nnz < 0.1 * X.shape[0] * X.shape[1] else X.toarray()
model = LogisticRegression(epsilon=epsilon, data_norm=1.0, C=C, max_iter=1000, tol=1e-6, random_state=seed).fit(X, y)
np.save(folder + "/coef.npy", model.coef_[0])
"""


def fit(python: str, X, y, epsilon: float, regularisation: float, seed: int) -> np.ndarray:
    """Coefficients, shape (d,)."""
    with tempfile.TemporaryDirectory() as folder:
        sp.save_npz(Path(folder) / "X.npz", sp.csr_array(X), compressed=False)
        np.save(Path(folder) / "y.npy", y)
        command = [python, "-W", "ignore", "-c", SCRIPT, folder, str(epsilon), str(regularisation), str(seed)]
        subprocess.run(command, check=True)
        return np.load(Path(folder) / "coef.npy")


def methods(python: str | None, X, y, splits: int | None = None) -> list[Method]:
    """ERM without privacy; private with the default C of diffprivlib, and with C chosen on these training records."""

    def ordinary(regularisation, X, y, epsilon, seed):
        return LogisticRegression(C=regularisation, max_iter=1000).fit(X, y).decision_function

    plain = TunedMethod(
        "ERM", ordinary, WITHOUT_PRIVACY, X, y, private=False, note="scikit-learn, C tuned", settings="C ="
    )
    if python is None:
        print("Objective perturbation is left out: no --diffprivlib PYTHON.")
        return [plain]

    def fit_with(regularisation, X, y, epsilon, seed):
        return partial(linear_scores, coef=fit(python, X, y, epsilon, regularisation, seed))

    name = "objective perturbation"
    return [
        plain,
        Method(name, partial(fit_with, 1.0), note="default C, δ = 0", settings="C = 1", splits=splits),
        TunedMethod(
            name, fit_with, REGULARISATION, X, y, note="C tuned for each ε, δ = 0", settings="C =", splits=splits
        ),
    ]
