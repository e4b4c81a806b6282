"""Every draw of private noise belongs to a release that was paid for: draws are counted at the random-number library.

A key of the noise generator is one draw over all blocks of a step; a table of several columns is drawn column by column. The
ledger's record of released steps is the log beside it; other releases draw as often as their documentation says.
"""

import pickle

import numpy as np
import pandas as pd
import pytest
from randomgen import AESCounter
from sklearn.linear_model import LogisticRegression

import vips
from tests.laws.cases import CASES, ONE_OF_EACH_CLASS
from tests.laws.checks import fit
from tests.mutants import check_notices
from vips import (
    BayesianGaussianMixture,
    DirichletMultinomial,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
    PrivateClassifier,
    StreamPlan,
)
from vips.core.ledger.run import LedgerRun
from vips.core.mechanism import noise
from vips.core.mechanism.release import with_fresh_noise
from vips.preprocessing import PrivateCountVectorizer, PrivateTopics, TableEncoder, make_private_pipeline
from vips.streams.release import CorrelatedNoise

BUDGET = PrivacyBudget(4.0, 1e-5)
STEPS = 3
COINS = np.random.default_rng(0).integers(0, 2, (30, 2)).astype(float)
TEXTS = ["red green blue", "green blue", "red red blue"] * 100
RISKS = LogisticRegression().fit(COINS, np.arange(30) % 2)
COUNTS = np.eye(3, dtype=int)[np.arange(30) % 3]
TABLE = pd.DataFrame({"age": np.arange(20.0, 50.0), "ward": ["A", "B", "C"] * 10})


@pytest.fixture
def draws(monkeypatch):
    """The keys of noise that were made."""
    keys = []

    def generator(key=None, counter=0):
        keys.append(key)
        return AESCounter(key=key, counter=counter)

    monkeypatch.setattr(noise, "AESCounter", generator)
    return keys


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "rows.ledger", epsilon=20.0, delta=1e-4, dataset="rows")


def steps_on_record(ledger) -> int:
    return sum(entry["kind"] in ("release", "batch") for entry in ledger.history())


@pytest.mark.parametrize("noise_kind", ["gaussian", "discrete"])
@pytest.mark.parametrize("case", [case for case in CASES if case.name in ONE_OF_EACH_CLASS], ids=lambda case: case.name)
def test_a_model_draws_once_in_each_step_that_is_on_record(case, noise_kind, draws, ledger):
    plan = PrivacyPlan(
        noise_multiplier=5.0, sampling_rate=0.5, n_steps=STEPS, clip_norm=case.clip_norm, noise=noise_kind
    )
    with ledger:
        fit(case.make_model(privacy=plan, random_state=0), case.make_records(10, np.random.default_rng(0)))
    assert len(draws) == len(set(draws)) == STEPS == steps_on_record(ledger)


ENTRIES = {
    "model": (STEPS, lambda: DirichletMultinomial(privacy=BUDGET.plan(n_steps=STEPS)).fit(COUNTS)),
    "count_records": (1, lambda: vips.count_records(COINS, privacy=BUDGET)),
    "evaluate": (1, lambda: vips.evaluate(RISKS, COINS, np.arange(30) % 2, privacy=BUDGET)),
    "table encoder": (2, lambda: TableEncoder(privacy=BUDGET).fit(TABLE)),  # one for each column
    "words": (2, lambda: PrivateCountVectorizer(privacy=BUDGET).fit(TEXTS)),  # two rounds
    "pipeline": (2 + STEPS, lambda: of_table().fit(TABLE)),
    "topics": (2 + STEPS, lambda: PrivateTopics(2, n_steps=STEPS, privacy=BUDGET).fit(TEXTS)),
    "classifier": (
        1 + 2 + STEPS,
        lambda: PrivateClassifier(n_steps=STEPS, privacy=BUDGET).fit(TABLE, np.arange(30) % 2),
    ),  # classes, columns, steps
    "stream": (2, lambda: [stream.partial_fit(COUNTS) for stream in [of_counts()] for _ in range(2)]),
}


