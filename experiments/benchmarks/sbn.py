"""A step of sigmoid belief networks, private and not, against the matrix products in it; threads, memory, growth with K.

    python -m experiments.benchmarks.sbn

J = 784, S = 3,200 images of MNIST in every step. A step includes E-step, norms, clipped sums, noise, and the next posterior.
The benchmark records the matrix products of one step, and times the same list (shapes, dtypes, memory orders) alone before
every further step, so that both run under the same load. Every configuration has its own process. With
one thread all times are CPU seconds, which other processes disturb less.

``--quick``: few images and hidden units, two configurations, in this process and by wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np

from experiments.benchmarks.lda import peak_mib
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import mnist

TARGET, TARGET_MIB = 1.5, 1024
N_STEPS = {"diagonal": 10, "full": 7}
N_WARM = 3  # steps before any is timed: compilation, then the step whose products are recorded


class Size(NamedTuple):
    """Images in a step, hidden units, the side of the matrices of a large product, and whether the run is quick."""

    batch: int
    hidden: int
    matrix: int
    quick: bool


FULL, QUICK = Size(3200, 100, 2500, False), Size(200, 4, 200, True)


def clock() -> float:
    """CPU seconds, or wall clock with several threads."""
    return time.process_time() if os.environ.get("OPENBLAS_NUM_THREADS") == "1" else time.perf_counter()


def clocked(covariance: str, dtype: str, n_hidden: int, private: bool, size: Size = FULL) -> dict:
    """Seconds of steps and, alternately, of their products."""
    from vips import PrivacyPlan, SigmoidBeliefNetwork

    steps: list[float] = []
    products: list[float] = []
    parts: dict[str, list[float]] = {"expected_statistics": [], "to_posterior": []}
    calls: Counter = Counter()
    recording = {"on": False}
    state: dict = {}

    class Clocked(SigmoidBeliefNetwork):
        """The engine calls ``step_size`` at the beginning of a step; later calls for the same step are the model's."""

        def step_size(self, t):
            if t <= state.get("step", 0):
                return super().step_size(t)
            state["step"] = t
            now = clock()
            if t > N_WARM + 1:
                steps.append(now - state["start"])
            if t > N_WARM:
                if "replay" not in state:
                    state["replay"] = replay(calls)
                    parts.update({name: [] for name in parts})
                products.append(seconds(state["replay"]))
            recording["on"] = t == N_WARM
            state["start"] = clock()
            return super().step_size(t)

        def expected_statistics(self, records, posterior):
            start = clock()
            statistics_ = super().expected_statistics(records, posterior)
            parts["expected_statistics"].append(clock() - start)
            return statistics_

        def to_posterior(self, average, noise_std, previous):
            start = clock()
            posterior = super().to_posterior(average, noise_std, previous)
            parts["to_posterior"].append(clock() - start)
            return posterior

    n_steps = N_STEPS[covariance]
    plan = PrivacyPlan.non_private(n_steps=n_steps)
    if private:
        plan = PrivacyPlan(noise_multiplier=10.0, n_steps=n_steps, sampling_rate=1.0)
    model = Clocked(n_hidden, privacy=plan, covariance=covariance, dtype=np.dtype(dtype).type, random_state=0)
    with recorded(calls, recording):
        model.fit(mnist(size.quick).data[: size.batch])
    steps.append(clock() - state["start"])
    peaks = {kind: peak_gflops(kind, size.matrix) for kind in ("float32", "float64")}
    flops = {
        kind: sum(2.0 * n * np.prod(a + b[1:]) for (a, b, k, *_), n in calls.items() if k == kind) for kind in peaks
    }
    return {
        "step_s": statistics.median(steps),
        "best_step_s": min(steps),
        "products_s": statistics.median(products),
        "best_products_s": min(products),
        "e_step_s": sum(parts["expected_statistics"]) / len(steps),
        "view_s": statistics.median(parts["to_posterior"]),
        "ratio": statistics.median(step / alone for step, alone in zip(steps, products, strict=True)),
        "n_products": sum(calls.values()),
        "gflop": sum(flops.values()) / 1e9,
        "least_s": sum(flops[kind] / (1e9 * peaks[kind]) for kind in peaks),
        "peak_gflops": peaks,
    }


