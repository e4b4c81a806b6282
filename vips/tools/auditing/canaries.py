"""A lower bound on ε from runs of the engine with and without a canary, against the claim of a plan.

A canary's statistics have norm 10 C along one coordinate that no other record touches: it is clipped, and moves the sum by
exactly C. Many canaries share one run of the engine, each along a coordinate of its own. Coordinates have independent noise,
and rows independent coins, so canaries are independent trials of one mechanism.

===========  ====================================================================================================
symbol       meaning
===========  ====================================================================================================
A, B         worlds with the canary, and without (under replace-one: with its opposite)
z_t          noisy total of step t along the canary's direction, in units of C
L            log-likelihood ratio of A to B given z_1 … z_T: the most powerful test
TPR, FPR     share of trials of A, of B, with L above a threshold
===========  ====================================================================================================

A mechanism that is (ε, δ)-differentially private has TPR ≤ e^ε FPR + δ, and the same with the worlds exchanged, at every
threshold and for every δ. One Clopper-Pearson bound per rate and threshold, all valid together with probability
``confidence``, gives a lower bound on ε for every δ. Thresholds are fixed beforehand, at quantiles of L under the claim. Where
the claim is a Gaussian mechanism (no sampling), the same rates bound μ = Φ⁻¹(TPR) - Φ⁻¹(FPR) (Dong, Roth and Su,
2022), which is stronger: it uses the whole trade-off curve, not one point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import stats
from scipy.special import expit

from vips.core import engine
from vips.core.accounting.gaussian import gaussian_epsilon
from vips.core.contract import Contract
from vips.core.ledger.run import LedgerRun
from vips.core.phases import FitPhase
from vips.core.plan import PrivacyPlan
from vips.core.records.arrays import InMemoryData
from vips.core.sums import Block, RecordStatistics
from vips.tools.auditing.report import Finding

__all__ = [
    "CanaryBound", "CanaryModel", "canary_bound", "canary_finding", "canary_totals", "log_likelihood_ratio", "lower_bound",
    "run_engine",
]  # fmt: skip

DELTAS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
N_THRESHOLDS = 16
SMALLEST_CLAIM = 0.05  # an ε below this cannot be distinguished from 0
N_OTHERS = 5
CANARIES_PER_RUN, STEPS_IN_ALL_RUNS = 1000, 5000


@dataclass(frozen=True)
class CanaryBound:
    """A lower bound on ε beside the claim, at the δ where it comes closest (or is furthest above), and by δ.

    Where the claim is a Gaussian mechanism, both also as μ.
    """

    delta: float
    claim: float
    bound: float
    by_delta: dict[float, tuple[float, float]]
    n_trials: int
    mu_claim: float | None = None
    mu_bound: float | None = None

    @property
    def ratio(self) -> float:
        return self.bound / self.claim

    @property
    def exceeded(self) -> bool:
        """Whether the claim is refuted, at any δ."""
        # an accountant's discretisation error is far below this tolerance
        above = any(bound > claim * (1.0 + 1e-6) for claim, bound in self.by_delta.values())
        return above or (self.mu_bound is not None and self.mu_bound > self.mu_claim)


def log_likelihood_ratio(totals: np.ndarray, plan: PrivacyPlan) -> np.ndarray:
    """L of trials under the claim; ``totals`` of shape (n_trials, n_steps), in units of C.

    Add or remove one: (1-q) N(0, σ²) + q N(1, σ²) against N(0, σ²). Replace one: against (1-q) N(0, σ²) + q N(-1, σ²).
    """

    def against_nothing(z):
        shifted = (2.0 * z - 1.0) / (2.0 * plan.noise_multiplier**2)
        if plan.sampling_rate == 1.0:
            return shifted
        return np.logaddexp(math.log1p(-plan.sampling_rate), math.log(plan.sampling_rate) + shifted)

    ratio = against_nothing(totals)
    if plan.relation == "replace_one":
        ratio = ratio - against_nothing(-totals)
    return ratio.sum(axis=1)


def lower_bound(ratios: np.ndarray, in_world_a: np.ndarray, plan: PrivacyPlan, confidence: float) -> CanaryBound:
    """What the trials prove about ε, from L of each, or any other score. With probability ``confidence`` no bound is above the
    truth; the plan's ε is the claim."""
    claims = _claims(replace(plan, clip_norm=None))
    in_a, in_b = np.sort(ratios[in_world_a]), np.sort(ratios[~in_world_a])
    thresholds = _thresholds(plan)
    level = (1.0 - confidence) / (2.0 * len(thresholds))
    best: dict[float, float] = dict.fromkeys(claims, 0.0)
    mu = 0.0
    for threshold in thresholds:
        a_low = _lowest(len(in_a) - np.searchsorted(in_a, threshold, "right"), len(in_a), level)
        b_high = 1.0 - _lowest(np.searchsorted(in_b, threshold, "right"), len(in_b), level)
        for delta in best:
            best[delta] = max(best[delta], _log_ratio(a_low - delta, b_high), _log_ratio(1 - b_high - delta, 1 - a_low))
        mu = max(mu, float(stats.norm.ppf(a_low) - stats.norm.ppf(b_high)))
    mu_claim = plan.gdp_mu()
    if mu_claim is not None:  # the claim is one Gaussian mechanism: its whole trade-off curve is known
        best = {delta: max(bound, gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0) for delta, bound in best.items()}
    by_delta = {delta: (float(claims[delta]), best[delta]) for delta in best}
    comparable = [delta for delta in by_delta if claims[delta] > SMALLEST_CLAIM] or [min(by_delta)]
    closest = max(comparable, key=lambda delta: best[delta] / max(claims[delta], 1e-12))
    mu_bound = None if mu_claim is None else mu
    return CanaryBound(closest, *by_delta[closest], by_delta, len(ratios), mu_claim, mu_bound)


