"""The ledger: terms, admission, runs, and what the file shows."""

import json
import os
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from tests.core.ledger.forgery import append, entries, sql
from tests.laws.cases import BetaBernoulli
from tests.plans import REPLACED
from vips import LatentDirichletAllocation, PrivacyBudgetError, PrivacyLedger, PrivacyPlan
from vips.__main__ import main
from vips.core.accounting.gaussian import gaussian_epsilon
from vips.core.ledger import LedgerError
from vips.core.ledger.pricing import of_plan

PLAN = PrivacyPlan(noise_multiplier=8.0, sampling="full", n_steps=5, clip_norm=1.5)
SAMPLED = PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=5, clip_norm=1.5)
COINS = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)
TERMS = {"epsilon": 3.0, "delta": 1e-5, "dataset": "letters"}


@pytest.fixture
def ledger(path):
    return PrivacyLedger(path, **TERMS)


def fit(ledger=None, plan=PLAN, **arguments):
    return BetaBernoulli(privacy=plan).fit(COINS, ledger=ledger, **arguments)


def kinds(ledger):
    return [entry["kind"] for entry in ledger.history()]


# -- terms ------------------------------------------------------------------------------------------------------


def test_the_same_terms_continue_a_ledger(path, ledger):
    fit(ledger)
    again = PrivacyLedger(path, **TERMS)
    assert again.spent() == ledger.spent() > 0.0
    assert PrivacyLedger.open(path).head() == ledger.head()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 4.0}, "epsilon 3.0, not 4.0"), ({"epsilon": -1.0}, "epsilon"),
        ({"dataset": "diaries"}, "dataset 'letters', not 'diaries'"), ({"dataset": ""}, "dataset"),
        ({"delta": 1e-6}, "delta"), ({"delta": 0.0}, "delta"),
        ({"unit": "one person"}, "unit"), ({"relation": "replace_one"}, "relation"),
        ({"pure": 0.5}, "pure 0.0, not 0.5"), ({"pure": 3.5}, "pure"),
    ],
)  # fmt: skip
def test_other_terms_are_refused_and_change_nothing(path, ledger, changes, message):
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        PrivacyLedger(path, **(TERMS | changes))
    assert path.read_bytes() == before


def test_foreign_and_damaged_files_are_refused_and_not_touched(tmp_path, path, ledger):
    fit(ledger)
    whole = path.read_bytes()
    other = tmp_path / "other"
    sql(tmp_path / "songs.db", "CREATE TABLE songs (name TEXT)")
    for content in (b"", b"hello", whole[:100], whole[: len(whole) // 2], (tmp_path / "songs.db").read_bytes()):
        other.write_bytes(content)
        with pytest.raises(LedgerError, match=r"ledger|damaged"):
            PrivacyLedger(other, **TERMS)
        assert other.read_bytes() == content
        assert sorted(p.name for p in tmp_path.iterdir()) == ["letters.ledger", "other", "songs.db"]
    with pytest.raises(LedgerError, match="no file"):
        PrivacyLedger.open(tmp_path / "missing")
    with pytest.raises(LedgerError, match=r"is a folder: write the path of a file in it, such as .*my\.ledger"):
        PrivacyLedger(tmp_path, **TERMS)
    with pytest.raises(LedgerError, match="no folder"):
        PrivacyLedger(tmp_path / "missing" / "a.ledger", **TERMS)
    sql(path, "PRAGMA user_version = 3")
    with pytest.raises(LedgerError, match="format 3"):
        PrivacyLedger.open(path)


def test_a_file_in_another_journal_mode_is_refused_and_can_be_switched_back(path, ledger):
    """A browser for SQLite files may switch the mode. In WAL mode a copy of the file lacks the last entries."""
    fit(ledger)
    assert sql(path, "PRAGMA journal_mode = WAL") == [("wal",)]
    with pytest.raises(LedgerError, match="journal mode 'wal'") as refused:
        fit(ledger)
    sql(path, str(refused.value).split("'")[-2])
    fit(ledger)
    assert len(PrivacyLedger.open(path).runs()) == 2


def test_a_reader_needs_no_right_to_write(path, ledger, monkeypatch):
    """An auditor may only read. (Root can write to any file, so the test makes SQLite open the file for reading.)"""
    fit(ledger)
    path.chmod(0o444)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda name, **how: connect(name.replace("mode=rw", "mode=ro"), **how))
    PrivacyLedger.open(path).verify(ledger.head())
    with pytest.raises(OSError, match="readonly"):
        fit(ledger)


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), OSError(95, "Not supported")])
def test_file_systems_without_hard_links(path, monkeypatch, error):
    def link(*_):
        raise error

    monkeypatch.setattr(os, "link", link)
    fit(PrivacyLedger(path, **TERMS))
    assert len(PrivacyLedger(path, **TERMS).runs()) == 1
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_ledger_without_hard_links_replaces_nobodys_file(path, monkeypatch):
    def link(partial, name):
        name.write_text("somebody else was faster")
        raise PermissionError

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(LedgerError, match="not a ledger"):
        PrivacyLedger(path, **TERMS)
    assert path.read_text() == "somebody else was faster"


