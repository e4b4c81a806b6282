"""Does the noise have the size and the law that the plan states, and is it fresh every time?"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from vips.auditing.frozen import unfitted
from vips.auditing.records import Table
from vips.auditing.report import Finding
from vips.auditing.sums import WorstPair, as_numbers, coordinates
from vips.core.phases import phases_of, weights_of
from vips.core.plan import PrivacyPlan

__all__ = ["Draws", "Sharing", "draw_noise", "fresh_finding", "fresh_noise", "noise_findings", "noise_of_phases"]

COORDINATES_HELD = 200
COORDINATES_HEARD = 100_000
COORDINATES_DRAWN = 2e7  # in all draws together
DRAWS_OF_A_PHASE = 400


@dataclass
class Draws:
    """Noise on the sums of two neighbouring data sets.

    Attributes
    ----------
    scores, in_world_a : ndarray of shape (n_draws,)
        Noisy sums along the neighbours' difference, in units of C; 0 is the sum without the record.
    held : ndarray of shape (n_draws, at most 200)
        Noise of some coordinates, divided by the standard deviation that the plan states.
    squares : dict of str to (sum of squares, number of values)
        Over all coordinates, divided in the same way, by block.
    """

    scores: np.ndarray
    in_world_a: np.ndarray
    held: np.ndarray
    squares: Mapping[str, tuple[float, int]]


def draw_noise(pair: WorstPair, n_draws: int, rng: np.random.Generator) -> Draws:
    """Draw the plan's noise ``n_draws`` times, half of them on each of two neighbouring sums."""
    sums = pair.clipped_sum
    plan, blocks = sums.plan, sums.blocks
    totals = [sums.arrays(pair.without), sums.arrays(pair.with_record)]
    values = [coordinates(as_numbers(total, blocks, plan.lattice(blocks)), blocks) for total in totals]
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


def noise_of_phases(model, plan: PrivacyPlan) -> dict[str, tuple[float, int]]:
    """Squares of the noise that the engine draws in a phase, in units of σ C and of the scales by which the phase clips.

    ``model`` is fitted, or as in a fit. By phase and block, as ``Draws.squares``.
    """
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
    beyond = int(np.sum(np.abs(sample) > 2.5))
    p_values = {
        "not normal": stats.kstest(sample, "norm").pvalue,
        "tails": stats.binomtest(beyond, sample.size, 2.0 * stats.norm.sf(2.5)).pvalue,
        "draws are dependent": _no_correlation(held[1:].ravel(), held[:-1].ravel()),
    }
    if k > 1 and n > 20:
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation = np.nan_to_num(np.corrcoef(held, rowvar=False)[np.triu_indices(k, 1)], nan=1.0)
            z = np.arctanh(np.clip(correlation, -1.0, 1.0)) * np.sqrt(n - 3.0)
        p_values["coordinates are dependent"] = min(1.0, 2.0 * stats.norm.sf(np.abs(z).max()) * len(z))
        # Σ z² has the mean and variance of a χ²; shared noise makes it far larger
        p_values["coordinates have something in common"] = stats.chi2.sf(np.sum(z**2), len(z)) ** 0.5
    return {name: float(p) for name, p in p_values.items()}


def _no_correlation(first: np.ndarray, second: np.ndarray) -> float:
    z = np.mean(first * second) * np.sqrt(len(first))  # products of independent normals have variance 1
    return float(min(1.0, 2.0 * stats.norm.sf(0.9 * abs(z))))


# -- sharing ----------------------------------------------------------------------------------------------------


def _recording(model, table: Table, plan: PrivacyPlan, recorded: list[np.ndarray]) -> PrivacyPlan:
    """The plan of a fit of two steps, which also appends its noise to ``recorded``, in units of its standard deviation."""
    plan = plan.with_n_steps(2)
    plan = plan.with_phases(weights_of(phases_of(table.fit(unfitted(model, plan)), 2)))
    add_noise = plan.add_noise

    def recording(total, blocks, randomness, step):
        noisy, of_step = add_noise(total, blocks, randomness, step), plan.of_step(step)
        noise = coordinates(noisy, blocks) - coordinates(as_numbers(total, blocks, of_step.lattice(blocks)), blocks)
        recorded.append(noise[:COORDINATES_HEARD] / of_step.noise_std())
        return noisy

    object.__setattr__(plan, "add_noise", recording)
    return plan


