"""``python -m experiments large_lda``: one million documents of 500 words in shards on disk, K = 100, V = 10,000.

Fitted twice with the same (reproducible) noise: serially, and on two Dask workers one of which is killed in the middle. Each
fit runs in a process of its own; resident memory is sampled from all processes of it. The results must be the same.
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
from pathlib import Path

import numpy as np

from experiments.dask_cluster import local_cluster
from experiments.large_lda.corpus import held_out, write_shards
from experiments.memory import largest_process
from experiments.results import results_folder, write_json, write_text

N_TOPICS, N_WORDS, LENGTH, PER_SHARD = 100, 10_000, 500, 10_000
PLAN = {"sampling_rate": 0.1, "n_steps": 10}
EPSILON, DELTA = 1.0, 1e-7
KILL_AFTER = 3.0  # seconds into a step


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments large_lda", description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where shards are kept; 3.5 GB for a million documents")
    parser.add_argument("--fit", choices=("serial", "dask"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.gettempdir()) / f"vips-large-lda-{options.documents}"
    if options.fit:
        fit(options.fit, folder, options.out)
        return
    start = time.perf_counter()
    write_shards(folder, options.documents, PER_SHARD, N_TOPICS, N_WORDS, LENGTH)
    size = sum(file.stat().st_size for file in folder.glob("*.npz"))
    print(
        f"{options.documents:,} documents, {size / 2**30:.2f} GiB on disk, {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    found = {}
    with tempfile.TemporaryDirectory() as out:
        for how in ("serial", "dask"):
            found[how] = run_one(how, folder, Path(out) / f"{how}.npz")
            print(how, {key: value for key, value in found[how].items() if key != "concentration"}, flush=True)
    write_results(options.documents, size, found)


def run_one(how: str, folder: Path, out: Path) -> dict:
    """A fit in a process of its own, and the largest resident memory of that process and of each of its children."""
    command = [
        sys.executable,
        "-m",
        "experiments",
        "large_lda",
        "--fit",
        how,
        "--folder",
        str(folder),
        "--out",
        str(out),
    ]
    start = time.perf_counter()
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    with largest_process(process.pid) as memory:
        process.wait()
    if process.returncode:
        raise RuntimeError(f"The {how} fit ended with status {process.returncode}.")
    with np.load(out) as saved:
        results = {name: saved[name] for name in saved.files}
    return {name: value if value.ndim else value.item() for name, value in results.items()} | {
        "total_s": time.perf_counter() - start,
        "largest_process_gib": memory["largest_mib"] / 1024,
    }


def fit(how: str, folder: Path, out: Path) -> None:
    """One fit; writes the topics, the time, and how well held-out documents are predicted."""
    from vips import LatentDirichletAllocation, PrivacyPlan
    from vips.data import CSRShards

    plan = PrivacyPlan.from_epsilon(epsilon=EPSILON, delta=DELTA, reproducible_noise=True, **PLAN)
    model = LatentDirichletAllocation(N_TOPICS, vocabulary=N_WORDS, privacy=plan, random_state=0)
    source, killed = CSRShards(folder), 0
    start = time.perf_counter()
    if how == "serial":
        model.fit(source)
    else:
        with local_cluster(2, memory_limit="2GiB") as (cluster, client):
            checkpoint = out.with_suffix(".checkpoint")
            killer = threading.Thread(target=_kill_one, args=(cluster, checkpoint), daemon=True)
            killer.start()
            model.fit(source, executor=client, checkpoint=checkpoint)
            killer.join()
            killed = 1
    seconds = time.perf_counter() - start
    test = held_out(1000, N_TOPICS, N_WORDS, LENGTH)
    perplexity = model.perplexity(test)
    np.savez(
        out, concentration=model.posterior_.concentration, fit_s=seconds, perplexity=perplexity, killed_workers=killed
    )


def _kill_one(cluster, checkpoint: Path) -> None:
    """After half of the steps, in the middle of the next one: every step writes the checkpoint anew."""
    seen: set[int] = set()
    while len(seen) < PLAN["n_steps"] // 2:
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_mtime_ns)
        time.sleep(0.01)
    time.sleep(KILL_AFTER)
    worker = next(iter(cluster.workers.values()))
    os.kill(worker.process.process.pid, signal.SIGKILL)


def write_results(n_documents: int, size: int, found: dict[str, dict]) -> None:
    """A table, and whether both fits are the same."""
    serial, dask = (found[how].pop("concentration") for how in ("serial", "dask"))
    difference = float(np.max(np.abs(serial - dask) / serial))
    lines = [
        f"{n_documents:,} documents of {LENGTH} words, K = {N_TOPICS}, V = {N_WORDS:,}; {size / 2**30:.1f} GiB in shards of "
        f"{PER_SHARD:,}; ε = {EPSILON:g}, δ = {DELTA:g}, q = {PLAN['sampling_rate']:g}, {PLAN['n_steps']} steps. Largest "
        f"relative difference of a topic-word concentration between both fits: {difference:.3g}.\n",
        "| fit | seconds | workers killed | largest resident memory of a process, GiB | held-out perplexity |",
        "| --- | --- | --- | --- | --- |",
    ]
    for how, row in found.items():
        lines.append(
            f"| {how} | {row['fit_s']:.0f} | {row['killed_workers']} | {row['largest_process_gib']:.2f} "
            f"| {row['perplexity']:.1f} |"
        )
    folder = results_folder("large_lda")
    write_json(folder / "results.json", {"documents": n_documents, "bytes": size, "difference": difference, **found})
    write_text(folder / "results.md", "\n".join(lines) + "\n")
    print("\n".join(lines))