@pytest.mark.parametrize(
    "body",
    ['{"kind": "charge"}', '{"kind": "party"}', "[]", "7", '{"kind": ["release"]}', "[" * 100_000, "no json",
     '{"kind": "release", "run": "unknown", "step": 1}', '{"kind": "open"}', '{"kind": "scope", "token": 3}'],
)  # fmt: skip
def test_forged_entries_with_the_right_hash_are_one_kind_of_error(path, ledger, body):
    append(path, body)
    with pytest.raises(LedgerError, match="forged"):
        PrivacyLedger.open(path)


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE entries SET body = replace(body, '\"steps\":5', '\"steps\":1') WHERE number = 1",
        "DELETE FROM entries WHERE number = 2",
        "UPDATE entries SET number = number + 1 WHERE number = (SELECT max(number) FROM entries)",
        "INSERT INTO entries SELECT 7, body, hash FROM entries WHERE number = 6",
    ],
)
def test_edits_inside_the_file_are_noticed(path, ledger, edit):
    fit(ledger)
    before = entries(path)
    assert len(before) == 7
    sql(path, edit)
    assert entries(path) != before
    with pytest.raises(LedgerError, match="edited"):
        PrivacyLedger.open(path)


def test_truncation_and_rollback_show_against_a_head_kept_elsewhere(path, ledger):
    old = path.read_bytes()
    fit(ledger)
    head = ledger.head()
    ledger.verify(head)
    path.write_bytes(old)  # an older copy is a valid ledger: only the head shows it
    PrivacyLedger.open(path).verify()
    with pytest.raises(LedgerError, match="does not contain the head"):
        PrivacyLedger.open(path).verify(head)
    with pytest.raises(LedgerError, match="lost entries"):
        ledger.spent()  # this instance remembers the later entries


# -- admission --------------------------------------------------------------------------------------------------


def epsilon_of_steps(steps):
    """ε at 0.9 δ of so many steps of PLAN, by the closed form of one Gaussian mechanism."""
    return gaussian_epsilon(np.sqrt(steps) / 8.0, 0.9e-5)


def test_fits_are_admitted_while_the_limits_have_room(path, ledger):
    room = max(n for n in range(1, 50) if epsilon_of_steps(5 * n) <= 3.0)
    assert room >= 3
    for _ in range(room):
        fit(ledger)
    before = path.read_bytes()
    assert ledger.affordable(PLAN) < 5
    with pytest.raises(PrivacyBudgetError, match=r"no room for 5 steps.*Nothing was charged"):
        fit(ledger)
    assert path.read_bytes() == before
    assert ledger.spent() == pytest.approx(epsilon_of_steps(5 * room))
    assert ledger.spent() <= 3.0


def test_fits_cost_little_more_than_a_tight_composition(path, ledger):
    """Full batches: one Gaussian mechanism. Samples: privacy loss distributions."""
    ledger.charge(SAMPLED)
    assert SAMPLED.epsilon(1e-5) <= ledger.spent() <= 1.05 * SAMPLED.epsilon(1e-5)
    assert ledger.runs()[0].cost().delta_0 == pytest.approx(1e-6 / 20)
    full = PrivacyLedger(path.with_name("full"), **TERMS)
    for _ in range(3):
        full.charge(replace(PLAN, noise_multiplier=20.0))
    assert full.spent() == pytest.approx(gaussian_epsilon(np.sqrt(15.0) / 20.0, 0.9e-5), rel=1e-9)
    tight = replace(PLAN, n_steps=15, noise_multiplier=20.0).epsilon(1e-5)
    assert tight <= full.spent() <= 1.01 * tight


