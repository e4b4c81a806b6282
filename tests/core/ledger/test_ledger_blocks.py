"""``with ledger:``, and fits that are sent from inside the block to other processes."""

import copy
import multiprocessing
import os
import pickle
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
import sklearn
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

from tests.laws.cases import BetaBernoulli
from tests.plans import with_release
from vips import LatentDirichletAllocation, PrivacyLedger, PrivacyPlan, load
from vips.core.ledger import LedgerError, current_ledger, open_ledger
from vips.core.ledger import ledger as ledger_module

PLAN = PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=5, clip_norm=1.5)
COINS = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)


@pytest.fixture(scope="module")
def elsewhere(forkserver):
    """Calls a function in another process that was started outside of every block."""
    with forkserver.Pool(1) as pool:
        yield lambda function, *arguments: pool.apply(function, arguments)


class Scored(BetaBernoulli):
    def score(self, X, y=None):
        return 0.0


def fit(plan=PLAN, ledger=None):
    return BetaBernoulli(privacy=plan).fit(COINS, ledger=ledger)


def fit_pickled(sent):
    """Fit as a worker that gets a pickled plan."""
    return fit(pickle.loads(sent)).privacy_.ledger["run"]


def fit_own_plan():
    """Fit with a plan that the worker makes itself."""
    return fit(PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=5, clip_norm=1.5)).privacy_.ledger


def fit_model(model):
    return model.fit(COINS)


def fit_clone(model):
    return clone(model).fit(COINS)


def open_after_unpickling(sent):
    pickle.loads(sent)
    return current_ledger()


def kinds(ledger):
    return [entry["kind"] for entry in ledger.history()]


# -- in one process ---------------------------------------------------------------------------------------------


def test_with_charges_every_private_fit_inside(ledger):
    with ledger:
        assert current_ledger().path == ledger.path
        fit()
        clone(BetaBernoulli(privacy=PLAN)).fit(COINS)
        with pytest.raises(LedgerError, match="adds no noise"):
            BetaBernoulli().fit(COINS)
        with ledger:
            fit(ledger=ledger)
        fit()
    assert current_ledger() is None
    fit()
    assert len(ledger.runs()) == 4


def test_two_ledgers_at_once_are_refused(ledger, other):
    with ledger:
        with pytest.raises(LedgerError, match="charge one of them"):
            fit(ledger=other)
        with pytest.raises(LedgerError, match="Another ledger"), other:
            pass
        with pytest.raises(LedgerError, match="Another ledger"):
            other.inside(fit)
    assert kinds(other) == ["open"]
    assert ledger.runs() == []


def test_a_copy_of_the_open_ledger_is_another_one_and_a_link_is_the_same(ledger, tmp_path):
    shutil.copy(ledger.path, tmp_path / "copy.ledger")
    with ledger, pytest.raises(LedgerError, match="Another ledger"), PrivacyLedger.open(tmp_path / "copy.ledger"):
        pass
    (tmp_path / "link").symlink_to(ledger.path)
    with ledger, PrivacyLedger.open(tmp_path / "link") as linked:
        fit(ledger=linked)
    assert len(ledger.runs()) == 1


def test_blocks_of_several_threads_need_not_nest(ledger, other):
    """When one thread leaves, the ledger stays open for the other, and another ledger is refused meanwhile."""
    first, second = ledger, PrivacyLedger.open(ledger.path)
    first.__enter__()
    second.__enter__()
    with pytest.raises(LedgerError, match="Another ledger"), other:
        pass
    first.__exit__()
    fit()
    second.__exit__()
    assert len(ledger.runs()) == 1
    assert current_ledger() is None
    with other:
        fit()
    assert len(other.runs()) == 1


def test_threads_and_pipelines_are_inside(ledger):
    plan = PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=2)
    with ledger:
        Parallel(n_jobs=2, backend="threading")(delayed(fit)() for _ in range(3))
        make_pipeline(LatentDirichletAllocation(2, vocabulary=4, privacy=plan)).fit(COINS)
    assert [run.what for run in ledger.runs()] == ["BetaBernoulli"] * 3 + ["LatentDirichletAllocation"]


def test_copies_that_stay_in_this_process_belong_to_no_ledger(ledger):
    model = BetaBernoulli(privacy=PLAN)
    with ledger:
        copies = [copy.copy(model), copy.deepcopy(model), clone(model), BetaBernoulli(privacy=copy.deepcopy(PLAN))]
    for estimator in [*copies, copy.deepcopy(BetaBernoulli())]:
        estimator.fit(COINS)
    assert ledger.runs() == []


