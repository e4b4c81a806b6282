"""``python -m experiments million_sequences``: seconds and memory of private fits to files, against the number of sequences.

Generated pathways of 5 to 60 events of 40 kinds, from a chain of 8 states, are written as int64 codes into shards of 16,384,
100,000 in memory at a time. ``CategoricalHMM`` with 8 states takes private steps with all of them: from the shards, serially
and on two processes, and from memory. Each fit runs in its own process, whose largest resident memory is sampled, with that of
its children. The fit to the fewest sequences tells what Python, NumPy and the compiler take.

``--quick``: few sequences, in this process.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from experiments.memory import run_alone, run_here
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.sequences.symbols import N_EVENTS, N_STATES, drawn, pathways
from vips import CategoricalHMM, PrivacyPlan
from vips.data import DataSource, Sequences, SequenceSource, write_sequences

SIZES, QUICK_SIZES, N_STEPS, PER_PART = (1_000, 100_000, 1_000_000), (500, 1_000), 6, 100_000
HOW = {"shards": None, "shards, two processes": "processes", "memory": None}


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments million_sequences", __doc__)
    parser.add_argument("--fit", choices=tuple(HOW), help=argparse.SUPPRESS)
    parser.add_argument("--shards", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs="+")
    options = parser.parse_args(arguments)
    if options.fit:
        print(json.dumps(fit(options.fit, options.shards)))
        return
    folder = folder_of("million_sequences", options)
    rows = []
    for size in options.sizes or (QUICK_SIZES if options.quick else SIZES):
        with tempfile.TemporaryDirectory(prefix="vips-sequences-") as temporary:
            shards = Path(temporary) / "shards"
            start = time.perf_counter()
            write(shards, size)
            written = time.perf_counter() - start
            megabytes = sum(file.stat().st_size for file in shards.iterdir()) / 2**20
            for how in HOW:
                if options.quick and "processes" in how:
                    continue
                alone = ["million_sequences", "--fit", how, "--shards", str(shards)]
                measured = run_here(fit, how, shards) if options.quick else run_alone(alone)
                rows.append({"sequences": size, "how": how, "files": megabytes, "writing": written} | measured)
                print(rows[-1], flush=True)
    print(text := table(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)


def write(folder: Path, n: int) -> None:
    """Sequences in parts, of which one is in memory."""
    _, moves, events = pathways(1)
    rng = np.random.default_rng(0)
    parts = (drawn(min(PER_PART, n - first), moves, events, rng) for first in range(0, n, PER_PART))
    write_sequences((part[i : i + 16_384] for part in parts for i in range(0, len(part), 16_384)), folder)


def fit(how: str, shards: Path) -> dict:
    """Seconds of a step in the second of two fits: the first one compiles, and starts processes."""
    data: DataSource | Sequences = SequenceSource.from_shards(shards)
    if how == "memory":
        data = Sequences.joined(list(data.chunks(PER_PART)))
    for n_steps in (1, N_STEPS):
        plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-7, sampling="full", n_steps=n_steps)
        model = CategoricalHMM(N_STATES, n_symbols=N_EVENTS, privacy=plan, random_state=0)
        start = time.perf_counter()
        model.fit(data, executor=HOW[how])
        seconds = time.perf_counter() - start
    return {"seconds": seconds / N_STEPS}


def table(rows: list[dict]) -> str:
    lines = [
        "| sequences | files, MiB | fit | seconds a step | largest resident memory of a process, MiB |",
        "| --- " * 5 + "|",
    ]
    lines += [
        f"| {row['sequences']:,} | {row['files']:,.1f} | {row['how']} | {row['seconds']:.2f} | {row['MiB']:,.0f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"