def test_refused_fits_charge_nothing(ledger):
    public = BetaBernoulli()
    for model, message in (
        (public, "adds no noise"),
        (BetaBernoulli(privacy=PrivacyPlan.non_private(n_steps=2)), "adds no noise"),
        (BetaBernoulli(privacy=replace(PLAN, reproducible_noise=True), random_state=0), "reproducible noise"),
        (BetaBernoulli(privacy=PLAN, on_invalid="raise"), "on_invalid"),
        (BetaBernoulli(privacy=replace(PLAN, relation="replace_one")), "counts under"),
    ):
        with pytest.raises(LedgerError, match=message):
            model.fit(COINS, ledger=ledger)
    assert kinds(ledger) == ["open"]
    with pytest.raises(TypeError, match="PrivacyLedger"):
        fit("letters.ledger")
    with pytest.raises(ValueError, match="columns"):
        LatentDirichletAllocation(2, vocabulary=9, privacy=PLAN).fit(COINS, ledger=ledger)
    with pytest.raises(TypeError, match="dtype"):
        BetaBernoulli(privacy=PLAN).fit(COINS.astype(object), ledger=ledger)
    assert kinds(ledger) == ["open"]


class Free(PrivacyPlan):
    """A subclass of a plan that adds no noise."""

    def add_noise(self, total, blocks, randomness, step):
        return dict(total)


def test_a_plan_of_a_class_of_its_own_has_no_guarantee(ledger):
    plan = Free(**{field.name: getattr(PLAN, field.name) for field in fields(PrivacyPlan) if field.compare})
    with pytest.raises(LedgerError, match="subclass of PrivacyPlan"):
        fit(ledger, plan)
    assert kinds(ledger) == ["open"]
    report = fit(plan=plan).privacy_
    assert not report.has_guarantee
    assert report.epsilon(1e-5) == np.inf
    assert "NO GUARANTEE: the plan is a Free" in str(report)
    with pytest.raises(TypeError, match="cannot be saved"):
        report.to_json()


def test_a_model_that_protects_something_else_than_the_ledger_counts_is_refused(path):
    ledger = PrivacyLedger(path, epsilon=8.0, delta=1e-5, dataset="letters", unit="one patient")
    topics = LatentDirichletAllocation(2, vocabulary=4, privacy=PLAN)
    with pytest.raises(LedgerError, match="by 'one patient'; LatentDirichletAllocation protects 'one doc") as refused:
        topics.fit(COINS, ledger=ledger)
    assert kinds(ledger) == ["open"]
    with pytest.raises(LedgerError, match="protects 'one record'"):
        fit(ledger)
    exec(str(refused.value).split("say so once: ")[1], {"ledger": ledger})  # the code in the message works
    ledger.accept_unit("one document")
    topics.fit(COINS, ledger=PrivacyLedger(path, epsilon=8.0, delta=1e-5, dataset="letters", unit="one patient"))
    assert kinds(ledger)[:3] == ["open", "unit", "charge"]
    assert ledger.history()[2]["unit"] == "one document"
    with pytest.raises(LedgerError, match="protects 'one record'"):
        fit(ledger)
    with pytest.raises(LedgerError, match="in words"):
        ledger.accept_unit("")


def test_everything_is_charged_before_a_value_is_read(ledger):
    class Reads(BetaBernoulli):
        def valid_records(self, records):
            seen.append(kinds(ledger))
            return super().valid_records(records)

    seen = []
    Reads(privacy=PLAN).fit(COINS, ledger=ledger)
    assert seen[0] == ["open", "charge"]
    assert ledger.history()[1]["steps"] == 5


def test_only_a_close_gives_unreleased_steps_back(ledger):
    class Fails(BetaBernoulli):
        def to_posterior(self, average, noise_std, previous):
            if len(kinds(ledger)) == 4:
                raise KeyboardInterrupt
            return super().to_posterior(average, noise_std, previous)

    with pytest.raises(KeyboardInterrupt):
        Fails(privacy=PLAN).fit(COINS, ledger=ledger)
    assert kinds(ledger) == ["open", "charge", "release", "release", "close"]
    run = ledger.runs()[0]
    assert (run.state, run.charged, run.released, run.returned) == ("closed at 2", 2, 2, 3)
    assert ledger.spent() == pytest.approx(epsilon_of_steps(2))
    assert ledger.close(run.run) == 3  # closed before: no new entry
    assert kinds(ledger)[-1] == "close"
    assert kinds(ledger).count("close") == 1


