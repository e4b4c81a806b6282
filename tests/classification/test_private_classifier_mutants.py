"""Deliberately broken classifiers. Each must be noticed by the check named beside it."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from tests.classification import test_private_classifier as tests
from tests.mutants import noticed
from tests.preprocessing.test_private_pipeline import the_fit_takes_the_whole_budget
from tests.preprocessing.test_private_table_mutants import rows_of_a_person_are_counted_one_by_one
from vips import PrivacyPlan
from vips.classification import encoder, tables
from vips.classification.encoder import ClassTables
from vips.core.ledger.run import LedgerRun
from vips.preprocessing import _budget, _learnt_columns


def the_norm_forgets_how_many_columns_there_are(patch):
    original = encoder.checked_plan
    patch.setattr(encoder, "checked_plan", lambda privacy, n: original(privacy, 1))


def one_cell_has_no_noise(patch):
    original = PrivacyPlan.add_noise

    def add_noise(self, total, *arguments):
        noisy = original(self, total, *arguments)
        if "counts" in total:
            noisy["counts"][-1, -1] = total["counts"][-1, -1]
        return noisy

    patch.setattr(PrivacyPlan, "add_noise", add_noise)


def columns_share_their_noise(patch):
    original = PrivacyPlan.add_noise
    first = {}

    def add_noise(self, total, *arguments):
        noisy = original(self, total, *arguments)
        if "counts" in total and total["counts"].shape[1] > 1:
            kept = first.setdefault(total["counts"].shape, noisy["counts"] - total["counts"])
            noisy["counts"] = total["counts"] + kept
        return noisy

    patch.setattr(PrivacyPlan, "add_noise", add_noise)


def log_odds_are_those_of_exact_tables(patch):
    original = tables.release_table

    def release_table(values, stated, place, n_classes, counting):
        return original(values, stated, place, n_classes, replace(counting, with_noise=np.asarray))

    patch.setattr(encoder, "release_table", release_table)


def the_scale_is_that_of_the_rows(patch):
    original = ClassTables.transform

    def features(self, X):
        features = original(self, X)
        longest = max(1e-9, float(np.linalg.norm(features, axis=1).max(initial=0.0)))
        return features / vars(self).setdefault("longest_", longest)  # that of the fitted rows

    patch.setattr(ClassTables, "transform", features)


def the_number_of_rows_is_kept(patch):
    original = ClassTables.fit

    def fit(self, X, y, **more):
        original(self, X, y, **more).class_counts_seen_ = len(X)
        return self

    patch.setattr(ClassTables, "fit", fit)


def labels_that_are_no_class_are_counted(patch):
    original = tables.class_counts

    def class_counts(codes, n_cells, place, n_classes, *arguments):
        return original(codes, n_cells, np.minimum(place, n_classes - 1), n_classes, *arguments)

    for module in (tables, encoder):
        patch.setattr(module, "class_counts", class_counts)


def classes_of_a_person_are_counted_one_by_one(patch):
    original = tables.class_counts

    def class_counts(codes, n_cells, place, n_classes, persons, *arguments):
        if persons._rows is None:
            return original(codes, n_cells, place, n_classes, persons, *arguments)
        counts = []
        for k in range(n_classes):
            part, kept = copy(persons), place[persons._rows] == k
            part._rows, part._persons = persons._rows[kept], persons._persons[kept]
            counts.append(original(codes, n_cells, place, n_classes, part, *arguments))
        return np.sum(counts, axis=0)

    for module in (tables, encoder):
        patch.setattr(module, "class_counts", class_counts)


def the_threshold_forgets_its_delta(patch):
    patch.setattr(_learnt_columns, "threshold", lambda delta, std, n_new: 1.0)


def the_threshold_forgets_that_a_person_has_several_categories(patch):
    original = _learnt_columns.threshold
    patch.setattr(_learnt_columns, "threshold", lambda delta, std, n_new: original(delta, std, max(1, n_new // 32)))


def fits_are_charged_at_the_end(patch):
    charge, record, late = LedgerRun.charge, LedgerRun.record, {}

    def recorded(self, step):
        if self.run in late:
            charge(self, *late.pop(self.run))
        record(self, step)

    patch.setattr(LedgerRun, "charge", lambda self, *arguments: late.update({self.run: arguments}))
    patch.setattr(LedgerRun, "record", recorded)


def hardly_anything_is_charged(patch):
    original = _budget.Budget.whole

    def whole(self, fit):
        plan = original(self, fit)
        return replace(plan, noise_multiplier=1e3 * plan.noise_multiplier)

    patch.setattr(_budget.Budget, "whole", whole)


test_mutants_are_noticed = noticed(
    (the_norm_forgets_how_many_columns_there_are, tests.test_tables_and_fit_together_are_within_the_budget,
     "at the stated ε"),
    (the_norm_forgets_how_many_columns_there_are, tests.test_an_attack_reaches_most_of_the_claim_and_never_exceeds_it,
     "claim is exceeded"),
    (one_cell_has_no_noise, tests.test_noise_is_fresh_of_the_stated_size_and_on_every_count, "no noise of its own"),
    (columns_share_their_noise, tests.test_noise_is_fresh_of_the_stated_size_and_on_every_count, "no noise of its own"),
    (log_odds_are_those_of_exact_tables, tests.test_all_else_is_a_function_of_noisy_numbers, "more than noisy counts"),
    (log_odds_are_those_of_exact_tables, tests.test_noise_is_fresh_of_the_stated_size_and_on_every_count, "no noise"),
    (the_scale_is_that_of_the_rows, tests.test_all_else_is_a_function_of_noisy_numbers, "features look at more"),
    (the_number_of_rows_is_kept, tests.test_all_else_is_a_function_of_noisy_numbers, "an attribute looks at more"),
    (labels_that_are_no_class_are_counted, tests.test_a_record_moves_the_tables_by_at_most_one_clip, "of no class moves"),
    (rows_of_a_person_are_counted_one_by_one, tests.test_a_record_moves_the_tables_by_at_most_one_clip, "a person moves"),
    (classes_of_a_person_are_counted_one_by_one, tests.test_a_record_moves_the_tables_by_at_most_one_clip,
     "both labels: a person moves"),
    (the_threshold_forgets_its_delta, tests.test_rare_categories_are_released_as_seldom_as_stated, "are released in"),
    (the_threshold_forgets_that_a_person_has_several_categories,
     tests.test_the_threshold_is_for_all_categories_of_a_record, "δ° is"),
    (the_fit_takes_the_whole_budget, tests.test_tables_and_fit_together_are_within_the_budget, "at the stated ε"),
)  # fmt: skip
test_mutants_are_noticed = pytest.mark.thorough(test_mutants_are_noticed)
test_charges_that_are_late_or_too_small_are_noticed = noticed(
    (fits_are_charged_at_the_end, tests.check_a_fit_is_charged_once_before_a_value_is_read, "before the charge"),
    (hardly_anything_is_charged, tests.check_a_fit_is_charged_once_before_a_value_is_read, "not that of both parts"),
)
