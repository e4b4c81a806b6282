"""Deliberately broken counts. Each must be noticed by the check named beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests import test_counting as tests
from tests.mutants import noticed
from tests.preprocessing.test_private_table_mutants import fits_are_charged_at_the_end
from vips import PrivacyPlan, counting
from vips.core.ledger.run import LedgerRun
from vips.core.records.source import PartitionedSource
from vips.data._grouped import mapped


def rows_are_counted_where_persons_are_protected(patch):
    patch.setattr(counting, "_number", lambda X, groups: X.n_records if hasattr(X, "n_records") else len(X))


def rows_on_disk_are_counted_where_persons_are_protected(patch):
    rows = property(lambda self: sum(mapped(partition.files["starts"])[-1] for partition in self.partitions))
    patch.setattr(PartitionedSource, "n_records", rows)


def noise_is_half_as_large(patch):
    original = LedgerRun.release_once

    def release_once(charge, plan, totals):
        return original(charge, replace(plan, noise_multiplier=0.5 * plan.noise_multiplier), totals)

    patch.setattr(LedgerRun, "release_once", release_once)


def noise_has_one_sign(patch):
    original = LedgerRun.release_once

    def release_once(charge, plan, totals):
        return {"count": np.maximum(totals["count"], original(charge, plan, totals)["count"])}

    patch.setattr(LedgerRun, "release_once", release_once)


def noise_is_seeded(patch):
    original = PrivacyPlan.randomness
    patch.setattr(PrivacyPlan, "randomness", lambda plan, state: original(replace(plan, reproducible_noise=True), 3))


def the_length_of_a_rounded_record_is_forgotten(patch):
    original = counting._with_noise

    def with_noise(n_records, plan, charge):
        lattice = plan.lattice(counting._BLOCKS)
        share = lattice.rounded(np.array(1.0), counting._BLOCKS["count"])
        noisy, std = original(n_records, plan, charge)
        return noisy * float(lattice.values(share, counting._BLOCKS["count"])), std

    patch.setattr(counting, "_with_noise", with_noise)


def the_sum_is_rounded_in_place_of_each_record(patch):
    """A record then moves it by one unit more, or less, than another."""

    def with_noise(n_records, plan, run):
        rounded = plan.lattice(counting._BLOCKS).rounded(np.array(float(n_records)), counting._BLOCKS["count"])
        return run.release_once(plan, {"count": rounded})["count"], 1.0

    patch.setattr(counting, "_with_noise", with_noise)


PERSONS = tests.test_a_person_moves_the_count_by_one
CHARGE = tests.test_a_count_is_charged_before_the_records_are_counted
test_mutants_are_noticed = noticed(
    (rows_are_counted_where_persons_are_protected, PERSONS, "a person moves the count by 40"),
    (rows_on_disk_are_counted_where_persons_are_protected, PERSONS, "rows of persons are counted"),
    (fits_are_charged_at_the_end, CHARGE, "before the charge"),
    (noise_is_half_as_large, lambda: tests.test_noise_is_as_stated("gaussian", 1000), "another law"),
    (noise_has_one_sign, lambda: tests.test_noise_is_as_stated("gaussian", 300), "another law"),
    (the_length_of_a_rounded_record_is_forgotten, lambda: tests.test_noise_is_as_stated("discrete", 300), "another law"),
    (noise_is_seeded, tests.test_noise_is_fresh, "draws are shared"),
    (the_sum_is_rounded_in_place_of_each_record, tests.test_a_record_moves_the_lattice_by_its_units, "by one of"),
)  # fmt: skip
