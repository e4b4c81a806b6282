"""Deliberately broken copies of the regressions. Each must be noticed by the law named beside it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.laws import checks
from tests.laws.cases import CASES
from tests.mutants import check_notices, of_laws
from vips import BayesianLogisticRegression, PrivacyPlan, Records
from vips._compute.rowwise import row_norms
from vips.models.regression import contract as regression
from vips.models.regression import statistics as regression_statistics
from vips.models.regression.coordinates import Coordinates
from vips.models.regression.likelihoods import Classes
from vips.models.regression.statistics import RegressionStatistics
from vips.sums import Quadratic
from vips.sums import kernels as regression_kernels
from vips.sums import regressions as regression_norms

BY_NAME = {case.name: case for case in CASES}
THREE, MOVED = "logistic sparse, three classes", "logistic, moved"


def precision_not_in_the_norm(patch):
    patch.setattr(RegressionStatistics, "_outer_norms", lambda self: np.zeros(len(self._lengths)))


def intercept_not_in_the_norm(patch):
    original = regression_statistics.design_rows

    def mutant(X, max_norm, intercept, n_stored=None):
        rows, lengths = original(X, max_norm, intercept, n_stored)
        return rows, np.sqrt(np.maximum(lengths**2 - intercept**2, 0.0))

    patch.setattr(regression, "design_rows", mutant)


def cross_not_in_the_norm(patch):
    original = regression_norms.Lengths.norms

    def mutant(self, residual, precision, scale):
        return original(self, residual, precision, {name: value for name, value in scale.items() if name != "cross"})

    patch.setattr(regression_norms.Lengths, "norms", mutant)


def norm_of_the_first_output(patch):
    patch.setattr(regression_norms, "row_norms", lambda array: np.abs(array[:, 0]))


def one_record_sets_the_scale(patch):
    """Features divided by the largest norm, as in the paper."""
    original = regression.design_rows

    def mutant(X, max_norm, intercept, n_stored=None):
        rows, lengths = original(X, max_norm, intercept, n_stored)
        largest = max(np.max(lengths, initial=0.0), 1e-9)
        return rows / largest, lengths / largest

    patch.setattr(regression, "design_rows", mutant)


def centred_at_the_chunk(patch):
    original = regression.design_rows

    def mutant(X, max_norm, intercept, n_stored=None):
        rows, lengths = original(X, max_norm, intercept, n_stored)
        return rows - rows.mean(axis=0), lengths

    patch.setattr(regression, "design_rows", mutant)


def lengths_before_rows_are_moved(patch):
    patch.setattr(Coordinates, "rows", lambda self, rows: ((rows - self.shift) * self.scale, row_norms(rows)))


def moved_to_the_mean_of_the_chunk(patch):
    original = Coordinates.rows
    patch.setattr(Coordinates, "rows", lambda self, rows: original(self, rows - rows.mean(axis=0) + self.shift))


def coordinates_of_the_records(patch):
    """Scaled by the longest row that the phase has seen."""
    original = BayesianLogisticRegression.expected_statistics

    def mutant(self, records, posterior):
        statistics = original(self, records, posterior)
        self._longest = np.nanmax(statistics._lengths, initial=0.1)
        return statistics

    def learnt(self, average, noise_std, previous):
        posterior = moved(self, average, noise_std, previous)
        size = vars(self).get("_longest", 1.0)
        posterior.coordinates = Coordinates(posterior.coordinates.shift, posterior.coordinates.scale * size)
        return posterior

    moved = BayesianLogisticRegression.moved
    patch.setattr(BayesianLogisticRegression, "expected_statistics", mutant)
    patch.setattr(BayesianLogisticRegression, "moved", learnt)


def bad_rows_kept(patch):
    """A row that overflows becomes 0 · NaN in the product instead of being left out."""
    patch.setattr(
        RegressionStatistics,
        "_present",
        lambda self, weights: (self._rows, weights, self.residual, self.precision),
    )


def undeclared_label_raises(patch):
    original = Classes.terms

    def mutant(self, y):
        if not np.isin(y, self.labels).all():
            raise ValueError("unknown label")
        return original(self, y)

    patch.setattr(Classes, "terms", mutant)


def classes_from_the_data(patch):
    original = BayesianLogisticRegression.records_of

    def mutant(self, X, y):
        self.classes_ = np.unique(y)
        return original(self, X, y)

    patch.setattr(BayesianLogisticRegression, "records_of", mutant)


def step_size_by_the_residuals(patch):
    """A trust region on the size of the private statistics."""
    original = BayesianLogisticRegression.expected_statistics

    def mutant(self, records, posterior):
        statistics = original(self, records, posterior)
        self._pace = 1.0 / (1.0 + statistics.norms(self.blocks()).sum())
        return statistics

    patch.setattr(BayesianLogisticRegression, "expected_statistics", mutant)
    patch.setattr(BayesianLogisticRegression, "step_size", lambda self, t: self.__dict__.get("_pace", 1.0))


def off_diagonal_rounded_without_root_two(patch):
    original = regression_kernels.add_outer

    def mutant(indptr, indices, data, weights, unit, first, last, total):
        if unit is None:
            return original(indptr, indices, data, weights, unit, first, last, total)
        for n in range(len(indptr) - 1):
            for a in range(indptr[n], indptr[n + 1]):
                if first <= indices[a] < last:
                    for b in range(indptr[n], a + 1):
                        total[indices[a], indices[b]] += np.rint(weights[n] * data[a] * data[b] / unit)

    patch.setattr(regression_kernels, "add_outer", mutant)


def constant_not_in_the_norm_of_moments(patch):
    """Nor the target."""
    patch.setattr(
        Quadratic,
        "norms",
        lambda self, blocks: np.square(np.linalg.norm(self._rows[:, :-2], axis=1)) / blocks[self.names[0]].scale,
    )


MUTANTS = [
    (
        constant_not_in_the_norm_of_moments,
        "norms_are_joint_and_never_too_small",
        "linear",
        "a norm is smaller than the record",
    ),
    (
        constant_not_in_the_norm_of_moments,
        "neighbours_stay_within_the_sensitivity",
        "linear",
        "moved the sum by more than C",
    ),
    (precision_not_in_the_norm, "norms_are_joint_and_never_too_small", "logistic", "a norm is smaller than the record"),
    (
        precision_not_in_the_norm,
        "neighbours_stay_within_the_sensitivity",
        "logistic",
        "moved the sum by more than C",
    ),
    (intercept_not_in_the_norm, "norms_are_joint_and_never_too_small", "logistic", "a norm is smaller than the record"),
    (
        intercept_not_in_the_norm,
        "neighbours_stay_within_the_sensitivity",
        "logistic",
        "moved the sum by more than C",
    ),
    (
        cross_not_in_the_norm,
        "norms_are_joint_and_never_too_small",
        "logistic diagonal",
        "a norm is smaller than the record",
    ),
    (norm_of_the_first_output, "norms_are_joint_and_never_too_small", THREE, "a norm is smaller than the record"),
    (
        norm_of_the_first_output,
        "neighbours_stay_within_the_sensitivity",
        THREE,
        "moved the sum by more than C",
    ),
    (one_record_sets_the_scale, "records_do_not_see_each_other", "logistic", "another one in company"),
    (centred_at_the_chunk, "records_do_not_see_each_other", "logistic", "another one in company"),
    (lengths_before_rows_are_moved, "norms_are_joint_and_never_too_small", MOVED, "a norm is smaller than the record"),
    (lengths_before_rows_are_moved, "neighbours_stay_within_the_sensitivity", MOVED, "moved the sum by more than C"),
    (moved_to_the_mean_of_the_chunk, "records_do_not_see_each_other", MOVED, "another one in company"),
    (coordinates_of_the_records, "everything_else_is_public", MOVED, "something besides the noisy totals"),
    (bad_rows_kept, "defective_records_change_nothing_else", "binomial", "destroyed the sum"),
    (
        undeclared_label_raises,
        "defective_records_change_nothing_else",
        "logistic",
        "on a record: ValueError: unknown label",
    ),
    (classes_from_the_data, "everything_else_is_public", "logistic", "an error that depends on a record"),
    (step_size_by_the_residuals, "everything_else_is_public", "logistic", "something besides the noisy totals"),
    (
        off_diagonal_rounded_without_root_two,
        "hardened_sums_are_exact",
        "logistic sparse",
        "the rounded sum is not the sum",
    ),
]


@of_laws(MUTANTS)
def test_mutant_is_noticed(mutant, law, case, says, monkeypatch):
    check_notices(lambda: getattr(checks, law)(BY_NAME[case]), mutant, monkeypatch, says)


def _clip_of_repeated_columns():
    """A row that stores one column 50 times is one vector, of norm 50."""
    case = BY_NAME["logistic sparse diagonal"]
    model, plan, _, posterior = checks.prepared(case, 2)
    X = sp.csr_array((np.full(50, 0.5), np.zeros(50, dtype=np.int32), [0, 50]), shape=(1, 5))
    total = checks.clipped_sum(case, model, plan, Records(X, np.ones(1)), posterior)
    assert np.linalg.norm(total) <= plan.clip_norm * (1.0 + 1e-9), "a row counts for more than one clip"


def test_columns_stored_twice_do_not_escape_the_clip(monkeypatch):
    _clip_of_repeated_columns()
    monkeypatch.setattr(sp.csr_array, "sum_duplicates", lambda self: None)
    with pytest.raises(AssertionError, match="more than one clip"):
        _clip_of_repeated_columns()


def test_columns_that_do_not_exist_make_a_record_defective():
    plan = PrivacyPlan(noise_multiplier=1e-9, sampling_rate=1.0, n_steps=2)
    X = sp.csr_array(np.eye(3))
    torn = sp.csr_array((np.ones(4), np.array([0, 1, 2, 2], dtype=np.int32), [0, 1, 2, 3, 4]), shape=(4, 3))
    torn.indices[3] = 1_000_000
    fits = [
        BayesianLogisticRegression(privacy=plan, max_norm=1.0, fit_intercept=False).fit(rows, labels)
        for rows, labels in ((X, [1.0, 0.0, 1.0]), (torn, [1.0, 0.0, 1.0, 1.0]))
        for labels in [np.array(labels)]
    ]
    np.testing.assert_allclose(fits[0].last_posterior_.mean, fits[1].last_posterior_.mean, rtol=1e-6)