def test_an_error_survives_a_ledger_that_cannot_be_reached(path, ledger):
    class Fails(BetaBernoulli):
        def expected_statistics(self, records, posterior):
            path.rename(path.with_name("moved"))
            raise ZeroDivisionError("the first error")

    with pytest.raises(ZeroDivisionError, match="the first error") as caught:
        Fails(privacy=PLAN).fit(COINS, ledger=ledger)
    assert "stays charged until it is closed" in caught.value.__notes__[0]
    path.with_name("moved").rename(path)
    assert ledger.runs()[0].state == "open at 0"


def test_a_killed_run_stays_charged_until_it_is_closed_and_pays_again_when_it_is_resumed(ledger):
    run = ledger.charge(PLAN)
    run.record(1)
    assert ledger.spent() == pytest.approx(epsilon_of_steps(5))
    assert ledger.close(run.run) == 4
    assert ledger.spent() == pytest.approx(epsilon_of_steps(1))
    assert ledger.run(run.run).charged == 1
    with pytest.raises(LedgerError, match="was closed"):
        run.record(2)
    resumed = ledger.resume(run.run, 1, PLAN)
    assert ledger.run(run.run).charged == 5
    resumed.record(2)


def test_steps_are_released_in_order_and_once(ledger):
    run = ledger.charge(PLAN)
    with pytest.raises(LedgerError, match="no charge for step 2"):
        run.record(2)
    for step in range(1, 6):
        run.record(step)
    for step in (5, 6):
        with pytest.raises(LedgerError, match="no charge"):
            run.record(step)
    assert ledger.runs()[0].state == "complete"
    assert ledger.close(run.run) == 0


def test_a_resume_is_charged_for_steps_that_it_repeats(ledger):
    run = ledger.charge(PLAN)
    for step in (1, 2, 3):
        run.record(step)
    resumed = ledger.resume(run.run, 2, PLAN)  # the checkpoint of step 3 was never written
    assert ledger.run(run.run).charged == 6
    with pytest.raises(LedgerError, match="resumed elsewhere"):
        run.record(4)
    for step in (3, 4, 5):
        resumed.record(step)
    assert ledger.spent() == pytest.approx(epsilon_of_steps(6))
    # from an even older checkpoint: five more steps are charged
    ledger.resume(run.run, 0, PLAN)
    assert ledger.run(run.run).charged == 11
    with pytest.raises(LedgerError, match="no step 9"):
        ledger.resume(run.run, 9, PLAN)
    with pytest.raises(LedgerError, match="knows of no run"):
        ledger.resume("abc", 0, PLAN)


def test_two_resumes_of_one_run_do_not_both_go_on(ledger):
    run = ledger.charge(PLAN)
    run.record(1)
    first, second = ledger.resume(run.run, 1, PLAN), ledger.resume(run.run, 1, PLAN)
    second.record(2)
    with pytest.raises(LedgerError, match="resumed elsewhere"):
        first.record(2)
    first.close()  # the run is no longer its own: nothing changes
    assert ledger.run(run.run).closed is False
    assert ledger.run(run.run).charged == 5


def test_a_close_cannot_hit_a_run_that_is_resumed_at_that_moment(path, ledger):
    """The resume comes in between, as if from another process, just before the close opens its transaction."""
    run, elsewhere = ledger.charge(PLAN), PrivacyLedger.open(path)
    run.record(1)
    file = ledger._file

    class Slow:
        def transaction(self, to_write=False):
            ledger._file = file
            elsewhere_resumes()
            return file.transaction(to_write)

    def elsewhere_resumes():  # runs in the clerk's thread, so it uses the file directly
        with file.transaction(to_write=True) as chain:
            book = elsewhere._book.after(chain.read(elsewhere._book.known, elsewhere._book.head))
            chain.write([{"time": "", **book.resuming(run.run, 1, PLAN)[0]}], book.known, book.head)

    ledger._file = Slow()
    run.close()
    assert kinds(ledger)[-1] == "resume"
    assert ledger.run(run.run).charged == 5


