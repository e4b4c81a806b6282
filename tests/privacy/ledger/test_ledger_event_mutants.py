"""Deliberately broken counting of events. Each must be noticed by the test named beside it."""

from __future__ import annotations

import sys

import pytest

from tests.mutants import check_notices
from tests.privacy.accounting import test_other_events
from tests.privacy.ledger import test_ledger_events, test_ledger_outright
from vips.privacy.accounting import other_events
from vips.privacy.ledger import book, statement
from vips.privacy.ledger.book import Book


def unspent_outright_delta_is_lent_to_the_renyi_side(patch):
    patch.setattr(Book, "filter_delta", property(lambda self: self.terms["delta"] - self.outright_spent))


def the_reserve_is_spent_twice(patch):
    patch.setattr(book, "delta_of_filter", lambda delta, outright_delta: delta)


def deltas_do_not_add_up(patch):
    patch.setattr(Book, "outright_spent", property(lambda self: 0.0))


def amounts_are_not_checked(patch):
    patch.setattr(book, "_amount", lambda value: value)


def epsilon_is_charged_without_its_delta(patch):
    original = statement._rounded
    patch.setattr(statement, "_rounded", lambda what, divergence, delta: original(what, divergence, 0.0))


def epsilon_is_charged_as_if_its_mechanism_were_gaussian(patch):
    """With ρ = ε²/8, as for bounded ranges: too little for randomised response."""
    patch.setattr(other_events, "pure_divergence", lambda epsilon, order: order * epsilon**2 / 8.0)
    patch.setattr(test_other_events, "pure_divergence", other_events.pure_divergence)


def replacing_a_record_costs_what_removing_one_does(patch):
    patch.setattr(statement, "_removals", lambda ledger, relation: 1)


def what_other_tools_released_can_be_given_back(patch):
    original = Book.charging_event
    patch.setattr(Book, "charging_event", lambda self, *arguments: original(self, *arguments)[:1])


def events_are_not_charged(patch):
    original = Book.charging_event

    def charging_event(self, *arguments):
        return [entry | {"divergence": 0.0} if "divergence" in entry else entry for entry in original(self, *arguments)]

    patch.setattr(Book, "charging_event", charging_event)


def events_reach_dp_accounting_as_they_came(patch):
    patch.setattr(other_events, "_checked", lambda event, relation: event)


OUTRIGHT, EVENTS, DIVERGENCES = test_ledger_outright, test_ledger_events, test_other_events
ROWS = [
    (
        unspent_outright_delta_is_lent_to_the_renyi_side,
        OUTRIGHT.test_outright_delta_that_is_chosen_after_a_result_cannot_beat_the_ledger,
    ),
    (the_reserve_is_spent_twice, OUTRIGHT.test_the_renyi_side_uses_the_rest_of_delta_and_never_changes),
    (the_reserve_is_spent_twice, OUTRIGHT.test_outright_delta_that_is_chosen_after_a_result_cannot_beat_the_ledger),
    (deltas_do_not_add_up, OUTRIGHT.test_the_deltas_add_up_to_at_most_the_reserve),
    (amounts_are_not_checked, OUTRIGHT.test_a_forged_charge_is_refused),
    (epsilon_is_charged_without_its_delta, EVENTS.test_every_kind_of_statement_costs_what_it_says),
    (
        replacing_a_record_costs_what_removing_one_does,
        EVENTS.test_statements_under_add_or_remove_are_converted_to_replace_one,
    ),
    (
        replacing_a_record_costs_what_removing_one_does,
        EVENTS.test_what_is_converted_bounds_every_path_over_a_removal_and_is_attained,
    ),
    (what_other_tools_released_can_be_given_back, EVENTS.test_what_another_tool_releases_is_never_given_back),
    (events_are_not_charged, EVENTS.test_events_and_fits_share_one_budget),
    (
        events_are_not_charged,
        OUTRIGHT.test_statements_of_epsilon_and_delta_compose_to_no_more_than_the_ledger_says,
    ),
    (epsilon_is_charged_as_if_its_mechanism_were_gaussian, DIVERGENCES.test_no_pure_mechanism_costs_more),
    (events_reach_dp_accounting_as_they_came, DIVERGENCES.test_whole_noise_multipliers_are_composed),
]


@pytest.mark.parametrize(("mutant", "test"), ROWS, ids=[mutant.__name__ for mutant, _ in ROWS])
def test_mutant_is_noticed(mutant, test, tmp_path, monkeypatch):
    def check():
        names = test.__code__.co_varnames[: test.__code__.co_argcount]
        given = {"path": tmp_path / "letters.ledger", "field": "divergence", "value": "NaN"}
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
