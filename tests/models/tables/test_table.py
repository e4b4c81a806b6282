"""A private table as a statistician uses it: declarations, exact numbers without noise, limits with noise, rules, files."""

from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest

from tests.laws import checks
from tests.laws.cases import CASES
from tests.mutants import check_notices
from vips import PrivacyBudget, PrivacyPlan, PrivateTable, inspect, load
from vips.exceptions import PrivacyWarning
from vips.models.tables import columns, rules, table
from vips.models.tables.columns import column_of

BUDGET = PrivacyBudget(epsilon=1.0, delta=1e-6)
DECLARED = {
    "age": (18, 90),
    "income": (0, 0, *range(1_000, 16_000, 1_000), 20_000, 30_000, 50_000, "(missing)"),
    "smoker": ["no", "yes"],
    "packs": ["none", "one", "more", "(missing)"],
    "since": (date(2000, 1, 1), date(2020, 12, 31)),
}
rng = np.random.default_rng(0)
RULES = [{"smoker": ["no"], "packs": ["one", "more"]}, {"smoker": ["yes"], "packs": ["none", "(missing)"]}]


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    age, smokes = rng.integers(18, 91, n), rng.random(n) < 0.3
    packs = np.where(smokes, rng.choice(["one", "more"], n), rng.choice(["none", None], n))
    income = np.where(rng.random(n) < 0.2, 0.0, rng.lognormal(8.0 + 0.01 * age, 0.6)).clip(0, 50_000)
    income[rng.random(n) < 0.1] = np.nan
    since = pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 7000, n), "D")
    smoker = np.where(smokes, "yes", "no")
    return pd.DataFrame({"age": age, "income": income, "smoker": smoker, "packs": packs, "since": since})


PEOPLE = people(3_000)


@pytest.fixture(scope="module")
def exact():
    return PrivateTable(columns=DECLARED, rules=RULES, missing={"packs": ("refused",)}).fit(PEOPLE)


@pytest.fixture(scope="module")
def private():
    return PrivateTable(columns=DECLARED, rules=RULES, privacy=BUDGET).fit(people(30_000))


def test_shares_without_noise_are_those_of_the_records(exact):
    shares = exact.shares("smoker")["share"]
    assert shares["yes"] == pytest.approx((PEOPLE["smoker"] == "yes").mean())
    income = exact.shares("income")["share"]
    assert income["0"] == pytest.approx((PEOPLE["income"] == 0.0).mean())
    assert income["(missing)"] == pytest.approx(PEOPLE["income"].isna().mean())
    assert income["30000 to 50000"] == pytest.approx((PEOPLE["income"] >= 30_000).mean())
    assert exact.summary()["share"].groupby("column").sum().to_numpy() == pytest.approx(1.0)
    wide = exact.shares("smoker", level=0.99)
    assert (wide["lower"] < exact.shares("smoker")["lower"]).all()


def test_pairs_without_noise_are_those_of_the_records(exact):
    ages = pd.cut(PEOPLE["age"], [*column_of((18, 90), "age", 10).edges[:-1], 91], right=False)
    expected = pd.crosstab(ages, PEOPLE["smoker"], normalize=True).to_numpy()
    pairs = exact.pairs("age", "smoker")
    np.testing.assert_allclose(pairs["share"].to_numpy().reshape(-1, 2), expected, atol=1e-12)
    assert ((pairs["lower"] < pairs["share"]) & (pairs["share"] < pairs["upper"])).all()


def test_means_and_regressions_without_noise_are_those_of_the_records(exact):
    """Means are of finer bins, here of whole numbers; regressions of middles, whose squares are too large by a known part."""
    smokes = (PEOPLE["smoker"] == "yes").to_numpy(float)
    assert exact.means().loc["age", "mean"] == pytest.approx(PEOPLE["age"].mean())
    assert exact.means().loc["smoker", "mean"] == pytest.approx(smokes.mean())
    slope = np.polyfit(PEOPLE["age"], smokes, 1)
    effects = exact.regress("smoker", ["age"])
    width = effects["upper"] - effects["lower"]
    assert (np.abs(effects["effect"] - slope) < 0.1 * width).all()


