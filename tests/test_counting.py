"""A noisy number of records: exact noise, one record moves it by one, charged before anything is counted."""

import pickle
import random
from dataclasses import replace

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from scipy.stats import binom, kstest, norm

from vips import (
    DirichletMultinomial,
    LatentDirichletAllocation,
    LedgerError,
    NoisyCount,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyLedger,
    PrivacyPlan,
    PrivacyReport,
    PrivateTopics,
    count_records,
    plan_for,
)
from vips.core.ledger.run import LedgerRun
from vips.core.mechanism.lattice import SENSITIVITY_FACTOR
from vips.core.sums import Block
from vips.data import CSRShards, InMemoryData, InMemoryTexts, ParquetTexts, TextFiles, TextPartitions, regroup
from vips.privacy import Release

SETTINGS = {"n_steps": 1, "sampling": "full"}
PLAN = PrivacyPlan.from_epsilon(epsilon=0.1, delta=1e-6, **SETTINGS)
PRIVACY = PrivacyReport((Release(what="count", plan=PLAN, released=("the number of records",)),), "one document")
KINDS = pytest.mark.parametrize("noise", ["gaussian", "discrete"])


def of_noise(std, noise="gaussian"):
    return PrivacyPlan(noise_multiplier=std, noise=noise, report_delta=1e-6, **SETTINGS)


def exact(X, **more):
    return count_records(X, privacy=of_noise(1e-3), **more).value


@KINDS
@pytest.mark.parametrize("n_draws", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_noise_is_as_stated(noise, n_draws):
    """Counts of so many records that a lattice which rounds one of them shows."""
    counts = [count_records(range(10**5), privacy=of_noise(20.0, noise)) for _ in range(n_draws)]
    assert counts[0].std == pytest.approx(20.0, rel=2e-3)
    away = (np.array([count.value for count in counts]) - 10**5) / counts[0].std
    level = kstest(away, norm.cdf).pvalue
    assert level > 1e-7, f"the noise has another law: {level:.2g}"


@KINDS
def test_bounds_hold_as_often_as_stated(noise):
    counts = [count_records([""] * 500, privacy=of_noise(30.0, noise)) for _ in range(400)]
    below, between = 0, 0
    for count in counts:
        lower, upper = count.interval()
        below, between = below + (count.at_least() <= 500), between + (lower <= 500 <= upper)
    assert 1e-7 < binom.cdf(below, len(counts), 0.95) < 1.0 - 1e-7
    assert 1e-7 < binom.cdf(between, len(counts), 0.95) < 1.0 - 1e-7


def test_bounds_are_numbers_of_records():
    few = NoisyCount(-7, 28.0, PRIVACY)
    assert few.at_least() == 1
    assert few.interval() == (0, 48)  # 28 times 1.96, and a half
    assert few.at_least(0.5) <= few.at_least(0.05) == 39  # 28 times 1.645, less a half
    with pytest.raises(ValueError, match="level"):
        few.interval(1.0)


def test_a_record_moves_the_lattice_by_its_units():
    """By the same whole number for each record, of a length that the accounting covers."""
    plan, seen = replace(of_noise(3.0, "discrete"), clip_norm=1.0), []

    def release(self, plan, totals):
        seen.append(totals["count"])
        return totals

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerRun, "release_once", release)
        for n in range(4):
            count_records([""] * n, privacy=plan)
    steps = set(np.diff(seen).tolist())
    assert len(steps) == 1, f"records move the sum by one of {steps} units"
    assert np.array(seen).dtype == np.int64, "the sum is not of whole numbers"
    length = steps.pop() * plan.lattice({"count": Block(())}).unit
    assert length <= SENSITIVITY_FACTOR, f"a record has length {length}"


@pytest.mark.fresh_bits
def test_noise_is_fresh():
    counts = []
    for _ in range(12):
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        counts.append(count_records([""] * 5, privacy=of_noise(1e3)).value)
    assert len(set(counts)) > 6, "draws are shared"


def test_a_person_moves_the_count_by_one(tmp_path):
    ids = [f"p{i % 20}" for i in range(60)]
    rows = np.ones((60, 3))
    more = np.vstack([rows, np.full((40, 3), np.nan)])
    moved = exact(more, groups=ids + ["new"] * 40) - exact(rows, groups=ids)
    assert moved == 1, f"a person moves the count by {moved}"
    tables = (rows, ids), (more, ids + ["new"] * 40)
    by_person = [exact(regroup(X, by=names, to=tmp_path / str(len(names)))) for X, names in tables]
    assert by_person == [20, 21], "rows of persons are counted"
    assert exact(more, groups=[*ids, *[None] * 40]) == 20
    assert exact(more) == 100


