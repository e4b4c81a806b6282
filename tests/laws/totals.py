"""The law of totals: a step's estimate is the sum of the sampled records' clipped statistics, divided by the public rate.

The right-hand side is computed here once more, one record at a time: the sample by the definition of a coin, the clip by the
norm of the record's own vector, the lattice by the formula of docs/guarantee.md. An engine that divides by something that it
has observed, or that sums other rows, gives another total.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from randomgen import AESCounter

from tests.laws import checks
from tests.laws.cases import arguments, exposures
from vips import PrivacyPlan
from vips.core import engine
from vips.core.phases import phases_of, step_of
from vips.data import InMemoryData

SEED = 4
SIZE = 7  # rows of a partition; the last partition of 40 records has fewer
# Noise too small to be seen; a private fit in every other respect.
HARDLY = {"noise_multiplier": 1e-9, "n_steps": 2, "reproducible_noise": True}
# Every way of sampling, under both relations, with the number of rows in a partition.
SAMPLINGS = [
    ({"sampling_rate": 0.4}, SIZE),
    ({"sampling_rate": 0.7, "relation": "replace_one"}, 40),
    ({"sampling": "full"}, SIZE),
]


def coin(key: int, step: int, partition: int, row: int) -> int:
    """The word of a row: its half of AES(key, (step, partition, row // 2))."""
    return int(AESCounter(key=key, counter=(step << 64) + (partition << 32) + row // 2).random_raw(2)[row % 2])


def sampled_rows(plan: PrivacyPlan, step: int, sizes) -> list[int]:
    """Rows that a step of a reproducible fit samples, numbered through all partitions."""
    if plan.sampling == "full":
        return list(range(sum(sizes)))
    key = plan.randomness(SEED).sampling_key
    below, rows, start = int(plan.sampling_rate * 2.0**64), [], 0
    for partition, size in enumerate(sizes):
        rows += [start + row for row in range(size) if coin(key, step, partition, row) < below]
        start += size
    return rows


def clipped(model, phase, records, row: int, posterior, clip_norm: float, norm_factor=None) -> dict[str, np.ndarray]:
    """One record's statistics, scaled into the ball of radius C by their own norm, times ``norm_factor``; with labels, by the
    reported norm."""
    blocks, statistics = phase.blocks, phase.statistics_of(model, records[[row]], posterior)
    reported = float(statistics.norms(blocks)[0])  # before sums, as the engine asks
    share = statistics.weighted_sum(np.ones(1))
    share = {name: np.asarray(share[name], np.float64) for name in blocks}
    if checks.is_searched(phase, posterior):  # of what the record adds, here once
        share["squares"] = share["squares"] * min(1.0, clip_norm / reported)
    norm = math.sqrt(sum(float(np.sum((share[name] / block.scale) ** 2)) for name, block in blocks.items()))
    if model.needs_labels:  # the largest over labels: `norms_are_joint_and_never_too_small` checks it
        assert norm <= reported * (1.0 + 1e-13)
        norm = reported
    norm *= 1.0 if norm_factor is None else norm_factor(records[row])
    weight = min(1.0, clip_norm / norm if norm else 1.0)
    share = {name: value * weight for name, value in share.items()}
    if checks.is_searched(phase, posterior):
        share["squares"] = checks.unit_of_squares(posterior) * np.square(share["linear"])
    return {n: (v + np.swapaxes(v, -1, -2)) / 2.0 if blocks[n].symmetric else v for n, v in share.items()}


def steps_of(model, data, *labels, **arguments) -> checks.Recorder:
    """Fit to ``data``, and keep for each step the posterior that its E-step saw and the total that it gave."""
    steps = checks.Recorder(model, rho=1.0)  # then the average is the last noisy total, divided by the rate
    model.fit(data, *labels, **arguments)
    return steps


def in_partitions(records, size: int = SIZE) -> InMemoryData:
    """The same records in ranges of ``size`` rows."""
    data = checks.as_data(records)
    return InMemoryData(*data.arrays, partition_size=size)


def check_steps(steps: checks.Recorder, model, records, plan: PrivacyPlan, sizes, *norm_factor) -> None:
    """Compare every step's total with the closed form."""
    phases, realised = phases_of(model, plan.n_steps), []
    for step in range(1, plan.n_steps + 1):
        phase, _ = step_of(phases, step)
        rows = sampled_rows(plan, step, sizes)
        realised.append(len(rows))
        seen_at = steps.posteriors[step - 1]
        shares = [clipped(model, phase, records, row, seen_at, plan.clip_norm, *norm_factor) for row in rows]
        for name, block in phase.blocks.items():
            expected = sum((share[name] for share in shares), np.zeros(block.shape)) / plan.sampling_rate
            # rounding of norms and weights (single precision), and the little noise
            slack = (2e-5 * len(rows) + 1e-6) * plan.clip_norm * block.scale / plan.sampling_rate
            error = np.abs(steps.averages[step][name] - expected).max()
            assert error <= slack, f"a step's total is not the sum of its sample over the public rate: {name}, {error}"
    if plan.sampling == "poisson":
        assert max(abs(n / sum(sizes) - plan.sampling_rate) for n in realised) > 0.02, "all samples have the mean size"


def totals_are_sums_over_the_public_rate(case) -> None:
    """In one partition and in several, for every way of sampling."""
    records = case.make_records(40, np.random.default_rng(6))
    for sampling, size in SAMPLINGS:
        plan = PrivacyPlan(clip_norm=case.clip_norm, **HARDLY, **sampling)
        data, model = in_partitions(records, size), case.make_model(privacy=plan, random_state=SEED)
        if beside := exposures(records):  # which sources do not take: all in one partition
            steps, sizes = steps_of(model, *arguments(records), **beside), [records.shape[0]]
            checks.as_in_a_fit(model, records)
        else:
            steps, sizes = steps_of(model, data), data.sizes
        check_steps(steps, model, records, plan, sizes, case.norm_factor)


def n_coordinates(blocks) -> int:
    """d: a symmetric matrix of n columns has n (n + 1) / 2 coordinates."""
    count = 0
    for block in blocks.values():
        if block.symmetric:
            *outer, n, _ = block.shape
            count += math.prod(outer) * n * (n + 1) // 2
        else:
            count += math.prod(block.shape)
    return count


def records_are_rounded_as_finely_as_stated(case) -> None:
    """Unit σC/2^m with 2^m ≥ 2⁹ σ √d and at least 2¹⁰; each coordinate to the nearest unit, a record by at most C/2¹⁰."""
    records = case.make_records(6, np.random.default_rng(7))
    for sigma in (0.5, 40.0):
        model, plan, _, posterior = checks.prepared(case, 2, noise="discrete")
        plan, phase = replace(plan, noise_multiplier=sigma), checks.last_phase(model)
        blocks = phase.blocks
        needed = 2.0**9 * sigma * math.sqrt(n_coordinates(blocks))
        unit = sigma * plan.clip_norm / 2.0 ** max(10, math.ceil(math.log2(needed)))
        for row in range(6):
            sums = engine.clipped_sum(
                model, phase, checks.as_data(records[[row]]), posterior, plan, plan.randomness(SEED), 1
            )
            exact = clipped(model, phase, records, row, posterior, plan.clip_norm, case.norm_factor)
            moved = np.concatenate(
                [_isometric(unit * sums[n] - _embedded(exact[n], b) / b.scale, b) for n, b in blocks.items()]
            )
            slack = 2e-5 * plan.clip_norm  # weights are in single precision
            assert np.abs(moved).max() <= 0.5 * unit + slack, "a record is not rounded to the nearest unit"
            assert np.linalg.norm(moved) <= plan.clip_norm / 2.0**10 + slack, "the lattice is coarser than stated"


def _embedded(array, block):
    """Entries off the diagonal of a symmetric block × √2."""
    if not block.symmetric:
        return array
    return array * np.where(np.eye(block.shape[-1], dtype=bool), 1.0, math.sqrt(2.0))


def _isometric(array, block):
    """Every coordinate once."""
    return np.ravel(array[..., *np.triu_indices(block.shape[-1])] if block.symmetric else array)


def noise_uses_every_point_of_the_lattice(case) -> None:
    """It has the stated deviation, is new in every draw, and is added to the total. In multiples of several units it could
    be so, too, but then it would rule out totals."""
    model, plan, *_ = checks.prepared(case, 2, noise="discrete", noise_multiplier=3.0)
    blocks, randomness, draws = checks.last_phase(model).blocks, plan.randomness(0), []
    lattice, rng = plan.lattice(blocks), np.random.default_rng(13)
    unit = 3.0 * plan.clip_norm / 2.0 ** max(10, math.ceil(math.log2(2.0**9 * 3.0 * math.sqrt(n_coordinates(blocks)))))
    while len(draws) < 60 or sum(map(len, draws)) < 4000:
        total = {name: rng.integers(-(10**6), 10**6, block.shape) for name, block in blocks.items()}
        total = {n: value + np.swapaxes(value, -1, -2) if blocks[n].symmetric else value for n, value in total.items()}
        noisy = plan.add_noise(total, blocks, randomness, 1)
        moved = {n: noisy[n] - lattice.values(total[n], block) for n, block in blocks.items()}
        assert all((np.swapaxes(moved[n], -1, -2) == moved[n]).all() for n in moved if blocks[n].symmetric)
        draws.append(np.concatenate([_isometric(_embedded(moved[n], b) / b.scale, b) for n, b in blocks.items()]))
    assert len(np.unique(draws, axis=0)) == len(draws), "draws are shared"
    units = np.concatenate(draws) / unit
    assert np.abs(units - np.rint(units)).max() < 1e-3, "the noise is not in the stated units"
    ratio = np.sqrt(np.mean(np.square(units))) * unit / plan.noise_std()
    assert abs(ratio - 1.0) < 5.0 / np.sqrt(2.0 * len(units)), f"noise is {ratio:.3f} of what the plan states"
    for divisor in (2, 16):
        counts = np.bincount(np.rint(units).astype(np.int64) % divisor, minlength=divisor)
        expected = len(units) / divisor
        assert np.abs(counts - expected).max() < 6.0 * math.sqrt(expected), "the noise leaves points of the lattice out"


ALL = [
    totals_are_sums_over_the_public_rate,
    records_are_rounded_as_finely_as_stated,
    noise_uses_every_point_of_the_lattice,
]
