"""A noisy number of records: exact noise, one record moves it by one, charged before anything is counted."""

import random

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import binom, chisquare, dlaplace

from vips import (
    LatentDirichletAllocation,
    LedgerError,
    PrivacyBudgetError,
    PrivacyLedger,
    PrivateTopics,
    count_records,
    counting,
    plan_for,
)
from vips.data import CSRShards, InMemoryData, InMemoryTexts, ParquetTexts, TextFiles, TextPartitions, regroup
from vips.privacy.mechanism import geometric

ALMOST_NONE = 500.0  # ε whose noise is 0 but with probability 1e-217


def exact(X, **more):
    return count_records(X, epsilon=ALMOST_NONE, **more).value


def check_noise_is_two_sided_geometric(epsilon=0.7, n_draws=3000):
    drawn = np.array([geometric.geometric_noise(epsilon) for _ in range(n_draws)])
    law = dlaplace(epsilon)
    edge = int(law.isf(20.0 / n_draws))
    inner = np.arange(-edge, edge + 1)
    seen = [np.sum(drawn == z) for z in inner] + [np.sum(drawn < -edge), np.sum(drawn > edge)]
    expected = n_draws * np.array([*law.pmf(inner), law.cdf(-edge - 1), law.sf(edge)])
    level = chisquare(seen, expected).pvalue
    assert level > 1e-7, f"at ε = {epsilon} the noise has another law: {level:.2g}"


def test_noise_is_two_sided_geometric():
    check_noise_is_two_sided_geometric()


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.03, 0.7, 2.5])
def test_noise_is_two_sided_geometric_at_full_size(epsilon):
    check_noise_is_two_sided_geometric(epsilon, 20_000)


@pytest.mark.parametrize("epsilon", [1e-6, 0.05, 0.1, 1.0, 3.0, 50.0])
def test_standard_deviation_and_bound_are_those_of_the_law(epsilon):
    law = dlaplace(epsilon)
    assert geometric.std_of_noise(epsilon) == pytest.approx(law.std())
    for probability in (0.05, 0.3, 1e-6):
        k = geometric.tail_of_noise(epsilon, probability)
        assert law.sf(k) <= probability * (1.0 + 1e-6)
        assert k == 0 or law.sf(k - 1) > probability * (1.0 - 1e-6)
    count = count_records([""] * 10**5, epsilon=epsilon)
    assert 1 <= count.at_least(0.99) <= count.at_least() <= max(1, count.value)


def test_the_bound_holds_as_often_as_stated():
    n = 400
    held = sum(count_records([""] * 500, epsilon=0.1).at_least() <= 500 for _ in range(n))
    assert binom.cdf(held, n, 0.95) > 1e-7


def check_noise_is_fresh():
    found = []
    for _ in range(12):
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        found.append(count_records([""] * 5, epsilon=1e-3).value)
    assert len(set(found)) > 6, "draws are shared"


@pytest.mark.fresh_bits
def test_noise_is_fresh():
    check_noise_is_fresh()


def check_a_person_moves_the_count_by_one(folder):
    ids = [f"p{i % 20}" for i in range(60)]
    rows = np.ones((60, 3))
    more = np.vstack([rows, np.full((40, 3), np.nan)])
    moved = exact(more, groups=ids + ["new"] * 40) - exact(rows, groups=ids)
    assert moved == 1, f"a person moves the count by {moved}"
    by_person = [
        exact(regroup(X, by=names, to=folder / str(len(names))))
        for X, names in ((rows, ids), (more, ids + ["new"] * 40))
    ]
    assert by_person == [20, 21], "rows of persons are counted"
    assert exact(more, groups=[*ids, *[None] * 40]) == 20
    assert exact(more) == 100


def test_a_person_moves_the_count_by_one(tmp_path):
    check_a_person_moves_the_count_by_one(tmp_path)


