"""``python -m experiments other_tools``: what people would otherwise use, at equal ε on the same held-out scores.

**Logistic regression of Adult** (δ = 1e-5, AUC of a fifth that is held out, three splits) beside d3p with NumPyro: variational
inference by DP-SGD. Its settings are chosen for each ε on a fifth of the training people, outside of the ε that is shown.

**Hidden pixels of MNIST** (δ = 1e-4, all 10,000 test images, the other half of each is seen) beside a variational
autoencoder with DP-SGD by Opacus, which is trained to predict hidden pixels from seen ones. Its settings were chosen at ε = 1
on 2,000 of the training images, of five (``VAE`` below).

The tools run in environments of their own, whose interpreters are given; without one its rows are left out::

    --d3p PYTHON       see experiments/regression/dpvi.py
    --opacus PYTHON    python3 -m venv DIR && DIR/bin/pip install torch==2.13.0 opacus==1.6.0
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from experiments.belief_networks.scoring import Scored
from experiments.options import folder_of, parser_of
from experiments.regression import dpvi
from experiments.regression.compare import QUICK_RECORDS, split
from experiments.regression.methods import auc, ours
from experiments.results import as_table, spread, write_json, write_text
from experiments.stand_ins import adult, mnist
from vips import PrivacyPlan, SigmoidBeliefNetwork
from vips.preprocessing import TableEncoder

N_SPLITS, EPSILONS, DELTA = 3, (0.5, 1.0, 4.0), 1e-5
EPSILONS_OF_IMAGES, DELTA_OF_IMAGES, N_HIDDEN = (0.5, 1.0, 2.35), 1e-4, 100
VAE = {"n_hidden": 100, "n_latent": 10, "learning_rate": 5e-3, "batch_size": 4096, "clip_norm": 1.0, "epochs": 40}
SCRIPT = Path(__file__).parent / "belief_networks/opacus_vae.py"


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments other_tools", __doc__)
    parser.add_argument("--d3p", metavar="PYTHON", help="interpreter that has d3p")
    parser.add_argument("--opacus", metavar="PYTHON", help="interpreter that has torch and opacus")
    parser.add_argument("--only", choices=["adult", "mnist"])
    options = parser.parse_args(arguments)
    folder = folder_of("other_tools", options)
    for name, rows_of in {"adult": people, "mnist": images}.items():
        if options.only in (None, name):
            rows = list(rows_of(options))
            print(text := table(rows))
            if folder is not None:
                write_json(folder / f"{name}.json", rows)
                write_text(folder / f"{name}.md", text)


def people(options) -> Iterator[dict]:
    """Logistic regressions of Adult."""
    bunch = adult(options.quick)
    n = QUICK_RECORDS if options.quick else None
    X, y = TableEncoder(bunch.columns).fit_transform(bunch.data[:n]), np.asarray(bunch.target[:n])
    train, _ = split(len(y), 0)
    methods = [ours(DELTA), *dpvi.methods(options.d3p, X[train], y[train], DELTA)]
    for epsilon in EPSILONS[:1] if options.quick else EPSILONS:
        for method in methods:
            method.settings_at(epsilon)
            scores, start = [], time.perf_counter()
            for s in range(1 if options.quick else N_SPLITS):
                fitted, held_out = split(len(y), s)
                scores.append(auc(y[held_out], method.fit(X[fitted], y[fitted], epsilon, s)(X[held_out])))
            yield _row(method.name, epsilon, scores, start)


def images(options) -> Iterator[dict]:
    """Hidden pixels of MNIST."""
    data = mnist(options.quick)
    training, test = (data.data[:500], data.test_data[:50]) if options.quick else (data.data, data.test_data)
    scored = Scored(test)  # the images in their order

    def network(epsilon: float) -> Callable:
        plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA_OF_IMAGES, sampling_rate=0.5, n_steps=20)
        n_hidden = 10 if options.quick else N_HIDDEN
        return SigmoidBeliefNetwork(n_hidden, privacy=plan, random_state=0).fit(training).reconstruct

    methods = {"belief network, vips": network}
    if options.opacus is None:
        print("The autoencoder is left out: no --opacus PYTHON.")
    else:
        methods["autoencoder, Opacus"] = lambda epsilon: autoencoder(options.opacus, training, epsilon)
    for epsilon in EPSILONS_OF_IMAGES[:1] if options.quick else EPSILONS_OF_IMAGES:
        for name, fit in methods.items():
            start = time.perf_counter()
            right = (fit(epsilon)(np.where(scored.observed, test, False), scored.observed) > 0.5) == test
            yield _row(name, epsilon, [float(right[~scored.observed].mean())], start)


def autoencoder(python: str, training: np.ndarray, epsilon: float | None, drawn: bool = False) -> Callable:
    """Predictions of a new fit, or images that it draws: the other interpreter keeps no model."""

    def predict(seen: np.ndarray, observed: np.ndarray) -> np.ndarray:
        settings = VAE | {"seed": 0, "epsilon": epsilon, "delta": DELTA_OF_IMAGES, "drawn": drawn}
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "source.npz", Path(folder) / "target.npy"
            np.savez(source, training=training, seen=seen, observed=observed, settings=json.dumps(settings))
            subprocess.run([python, SCRIPT, source, target], check=True)
            return np.load(target)

    return predict


def _row(method: str, epsilon: float, scores: list[float], start: float) -> dict:
    seconds = (time.perf_counter() - start) / len(scores)
    return {"method": method, "epsilon": epsilon, "score": scores, "seconds": seconds}


def table(rows: list[dict]) -> str:
    cells = [[f"{row['epsilon']:g}", row["method"], spread(row["score"], 4), f"{row['seconds']:.0f}"] for row in rows]
    return as_table(["ε", "method", "score (range)", "seconds a fit"], cells)
