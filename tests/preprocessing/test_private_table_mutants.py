"""Deliberately broken private encoders. Each must be noticed by the check named beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.mutants import noticed
from tests.preprocessing import test_private_table as tests
from vips.core.ledger.ledger import PrivacyLedger
from vips.core.ledger.run import LedgerRun
from vips.preprocessing import _learnt_columns, _table
from vips.preprocessing._learnt_columns import Persons


def rows_of_a_person_are_counted_one_by_one(patch):
    original = Persons.totals

    def totals(self, cells, n_cells, most=None):
        if self._rows is None or most is not None:
            return original(self, cells, n_cells, most)
        return np.bincount(cells[self._rows], minlength=n_cells).astype(float)

    patch.setattr(Persons, "totals", totals)


def a_person_may_have_any_number_of_categories(patch):
    original = Persons.totals
    patch.setattr(Persons, "totals", lambda self, cells, n_cells, most=None: original(self, cells, n_cells))


def the_threshold_forgets_that_a_record_has_several(patch):
    original = _learnt_columns.threshold
    for module in (_learnt_columns, tests):
        patch.setattr(module, "threshold", lambda delta, std, n_new: original(delta, std, 1))


def the_threshold_forgets_the_record_itself(patch):
    original = _learnt_columns.threshold
    for module in (_learnt_columns, tests):
        patch.setattr(module, "threshold", lambda delta, std, n_new: original(delta, std, n_new) - 1.0)


def categories_are_released_at_half_the_threshold(patch):
    original = _learnt_columns.learn_column

    def learn_column(values, kind, counting):
        return original(values, kind, replace(counting, cut=0.5 * counting.cut))

    patch.setattr(_table, "learn_column", learn_column)


def bounds_look_at_the_values(patch):
    original = _learnt_columns.learn_column

    def learn_column(values, *arguments, **named):
        learnt = original(values, *arguments, **named)
        largest = float(np.max(np.asarray(values, dtype=float)))
        return lambda: learnt()._replace(declaration=(learnt().declaration[0], largest))

    patch.setattr(_table, "learn_column", learn_column)


def fits_are_charged_at_the_end(patch):
    original = PrivacyLedger.begin_event

    class Late(LedgerRun):
        def __init__(self, ledger, *arguments, **named):
            super().__init__(ledger)
            self.begin = lambda: original(ledger, *arguments, **named)

        def record(self, step):
            self.run = self.begin().run

        def close(self):
            pass

    patch.setattr(PrivacyLedger, "begin_event", Late)


def failed_fits_stay_charged(patch):
    patch.setattr(LedgerRun, "close", lambda self: None)


CHARGE = tests.test_a_fit_is_charged_before_a_value_is_read
test_mutants_are_noticed = noticed(
    (rows_of_a_person_are_counted_one_by_one, tests.test_a_record_moves_the_counts_by_at_most_one_clip, "moves the"),
    (a_person_may_have_any_number_of_categories, tests.test_a_record_has_few_categories_of_its_own, "too many cells"),
    (the_threshold_forgets_that_a_record_has_several, tests.test_the_threshold_hides_what_one_record_adds, "is released"),
    (the_threshold_forgets_that_a_record_has_several, tests.test_rare_categories_are_released_as_seldom_as_stated,
     "are released"),
    (the_threshold_forgets_the_record_itself, tests.test_the_threshold_hides_what_one_record_adds, "is released"),
    (categories_are_released_at_half_the_threshold, tests.test_rare_categories_are_released_as_seldom_as_stated,
     "are released"),
    (bounds_look_at_the_values, tests.test_what_is_learnt_is_a_function_of_noisy_counts, "more than noisy counts"),
    (fits_are_charged_at_the_end, CHARGE, "before the charge"),
    (failed_fits_stay_charged, CHARGE, "stays charged"),
)  # fmt: skip