def test_effects_are_those_of_records_with_answers():
    """A quarter of the targets and a tenth of the features are missing at random: effects do not shrink, limits know it."""
    n, draw = 20_000, np.random.default_rng(5)
    x, group = draw.integers(0, 10, n).astype(float), draw.integers(0, 2, n)
    y = np.clip(x + 3 * group + draw.integers(-2, 3, n), -5, 20).astype(float)
    columns = {"x": (0, 9), "group": ["a", "b"], "y": (-5, 20)}
    records = pd.DataFrame({"x": x, "group": np.array(["a", "b"])[group], "y": y})
    whole = PrivateTable(columns=columns, n_bins=30).fit(records).regress("y", ["x", "group"])
    records.loc[draw.random(n) < 0.25, "y"] = np.nan
    records.loc[draw.random(n) < 0.1, "x"] = np.nan
    with pytest.warns(PrivacyWarning, match=r"missing at random: 'x' \(10%\), 'y' \(25%\)"):
        effects = PrivateTable(columns=columns, n_bins=30).fit(records).regress("y", ["x", "group"])
    widths = [frame["upper"] - frame["lower"] for frame in (effects, whole)]
    assert (np.abs(effects["effect"] - whole["effect"]) < widths[0]).all()
    assert (widths[0] > 1.15 * widths[1]).all()
    assert effects.loc["x", "effect"] == pytest.approx(1.0, abs=0.03)


def test_coarse_bins_are_said():
    """Nearly all numbers are in one bin of declared bounds, whose middle says nothing."""
    coarse = PrivateTable(columns={"income": (0, 1_000_000), "age": (18, 90)}, privacy=BUDGET).fit(PEOPLE)
    with pytest.warns(PrivacyWarning, match="Bins are coarse for 'income'"):
        assert coarse.correlations().isna().all(axis=None)


def test_correlations_without_noise_are_those_of_the_records(exact):
    correlations = exact.correlations()
    assert len(correlations) == 6
    row, there = correlations.loc[("age", "income")], PEOPLE.dropna(subset="income")
    assert row["correlation"] == pytest.approx(there["age"].corr(there["income"]), abs=0.01)
    resampled = [there.sample(frac=1.0, replace=True, random_state=seed) for seed in range(300)]
    deviation = np.std([table["age"].corr(table["income"]) for table in resampled])
    assert (row["upper"] - row["lower"]) / 3.92 == pytest.approx(deviation, rel=0.2)


def test_limits_hold_with_noise(private):
    """30,000 people at ε = 1: at 99.99 % a run fails once in hundreds of thousands."""
    records, level = people(30_000), 0.99999
    smokes = private.shares("smoker", level).loc["yes"]
    assert smokes["lower"] < 0.3 < smokes["upper"]
    assert smokes["upper"] - smokes["lower"] < 0.05
    age = private.means(level).loc["age"]
    assert age["lower"] < records["age"].mean() < age["upper"]
    effects = private.regress("smoker", ["age", "since"], level)
    assert ((effects["lower"] < 0.0) & (effects["upper"] > 0.0))[:2].all()


def test_effects_that_noise_hides_have_no_limits_and_are_named():
    few = PrivateTable(columns=DECLARED, privacy=PrivacyBudget(epsilon=0.1, delta=1e-6)).fit(people(200))
    with pytest.warns(PrivacyWarning, match="hide effects: .*They have no limits|missing at random"):
        assert few.regress("smoker", ["age", "packs"]).drop("(intercept)").isna().any(axis=None)
    assert few.correlations().isna().any(axis=None)


def test_synthetic_rows_are_like_the_records_and_break_no_rule(private):
    rows = private.sample(100_000, random_state=0)
    assert rows.columns.tolist() == list(DECLARED)
    assert rows["age"].dtype == PEOPLE["age"].dtype
    assert rows["since"].dtype == PEOPLE["since"].dtype
    assert rows["age"].between(18, 90).all()
    assert rows["income"].isna().any()
    assert rows["since"].notna().all()
    no, answered = rows["smoker"] == "no", rows["packs"].isin(["one", "more"])
    assert not (no & answered).any()
    assert not (~no & ~answered).any()
    assert no.mean() == pytest.approx(0.7, abs=0.03)
    assert rows["income"].eq(0.0).mean() == pytest.approx(0.18, abs=0.03)
    assert private.sample(50, given={"smoker": "yes", "age": "18 to 24"})["age"].between(18, 24).all()
    pd.testing.assert_frame_equal(rows, private.sample(100_000, random_state=0))


