"""Logistic regression on Adult against NumPyro and scikit-learn; the price of privacy; memory at d = 1,923.

    python -m experiments.benchmarks.logistic [--numpyro PYTHON]

The training part of split 0 of ``blr_adult`` is fitted, AUC is of its test part. Every library runs in its own process
with one thread. Compilation and loading are outside the timed part and reported beside it. NumPyro runs in its own environment
(``python3 -m venv DIR && DIR/bin/pip install numpyro "jax[cpu]"``); it is left out without ``--numpyro``.

``--quick``: few records and columns, once, all in this process, so that differences of peak memory are meaningless.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.benchmarks.lda import peak_mib, seconds
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import adult, diabetes

N_STEPS, DELTA, TOLERANCE = 20, 1e-5, 0.001
SAMPLING_RATE = 0.25  # for the stochastic fit


class Size(NamedTuple):
    """Numbers of records and columns, and of repetitions."""

    people: int | None
    patients: int | None
    columns: int | None
    repeats: int
    quick: bool


FULL, QUICK = Size(None, None, None, 7, False), Size(1000, 200, 50, 1, True)


def run_vips(data, size: Size) -> dict:
    """Non-private, 20 full-batch steps; and the fewest steps that reach its AUC to 0.001, on all records or samples."""
    from sklearn.metrics import roc_auc_score

    from vips import BayesianLogisticRegression, PrivacyPlan

    def fit(n_steps, rows=slice(None), sampling_rate=1.0):
        plan = PrivacyPlan.non_private(n_steps=n_steps, sampling_rate=sampling_rate)
        model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, random_state=0)
        return model.fit(data["X"][rows], data["y"][rows])

    def auc(model):
        return float(roc_auc_score(data["y_test"], model.decision_function(data["X_test"])))

    compilation = seconds(lambda: fit(2, slice(500)))
    cpu = time.process_time()
    repeats = min(5, size.repeats)
    wall = statistics.median(seconds(lambda: fit(N_STEPS)) for _ in range(repeats))
    cpu = (time.process_time() - cpu) / repeats
    result = {"auc": auc(fit(N_STEPS)), "wall_s": wall, "cpu_s": cpu, "compilation_s": compilation}
    for name, rate in (("full", 1.0), ("stochastic", SAMPLING_RATE)):
        enough = next(n for n in range(1, 100) if auc(fit(n, sampling_rate=rate)) >= result["auc"] - TOLERANCE)
        wall = statistics.median(seconds(lambda n=enough, q=rate: fit(n, sampling_rate=q)) for _ in range(size.repeats))
        result[name] = {"steps_to_target": enough, "to_target_s": wall}
    return result


def run_sklearn(data, size: Size) -> dict:
    """Maximum likelihood, as a reference."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    model = LogisticRegression(C=np.inf, max_iter=1000)
    wall = seconds(lambda: model.fit(data["X"], data["y"]))
    return {"auc": float(roc_auc_score(data["y_test"], model.decision_function(data["X_test"]))), "wall_s": wall}


def price_of_privacy(X, y, n_steps: int, repeats: int) -> dict:
    """Seconds of private and of non-private steps, in turn, on the same data; without the final bound of a non-private fit."""
    from vips import BayesianLogisticRegression, PrivacyPlan
    from vips.model import ConjugateExponentialModel

    plans = {
        "non_private": PrivacyPlan.non_private(n_steps=n_steps),
        "private": PrivacyPlan.from_epsilon(epsilon=1.0, delta=DELTA, sampling_rate=1.0, n_steps=n_steps),
    }

    def fit(plan, rows=slice(None)):
        model = BayesianLogisticRegression(privacy=plan, max_norm=1.0)
        ConjugateExponentialModel.fit(model, X[rows], y[rows])

    fit(plans["private"], slice(500))
    times: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(repeats):
        for name, plan in plans.items():
            times[name].append(seconds(lambda plan=plan: fit(plan)) / n_steps)
    median = {f"{name}_step_s": statistics.median(values) for name, values in times.items()}
    return median | {"ratio": median["private_step_s"] / median["non_private_step_s"]}