@contextmanager
def recorded(calls: Counter, recording: dict):
    """Count every product of the model by shapes, dtype and memory orders, while ``recording["on"]``."""
    from vips.core.exact.blas import product
    from vips.core.exact.rowwise import rowwise_product

    modules = [module for name, module in sys.modules.items() if name.startswith("vips.models.belief_networks.")]

    def counting(original):
        def multiply(a, b):
            if recording["on"] and a.size and b.size:
                calls[a.shape, b.shape, a.dtype.name, order(a), order(b)] += 1
            return original(a, b)

        return multiply

    with ExitStack() as undoing:
        for original in (product, rowwise_product):
            multiply, name = counting(original), original.__name__
            for module in modules:
                if getattr(module, name, None) is original:
                    setattr(module, name, multiply)
                    undoing.callback(setattr, module, name, original)
        yield


def order(array: np.ndarray) -> str:
    return "C" if array.flags.c_contiguous else "F" if array.flags.f_contiguous else "strided"


def replay(calls: Counter):
    """A function that computes the same products from random numbers."""
    from vips.core.exact.blas import product

    rng = np.random.default_rng(0)

    def like(shape, dtype, layout):
        if layout == "strided":
            return rng.standard_normal((shape[0], 2 * shape[1])).astype(dtype)[:, : shape[1]]
        return np.asarray(rng.standard_normal(shape), dtype=dtype, order=layout)

    arrays = [(like(a, dtype, x), like(b, dtype, y), n) for (a, b, dtype, x, y), n in calls.items()]

    def multiply() -> None:
        for a, b, n in arrays:
            for _ in range(n):
                product(a, b)

    multiply()
    return multiply


def peak_gflops(dtype: str, n: int) -> float:
    """Speed of the fastest of several large square products."""
    from vips.core.exact.blas import product

    a = np.ones((n, n), dtype)
    product(a, a)
    return 2 * n**3 / min(seconds(lambda: product(a, a)) for _ in range(3)) / 1e9


def seconds(function) -> float:
    start = clock()
    function()
    return clock() - start


def memory(covariance: str | None, size: Size = FULL) -> dict:
    """Peak memory of a process that imports and loads, and runs three private steps if a covariance is given."""
    from vips import PrivacyPlan, SigmoidBeliefNetwork

    images = mnist(size.quick).data
    plan = PrivacyPlan(noise_multiplier=10.0, sampling_rate=size.batch / len(images), n_steps=3)
    model = SigmoidBeliefNetwork(size.hidden, privacy=plan, covariance=covariance or "diagonal", random_state=0)
    if covariance is not None:
        model.fit(images)
    return {"peak_mib": peak_mib()}


def run_one(size: Size, *what) -> dict:
    """``clocked(*what)`` or, for a single argument, ``memory(*what)``."""
    return (memory if len(what) == 1 else clocked)(*what, size=size)


