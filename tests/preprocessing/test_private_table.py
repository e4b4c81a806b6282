"""The private encoder: one record moves the counts by one clip, rare categories stay hidden, all else is post-processing."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import vips
from tests.releases import releases
from vips import LedgerError, PrivacyBudgetError, PrivacyLedger, PrivacyPlan
from vips.preprocessing import TableEncoder, _table
from vips.preprocessing._grids import DAYS, NUMBERS, bounds_from_counts
from vips.preprocessing._learnt_columns import MOST_CATEGORIES, threshold

PLAN = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1)
KINDS = {"amount": "number", "word": "category", "other": "category"}


def encoder(columns=KINDS, plan=PLAN, threshold_delta=1e-6, **settings):
    return TableEncoder(columns, privacy=plan, threshold_delta=threshold_delta, **settings)


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    amount, word, other = rng.normal(size=n), rng.choice(list("abc"), n), rng.choice([1, 2], n)
    return pd.DataFrame({"amount": amount, "word": word, "other": other})


def totals_of(X, groups=None, plan=PLAN):
    """The exact counts of every column: what the noise is added to. New categories come last."""
    with releases(dict) as seen:
        encoder(plan=plan).fit(X, groups=groups)
    return [release.exact["counts"] for release in seen]


def distance(one, other):
    longest = [max(len(a), len(b)) for a, b in zip(one, other, strict=True)]
    full = [[np.pad(a, (0, n - len(a))) for a, n in zip(tables, longest, strict=True)] for tables in (one, other)]
    return math.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(*full, strict=True)))


PERSONS = {
    "one row": table(1, seed=5),
    "the same row many times": pd.concat([table(1, seed=5)] * 500),
    "all rows": table(400, seed=6),
    "new categories in every row": table(200, 7).assign(word=[f"w{i}" for i in range(200)], other=range(200, 400)),
    "nothing but missing values": pd.DataFrame({"amount": [np.nan] * 9, "word": [None] * 9, "other": [None] * 9}),
    "one new and many old": table(50, 8).assign(word=["new"] + ["a"] * 49),
}


def test_a_record_moves_the_counts_by_at_most_one_clip():
    before = table()
    alone = totals_of(before)
    for row in (PERSONS["one row"], before.iloc[:1].assign(word="new", other=9, amount=np.inf)):
        moved = distance(alone, totals_of(pd.concat([before, row])))
        assert moved == pytest.approx(math.sqrt(3.0)), f"a row moves the counts by {moved}"
    ids = np.repeat(np.arange(60), 5)
    counts = totals_of(before, ids)
    for name, rows in PERSONS.items():
        together = pd.concat([before, rows], ignore_index=True)
        moved = distance(counts, totals_of(together, np.r_[ids, np.full(len(rows), 99)]))
        assert moved <= math.sqrt(3.0) * (1.0 + 1e-12), f"{name}: a person moves the counts by {moved}"


def test_persons_do_not_see_each_other_and_rows_of_nobody_count_for_nothing():
    one, two = table(40, 1), table(40, 2)
    ids = np.repeat([0, 1], 40)
    both = totals_of(pd.concat([one, two], ignore_index=True), ids)[0]
    alone = totals_of(one, ids[:40])[0] + totals_of(two, ids[:40])[0]
    np.testing.assert_allclose(both, alone, atol=1e-14)
    mixed = pd.concat([one, two], ignore_index=True).sample(80, random_state=0, replace=False)
    shuffled = totals_of(mixed, ids[mixed.index])[0]
    np.testing.assert_allclose(shuffled, both, atol=1e-14)
    nobody = totals_of(pd.concat([one, two], ignore_index=True), [0] * 40 + [None] * 40)[0]
    np.testing.assert_array_equal(nobody, totals_of(one, ids[:40])[0])


def test_rows_of_a_person_beyond_the_bound_are_left_out():
    few = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1, max_rows_per_group=3)
    counts = totals_of(table(40), np.zeros(40, int), few)
    np.testing.assert_array_equal(counts[0], totals_of(table(40)[:3], np.zeros(3, int))[0])
    with pytest.raises(ValueError, match="pass the persons' ids"):
        encoder(plan=few).fit(table())


def test_the_threshold_hides_what_one_record_adds():
    """The probability that any of M noisy counts of 1 is above τ, by another formula: a sum over which is the first."""
    for delta, std, n_new in ((1e-8, 90.0, 1), (1e-6, 3.0, 7), (0.05, 0.5, 64)):
        tail = norm.sf(threshold(delta, std, n_new), loc=1.0, scale=std)
        released = sum(tail * (1.0 - tail) ** i for i in range(n_new))
        assert released == pytest.approx(delta, rel=1e-6), f"a rare category is released with probability {released}"


def test_a_record_has_few_categories_of_its_own():
    rows = PERSONS["new categories in every row"]
    for counts in totals_of(rows, np.zeros(len(rows), int))[1:]:
        assert np.count_nonzero(counts) <= MOST_CATEGORIES, "a person is in too many cells"
        assert counts.max() <= 1.0, "a person weighs more than 1 in a cell"


def test_rare_categories_are_released_as_seldom_as_stated():
    """A single row has two categories of its own, and a person has all that one may have."""
    n_fits = 180
    delta, released, words = 0.1, {"row": 0, "person": 0}, {"word": "category", "other": "category"}
    row = pd.DataFrame({"amount": [1.0], "word": ["rare"], "other": [5]})
    person = pd.DataFrame({"amount": 1.0, "word": [f"w{i}" for i in range(40)], "other": range(40)})
    for name, X, groups in (("row", row, None), ("person", person, np.zeros(40, int))):
        for _ in range(n_fits if groups is None else n_fits // 3):
            learnt = encoder(words, threshold_delta=delta).fit(X, groups=groups).columns_
            released[name] += any(set(learnt[column]) - {"(other)", "(missing)"} for column in ("word", "other"))
    seen = binomtest(released["row"], n_fits, delta)
    assert seen.pvalue > 1e-5, f"a row's categories are released in {released['row']} of {n_fits} fits"
    seen = binomtest(released["person"], n_fits // 3, delta, alternative="greater")
    assert seen.pvalue > 1e-5, f"a person's categories are released in {released['person']} of {n_fits // 3} fits"


def test_what_is_learnt_is_a_function_of_noisy_counts():
    """Frozen noisy counts, on other data: the same columns, indicators, norms and report."""
    frozen = np.random.default_rng(3).normal(0.0, 4.0, 3000)
    frozen[1000:1400:3] += 40.0

    kinds, learnt = {"amount": "number", "day": "date"}, []
    with releases(lambda total: {"counts": np.resize(frozen, len(total["counts"]))}):
        for scale in (1.0, 1e6):
            X = pd.DataFrame({"amount": scale * np.arange(50.0), "day": pd.Timestamp("2020-01-01")})
            fitted = encoder(kinds).fit(X)
            learnt.append((fitted.columns_, fitted.max_norm, str(fitted.privacy_)))
    assert learnt[0] == learnt[1], "what is learnt depends on more than noisy counts"


def test_noise_is_fresh_of_the_stated_size_and_on_every_count():
    X = table(5)
    with releases() as seen:
        for _ in range(10):
            encoder().fit(X)
    noise = [release.noise("counts") for release in seen]
    assert [len(counts) for counts in noise[:3]] == [len(counts) for counts in totals_of(X)]
    drawn = np.concatenate(noise)
    assert len(np.unique(drawn)) == len(drawn)
    assert np.std(drawn) == pytest.approx(2.0 * math.sqrt(3.0), rel=0.03)


def test_a_fit_is_charged_before_a_value_is_read(tmp_path):
    X, read = table(), []

    def watched(values, *arguments, **named):
        read.append(ledger.spent())
        raise RuntimeError("stop")

    ledger = PrivacyLedger(tmp_path / "budget", 5.0, 2e-5, "letters")
    left = ledger.remaining()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_table, "learn_column", watched)
        with pytest.raises(RuntimeError, match="stop"):
            encoder().fit(X, ledger=ledger)
    assert read
    assert read[0] > 0.0, "a value is read before the charge"
    assert ledger.remaining() == left, "a fit that released nothing stays charged"
    fitted = encoder().fit(X, ledger=ledger)
    assert ledger.remaining().delta_0 == pytest.approx(1e-6)
    assert ledger.runs()[-1].state == "complete"
    assert fitted.privacy_.ledger["run"] == ledger.runs()[-1].run
    with ledger:
        encoder().fit(X)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_table, "learn_column", lambda *_, **__: pytest.fail("a value was read"))
        with pytest.raises(PrivacyBudgetError):
            encoder().fit(X, ledger=ledger)


def test_a_ledger_of_a_small_delta_pays_for_bounds_but_not_for_such_categories(tmp_path):
    ledger = PrivacyLedger(tmp_path / "budget", 5.0, 9e-6, "letters")
    encoder({"amount": "number", "word": ["a", "b"]}, threshold_delta=None).fit(table(), ledger=ledger)
    with pytest.raises(PrivacyBudgetError, match="its δ is 1e-06"):
        encoder().fit(table(), ledger=ledger)
    persons = PrivacyLedger(tmp_path / "persons", 5.0, 1e-5, "letters", unit="patient")
    with pytest.raises(LedgerError, match="protects 'one row of X'"):
        encoder().fit(table(), ledger=persons)
    encoder().fit(table(), ledger=persons, groups=pd.Series(np.arange(300), name="patient"))


def test_bounds_are_near_the_quantiles_and_noise_does_not_stretch_them():
    rng = np.random.default_rng(0)
    plan = PrivacyPlan.from_epsilon(epsilon=0.2, delta=1e-7, sampling="full", n_steps=1)
    X = pd.DataFrame({
        "lognormal": rng.lognormal(5.0, 1.0, 30_000), "negative": -rng.gamma(9.0, 1.0, 30_000),
        "age": rng.integers(0, 91, 30_000), "heavy": rng.standard_t(2.0, 30_000), "constant": 7.0, "zero": 0, "empty": np.nan,
    })  # fmt: skip
    fitted = TableEncoder(privacy=plan).fit(X)
    for name in ("lognormal", "negative", "age", "heavy"):
        low, high = fitted.columns_[name][:2]
        assert np.mean((X[name] < low) | (X[name] > high)) < 0.08
        assert high - low < 2.0 * np.subtract(*np.quantile(X[name], [0.998, 0.002]))
    assert fitted.columns_["constant"][0] <= 7.0 <= fitted.columns_["constant"][1]
    assert fitted.columns_["zero"][:2] == (0.0, 1.0)  # noise adds an indicator in about 1 of 100 fits
    assert fitted.columns_["empty"] == (0.0, 1.0, "(missing)")


def test_noise_alone_gives_the_fallback():
    rng = np.random.default_rng(0)
    for grid in (NUMBERS, DAYS):
        noise = rng.normal(0.0, 5.0, (200, grid.n_cells))
        assert {bounds_from_counts(counts, 5.0, grid, (0.005, 0.995), 200) for counts in noise} == {grid.fallback}


def hostile():
    class Evil:
        def __hash__(self):
            raise RuntimeError("name@example.org")

        __eq__ = __float__ = __hash__

    odd = [
        Evil(), None, 10**400, b"x", (1,), math.inf, pd.NaT, pd.NA, "\ud800", "(other)", 1.5, True, "a", np.timedelta64(1),
    ]  # fmt: skip
    odd = pd.Series([*odd, "2020-01-01", pd.Timestamp("2020-01-01", tz="UTC")] * 40, dtype=object)
    n = len(odd)
    X = pd.DataFrame({"number": odd, "date": odd, "category": odd})
    nullable = pd.array([1, None] * (n // 2), dtype="Int64")
    zoned = pd.Series(pd.date_range("2020", periods=n, tz="Europe/Berlin"))
    words = pd.Categorical(["u", "v"] * (n // 2))
    return X.assign(integer=nullable, zoned=zoned, flag=[True, False] * (n // 2), word=words)


def test_no_value_raises_or_becomes_nan_and_every_row_is_encoded_alone():
    X = hostile()
    kinds = {"number": "number", "date": "date", "category": "category", "integer": "number", "zoned": "date"}
    fitted = encoder(kinds | {"flag": [False, True], "word": "category"}).fit(X)
    features = fitted.transform(X)
    assert features.shape == (len(X), fitted.n_features_out) == (len(X), len(fitted.get_feature_names_out()))
    assert np.isfinite(features).all()
    assert (np.linalg.norm(features, axis=1) <= fitted.max_norm * (1.0 + 1e-12)).all()
    for i in (0, 5, 15):
        np.testing.assert_array_equal(fitted.transform(X.iloc[[i]])[0], features[i])
    sparse = encoder(sparse_output=True).fit(table())
    assert sparse.transform(table()).shape == (300, sparse.n_features_out)


def test_other_and_missing_values_have_indicators():
    X = table(3000).assign(
        amount=lambda X: X["amount"].where(X.index % 3 > 0), word=lambda X: X["word"].where(X.index % 2 > 0)
    )
    fitted = encoder().fit(X)
    assert fitted.columns_["word"] == ["a", "b", "c", "(other)", "(missing)"]
    new = pd.DataFrame(
        {"amount": [np.nan, np.pi / 10], "word": ["never seen", None], "other": [1, 7], "unknown": [0, 0]}
    )
    features = pd.DataFrame(np.abs(fitted.transform(new)) > 1e-9, columns=fitted.get_feature_names_out())
    on = [[name for name, value in row.items() if value] for _, row in features.iterrows()]
    assert on[0] == ["amount_missing", "word_(other)", "other_1"]
    assert on[1] == ["amount", "word_(missing)", "other_(other)"]


def test_learnt_columns_are_a_declaration():
    X = table(3000)
    with releases(dict):  # noise adds indicators now and then
        fitted = encoder({"amount": "number", "word": ["a", "b"]}, threshold_delta=None).fit(X)
    np.testing.assert_array_equal(fitted.transform(X), TableEncoder(fitted.columns_).fit_transform(X))
    assert "bounds of 1 column (amount)" in str(fitted.privacy_)
    assert "categories of 1 column" in fitted.privacy_.releases[0].declared[0]
    assert clone(fitted).columns == fitted.columns


def test_a_report_adds_the_threshold_to_delta():
    plan = PrivacyPlan.from_epsilon(epsilon=0.5, delta=1e-6, sampling="full", n_steps=1)
    report = encoder(plan=plan, threshold_delta=1e-7).fit(table()).privacy_
    assert report.to_dict()["delta"] == pytest.approx(1.1e-6)
    assert report.epsilon() == report.epsilon(1.1e-6) <= 0.5
    assert "δ = 1.1e-06" in str(report)
    assert report.epsilon(1e-8) == math.inf  # less than the threshold's


@pytest.mark.parametrize(
    ("settings", "X", "says"),
    [
        ({"privacy": None}, None, "must be a PrivacyBudget"),
        ({"privacy": PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=1)}, None, "one release of all records"),
        ({"privacy": PrivacyPlan.non_private(n_steps=1)}, None, "no guarantee"),
        ({"threshold_delta": None}, None, "write `threshold_delta`"),
        ({"columns": {"nowhere": "number"}}, None, "0 columns of that name"),
        ({"columns": {"amount": "integer"}}, None, "write \\(low, high\\)"),
        ({"quantiles": (0.6, 0.9)}, None, "in \\[0, 0.5\\)"),
        ({}, np.zeros((3, 3)), "Pass a data frame"),
        ({"columns": None}, pd.DataFrame({"a": [1j]}), "convert it to numbers"),
        ({"columns": {"a": "number"}}, pd.DataFrame({"a": [pd.Timestamp(0)]}), 'write "date"'),
    ],
)  # fmt: skip
def test_errors_come_from_public_facts(settings, X, says):
    arguments = {"columns": KINDS, "privacy": PLAN, "threshold_delta": 1e-6} | settings
    with pytest.raises((TypeError, ValueError), match=says):
        TableEncoder(**arguments).fit(table() if X is None else X)


def test_missing_values_under_declared_bounds_are_a_public_choice():
    """The middle of the bounds, or an indicator, as is declared: at no cost, whatever the column holds."""
    rng = np.random.default_rng(5)
    X = pd.DataFrame({"weight": rng.uniform(40, 100, 400), "age": rng.integers(0, 90, 400), "full": rng.random(400)})
    X.loc[rng.random(400) < 0.3, "weight"] = np.nan
    X.loc[0, "full"] = np.nan
    columns = {"weight": (40, 100, "(missing)"), "age": (0, 90, "(missing)"), "full": (0, 1)}
    fitted = TableEncoder(columns).fit(X)
    assert fitted.columns_ == columns
    assert not hasattr(fitted, "privacy_")
    features = fitted.transform(X)
    assert fitted.get_feature_names_out().tolist() == ["weight", "weight_missing", "age", "age_missing", "full"]
    np.testing.assert_array_equal(features[:, 1] > 0.0, X["weight"].isna())
    names, matrix, shift = fitted.in_column_units()
    assert names == ["weight", "weight: missing, against 70", "age", "age: missing, against 45", "full"]
    whole = X.fillna({"weight": 70.0, "full": 0.5})
    expected = np.column_stack([whole["weight"], X["weight"].isna(), whole["age"], np.zeros(400), whole["full"]])
    coef = rng.normal(size=features.shape[1])
    np.testing.assert_allclose(features @ coef, expected @ (matrix @ coef) + shift @ coef)


def test_saved_encoders_come_back_whole(tmp_path):
    table = pd.DataFrame({"age": np.linspace(20.0, 90.0, 4000), "town": ["A", "B"] * 2000})
    plan = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1)
    declared = TableEncoder({"town": ["A", "B"], "age": (0, 100)}, sparse_output=True)
    for number, encoder in enumerate((
        TableEncoder(privacy=plan, threshold_delta=1e-6),
        TableEncoder({"age": (0, 100), "town": "category"}, privacy=plan, threshold_delta=1e-6),
        declared,
        TableEncoder([(0, 100), ["A"]]),
    )):  # fmt: skip
        path = tmp_path / f"{number}.vips"
        with pytest.raises(NotFittedError):
            encoder.save(path)
        encoder.fit(table).save(path)
        loaded = vips.load(path)
        assert type(loaded) is type(encoder)
        ours, theirs = encoder.transform(table), loaded.transform(table)
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(*(rows.toarray() if encoder.sparse_output else rows for rows in (ours, theirs)))
        assert loaded.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
        assert str(getattr(loaded, "privacy_", "")) == str(getattr(encoder, "privacy_", ""))