def test_every_container_and_source(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    da = pytest.importorskip("dask.array")
    X, texts = np.ones((30, 2)), ["a text"] * 30
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(X))
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=7)
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_text(text)
    for each in (
        X, X.tolist(), sp.csr_array(X), pd.DataFrame(X), pa.table({"a": texts}), texts, np.array(texts), pd.Series(texts),
        InMemoryData(X), InMemoryTexts(texts, 7), CSRShards(tmp_path), ParquetTexts(tmp_path, "text"), TextFiles(tmp_path),
        TextPartitions([texts.copy]), da.from_array(X, chunks=(8, 2)),
    ):  # fmt: skip
        assert exact(each) == 30
    assert exact(InMemoryTexts(texts, 7), groups=np.arange(30) // 3) == 10
    assert exact(np.zeros((0, 3))) == exact([]) == exact(TextPartitions([])) == 0


def check_a_count_is_charged_before_the_records_are_counted(folder):
    ledger, seen = PrivacyLedger(folder / "budget", 1.0, 1e-6, "letters"), []

    def read():
        seen.append(ledger.spent())
        raise RuntimeError

    with pytest.raises(Exception, match="RuntimeError"):
        count_records(TextPartitions([read]), epsilon=0.1, ledger=ledger)
    assert seen[0] > 0.0, "records are counted before the charge"
    assert ledger.spent() == 0.0, "a count that was not released stays charged"


def test_a_count_is_charged_before_the_records_are_counted(tmp_path):
    check_a_count_is_charged_before_the_records_are_counted(tmp_path)


def test_a_ledger_counts_it(tmp_path):
    ledger = PrivacyLedger(tmp_path / "budget", 1.0, 1e-6, "letters", unit="letter")  # no outright δ is needed
    with pytest.raises(LedgerError, match="counts by 'letter'"):
        count_records([""], epsilon=0.1, ledger=ledger)
    count = count_records(["a"] * 9, epsilon=0.1, unit="letter", ledger=ledger)
    assert count.ledger == {"dataset": "letters", "run": ledger.runs()[0].run}
    assert "Charged to 'letters'" in str(count)
    with ledger:
        assert count_records([""], epsilon=0.1, groups=pd.Series(["x"], name="letter")).unit == "all rows of one letter"
    assert len(ledger.runs()) == 2
    with pytest.raises(PrivacyBudgetError):
        count_records([""], epsilon=5.0, unit="letter", ledger=ledger)
    sizes = PrivacyLedger(tmp_path / "sizes", 1.0, 1e-6, "letters", relation="replace_one")
    with pytest.raises(ValueError, match="declare it"):
        count_records([""], epsilon=0.1, ledger=sizes)


@pytest.mark.parametrize(
    ("X", "settings", "says"),
    [
        ([], {"epsilon": 0.0}, "`epsilon` must be"),
        ([], {"epsilon": True}, "`epsilon` must be"),
        ([], {"epsilon": 1.0, "unit": ""}, "`unit` must say"),
        ([], {"epsilon": 1.0, "ledger": 3}, "`ledger` must be"),
        (iter([]), {"epsilon": 1.0}, "X must be"),
        ("text", {"epsilon": 1.0}, "got str"),
        ({"texts": ["a", "b", "c"]}, {"epsilon": 1.0}, "got dict"),
        (np.array(3.0), {"epsilon": 1.0}, "got ndarray"),
        ([""], {"epsilon": 1.0, "groups": "a"}, "`groups` must hold"),
        (TextPartitions([]), {"epsilon": 1.0, "groups": [1]}, r"vips\.data\.regroup"),
    ],
)
def test_errors_come_from_public_facts(X, settings, says):
    with pytest.raises((TypeError, ValueError), match=says):
        count_records(X, **settings)


def test_a_plan_counts_on_fewer_records_than_the_noisy_count():
    model, budget = LatentDirichletAllocation(vocabulary=5000), {"epsilon": 1.0, "delta": 1e-6}
    count = counting.NoisyCount(100_000, geometric.std_of_noise(0.001), 0.001, "one document")
    advice = plan_for(model, n_records=count, **budget)
    same = plan_for(model, n_records=count.at_least(), **budget)
    assert (advice.plan, advice.settings) == (same.plan, same.settings)
    assert str(advice) == f"At least {count.at_least():,} records. {same}"
    assert count.at_least() < 98_000
    few = counting.NoisyCount(-7, 28.0, 0.05, "one document")
    assert plan_for(model, n_records=few, **budget).settings == {"n_components": 1}


def test_topics_count_on_fewer_documents_than_the_noisy_count():
    texts = ["ship sea storm", "rye barley field"] * 1500
    fits = [PrivateTopics(epsilon=8.0, delta=1e-6, n_steps=2, n_documents=n).fit(texts) for n in (None, 3000)]
    words = fits[0].pipeline_[0]
    ratios = [fit.advice_.signal_to_noise for fit in fits]
    cautious = (words.n_records_ - 1.645 * words.n_records_std) / 3000
    assert ratios[0] == pytest.approx(ratios[1] * cautious, rel=0.02)
    assert 5.0 < words.n_records_std < 500.0
