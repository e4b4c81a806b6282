"""Are samples drawn as the plan says, and does its event agree?"""

from __future__ import annotations

import numpy as np
from scipy import stats

from vips.auditing.canaries import CanaryModel, run_engine
from vips.auditing.report import Finding
from vips.core.plan import PrivacyPlan

__all__ = ["event_finding", "sample_finding"]


def sample_finding(plan: PrivacyPlan, level: float) -> Finding:
    """Compare samples with the plan. Each p-value is below ``level`` by chance with that probability."""
    p_values, words = samples_of(plan)
    wrong = [name for name, p in p_values.items() if p < level]
    return Finding(
        "samples", f'rows that take part in a step, in runs of the engine (sampling="{plan.sampling}")',
        "; ".join([words, *wrong]), f"p ≥ {level:.2g} for sizes, rate, rows and overlaps", not wrong,
        "samples are not what is accounted for: each row by a secret coin of its own, anew in every step and fit.", p_values,
    )  # fmt: skip


def event_finding(plan: PrivacyPlan) -> Finding:
    """Compare the plan's event with its fields."""
    sampled = None if plan.sampling_rate == 1.0 else (plan.sampling, plan.sampling_rate)
    low, high = plan.sensitive_noise_multiplier(), plan.noise_multiplier
    parts = events(plan.event())
    passed = (
        sum(times for times, _, _ in parts) == plan.n_steps
        and all(how == sampled for _, how, _ in parts)
        and all(low * (1.0 - 1e-12) <= sigma <= high * (1.0 + 1e-12) for _, _, sigma in parts)
    )
    return Finding(
        "event", "the plan's dp_accounting event, as (times, sampling, noise multiplier)", f"{parts}",
        f"{plan.n_steps} noisy sums in all, sampling {sampled}, noise multiplier {low:.6g} to {high:.6g}", passed,
        "one event per step, whatever the number of blocks: they are one vector, with one clip and one draw of noise.",
    )  # fmt: skip


def samples_of(plan: PrivacyPlan, n_runs: int = 16) -> tuple[dict[str, float], str]:
    """p-values of the plan's sampling in runs of the engine, and the sizes in words."""
    n_records = int(np.clip(30.0 / plan.sampling_rate, 400, 20_000))
    plan = plan.with_n_steps(min(plan.n_steps, 4))
    rows = np.column_stack([np.full(n_records, -1.0), np.ones(n_records), np.arange(n_records)])
    taken = np.zeros((n_runs, plan.n_steps, n_records), dtype=int)
    for run in range(n_runs):
        model = CanaryModel(1, plan.clip_norm)
        run_engine(model, rows, plan)
        for step, sample in enumerate(model.samples):
            np.add.at(taken[run, step], sample, 1)
    sizes = taken.sum(axis=2)
    q = plan.sampling_rate
    words = f"sizes {sizes.mean():.1f} ± {sizes.std():.1f} of {n_records} records"
    if taken.max() > 1:
        return {"a record is taken twice in a step": 0.0}, words
    if q == 1.0:
        return {"a record is left out": float(taken.all())}, words
    overlaps = {"runs have similar samples": (taken[0::2] * taken[1::2]).sum(axis=2)}
    if plan.n_steps > 1:
        overlaps["steps have similar samples"] = (taken[:, 1] * taken[:, 0]).sum(axis=1)
    spread = n_records * q * (1.0 - q)
    p_values = {
        "wrong rate": stats.binomtest(int(sizes.sum()), taken.size, q).pvalue,
        "sizes are not binomial": _dispersion(sizes.ravel(), n_records, q),
        "records are not treated alike": _dispersion(taken.sum(axis=(0, 1)), n_runs * plan.n_steps, q),
    }
    for name, overlap in overlaps.items():
        p_values[name] = stats.binomtest(int(overlap.sum()), overlap.size * n_records, q**2).pvalue
    return {
        name: float(p) for name, p in p_values.items()
    }, f"{words}, {n_records * q:.1f} ± {np.sqrt(spread):.1f} stated"


def _dispersion(counts: np.ndarray, n: int, q: float) -> float:
    """p-value of Σ (count - nq)² / (nq(1-q)) for binomial counts, by the gamma law with its mean and variance.

    Rounded up for the error of that law in far tails; 1 where counts are too small to say anything.
    """
    spread = n * q * (1.0 - q)
    if spread < 3.0:
        return 1.0
    index = float(np.sum((counts - n * q) ** 2) / spread)
    variance = 2.0 + (1.0 - 6.0 * q * (1.0 - q)) / spread  # of one term, whose mean is 1
    law = stats.gamma(counts.size / variance, scale=variance)
    return float(min(1.0, 2.0 * min(law.cdf(index), law.sf(index))) ** 0.8)


def events(event, times: int = 1, sampled: tuple | None = None) -> list[tuple[int, tuple | None, float]]:
    """A ``DpEvent`` as (how often, how sampled, noise multiplier), one entry per noisy sum in it."""
    kind = type(event).__name__
    if kind == "SelfComposedDpEvent":
        return events(event.event, times * event.count, sampled)
    if kind == "ComposedDpEvent":
        return [entry for part in event.events for entry in events(part, times, sampled)]
    if kind == "PoissonSampledDpEvent":
        how = None if event.sampling_probability == 1.0 else ("poisson", event.sampling_probability)
        return events(event.event, times, how)
    if kind == "GaussianDpEvent":
        return [(times, sampled, event.noise_multiplier)]
    return [(times, (kind, 0.0), 0.0)]
