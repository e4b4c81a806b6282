"""Canaries: records that move the sum by exactly C, along a direction that no other record touches.

A canary's statistics have norm 10 C along one coordinate, so that it is clipped. World A holds it; world B does not (or,
under replace-one, holds its opposite). Many canaries share one run of the engine, each along a coordinate of its own.
Coordinates have independent noise, and rows independent coins, so canaries are independent trials of one mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.auditing.bound import CanaryBound, log_likelihood_ratio, lower_bound
from vips.core.contract import Contract
from vips.core.ledger.run import LedgerRun
from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.core.sums import RecordStatistics

__all__ = ["CanaryModel", "canary_bound", "canary_totals", "run_engine"]

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
        from vips.core.sums import Block

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
    from vips.core import engine
    from vips.core.records.arrays import InMemoryData

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
