"""Deliberately broken ledgers and checkpoints. Each must be noticed by the test named beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.ledger import test_ledger
from tests.persistence import test_checkpoint
from vips import PrivacyLedger, PrivacyPlan
from vips.core.ledger import chain_file
from vips.core.ledger.book import Book, Run
from vips.core.ledger.run import LedgerRun
from vips.persistence.checkpoint import Journal


def changed_entry(patch, action, **changes):
    """Change the entries that an action makes."""
    original = getattr(Book, action)
    patch.setattr(Book, action, lambda self, *arguments: [entry | changes for entry in original(self, *arguments)])


def close_returns_released_steps(patch):
    changed_entry(patch, "closing", returned=5)


def repeated_steps_are_free(patch):
    changed_entry(patch, "resuming", further=0)


def a_resume_leaves_the_old_process_running(patch):
    original = Book.releasing
    patch.setattr(Book, "releasing", lambda self, run, attempt, step: original(self, run, self.run(run).attempt, step))


def limits_are_those_of_a_composition_theorem(patch):
    """With all of δ, and twice: for plans that are fixed beforehand a tighter sum would do."""
    original = Book.admit
    patch.setattr(Book, "admit", lambda self, cost, *words: original(self, replace(cost, mu2=0.8 * cost.mu2), *words))


def one_step_charged_instead_of_all(patch):
    original = Run.spent
    patch.setattr(Run, "spent", lambda self: tuple(number / self.steps for number in original(self)))


def steps_of_samples_are_given_back_one_by_one(patch):
    original = Book.charging

    def charging(self, *arguments):
        return [
            entry | {"cost": [entry["cost"][0], 0.0, 0.0], "is_gaussian": True} for entry in original(self, *arguments)
        ]

    patch.setattr(Book, "charging", charging)


def repeated_samples_cost_one_step(patch):
    original = PrivacyPlan.with_n_steps
    patch.setattr(PrivacyPlan, "with_n_steps", lambda plan, n_steps: original(plan, 1))


def hashes_are_not_checked(patch):
    patch.setattr(chain_file, "_hash", lambda number, previous, text: "0" * 64)


def the_checkpoint_comes_before_the_ledger(patch):
    record, commit = LedgerRun.record, Journal.commit
    patch.setattr(LedgerRun, "record", lambda self, step: None)
    patch.setattr(Journal, "commit", lambda self, step, *args: (commit(self, step, *args), record(self.run, step)))


def a_checkpoint_holds_the_noise(patch):
    original = Journal.commit

    def commit(self, step, noisy, *state):
        return original(self, step, noisy | {"noise": noisy["heads"]}, *state)

    patch.setattr(Journal, "commit", commit)


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (close_returns_released_steps, test_ledger.test_only_a_close_gives_unreleased_steps_back),
        (repeated_steps_are_free, test_ledger.test_a_resume_is_charged_for_steps_that_it_repeats),
        (a_resume_leaves_the_old_process_running, test_ledger.test_two_resumes_of_one_run_do_not_both_go_on),
        (
            limits_are_those_of_a_composition_theorem,
            test_ledger.test_plans_chosen_after_the_first_result_cannot_beat_the_ledger,
        ),
        (one_step_charged_instead_of_all, test_ledger.test_fits_are_admitted_while_the_limits_have_room),
        (steps_of_samples_are_given_back_one_by_one, test_ledger.test_sampled_steps_are_given_back_all_or_none),
        (repeated_samples_cost_one_step, test_ledger.test_sampled_steps_are_given_back_all_or_none),
        (
            the_checkpoint_comes_before_the_ledger,
            test_checkpoint.test_nothing_uses_a_step_before_ledger_and_checkpoint_have_it,
        ),
        (a_checkpoint_holds_the_noise, test_checkpoint.test_a_checkpoint_holds_released_values_and_nothing_else),
    ],
    ids=lambda value: value.__name__,
)
def test_mutant_is_noticed(mutant, test, tmp_path, monkeypatch):
    arguments = {"tmp_path": tmp_path, "monkeypatch": monkeypatch, "path": tmp_path / "letters.ledger"}
    mutant(monkeypatch)
    names = test.__code__.co_varnames[: test.__code__.co_argcount]
    if "ledger" in names:
        arguments["ledger"] = PrivacyLedger(arguments["path"], epsilon=3.0, delta=1e-5, dataset="letters")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(**{name: arguments[name] for name in names})


def test_unchecked_hashes_are_noticed(tmp_path, monkeypatch):
    hashes_are_not_checked(monkeypatch)
    path = tmp_path / "letters.ledger"
    ledger = PrivacyLedger(path, epsilon=3.0, delta=1e-5, dataset="letters")
    edit = "UPDATE entries SET body = replace(body, 'BetaBernoulli', 'Somebody') WHERE number = 1"
    with pytest.raises(pytest.fail.Exception):
        test_ledger.test_edits_inside_the_file_are_noticed(path, ledger, edit)
