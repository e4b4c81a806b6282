"""A search and a ledger: charged whole before the first trial, never refunded, whatever happens after."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from tests.mutants import check_notices
from tests.search.cases import VOTES, votes
from vips import DirichletMultinomial, LedgerError, PrivacyBudget, PrivacyBudgetError, PrivacyLedger, PrivacyPlan
from vips.privacy.accounting.domination import mu_of_pure
from vips.privacy.budget import Cost
from vips.privacy.ledger.run import LedgerRun
from vips.search import one_trial, private_search

SPARE = PrivacyPlan(noise_multiplier=50.0, sampling="full", n_steps=1)


def open_ledger(path, **terms):
    terms = {"epsilon": 20.0, "delta": 1e-5, "dataset": "votes", "pure": 15.0} | terms
    return PrivacyLedger(path / f"{os.urandom(4).hex()}.ledger", **terms)


class Watched:
    """A score that notes what the ledger holds at the first trial."""

    def __init__(self, ledger, then=lambda: None):
        self.ledger, self.then, self.seen = ledger, then, []

    def __call__(self, model, X, y):
        self.seen.append([(run.state, run.cost()) for run in self.ledger.runs()])
        self.then()
        return 0.0


def check_the_whole_is_charged_before_the_first_trial(tmp_path):
    for how in ("argument", "block"):
        for _ in range(20):  # in one search of some hundreds no record is held out
            ledger = open_ledger(tmp_path)
            score = Watched(ledger)
            search = votes(score=score, score_range=(0.0, 1.0), held_out=0.02, mean_trials=6.0)
            if how == "argument":
                search.fit(VOTES, ledger=ledger)
            else:
                with ledger:
                    search.fit(VOTES)
            if score.seen:
                break
        share = 0.1 * 0.1e-5  # of δ₀, which is a tenth of δ
        selection = search.privacy_.releases[0].selection
        cost = Cost(0.0, pytest.approx(share), pytest.approx(selection.epsilon(share)))
        assert score.seen, "no trial scored a record"
        for seen in (score.seen[0], score.seen[-1], [(run.state, run.cost()) for run in ledger.runs()]):
            assert seen == [("complete", cost)], f"the ledger holds {seen}, not the whole search, {cost}"
        assert search.privacy_.ledger == ledger.entry(ledger.runs()[0].run)
        assert search.best_estimator_.privacy_.ledger["run"] == ledger.runs()[0].run


def test_the_whole_is_charged_before_the_first_trial(tmp_path):
    check_the_whole_is_charged_before_the_first_trial(tmp_path)


def check_nothing_is_given_back(tmp_path):
    ledger = open_ledger(tmp_path)

    def interrupt():
        raise KeyboardInterrupt

    stopped = votes(score=Watched(ledger, interrupt), score_range=(0.0, 1.0), epsilon=1.0)
    failing = votes(estimator=Stops(), epsilon=1.0)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(VOTES, ledger=ledger)
    failing.fit(VOTES, ledger=ledger)
    spent = [run.cost().pure for run in ledger.runs()]
    assert len(spent) == 2, "a search that ended early is not on record"
    for run in ledger.runs():
        ledger.close(run.run)
    assert 15.0 - ledger.remaining().pure == pytest.approx(sum(spent)), "given back"
    votes(epsilon=1.0).fit(VOTES, ledger=ledger)
    assert len(ledger.runs()) == 3, "another search did not pay"


class Stops(DirichletMultinomial):
    def expected_statistics(self, records, posterior):
        raise ValueError


def test_nothing_is_given_back(tmp_path):
    check_nothing_is_given_back(tmp_path)


KILLED = """
import os, signal, sys
from tests.search.cases import VOTES, votes
from vips import PrivacyLedger
ledger = PrivacyLedger.open(sys.argv[1])
def score(model, X, y):
    os.kill(os.getpid(), signal.SIGKILL)
with ledger:
    votes(score=score, score_range=(0.0, 1.0), held_out=0.9).fit(VOTES)