def test_resumes_that_do_not_fit_the_run_are_refused(path, ledger):
    run = ledger.charge(PLAN)
    with pytest.raises(LedgerError, match="charged for another plan"):
        ledger.resume(run.run, 0, replace(PLAN, noise_multiplier=0.1))
    with pytest.raises(LedgerError, match="no step"):
        ledger.resume(run.run, 0.5, PLAN)
    old = path.read_bytes()
    run.record(1)
    path.write_bytes(old)
    with pytest.raises(LedgerError, match="older than the checkpoint"):
        PrivacyLedger.open(path).resume(run.run, 1, PLAN)
    small = PrivacyLedger(path.with_name("small"), 1.0, 1e-5, "letters")
    plan = replace(PLAN, n_steps=small.affordable(PLAN))
    run = small.charge(plan)
    run.record(1)
    small.resume(run.run, 1, plan)
    with pytest.raises(PrivacyBudgetError, match="no room for 1 repeated steps"):
        small.resume(run.run, 0, plan)


def test_sampled_steps_are_given_back_all_or_none(ledger):
    run = ledger.charge(SAMPLED)
    once = ledger.spent()
    assert once >= SAMPLED.epsilon(1e-5)
    assert ledger.close(run.run) == 5
    assert ledger.spent() == 0.0
    resumed = ledger.resume(run.run, 0, SAMPLED)
    again = ledger.spent()
    assert again == once  # all that was given back is paid for anew
    resumed.record(1)
    assert ledger.close(run.run) == 5
    assert ledger.spent() == again
    assert ledger.run(run.run).state == "closed at 1"
    ledger.resume(run.run, 1, SAMPLED)  # all that follows is paid for
    assert ledger.spent() == again
    ledger.resume(run.run, 0, SAMPLED)  # one step is repeated
    assert ledger.spent() > again


# -- adaptive choices -------------------------------------------------------------------------------------------


FIRST_SIGMA = 2.0


def delta_of_one_step(level, plan):
    """Hockey-stick divergence of one (sampled) Gaussian at e^level, in closed form; levels may be negative."""
    q, sigma = plan.sampling_rate, plan.noise_multiplier
    ratio = np.exp(level)
    with np.errstate(divide="ignore", invalid="ignore"):
        threshold = sigma**2 * np.log((ratio - 1.0 + q) / q) + 0.5  # where the likelihood ratio exceeds e^level
    above = q * norm.sf((threshold - 1.0) / sigma) + (1.0 - q - ratio) * norm.sf(threshold / sigma)
    return np.where(ratio <= 1.0 - q, 1.0 - ratio, np.maximum(above, 0.0))


def delta_of_two_steps(epsilon, second_deltas):
    """δ(ε) of a Gaussian with σ = 2 and a second plan that depends on its outcome; ``second_deltas(level)`` is the second's δ.

    δ = E[δ_second(ε - loss of the first)], over the outcomes of the side that has the record; a trapezoid sum of a smooth
    function over 16 standard deviations.
    """
    z = np.linspace(-15.0, 17.0, 8001)
    loss = (2.0 * z - 1.0) / (2.0 * FIRST_SIGMA**2)
    density = norm.pdf(z, loc=1.0, scale=FIRST_SIGMA)
    return float(np.sum(density * second_deltas(epsilon - loss)) * (z[1] - z[0]))


def delta_of_worst_pick(epsilon, plans):
    """δ(ε) if an analyst picks the second plan that is worst for the first one's outcome."""
    return delta_of_two_steps(epsilon, lambda level: np.max([delta_of_one_step(level, plan) for plan in plans], axis=0))


def is_admitted(ledger, plan):
    try:
        ledger._book.admit(of_plan(plan, "add_or_remove").price(ledger.remaining()), "", "")
    except PrivacyBudgetError:
        return False
    return True