def test_rows_that_break_a_rule_count_as_missing():
    broken = PEOPLE.copy()
    broken.loc[:99, ["smoker", "packs"]] = "no", "more"
    counts = PrivateTable(columns=DECLARED, rules=RULES).fit(broken)._pairs()
    without = PrivateTable(columns=DECLARED).fit(broken)
    plain = without._pairs()
    assert plain.size == pytest.approx(counts.size) == 3_000
    moved = counts.margins - plain.margins
    n_broken = ((broken["smoker"] == "no") & broken["packs"].isin(["one", "more"])).sum()
    names = without._level_names()
    assert moved[names.index("smoker: (missing)")] == pytest.approx(n_broken)
    assert moved[names.index("packs: more")] == pytest.approx(-n_broken, abs=1e-9)


def test_persons_and_weights():
    records = people(6_000)
    ids = np.repeat(np.arange(2_000), 3)
    plan = BUDGET.plan(max_rows_per_group=3)
    persons = PrivateTable(columns=DECLARED, privacy=plan).fit(records, groups=ids)
    rows = PrivateTable(columns=DECLARED, privacy=BUDGET).fit(records)
    width = [(table.shares("smoker")["upper"] - table.shares("smoker")["lower"]).iloc[0] for table in (persons, rows)]
    assert width[0] > 1.5 * width[1]  # a person's rows may say the same
    heavy = np.where(records["smoker"] == "yes", 2.0, 1.0)
    weighted = PrivateTable(columns=DECLARED, privacy=BUDGET.plan(max_weight=2.0)).fit(records, sample_weight=heavy)
    share = weighted.shares("smoker", 0.99999).loc["yes"]
    assert share["lower"] < 0.6 / 1.3 < share["upper"]
    plain = PrivateTable(columns=DECLARED).fit(records, sample_weight=heavy)
    assert plain.posterior_.squares == pytest.approx(np.square(heavy).sum() / heavy.sum())


def test_a_file_gives_the_same_numbers(private, tmp_path):
    private.save(tmp_path / "table.vips")
    read = load(tmp_path / "table.vips")
    pd.testing.assert_frame_equal(read.summary(), private.summary())
    pd.testing.assert_frame_equal(read.sample(20, random_state=1), private.sample(20, random_state=1))


def test_the_outcome_has_less_noise():
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=1)
    widths = []
    for outcome in (None, "smoker"):
        fitted = PrivateTable(columns=DECLARED, outcome=outcome, privacy=plan).fit(PEOPLE)
        effects = fitted.regress("smoker", ["age"])
        widths.append(effects["upper"].iloc[0] - effects["lower"].iloc[0])
    assert widths[1] < 0.9 * widths[0]


def test_columns_that_nothing_was_read_of_are_named():
    words = PEOPLE.assign(smoker=np.where(PEOPLE["smoker"] == "yes", "Yes", "No"))
    with pytest.warns(PrivacyWarning, match="smoker"):
        PrivateTable(columns=DECLARED, privacy=BUDGET).fit(words)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"columns": {"age": [18, 90]}}, "Bounds are a tuple"),
        ({"columns": {"age": (90, 18)}}, "must ascend"),
        ({"columns": {"age": (1, 1, 1, 2)}}, "at most twice"),
        ({"columns": {"age": "number"}}, "a tuple of edges"),
        ({"columns": {"smoker": ["no", "no"]}}, "twice"),
        ({"columns": {"age": (date(2000, 1, 1), 5)}}, "not both"),
        ({"columns": None}, "must be a mapping of names"),
        ({"columns": {"age": (0.0, 1.0), "b": (0.0, 1.0)}, "n_bins": 1000, "outcome": "c"}, "no declared column"),
        ({"columns": {str(i): (0.0, 1.0) for i in range(12)}, "n_bins": 1000}, "pairs of answers"),
        ({"rules": [{"smoker": ["no"]}]}, "maps the names of two"),
        ({"rules": [{"smoker": ["never"], "packs": ["one"]}]}, "no answer 'never'"),
        ({"rules": [{"age": (0, 15), "smoker": ["yes"]}]}, "its edges are"),
        ({"rules": [{"smoker": ["no", "(missing)"], "packs": ["(missing)"]}]}, "must let both"),
        ({"rules": [{"smoker": ["no"], "packs": part} for part in ("(answered)", ["(missing)"])]}, "no answer beside"),
        ({"missing": {"sex": (9,)}}, "no declared column"),
        ({"missing": {"smoker": "no"}}, "leave it out of one"),
        ({"missing": {"age": "unknown"}}, "must hold numbers"),
        ({"columns": {"age": (0, 0, 1, 5)}}, "at least two more"),
    ],
)  # fmt: skip
def test_declarations_that_cannot_work_are_refused(arguments, says):
    with pytest.raises((TypeError, ValueError), match=says):
        PrivateTable(**({"columns": DECLARED, "privacy": BUDGET} | arguments)).fit(PEOPLE)


