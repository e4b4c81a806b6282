"""Gaussian hidden Markov models against hmmlearn: iterations on the same sequences, with one thread, in one run.

    python -m experiments.benchmarks.sequences

2,000 sequences of 100 steps, 8 states, 5 columns, full and diagonal covariances. Both libraries run variational Bayes, a fixed
number of iterations; hmmlearn also EM. Each fit has its own process; the processes take turns, ``--repeats`` times, and the
median is reported. Generating and compilation are outside the timed part.

``--quick``: few sequences and iterations, once, in this process.
"""

from __future__ import annotations

import argparse
import json
import statistics

import numpy as np

from experiments.benchmarks.latent_classes import spent, times
from experiments.benchmarks.logistic import child
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from vips.data import Sequences

N_STATES, N_COLUMNS, N_SEQUENCES, N_STEPS, N_ITERATIONS, TARGET = 8, 5, 2_000, 100, 20, 25.0


def generated(n: int) -> Sequences:
    """Sequences of a sticky chain, with states that overlap a little."""
    rng = np.random.default_rng(0)
    means, moves = 2.0 * rng.standard_normal((N_STATES, N_COLUMNS)), np.cumsum(0.9 * np.eye(N_STATES) + 0.0125, axis=1)
    states = np.empty((n, N_STEPS), np.int64)
    states[:, 0] = rng.integers(0, N_STATES, n)
    for t in range(1, N_STEPS):
        states[:, t] = (rng.random((n, 1)) >= moves[states[:, t - 1], :-1]).sum(axis=1)
    values = means[states.ravel()] + rng.standard_normal((n * N_STEPS, N_COLUMNS))
    return Sequences(values, np.arange(n + 1) * N_STEPS)


def run_vips(data: Sequences, kind: str, n_iterations: int, noise_multiplier: float = 0.0) -> dict:
    from vips import GaussianHMM, PrivacyPlan

    def fit(records, n_steps):
        clip = {"clip_norm": np.inf} if noise_multiplier == 0.0 else {}
        plan = PrivacyPlan(noise_multiplier=noise_multiplier, sampling_rate=1.0, n_steps=n_steps, **clip)
        return GaussianHMM(
            N_STATES, covariance_type=kind, max_norm=12.0 if noise_multiplier else None, privacy=plan
        ).fit(records)

    fit(data[:20], 30)  # compiles
    start = times()
    model = fit(data, n_iterations + 10)
    return spent(start, n_iterations + 10) | {"log likelihood": model.score_samples(data).sum() / len(data.values)}


def run_private(data: Sequences, kind: str, n_iterations: int) -> dict:
    return run_vips(data, kind, n_iterations, noise_multiplier=10.0)


def run_hmmlearn(data: Sequences, kind: str, n_iterations: int, em: bool = False, how: str = "log") -> dict:
    from hmmlearn.hmm import GaussianHMM
    from hmmlearn.vhmm import VariationalGaussianHMM

    def model(n_iter):
        reference = (GaussianHMM if em else VariationalGaussianHMM)(
            N_STATES, kind, random_state=0, n_iter=n_iter, tol=-np.inf, implementation=how
        )
        return reference

    # k-means, with which it starts, is in both parts, hence in neither
    start = times()
    model(1).fit(data.values, data.lengths)
    with_start = [now - before for now, before in zip(times(), start, strict=True)]
    start = times()
    fitted = model(n_iterations + 1).fit(data.values, data.lengths)
    begun = tuple(before + spent_before for before, spent_before in zip(start, with_start, strict=True))
    return spent(begun, n_iterations) | {"log likelihood": fitted.score(data.values, data.lengths) / len(data.values)}


def run_em(data: Sequences, kind: str, n_iterations: int) -> dict:
    return run_hmmlearn(data, kind, n_iterations, em=True)


def run_scaled(data: Sequences, kind: str, n_iterations: int) -> dict:
    """hmmlearn's faster recursion, which is not its default."""
    return run_hmmlearn(data, kind, n_iterations, how="scaling")


RUNS = {
    "vips": run_vips,
    "vips, private": run_private,
    "hmmlearn": run_hmmlearn,
    "hmmlearn, scaling": run_scaled,
    "hmmlearn, EM": run_em,
}


def run_alone(name: str, kind: str) -> dict:
    """One fit, in its own process with one thread."""
    return child("sequences", name, "--kind", kind)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.sequences", __doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--kind", default="full", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(RUNS[options.child](generated(N_SEQUENCES), options.kind, N_ITERATIONS)))
        return
    written, rows = folder_of("benchmarks", options), {}
    for _ in range(1 if options.quick else options.repeats):
        for kind in ("full", "diag"):
            for name, run in RUNS.items():
                measured = run(generated(20), kind, 2) if options.quick else run_alone(name, kind)
                rows.setdefault((name, kind), []).append(measured)
                print(kind, name, measured, flush=True)
    median = {
        key: {name: statistics.median(run[name] for run in runs) for name in runs[0]} for key, runs in rows.items()
    }
    print(text := report(median))
    if written is not None:
        write_text(written / "sequences.md", text)
        write_json(written / "sequences.json", {" ".join(key): runs for key, runs in rows.items()})


def report(median: dict[tuple[str, str], dict]) -> str:
    """The numbers in a table."""
    lines = [
        f"{N_SEQUENCES:,} sequences of {N_STEPS} steps, {N_STATES} states, {N_COLUMNS} columns, one thread; medians",
        "",
        "| covariances | | seconds per iteration | CPU seconds | vips is faster by | log likelihood per step |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (name, kind), row in median.items():
        ratio = row["cpu_s"] / median["vips", kind]["cpu_s"]
        faster = f"{ratio:.1f}" if name.startswith("hmmlearn") else ""
        lines.append(
            f"| {kind} | {name} | {row['wall_s']:.4f} | {row['cpu_s']:.4f} | {faster} | {row['log likelihood']:.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