def test_every_container_and_source(tmp_path):
    X, texts = np.ones((30, 2)), ["a text"] * 30
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(X))
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=7)
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_text(text)
    for records in (
        X, X.tolist(), sp.csr_array(X), pd.DataFrame(X), pa.table({"a": texts}), texts, np.array(texts), pd.Series(texts),
        InMemoryData(X), InMemoryTexts(texts, 7), CSRShards(tmp_path), ParquetTexts(tmp_path, "text"), TextFiles(tmp_path),
        TextPartitions([texts.copy]), da.from_array(X, chunks=(8, 2)),
    ):  # fmt: skip
        assert exact(records) == 30
    assert exact(InMemoryTexts(texts, 7), groups=np.arange(30) // 3) == 10
    assert exact(np.zeros((0, 3))) == exact([]) == exact(TextPartitions([])) == 0


def test_a_count_is_charged_before_the_records_are_counted(tmp_path):
    ledger, seen = PrivacyLedger(tmp_path / "budget", 1.0, 1e-6, "letters"), []

    def read():
        seen.append(ledger.spent())
        raise RuntimeError

    with pytest.raises(Exception, match="RuntimeError"):
        count_records(TextPartitions([read]), privacy=PLAN, ledger=ledger)
    assert seen[0] > 0.0, "records are counted before the charge"
    assert ledger.spent() == 0.0, "a count that was not released stays charged"


def test_a_ledger_counts_it(tmp_path):
    ledger = PrivacyLedger(tmp_path / "budget", 1.0, 1e-6, "letters", unit="letter")
    with pytest.raises(LedgerError, match="counts by 'letter'"):
        count_records([""], privacy=PLAN, ledger=ledger)
    count = count_records(["a"] * 9, privacy=PLAN, unit="letter", ledger=ledger)
    assert count.privacy.ledger == ledger.entry(ledger.runs()[0].run)
    assert "Charged to 'letters'" in str(count)
    with ledger:
        names = pd.Series(["x"], name="letter")
        assert count_records([""], privacy=PLAN, groups=names).privacy.unit == "all rows of one letter"
    assert len(ledger.runs()) == 2
    with pytest.raises(PrivacyBudgetError):
        count_records([""], privacy=of_noise(0.3), unit="letter", ledger=ledger)
    sizes = PrivacyLedger(tmp_path / "sizes", 1.0, 1e-6, "letters", relation="replace_one")
    for plan, payer in ((PLAN, sizes), (replace(PLAN, relation="replace_one"), None)):
        with pytest.raises(ValueError, match="declare it"):
            count_records([""], privacy=plan, ledger=payer)


def test_a_count_is_charged_as_a_fit_with_its_plan(tmp_path):
    ledgers = [PrivacyLedger(tmp_path / name, 1.0, 1e-6, "letters") for name in ("count", "fit")]
    count = count_records(np.eye(3), privacy=PLAN, ledger=ledgers[0])
    fitted = DirichletMultinomial(privacy=PLAN).fit(np.eye(3), ledger=ledgers[1])
    assert ledgers[0].spent() == ledgers[1].spent()
    assert count.privacy.epsilon() == fitted.privacy_.epsilon() == PLAN.epsilon(1e-6)
    ledger = PrivacyLedger(tmp_path / "sent", 1.0, 1e-6, "letters")
    with ledger:
        sent = pickle.dumps(PLAN)
    count_records([""], privacy=pickle.loads(sent))  # a plan pays in the block from which it was sent
    assert len(ledger.runs()) == 1


@pytest.mark.parametrize(
    ("X", "settings", "says"),
    [
        ([], {"privacy": 0.1}, r"a PrivacyBudget or a PrivacyPlan, got float: write PrivacyBudget\(epsilon, delta\)"),
        ([], {"privacy": replace(PLAN, n_steps=2)}, "one release of all records"),
        ([], {"privacy": PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=1)}, "one release of all records"),
        ([], {"privacy": replace(PLAN, clip_norm=2.0)}, "bounds by itself"),
        ([], {"privacy": replace(PLAN, max_rows_per_group=2)}, "counts 1"),
        ([], {"privacy": PrivacyPlan.non_private(n_steps=1)}, "no guarantee"),
        ([], {"privacy": PrivacyPlan(noise_multiplier=0.0, **SETTINGS)}, "no guarantee"),
        ([], {"privacy": replace(PLAN, reproducible_noise=True)}, "no guarantee"),
        ([], {"unit": ""}, "`unit` must say"),
        ([], {"ledger": 3}, "`ledger` must be"),
        (iter([]), {}, "X must be"),
        ("text", {}, "got str"),
        ({"texts": ["a", "b", "c"]}, {}, "got dict"),
        (np.array(3.0), {}, "got ndarray"),
        ([""], {"groups": "a"}, "`groups` must hold"),
        (TextPartitions([]), {"groups": [1]}, r"vips\.data\.regroup"),
    ],
)  # fmt: skip
def test_errors_come_from_public_facts(X, settings, says):
    with pytest.raises((TypeError, ValueError), match=says):
        count_records(X, **({"privacy": PLAN} | settings))


def test_a_plan_counts_on_fewer_records_than_the_noisy_count():
    model, budget = LatentDirichletAllocation(vocabulary=5000), {"privacy": PrivacyBudget(1.0, 1e-6)}
    count = NoisyCount(100_000, 1414.0, PRIVACY)
    advice = plan_for(model, n_records=count, **budget)
    same = plan_for(model, n_records=count.at_least(), **budget)
    assert (advice.plan, advice.settings) == (same.plan, same.settings)
    assert str(advice) == f"At least {count.at_least():,} records. {same}"
    assert count.at_least() < 98_000
    few = NoisyCount(-7, 28.0, PRIVACY)
    assert plan_for(model, n_records=few, **budget).settings == {"n_components": 1}


def test_topics_count_on_fewer_documents_than_the_noisy_count():
    texts = ["ship sea storm", "rye barley field"] * 1500
    fits = [PrivateTopics(privacy=PrivacyBudget(8.0, 1e-6), n_steps=2, n_documents=n).fit(texts) for n in (None, 3000)]
    words = fits[0][0]
    ratios = [fit.advice_.signal_to_noise for fit in fits]
    cautious = (words.n_records_ - 1.645 * words.n_records_std) / 3000
    assert ratios[0] == pytest.approx(ratios[1] * cautious, rel=0.02)
    assert 5.0 < words.n_records_std < 500.0
