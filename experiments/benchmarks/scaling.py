"""How fits scale: threads, executors, sources, chunks, and the sizes n, K, V and d.

    python -m experiments.benchmarks.scaling            (make bench)

Every case runs in a process of its own with the threads that it names; compilation and loading are outside the timed part.
Cases take turns, and medians are reported. Peak memory is sampled from the process and its children. The matrix product of the
same run, and the speed at which memory is copied, stand beside.
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
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from experiments.dask_cluster import local_cluster
from experiments.memory import largest_process
from experiments.results import results_folder, write_json, write_text

N_DOCUMENTS, N_WORDS, N_TOPICS, LENGTH, PER_SHARD = 40_000, 7_700, 50, 500, 5_000
RATE, N_STEPS = 0.2, 5  # one pass
N_ROWS, N_FEATURES = 400_000, 100
LARGER = 4  # times the documents, for the memory of shards

# name: arguments of a case, in groups that become one table each
GROUPS: dict[str, dict[str, dict]] = {
    "Threads: topics of documents in memory": {
        "1 thread": {"run": "lda", "threads": 1},
        "2 threads": {"run": "lda", "threads": 2},
    },
    "Executors: topics of documents in 8 shards": {
        "serial, 1 thread": {"run": "lda", "threads": 1, "source": "shards"},
        "serial, 2 threads": {"run": "lda", "threads": 2, "source": "shards"},
        '"threads", 2': {"run": "lda", "threads": 2, "source": "shards", "executor": "threads"},
        '"processes", 2': {"run": "lda", "threads": 2, "source": "shards", "executor": "processes"},
        "Dask, 1 worker": {"run": "lda", "threads": 2, "source": "shards", "executor": "dask", "workers": 1},
        "Dask, 2 workers": {"run": "lda", "threads": 2, "source": "shards", "executor": "dask", "workers": 2},
        "Dask, 2 workers, its default allocation": {
            "run": "lda",
            "threads": 2,
            "source": "shards",
            "executor": "dask",
            "workers": 2,
            "default_allocation": True,
        },
    },
    "Sources: topics of documents, 1 thread": {
        "in memory": {"run": "lda", "threads": 1},
        "shards": {"run": "lda", "threads": 1, "source": "shards"},
        f"shards, {LARGER} times the documents": {"run": "lda", "threads": 1, "source": "shards", "times": LARGER},
    },
    "Sources: logistic regression, 1 thread": {
        "in memory": {"run": "logistic", "threads": 1},
        "memory-mapped .npy": {"run": "logistic", "threads": 1, "source": "npy"},
        "Parquet": {"run": "logistic", "threads": 1, "source": "parquet"},
    },
    "Documents in a chunk": {
        str(size): {"run": "lda", "threads": 1, "chunk_size": size} for size in (128, 512, 2048, 8192)
    },
    "Number of documents": {
        f"{n:,}": {"run": "lda", "threads": 1, "n": n} for n in (N_DOCUMENTS // 4, N_DOCUMENTS // 2, N_DOCUMENTS)
    },
    "Topics K": {str(k): {"run": "lda", "threads": 1, "n_topics": k} for k in (25, 50, 100, 200)},
    "Words V (7,700: four times the documents)": {
        f"{v:,}": {"run": "lda", "threads": 1, "n_words": v} for v in (1_925, 7_700, 30_800)
    },
    "Features d of a logistic regression": {
        str(d): {"run": "logistic", "threads": 1, "d": d, "n": N_ROWS * N_FEATURES // (4 * d)} for d in (10, 100, 1000)
    },
    "Hidden units K of a belief network, J = 784": {
        str(k): {"run": "network", "threads": 1, "n_hidden": k} for k in (25, 50, 100)
    },
}


def documents(n: int, n_words: int, seed: int) -> sp.csr_array:
    from vips.datasets import make_lda_corpus

    return make_lda_corpus(n, n_topics=N_TOPICS, n_words=n_words, document_length=LENGTH, random_state=seed).counts


def prepare(folder: Path) -> None:
    """The corpora and tables of all cases, on disk."""
    for times in (1, LARGER):
        shards = folder / f"shards_{times}"
        shards.mkdir()
        for i in range(times * N_DOCUMENTS // PER_SHARD):
            sp.save_npz(shards / f"{i:04d}.npz", documents(PER_SHARD, N_WORDS, i), compressed=False)
    for n_words in (1_925, 7_700, 30_800):
        n = N_DOCUMENTS if n_words == N_WORDS else N_DOCUMENTS // 4
        sp.save_npz(folder / f"documents_{n_words}.npz", documents(n, n_words, 0), compressed=False)
    rng = np.random.default_rng(0)
    X = (rng.uniform(-1.0, 1.0, (N_ROWS, N_FEATURES)) / np.sqrt(N_FEATURES)).astype(np.float32)
    y = (rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-8.0 * X[:, 0]))).astype(np.float64)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    import pyarrow
    import pyarrow.parquet

    columns = {f"x{j}": X[:, j] for j in range(N_FEATURES)} | {"y": y}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "table.parquet", row_group_size=16_384)


def run_lda(folder: Path, case: dict) -> tuple[Callable[[], object], int]:
    from vips import LatentDirichletAllocation, PrivacyPlan
    from vips.data import CSRShards

    n_words, n = case.get("n_words", N_WORDS), case.get("n")
    if case.get("source") == "shards":
        data, n = CSRShards(folder / f"shards_{case.get('times', 1)}"), N_DOCUMENTS * case.get("times", 1)
    else:
        data = sp.load_npz(folder / f"documents_{n_words}.npz")
        n = n or data.shape[0] if n_words == N_WORDS and "n_topics" not in case and "chunk_size" not in case else 10_000
        data = data[:n]
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=RATE, n_steps=N_STEPS)
    model = LatentDirichletAllocation(case.get("n_topics", N_TOPICS), vocabulary=n_words, privacy=plan, random_state=0)
    if "chunk_size" in case:
        model.chunk_size = case["chunk_size"]
    return lambda **more: model.fit(data, **more), int(n * RATE * N_STEPS)


def run_logistic(folder: Path, case: dict) -> tuple[Callable[[], object], int]:
    from vips import BayesianLogisticRegression, PrivacyPlan
    from vips.data import NpySource, ParquetTable

    plan, arguments = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=N_STEPS), {}
    d, n = case.get("d", N_FEATURES), case.get("n", N_ROWS)
    if case.get("source") == "npy":
        arguments["X"] = NpySource(folder / "X.npy", folder / "y.npy")
    elif case.get("source") == "parquet":
        features = [f"x{j}" for j in range(N_FEATURES)]
        arguments["X"] = ParquetTable(folder / "table.parquet", features=features, target="y")
    elif d == N_FEATURES:
        arguments |= {"X": np.load(folder / "X.npy")[:n], "y": np.load(folder / "y.npy")[:n]}
    else:
        rng = np.random.default_rng(0)
        arguments |= {"X": rng.uniform(-1.0, 1.0, (n, d)).astype(np.float32) / np.float32(np.sqrt(d))}
        arguments["y"] = (rng.random(n) < 0.5).astype(np.float64)
    model = BayesianLogisticRegression(privacy=plan, feature_norm=1.0, random_state=0)
    return lambda **more: model.fit(**arguments, **more), n * N_STEPS


def run_network(folder: Path, case: dict) -> tuple[Callable[[], object], int]:
    from vips import PrivacyPlan, SigmoidBeliefNetwork

    X = np.random.default_rng(0).random((4_000, 784)) < 0.2
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=N_STEPS)
    model = SigmoidBeliefNetwork(case["n_hidden"], privacy=plan, random_state=0, dtype=np.float32)
    return lambda **more: model.fit(X, **more), len(X) * N_STEPS


RUNS = {"lda": run_lda, "logistic": run_logistic, "network": run_network}


def child(folder: Path, case: dict) -> None:
    """One case: seconds of wall clock, records that were summed, and memory."""
    if case["run"] == "peak":
        print(json.dumps(peaks() | coordinator() | task_overhead()))
        return
    fit, n_records = RUNS[case["run"]](folder, case)
    with executor_of(case) as executor:
        fit(executor=executor)  # compiles, maps, starts workers
        with largest_process() as memory:
            start = time.perf_counter()
            fit(executor=executor)
            seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "per_second": n_records / seconds} | memory))


@contextmanager
def executor_of(case: dict):
    if case.get("executor") != "dask":
        yield case.get("executor")
        return
    allocation = case.get("default_allocation", False)
    with local_cluster(case["workers"], default_allocation=allocation, silence_logs=50) as (_, client):
        yield client


def peaks() -> dict:
    """Single-precision matrix product, GFlop/s, and memory copied, GB/s (read and written), of one thread."""
    a, large = np.ones((3000, 3000), np.float32), np.ones(2**25)
    other = np.empty_like(large)

    return {
        "gflops": 2 * 3000**3 / shortest(lambda: a @ a) / 1e9,
        "copy_gbs": 2 * large.nbytes / shortest(lambda: np.copyto(other, large)) / 1e9,
    }


def shortest(function: Callable[[], object]) -> float:
    """Seconds of the fastest of four calls."""
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def coordinator() -> dict:
    """Milliseconds of one thread for 10⁶ numbers of a private step of topics: noise, and counts denoised."""
    from randomgen import AESCounter

    from vips.models._lda_view import denoise_counts
    from vips.privacy.noise import gaussian_noise

    shape, std = (100, 10_000), 30.0
    rng = np.random.Generator(AESCounter())
    noisy = rng.gamma(0.1, 200.0, shape) + gaussian_noise(shape, False, std, rng)
    return {
        "noise_ms": 1e3 * shortest(lambda: gaussian_noise(shape, False, std, rng)),
        "view_ms": 1e3 * shortest(lambda: denoise_counts(noisy, np.full(shape[1], std))),
    }


def task_overhead() -> dict:
    """Milliseconds that a Dask cluster of two workers takes for a task that does nothing, and a tree of such."""
    n_tasks = 2_000
    with executor_of({"executor": "dask", "workers": 2}) as client:
        client.submit(int).result()
        start = time.perf_counter()
        client.submit(len, client.map(int, range(n_tasks), pure=False), pure=False).result()
        return {"task_ms": 1e3 * (time.perf_counter() - start) / n_tasks}


def measure(folder: Path, case: dict) -> dict:
    threads = str(case.get("threads", 1))
    variables = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(variables, threads)
    environment.pop("OPENBLAS_CORETYPE", None)
    command = [sys.executable, "-W", "ignore", "-m", "experiments.benchmarks.scaling", "--child", json.dumps(case)]
    output = subprocess.run(
        [*command, "--folder", str(folder)], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return json.loads(output.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--groups", default="", help="only tables with this in their name; others stay as they are")
    parser.add_argument("--child")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.child:
        child(options.folder, json.loads(options.child))
        return
    path = results_folder("benchmarks") / "scaling.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        results["peaks"] = measure(folder, {"run": "peak"})
        for group, cases in GROUPS.items():
            if options.groups not in group:
                continue
            runs: dict[str, list[dict]] = {case: [] for case in cases}
            for _ in range(options.repeats):
                for case, arguments in cases.items():
                    runs[case].append(measure(folder, arguments))
            results[group] = {
                case: {key: statistics.median(run[key] for run in repeated) for key in repeated[0]} | {"runs": repeated}
                for case, repeated in runs.items()
            }
            print(table(group, results[group]), flush=True)
            write_json(path, results)
    write_text(path.with_suffix(".md"), report(results))
    plot(results, path.with_suffix(".png"))


def table(group: str, rows: dict[str, dict]) -> str:
    """Ratios are to the first line."""
    first = next(iter(rows.values()))
    lines = [
        f"**{group}**\n",
        "| | records per second | ratio | range of runs | largest process, MiB |",
        "| --- " * 5 + "|",
    ]
    for case, row in rows.items():
        speeds = [run["per_second"] for run in row["runs"]]
        ratio = row["per_second"] / first["per_second"]
        lines.append(
            f"| {case} | {row['per_second']:,.0f} | {ratio:.2f} | {min(speeds):,.0f} to {max(speeds):,.0f} "
            f"| {row['largest_mib']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def report(results: dict) -> str:
    """All tables."""
    peak = results["peaks"]
    text = (
        f"Measured beside them, one thread: matrix product {peak['gflops']:.0f} GFlop/s in single precision, memory copied at "
        f"{peak['copy_gbs']:.1f} GB/s; a Dask task that does nothing takes {peak['task_ms']:.2f} ms; a million normals of "
        f"the engine {peak['noise_ms']:.0f} ms, a million noisy counts denoised {peak['view_ms']:.0f} ms.\n"
    )
    return "\n".join([text, *(table(group, results[group]) for group in GROUPS if group in results)])


def plot(results: dict, path: Path) -> None:
    """Records per second, a panel for each table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = [group for group in GROUPS if group in results]
    figure, panels = plt.subplots(-(-len(groups) // 3), 3, figsize=(13, 2.6 * -(-len(groups) // 3)), squeeze=False)
    for panel in panels.flat[len(groups) :]:
        panel.set_axis_off()
    for panel, group in zip(panels.flat, groups, strict=False):
        rows = results[group]
        panel.barh(list(rows), [row["per_second"] for row in rows.values()], color="tab:blue")
        panel.invert_yaxis()
        panel.set_title(group, fontsize=9)
        panel.set_xlabel("records per second", fontsize=8)
        panel.tick_params(labelsize=8)
        speeds = [row["per_second"] for row in rows.values()]
        if max(speeds) > 50 * min(speeds):
            panel.set_xscale("log")
        else:
            panel.locator_params(axis="x", nbins=4)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
