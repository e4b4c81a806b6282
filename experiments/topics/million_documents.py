"""``python -m experiments large_lda``: one million documents of 500 words in shards on disk, K = 100, V = 10,000.

Fitted twice with the same (reproducible) noise: serially, and on two Dask workers, one of which is killed during a step. Each
fit runs in its own process; resident memory is sampled from all of its processes. The results must be the same.

``--quick``: 2,000 small documents, both fits from this process, on one worker that is not killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.dask_cluster import local_cluster
from experiments.memory import largest_process
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.topics.corpus import held_out, write_shards

EPSILON, DELTA = 1.0, 1e-7


class Size(NamedTuple):
    """Sizes of corpus, model and cluster; ``kill_after`` is an argument of ``losing_a_worker``."""

    documents: int
    topics: int
    words: int
    length: int
    per_shard: int
    plan: dict
    workers: int
    kill_after: tuple[int, float] | None


FULL = Size(1_000_000, 100, 10_000, 500, 10_000, {"sampling_rate": 0.1, "n_steps": 10}, 2, (5, 3.0))
QUICK = Size(2_000, 5, 300, 50, 500, {"sampling_rate": 1.0, "n_steps": 5}, 1, None)


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments large_lda", __doc__)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--folder", type=Path, help="folder of the shards; 3.5 GB for a million documents")
    parser.add_argument("--fit", choices=("serial", "dask"), help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else FULL
    size = size._replace(documents=options.documents or size.documents)
    if options.fit:
        fit(options.fit, size, options.folder, options.to)
        return
    results = folder_of("large_lda", options)
    with tempfile.TemporaryDirectory() as temporary:
        kept = Path(tempfile.gettempdir()) / f"vips-large-lda-{size.documents}"
        folder = options.folder or (Path(temporary) / "shards" if options.quick else kept)
        start = time.perf_counter()
        write_shards(folder, size.documents, size.per_shard, size.topics, size.words, size.length)
        n_bytes = sum(file.stat().st_size for file in folder.glob("*.npz"))
        print(
            f"{size.documents:,} documents, {n_bytes / 2**30:.2f} GiB on disk, {time.perf_counter() - start:.0f} s",
            flush=True,
        )
        run = run_here if options.quick else run_alone
        by_fit = {}
        for how in ("serial", "dask"):
            by_fit[how] = run(how, size, folder, Path(temporary) / f"{how}.npz")
            print(how, {key: value for key, value in by_fit[how].items() if key != "concentration"}, flush=True)
    report(size, n_bytes, by_fit, results)


def run_alone(how: str, size: Size, folder: Path, out: Path) -> dict:
    """Run a fit in its own process; also the largest resident memory among that process and its children."""
    command = [sys.executable, "-m", "experiments", "large_lda", "--fit", how, "--documents", str(size.documents)]
    command += ["--folder", str(folder), "--to", str(out)]
    start = time.perf_counter()
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    with largest_process(process.pid) as memory:
        process.wait()
    if process.returncode:
        raise RuntimeError(f"The {how} fit ended with status {process.returncode}.")
    return _read(out) | {"total_s": time.perf_counter() - start, "largest_process_gib": memory["largest_mib"] / 1024}


def run_here(how: str, size: Size, folder: Path, out: Path) -> dict:
    """Run a fit in this process; a quick run has no time to start another."""
    start = time.perf_counter()
    with largest_process() as memory:
        fit(how, size, folder, out)
    return _read(out) | {"total_s": time.perf_counter() - start, "largest_process_gib": memory["largest_mib"] / 1024}


def _read(out: Path) -> dict:
    with np.load(out) as saved:
        results = {name: saved[name] for name in saved.files}
    return {name: value if value.ndim else value.item() for name, value in results.items()}


def fit(how: str, size: Size, folder: Path, out: Path) -> None:
    """Run one fit; write the topics, the time, and the perplexity of held-out documents."""
    from vips import LatentDirichletAllocation, PrivacyPlan
    from vips.data import CSRShards

    plan = PrivacyPlan.from_epsilon(epsilon=EPSILON, delta=DELTA, reproducible_noise=True, **size.plan)
    model = LatentDirichletAllocation(size.topics, vocabulary=size.words, privacy=plan, random_state=0)
    source, killed = CSRShards(folder), ()
    start = time.perf_counter()
    if how == "serial":
        model.fit(source)
    else:
        with local_cluster(size.workers, memory_limit="2GiB") as (cluster, client):
            checkpoint = out.with_suffix(".checkpoint")
            with losing_a_worker(cluster, checkpoint, size.kill_after) as killed:
                model.fit(source, executor=client, checkpoint=checkpoint)
    seconds = time.perf_counter() - start
    test = held_out(1000, size.topics, size.words, size.length)
    np.savez(
        out, concentration=model.last_posterior_.concentration, fit_s=seconds, perplexity=model.perplexity(test),
        killed_workers=len(killed),
    )  # fmt: skip


@contextmanager
def losing_a_worker(cluster, checkpoint: Path, after: tuple[int, float] | None) -> Iterator[list[int]]:
    """While active, kill a worker during a step, unless the block ends before. Yields the list of killed processes.

    Parameters
    ----------
    cluster : LocalCluster
    checkpoint : Path
        Written anew in every step.
    after : (int, float) or None
        Number of steps, and seconds of the next step, before the kill; None kills no worker.
    """
    killed: list[int] = []
    if after is None:
        yield killed
        return
    finished = threading.Event()
    killer = threading.Thread(target=_kill, args=(cluster, checkpoint, *after, finished, killed), daemon=True)
    killer.start()
    try:
        yield killed
    finally:
        finished.set()
        killer.join()


def _kill(
    cluster, checkpoint: Path, n_steps: int, seconds: float, finished: threading.Event, killed: list[int]
) -> None:
    seen: set[int] = set()
    while len(seen) < n_steps:
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_mtime_ns)
        if finished.wait(0.01):
            return
    if finished.wait(seconds):
        return
    process = next(iter(cluster.workers.values())).process.process.pid
    os.kill(process, signal.SIGKILL)
    killed.append(process)


def report(size: Size, n_bytes: int, by_fit: dict[str, dict], folder: Path | None) -> None:
    """A table, and whether both fits are the same."""
    serial, dask = (by_fit[how].pop("concentration") for how in ("serial", "dask"))
    difference = float(np.max(np.abs(serial - dask) / serial))
    lines = [
        f"{size.documents:,} documents of {size.length} words, K = {size.topics}, V = {size.words:,}; "
        f"{n_bytes / 2**30:.1f} GiB in shards of {size.per_shard:,}; ε = {EPSILON:g}, δ = {DELTA:g}, "
        f"q = {size.plan['sampling_rate']:g}, {size.plan['n_steps']} steps. Largest relative difference of a topic-word "
        f"concentration between both fits: {difference:.3g}.\n",
        "| fit | seconds | workers killed | largest resident memory of a process, GiB | held-out perplexity |",
        "| --- | --- | --- | --- | --- |",
    ]
    for how, row in by_fit.items():
        lines.append(
            f"| {how} | {row['fit_s']:.0f} | {row['killed_workers']} | {row['largest_process_gib']:.2f} "
            f"| {row['perplexity']:.1f} |"
        )
    print("\n".join(lines))
    if folder is None:
        return
    results = {"documents": size.documents, "bytes": n_bytes, "difference": difference, **by_fit}
    write_json(folder / "results.json", results)
    write_text(folder / "results.md", "\n".join(lines) + "\n")