def run_alone(threads: int, *what) -> dict:
    """The same at full size, in a process with the given number of threads."""
    variables = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | {variable: str(threads) for variable in variables}
    environment.pop("OPENBLAS_CORETYPE", None)
    command = [sys.executable, "-m", "experiments.benchmarks.sbn", "--child", json.dumps(what)]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def configurations(size: Size) -> list[tuple]:
    """(covariance, dtype, private, hidden units, threads) of every line."""
    if size.quick:
        return [("diagonal", "float64", True, size.hidden, 1), ("full", "float32", False, size.hidden, 1)]
    kinds = [(c, d, p) for c in ("diagonal", "full") for d in ("float64", "float32") for p in (True, False)]
    fits = [(*kind, size.hidden, 1) for kind in kinds]
    fits += [(covariance, "float64", True, size.hidden, 2) for covariance in ("diagonal", "full")]
    return fits + [("diagonal", "float64", True, n_hidden, 1) for n_hidden in (30, 200)]


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.sbn", __doc__)
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(run_one(FULL, *options.child)))
        return
    size, folder = QUICK if options.quick else FULL, folder_of("benchmarks", options)

    def measure(threads: int, *what) -> dict:
        return run_one(size, *what) if size.quick else run_alone(threads, *what)

    rows = []
    for covariance, dtype, private, n_hidden, threads in configurations(size):
        row = {"covariance": covariance, "dtype": dtype, "private": private, "n_hidden": n_hidden, "threads": threads}
        rows.append(row | measure(threads, covariance, dtype, n_hidden, private))
        print(line(rows[-1]), flush=True)
    processes = {"diagonal": "diagonal", "full": "full", "loading": None}
    peaks = {name: measure(1, covariance)["peak_mib"] for name, covariance in processes.items()}
    text = report(rows, peaks, size)
    print("\n" + text)
    if folder is not None:
        write_text(folder / "sbn.md", text)
        write_json(folder / "sbn.json", {"rows": rows, "peak_mib": peaks})


def line(row: dict) -> str:
    """A line of the table."""
    gflop, peaks = row["gflop"], row["peak_gflops"]
    cells = [row["covariance"], row["dtype"], "yes" if row["private"] else "no", row["n_hidden"], row["threads"]]
    cells += [f"{row['step_s']:.3f} ({row['best_step_s']:.3f})", f"{row['e_step_s']:.3f}, {row['view_s']:.3f}"]
    cells += [f"{row['products_s']:.3f} ({row['best_products_s']:.3f})", f"{row['ratio']:.2f}"]
    cells += [f"{gflop / row['step_s']:.0f}, {gflop / row['products_s']:.0f}"]
    cells += [f"{peaks['float64']:.0f}, {peaks['float32']:.0f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def report(rows: list[dict], peaks: dict[str, float], size: Size = FULL) -> str:
    """Both tables, and memory in words."""
    heads = ["covariance", "dtype", "private", "K", "threads", "step, s (best)", "its E-step, view"]
    heads += ["its products alone, s (best)", "ratio", "GFlop/s: step, products", "peak: double, single"]
    head = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    main_rows = [row for row in rows if row["n_hidden"] == size.hidden]
    first = rows[0]
    by_width = [
        r for r in rows if all(r[name] == first[name] for name in ("covariance", "dtype", "private", "threads"))
    ]
    by_width.sort(key=lambda r: r["n_hidden"])
    above = {name: peak - peaks["loading"] for name, peak in peaks.items()}
    return "\n".join(
        [
            f"A step on {size.batch} MNIST images, J = 784, against its matrix products alone: medians, and the",
            f"median of their ratios (target: {TARGET}). A view is the next posterior from noisy totals;",
            "its time does not grow with S. GFlop/s count those products only. Sums over records are in double",
            "precision whatever the dtype, which is that of the E-step. A private E-step takes the weights at their means.",
            "",
            *head,
            *map(line, main_rows),
            "",
            "Growth with K:",
            "",
            *head,
            *map(line, by_width),
            "",
            f"Peak memory of a process that loads MNIST and fits, K = {size.hidden}, one thread: {peaks['diagonal']:.0f} MiB "
            f"with a diagonal covariance, {peaks['full']:.0f} MiB with a full one (target: {TARGET_MIB} MiB); importing and "
            f"loading take {peaks['loading']:.0f} MiB of it, the fit {above['diagonal']:.0f} and {above['full']:.0f} MiB.",
        ]
    ) + "\n"  # fmt: skip


if __name__ == "__main__":
    main()
