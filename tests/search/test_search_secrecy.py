"""The number of trials, and every trial but the best one, leave no trace."""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
import types
import weakref

import numpy as np
import pytest

from tests import ROOT
from tests.mutants import check_notices
from tests.search.cases import VOTES, votes
from vips import BayesianLogisticRegression, DirichletMultinomial, PrivacyBudget, PrivacyLedger
from vips.privacy.selection import TrialCount
from vips.search import one_trial, private_search, trials

RELEASED = {"best_estimator_", "best_params_", "best_score_", "privacy_"}


def reachable(thing) -> list:
    """Every object that can be reached from one, without modules and classes."""
    found, waiting = {}, [thing]
    while waiting:
        each = waiting.pop()
        if id(each) in found or isinstance(each, types.ModuleType | type | types.FunctionType):
            continue
        found[id(each)] = each
        waiting += gc.get_referents(each)
    return list(found.values())


def watched_search(patch, n_trials: int, **settings):
    """A fitted search of so many trials, weak references to all fitted models, and all scores."""
    models, scores = [], []
    original = one_trial.OneTrial.__call__

    def call(self):
        score, found = original(self)
        models.append(weakref.ref(found[0]))
        scores.append(score)
        return score, found

    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(one_trial.OneTrial, "__call__", call)
        inner.setattr(TrialCount, "draw", lambda self: n_trials)
        search = votes(**settings).fit(VOTES)
    return search, models, scores


def check_only_the_best_is_kept(patch=None):
    search, models, scores = watched_search(patch, 30)
    assert {name for name in vars(search) if name.endswith("_")} == RELEASED, "an attribute that is not released"
    assert search.best_score_ == max(scores), "the best is not released"
    alive = [model() for model in models if model() is not None]
    assert alive == [search.best_estimator_], "a losing model is alive"
    everything = reachable(search)
    fitted = [
        each for each in everything if isinstance(each, DirichletMultinomial) and hasattr(each, "last_posterior_")
    ]
    assert fitted == [search.best_estimator_], "a losing model can be reached"
    numbers = {each for each in everything if isinstance(each, float)}
    assert not numbers & set(sorted(scores)[:-1]), "the score of a losing trial can be reached"


def test_only_the_best_is_kept():
    check_only_the_best_is_kept()


def check_the_number_of_trials_changes_nothing_else(tmp_path):
    sizes, entries = [], []
    for n_trials in (1, 2, 60):
        with PrivacyLedger(tmp_path / f"{n_trials}.ledger", 20.0, 1e-5, "votes") as ledger:
            search, _, _ = watched_search(None, n_trials)
        shape = [
            f"{type(each).__name__} {np.shape(each)}" for each in reachable(search) if isinstance(each, np.ndarray)
        ]
        sizes.append((len(pickle.dumps(search)), sorted(shape), sorted(search.privacy_.to_dict())))
        entries.append([sorted(entry) for entry in ledger.history()])
    assert sizes[0] == sizes[1] == sizes[2], "what is released depends on the number of trials"
    assert entries[0] == entries[1] == entries[2], "the ledger depends on the number of trials"


def test_the_number_of_trials_changes_nothing_else(tmp_path):
    check_the_number_of_trials_changes_nothing_else(tmp_path)


QUIET = """
import json, logging, os, sys, warnings
from tests.search.cases import VOTES, votes
from vips import BayesianLogisticRegression, PrivateSearch
from vips.privacy.selection import TrialCount
logging.basicConfig(level=0)
warnings.simplefilter("always")
search = votes()
search.fit(VOTES)
files = []
def hook(event, arguments):
    if event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        files.append(str(arguments[0]))
    elif event in ("os.mkdir", "os.rename", "os.remove", "socket.connect", "subprocess.Popen", "os.fork", "os.system"):
        files.append(event)
sys.addaudithook(hook)
TrialCount.draw = lambda self: 25
search.fit(VOTES)
sys.__stdout__.write(json.dumps(files))
"""


def test_trials_write_no_file_and_print_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout) == []
    assert done.stderr == ""


def check_trials_share_no_draw():
    """Every fit and every score has noise of its own, also where the model's start is seeded; candidates are drawn afresh."""
    scores, totals, chosen = [], [], []
    original = one_trial.OneTrial.__call__

    def call(self):
        score, (fitted, settings) = original(self)
        scores.append(score)
        totals.append(tuple(fitted.noisy_totals_.average["counts"]))
        chosen.append(settings["prior"])
        return score, (fitted, settings)

    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(one_trial.OneTrial, "__call__", call)
        inner.setattr(TrialCount, "draw", lambda self: 40)
        for _ in range(2):
            votes(estimator=DirichletMultinomial(random_state=0)).fit(VOTES)
    assert len(set(scores)) == len(set(totals)) == 80, "two trials share a draw"
    assert all(3 < chosen.count(prior) < 55 for prior in (1.0, 10.0, 100.0)), "candidates are not drawn afresh"
    assert chosen[:40] != chosen[40:], "candidates are drawn from a seed"


