"""Deliberately broken copies of linear, switching and factorial models of series. Each must be noticed by its check.

Laws of the case "switching" look at a fit's first step, which sums moments. Here they run at the sums of regimes, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.laws import checks
from tests.laws.cases import BY_NAME
from tests.models.dynamics import brute_force, test_linear, test_moments, test_switching
from tests.models.markov import test_factorial
from tests.mutants import check_notices
from vips import FactorialHMM, SwitchingLinearDynamicalSystem
from vips.core.sums import DenseStatistics, Joint
from vips.data import Sequences
from vips.models.dynamics import contract, moments, sums, switching, switching_posterior, windows
from vips.models.dynamics.contract import DynamicsModel
from vips.models.dynamics.switching_posterior import SwitchingPosterior
from vips.models.markov import factorial, factorial_inference, kernels

# class, and the method that gives the statistics of private fits
MODELS = {
    "dynamics": (DynamicsModel, "_moment_statistics"),
    "regimes": (SwitchingLinearDynamicalSystem, "expected_statistics"),
    "factorial chain": (FactorialHMM, "expected_statistics"),
}


class AtRegimes(SwitchingLinearDynamicalSystem):
    """At the first step that sums states in regimes, under a posterior that is given."""

    def to_posterior(self, average, noise_std, previous):
        systems = [brute_force.a_system(2, 2, seed) for seed in (0, 1)]
        moves, covs = (np.array([getattr(system, name) for system in systems]) for name in ("moves", "moves_cov"))
        chain = np.array([[0.8, 0.2], [0.3, 0.7]])
        return SwitchingPosterior(systems[0], moves, covs, chain[0], chain, average["cross"])


BY_NAME["regimes"] = replace(
    BY_NAME["switching"],
    make_model=lambda **arguments: AtRegimes(2, max_iter=2, max_length=50, max_norm=3.0, **arguments),
    clip_norm=0.05,
)
ALONE, EXACT = checks.records_do_not_see_each_other, checks.hardened_sums_are_exact
NORMS, NEIGHBOURS = checks.norms_are_joint_and_never_too_small, checks.neighbours_stay_within_the_sensitivity
DEFECTIVE = checks.defective_records_change_nothing_else


def share_of(case, values):
    model, _, _, posterior = checks.prepared(case, 2)
    return (
        checks.last_phase(model).statistics_of(model, Sequences.from_list([values]), posterior).weighted_sum(np.ones(1))
    )


def long_counts_as_short(case):
    """Steps beyond ``max_length`` count nothing, and longer steps as those of the largest norm."""
    model, *_ = checks.prepared(case, 2)
    steps = np.random.default_rng(0).normal(size=(model.max_length, case.extreme.shape[1]))
    steps *= model.max_norm / np.linalg.norm(steps, axis=1, keepdims=True)
    share, *others = (share_of(case, values) for values in (steps, 7.0 * steps, np.vstack([steps, steps])))
    for other in others:
        for name, value in share.items():
            np.testing.assert_allclose(other[name], value, rtol=1e-6, atol=1e-9, err_msg="more than the bound counts")


def a_gap_is_no_step_at_zero(case):
    values = np.ones((3, case.extreme.shape[1]))
    values[1] = np.nan
    share, filled = (share_of(case, steps) for steps in (values, np.nan_to_num(values)))
    assert all(np.isfinite(value).all() for value in share.values()), "a gap destroys its sequence"
    assert any(not np.allclose(share[name], filled[name]) for name in share), "a gap is a step at 0"


OWN_CHECKS = [(law, "regimes") for law in (ALONE, EXACT, NORMS, DEFECTIVE, NEIGHBOURS)]
OWN_CHECKS += [(check, case) for check in (long_counts_as_short, a_gap_is_no_step_at_zero) for case in MODELS]


@pytest.mark.parametrize(("check", "case"), OWN_CHECKS)
def test_own_check_passes(check, case):
    check(BY_NAME[case])


# -- mutants: functions of the original, and of its arguments ----------------------------------------------------------


def norm_without(name):
    def mutant(original, self, blocks):
        return original(self, blocks | {name: replace(blocks[name], scale=1e9)})

    mutant.__name__ = f"without_{name}"
    return mutant


def norm_of_a_step(original, self, records, posterior):
    statistics = original(self, records, posterior)
    norms = statistics.norms
    statistics.norms = lambda blocks: norms(blocks) / np.maximum(records.lengths, 1)
    return statistics


def shares_by_the_longest(weights, lengths):
    return weights / max(lengths.max(initial=1), 1)


def weight_zero_is_little(weights, lengths):
    return np.maximum(weights, 1e-3)


def with_weights(change):

    def mutant(original, self, records, posterior):
        statistics = original(self, records, posterior)
        weighted_sum = statistics.weighted_sum
        statistics.weighted_sum = lambda weights: weighted_sum(change(weights, records.lengths))
        return statistics

    mutant.__name__ = change.__name__
    return mutant


def rounded_after_the_sum(original, self, records, posterior):
    statistics = original(self, records, posterior)
    statistics.rounded_sum = lambda weights, blocks, lattice: {
        name: lattice.rounded(value, blocks[name]) for name, value in statistics.weighted_sum(weights).items()
    }
    return statistics


def pairs_across_sequences(original, rows, offsets, first, last, second, lagged):
    original(rows, offsets, first, last, second, lagged)
    for n in range(first, last):
        for k in range(1, lagged.shape[1] + 1):
            for t in range(max(offsets[n], offsets[n + 1] - k), min(offsets[n + 1], len(rows) - k)):
                lagged[n, k - 1] += np.outer(rows[t + k], rows[t])


def lags_are_one_less(original, rows, offsets, first, last, second, lagged):
    original(rows, offsets, first, last, second, lagged)
    lagged[first:last] = np.concatenate([second[first:last, None], lagged[first:last, :-1]], axis=1)


def states_across_sequences(original, records, posterior, max_iter):
    whole = original(Sequences(records.values, np.array([0, len(records.values)])), posterior, max_iter)
    return replace(whole, pairs=original(records, posterior, max_iter).pairs)


def chains_across_sequences(original, offsets, *others):
    return original(np.array([0, len(others[-1])]), *others)[0], *original(offsets, *others)[1:]


def rounds_by_the_longest(original, records, posterior, max_iter):
    return original(records, posterior, max_iter + int(records.lengths.max(initial=0)) // 4)


def lengths_are_read(original, self, X, y):
    source = original(self, X, y)
    self.longest_ = int(source.arrays[0].lengths.max(initial=0))
    return source


def infinite_steps_raise(original, records, max_norm):
    if np.isinf(records.values).any():
        raise ValueError("a step is not finite")
    return original(records, max_norm)


def gaps_are_zeros(original, records, max_norm):
    return Sequences(np.nan_to_num(original(records, max_norm).values), records.offsets)


def as_it_is(original, first, *others):
    return first


COMPANY, NOT_MORE, SMALLER = "another one in company", "moved the sum by more than C", "a norm is smaller"
OF_ANY_MODEL = [
    (norm_of_a_step, DEFECTIVE, "moved the sum by"),
    (with_weights(shares_by_the_longest), ALONE, COMPANY),
    (with_weights(weight_zero_is_little), ALONE, COMPANY),
    (rounded_after_the_sum, EXACT, "a sum depends on|the rounded sum is not"),
]
# object, its attribute, mutant, law, case, what the law says
OF_LAWS = [
    *((model, name, mutant, law, case, says) for case, (model, name) in MODELS.items()
      for mutant, law, says in OF_ANY_MODEL),
    (Joint, "norms", norm_without("lagged"), NORMS, "dynamics", SMALLER),
    (Joint, "norms", norm_without("opening"), NEIGHBOURS, "dynamics", NOT_MORE),
    (DenseStatistics, "norms", norm_without("seen"), NEIGHBOURS, "regimes", NOT_MORE),
    (DenseStatistics, "norms", norm_without("before"), NORMS, "regimes", SMALLER),
    (DenseStatistics, "norms", norm_without("both"), NEIGHBOURS, "factorial chain", NOT_MORE),
    (DenseStatistics, "norms", norm_without("second"), NORMS, "factorial chain", SMALLER),
    (sums, "add_lagged", pairs_across_sequences, ALONE, "dynamics", COMPANY),
    (switching_posterior, "inferred", states_across_sequences, ALONE, "regimes", COMPANY),
    (factorial_inference, "inferred", chains_across_sequences, ALONE, "factorial chain", COMPANY),
    (switching, "switching_statistics", rounds_by_the_longest, ALONE, "regimes", COMPANY),
    (factorial, "factorial_statistics", rounds_by_the_longest, ALONE, "factorial chain", COMPANY),
    (contract, "usable", infinite_steps_raise, DEFECTIVE, "dynamics", "an error that depends on a record"),
    (contract, "usable", gaps_are_zeros, a_gap_is_no_step_at_zero, "dynamics", "a gap is a step at 0"),
    (kernels, "fill_missing", lambda _, X, is_missing: is_missing.fill(False), a_gap_is_no_step_at_zero,
     "factorial chain", "a gap destroys its sequence"),
    (AtRegimes, "_usable", lambda _, self, records: records, long_counts_as_short, "regimes", "more"),
    (FactorialHMM, "_usable", lambda _, self, records: records, long_counts_as_short, "factorial chain", "more"),
    *((Sequences, "first", as_it_is, long_counts_as_short, case, "more than the bound") for case in MODELS),
    (FactorialHMM, "records_of", lengths_are_read, checks.everything_else_is_public, "factorial chain",
     "something besides the noisy totals"),
]  # fmt: skip
# object, its attribute, mutant, test, arguments of the test
OF_TESTS = [
    (sums, "add_lagged", lags_are_one_less, test_moments.test_moments_are_sums_over_pairs_of_steps),
    (sums, "add_covariances", lambda *_: None, test_switching.test_one_regime_is_a_linear_dynamical_system),
    (sums, "add_regimes", lambda add, a, b, c, shares, *others: add(a, b, c, np.roll(shares, 1, axis=0), *others),
     test_switching.test_sums_of_regimes_are_those_of_the_steps_added_one_by_one),
    (DynamicsModel, "_usable", lambda _, self, records: records,
     test_linear.test_steps_longer_than_the_norm_are_scaled_down),
    (moments.Pairs, "about", lambda about, pairs, offset: about(pairs, -offset),
     test_moments.test_without_noise_covariances_are_those_of_the_pairs, 0.3),
    (moments, "floored", as_it_is, test_moments.test_windows_have_no_variance_below_the_noise),
    (moments, "shared", as_it_is, test_moments.test_columns_share_what_noise_hides),
    (windows, "raised", as_it_is, test_moments.test_any_totals_give_a_valid_system, 8),
    (windows, "stable", as_it_is, test_moments.test_any_totals_give_a_valid_system, 2),
    (switching, "view", as_it_is, test_switching.test_any_totals_give_valid_regimes),
    (switching, "repaired", as_it_is, test_switching.test_any_totals_give_valid_regimes),
    (test_factorial, "view", as_it_is, test_factorial.test_the_view_has_the_margins_of_its_chains),
    (factorial, "_noise_in_rest", lambda *_: 0.0, test_factorial.test_noise_passes_for_no_explanation),
]  # fmt: skip


def noticed(where, name, mutant, check, patch, says=None):
    original = getattr(where, name)
    check_notices(check, lambda _: patch.setattr(where, name, lambda *given: mutant(original, *given)), patch, says)


def named(row):
    return "-".join([row[1], row[2].__name__, row[3].__name__, *map(str, row[4:5])])


@pytest.mark.parametrize("row", OF_LAWS, ids=named)
def test_mutant_is_noticed_by_a_law(row, monkeypatch):
    *mutant, law, case, says = row
    noticed(*mutant, lambda: law(BY_NAME[case]), monkeypatch, says)


@pytest.mark.parametrize("row", OF_TESTS, ids=named)
def test_mutant_is_noticed(row, monkeypatch):
    noticed(*row[:3], lambda: row[3](*row[4:]), monkeypatch)
