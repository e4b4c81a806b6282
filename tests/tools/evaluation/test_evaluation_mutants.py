"""Deliberately broken evaluations. Each must be noticed by the check named beside it."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.mutants import noticed
from tests.preprocessing.test_private_table_mutants import fits_are_charged_at_the_end
from tests.tools.evaluation import test_estimates, test_evaluate
from vips.tools.evaluation import estimates, evaluate


def rows_of_a_person_add_up(patch):
    original = evaluate._histogram
    patch.setattr(evaluate, "_histogram", lambda cells, persons, plan: original(cells, None, plan))


def rows_without_a_probability_count(patch):
    def cells(predicted, place, positive):
        return (place == positive) * evaluate.N_BINS + np.searchsorted(evaluate.EDGES, predicted[:, positive])

    patch.setattr(evaluate, "_cells", cells)


def the_sum_is_rounded_and_not_the_persons(patch):
    original = evaluate._histogram
    without = test_evaluate.ALMOST_NONE
    patch.setattr(evaluate, "_histogram", lambda cells, persons, plan: original(cells, persons, without))


def a_call_without_a_prediction_drops_all_its_rows(patch):
    def predict(predict, X, rows, places, out):
        try:
            out[rows[places]] = predict(X[rows[places]])
        except ValueError:
            out[rows[places]] = np.nan

    patch.setattr(evaluate, "_predict", predict)


def calls_have_as_many_rows_as_there_are(patch):
    original = evaluate._rows
    patch.setattr(evaluate, "_rows", lambda X, rows: original(X, np.unique(rows)))


def noise_is_no_part_of_the_interval(patch):
    for name in ("linear_score", "area_under_curve"):
        original = getattr(estimates, name)
        exact = lambda z, variance, *more, original=original: original(z, 1e-9 * variance, *more)  # noqa: E731
        patch.setattr(test_estimates, name, exact)


def the_sample_is_no_part_of_the_interval(patch):
    def linear_score(z, variance, c, highest, level):
        value = (c * z).sum() / z.sum()
        half = 1.96 * np.sqrt(variance * ((c - value) ** 2).sum()) / z.sum()
        return estimates.Estimate(value, value - half, value + half)

    patch.setattr(test_estimates, "linear_score", linear_score)


test_mutants_are_noticed = noticed(
    (rows_of_a_person_add_up, partial(test_evaluate.test_a_person_moves_the_sum_by_one, 10**4), "a person moves"),
    (rows_without_a_probability_count, test_evaluate.test_a_record_moves_one_cell, "a record of nan moves"),
    (the_sum_is_rounded_and_not_the_persons, test_evaluate.test_a_person_moves_the_lattice_by_one, "whole numbers"),
    (a_call_without_a_prediction_drops_all_its_rows, test_evaluate.test_rows_that_raise_change_no_others, "changes others"),
    (calls_have_as_many_rows_as_there_are, test_evaluate.test_rows_that_raise_change_no_others, "changes others"),
    (noise_is_no_part_of_the_interval, lambda: test_estimates.test_intervals_hold(test_estimates.CASES[0]), "too seldom"),
    (the_sample_is_no_part_of_the_interval, lambda: test_estimates.test_intervals_hold(test_estimates.CASES[1]),
     "too seldom"),
    (fits_are_charged_at_the_end, test_evaluate.test_it_is_charged_before_a_row_is_read, "before the charge"),
)  # fmt: skip
