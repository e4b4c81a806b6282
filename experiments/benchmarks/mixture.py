"""Gaussian mixtures against scikit-learn: iterations on the same records, with one thread, in one run.

    python -m experiments.benchmarks.mixture

100,000 generated records with 10 columns, 10 components with full covariances. Both libraries do the same: EM, or variational
Bayes, a fixed number of iterations from a start of their own. Each fit has its own process; the processes take turns,
``--repeats`` times, and medians of CPU time are compared. Making records, the start and compilation are outside the timed part.

``--quick``: few records and iterations, once, in this process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings

import numpy as np

from experiments.benchmarks.logistic import child
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text

N_RECORDS, N_COLUMNS, N_COMPONENTS, N_ITERATIONS = 100_000, 10, 10, 20


def generated(n_records: int) -> np.ndarray:
    """Records of ten clusters that overlap."""
    rng = np.random.default_rng(0)
    centres = 2.0 * rng.normal(size=(N_COMPONENTS, N_COLUMNS))
    shapes = rng.normal(size=(N_COMPONENTS, N_COLUMNS, N_COLUMNS)) / np.sqrt(N_COLUMNS)
    of = rng.integers(N_COMPONENTS, size=n_records)
    return centres[of] + np.einsum("nij,nj->ni", shapes[of], rng.normal(size=(n_records, N_COLUMNS)))


def run_vips(X: np.ndarray, n_iterations: int, inference: str = "em", noise_multiplier: float = 0.0) -> dict:
    from vips import BayesianGaussianMixture, PrivacyPlan

    def fit(rows, n_steps):
        clip = {} if noise_multiplier else {"clip_norm": np.inf}
        plan = PrivacyPlan(noise_multiplier=noise_multiplier, sampling_rate=1.0, n_steps=n_steps, **clip)
        kind = {"inference": inference, "privacy": plan, "random_state": 0}
        kind["max_norm"] = 20.0 if noise_multiplier else None
        return BayesianGaussianMixture(N_COMPONENTS, **kind).fit(rows)

    fit(X[:500], 12)  # compiles
    begun = 3 * N_COMPONENTS  # steps in which the components are found
    before = seconds(lambda: fit(X, begun))
    return spent(lambda: fit(X, begun + n_iterations), n_iterations, before, lambda model: model.score(X))


def run_private(X: np.ndarray, n_iterations: int) -> dict:
    return run_vips(X, n_iterations, "vb", noise_multiplier=20.0)


def run_their_em(X: np.ndarray, n_iterations: int, bayesian: bool = False) -> dict:
    from sklearn import mixture

    kind = mixture.BayesianGaussianMixture if bayesian else mixture.GaussianMixture
    more = {"weight_concentration_prior_type": "dirichlet_process"} if bayesian else {}

    def fit(n):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings = {"n_components": N_COMPONENTS, "tol": 0.0, "max_iter": n, "init_params": "random_from_data"}
            return kind(**settings, **more, random_state=0).fit(X)

    before = seconds(lambda: fit(1))
    return spent(lambda: fit(1 + n_iterations), n_iterations, before, lambda model: model.score(X))


RUNS = {
    "vips, EM": run_vips,
    "vips, variational": lambda X, n: run_vips(X, n, "vb"),
    "vips, private": run_private,
    "scikit-learn, EM": run_their_em,
    "scikit-learn, variational": lambda X, n: run_their_em(X, n, bayesian=True),
}
PEER = {
    "vips, EM": "scikit-learn, EM",
    "vips, variational": "scikit-learn, variational",
    "vips, private": "scikit-learn, variational",
}


def seconds(function) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def spent(function, n_iterations: int, before: float, score) -> dict:
    """CPU seconds of an iteration: of a fit less those of a fit that ends where the counted ones begin."""
    start, model = time.process_time(), function()
    return {"cpu_s": (time.process_time() - start - before) / n_iterations, "log density": float(score(model))}


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.mixture", __doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(RUNS[options.child](generated(N_RECORDS), N_ITERATIONS)))
        return
    written = folder_of("benchmarks", options)
    rows: dict[str, list] = {name: [] for name in RUNS}
    for _ in range(1 if options.quick else options.repeats):
        for name, run in RUNS.items():
            rows[name].append(run(generated(2000), 5) if options.quick else run_alone(name))
            print(name, rows[name][-1], flush=True)
    medians = {
        name: {key: statistics.median(row[key] for row in runs) for key in runs[0]} for name, runs in rows.items()
    }
    print(text := report(medians))
    if written is not None:
        write_text(written / "mixture.md", text)
        write_json(written / "mixture.json", rows)


def run_alone(name: str) -> dict:
    """In its own process with one thread."""
    return child("mixture", name)


def report(medians: dict[str, dict]) -> str:
    """The numbers in a table."""
    lines = [
        "| | CPU seconds of an iteration | faster than scikit-learn by | log density |",
        "| --- | --- | --- | --- |",
    ]
    for name, row in medians.items():
        faster = f"{medians[PEER[name]]['cpu_s'] / row['cpu_s']:.1f}" if name in PEER else ""
        lines.append(f"| {name} | {row['cpu_s']:.4f} | {faster} | {row['log density']:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