def of_table():
    return make_private_pipeline(TableEncoder(), BayesianGaussianMixture(2), n_steps=STEPS, privacy=BUDGET)


def of_counts():
    return DirichletMultinomial(privacy=StreamPlan(epsilon=4.0, delta=1e-5, n_batches=4))


@pytest.mark.parametrize(("n_draws", "fits"), ENTRIES.values(), ids=ENTRIES)
def test_every_entry_draws_as_often_as_it_says(n_draws, fits, draws, ledger):
    with ledger:
        fits()
    assert len(draws) == len(set(draws)) == n_draws
    assert steps_on_record(ledger) >= 1


def test_a_second_draw_is_noticed(draws, ledger, monkeypatch):
    once = PrivacyPlan.add_noise
    monkeypatch.setattr(PrivacyPlan, "add_noise", lambda plan, *args: once(plan, *args) and once(plan, *args))
    with pytest.raises(AssertionError):
        test_every_entry_draws_as_often_as_it_says(*ENTRIES["count_records"], draws, ledger)


def check_nothing_is_drawn_before_it_is_on_record(fits, draws, ledger, monkeypatch):
    """A ledger that cannot record a release stops it before its noise exists; a stream's release is then hidden."""

    def fails(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(PrivacyLedger, "release", fails)
    monkeypatch.setattr(PrivacyLedger, "release_batch", fails)
    with ledger, pytest.raises(OSError, match="disk is full"):
        fits()
    assert ledger.runs(), "nothing was charged"
    assert not draws, "noise was drawn before its release was on record"


@pytest.mark.parametrize("name", [name for name in ENTRIES if name != "stream"])
def test_nothing_is_drawn_before_it_is_on_record(name, draws, ledger, monkeypatch):
    check_nothing_is_drawn_before_it_is_on_record(ENTRIES[name][1], draws, ledger, monkeypatch)


def test_a_stream_shows_nothing_before_it_is_on_record(ledger, monkeypatch):
    """Its noise is drawn first, and written to its secret, from which the same release follows later."""
    stream, drawn, original = of_counts(), [], CorrelatedNoise.release

    def released(mechanism, total, step):
        drawn.extend(np.ravel(original(mechanism, total, step)["counts"]))

    monkeypatch.setattr(CorrelatedNoise, "release", released)
    check_nothing_is_drawn_before_it_is_on_record(lambda: stream.partial_fit(COUNTS), [], ledger, monkeypatch)
    assert drawn
    shown = pickle.dumps({name: value for name, value in vars(stream).items() if name != "privacy"})
    assert not any(number.tobytes() in shown for number in drawn)


def drawn_first(patch):
    """Whatever is released has its noise before its entry."""

    def mutant(run, plan, totals):
        noisy = with_fresh_noise(plan, totals)
        run.finish()
        return noisy

    def of_step(run, mechanism, total, step):
        noisy = mechanism.release(total, step)
        run.record(step)
        return noisy

    patch.setattr(LedgerRun, "release_once", mutant)
    patch.setattr(LedgerRun, "release", of_step)


@pytest.mark.parametrize("name", ["model", "count_records", "evaluate", "table encoder", "words", "classifier"])
def test_noise_before_its_entry_is_noticed(name, draws, ledger, monkeypatch):
    arguments = ENTRIES[name][1], draws, ledger, monkeypatch
    check_notices(
        lambda: check_nothing_is_drawn_before_it_is_on_record(*arguments), drawn_first, monkeypatch, "on record"
    )


def test_no_number_is_returned_before_its_step_is_on_record(ledger, monkeypatch):
    """A ledger that cannot be written stops the fit before the engine has the noisy total."""
    seen = []

    class Sees(DirichletMultinomial):
        def to_posterior(self, average, noise_std, previous):
            seen.append(self)
            return super().to_posterior(average, noise_std, previous)

    def fails(run, step):
        raise OSError("the disk is full")

    monkeypatch.setattr(LedgerRun, "record", fails)
    with pytest.raises(OSError, match="disk is full"):
        Sees(privacy=BUDGET).fit(COINS, ledger=ledger)
    assert len(seen) == 1, "only the start"
