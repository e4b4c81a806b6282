"""Laws that reach what small tables in a first step do not: every phase of a fit, persons in pieces, and wide tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.laws.cases import WIDE_CASES, arguments, exposures
from tests.laws.checks import (
    FULL,
    SENSITIVITY_FACTOR,
    Recorder,
    as_data,
    as_in_a_fit,
    as_vector,
    fit,
    norms_of_records_hold,
    stack,
    stacked,
    with_extremes,
)
from vips import PrivacyWarning
from vips.core import engine
from vips.core.execution.partitions import has_exact_rows
from vips.core.phases import FitPhase, phases_of, step_of
from vips.core.posteriors import posterior_arrays
from vips.data import Sequences
from vips.door import Beside, persons_of, with_exposures

__all__ = ["ALL", "phases"]

N_STEPS = 24  # of a fit that has all phases of its model
LARGEST = {"gaussian": 1.0 + 1e-6, "discrete": SENSITIVITY_FACTOR}  # movement of a sum, in units of C
N_ROWS = 300  # of a person, in pieces of 240


def phases(case) -> Iterator[tuple[object, FitPhase, object]]:
    """A model, and E-steps of all phases of a private fit: the first two of each phase, and one after 16 steps.

    For wide tables, the first of each phase is enough.
    """
    model = case.make_model(privacy=replace(FULL, clip_norm=case.clip_norm, n_steps=N_STEPS), random_state=0)
    records = case.make_records(12, np.random.default_rng(4))
    recorder = Recorder(model)
    fit(model, records)
    as_in_a_fit(model, records)
    phases, seen = phases_of(model, N_STEPS), set()
    for i, posterior in enumerate(recorder.posteriors[:-1]):
        phase, s = step_of(phases, i + 1)
        if phase.name not in seen or (s == 2 and case not in WIDE_CASES) or i == 16:
            seen.add(phase.name)
            yield model, phase, posterior


def what_every_phase_sums(case):
    """The five laws below, with the E-steps of one fit."""
    steps = list(phases(case))
    steps_beyond_the_largest_length_count_for_nothing(case, steps)
    norms_hold_in_every_phase(case, steps)
    a_record_has_bits_of_its_own(case, steps)
    a_record_moves_the_sum_by_at_most_one_clip(case, steps)
    a_person_moves_the_sum_by_at_most_one_clip(case, steps)  # last: it sets the chunk size


def steps_beyond_the_largest_length_count_for_nothing(case, steps=None):
    """Steps of a sequence beyond the largest length count for nothing, to the last bit."""
    records = case.make_records(4, np.random.default_rng(0))
    for model, phase, posterior in steps or phases(case) if isinstance(records, Sequences) else ():
        values = np.resize(records.values, (3 * model.max_length, *records.values.shape[1:]))
        sums, expected = (
            phase.statistics_of(model, Sequences(values[:n], [0, n]), posterior).weighted_sum(np.ones(1))
            for n in (len(values), model.max_length)
        )
        for name, value in sums.items():
            np.testing.assert_array_equal(value, expected[name], err_msg="a sequence counts beyond its largest length")


def norms_hold_in_every_phase(case, steps=None):
    records = with_extremes(case, case.make_records(20, np.random.default_rng(0)))
    for model, phase, posterior in steps or phases(case):
        norms_of_records_hold(case, model, records, posterior, phase)


def a_record_has_bits_of_its_own(case, steps=None):
    """Where models promise it: norm and share, among hostile records, too."""
    records = case.make_records(8, np.random.default_rng(3))
    records = records if case in WIDE_CASES else stacked(records, case.hostile.values())
    for model, phase, posterior in steps or phases(case):
        if not has_exact_rows(model):
            continue
        valid = records[model.valid_records(records)]
        with np.errstate(all="ignore"):
            together, weights = phase.statistics_of(model, valid, posterior), 0.3 * np.eye(valid.shape[0])
            norms = together.norms(phase.blocks)
            for i, weight in enumerate(weights):
                alone = phase.statistics_of(model, valid[[i]], posterior)
                share, other = alone.weighted_sum(weight[[i]]), together.weighted_sum(weight)
                np.testing.assert_array_equal(alone.norms(phase.blocks), norms[[i]], err_msg="a norm of another record")
                for name, value in share.items():
                    np.testing.assert_array_equal(other[name], value, err_msg="another one in company")


def a_record_moves_the_sum_by_at_most_one_clip(case, steps=None):
    """In every phase; rounded to the lattice or not in the first step of each."""
    records, rounded = case.make_records(8, np.random.default_rng(2)), set()
    for model, phase, posterior in steps or phases(case):
        for noise in ("gaussian",) if phase.name in rounded else ("gaussian", "discrete"):
            rounded.add(phase.name)
            without = _sum(case, model, phase, as_data(records), posterior, noise)
            for name, row in [("ordinary", case.extreme), *case.hostile.items()]:
                moved = np.linalg.norm(
                    _sum(case, model, phase, as_data(stack(records, row)), posterior, noise) - without
                )
                assert moved <= case.clip_norm * LARGEST[noise], (
                    f"a record with {name} entries moved the sum by {moved}"
                )


def a_person_moves_the_sum_by_at_most_one_clip(case, steps=None):
    """With hundreds of rows, all alike or all different, in every phase, rounded to the lattice or not."""
    different = case.make_records(N_ROWS, np.random.default_rng(1))
    alike = different[np.full(N_ROWS, N_ROWS - 1)]
    ids = np.minimum(np.arange(N_ROWS), 5)
    for model, phase, posterior in steps or phases(case):
        model.chunk_size = 240
        for rows, noise in ((different, "gaussian"), (alike, "gaussian"), (alike, "discrete")):
            sums = [
                _sum(case, model, phase, _by_persons(model, rows[:n], ids[:n]), posterior, noise) for n in (5, N_ROWS)
            ]
            moved = np.linalg.norm(sums[1] - sums[0])
            assert moved <= case.clip_norm * LARGEST[noise], f"a person of {N_ROWS} rows moves the sum by {moved}"


def _by_persons(model, rows, ids):
    X, *y = arguments(rows)
    vars(model).pop("takes_one_label", None)
    model.beside = Beside(**exposures(rows))
    return persons_of(model, with_exposures(model, model.records_of(X, *(y or [None]))), ids)


def _sum(case, model, phase, data, posterior, noise) -> np.ndarray:
    """The engine's sum as one vector of scaled, isometric coordinates, in units of the statistics."""
    most = N_ROWS if noise == "discrete" and data.has_groups else None
    plan, blocks = replace(FULL, clip_norm=case.clip_norm, noise=noise, max_rows_per_group=most), phase.blocks
    total = engine.clipped_sum(model, phase, data, posterior, plan, plan.randomness(0), 1)
    if noise == "discrete":
        lattice = plan.lattice(blocks)
        total = {name: lattice.values(total[name], block) for name, block in blocks.items()}
    return as_vector({name: np.asarray(total[name], float) / block.scale for name, block in blocks.items()}, blocks)


def private_fits_take_any_records(case):
    """Hostile ones of persons, and none at all: in silence, and with a posterior of numbers."""
    hostile = stacked(case.make_records(6, np.random.default_rng(0)), case.hostile.values())
    for records, noise, size, most_rows in ((hostile, "discrete", 0.1, 10), (hostile[:0], "gaussian", 20.0, None)):
        changes = {"noise_multiplier": size, "noise": noise, "max_rows_per_group": most_rows, "n_steps": N_STEPS}
        model = case.make_model(privacy=replace(FULL, clip_norm=case.clip_norm, **changes), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", PrivacyWarning)  # of released totals
            ids = np.arange(records.shape[0]) % 7 if most_rows else None
            model.fit(*arguments(records), **exposures(records), groups=ids)
        arrays = posterior_arrays(model.last_posterior_)
        arrays.pop("log_likelihoods", None)  # of as many iterations as there were
        assert all(np.isfinite(value).all() for value in arrays.values()), "a private fit has no numbers"


ALL = [what_every_phase_sums, private_fits_take_any_records]
