"""E-steps of models of somebody else are called one at a time, in the thread of the fit."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from tests.laws.cases import BetaBernoulli
from tests.plans import REPLACED
from tests.processors import with_processors
from vips import DenseStatistics
from vips.core.sums import BySquaredWeights, Joint, Quadratic
from vips.data import InMemoryData


class Kept(DenseStatistics):
    """Writes every sum to arrays that it keeps, as ``sums_are_new = False`` allows, and waits a moment for another thread."""

    def __init__(self, values, kept, barrier):
        super().__init__(values)
        self.kept, self.barrier = kept, barrier

    def weighted_sum(self, weights):
        for name, value in super().weighted_sum(weights).items():
            self.kept[name][...] = value
        with suppress(threading.BrokenBarrierError):
            self.barrier.wait(0.5)
        return self.kept


class Keeping(BetaBernoulli):
    def valid_records(self, records):
        return np.ones(len(records), bool)

    def expected_statistics(self, records, posterior):
        return Kept({"heads": records, "count": np.ones(len(records))}, self.kept, self.barrier)

    def to_posterior(self, average, noise_std, previous):
        return {"a": average["heads"], "b": average["count"]}


class KeepingSideBySide(Keeping):
    def expected_statistics(self, records, posterior):
        return Joint(super().expected_statistics(records, posterior))


@pytest.mark.parametrize("kind", [Keeping, KeepingSideBySide])
def test_a_record_counts_once_where_a_model_keeps_its_sums(kind, monkeypatch):
    with_processors(monkeypatch, 2)
    model = kind(privacy=replace(REPLACED, n_steps=1, noise_multiplier=1e-9, reproducible_noise=True))
    model.chunk_size, model.barrier = 256, threading.Barrier(2)
    model.kept = {"heads": np.empty(2), "count": np.empty(())}
    records = np.repeat(np.eye(2), 256, axis=0)
    model.fit(InMemoryData(records, partition_size=256))
    heads = model.last_posterior_["a"]
    np.testing.assert_allclose(heads, heads[::-1], rtol=1e-6)  # both chunks count


def test_forms_that_hold_others_say_whether_sums_are_new():
    kept, new = Kept({"a": np.ones(2)}, {}, None), Quadratic("b", np.ones((2, 3)))
    assert [Joint(kept, new).sums_are_new, Joint(new).sums_are_new] == [False, True]
    assert [BySquaredWeights(form).sums_are_new for form in (kept, new)] == [False, True]


def fit(model):
    model.fit(InMemoryData(np.ones((20, 3)), partition_size=5))


class Outer(BetaBernoulli):
    def expected_statistics(self, records, posterior):
        inner = threading.Thread(target=fit, args=(BetaBernoulli(privacy=REPLACED),))
        inner.start()
        inner.join()
        return super().expected_statistics(records, posterior)


def fits_in_a_thread():
    with_processors(pytest.MonkeyPatch(), 2)
    fit(Outer(privacy=REPLACED))


def test_a_fit_in_a_thread_of_an_e_step_ends(forkserver):
    """All threads would wait for calls that none is left to make."""
    process = forkserver.Process(target=fits_in_a_thread)
    process.start()
    process.join(300)
    process.kill()
    assert process.exitcode == 0