"""


def test_a_killed_process_leaves_the_charge_and_a_restart_pays_again(tmp_path):
    ledger = open_ledger(tmp_path)
    assert subprocess.run([sys.executable, "-c", KILLED, ledger.path], check=False).returncode == -9
    assert [run.state for run in ledger.runs()] == ["complete"]
    votes().fit(VOTES, ledger=ledger)
    assert [run.state for run in ledger.runs()] == ["complete"] * 2
    assert not [name for name in os.listdir(tmp_path) if not name.startswith(ledger.path.name)]


def test_a_search_without_room_is_refused_before_a_trial(tmp_path):
    ledger = open_ledger(tmp_path, epsilon=1.0, pure=0.5)
    score = Watched(ledger)
    search = votes(score=score, score_range=(0.0, 1.0), epsilon=3.0)
    with pytest.raises(PrivacyBudgetError, match="PrivateSearch of DirichletMultinomial"), ledger:
        search.fit(VOTES)
    assert not ledger.runs()
    assert not score.seen
    assert not hasattr(search, "privacy_")


def test_other_units_relations_and_ledgers_are_refused(tmp_path, ledger):
    letters = open_ledger(tmp_path, unit="one letter")
    with pytest.raises(LedgerError, match="accept_unit"):
        votes().fit(VOTES, ledger=letters)
    letters.accept_unit("one row of X")
    votes().fit(VOTES, ledger=letters)
    replaced = open_ledger(tmp_path, relation="replace_one")
    with pytest.raises(LedgerError, match="replace_one"):
        votes().fit(VOTES, ledger=replaced)
    with pytest.raises(LedgerError, match="charge one of them"), ledger:
        votes().fit(VOTES, ledger=letters)
    assert len(letters.runs()) == 1
    assert not replaced.runs()


def test_persons_are_the_unit(tmp_path):
    ledger = open_ledger(tmp_path, unit="patient")
    import pandas as pd

    votes().fit(VOTES, groups=pd.Series(np.arange(len(VOTES)) // 2, name="patient"), ledger=ledger)
    assert len(ledger.runs()) == 1


def test_without_a_pure_part_a_search_is_charged_as_a_gaussian_mechanism(tmp_path):
    ledger = open_ledger(tmp_path, pure=0.0)
    search = votes(epsilon=1.0).fit(VOTES, ledger=ledger)
    (run,) = ledger.runs()
    selection = search.privacy_.releases[0].selection
    assert run.cost().mu2 == pytest.approx(mu_of_pure(selection.epsilon(1e-7)) ** 2)
    with pytest.raises(PrivacyBudgetError, match=r"PrivacyLedger\(\.\.\., pure=\.\.\.\)"):
        votes(epsilon=3.0).fit(VOTES, ledger=ledger)


def test_samples_under_replace_one_are_charged(tmp_path):
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, relation="replace_one")
    budget = PrivacyBudget(2.0, 1e-6, relation="replace_one")
    search = votes(estimator=DirichletMultinomial(privacy=plan), privacy=budget)
    ledger = open_ledger(tmp_path, relation="replace_one")
    search.fit(VOTES, ledger=ledger)
    assert [run.cost().delta_0 for run in ledger.runs()] == pytest.approx([1e-7])


def check_only_the_trials_are_paid_for(tmp_path):
    """A score that fits models of its own, with the trial's plan, too, pays for each."""
    ledger = open_ledger(tmp_path, epsilon=500.0)

    def fitting(model, X, y):
        for plan in (model.privacy, SPARE):
            DirichletMultinomial(privacy=plan).fit(VOTES)
        raise KeyboardInterrupt

    search = votes(score=fitting, score_range=(0.0, 1.0), held_out=0.5)
    with pytest.raises(KeyboardInterrupt), ledger:
        search.fit(VOTES)
    assert len(ledger.runs()) == 3, "a fit inside a score was not charged"
    with ledger:
        DirichletMultinomial(privacy=SPARE).fit(VOTES)
    assert len(ledger.runs()) == 4, "a fit after a search was not charged"


def test_only_the_trials_are_paid_for(tmp_path):
    check_only_the_trials_are_paid_for(tmp_path)


class FitsAgain(DirichletMultinomial):
    """Fits a model of its own with its own plan during a fit."""

    has_fitted = False

    def to_posterior(self, *arguments):
        if not FitsAgain.has_fitted:
            FitsAgain.has_fitted = True
            DirichletMultinomial(privacy=self.privacy).fit(VOTES)
        return super().to_posterior(*arguments)