@dataclass(frozen=True)
class Sharing:
    """Size of differences of noise that should be independent, relative to √2 standard deviations; 0 if it is shared."""

    ratio: float
    p_value: float


def fresh_noise(model, plan: PrivacyPlan, table: Table, n_fits: int = 8) -> dict[str, Sharing]:
    """Subtract the noise of steps, fits, clones and plans from one another. All fits have one ``random_state``."""
    table = table.take(slice(8))
    recorded, recorded_louder = [], []
    quiet = _recording(model, table, plan, recorded)
    louder = _recording(model, table, replace(plan, noise_multiplier=2.0 * plan.noise_multiplier), recorded_louder)
    fitted = unfitted(model, quiet)
    with _same_global_seed() as reseed:
        for _ in range(n_fits):
            reseed()
            table.fit(fitted)
        for changed in (quiet, louder):
            for _ in range(n_fits):
                reseed()
                table.fit(unfitted(model, changed))
    least = min(map(len, recorded))  # phases may have other blocks
    refits, clones = np.split(np.array([noise[:least] for noise in recorded]).reshape(2 * n_fits, 2, -1), 2)
    others = np.array([noise[:least] for noise in recorded_louder]).reshape(n_fits, 2, -1)
    return {
        "two steps": _difference(clones[:, 0], clones[:, 1]),
        "two fits of one object": _difference(refits[0::2], refits[1::2]),
        "two clones": _difference(clones[0::2], clones[1::2]),
        "two noise levels": _difference(clones, others),
    }


def _difference(first: np.ndarray, second: np.ndarray) -> Sharing:
    squares = (first - second).ravel() ** 2 / 2.0
    total, n = float(squares.sum()), squares.size
    return Sharing(
        float(np.sqrt(total / n)), float(min(1.0, 2.0 * min(stats.chi2.cdf(total, n), stats.chi2.sf(total, n))))
    )


@contextlib.contextmanager
def _same_global_seed() -> Iterator:
    """A function that seeds the global generators, from which noise must not come. Their states are restored at the end."""
    states = np.random.get_state(), random.getstate()  # noqa: NPY002

    def reseed() -> None:
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)

    try:
        yield reseed
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])


# -- findings ---------------------------------------------------------------------------------------------------


def noise_findings(draws: Draws, of_phases: Mapping[str, tuple[float, int]], level: float) -> list[Finding]:
    """Size and law of the noise, also of each phase; each check fails by chance with probability ``level``."""
    ratios, passed, measured = {}, True, {**draws.squares, **of_phases}
    for name, (squares, n) in measured.items():
        ratios[name] = float(np.sqrt(squares / n))
        passed &= bool(min(stats.chi2.cdf(squares, n), stats.chi2.sf(squares, n)) >= level / (2.0 * len(measured)))
    p_values = law_of(draws.held)
    words = "; ".join(name for name, p in p_values.items() if p < level) or f"smallest p {min(p_values.values()):.2g}"
    return [
        Finding(
            "noise: size", f"standard deviation of {len(draws.scores)} draws by block and phase, relative to σ C scale",
            ", ".join(f"{name} {ratio:.4f}" for name, ratio in ratios.items()), "1 up to chance", passed,
            "the noise has another size than the one that is accounted for.", ratios,
        ),
        Finding(
            "noise: law", "normal (Kolmogorov-Smirnov, tails), independent between coordinates and draws", words,
            f"p ≥ {level:.2g}", min(p_values.values()) >= level,
            "the noise is not independent normals in every isometric coordinate.", p_values,
        ),
    ]  # fmt: skip


def fresh_finding(model, plan: PrivacyPlan, table: Table, level: float) -> Finding:
    """Whether any draw is used twice."""
    name = "noise: fresh"
    checked = "differences of noise of steps, fits and clones, at one random_state, relative to √2 σ"
    try:
        shared = fresh_noise(model, plan, table)
    except Exception as error:  # the records are ordinary, so that the sample decides whether a fit raises
        measured = f"a fit raised {type(error).__name__}: {error}"
        return Finding(
            name, checked, measured, "no error", False, "whether a fit raises must not depend on the sample."
        )
    ratios = {name: sharing.ratio for name, sharing in shared.items()}
    return Finding(
        name, checked, ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()), "about 1; 0 for a draw used twice",
        min(sharing.p_value for sharing in shared.values()) >= level,
        "noise is used twice: two releases with one draw can be subtracted. It must come from the operating system, in "
        "every step of every fit.", ratios,
    )  # fmt: skip
