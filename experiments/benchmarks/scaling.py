"""How fits scale: threads, executors, sources, chunks, and the sizes n, K, V and d.

    python -m experiments.benchmarks.scaling            (make bench)

Every case runs in its own process with its number of threads; compilation and loading are outside the timed part.
Cases take turns, and medians are reported. Peak memory is sampled from the process and its children. For reference, the same
run measures a matrix product and the speed of copying memory.

``--quick``: tiny cases, once, in this process, which keeps its number of threads; without other processes, which take seconds
to start (``large_lda --quick`` starts a Dask cluster).
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
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from experiments.dask_cluster import local_cluster
from experiments.memory import largest_process
from experiments.options import folder_of, parser_of
from experiments.results import read_json, write_json, write_text

RATE, N_STEPS = 0.2, 5  # one pass
LARGER = 4  # times the documents, for the memory of shards


class Size(NamedTuple):
    """Sizes of all cases; a quick run uses one process."""

    documents: int
    words: int
    topics: int
    length: int
    per_shard: int
    rows: int
    features: int
    images: int
    matrix: int
    copied: int
    fitted: int
    counts: tuple[int, int]
    quick: bool


FULL = Size(40_000, 7_700, 50, 500, 5_000, 400_000, 100, 4_000, 3000, 2**25, 50_000, (100, 10_000), False)
QUICK = Size(400, 200, 4, 50, 50, 600, 10, 100, 200, 2**16, 300, (10, 100), True)


def groups(size: Size) -> dict[str, dict[str, dict]]:
    """Arguments of every case by name; each group becomes a table."""
    n, topics, words, d = size.documents, size.topics, size.words, size.features
    shards = {"run": "lda", "threads": 2, "source": "shards"}
    tables = {
        "Threads: topics of documents in memory": {
            "1 thread": {"run": "lda", "threads": 1},
            "2 threads": {"run": "lda", "threads": 2},
        },
        **{
            f"Threads: other families, {size.fitted:,} records of {width} numbers": {
                f"{family}, {threads} thread{'s' * (threads > 1)}": {
                    "run": "family",
                    "family": family,
                    "width": width,
                    "threads": threads,
                }
                for family in FAMILIES
                for threads in (1, 2)
            }
            for width in (16, 64)
        },
        "Executors: topics of documents in 8 shards": {
            "1 thread": shards | {"threads": 1},
            "2 threads": shards,
            '"processes", 2': shards | {"executor": "processes"},
            "Dask, 1 worker": shards | {"executor": "dask", "workers": 1},
            "Dask, 2 workers": shards | {"executor": "dask", "workers": 2},
            "Dask, 2 workers, its default allocation": shards
            | {"executor": "dask", "workers": 2, "default_allocation": True},
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
            str(chunk): {"run": "lda", "threads": 1, "chunk_size": chunk} for chunk in (128, 512, 2048, 8192)
        },
        "Number of documents": {f"{part:,}": {"run": "lda", "threads": 1, "n": part} for part in (n // 4, n // 2, n)},
        "Topics K": {
            str(k): {"run": "lda", "threads": 1, "n_topics": k} for k in (topics // 2, topics, 2 * topics, 4 * topics)
        },
        f"Words V ({words:,}: four times the documents)": {
            f"{v:,}": {"run": "lda", "threads": 1, "n_words": v} for v in (words // 4, words, 4 * words)
        },
        "Features d of a logistic regression": {
            str(k): {"run": "logistic", "threads": 1, "d": k, "n": size.rows * d // (4 * k)}
            for k in (d // 10, d, 10 * d)
        },
        "Hidden units K of a belief network, J = 784": {
            str(k): {"run": "network", "threads": 1, "n_hidden": k} for k in (topics // 2, topics, 2 * topics)
        },
    }
    if not size.quick:
        return tables
    return {group: {name: case for name, case in cases.items() if _is_here(case)} for group, cases in tables.items()}


def _is_here(case: dict) -> bool:
    """Whether a case needs no other process."""
    return case.get("executor") not in ("processes", "dask")


def documents(size: Size, n: int, n_words: int, seed: int) -> sp.csr_array:
    from vips.datasets import make_lda_corpus

    return make_lda_corpus(
        n, n_topics=size.topics, n_words=n_words, document_length=size.length, random_state=seed
    ).counts


def prepare(folder: Path, size: Size) -> None:
    """The corpora and tables of all cases, on disk."""
    for times in (1, LARGER):
        shards = folder / f"shards_{times}"
        shards.mkdir()
        for i in range(times * size.documents // size.per_shard):
            sp.save_npz(shards / f"{i:04d}.npz", documents(size, size.per_shard, size.words, i), compressed=False)
    for n_words in (size.words // 4, size.words, 4 * size.words):
        n = size.documents if n_words == size.words else size.documents // 4
        sp.save_npz(folder / f"documents_{n_words}.npz", documents(size, n, n_words, 0), compressed=False)
    rng = np.random.default_rng(0)
    X = (rng.uniform(-1.0, 1.0, (size.rows, size.features)) / np.sqrt(size.features)).astype(np.float32)
    y = (rng.random(size.rows) < 1.0 / (1.0 + np.exp(-8.0 * X[:, 0]))).astype(np.float64)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    import pyarrow
    import pyarrow.parquet

    columns = {f"x{j}": X[:, j] for j in range(size.features)} | {"y": y}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "table.parquet", row_group_size=16_384)


def run_lda(folder: Path, case: dict, size: Size) -> tuple[Callable[[], object], int]:
    from vips import LatentDirichletAllocation, PrivacyPlan
    from vips.data import CSRShards

    n_words, n = case.get("n_words", size.words), case.get("n")
    if case.get("source") == "shards":
        data, n = CSRShards(folder / f"shards_{case.get('times', 1)}"), size.documents * case.get("times", 1)
    else:
        data = sp.load_npz(folder / f"documents_{n_words}.npz")
        takes_all = n_words == size.words and "n_topics" not in case and "chunk_size" not in case
        n = n or data.shape[0] if takes_all else size.documents // 4
        data = data[:n]
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=RATE, n_steps=N_STEPS)
    model = LatentDirichletAllocation(
        case.get("n_topics", size.topics), vocabulary=n_words, privacy=plan, random_state=0
    )
    if "chunk_size" in case:
        model.chunk_size = case["chunk_size"]
    return lambda **more: model.fit(data, **more), int(n * RATE * N_STEPS)


def run_logistic(folder: Path, case: dict, size: Size) -> tuple[Callable[[], object], int]:
    from vips import BayesianLogisticRegression, PrivacyPlan
    from vips.data import NpySource, ParquetTable

    plan, arguments = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=N_STEPS), {}
    d, n = case.get("d", size.features), case.get("n", size.rows)
    if case.get("source") == "npy":
        arguments["X"] = NpySource(folder / "X.npy", folder / "y.npy")
    elif case.get("source") == "parquet":
        features = [f"x{j}" for j in range(size.features)]
        arguments["X"] = ParquetTable(folder / "table.parquet", features=features, target="y")
    elif d == size.features:
        arguments |= {"X": np.load(folder / "X.npy")[:n], "y": np.load(folder / "y.npy")[:n]}
    else:
        rng = np.random.default_rng(0)
        arguments |= {"X": rng.uniform(-1.0, 1.0, (n, d)).astype(np.float32) / np.float32(np.sqrt(d))}
        arguments["y"] = (rng.random(n) < 0.5).astype(np.float64)
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, random_state=0)
    return lambda **more: model.fit(**arguments, **more), n * N_STEPS


def run_network(folder: Path, case: dict, size: Size) -> tuple[Callable[[], object], int]:
    from vips import PrivacyPlan, SigmoidBeliefNetwork

    X = np.random.default_rng(0).random((size.images, 784)) < 0.2
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=N_STEPS)
    model = SigmoidBeliefNetwork(case["n_hidden"], privacy=plan, random_state=0, dtype=np.float32)
    return lambda **more: model.fit(X, **more), len(X) * N_STEPS


FAMILIES = (
    "regression",
    "counts",
    "classes",
    "mixture",
    "factors",
    "chain of vectors",
    "chain of symbols",
    "linear system",
)


def run_family(folder: Path, case: dict, size: Size) -> tuple[Callable[[], object], int]:
    """Records of so many numbers, or of half as many answers, in sequences of 50 where the model has some."""
    import vips

    n, width, rng = size.fitted, case["width"], np.random.default_rng(0)
    X = 0.3 * rng.normal(size=(n, width)) + rng.integers(0, 4, (n, 1))
    answers, y = rng.integers(0, 5, (n, width // 2)), (rng.random(n) < 0.4).astype(int)
    sequences = {"lengths": [50] * (n // 50)}
    plan = vips.PrivacyPlan(noise_multiplier=2.0, sampling_rate=1.0, n_steps=4 * N_STEPS)
    settings = {"privacy": plan, "random_state": 0}
    vectors = settings | {"max_norm": 4.0 * np.sqrt(width)}
    model, data = {
        "regression": (vips.BayesianLogisticRegression(classes=[0, 1], **vectors), {"X": X, "y": y}),
        "counts": (vips.BayesianNegativeBinomialRegression(max_count=20, **vectors), {"X": X, "y": 3 * y}),
        "classes": (vips.LatentClassAnalysis(8, categories=[5] * (width // 2), **settings), {"X": answers}),
        "mixture": (vips.BayesianGaussianMixture(8, **vectors), {"X": X}),
        "factors": (vips.FactorAnalysis(4, **vectors), {"X": X}),
        "chain of vectors": (vips.GaussianHMM(6, **vectors), {"X": X} | sequences),
        "chain of symbols": (vips.CategoricalHMM(6, n_symbols=5, **settings), {"X": answers[:, 0]} | sequences),
        "linear system": (vips.LinearDynamicalSystem(3, **vectors), {"X": X} | sequences),
    }[case["family"]]
    return lambda **more: model.fit(**data, **more), n * plan.n_steps


RUNS = {"lda": run_lda, "logistic": run_logistic, "network": run_network, "family": run_family}


def run_one(folder: Path, case: dict, size: Size) -> dict:
    """Run one case in this process: wall-clock seconds, number of summed records, and memory."""
    if case["run"] == "peak":
        return peaks(size) | coordinator(size) | ({} if size.quick else task_overhead())
    fit, n_records = RUNS[case["run"]](folder, case, size)
    with executor_of(case) as executor:
        fit(executor=executor)  # compiles, maps, starts workers
        with largest_process() as memory:
            start = time.perf_counter()
            fit(executor=executor)
            seconds = time.perf_counter() - start
    return {"seconds": seconds, "per_second": n_records / seconds} | memory


@contextmanager
def executor_of(case: dict):
    if case.get("executor") != "dask":
        yield case.get("executor")
        return
    allocation = case.get("default_allocation", False)
    with local_cluster(case["workers"], default_allocation=allocation, silence_logs=50) as (_, client):
        yield client


def peaks(size: Size) -> dict:
    """Speeds of one thread: single-precision matrix product, GFlop/s, and copying of memory, GB/s (read and written)."""
    n = size.matrix
    a, large = np.ones((n, n), np.float32), np.ones(size.copied)
    other = np.empty_like(large)

    return {
        "gflops": 2 * n**3 / shortest(lambda: a @ a) / 1e9,
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


def coordinator(size: Size) -> dict:
    """Milliseconds of one thread for 10⁶ numbers of a private step of topics: drawing noise, and denoising counts."""
    from randomgen import AESCounter

    from vips.core.mechanism.noise import gaussian_noise
    from vips.models._denoising import denoise_counts

    shape, std = size.counts, 30.0
    rng = np.random.Generator(AESCounter())
    noisy = rng.gamma(0.1, 200.0, shape) + gaussian_noise(shape, False, std, rng)
    return {
        "noise_ms": 1e3 * shortest(lambda: gaussian_noise(shape, False, std, rng)),
        "view_ms": 1e3 * shortest(lambda: denoise_counts(noisy, np.full(shape, std))),
    }


def task_overhead() -> dict:
    """Milliseconds of a Dask cluster with two workers for an empty task, and for a tree of empty tasks."""
    n_tasks = 2_000
    with executor_of({"executor": "dask", "workers": 2}) as client:
        client.submit(int).result()
        start = time.perf_counter()
        client.submit(len, client.map(int, range(n_tasks), pure=False), pure=False).result()
        return {"task_ms": 1e3 * (time.perf_counter() - start) / n_tasks}


def run_alone(folder: Path, case: dict) -> dict:
    """Run one case at full size, in its own process."""
    threads = str(case.get("threads", 1))
    variables = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(variables, threads)
    environment.pop("OPENBLAS_CORETYPE", None)
    command = [sys.executable, "-W", "ignore", "-m", "experiments.benchmarks.scaling", "--child", json.dumps(case)]
    output = subprocess.run(
        [*command, "--folder", str(folder)], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return json.loads(output.strip().splitlines()[-1])


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.scaling", __doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--groups", default="", help="run only tables with this in their name; keep the others")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(run_one(options.folder, json.loads(options.child), FULL)))
        return
    size, written = FULL, folder_of("benchmarks", options)
    if options.quick:
        size, options.repeats = QUICK, 1
        print("Processes and Dask workers are left out of a quick run.")
    path = None if written is None else written / "scaling.json"
    results = read_json(path) if path is not None and path.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.groups != "families":  # which need no files
            prepare(folder, size)

        def measure(case: dict) -> dict:
            return run_one(folder, case, size) if size.quick else run_alone(folder, case)

        results["peaks"] = measure({"run": "peak"})
        for group, cases in groups(size).items():
            if options.groups not in group:
                continue
            runs: dict[str, list[dict]] = {case: [] for case in cases}
            for _ in range(options.repeats):
                for name, case in cases.items():
                    runs[name].append(measure(case))
            results[group] = {
                case: {key: statistics.median(run[key] for run in repeated) for key in repeated[0]} | {"runs": repeated}
                for case, repeated in runs.items()
            }
            print(table(group, results[group]), flush=True)
            if path is not None:
                write_json(path, results)
    if path is not None:
        write_text(path.with_suffix(".md"), report(results))
        plot(results, path.with_suffix(".png"))


def table(group: str, rows: dict[str, dict]) -> str:
    """Ratios are to the first line, or, of two threads, to one of the same."""
    first = next(iter(rows.values()))
    lines = [
        f"**{group}**\n",
        "| | records per second | ratio | range of runs | largest process, MiB |",
        "| --- " * 5 + "|",
    ]
    for case, row in rows.items():
        speeds = [run["per_second"] for run in row["runs"]]
        ratio = row["per_second"] / rows.get(case.replace(", 2 threads", ", 1 thread"), first)["per_second"]
        lines.append(
            f"| {case} | {row['per_second']:,.0f} | {ratio:.2f} | {min(speeds):,.0f} to {max(speeds):,.0f} "
            f"| {row['largest_mib']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def report(results: dict) -> str:
    """All tables."""
    peak = results["peaks"]
    task = f"a Dask task that does nothing takes {peak['task_ms']:.2f} ms; " if "task_ms" in peak else ""
    text = (
        f"Measured beside them, one thread: matrix product {peak['gflops']:.0f} GFlop/s in single precision, memory copied at "
        f"{peak['copy_gbs']:.1f} GB/s; {task}a million normals of the engine {peak['noise_ms']:.0f} ms, "
        f"a million noisy counts denoised {peak['view_ms']:.0f} ms.\n"
    )
    return "\n".join([text, *(table(group, results[group]) for group in measured(results))])


def measured(results: dict) -> list[str]:
    """Names of the tables, in the order in which they were measured first."""
    return [group for group in results if group != "peaks"]


def plot(results: dict, path: Path) -> None:
    """Records per second, a panel for each table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = measured(results)
    figure, panels = plt.subplots(-(-len(shown) // 3), 3, figsize=(13, 2.6 * -(-len(shown) // 3)), squeeze=False)
    for panel in panels.flat[len(shown) :]:
        panel.set_axis_off()
    for panel, group in zip(panels.flat, shown, strict=False):
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
