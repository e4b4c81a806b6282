"""Latent classes against StepMix: EM iterations on the same table, with one thread, in one run.

    python -m experiments.benchmarks.latent_classes

The training part of ``latent_classes`` (Adult, 39,000 people, 11 columns, 112 categories), 15 classes, no missing answers. Both
libraries do the same: maximum likelihood by EM, a fixed number of iterations. Each starts at random tables of its own, so their
likelihoods differ. Each fit has its own process; the processes take turns, ``--repeats`` times, and the median is
reported. Reading, encoding and compilation are outside the timed part. StepMix is left out if it is not installed.

``--quick``: few people and iterations, once, in this process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from experiments.benchmarks.logistic import child
from experiments.mixtures.latent_classes import N_CLASSES, divided, people
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips.models.components.declarations import codes_of

N_ITERATIONS, N_QUICK, TARGET = 60, 5, 10.0


def run_vips(codes: np.ndarray, levels: list[int], n_iterations: int, seed: int, noise_multiplier: float = 0.0) -> dict:
    from vips import LatentClassAnalysis, PrivacyPlan

    def fit(rows, n_steps):
        clip = {} if noise_multiplier else {"clip_norm": np.inf}
        plan = PrivacyPlan(noise_multiplier=noise_multiplier, sampling_rate=1.0, n_steps=n_steps, **clip)
        model = LatentClassAnalysis(N_CLASSES, categories=levels, inference="em", privacy=plan, random_state=seed)
        return model.fit(rows)

    fit(codes[:100], 3)  # compiles
    start = times()
    model = fit(codes, n_iterations + 1)  # the first step counts answers
    return spent(start, n_iterations) | {"log likelihood": model.score(codes)}


def run_private(codes: np.ndarray, levels: list[int], n_iterations: int, seed: int) -> dict:
    return run_vips(codes, levels, n_iterations, seed, noise_multiplier=20.0)


def run_stepmix(codes: np.ndarray, levels: list[int], n_iterations: int, seed: int) -> dict:
    from stepmix.stepmix import StepMix

    def fit(rows, n_iter):
        settings = {"measurement": "categorical", "max_iter": n_iter, "abs_tol": 0.0, "rel_tol": 0.0, "progress_bar": 0}
        return StepMix(n_components=N_CLASSES, random_state=seed, **settings).fit(rows)

    fit(codes[:500], 3)
    start = times()
    model = fit(codes, n_iterations)
    return spent(start, model.n_iter_) | {"log likelihood": float(model.score(codes))}


RUNS = {"vips": run_vips, "vips, private": run_private, "StepMix": run_stepmix}


def times() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def spent(start: tuple[float, float], n_iterations: int) -> dict:
    wall, cpu = (now - before for now, before in zip(times(), start, strict=True))
    return {"iterations": n_iterations, "wall_s": wall / n_iterations, "cpu_s": cpu / n_iterations}


def run_one(name: str, file: Path, n_iterations: int, seed: int) -> dict:
    """One fit, in this process."""
    data = np.load(file)
    return RUNS[name](data["codes"], data["levels"].tolist(), n_iterations, seed)


def run_alone(name: str, file: Path, n_iterations: int, seed: int) -> dict:
    """One fit, in its own process with one thread."""
    return child("latent_classes", name, "--file", str(file), "--seed", str(seed))


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.latent_classes", __doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(run_one(options.child, options.file, N_ITERATIONS, options.seed)))
        return
    written = folder_of("benchmarks", options)
    table, categories = people(options.quick)
    train, _ = divided(table, options.quick)
    listed = [values if isinstance(values, list) else list(range(values)) for values in categories.values()]
    codes = np.column_stack([codes_of(train[name], values) for name, values in zip(categories, listed, strict=True)])
    names = [name for name in RUNS if name != "StepMix" or find_spec("stepmix")]
    if "StepMix" not in names:
        print("StepMix is left out: it is not installed (pip install 'vips[bench]').")
    rows: dict[str, list] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "adult.npz"
        np.savez(file, codes=codes, levels=[len(values) for values in listed])
        run, n, repeats = (run_one, N_QUICK, 1) if options.quick else (run_alone, N_ITERATIONS, options.repeats)
        for seed in range(repeats):
            for name in names:
                rows[name].append(run(name, file, n, seed))
                print(name, rows[name][-1], flush=True)
    median = {
        name: {key: statistics.median(row[key] for row in runs) for key in runs[0]} for name, runs in rows.items()
    }
    print(text := report(median, codes.shape, sum(map(len, listed))))
    if written is not None:
        write_text(written / "latent_classes.md", text)
        write_json(written / "latent_classes.json", rows)


def report(median: dict[str, dict], shape: tuple[int, int], n_levels: int) -> str:
    """The numbers in a table."""
    ours = median["vips"]
    lines = [
        f"{shape[0]:,} records, {shape[1]} columns, {n_levels} categories, {N_CLASSES} classes, one thread; medians",
        "",
        "| | seconds per iteration | CPU seconds | iterations per second | vips is faster by | log likelihood |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in median.items():
        times_faster = f"{row['cpu_s'] / ours['cpu_s']:.1f}" if name == "StepMix" else ""
        lines.append(
            f"| {name} | {row['wall_s']:.4f} | {row['cpu_s']:.4f} | {1.0 / row['wall_s']:.1f} | {times_faster} "
            f"| {row['log likelihood']:.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