def test_plans_chosen_after_the_first_result_cannot_beat_the_ledger(tmp_path):
    """The counterexample to composing adaptively chosen plans by privacy loss distributions.

    By tight composition, the first plan and any single one of several second plans are within (ε, δ). An analyst who picks
    the worst second plan for each outcome of the first exceeds δ. The ledger also admits plans of every kind, but the worst
    pick among them stays within δ.
    """
    epsilon, delta = 2.0, 1e-3
    kinds = [PrivacyPlan(noise_multiplier=1.0, sampling_rate=q, n_steps=1) for q in (1.0, 0.05, 0.01)]

    def beside_the_first(plan):
        return delta_of_two_steps(epsilon, lambda level: delta_of_one_step(level, plan))

    tight = []
    for kind in kinds:
        sigma = brentq(lambda s, kind=kind: beside_the_first(replace(kind, noise_multiplier=s)) - delta, 0.1, 50.0)
        tight.append(replace(kind, noise_multiplier=sigma))
    for plan in tight:
        assert beside_the_first(plan) == pytest.approx(delta, rel=1e-6)
    assert delta_of_worst_pick(epsilon, tight) > 1.1 * delta, "not a counterexample"

    ledger = PrivacyLedger(tmp_path / "a.ledger", epsilon, delta, "counterexample")
    ledger.charge(PrivacyPlan(noise_multiplier=FIRST_SIGMA, sampling="full", n_steps=1))
    admitted = []
    for kind in kinds:
        low, high = np.log([0.3, 30.0])
        for _ in range(7):
            middle = 0.5 * (low + high)
            is_enough = is_admitted(ledger, replace(kind, noise_multiplier=np.exp(middle)))
            low, high = (low, middle) if is_enough else (middle, high)
        admitted.append(replace(kind, noise_multiplier=np.exp(high)))  # the worst of its kind, at every z
    assert 0.0 < delta_of_worst_pick(epsilon, admitted) <= delta


def test_the_report_names_the_ledger(ledger):
    report = fit(ledger).privacy_
    assert report.to_dict()["releases"][0]["ledger"] == ledger.entry(ledger.runs()[0].run)
    assert f"charged to 'letters' as run {ledger.runs()[0].run}, 5 steps" in str(report)
    assert "counts releases, not scores" in str(report)


def admitted_in_a_race(ledger, charge, n_attempts):
    """How many of the attempts of several threads are admitted: some share an instance, others open the file again."""

    def attempt(i):
        try:
            return bool(charge(ledger if i % 2 else PrivacyLedger.open(ledger.path)))
        except PrivacyBudgetError:
            return False

    with ThreadPoolExecutor(8) as pool:
        return sum(pool.map(attempt, range(n_attempts)))


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_racing_threads_never_overspend(ledger, noise):
    plan = replace(PLAN, noise=noise)
    room = ledger.affordable(plan) // 5
    assert admitted_in_a_race(ledger, lambda account: account.charge(plan), room + 10) == room


def test_replace_one_ledgers_count_replacements(path):
    ledger = PrivacyLedger(path, **TERMS, relation="replace_one")
    fit(ledger, REPLACED)
    assert ledger.spent() >= REPLACED.epsilon(1e-5) * 0.99
    fit(ledger, replace(SAMPLED, relation="replace_one"))
    assert len(ledger.runs()) == 2


# -- the shell --------------------------------------------------------------------------------------------------


def test_the_shell_says_what_entries_cost_alone_and_why_they_cost_more(path, capsys):
    ledger = PrivacyLedger(path, epsilon=8.0, delta=1e-5, dataset="letters")
    ledger.charge(PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5), "full")
    ledger.charge(PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.01, n_steps=1), "single sample")
    ledger.charge(PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.01, n_steps=1000), "many samples")
    assert main(["ledger", "show", str(path)]) == 0
    full, single, many = capsys.readouterr().out.splitlines()[1:4]
    assert "ε = 1.007 (alone 1)" in full
    assert "(alone 0.1995: beside others, few samples" in single
    assert "(alone 1.828)" in many