def patients(size: Size):
    from experiments.regression.compare import split, unit_rows

    data = diabetes(size.quick)
    X, y = unit_rows(data.data[: size.patients, : size.columns], 24), data.target[: size.patients].astype(int)
    train, _ = split(len(y), 0)
    return X[train], y[train]


def run_memory(size: Size, fits: bool) -> dict:
    """Peak memory of a process that imports and loads, and fits if ``fits``: d = 1,923, full covariance, private."""
    from vips import BayesianLogisticRegression, PrivacyPlan

    X, y = patients(size)
    plan = PrivacyPlan(noise_multiplier=10.0, sampling_rate=1.0, n_steps=3)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0)
    model.fit(X[:100, :50], y[:100])  # compiles
    if fits:
        model.fit(X, y)
    return {"peak_mib": peak_mib()}


RUNS = {
    "vips": run_vips,
    "scikit-learn": run_sklearn,
    "price": lambda data, size: price_of_privacy(data["X"], data["y"], N_STEPS, repeats=size.repeats),
    "price, d = 1,923": lambda data, size: price_of_privacy(*patients(size), n_steps=3, repeats=min(3, size.repeats)),
    "memory": lambda data, size: run_memory(size, fits=True),
    "memory, loading only": lambda data, size: run_memory(size, fits=False),
}

# The script for the other interpreter: the same model under every configuration; held-out AUC every 25 steps, not timed.
NUMPYRO = """
import json, sys, time
import jax, numpy as np, numpyro, numpyro.distributions as dist
from jax import numpy as jnp, random
from numpyro.infer import SVI, Trace_ELBO, autoguide

data, target = np.load(sys.argv[1]), float(sys.argv[2])
X, y, X_test, y_test = (jnp.asarray(data[k], jnp.float32) for k in ("X", "y", "X_test", "y_test"))
n, d = X.shape

def auc(scores):
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    positive = np.asarray(y_test) > 0
    n1 = positive.sum()
    return float((ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * (len(scores) - n1)))

def model(rows):
    alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    with numpyro.plate("features", d):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0 / jnp.sqrt(alpha)))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
    rows_X, rows_y = (X, y) if rows is None else (X[rows], y[rows])
    with numpyro.handlers.scale(scale=n / len(rows_y)), numpyro.plate("records", len(rows_y)):
        numpyro.sample("y", dist.Bernoulli(logits=rows_X @ w + intercept), obs=rows_y)

for name in ("AutoDiagonalNormal", "AutoMultivariateNormal"):
    for batch, rates, most in ((n, (0.05, 0.1, 0.2), 1000), (1024, (0.02, 0.05, 0.1), 5000)):
        for rate in rates:
            guide = getattr(autoguide, name)(model, init_scale=0.1)
            svi = SVI(model, guide, numpyro.optim.Adam(rate), Trace_ELBO())
            batches = np.random.default_rng(0).integers(0, n, (most, batch)).astype(np.int32) if batch < n else None
            state = svi.init(random.PRNGKey(0), None if batches is None else batches[0])
            one = lambda s, rows: (svi.update(s, rows)[0], None)
            chunk = jax.jit(lambda s, rows: jax.lax.scan(one, s, rows, length=25)[0])
            part = lambda t: None if batches is None else batches[t : t + 25]
            start = time.perf_counter(); jax.block_until_ready(chunk(state, part(0))); first = time.perf_counter() - start
            steps, wall, cpu, reached, best = 0, 0.0, 0.0, None, 0.0
            while steps < most:
                start, cpu_start = time.perf_counter(), time.process_time()
                state = jax.block_until_ready(chunk(state, part(steps)))
                wall += time.perf_counter() - start; cpu += time.process_time() - cpu_start; steps += 25
                found = guide.median(svi.get_params(state))
                score = auc(np.asarray(X_test @ found["w"] + found["intercept"]))
                best = max(best, score)
                if reached is None and score >= target:
                    reached = (wall, steps, cpu)
            compilation = max(first - 25 * wall / steps, 0.0)
            row = dict(guide=name, batch=batch, rate=rate, steps=steps, auc=score, best_auc=best, wall_s=wall, cpu_s=cpu,
                       compilation_s=compilation, to_target_s=reached and reached[0], steps_to_target=reached and reached[1])
            print(json.dumps(row), flush=True)
"""