# -- pickled plans and models name their ledger -----------------------------------------------------------------


def test_a_plan_that_was_sent_from_inside_is_charged_wherever_and_whenever_it_is_fitted(ledger, other, elsewhere):
    with ledger:
        sent = pickle.dumps(PLAN)
    assert elsewhere(fit_pickled, sent) == ledger.runs()[0].run
    with other:  # sent on from a block of another ledger, it keeps its own
        again = pickle.dumps(pickle.loads(sent))
    assert elsewhere(fit_pickled, again) == ledger.runs()[1].run
    assert fit(pickle.loads(sent)).privacy_.ledger["run"] == ledger.runs()[2].run
    assert fit(replace(pickle.loads(sent), noise_multiplier=5.0)).privacy_.ledger["run"] == ledger.runs()[3].run
    assert other.runs() == []
    assert fit(pickle.loads(pickle.dumps(PLAN))).privacy_.ledger is None  # sent from outside


def test_a_fit_that_belongs_to_two_ledgers_is_refused_and_unpickling_opens_none(ledger, other, elsewhere):
    with ledger:
        sent, with_others = pickle.dumps(PLAN), pickle.dumps([PLAN, BetaBernoulli(PLAN), BetaBernoulli(), ledger])
    with pytest.raises(LedgerError, match="charge one of them"):
        fit(pickle.loads(sent), ledger=other)
    with other, pytest.raises(LedgerError, match="not clear which ledger"):
        fit(pickle.loads(sent))
    assert ledger.runs() == other.runs() == []
    assert elsewhere(open_after_unpickling, with_others) is None
    assert open_after_unpickling(with_others) is None


def test_the_ledger_of_a_plan_is_neither_compared_nor_shown_nor_saved(ledger, tmp_path):
    with ledger:
        model = fit_model(pickle.loads(pickle.dumps(BetaBernoulli(privacy=PLAN))))
        topics = pickle.loads(pickle.dumps(LatentDirichletAllocation(2, vocabulary=4, privacy=PLAN))).fit(COINS)
    received = model.privacy
    assert received == PLAN
    assert hash(received) == hash(PLAN)
    assert repr(received) == repr(PLAN)
    topics.save(tmp_path / "topics.vips")
    token = received.sent_from.token
    for secret in (token, "letters.ledger"):
        assert secret.encode() not in (tmp_path / "topics.vips").read_bytes()
    assert token in str(received.__dict__)
    assert load(tmp_path / "topics.vips").privacy.sent_from is None


def test_a_checkpoint_goes_on_wherever_its_fit_was_sent(ledger, tmp_path):
    class Stops(BetaBernoulli):
        def to_posterior(self, average, noise_std, previous):
            if ledger.runs() and ledger.runs()[0].released == 3:
                raise ZeroDivisionError
            return super().to_posterior(average, noise_std, previous)

    with ledger:
        with pytest.raises(ZeroDivisionError):
            Stops(privacy=PLAN).fit(COINS, checkpoint=tmp_path / "fit.vips")
        sent = pickle.dumps(PLAN)
    Stops.to_posterior = BetaBernoulli.to_posterior
    Stops(privacy=pickle.loads(sent)).fit(COINS, checkpoint=tmp_path / "fit.vips")
    assert [run.state for run in ledger.runs()] == ["complete"]


@pytest.mark.parametrize("place", ["gone", "older copy", "newer copy", "another ledger", "no ledger"])
def test_a_fit_that_cannot_reach_its_ledger_is_refused(ledger, tmp_path, place):
    class Unread(BetaBernoulli):
        def valid_records(self, records):
            raise AssertionError("a record was looked at")

    older = tmp_path / "older"
    shutil.copy(ledger.path, older)
    with ledger:
        sent = pickle.dumps(PLAN)
    away = tmp_path / "away"
    ledger.path.rename(away)
    if place == "older copy":
        older.rename(ledger.path)
    elif place == "newer copy":
        shutil.copy(away, ledger.path)
    elif place == "another ledger":
        PrivacyLedger(ledger.path, epsilon=6.0, delta=1e-5, dataset="letters")
    elif place == "no ledger":
        ledger.path.write_text("letters")
    with pytest.raises(LedgerError, match=r"(?s)belongs to the ledger .* cannot be reached here"):
        Unread(privacy=pickle.loads(sent)).fit(COINS)
    (tmp_path / "wrong").write_bytes(b"") if place == "gone" else ledger.path.rename(tmp_path / "wrong")
    away.rename(ledger.path)
    assert ledger.runs() == []
    fit(pickle.loads(sent))
    assert len(ledger.runs()) == 1


