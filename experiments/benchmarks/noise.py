"""The cost of exact noise: the rounded Gaussian against normals in floating point, in one run.

    python -m experiments.benchmarks.noise

A million coordinates at a time, one thread. The samplers take turns; compilation is outside the timed part, and the
median of ``--repeats`` rounds is reported. Where the Wikipedia counts are found (data/README.md), the steps of a topic
model of 50 topics are timed as well. Last come CPU seconds of fits of five models to data drawn at random, ten steps at a rate
of 0.2: without noise, with normals, and on the lattice. ``--quick``: 20,000 coordinates, a small topic model, few records.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import numpy as np
from randomgen import AESCounter

from experiments.options import folder_of, parser_of
from experiments.results import write_text
from experiments.stand_ins import wikipedia
from vips import (
    BayesianGaussianMixture,
    BayesianLogisticRegression,
    GaussianHMM,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    PrivacyPlan,
)
from vips.core.engine import clipped_sum
from vips.core.exact.threads import at_most
from vips.core.mechanism.rounded_gaussian import rounded_gaussian
from vips.core.phases import phases_of
from vips.data import InMemoryData
from vips.datasets import make_lda_corpus

NOISE_STEPS = 2**20
LARGEST_RATIO = 40.0
BASE, HARDENED = "NumPy, default_rng().normal", "rounded_gaussian(AESCounter)"


def samplers(size: int) -> dict[str, Callable[[], np.ndarray]]:
    plain, from_aes = np.random.default_rng(), np.random.Generator(AESCounter())
    bits = AESCounter()
    return {
        BASE: lambda: plain.normal(size=size),
        "Generator(AESCounter).normal": lambda: from_aes.normal(size=size),
        HARDENED: lambda: rounded_gaussian(size, NOISE_STEPS, bits),
    }


def measure(size: int, repeats: int) -> dict[str, float]:
    """Nanoseconds per coordinate."""
    contenders = samplers(size)
    runs: dict[str, list[float]] = {name: [] for name in contenders}
    for draw in contenders.values():
        draw()  # compiles
    for _ in range(repeats):
        for name, draw in contenders.items():
            start = time.perf_counter()
            draw()
            runs[name].append((time.perf_counter() - start) / size * 1e9)
    return {name: statistics.median(times) for name, times in runs.items()}


def topic_model_steps(repeats: int, quick: bool) -> dict[str, tuple[float, float, float]]:
    """Seconds of the clipped sum, the noise and the view in one step, by kind of noise; empty without the counts."""
    n_documents, n_topics = (500, 5) if quick else (118_000, 50)
    try:
        counts = wikipedia(n_documents, quick).counts
    except FileNotFoundError:
        return {}
    by_kind = {}
    for kind in ("gaussian", "discrete"):
        plan = PrivacyPlan(noise_multiplier=1.24, sampling_rate=0.05, n_steps=repeats + 1, clip_norm=7.0, noise=kind)
        model = LatentDirichletAllocation(n_topics, vocabulary=counts.shape[1], privacy=plan)
        *_, phase = phases_of(model, plan.n_steps)
        blocks, data, randomness = phase.blocks, InMemoryData(counts), plan.randomness(None)
        posterior = model.to_posterior(model.initial(randomness.initial), {"topic_word": 0.0}, None)
        times = []
        for t in range(1, repeats + 2):
            marks = [time.perf_counter()]
            total = clipped_sum(model, phase, data, posterior, plan, randomness, t)
            marks.append(time.perf_counter())
            noisy = plan.add_noise(total, blocks, randomness, t)
            marks.append(time.perf_counter())
            average = {"topic_word": noisy["topic_word"] / plan.sampling_rate}
            posterior = model.to_posterior(average, {"topic_word": plan.noise_std() / plan.sampling_rate}, posterior)
            marks.append(time.perf_counter())
            times.append(np.diff(marks))
        by_kind[kind] = tuple(np.median(times[1:], axis=0).tolist())  # without the first, which compiles
    return by_kind


def fits(quick: bool, repeats: int) -> dict[str, dict[str, float]]:
    """CPU seconds of fits, by model and kind of noise."""
    rng, n = np.random.default_rng(0), 2_000 if quick else 100_000
    X = rng.standard_normal((n, 20))
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(int)
    counts = make_lda_corpus(n // 5, n_topics=20, n_words=2_000, document_length=100, random_state=0).counts
    models = {
        "topics": (LatentDirichletAllocation(20, vocabulary=2_000), counts),
        "logistic regression": (BayesianLogisticRegression(classes=[0, 1], max_norm=5.0), X, y),
        "Gaussian mixture": (BayesianGaussianMixture(5, max_norm=5.0), X),
        "latent classes": (LatentClassAnalysis(4, categories=[5] * 8), rng.integers(0, 5, (n, 8))),
        "chain of vectors": (
            GaussianHMM(4, n_features=3, max_norm=5.0, max_length=50),
            list(rng.standard_normal((n // 25, 50, 3))),
        ),
    }
    schedule = {"sampling_rate": 0.2, "n_steps": 10}
    plans = {
        "none": PrivacyPlan.non_private(**schedule),
        "gaussian": PrivacyPlan(noise_multiplier=2.0, **schedule),
        "discrete": PrivacyPlan(noise_multiplier=2.0, noise="discrete", **schedule),
    }
    seconds = {name: {kind: [] for kind in plans} for name in models}
    for _ in range(repeats + 1):
        for (name, (model, *data)), (kind, plan) in itertools.product(models.items(), plans.items()):
            start = time.process_time()
            model.set_params(privacy=plan).fit(*data)
            seconds[name][kind].append(time.process_time() - start)
    return {
        name: {kind: statistics.median(times[1:]) for kind, times in kinds.items()}  # the first fit compiles
        for name, kinds in seconds.items()
    }


def report(nanoseconds: dict[str, float], size: int) -> str:
    """The table."""
    lines = [f"{size} coordinates, σ = {NOISE_STEPS} steps, one thread; medians"]
    for name, time_each in nanoseconds.items():
        lines.append(f"  {name:30s} {time_each:7.1f} ns per coordinate   {time_each / nanoseconds[BASE]:5.1f} × NumPy")
    ratio = nanoseconds[HARDENED] / nanoseconds[BASE]
    verdict = "within" if ratio <= LARGEST_RATIO else "NOT within"
    lines.append(f"  exact noise costs {ratio:.1f} times NumPy's normals: {verdict} the allowed {LARGEST_RATIO:.0f}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.noise", __doc__)
    parser.add_argument("--size", type=int, help="coordinates; a million by default")
    parser.add_argument("--repeats", type=int)
    options = parser.parse_args(arguments)
    size, repeats = (20_000, 3) if options.quick else (1_000_000, 11)
    size, repeats = options.size or size, options.repeats or repeats
    folder = folder_of("benchmarks", options)
    text = report(measure(size, repeats), size)
    for kind, (summing, noise, view) in topic_model_steps(repeats, options.quick).items():
        share = noise / (summing + noise + view)
        shares = f"sum {summing:.3f} s, noise {noise:.3f} s ({share:.0%} of a step), view {view:.3f} s"
        text += f"  topic model, {kind:8s} {shares}\n"
    with at_most(1):
        for name, of in fits(options.quick, repeats).items():
            text += f"  fit, {name:20s} without noise {of['none']:.3f} s, private {of['gaussian']:.3f} s, "
            text += f"discrete {of['discrete']:.3f} s: {of['discrete'] / of['gaussian']:.2f} × private\n"
    print(text, end="")
    if folder is not None:
        write_text(folder / "noise.txt", text)


if __name__ == "__main__":
    main()
