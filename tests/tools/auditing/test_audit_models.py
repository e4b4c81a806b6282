"""Audits reject models that break their promises, with a finding that names the fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.laws.cases import BY_NAME, BetaBernoulli, SecondMoments
from tests.tools.auditing.audits import SAMPLED, audited, look_only_for
from vips import Block, DenseStatistics, PrivacyPlan

pytestmark = pytest.mark.usefixtures("one_thread", "forked")


class NormalisedByTheChunk(SecondMoments):
    def expected_statistics(self, records, posterior):
        return super().expected_statistics(records / max(1.0, np.abs(records).max(initial=0.0)), posterior)


class UnderReports(DenseStatistics):
    def norms(self, blocks):
        return 0.99 * super().norms(blocks)


class NormsOnePercentTooSmall(BetaBernoulli):
    def expected_statistics(self, records, posterior):
        return UnderReports({"heads": records, "count": np.ones(len(records))})


class CarriesLatentVariables(BetaBernoulli):
    """A warm start: the E-step of a row begins where the row at its place in the last batch ended."""

    def expected_statistics(self, records, posterior):
        latent = 0.5 * records
        before = self.__dict__.get("_latent")
        if before is not None and len(before) >= len(records):
            latent = 0.9 * latent + 0.1 * before[: len(records)]
        self._latent = latent
        return DenseStatistics({"heads": latent, "count": np.ones(len(records))})


class RaisesOnDefects(BetaBernoulli):
    def valid_records(self, records):
        if np.isnan(records).any():
            raise ValueError("NaN")
        return super().valid_records(records)


class CountsRecords(BetaBernoulli):
    def fit(self, X, y=None, **arguments):
        self._n = len(X)
        return super().fit(X, **arguments)

    def to_posterior(self, average, noise_std, previous):
        posterior = super().to_posterior(average, noise_std, previous)
        return {**posterior, "b": np.maximum(1.0, self._n - posterior["a"])}


class VocabularyFromTheData(BetaBernoulli):
    """Sums only as many columns as the records use."""

    def fit(self, X, y=None, **arguments):
        self.vocabulary_size = max(1, int(np.nansum((X != 0).any(axis=0))))
        return super().fit(X, **arguments)

    def blocks(self):
        return {"heads": Block((self.vocabulary_size,)), "count": Block((), scale=0.5)}

    def initial(self, rng):
        return {"heads": np.zeros(self.vocabulary_size), "count": np.zeros(())}

    def expected_statistics(self, records, posterior):
        return DenseStatistics({"heads": records[:, : self.vocabulary_size], "count": np.ones(len(records))})


class StopsWhenConverged(BetaBernoulli):
    exact_rows = True  # else the engine fills up its chunks

    def expected_statistics(self, records, posterior):
        if len(records) < 3:
            raise StopIteration("converged")
        return super().expected_statistics(records, posterior)


class KeepsTheRecords(BetaBernoulli):
    def expected_statistics(self, records, posterior):
        self.last_batch_ = records
        return super().expected_statistics(records, posterior)


class Chatty(BetaBernoulli):
    def expected_statistics(self, records, posterior):
        print(len(records))
        return super().expected_statistics(records, posterior)


class RoundsInTheChunk(BetaBernoulli):
    """Rounds the sum instead of each record, so that the sum is not exact."""

    class Statistics(DenseStatistics):
        def rounded_sum(self, weights, blocks, lattice):
            return {name: lattice.rounded(value, blocks[name]) for name, value in self.weighted_sum(weights).items()}

    def expected_statistics(self, records, posterior):
        return self.Statistics({"heads": records, "count": np.ones(len(records))})


BAD_MODELS = [
    (NormalisedByTheChunk, "second moments", {"independence", "additivity"}),
    (NormsOnePercentTooSmall, "beta-bernoulli", {"norms", "sensitivity"}),
    (CarriesLatentVariables, "beta-bernoulli", {"memory"}),
    (RaisesOnDefects, "beta-bernoulli", {"defective records", "replay: errors and warnings"}),
    (CountsRecords, "beta-bernoulli", {"replay: posterior", "replay: fitted object"}),
    (VocabularyFromTheData, "beta-bernoulli", {"replay: steps", "replay: fitted object"}),
    (StopsWhenConverged, "beta-bernoulli", {"replay: errors and warnings"}),
    (KeepsTheRecords, "beta-bernoulli", {"replay: fitted object"}),
    (Chatty, "beta-bernoulli", {"replay: output"}),
]


@pytest.mark.parametrize(("model", "case", "findings"), BAD_MODELS, ids=[model.__name__ for model, _, _ in BAD_MODELS])
@pytest.mark.repeated("RaisesOnDefects", "VocabularyFromTheData", "KeepsTheRecords", "StopsWhenConverged")
def test_bad_model_is_rejected(model, case, findings, monkeypatch):
    look_only_for(findings, monkeypatch)
    report = audited(replace(BY_NAME[case], make_model=model), n_runs=0)
    assert findings <= {finding.name for finding in report.failed}, str(report)
    for finding in report.failed:
        assert finding.advice in str(report).replace("\n        ", " ")


def test_rounding_the_sum_matters_only_to_plans_that_round(monkeypatch):
    look_only_for({"sums on the lattice"}, monkeypatch)
    case = replace(BY_NAME["beta-bernoulli"], make_model=RoundsInTheChunk, clip_norm=0.7)
    assert audited(case, n_runs=0)["sums on the lattice"].passed is None
    assert audited(case, replace(SAMPLED, noise="discrete"), n_runs=0)["sums on the lattice"].passed is False


def test_half_the_noise_is_too_little_for_neighbours_even_if_the_plan_is_replaced(monkeypatch):
    """A user's plan that adds less noise than it accounts for."""
    look_only_for({"one step of the model", "canary, all steps"}, monkeypatch)

    class Generous(PrivacyPlan):
        def noise_std(self):
            return 0.5 * super().noise_std()

    plan = Generous(noise_multiplier=1.0, sampling="full", n_steps=2)
    report = audited(BY_NAME["beta-bernoulli"], plan, n_runs=20_000)
    assert {"one step of the model", "canary, all steps"} <= {finding.name for finding in report.failed}