def test_trials_share_no_draw():
    check_trials_share_no_draw()


def test_a_record_is_in_the_fit_or_in_the_score():
    """A row of its own kind: a trial either counts it or scores it."""
    rows = np.vstack([np.tile([1.0, 0.0, 0.0], (200, 1)), [[0.0, 0.0, 1.0]]])
    seen = []

    def score(model, X, y):
        if X[0, 2] == 1.0:
            seen.append(model.noisy_totals_.average["counts"][2])
        return 0.0

    for _ in range(60):
        votes(score=score, score_range=(0.0, 1.0), epsilon=500.0, held_out=0.5, candidates={"prior": [1.0]}).fit(rows)
    assert len(seen) > 10
    assert max(seen) < 0.5  # the fit holds it never


class Scored(DirichletMultinomial):
    """Notes which candidates score how many rows: what compiles their kernels."""

    seen = []

    def record_scores(self, records, name):
        self.seen.append(self.prior)
        return super().record_scores(records, name)


def check_every_candidate_scores_rows_whatever_there_are():
    """Kernels are kept in files: which ones must tell neither that somebody is held out nor which candidates are tried."""
    for X in (VOTES, VOTES[:0], np.full((60, 3), np.nan)):
        Scored.seen.clear()
        votes(estimator=Scored(), held_out=0.01).fit(X)
        assert {1.0, 10.0, 100.0} <= set(Scored.seen), "kernels of a candidate's score depend on the records"


def test_every_candidate_scores_rows_whatever_there_are():
    check_every_candidate_scores_rows_whatever_there_are()


def scores_are_not_rehearsed(patch):
    patch.setattr(private_search, "rehearse_scores", lambda *_: None)


def scores_of_all_trials_are_kept(patch):
    original = private_search.PrivateSearch.fit

    def fit(self, *arguments, **keywords):
        kept, run = [], one_trial.OneTrial.__call__

        def call(trial):
            result = run(trial)
            kept.append(result[0])
            return result

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(one_trial.OneTrial, "__call__", call)
            original(self, *arguments, **keywords)
        self.privacy_.releases[0].selection.__dict__["kept"] = kept
        return self

    patch.setattr(private_search.PrivateSearch, "fit", fit)


def scores_of_all_trials_are_an_attribute(patch):
    scores_of_all_trials_are_kept(patch)
    fit = private_search.PrivateSearch.fit

    def with_attribute(self, *arguments, **keywords):
        fit(self, *arguments, **keywords)
        self.scores_ = self.privacy_.releases[0].selection.__dict__.pop("kept")
        return self

    patch.setattr(private_search.PrivateSearch, "fit", with_attribute)


def losing_models_are_kept(patch):
    kept = []
    original = trials._guarded

    def guarded(run):
        kept.append(original(run))
        return kept[-1]

    patch.setattr(trials, "_guarded", guarded)


def trials_share_a_seed(patch):
    from vips import PrivacyPlan
    from vips.privacy.mechanism.noise import Randomness

    patch.setattr(PrivacyPlan, "randomness", lambda self, state: Randomness.for_fit(0, reproducible=True))


def candidates_are_drawn_from_a_seed(patch):
    rng = [None]
    original = private_search._search

    def search(*arguments):
        rng[0] = np.random.default_rng(0)
        return original(*arguments)

    patch.setattr(private_search, "_search", search)
    patch.setattr(one_trial, "secret_below", lambda n: int(rng[0].integers(n)))


@pytest.mark.parametrize(
    ("mutant", "check", "says"),
    [
        (scores_of_all_trials_are_kept, check_only_the_best_is_kept, "score of a losing trial"),
        (scores_of_all_trials_are_an_attribute, check_only_the_best_is_kept, "not released"),
        (losing_models_are_kept, check_only_the_best_is_kept, "a losing model is alive"),
        (trials_share_a_seed, check_trials_share_no_draw, "share a draw"),
        (candidates_are_drawn_from_a_seed, check_trials_share_no_draw, "from a seed"),
        (scores_are_not_rehearsed, check_every_candidate_scores_rows_whatever_there_are, "depend on the records"),
    ],
)
def test_mutants_are_noticed(mutant, check, says, monkeypatch):
    check_notices(check, mutant, monkeypatch, says)


def test_a_released_number_of_trials_is_noticed(monkeypatch, tmp_path):
    scores_of_all_trials_are_kept(monkeypatch)
    with pytest.raises(AssertionError, match="depends on the number of trials"):
        check_the_number_of_trials_changes_nothing_else(tmp_path)


def test_warnings_of_trials_are_not_heard(recwarn):
    X = np.random.default_rng(0).uniform(-1e300, 1e300, (60, 2))
    from vips import PrivateSearch

    PrivateSearch(
        BayesianLogisticRegression(max_norm=1.0), {"prior": [1.0, 2.0]}, privacy=PrivacyBudget(1.0, 1e-6)
    ).fit(X, np.arange(60) % 2)
    assert not recwarn.list
