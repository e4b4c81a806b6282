"""Deliberately broken copies of the regressions. Each must be noticed by the law named beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tests.laws import checks
from tests.laws.cases import BY_NAME
from tests.mutants import of_laws
from vips import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    MixedLogisticRegression,
    Records,
)
from vips.core.exact.rowwise import row_norms
from vips.core.sums import Joint, Quadratic, outer
from vips.core.sums import kernels as regression_kernels
from vips.core.sums import regressions as regression_sums
from vips.core.sums.outer import Outer, RowSum
from vips.core.sums.regressions import RegressionSums, SquaresOfShares
from vips.models import _search
from vips.models._coordinates import Coordinates, Zooms
from vips.models.regression import contract as regression
from vips.models.regression.likelihoods import Classes
from vips.models.regression.mixed.contract import MixedRegression
from vips.models.second_moments import linear_regression

THREE, SEARCHED = "logistic sparse, three classes", "logistic, searched"
LINEAR = "linear, searched"
COUNTS, ZOOM = "counts with exposures, searched", "logistic, zoom"
LAST_ZOOM, EXPOSED_ZOOM = "negative binomial sparse, last zoom", "counts with exposures, last zoom"


def not_in_the_norm(name, patch):
    """The block of this name has no length."""
    for form in (RowSum, Outer, Quadratic):
        original = form.lengths

        def mutant(self, blocks, original=original):
            return original(self, blocks) * (self.names != (name,))

        patch.setattr(form, "lengths", mutant)


def precision_not_in_the_norm(patch):
    not_in_the_norm("precision", patch)


def intercept_not_in_the_norm(patch):
    original = RegressionSums.__init__

    def mutant(self, rows, *others, **named):
        rows.norms = row_norms(rows.values[:, :-1])[None]
        original(self, rows, *others, **named)

    patch.setattr(RegressionSums, "__init__", mutant)


def cross_not_in_the_norm(patch):
    not_in_the_norm("cross", patch)


def bends_not_in_the_norm(patch):
    not_in_the_norm("bends", patch)


def tilts_not_in_the_norm(patch):
    not_in_the_norm("tilt", patch)


def spread_not_in_the_norm(patch):
    """At a scale at which it is most of the norm."""
    patch.setattr(linear_regression, "_SPREAD", 0.05)
    not_in_the_norm("spread", patch)


def squares_not_in_the_norm(patch):
    patch.setattr(SquaresOfShares, "norms_at", lambda self, scores, *_, **named: 0.0 * scores)


def squares_in_the_norm_without_the_size(patch):
    """As if they came divided by C like scores, not by C² and times C."""
    original = SquaresOfShares.norms_at

    def mutant(self, scores, blocks, is_whole):
        size = blocks["squares"].scale / (self._unit * regression_sums.SQUARES_SCALE)
        return size * original(self, scores, blocks, is_whole)

    patch.setattr(SquaresOfShares, "norms_at", mutant)


def squares_of_scores_that_are_not_divided(patch):
    original = SquaresOfShares.weighted_sum

    def mutant(self, weights):
        return {name: value * self._unit**2 for name, value in original(self, weights).items()}

    patch.setattr(SquaresOfShares, "weighted_sum", mutant)


def squares_without_the_size(patch):
    """Scores were divided by C: their squares are neither C² nor C times what they are."""
    original = SquaresOfShares.weighted_sum

    def mutant(self, weights):
        return {name: value / self._unit for name, value in original(self, weights).items()}

    patch.setattr(SquaresOfShares, "weighted_sum", mutant)


def squares_have_one_weight(patch):
    """That of the engine, and not another one: w s² is not bounded by the clip of s."""
    original = SquaresOfShares.weighted_sum
    patch.setattr(SquaresOfShares, "weighted_sum", lambda self, weights: original(self, np.sqrt(weights)))


def the_records_own_label(patch):
    patch.setattr(regression.AugmentedRegression, "_labels", None)


def rates_not_in_the_norm(patch):
    patch.setattr(
        Joint, "norms", lambda self, blocks: self.forms[0].norms({name: blocks[name] for name in self.forms[0].names})
    )


def norm_of_the_first_output(patch):
    patch.setattr(outer, "row_norms", lambda array: np.abs(array[:, 0]))


def one_record_sets_the_scale(patch):
    """Features divided by the largest norm, as in the paper."""
    original = regression.design_rows

    def mutant(X, max_norm, intercept):
        rows = original(X, max_norm, intercept)
        return rows / max(np.max(row_norms(rows), initial=0.0), 1e-9)

    patch.setattr(regression, "design_rows", mutant)


def centred_at_the_chunk(patch):
    original = regression.design_rows

    def mutant(X, max_norm, intercept):
        rows = original(X, max_norm, intercept)
        return rows - rows.mean(axis=0)

    patch.setattr(regression, "design_rows", mutant)


def moved_to_the_mean_of_the_chunk(patch):
    original = Coordinates.rows
    patch.setattr(Coordinates, "rows", lambda self, rows: original(self, rows - rows.mean(axis=0) + self.shift))


def remembering(patch, remember):
    """Call ``remember(model, statistics)`` for every chunk of zooms and scores."""
    for name in ("_scores", "_moments"):
        original = getattr(regression.AugmentedRegression, name)

        def mutant(self, *arguments, original=original):
            statistics = original(self, *arguments)
            remember(self, statistics)
            return statistics

        patch.setattr(regression.AugmentedRegression, name, mutant)


def coordinates_of_the_records(patch):
    """Scaled by the longest row that a zoom has seen."""
    longest, original = [1.0], Zooms.after
    remembering(
        patch, lambda model, statistics: longest.append(np.nanmax(getattr(statistics, "rows", 1.0), initial=0.1))
    )

    def mutant(self, *arguments, **named):
        zooms = original(self, *arguments, **named)
        scale = zooms.coordinates.scale * longest[-1]
        return replace(zooms, coordinates=Coordinates(zooms.coordinates.shift, scale))

    patch.setattr(Zooms, "after", mutant)


def size_of_the_records(patch):
    """C so that the longest row fits."""
    longest = [1.0]
    remembering(
        patch, lambda model, statistics: longest.append(np.nanmax(getattr(statistics, "rows", 1.0), initial=0.1))
    )
    patch.setattr(regression.AugmentedRegression, "_size_of", lambda self, *arguments: 0.5 * longest[-1])


def size_of_the_chunk(patch):
    original = regression.scores_at

    def mutant(rows, y, psi, likelihood, size, *others):
        return original(rows, y, psi, likelihood, np.max(rows, initial=0.1), *others)

    patch.setattr(regression, "scores_at", mutant)


def intercept_at_the_records_mean_exposure(patch):
    means, rates = [1.0], BayesianNegativeBinomialRegression._rates

    def mutant(self, y):
        means.append(np.nanmean(y[:, 1]) if len(y) else 1.0)
        return rates(self, y)

    patch.setattr(BayesianNegativeBinomialRegression, "_rates", mutant)
    patch.setattr(
        BayesianNegativeBinomialRegression, "_intercept_at", lambda self, rates, noise_std: -np.log(means[-1])
    )


def remembering_rows(patch, owner, name, look):
    """What ``look`` says of the statistics of every chunk that this method of a model computes."""
    original, seen = getattr(owner, name), []

    def mutant(self, *arguments):
        statistics = original(self, *arguments)
        seen.append(look(statistics))
        return statistics

    patch.setattr(owner, name, mutant)
    return seen


def coordinates_of_mixed_effects_from_exact_totals(patch):
    moments = lambda statistics: statistics.arrays["moments"].sum(axis=0)  # noqa: E731
    seen, original = remembering_rows(patch, MixedRegression, "_moments_and_outcomes", moments), Zooms.after
    patch.setattr(Zooms, "after", lambda self, _, *others, **named: original(self, seen[-1], *others, **named))


def intercept_of_mixed_effects_by_the_number_of_rows(patch):
    """Released outcomes over rows that were counted without noise."""
    seen = remembering_rows(patch, MixedRegression, "_moments_and_outcomes", lambda rows: len(rows.arrays["outcome"]))
    counts, after, intercept = [], Zooms.after, MixedLogisticRegression._intercept_at

    def noted(self, *arguments, **named):
        zooms = after(self, *arguments, **named)
        counts.append(zooms.count)
        return zooms

    patch.setattr(Zooms, "after", noted)
    patch.setattr(
        MixedLogisticRegression,
        "_intercept_at",
        lambda self, average: intercept(self, average * counts[-1] / (seen[-1] + 1)),
    )


def size_by_the_number_of_rows(patch):
    """Rows that fill a chunk up are copies."""
    rows = lambda statistics: len(np.unique(statistics._right.values, axis=0))  # noqa: E731
    seen, original = remembering_rows(patch, BayesianLinearRegression, "_moments", rows), _search.fitting_size
    count = lambda: seen[-1] + 1.0 if seen else 0.0  # noqa: E731
    sized = lambda plan, zooms, *others: original(plan, replace(zooms, count=count()), *others[:-1], (1e-6, 1e6))  # noqa: E731
    patch.setattr(linear_regression, "fitting_size", sized)


def bad_rows_kept(patch):
    """A row that overflows becomes 0 · NaN in the product instead of being left out."""
    patch.setattr(outer, "present", lambda *given: given)


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
    """Nor the target, or the last column."""
    patch.setattr(
        Quadratic,
        "lengths",
        lambda self, blocks: (
            np.square(np.linalg.norm(self._right.values[:, :-2], axis=1))[None] / blocks[self.names[0]].scale
        ),
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
    (precision_not_in_the_norm, "neighbours_stay_within_the_sensitivity", "logistic", "moved the sum by more than C"),
    (precision_not_in_the_norm, "norms_are_joint_and_never_too_small", SEARCHED, "a norm is smaller than the record"),
    (precision_not_in_the_norm, "neighbours_stay_within_the_sensitivity", SEARCHED, "moved the sum by more than C"),
    (
        intercept_not_in_the_norm,
        "norms_are_joint_and_never_too_small",
        "logistic diagonal",
        "a norm is smaller than the record",
    ),
    (
        intercept_not_in_the_norm,
        "neighbours_stay_within_the_sensitivity",
        "logistic diagonal",
        "moved the sum by more than C",
    ),
    (
        intercept_not_in_the_norm,
        "norms_are_joint_and_never_too_small",
        SEARCHED,
        "a norm is smaller than the record",
    ),
    (
        intercept_not_in_the_norm,
        "neighbours_stay_within_the_sensitivity",
        "logistic sparse, three classes, searched",
        "moved the sum by more than C",
    ),
    (bends_not_in_the_norm, "norms_are_joint_and_never_too_small", COUNTS, "a norm is smaller than the record"),
    (
        tilts_not_in_the_norm,
        "norms_are_joint_and_never_too_small",
        "linear, searched",
        "a norm is smaller than the record",
    ),
    (spread_not_in_the_norm, "norms_are_joint_and_never_too_small", LINEAR, "a norm is smaller than the record"),
    (squares_not_in_the_norm, "norms_are_joint_and_never_too_small", SEARCHED, "a norm is smaller than the record"),
    (squares_not_in_the_norm, "norms_are_joint_and_never_too_small", COUNTS, "a norm is smaller than the record"),
    (squares_not_in_the_norm, "neighbours_stay_within_the_sensitivity", SEARCHED, "moved the sum by more than C"),
    (squares_not_in_the_norm, "hardened_sums_are_exact", SEARCHED, "entries moved the sum by"),
    (
        squares_in_the_norm_without_the_size,
        "norms_are_joint_and_never_too_small",
        SEARCHED,
        "a norm is smaller than the record",
    ),
    (
        squares_in_the_norm_without_the_size,
        "neighbours_stay_within_the_sensitivity",
        SEARCHED,
        "moved the sum by more than C",
    ),
    (
        squares_of_scores_that_are_not_divided,
        "neighbours_stay_within_the_sensitivity",
        SEARCHED,
        "moved the sum by more than C",
    ),
    (
        squares_of_scores_that_are_not_divided,
        "norms_are_joint_and_never_too_small",
        SEARCHED,
        "a norm is smaller than the record",
    ),
    (squares_without_the_size, "norms_are_joint_and_never_too_small", SEARCHED, "not c w² s² of a score"),
    (squares_have_one_weight, "neighbours_stay_within_the_sensitivity", SEARCHED, "moved the sum by more than C"),
    (the_records_own_label, "norms_are_joint_and_never_too_small", SEARCHED, "a norm is smaller than the record"),
    (the_records_own_label, "norms_are_joint_and_never_too_small", COUNTS, "a norm is smaller than the record"),
    (
        constant_not_in_the_norm_of_moments,
        "norms_are_joint_and_never_too_small",
        ZOOM,
        "a norm is smaller than the record",
    ),
    (
        constant_not_in_the_norm_of_moments,
        "neighbours_stay_within_the_sensitivity",
        ZOOM,
        "moved the sum by more than C",
    ),
    (rates_not_in_the_norm, "norms_are_joint_and_never_too_small", LAST_ZOOM, "a norm is smaller than the record"),
    (rates_not_in_the_norm, "neighbours_stay_within_the_sensitivity", LAST_ZOOM, "moved the sum by more than C"),
    (rates_not_in_the_norm, "neighbours_stay_within_the_sensitivity", EXPOSED_ZOOM, "moved the sum by more than C"),
    (
        cross_not_in_the_norm,
        "norms_are_joint_and_never_too_small",
        "logistic diagonal",
        "a norm is smaller than the record",
    ),
    (norm_of_the_first_output, "norms_are_joint_and_never_too_small", THREE, "a norm is smaller than the record"),
    (norm_of_the_first_output, "neighbours_stay_within_the_sensitivity", THREE, "moved the sum by more than C"),
    (one_record_sets_the_scale, "records_do_not_see_each_other", "logistic", "another one in company"),
    (centred_at_the_chunk, "records_do_not_see_each_other", "logistic", "another one in company"),
    (one_record_sets_the_scale, "records_do_not_see_each_other", ZOOM, "another one in company"),
    (size_of_the_chunk, "records_do_not_see_each_other", SEARCHED, "another one in company"),
    (size_of_the_records, "everything_else_is_public", "logistic", "something besides the noisy totals"),
    (
        intercept_at_the_records_mean_exposure,
        "everything_else_is_public",
        EXPOSED_ZOOM,
        "something besides the noisy totals",
    ),
    (moved_to_the_mean_of_the_chunk, "records_do_not_see_each_other", ZOOM, "another one in company"),
    (moved_to_the_mean_of_the_chunk, "records_do_not_see_each_other", SEARCHED, "another one in company"),
    (coordinates_of_the_records, "everything_else_is_public", "logistic", "something besides the noisy totals"),
    *[
        (mutant, "everything_else_is_public", case, "something besides the noisy totals")
        for mutant, case in (
            (coordinates_of_mixed_effects_from_exact_totals, "mixed effects"),
            (intercept_of_mixed_effects_by_the_number_of_rows, "mixed effects"),
            (size_by_the_number_of_rows, "linear, searched"),
        )
    ],
    (bad_rows_kept, "defective_records_change_nothing_else", "binomial", "destroyed the sum"),
    (
        undeclared_label_raises,
        "defective_records_change_nothing_else",
        "logistic",
        "on a record: ValueError: unknown label",
    ),
    (classes_from_the_data, "everything_else_is_public", "logistic", "an error that depends on a record"),
    (
        step_size_by_the_residuals,
        "everything_else_is_public",
        "logistic diagonal",
        "something besides the noisy totals",
    ),
    (
        off_diagonal_rounded_without_root_two,
        "hardened_sums_are_exact",
        "logistic sparse",
        "the rounded sum is not the sum",
    ),
]


test_mutant_is_noticed = of_laws(checks, MUTANTS)


def _clip_of_repeated_columns():
    """A row that stores one column 50 times is one vector, of norm 50."""
    case = BY_NAME["logistic sparse diagonal"]
    model, plan, _, posterior = checks.prepared(case, 2)
    X = sp.csr_array((np.full(50, 0.5), np.zeros(50, dtype=np.int32), [0, 50]), shape=(1, 5))
    total = checks.clipped_sum(case, model, plan, Records(X, np.zeros(1)), posterior)
    assert np.linalg.norm(total) <= plan.clip_norm * (1.0 + 1e-9), "a row counts for more than one clip"


def test_columns_stored_twice_do_not_escape_the_clip(monkeypatch):
    _clip_of_repeated_columns()
    monkeypatch.setattr(sp.csr_array, "sum_duplicates", lambda self: None)
    with pytest.raises(AssertionError, match="more than one clip"):
        _clip_of_repeated_columns()