def test_a_fit_inside_of_a_trial_is_charged(tmp_path):
    ledger = open_ledger(tmp_path, epsilon=500.0)
    with ledger:
        votes(estimator=FitsAgain()).fit(VOTES)
    assert len(ledger.runs()) == 2


class FitsTwice(DirichletMultinomial):
    """Passes on, twice, what has paid for its fit."""

    def fit(self, X, y=None, **arguments):
        super().fit(X, y, **arguments)
        return super().fit(X, y, **arguments)


def check_a_trial_pays_for_one_fit(tmp_path):
    with open_ledger(tmp_path, epsilon=500.0) as ledger:
        with pytest.raises(LedgerError, match="has paid for another release"):
            votes(estimator=FitsTwice()).fit(VOTES)
        assert not ledger.runs()


def test_a_trial_pays_for_one_fit(tmp_path):
    check_a_trial_pays_for_one_fit(tmp_path)


def test_a_charge_that_pays_for_every_fit_of_a_trial_is_noticed(monkeypatch, tmp_path):
    monkeypatch.setattr(LedgerRun, "pays_for", lambda self, plan: self._pays_for is plan)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check_a_trial_pays_for_one_fit(tmp_path)


@pytest.mark.parametrize("paid", [LedgerRun(None), LedgerRun.prepaid(SPARE)])
def test_what_has_paid_for_another_fit_pays_for_none(paid):
    with pytest.raises(LedgerError, match="has paid for another release"):
        DirichletMultinomial(privacy=replace(SPARE, n_steps=7)).fit(VOTES, ledger=paid)


def test_a_search_that_was_sent_from_a_block_belongs_to_its_ledger(tmp_path):
    ledger = open_ledger(tmp_path)
    with ledger:
        sent = pickle.dumps(votes())
    search = pickle.loads(sent).fit(VOTES)
    assert [run.run for run in ledger.runs()] == [search.privacy_.ledger["run"]]
    with ledger:
        came = pickle.loads(pickle.dumps(votes().fit(VOTES)))
        assert pickle.loads(pickle.dumps(came)).privacy_.ledger == came.privacy_.ledger


def test_a_grid_search_beside_it_pays_for_every_fit(tmp_path):
    ledger = open_ledger(tmp_path, epsilon=100.0)

    class Scored(DirichletMultinomial):
        def score(self, X, y=None):
            return 0.0

    with ledger:
        votes().fit(VOTES)
        GridSearchCV(Scored(privacy=SPARE), {"prior": [1.0, 2.0]}, cv=2, refit=True).fit(VOTES)
    assert len(ledger.runs()) == 1 + 2 * 2 + 1


def only_a_trial_is_charged(patch):
    original = private_search._charged

    def one_part(ledger, selection, *rest):
        from vips.privacy.selection import Selection, TrialCount

        return original(ledger, Selection(TrialCount(1.0 + 1e-9), selection.parts), *rest)

    patch.setattr(private_search, "_charged", one_part)


def trials_are_charged_one_by_one(patch):
    patch.setattr(private_search, "_charged", lambda *arguments: None)
    patch.setattr(LedgerRun, "prepaid", lambda plan: None)


def the_charge_is_a_fit_that_can_be_closed(patch):
    def begun(self, description, **statement):
        return self.begin_event(description, **statement).run

    patch.setattr(PrivacyLedger, "charge_event", begun)


def whole_searches_are_prepaid(patch):
    original = one_trial.OneTrial.__call__

    def call(self):
        patch.setattr(DirichletMultinomial, "ledger_of_fit", lambda self, ledger: None)
        return original(self)

    patch.setattr(one_trial.OneTrial, "__call__", call)


@pytest.mark.parametrize(
    ("mutant", "check", "says"),
    [
        (only_a_trial_is_charged, check_the_whole_is_charged_before_the_first_trial, "not the whole search"),
        (
            trials_are_charged_one_by_one,
            check_the_whole_is_charged_before_the_first_trial,
            "not the whole search|no trial",
        ),
        (the_charge_is_a_fit_that_can_be_closed, check_nothing_is_given_back, "given back"),
        (whole_searches_are_prepaid, check_only_the_trials_are_paid_for, "was not charged"),
    ],
)
def test_mutants_are_noticed(mutant, check, says, monkeypatch, tmp_path):
    check_notices(lambda: check(tmp_path), mutant, monkeypatch, says)