def test_an_older_copy_with_the_same_inode_is_noticed_and_other_machines_know_the_file_by_its_inode(
    ledger, monkeypatch
):
    """As on a virtual machine that was reset to a snapshot."""
    before = ledger.path.read_bytes()
    with ledger:
        sent = pickle.dumps(PLAN)
    block = pickle.loads(sent).sent_from
    mounted = replace(block, device=block.device + 1)
    assert not mounted.has_this_file()
    monkeypatch.setattr(open_ledger, "this_machine", lambda: "another kernel")
    assert mounted.has_this_file()
    assert not replace(mounted, inode=block.inode + 1).has_this_file()
    monkeypatch.undo()
    ledger.path.write_bytes(before)
    with pytest.raises(LedgerError, match="older copy"):
        fit(pickle.loads(sent))


def test_a_non_private_fit_that_was_sent_from_inside_is_refused(ledger, elsewhere):
    with ledger:
        for function in (fit_model, fit_clone):
            with pytest.raises(LedgerError, match="adds no noise"):
                elsewhere(function, BetaBernoulli())
    elsewhere(fit_model, BetaBernoulli())


def test_a_plan_that_a_worker_makes_needs_to_be_called_inside(ledger, elsewhere):
    with ledger:
        assert elsewhere(fit_own_plan) is None  # the ledger cannot know of it
        assert elsewhere(ledger.inside(fit_own_plan))["run"] == ledger.runs()[0].run
    assert elsewhere(fit_own_plan) is None
    assert elsewhere(ledger.inside(fit_own_plan))["run"] == ledger.runs()[1].run  # also without a block
    for bad in (None, a_generator, a_coroutine):
        with pytest.raises(TypeError, match="function"):
            ledger.inside(bad)
    gone = ledger.inside(fit_own_plan)
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="cannot be reached"):
        elsewhere(gone)


def a_generator():
    yield fit_own_plan()


async def a_coroutine():
    return fit_own_plan()


