"""Runs of the engine with records of our own: canaries, and records whose samples are noted.

Canaries move the sum by exactly C, along a direction that no other record touches.

A canary's statistics have norm 10 C along one coordinate, so that it is clipped. World A holds it; world B does not (or,
under replace-one, holds its opposite). Many canaries share one run of the engine, each along a coordinate of its own.
Coordinates have independent noise, and rows independent coins, so canaries are independent trials of one mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats

from vips.core import engine
from vips.core.contract import Contract
from vips.core.ledger.run import LedgerRun
from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.core.records.arrays import InMemoryData
from vips.core.sums import Block, RecordStatistics
from vips.tools.auditing.bound import CanaryBound, log_likelihood_ratio, lower_bound
from vips.tools.auditing.report import Finding

__all__ = ["canary_bound", "canary_totals", "event_finding", "sample_finding"]

N_OTHERS = 5
CANARIES_PER_RUN, STEPS_IN_ALL_RUNS = 1000, 5000


class _CanaryStatistics(RecordStatistics):
    """Row (j, s, id): s × 10 C along coordinate j of block ``canary``; row (-1, s, id): s C along one of block ``other``."""

    sums_are_new = True

    def __init__(self, rows: np.ndarray, blocks: Mapping[str, object], clip_norm: float) -> None:
        self._is_canary = rows[:, 0] >= 0
        self._place = np.where(self._is_canary, rows[:, 0], 0).astype(np.int64)
        self._scaled = rows[:, 1] * clip_norm * np.where(self._is_canary, 10.0, 1.0)
        self._scale = np.where(self._is_canary, blocks["canary"].scale, blocks["other"].scale)
        self._n_canaries = blocks["canary"].shape[0]

    def norms(self, blocks) -> np.ndarray:
        return np.abs(self._scaled)

    def weighted_sum(self, weights) -> dict[str, np.ndarray]:
        values = weights * self._scaled * self._scale
        canaries = np.bincount(self._place, values * self._is_canary, minlength=self._n_canaries)
        return {"canary": canaries, "other": np.array([values[~self._is_canary].sum(), 0.0])}

    def rounded_sum(self, weights, blocks, lattice) -> dict[str, np.ndarray]:
        values = weights * self._scaled * self._scale
        canary = lattice.rounded(values, blocks["canary"]) * self._is_canary
        other = lattice.rounded(values, blocks["other"]) * ~self._is_canary
        canaries = np.zeros(self._n_canaries, np.int64)
        np.add.at(canaries, self._place, canary)
        return {"canary": canaries, "other": np.array([other.sum(), 0])}


class CanaryModel(Contract):
    """The methods that the engine needs of a model, for canaries as records. Its posterior is empty.

    Attributes
    ----------
    samples : list of ndarray
        The id of every record in each step's sample; filled by a run.
    """

    chunk_size = 1 << 20
    exact_rows, compiles = True, False
    random_state = 0  # fixed, so that sampling and noise that depend on it are noticed

    def __init__(self, n_canaries: int, clip_norm: float) -> None:
        self._clip_norm = clip_norm
        self._blocks = {"canary": Block((n_canaries,), scale=2.0), "other": Block((2,), scale=0.5)}
        self._sample: list[np.ndarray] = []
        self.samples: list[np.ndarray] = []

    def blocks(self):
        return self._blocks

    def start(self, rng):
        return {name: np.zeros(block.shape) for name, block in self._blocks.items()}, {}

    def phases(self, n_steps):
        return [FitPhase("steps", n_steps, step_size=lambda s: 1.0)]

    def valid_records(self, rows):
        return np.ones(len(rows), dtype=bool)

    def expected_statistics(self, rows, posterior):
        self._sample.append(rows[:, 2])
        return _CanaryStatistics(rows, self._blocks, self._clip_norm)

    def to_posterior(self, average, noise_std, previous):
        self.samples.append(np.concatenate([np.zeros(0), *self._sample]).astype(np.int64))
        self._sample = []
        return {}


class _Recorder:
    """Takes the place of a fit's journal, and keeps the released totals."""

    start = None

    def __init__(self) -> None:
        self.run = LedgerRun(None)
        self.totals: list[Mapping[str, np.ndarray]] = []

    def commit(self, step, noisy, *state) -> None:
        self.totals.append({name: np.array(value) for name, value in noisy.items()})


def run_engine(model, rows: np.ndarray, plan: PrivacyPlan, n_rows: int = 1) -> list[Mapping[str, np.ndarray]]:
    """The noisy totals of every step of one run. Each of ``rows`` is a record; or ``n_rows`` times, all as one record. With
    weights, twice the declared largest one, which counts as this."""
    recorder = _Recorder()
    data = InMemoryData(np.repeat(rows, n_rows, axis=0))
    if plan.max_weight is not None:
        data = data.with_weights(np.full(data.n_records, 2.0 * plan.max_weight))
    if n_rows > 1:
        data = data.grouped(np.repeat(np.arange(len(rows)), n_rows))
    engine.run(model, data, plan, recorder)
    return recorder.totals


def canary_totals(
    plan: PrivacyPlan, n_canaries: int, rng: np.random.Generator, n_rows: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Noisy totals of every step along canaries, from one run of the engine with the plan's own randomness.

    Returns
    -------
    totals : ndarray of shape (n_canaries, n_steps)
        In units of C.
    in_world_a : ndarray of bool, shape (n_canaries,)
    """
    world = rng.integers(0, 2, n_canaries).astype(bool)
    signs = np.where(world, 1.0, -1.0 if plan.relation == "replace_one" else 0.0)
    place = np.flatnonzero(signs)
    others = np.column_stack([np.full(N_OTHERS, -1.0), np.resize([1.0, -1.0, 0.5], N_OTHERS)])
    rows = rng.permutation(np.concatenate([np.column_stack([place, signs[place]]), others]))
    model = CanaryModel(n_canaries, plan.clip_norm)
    released = run_engine(model, np.column_stack([rows, np.arange(len(rows))]), plan, n_rows)
    scale = plan.clip_norm * model.blocks()["canary"].scale
    return np.array([total["canary"] / scale for total in released]).T, world


def canary_bound(
    plan: PrivacyPlan,
    n_trials: int,
    rng: np.random.Generator,
    confidence: float,
    canaries_per_run: int | None = None,
    n_rows: int = 1,
) -> CanaryBound:
    """A lower bound on ε of a plan (with its clip norm) from runs of the engine, on persons of ``n_rows`` rows."""
    if canaries_per_run is None:
        canaries_per_run = max(CANARIES_PER_RUN, n_trials * plan.n_steps // STEPS_IN_ALL_RUNS)
    ratios, worlds = [], []
    for _ in range(-(-n_trials // canaries_per_run)):
        totals, world = canary_totals(plan, canaries_per_run, rng, n_rows)
        ratios.append(log_likelihood_ratio(totals, plan))
        worlds.append(world)
    return lower_bound(np.concatenate(ratios), np.concatenate(worlds), plan, confidence)


# -- samples ----------------------------------------------------------------------------------------------------


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
    words += f", {n_records * q:.1f} ± {np.sqrt(spread):.1f} stated"
    return {name: float(p) for name, p in p_values.items()}, words


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
