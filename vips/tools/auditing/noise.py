"""Are noise, samples and event what the plan states? Noise of that size and law, fresh every time; a coin for every row."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from vips.core.contract import completed_plan
from vips.core.phases import phases_of, weights_of
from vips.core.plan import PrivacyPlan
from vips.tools.auditing.canaries import CanaryModel, run_engine
from vips.tools.auditing.records import Table
from vips.tools.auditing.replay import unfitted
from vips.tools.auditing.report import Finding
from vips.tools.auditing.search import WorstPair, as_numbers, coordinates

__all__ = ["draw_noise", "event_finding", "fresh_finding", "noise_findings", "noise_of_phases", "sample_finding"]

COORDINATES_HELD = 200
COORDINATES_HEARD = 100_000
COORDINATES_DRAWN = 2e7  # in all draws together
DRAWS_OF_A_PHASE = 400


@dataclass
class Draws:
    """Noise on the sums of two neighbouring data sets; in units of its stated deviation, but for the scores."""

    scores: np.ndarray  # noisy sums along the neighbours' difference, in units of C; 0 is the sum without the record
    in_world_a: np.ndarray
    held: np.ndarray  # of at most 200 coordinates, shape (n_draws, n_held)
    squares: Mapping[str, tuple[float, int]]  # of all coordinates, by block: their sum and number


def draw_noise(pair: WorstPair, n_draws: int, rng: np.random.Generator) -> Draws:
    """Draw the plan's noise ``n_draws`` times, half of them on each of two neighbouring sums."""
    sums = pair.clipped_sum
    plan, blocks = sums.plan, sums.blocks
    totals = [sums.arrays(pair.without), sums.arrays(pair.with_record)]
    values = [_values(total, blocks, plan) for total in totals]
    shift = values[1] - values[0]
    length = float(np.linalg.norm(shift))
    direction = shift / length
    n_draws = int(min(n_draws, max(400, COORDINATES_DRAWN // len(direction))))
    held = rng.permutation(len(direction))[:COORDINATES_HELD]
    scores, noises, squares = np.empty(n_draws), np.empty((n_draws, len(held))), np.zeros(len(direction))
    randomness = plan.randomness(0)
    world = np.arange(n_draws) % 2
    for i in range(n_draws):
        noise = coordinates(plan.add_noise(totals[world[i]], blocks, randomness, i + 1), blocks) - values[world[i]]
        scores[i] = (noise @ direction + world[i] * length) / plan.clip_norm
        noises[i] = noise[held] / plan.noise_std()
        squares += (noise / plan.noise_std()) ** 2
    sizes = [coordinates({name: np.zeros(b.shape)}, {name: b}).size for name, b in blocks.items()]
    parts = np.split(squares, np.cumsum(sizes)[:-1])
    by_block = {name: (float(part.sum()), part.size * n_draws) for name, part in zip(blocks, parts, strict=True)}
    return Draws(scores, world.astype(bool), noises, by_block)


def _values(total: Mapping, blocks: Mapping, plan: PrivacyPlan) -> np.ndarray:
    return coordinates(as_numbers(total, blocks, plan.lattice(blocks)), blocks)


def noise_of_phases(model, plan: PrivacyPlan) -> dict[str, tuple[float, int]]:
    """Squares of the noise that the engine draws in a phase, in units of σ C and of the scales by which the phase clips.

    ``model`` is fitted. By phase and block, as ``Draws.squares``.
    """
    plan = completed_plan(model, plan)
    model.use_plan(plan)
    squares, first = {}, 1
    for phase in phases_of(model, plan.n_steps):
        of_step = plan.of_step(first)
        mechanism = plan.mechanism(model.blocks(), plan.randomness(0), dict.fromkeys(model.blocks(), 0.0))
        dtype = np.int64 if plan.rounds_records else np.float64
        zeros = {name: np.zeros(block.shape, dtype) for name, block in phase.blocks.items()}
        least = min(math.prod(block.shape) for block in phase.blocks.values())
        draws = [mechanism.release(zeros, first) for _ in range(max(2, DRAWS_OF_A_PHASE // max(least, 1)))]
        for name, block in phase.blocks.items():
            noise = np.array([coordinates(draw, {name: block}) for draw in draws]) / of_step.noise_std()
            squares[f"{name} ({phase.name})"] = float(np.square(noise).sum()), noise.size
        first += phase.n_steps
    return squares


def law_of(held: np.ndarray) -> dict[str, float]:
    """p-values of the hypothesis of standard normals, independent between coordinates and between draws."""
    n, k = held.shape
    sample = held.ravel()[:200_000]
    beyond, products = int(np.sum(np.abs(sample) > 2.5)), held[1:] * held[:-1]
    p_values = {
        "not normal": stats.kstest(sample, "norm").pvalue,
        "tails": stats.binomtest(beyond, sample.size, 2.0 * stats.norm.sf(2.5)).pvalue,
        # products of independent normals have variance 1
        "draws are dependent": min(1.0, 2.0 * stats.norm.sf(0.9 * abs(products.mean()) * np.sqrt(products.size))),
    }
    if k > 1 and n > 20:
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation = np.nan_to_num(np.corrcoef(held, rowvar=False)[np.triu_indices(k, 1)], nan=1.0)
            z = np.arctanh(np.clip(correlation, -1.0, 1.0)) * np.sqrt(n - 3.0)
        p_values["coordinates are dependent"] = min(1.0, 2.0 * stats.norm.sf(np.abs(z).max()) * len(z))
        # Σ z² has the mean and variance of a χ²; shared noise makes it far larger
        p_values["coordinates have something in common"] = stats.chi2.sf(np.sum(z**2), len(z)) ** 0.5
    return {name: float(p) for name, p in p_values.items()}


# -- sharing ----------------------------------------------------------------------------------------------------


def _recording(model, table: Table, plan: PrivacyPlan, recorded: list[np.ndarray]) -> PrivacyPlan:
    """The plan of a fit of two steps, which also appends its noise to ``recorded``, in units of its standard deviation."""
    plan = plan.with_n_steps(2)
    plan = plan.with_phases(weights_of(phases_of(table.fit(unfitted(model, plan)), 2)))
    add_noise = plan.add_noise

    def recording(total, blocks, randomness, step):
        noisy, of_step = add_noise(total, blocks, randomness, step), plan.of_step(step)
        noise = coordinates(noisy, blocks) - _values(total, blocks, of_step)
        recorded.append(noise[:COORDINATES_HEARD] / of_step.noise_std())
        return noisy

    object.__setattr__(plan, "add_noise", recording)
    return plan


def _independent(model, plan: PrivacyPlan, table: Table, n_fits: int = 8) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Noise of steps, fits, clones and plans in pairs that should be independent. All fits have one ``random_state``."""
    recorded, recorded_louder = [], []
    quiet = _recording(model, table, plan, recorded)
    louder = _recording(model, table, replace(plan, noise_multiplier=2.0 * plan.noise_multiplier), recorded_louder)
    clones_of_both = [unfitted(model, changed) for changed in (quiet, louder) for _ in range(n_fits)]
    states = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        for fitted in [unfitted(model, quiet)] * n_fits + clones_of_both:
            np.random.seed(0)  # noqa: NPY002  # the global generators, from which noise must not come
            random.seed(0)
            table.fit(fitted)
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])
    least = min(map(len, recorded))  # phases may have other blocks
    refits, clones = np.split(np.array([noise[:least] for noise in recorded]).reshape(2 * n_fits, 2, -1), 2)
    others = np.array([noise[:least] for noise in recorded_louder]).reshape(n_fits, 2, -1)
    return {
        "two steps": (clones[:, 0], clones[:, 1]),
        "two fits of one object": (refits[0::2], refits[1::2]),
        "two clones": (clones[0::2], clones[1::2]),
        "two noise levels": (clones, others),
    }


# -- findings ---------------------------------------------------------------------------------------------------


def _p_of_size(squares: float, n: int) -> float:
    """p-value of a sum of squares of ``n`` independent standard normals, on both sides."""
    return float(min(1.0, 2.0 * min(stats.chi2.cdf(squares, n), stats.chi2.sf(squares, n))))


def noise_findings(draws: Draws, of_phases: Mapping[str, tuple[float, int]], level: float) -> list[Finding]:
    """Size and law of the noise, also of each phase; each check fails by chance with probability ``level``."""
    measured = {**draws.squares, **of_phases}
    ratios = {name: float(np.sqrt(squares / n)) for name, (squares, n) in measured.items()}
    has_size = all(_p_of_size(*squares) >= level / len(measured) for squares in measured.values())
    p_values = law_of(draws.held)
    words = "; ".join(name for name, p in p_values.items() if p < level) or f"smallest p {min(p_values.values()):.2g}"
    return [
        Finding(
            "noise: size", f"standard deviation of {len(draws.scores)} draws by block and phase, relative to σ C scale",
            ", ".join(f"{name} {ratio:.4f}" for name, ratio in ratios.items()), "1 up to chance", has_size,
            "the noise has another size than the one that is accounted for.", ratios,
        ),
        Finding(
            "noise: law", "normal (Kolmogorov-Smirnov, tails), independent between coordinates and draws", words,
            f"p ≥ {level:.2g}", min(p_values.values()) >= level,
            "the noise is not independent normals in every isometric coordinate.", p_values,
        ),
    ]  # fmt: skip


def fresh_finding(model, plan: PrivacyPlan, table: Table, level: float) -> Finding:
    """Whether any draw is used twice: differences of independent noise have √2 standard deviations, of shared noise 0."""
    name = "noise: fresh"
    checked = "differences of noise of steps, fits and clones, at one random_state, relative to √2 σ"
    try:
        differences = {pair: first - second for pair, (first, second) in _independent(model, plan, table).items()}
    except Exception as error:  # the records are ordinary, so that the sample decides whether a fit raises
        measured = f"a fit raised {type(error).__name__}: {error}"
        advice = "whether a fit raises must not depend on the sample."
        return Finding(name, checked, measured, "no error", False, advice)
    squares = {pair: (float(np.sum(noise**2) / 2.0), noise.size) for pair, noise in differences.items()}
    ratios = {pair: float(np.sqrt(total / n)) for pair, (total, n) in squares.items()}
    return Finding(
        name, checked, ", ".join(f"{pair} {ratio:.2f}" for pair, ratio in ratios.items()), "about 1; 0 for a draw used twice",
        min(_p_of_size(*of_pair) for of_pair in squares.values()) >= level,
        "noise is used twice: two releases with one draw can be subtracted. It must come from the operating system, in "
        "every step of every fit.", ratios,
    )  # fmt: skip


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
