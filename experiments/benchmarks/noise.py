"""What exact noise costs: the discrete Gaussian against normals in floating point, in one run.

    python -m experiments.benchmarks.noise

A million coordinates at a time, one thread. The samplers take turns; compilation is outside the timed part, and the
median of ``--repeats`` rounds is reported.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from randomgen import AESCounter

from vips.privacy._discrete_gaussian import discrete_gaussian

NOISE_STEPS = 2**20
LARGEST_RATIO = 40.0
BASE, HARDENED = "NumPy, default_rng().normal", "discrete_gaussian(AESCounter)"


def samplers(size: int) -> dict[str, Callable[[], np.ndarray]]:
    plain, from_aes = np.random.default_rng(), np.random.Generator(AESCounter())
    bits = AESCounter()
    return {
        BASE: lambda: plain.normal(size=size),
        "Generator(AESCounter).normal": lambda: from_aes.normal(size=size),
        HARDENED: lambda: discrete_gaussian(size, NOISE_STEPS, bits),
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


def report(nanoseconds: dict[str, float], size: int) -> str:
    """The table."""
    lines = [f"{size} coordinates, σ = {NOISE_STEPS} steps, one thread; medians"]
    for name, time_each in nanoseconds.items():
        lines.append(f"  {name:30s} {time_each:7.1f} ns per coordinate   {time_each / nanoseconds[BASE]:5.1f} × NumPy")
    ratio = nanoseconds[HARDENED] / nanoseconds[BASE]
    verdict = "within" if ratio <= LARGEST_RATIO else "NOT within"
    lines.append(f"  exact noise costs {ratio:.1f} times NumPy's normals: {verdict} the allowed {LARGEST_RATIO:.0f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    print(report(measure(options.size, options.repeats), options.size), end="")


if __name__ == "__main__":
    main()