def test_questions_that_cannot_be_answered_are_refused(exact):
    with pytest.raises(ValueError, match="There is no column 'sex'"):
        exact.shares("sex")
    with pytest.raises(ValueError, match="more than two categories"):
        exact.regress("packs")
    with pytest.raises(ValueError, match="other columns"):
        exact.regress("age", ["age"])
    with pytest.raises(ValueError, match="name two columns"):
        exact.pairs("age", "age")
    with pytest.raises(ValueError, match="has no answer 'maybe'"):
        exact.sample(1, given={"smoker": "maybe"})
    with pytest.raises(ValueError, match="has these answers"):
        exact.sample(1, given={"smoker": "no", "packs": "more"})
    with pytest.raises(ValueError, match="holds 'maybe'"):
        PrivateTable(columns=DECLARED).fit(PEOPLE.assign(smoker="maybe"))


def test_codes_of_missing_answers():
    records = PEOPLE.assign(smoker=PEOPLE["smoker"].mask(PEOPLE.index % 10 == 0, "refused"))
    columns = DECLARED | {"smoker": ["no", "yes", "(missing)"]}
    for privacy in (None, BUDGET):
        table = PrivateTable(columns=columns, missing={"smoker": "refused"}, privacy=privacy).fit(records)
        assert table.shares("smoker")["share"]["(missing)"] == pytest.approx(0.1, abs=0.03)


def test_a_holder_may_inspect_the_columns():
    income = inspect(PEOPLE, DECLARED).columns[1]
    assert "from 0 to 50000" in str(income)
    assert (income.n_read, income.n_missing) == (PEOPLE["income"].notna().sum(), PEOPLE["income"].isna().sum())


def test_nobody_gives_a_table_of_noise():
    nobody = PrivateTable(columns=DECLARED, privacy=BUDGET).fit(PEOPLE[:0])
    assert nobody.privacy_.only_noise
    assert len(nobody.sample(3)) == 3
    with pytest.warns(PrivacyWarning, match="hide effects|missing at random"):
        assert nobody.regress("smoker")["effect"].isna().sum() >= 3


def test_means_are_those_of_finer_bins():
    """Bounds twenty times too wide put nearly all numbers in one of ten bins, whose middle is ten times the mean."""
    records = people(60_000)
    wide = PrivateTable(columns={"income": (0, 1_000_000), "smoker": ["no", "yes"]}, privacy=BUDGET).fit(records)
    mean = wide.means(0.9999).loc["income"]
    assert mean["lower"] < records["income"].mean() < mean["upper"] < 20_000
    assert "counts of numbers in finer bins" in str(wide.privacy_)


def test_effects_do_not_depend_on_units():
    exact = {}
    for unit in (1e-6, 1.0, 1e6):
        columns = {"x": (0.0, 10.0 * unit), "y": (0.0, 10.0 / unit)}
        x = np.random.default_rng(1).uniform(0, 10, 5_000)
        y = np.clip(0.5 * x + np.random.default_rng(2).normal(2, 1, 5_000), 0, 10)
        table = PrivateTable(columns=columns).fit(pd.DataFrame({"x": x * unit, "y": y / unit}))
        exact[unit] = table.regress("y", ["x"]).loc["x"].to_numpy() * unit**2
    np.testing.assert_allclose(exact[1e-6], exact[1.0], rtol=1e-6)
    np.testing.assert_allclose(exact[1e6], exact[1.0], rtol=1e-6)