def test_ledger_from_the_shell(path, ledger, capsys):
    fit(ledger)
    run = ledger.charge(PLAN)
    run.record(1)
    assert main(["ledger", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    for text in ("letters", "complete", "open at 1", run.run, "BetaBernoulli", "left: ε = "):
        assert text in shown
    main(["ledger", "head", str(path)])
    head = capsys.readouterr().out.strip()
    assert head == ledger.head()
    assert main(["ledger", "close", str(path), run.run]) == 0
    assert "4 steps were given back" in capsys.readouterr().out
    assert main(["ledger", "verify", str(path), "--head", head]) == 0
    assert "part of the chain" in capsys.readouterr().out
    assert main(["ledger", "verify", str(path), "--head", "3:abc"]) == 2
    assert "does not contain the head" in capsys.readouterr().err
    assert main(["ledger", "show", str(path.with_name("missing"))]) == 2


def test_names_in_a_ledger_cannot_speak_to_the_terminal(path, capsys):
    """Nor can they add lines to the output."""
    strange = "letters\x1b[2J\x1b]0;title\x07\r\nspent: ε = 0\u202e\u2028\udc80"
    ledger = PrivacyLedger(path, epsilon=3.0, delta=1e-5, dataset=strange, unit=strange)
    ledger.charge(PLAN, strange)
    assert main(["ledger", "show", str(path)]) == 0
    assert main(["ledger", "close", str(path), strange]) == 2
    shown = capsys.readouterr()
    assert "letters\\x1b[2J" in shown.out
    lines = shown.out.splitlines() + shown.err.splitlines()
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)


def test_plan_from_the_shell(capsys):
    def shell(command):
        return main(command.split())

    assert shell("plan --epsilon=1 --delta=1e-5 --sampling-rate=0.1 --n-steps=20") == 0
    expected = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.1, n_steps=20)
    assert f"noise_multiplier  {expected.noise_multiplier:.6g}" in capsys.readouterr().out
    assert shell("plan --delta 1e-5 --noise-multiplier 2 --n-steps 5 --sampling full") == 0
    exact = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=5).epsilon(1e-5)
    assert f"epsilon           {exact:.6g} " in capsys.readouterr().out
    assert shell("plan --delta 1e-5 --noise-multiplier 8 --epsilon 1 --sampling-rate 0.2") == 0
    steps = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, noise_multiplier=8.0, sampling_rate=0.2).n_steps
    assert f"n_steps           {steps}\n" in capsys.readouterr().out
    assert shell("plan --delta 1e-5 --noise-multiplier 2") == 2
    assert "exactly two" in capsys.readouterr().err


def test_nothing_depends_on_the_clock(ledger, monkeypatch):
    from vips.core.ledger import ledger as of_ledgers
    from vips.core.ledger import reader as of_readers

    times = iter(["2026-01-02T00:00:00+00:00", "1970-01-01T00:00:00+00:00", "9999-01-01T00:00:00+00:00"] * 10)
    for module in (of_ledgers, of_readers):
        monkeypatch.setattr(module, "now", lambda: next(times))
    fit(ledger)
    fit(ledger)
    assert [run.state for run in PrivacyLedger.open(ledger.path).runs()] == ["complete", "complete"]


def test_history_is_plain_json_and_a_function_of_public_facts(tmp_path):
    """Fits to other records, and to other numbers of them, leave the same entries, except for random values."""
    histories = []
    for i, records in enumerate((COINS, 1.0 - COINS, COINS[:7], COINS[:0], np.full((500, 4), np.nan))):
        ledger = PrivacyLedger(tmp_path / f"{i}.ledger", **TERMS)
        BetaBernoulli(privacy=PLAN).fit(records, ledger=ledger)
        text = json.dumps(ledger.history(), allow_nan=False)
        for drawn in (ledger.runs()[0].run, ledger.history()[0]["nonce"]):
            text = text.replace(drawn, "drawn")
        histories.append(re.sub(r'"time": "[^"]*"', '"time": ""', text))
    assert len(set(histories)) == 1


@pytest.mark.parametrize("counted", ["patient", "patient_id", "one patient", "Patient ID", "all rows of one patient"])
def test_ids_without_a_name_and_a_column_named_like_the_unit_need_no_call(path, counted):
    ledger = PrivacyLedger(path, 3.0, 1e-5, "visits", unit=counted)
    ids = np.arange(60) // 2
    for groups in (ids, pd.Series(ids, name="patient_id"), pd.Series(ids, name="patient")):
        fit(ledger, replace(PLAN, noise_multiplier=20.0), groups=groups)
    for groups in (pd.Series(ids, name="visit_id"), pd.Series(ids, name="person_id"), None):
        with pytest.raises(LedgerError, match=r"`groups=`.*accept_unit\('"):
            fit(ledger, groups=groups)
    assert len(ledger.runs()) == 3
