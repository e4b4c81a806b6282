"""Audits look at chunks as large as the engine's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.laws.cases import BY_NAME, BetaBernoulli, SecondMoments
from tests.tools.auditing.audits import FULL, SAMPLED, audited
from vips import DenseStatistics
from vips.core.phases import phases_of
from vips.tools.auditing.records import Table
from vips.tools.auditing.search import MOST_RECORDS, ClippedSum, Search, large_chunk

pytestmark = pytest.mark.usefixtures("one_thread", "forked")


class CentredInLargeChunks(BetaBernoulli):
    """A faster path for many rows gives another result. ``exact_rows`` keeps the engine from filling up chunks."""

    exact_rows = True
    threshold = 450

    def expected_statistics(self, records, posterior):
        if len(records) > self.threshold:
            records = records - 1e-3 * records.mean(axis=0)
        return super().expected_statistics(records, posterior)


class CentredInChunksOfItsOwn(CentredInLargeChunks):
    threshold = 3000

    def default_chunk_size(self):
        return 4096


class NormsOfTheChunk(BetaBernoulli):
    """Statistics are sound, but a norm depends on other rows."""

    class Statistics(DenseStatistics):
        def norms(self, blocks):
            norms = super().norms(blocks)
            return norms if len(norms) <= 450 else np.maximum(norms, 0.99 * norms.max(initial=0.0))

    def expected_statistics(self, records, posterior):
        return self.Statistics({"heads": records, "count": np.ones(len(records))})


class RaisesInLargeChunks(CentredInLargeChunks):
    def expected_statistics(self, records, posterior):
        if len(records) > self.threshold:
            raise ValueError("too many")
        return BetaBernoulli.expected_statistics(self, records, posterior)


def searched(model, chunk_size=None) -> Search:
    """What a large chunk shows."""
    records = Table(BY_NAME["beta-bernoulli"].make_records(30, np.random.default_rng(0)))
    plan = replace(FULL, clip_norm=1.5, sampling_rate=1.0)
    model = model(privacy=plan)
    model.n_features_in_ = records.X.shape[1]
    model.chunk_size = chunk_size
    search = Search("gaussian")
    sums = ClippedSum(model, plan, phases_of(model, 1)[-1], None)
    search.compare_large_chunk(sums, records, np.random.default_rng(0))
    return search


def gap(model, chunk_size=None) -> float:
    """Largest violation of independence in a large chunk."""
    search = searched(model, chunk_size)
    assert not search.problems
    return search.gaps["independence"]


@pytest.mark.parametrize("model", [CentredInLargeChunks, CentredInChunksOfItsOwn, NormsOfTheChunk])
def test_rows_that_depend_on_each_other_only_in_large_chunks_are_found(model):
    assert gap(model) > 1e-4
    assert gap(BetaBernoulli) < 1e-9


def test_an_error_in_large_chunks_only_is_found():
    assert "ValueError: too many" in searched(RaisesInLargeChunks).problems[0]


@pytest.mark.slow
def test_an_audit_looks_at_large_chunks():
    report = audited(replace(BY_NAME["beta-bernoulli"], make_model=CentredInLargeChunks), n_runs=0)
    assert report["independence"].passed is False, str(report)


def test_a_chunk_size_that_was_set_is_used():
    class Coins(CentredInLargeChunks):
        threshold = 2000

    assert gap(Coins) < 1e-9
    assert gap(Coins, 2500) > 1e-4


@pytest.mark.parametrize("case", ["beta-bernoulli", "second moments", "lda", "logistic sparse"])
def test_large_chunks_hold_valid_records_of_the_same_kind(case):
    records = BY_NAME[case].make_records(30, np.random.default_rng(0))
    table = Table.of(*((records.X, records.y) if hasattr(records, "y") else (records,)))
    model = BY_NAME[case].make_model(privacy=SAMPLED)
    model.n_features_in_ = table.X.shape[1]
    model.chunk_size = 10**6
    chunk = large_chunk(model, table, np.random.default_rng(0))
    assert len(chunk) == MOST_RECORDS
    assert chunk.X.dtype == table.X.dtype
    assert type(chunk.X) is type(table.X)
    assert model.valid_records(chunk.as_chunk()).all()


def test_large_chunks_of_wide_records_are_small(monkeypatch):
    monkeypatch.setattr("vips.tools.auditing.search.MOST_BYTES", 2**22)
    table = Table(np.ones((20, 3_000)))
    assert len(large_chunk(SecondMoments(privacy=SAMPLED), table, np.random.default_rng(0))) < 200