def test_rules_do_not_empty_a_rare_group():
    """One in ten is a child, whom six questions are not asked."""
    draw, n = np.random.default_rng(3), 20_000
    child = draw.random(n) < 0.1
    asked = {f"q{k}": np.where(child, None, draw.choice(["some", "often"], n)) for k in range(6)}
    records = pd.DataFrame({"child": np.where(child, "yes", "no"), **asked})
    columns = {"child": ["no", "yes"], **{name: ["some", "often", "(missing)"] for name in asked}}
    rules = [{"child": ["yes"], name: "(answered)"} for name in asked]
    rows = PrivateTable(columns=columns, rules=rules, privacy=BUDGET).fit(records).sample(20_000, random_state=0)
    assert (rows["child"] == "yes").mean() == pytest.approx(0.1, abs=0.02)
    assert rows.loc[rows["child"] == "yes", list(asked)].isna().all(axis=None)


def test_columns_that_are_all_at_a_bound_are_named():
    other_unit = people(60_000)
    other_unit["age"] /= 100.0
    with pytest.warns(PrivacyWarning, match="'age': no number above 18 was read above the noise"):
        PrivateTable(columns=DECLARED, privacy=BUDGET).fit(other_unit)


def test_cells_have_one_level_each():
    income = column_of((0, 0, 10, 20), "income", 10)
    assert income.labels == ("0", "1 to 9", "10 to 20", "(missing)")
    cells = np.array([0.0, -5.0, 1.0, 9.0, 10.0, 20.0, 99.0, np.nan, np.inf])
    assert income.levels(cells).tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert column_of((1, 3), "grade", 10).labels == ("1", "2", "3", "(missing)")
    drawn = income.drawn(np.repeat([0, 1, 2, 3], 500), np.random.default_rng(0)).reshape(4, 500)
    assert [set(np.unique(row)) for row in drawn[:3]] == [{0.0}, {*range(1, 10)}, {*range(10, 21)}]
    assert np.isnan(drawn[3]).all()
    assert column_of([1, 2, "(other)"], "code", 10).numbers is None  # all others are no number
    assert column_of([1, 2, "(missing)"], "children", 10).numbers.tolist()[:2] == [1.0, 2.0]
    other = column_of(["a", "(other)"], "word", 10)
    assert other.levels(other.read(np.array(["a", "b", None], dtype=object))).tolist() == [0, 1, 2]


def test_what_is_unknown_of_the_average_of_a_bin():
    """Numbers of a wide bin that are nearly all at its lower end, counted with noise."""
    rng, column, deviations = np.random.default_rng(0), column_of((0, 0, 2, 4, 40), "visits", 10), []
    for _ in range(200):
        numbers = np.minimum(3.0 + rng.geometric(0.4, 3_000), 40.0)
        counts = np.bincount(column.grid.levels(numbers), minlength=len(column.grid.bounds))
        learnt = replace(column, counts=tuple(counts + rng.normal(0.0, 60.0, len(counts))), noise_std=60.0)
        deviations.append((learnt.averages[3] - numbers.mean()) / np.sqrt(learnt.unknown[3]))
    assert 0.8 < np.sqrt(np.mean(np.square(deviations))) < 1.3


def bins_are_those_of_the_chunk(patch):
    original = columns.Bins.levels
    patch.setattr(columns.Bins, "levels", lambda self, x: original(self, x - np.nanmin(np.append(x, 0.0))))


def one_broken_row_spoils_all(patch):
    original = rules.obeying

    def mutant(levels, stated, missing):
        obeyed = original(levels, stated, missing)
        return obeyed if (obeyed == levels).all() else np.tile(missing, (len(levels), 1))

    patch.setattr(table, "obeying", mutant)


def cells_depend_on_the_number_of_rows(patch):
    original = columns.Answers.levels
    patch.setattr(columns.Answers, "levels", lambda self, codes: original(self, codes + (len(codes) > 1)))


@pytest.mark.parametrize(
    "mutant", [bins_are_those_of_the_chunk, one_broken_row_spoils_all, cells_depend_on_the_number_of_rows]
)
def test_levels_that_look_at_other_records_are_noticed(mutant, monkeypatch):
    case = next(case for case in CASES if case.name == "table of pairs")
    check_notices(lambda: checks.records_do_not_see_each_other(case), mutant, monkeypatch, "another one in company")