def test_calls_inside_of_two_ledgers_in_threads_of_one_worker(ledger, other):
    """Each call is charged to its own ledger; a thread that could belong to either is refused."""
    both, done, outcome = threading.Barrier(2, timeout=120), threading.Barrier(2, timeout=120), []

    def call():
        both.wait()
        fit_own_plan()
        in_thread(lambda: outcome.append(attempt(fit_own_plan)))
        done.wait()

    threads = [threading.Thread(target=account.inside(call)) for account in (ledger, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(account.runs()) for account in (ledger, other)] == [1, 1]
    assert outcome == ["refused", "refused"]

    ledger.inside(lambda: in_thread(fit_own_plan))()  # one ledger only: its threads are inside
    assert len(ledger.runs()) == 2
    with other:  # a plan that belongs to the other ledger
        ledger_of_plan = pickle.loads(pickle.dumps(PLAN)).sent_from
    ledger.inside(fit)(replace(PLAN, sent_from=None))
    assert attempt(lambda: ledger.inside(fit)(replace(PLAN, sent_from=ledger_of_plan))) == "refused"
    assert current_ledger() is None


def attempt(function):
    with pytest.raises(LedgerError, match="not clear which ledger"):
        function()
    return "refused"


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


# -- models that come back from a worker ------------------------------------------------------------------------


def test_models_that_come_back_are_charged_here(ledger, elsewhere):
    with ledger:
        model = elsewhere(fit_model, BetaBernoulli(privacy=PLAN))
        assert model.privacy_.ledger["run"] == ledger.runs()[0].run
        as_sent = pickle.dumps(with_release(model.privacy_, ledger=model.privacy_.ledger | {"run": "of another copy"}))
        with pytest.raises(LedgerError, match="no charge for it"):
            pickle.loads(as_sent)
        with pytest.raises(LedgerError, match="no charge for it"):
            pickle.loads(pickle.dumps(with_release(model.privacy_, ledger=None)))
    pickle.loads(as_sent)  # years later


def test_a_copy_of_the_file_in_the_place_of_the_worker_shows_when_the_fit_comes_back(ledger, tmp_path):
    """The copy was made inside the block and has the same inode, so that nothing else could show it."""
    with ledger:
        sent = pickle.dumps(BetaBernoulli(privacy=PLAN))
        here = ledger.path.read_bytes()
        back = pickle.dumps(pickle.loads(sent).fit(COINS))
        ledger.path.write_bytes(here)  # this file has no entry for the fit
        ledger_module._opened.cache_clear()
        with pytest.raises(LedgerError, match="no charge for it"):
            pickle.loads(back)


def test_estimators_that_come_back_open_no_ledger(ledger, forkserver):
    cross_validate(Scored(privacy=PLAN), COINS, cv=2, n_jobs=2)
    with ledger:
        scores = cross_validate(Scored(privacy=PLAN), COINS, cv=3, n_jobs=2, return_estimator=True, error_score="raise")
    assert current_ledger() is None
    fit()
    assert sorted(run.run for run in ledger.runs()) == sorted(e.privacy_.ledger["run"] for e in scores["estimator"])


# -- scikit-learn, joblib, multiprocessing ----------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_cross_validation_and_grid_search_are_counted_in_child_processes(ledger, n_jobs, forkserver):
    cross_validate(Scored(privacy=PLAN), COINS, cv=2, n_jobs=n_jobs)  # workers that started without a ledger
    assert ledger.runs() == []
    with ledger:
        cross_validate(Scored(privacy=PLAN), COINS, cv=3, n_jobs=n_jobs, error_score="raise")
    assert len(ledger.runs()) == 3
    cross_validate(Scored(privacy=PLAN), COINS, cv=2, n_jobs=n_jobs)
    assert len(ledger.runs()) == 3
    grid = {"privacy": [PLAN, replace(PLAN, noise_multiplier=6.0)]}
    with sklearn.config_context(enable_metadata_routing=True):
        model = Scored(privacy=PLAN).set_fit_request(ledger=True)
        GridSearchCV(model, grid, cv=2, n_jobs=n_jobs, error_score="raise").fit(COINS, ledger=ledger)
    runs = ledger.runs()[3:]
    assert len(runs) == 5  # two settings on two folds, and the refit
    assert sorted({run.plan["noise_multiplier"] for run in runs}) == [4.0, 6.0]


def test_a_pickled_ledger_is_that_very_file(ledger, tmp_path):
    fit(ledger=pickle.loads(pickle.dumps(ledger)))
    assert len(ledger.runs()) == 1
    sent, older = pickle.dumps(ledger), ledger.path.read_bytes()
    shutil.copy(ledger.path, tmp_path / "copy")
    (tmp_path / "copy").replace(ledger.path)
    with pytest.raises(LedgerError, match="a copy of it"):
        pickle.loads(sent)
    now = PrivacyLedger.open(ledger.path)
    fit(ledger=now)
    sent = pickle.dumps(now)
    now.path.write_bytes(older)
    with pytest.raises(LedgerError, match="does not contain the head"):
        pickle.loads(sent)


@pytest.mark.parametrize("method", ["forkserver", "fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_running_pool_learns_of_each_ledger_from_the_plans_it_gets(ledger, other, method, forkserver):
    with ledger:
        pool = multiprocessing.get_context(method).Pool(1)
    with pool:
        pool.apply(fit, (PLAN,))
        assert len(ledger.runs()) == 0
        with ledger:
            pool.apply(fit, (PLAN,))
        assert len(ledger.runs()) == 1
        with other:
            pool.apply(fit, (PLAN,))
        pool.apply(fit, (PLAN,))
        assert (len(ledger.runs()), len(other.runs())) == (1, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_goes_on_inside(ledger):
    """Its plan was not pickled, so that nothing else names the ledger."""
    with ledger:
        child = multiprocessing.get_context("fork").Process(target=fit)
        child.start()
        child.join()
    assert child.exitcode == 0
    assert len(ledger.runs()) == 1


@pytest.mark.filterwarnings("ignore:.* tasks have been successfully executed")
def test_a_block_is_left_at_once_whoever_uses_joblib(ledger, forkserver):
    """Also with an unread generator, and with another thread whose workers have not ended."""
    release = threading.Event()
    with ledger:
        results = Parallel(n_jobs=2, return_as="generator")(delayed(fit)(PLAN) for _ in range(8))
        busy = threading.Thread(target=lambda: Parallel(n_jobs=2)(delayed(int)(i) for i in range(4)) and release.wait())
        busy.start()
        leaving = threading.Thread(target=ledger.__exit__)
        leaving.start()
        leaving.join(timeout=120)
        assert not leaving.is_alive(), "the block cannot be left"
        assert current_ledger() is None
        release.set()
        busy.join()
        ledger.__enter__()
    next(results)
    del results