def canary_finding(name: str, checked: str, bound: CanaryBound, advice: str) -> Finding:
    """The bound in words."""
    measured = f"ε ≥ {bound.bound:.3f} at δ = {bound.delta:g} ({bound.n_trials} trials), {bound.ratio:.0%} of the claim"
    if bound.mu_bound is not None:
        measured += f"; μ ≥ {bound.mu_bound:.3f} of {bound.mu_claim:.3f}"
    values = {name: getattr(bound, name) for name in ("bound", "claim", "ratio", "delta")} | {"trials": bound.n_trials}
    return Finding(name, checked, measured, f"ε = {bound.claim:.3f}, the claim", not bound.exceeded, advice, values)


@lru_cache(maxsize=16)
def _claims(plan: PrivacyPlan) -> dict[float, float]:
    """ε by δ; slow for some plans, and the same at every clip norm."""
    return {delta: plan.epsilon(delta) for delta in DELTAS}


@lru_cache(maxsize=16)
def _thresholds(plan: PrivacyPlan) -> np.ndarray:
    """Quantiles of L under the claim, over both worlds. The claim is simulated; no run is used."""
    rng = np.random.default_rng(0)
    shape = (min(20_000, max(2_000, 2_000_000 // plan.n_steps)), plan.n_steps)
    ratios = []
    for sign in (1.0, -1.0 if plan.relation == "replace_one" else 0.0):
        z = rng.normal(0.0, plan.noise_multiplier, shape) + sign * (rng.random(shape) < plan.sampling_rate)
        ratios.append(log_likelihood_ratio(z, plan))
    return np.quantile(np.concatenate(ratios), expit(np.linspace(-6.0, 6.0, N_THRESHOLDS)))


def _lowest(successes: int, n: int, level: float) -> float:
    """Lower bound on a probability, too high with probability at most ``level``; Clopper and Pearson (1934)."""
    return float(stats.beta.ppf(level, successes, n - successes + 1)) if successes > 0 else 0.0


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > below > 0.0 else 0.0


# -- runs of the engine --------------------------------------------------------------------------------------------------


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

    A run fills ``samples`` with the ids of the records in each step's sample.
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
    """Noisy totals of every step along canaries in units of C, from one run of the engine with the plan's own randomness, shape
    (n_canaries, n_steps); and which of them are in world A."""
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
