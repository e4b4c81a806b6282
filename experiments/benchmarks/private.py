"""What privacy costs: a step of topics with and without it, ε of a plan, and calibration.

    python -m experiments.benchmarks.private

CPU seconds of one thread. A step takes about 8,000 of 26,667 Wikipedia articles (data/README.md); private and non-private ones
take turns, and the median of ``--repeats`` each is reported. Plans have σ from 0.5 to 20, rates from 10⁻⁶ to 0.5, up to 10⁶
steps, and δ = 10⁻⁵ or 10⁻⁸; each σ is found again, from 1.02 ε. ``--quick``: few documents and plans.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable

import numpy as np

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import wikipedia
from vips import LatentDirichletAllocation, PrivacyPlan
from vips.core.engine import clipped_sum
from vips.core.exact.threads import at_most
from vips.core.phases import phases_of
from vips.data import InMemoryData

NOISE = (0.5, 0.7, 1.0, 2.0, 5.0, 20.0)
RATES_AND_STEPS = (
    (1e-6, 10**5), (1e-5, 10**6), (1e-4, 10**5), (1e-3, 5_000), (0.01, 2_000), (0.05, 20), (0.05, 200), (0.3, 20), (0.5, 1_000),
)  # fmt: skip
PARTS = ("sum", "noise", "average", "view")


class Steps:
    """Steps of one fit, as ``vips.core.engine.run`` takes them."""

    def __init__(self, counts, n_topics: int, plan: PrivacyPlan) -> None:
        model = LatentDirichletAllocation(n_topics, vocabulary=counts.shape[1], privacy=plan, random_state=0)
        self.model, self.data, self.plan, self.step = model, InMemoryData(counts), plan, 0
        self.randomness, self.std = plan.randomness(0), {"topic_word": 0.0}
        *_, self.phase = phases_of(model, plan.n_steps)
        self.average = {"topic_word": np.array(model.initial(self.randomness.initial)["topic_word"])}
        self.posterior = model.to_posterior(self.average, self.std, None)
        self.mechanism = plan.mechanism(self.phase.blocks, self.randomness, self.std)

    def take(self) -> np.ndarray:
        """CPU seconds of the parts of the next step."""
        self.step += 1
        rho, times = self.model.step_size(self.step), [time.process_time()]
        total = clipped_sum(self.model, self.phase, self.data, self.posterior, self.plan, self.randomness, self.step)
        times.append(time.process_time())
        noisy = self.mechanism.release(total, self.step)["topic_word"]
        times.append(time.process_time())
        self.average["topic_word"] = (1.0 - rho) * self.average["topic_word"] + rho / self.plan.sampling_rate * noisy
        self.std = self.mechanism.std_of_average({"topic_word": rho})
        times.append(time.process_time())
        self.posterior = self.model.to_posterior(self.average, self.std, self.posterior)
        return np.diff([*times, time.process_time()])


def of_steps(quick: bool, repeats: int) -> dict[str, list[float]]:
    """Median CPU seconds of the parts of a step, without and with privacy."""
    n_documents, n_topics, rate = (600, 5, 0.5) if quick else (26_667, 50, 0.3)
    counts = wikipedia(n_documents, quick).counts
    plans = {
        "non-private": PrivacyPlan.non_private(sampling_rate=rate),
        "private": PrivacyPlan(noise_multiplier=2.24, sampling_rate=rate, n_steps=20, clip_norm=5.0),
    }
    fits = {name: Steps(counts, n_topics, plan) for name, plan in plans.items()}
    with at_most(1):
        seconds = [{name: fit.take() for name, fit in fits.items()} for _ in range(repeats + 1)]
    return {
        name: np.median([times[name] for times in seconds[1:]], axis=0).tolist() for name in fits
    }  # the first compiles


def cpu_seconds(function: Callable[[], object]) -> tuple[object, float]:
    start = time.process_time()
    return function(), time.process_time() - start


def of_plans(quick: bool) -> list[dict]:
    """CPU seconds of ε and of the noise for 1.02 ε, by plan."""
    settings = itertools.product(
        (1.0, 5.0) if quick else NOISE, RATES_AND_STEPS[4:6] if quick else RATES_AND_STEPS, (1e-5, 1e-8)
    )
    PrivacyPlan(noise_multiplier=3.0, sampling_rate=0.2, n_steps=3).epsilon(1e-6)  # imports
    rows = []
    for sigma, (rate, n_steps), delta in settings:
        plan = PrivacyPlan(noise_multiplier=sigma, sampling_rate=rate, n_steps=n_steps)
        epsilon, of_epsilon = cpu_seconds(lambda plan=plan, delta=delta: plan.epsilon(delta))
        if not 0.0 < epsilon < math.inf:
            continue
        target = {"epsilon": 1.02 * epsilon, "delta": delta, "sampling_rate": rate, "n_steps": n_steps}
        multiplier, of_noise = cpu_seconds(lambda target=target: PrivacyPlan.from_epsilon(**target).noise_multiplier)
        rows.append(
            {"noise": sigma, "rate": rate, "steps": n_steps, "delta": delta, "epsilon": epsilon, "epsilon_s": of_epsilon,
             "found": multiplier, "noise_s": of_noise}
        )  # fmt: skip
    return rows


def report(steps: dict[str, list[float]], plans: list[dict]) -> str:
    lines = []
    for name, parts in steps.items():
        shares = ", ".join(f"{part} {1e3 * seconds:.1f}" for part, seconds in zip(PARTS, parts, strict=True))
        lines.append(f"A {name} step: {1e3 * sum(parts):.1f} ms ({shares})")
    lines.append(f"A step, private / non-private: {sum(steps['private']) / sum(steps['non-private']):.3f}")
    for what, key in (("ε of a plan", "epsilon_s"), ("noise of a plan from ε", "noise_s")):
        seconds = [row[key] for row in plans]
        lines.append(f"{what}: {statistics.median(seconds):.3f} s, at most {max(seconds):.3f} s, of {len(plans)} plans")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("experiments.benchmarks.private", __doc__)
    parser.add_argument("--repeats", type=int)
    options = parser.parse_args(arguments)
    folder = folder_of("benchmarks", options)
    steps, plans = of_steps(options.quick, options.repeats or (3 if options.quick else 19)), of_plans(options.quick)
    text = report(steps, plans)
    print(text, end="")
    if folder is not None:
        write_text(folder / "private.txt", text)
        write_json(folder / "private.json", {"steps": steps, "plans": plans})


if __name__ == "__main__":
    main()
