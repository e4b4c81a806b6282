"""Deliberately broken counting of events. Each must be noticed by the test named beside it."""

from __future__ import annotations

import sys

import dp_accounting
import pytest

from tests.core.ledger import test_ledger_events, test_ledger_sums, test_other_events
from tests.mutants import check_notices
from vips.core import budget
from vips.core.accounting import domination
from vips.core.ledger import book, pricing
from vips.core.ledger.book import Book


def deltas_do_not_add_up(patch):
    original = book.Run.spent
    patch.setattr(book.Run, "spent", lambda self: (original(self)[0], 0 * original(self)[1], original(self)[2]))


def amounts_are_not_checked(patch):
    patch.setattr(book, "amount", lambda value: value)


def limits_are_not_checked(patch):
    patch.setattr(book, "checked_terms", lambda body: body)


def epsilon_is_charged_without_its_delta(patch):
    original = pricing._cost_of_pure
    patch.setattr(pricing, "_cost_of_pure", lambda epsilon, delta, left: original(epsilon, 0.0, left))


def epsilon_is_charged_as_if_its_mechanism_were_gaussian(patch):
    """With ρ = ε²/8, as for bounded ranges: too little for randomised response."""
    patch.setattr(pricing, "mu_of_pure", lambda epsilon: epsilon / 2.0)


def a_pure_charge_is_split(patch):
    def split(epsilon, delta, left):
        pure = min(epsilon, left.pure)
        return budget.Cost(domination.mu_of_pure(epsilon - pure) ** 2, delta, pure)

    patch.setattr(pricing, "_cost_of_pure", split)


def replacing_a_record_costs_what_removing_one_does(patch):
    patch.setattr(pricing, "_removals", lambda ledger, relation: 1)


def what_other_tools_released_can_be_given_back(patch):
    original = Book.charging
    patch.setattr(Book, "charging", lambda self, *arguments: original(self, *arguments)[:1])


def charges_are_free(patch):
    original = Book.charging

    def charging(self, *arguments):
        return [entry | {"cost": [0.0, 0.0, 0.0]} if "cost" in entry else entry for entry in original(self, *arguments)]

    patch.setattr(Book, "charging", charging)


def sampled_plans_need_no_delta(patch):
    patch.setattr(
        pricing, "cost_of_plan", lambda plan, left: budget.Cost(domination.dominating_mu(plan, 1e-6) ** 2, 0.0)
    )


def samples_are_charged_as_full_batches(patch):
    patch.setattr(pricing, "_sampled", lambda rate, event, relation, times: (times * rate / 4.0, 0.0, []))


EVENTS, SUMS, OTHERS = test_ledger_events, test_ledger_sums, test_other_events
ROWS = [
    (deltas_do_not_add_up, SUMS.test_the_deltas_add_up_to_at_most_a_tenth),
    (amounts_are_not_checked, SUMS.test_a_forged_charge_is_refused),
    (limits_are_not_checked, SUMS.test_forged_limits_are_refused),
    (epsilon_is_charged_without_its_delta, EVENTS.test_every_kind_of_statement_costs_what_it_says),
    (a_pure_charge_is_split, EVENTS.test_a_pure_charge_that_does_not_fit_is_charged_whole_as_a_gaussian_one),
    (
        replacing_a_record_costs_what_removing_one_does,
        EVENTS.test_statements_under_add_or_remove_are_converted_to_replace_one,
    ),
    (
        replacing_a_record_costs_what_removing_one_does,
        EVENTS.test_what_is_converted_bounds_every_path_over_a_removal_and_is_attained,
    ),
    (what_other_tools_released_can_be_given_back, EVENTS.test_what_another_tool_releases_is_never_given_back),
    (charges_are_free, EVENTS.test_events_and_fits_share_one_budget),
    (charges_are_free, SUMS.test_any_sequence_stays_within_the_budget_by_another_library),
    (sampled_plans_need_no_delta, SUMS.test_sampled_fits_take_a_twentieth_of_what_is_left_so_that_any_number_fits),
    (
        epsilon_is_charged_as_if_its_mechanism_were_gaussian,
        OTHERS.test_what_is_charged_is_no_less_than_the_privacy_losses,
    ),
    (samples_are_charged_as_full_batches, OTHERS.test_what_is_charged_is_no_less_than_the_privacy_losses),
]
GIVEN = {
    "field": 0, "value": "NaN", "seed": 0, "factor": [1.1, 1.0, 1.0], "pure": 0.0,
    "event": dp_accounting.SelfComposedDpEvent(test_other_events.SAMPLED, 40),
}  # fmt: skip


@pytest.mark.parametrize(("mutant", "test"), ROWS, ids=[mutant.__name__ for mutant, _ in ROWS])
def test_mutant_is_noticed(mutant, test, tmp_path, monkeypatch):
    def check():
        names = test.__code__.co_varnames[: test.__code__.co_argcount]
        given = GIVEN | {"path": tmp_path / "letters.ledger"}
        if mutant is epsilon_is_charged_as_if_its_mechanism_were_gaussian:
            given["event"] = test_other_events.LAPLACE
        make = getattr(sys.modules[test.__module__], "make", None)
        if "ledger" in names:
            given["ledger"] = make(given["path"])
        if "of_replace_one" in names:
            given["of_replace_one"] = make(given["path"], "replace_one")
        try:
            test(**{name: given[name] for name in names})
        except pytest.fail.Exception as error:  # an error that was expected did not come
            raise AssertionError(str(error)) from error

    check_notices(check, mutant, monkeypatch)