def environment() -> dict:
    variables = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
    one = os.environ | dict.fromkeys(variables, "1") | {"JAX_PLATFORMS": "cpu"}
    one["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    one.pop("OPENBLAS_CORETYPE", None)
    return one


def child(benchmark: str, name: str, *options: str) -> dict:
    """What a benchmark of this folder prints last for one of its runs, in its own process with one thread."""
    command = [sys.executable, "-m", f"experiments.benchmarks.{benchmark}", "--child", name, *options]
    output = subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def run_one(name: str, size: Size, file: Path) -> dict:
    """Run one library in this process."""
    return RUNS[name](np.load(file) if "memory" not in name else None, size)


def run_alone(name: str, file: Path) -> dict:
    """Run one library at full size, in its own process with one thread."""
    return child("logistic", name, "--file", str(file))


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.logistic", __doc__)
    parser.add_argument("--numpyro", metavar="PYTHON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(run_one(options.child, FULL, options.file)))
        return
    size, written = QUICK if options.quick else FULL, folder_of("benchmarks", options)
    from experiments.regression.compare import split
    from vips.preprocessing import TableEncoder

    people = adult(options.quick)
    X = TableEncoder(people.columns).fit_transform(people.data[: size.people])
    y = people.target[: size.people].astype(int)
    train, test = split(len(y), 0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "adult.npz"
        np.savez(file, X=X[train], y=y[train], X_test=X[test], y_test=y[test])
        results: dict = {}
        for name in RUNS:
            results[name] = run_one(name, size, file) if size.quick else run_alone(name, file)
            print(name, results[name], flush=True)
        results["numpyro"] = []
        if options.numpyro:
            target = str(results["vips"]["auc"] - TOLERANCE)
            command = [options.numpyro, "-c", NUMPYRO, str(file), target]
            output = subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE, text=True).stdout
            results["numpyro"] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        else:
            print("NumPyro is left out: no --numpyro PYTHON.")
    text = report(results)
    print(text)
    if written is not None:
        write_text(written / "logistic.md", text)
        write_json(written / "logistic.json", results)


def reached(row: dict) -> str:
    """Seconds and steps to the target."""
    return f"{row['to_target_s']:.2f} ({row['steps_to_target']})" if row["to_target_s"] else "never"


def report(results: dict) -> str:
    """The numbers in a table and in words."""
    ours, sklearn, price = results["vips"], results["scikit-learn"], results["price"]
    target = f"AUC of vips - {TOLERANCE} = {ours['auc'] - TOLERANCE:.4f}"
    lines = [
        f"Adult, training part of split 0, d = 108, one thread; target: {target}",
        "",
        "| | steps | AUC | seconds | CPU seconds | compilation, s | seconds to target (steps) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        f"| vips, non-private | {N_STEPS} | {ours['auc']:.4f} | {ours['wall_s']:.2f} | {ours['cpu_s']:.2f} "
        f"| {ours['compilation_s']:.2f} | {reached(ours['full'])} |",
        f"| vips, non-private, sampling rate {SAMPLING_RATE} | | | | | | {reached(ours['stochastic'])} |",
        f"| scikit-learn, maximum likelihood | | {sklearn['auc']:.4f} | {sklearn['wall_s']:.2f} | | | |",
    ]
    for row in results["numpyro"]:
        lines.append(
            f"| NumPyro {row['guide']}, batch {row['batch']}, Adam {row['rate']} | {row['steps']} | {row['auc']:.4f} "
            f"| {row['wall_s']:.2f} | {row['cpu_s']:.2f} | {row['compilation_s']:.2f} | {reached(row)} |"
        )
    wide, memory = results["price, d = 1,923"], results["memory"]["peak_mib"]
    lines += [
        "",
        f"A step, private / non-private: {price['private_step_s']:.4f} s / {price['non_private_step_s']:.4f} s "
        f"= {price['ratio']:.2f} (d = 108); {wide['private_step_s']:.2f} s / {wide['non_private_step_s']:.2f} s "
        f"= {wide['ratio']:.2f} (d = 1,923, CSR, full covariance).",
        f"Peak memory of a private fit with full covariance, d = 1,923: {memory:.0f} MiB, "
        f"{memory - results['memory, loading only']['peak_mib']:.0f} MiB above importing and loading.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
