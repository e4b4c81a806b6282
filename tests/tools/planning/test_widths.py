"""Widths of intervals that are said before a fit, and found for a width that is wanted."""

import numpy as np
import pandas as pd
import pytest

from vips import (
    BayesianBinomialRegression,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    CategoricalHMM,
    DirichletMultinomial,
    FactorAnalysis,
    FactorialHMM,
    GaussianHMM,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    LinearDynamicalSystem,
    MixedLatentClassAnalysis,
    PoissonHMM,
    PrivacyBudget,
    PrivacyPlan,
    PrivateClassifier,
    ProbabilisticPCA,
    SpatialCounts,
    SwitchingLinearDynamicalSystem,
    plan_for,
    plan_study,
)
from vips.datasets import make_table
from vips.preprocessing import TableEncoder, make_private_pipeline
from vips.tools.planning.trial import Law, Like, Trials, assumptions, generated, widths_of

BUDGET = PrivacyBudget(1.0, 1e-6)
COLUMNS = {"age": (18, 100), "crp": "number", "ward": ["A", "B", "C"]}


def named(value):
    return type(value).__name__


def visits(columns=COLUMNS, **settings):
    model = BayesianLogisticRegression(classes=["no", "yes"], **settings)
    return make_private_pipeline(TableEncoder(columns), model, privacy=BUDGET)


def proportion(n_records, budget):
    return plan_for(DirichletMultinomial(), n_records=n_records, privacy=budget, n_features=4)


def test_widths_of_proportions_are_those_of_their_closed_form():
    rng = np.random.default_rng(3)
    X = np.eye(4)[rng.choice(4, 40_000, p=[0.4, 0.3, 0.2, 0.1])]
    for n_records, epsilon in ((5_000, 0.5), (40_000, 0.2)):
        budget = PrivacyBudget(epsilon, 1e-6)
        plan = plan_for(DirichletMultinomial(), n_records=n_records, privacy=budget, like=X)
        noise = budget.plan(n_steps=1).noise_multiplier / n_records
        p = np.array([0.4, 0.3, 0.2, 0.1])
        stds = np.sqrt(p * (1.0 - p) / n_records + noise**2 * ((1.0 - p) ** 2 + 3 * p**2))
        assert plan.widths.loc["parameters", "width"] == pytest.approx(np.median(2.0 * 1.96 * stds), rel=0.1)


@pytest.mark.slow
def test_predicted_widths_are_those_of_the_fit():
    plan = plan_for(visits(), n_records=20_000, privacy=PrivacyBudget(0.2, 1e-6))
    table = make_table(COLUMNS, 20_000, random_state=5)
    y = np.where(np.random.default_rng(6).random(20_000) < 0.5, "yes", "no")
    fitted = plan.apply(visits()).fit(table.data, y)
    assert 0.19 < fitted.privacy_.epsilon() <= 0.2
    realised = widths_of(fitted)
    assert plan.realised(fitted)["realised"].to_dict() == realised
    assert plan.realised(fitted).loc["age", "planned"] == plan.widths.loc["age", "width"]
    for name in ("age", "ward: B against A", "ward: C against A"):
        assert plan.widths.loc[name, "width"] == pytest.approx(realised[name], rel=0.25)
        assert plan.widths.loc[name, "without noise"] <= plan.widths.loc[name, "width"]
    assert "ε = 0.2" in str(plan)


@pytest.mark.parametrize(
    ("model", "n_features", "names"),
    [
        (BayesianLogisticRegression(max_norm=1.0), 3, ["x0", "x1", "x2", "intercept"]),
        (BayesianLogisticRegression(max_norm=1.0, classes=[0, 1, 2]), 2, ["0: x0", "0: x1", "0: intercept", "1: x0"]),
        (BayesianBinomialRegression(n_trials=4, max_norm=1.0), 3, ["x0", "x1", "x2", "intercept"]),
        (BayesianNegativeBinomialRegression(max_count=9, max_norm=1.0), 2, ["x0", "x1", "intercept"]),
        (BayesianLinearRegression(max_norm=1.0, target_range=(0.0, 9.0)), 3, ["x0", "x1", "x2", "intercept"]),
        (ProbabilisticPCA(1, max_norm=1.0), 4, ["parameters"]),
        (FactorAnalysis(1, max_norm=1.0), 4, ["parameters"]),
        (LatentClassAnalysis(2, categories={"a": ["x", "y"], "b": [1, 2, 3]}, random_state=0), None, ["weights"]),
        (BayesianGaussianMixture(2, max_norm=1.0, random_state=0), 2, ["weights", "means"]),
    ],
)
@pytest.mark.representatives("model0-3-names0", "model4-3-names4", "model7-None-names7")
def test_each_model_makes_records_and_says_what_to_expect(model, n_features, names):
    plan = plan_for(model, n_records=1_000, privacy=PrivacyBudget(20.0, 1e-6), n_features=n_features)
    assert plan.widths is not None or "no intervals" in str(plan)
    if plan.widths is not None:
        assert list(plan.widths.index[: len(names)]) == names
        assert (plan.widths["width"] >= plan.widths["without noise"] * (1.0 - 1e-12)).all()
        assert np.isfinite(plan.widths.to_numpy()).all()


@pytest.mark.parametrize(
    "model",
    [
        MixedLatentClassAnalysis(2, columns=[(0.0, 9.0), range(20), 3], random_state=0),
        CategoricalHMM(2, n_symbols=5, max_length=9, typical_length=8, random_state=0),
        GaussianHMM(2, n_features=2, max_norm=1.0, max_length=9, typical_length=8, random_state=0),
        PoissonHMM(2, max_count=9, n_features=1, max_length=9, typical_length=8, random_state=0),
        FactorialHMM(2, 2, n_features=2, max_norm=1.0, max_length=9, typical_length=8, random_state=0),
        LinearDynamicalSystem(1, n_features=2, max_norm=1.0, max_length=9, typical_length=8, random_state=0),
    ],
)
def test_models_fit_the_records_that_they_make(model):
    X, y = model.typical_records(600, None, np.random.default_rng(0))
    assert y is None
    assert len(X) == 600
    plain = PrivacyPlan.non_private(n_steps=10)
    ordinary = model.set_params(privacy=plain).fit(X)  # which raises where a value is not as declared
    assert np.isfinite(ordinary.score(X))


@pytest.mark.slow
def test_the_budget_that_a_width_needs_gives_it():
    needed = plan_for(visits(), n_records=20_000, width={"age": 0.01, "ward: B against A": 1.0})
    assert needed.widths.loc["age", "width"] <= 0.0106
    again = plan_for(visits(), n_records=20_000, privacy=needed.budget)
    assert again.widths.loc["age", "width"] == pytest.approx(0.01, rel=0.4)
    assert 0.03 < needed.budget.epsilon < 0.3
    assert needed.budget.delta == 1e-6


@pytest.mark.slow
def test_a_width_below_that_of_sampling_is_refused_with_the_number_of_records():
    with pytest.raises(ValueError, match=r"No ε gives this width.*About ([\d,]+) records") as error:
        plan_for(visits(), n_records=5_000, width={"age": 0.002})
    n = int(str(error.value).split("About ")[1].split(" ")[0].replace(",", ""))
    # 0.8 to 9.4 in ten plans: trials are few, and near what sampling leaves each ε gives nearly the same width
    assert plan_for(visits(), n_records=n, width={"age": 0.002}).budget.epsilon < 100.0


@pytest.mark.parametrize(
    ("model", "settings", "says"),
    [
        (visits(), {}, "Give a budget"),
        (visits().set_params(max_weight=5.0), {"privacy": BUDGET}, "weights are not planned"),
        (visits(), {"width": {"agee": 0.1}}, "`width` names agee; there are: age, crp"),
        (visits(), {"width": {"agee": 0.1}, "privacy": BUDGET}, "`width` names agee; there are: age, crp"),
        (visits({"age": (18, 100)}), {"width": 0.1}, "must name what it is the width of, width={'age': 0.01}"),
        (visits({"age": (18, 100)}), {"width": {"age": 0.0}}, "positive number"),
        (visits(["number", (0, 1)]), {"width": {"age": 0.1}}, "not declared by name"),
        (BayesianLogisticRegression(max_norm=1.0), {"width": {"x0": 0.1}}, "n_features="),
        (PrivateClassifier(privacy=BUDGET), {"privacy": BUDGET}, "make_private_pipeline"),
        (BayesianLogisticRegression(), {"privacy": BUDGET, "n_features": 2}, "max_norm"),
    ],
)
def test_bad_arguments_are_named(model, settings, says):
    with pytest.raises((TypeError, ValueError), match=says):
        plan_for(model, **({"n_records": 1_000} | settings))


def test_without_records_there_is_a_plan_and_the_word_that_helps():
    plan = plan_for(BayesianLogisticRegression(), n_records=1_000, privacy=BUDGET)
    assert plan.widths is None
    assert "n_features=" in str(plan)
    with pytest.raises(ValueError, match="n_features="):
        plan.plot()


def test_models_without_intervals_are_named_before_records_are_asked_for():
    model = SwitchingLinearDynamicalSystem(1, n_regimes=2, n_features=2, max_norm=1.0)
    plan = plan_for(model, n_records=1_000, privacy=BUDGET, like=[np.zeros((3, 2))])
    assert "at face value" in str(plan)
    assert "like=" not in str(plan)
    with pytest.raises(ValueError, match="at face value"):
        plan_for(model, n_records=1_000, width={"moves": 0.1})


def test_topics_plan_at_once_and_hidden_components_are_said_before_the_fit():
    plan = plan_for(LatentDirichletAllocation(vocabulary=500), n_records=10_000, privacy=BUDGET)
    assert plan.widths is None
    assert plan.signal_to_noise > 0.0
    model = LatentClassAnalysis(3, categories=[2] * 4, random_state=0)
    plan = plan_for(model, n_records=1_000, privacy=PrivacyBudget(0.05, 1e-6))
    assert plan.widths is None
    assert "no intervals" in str(plan)


@pytest.mark.slow
def test_records_of_mixtures_have_components_apart():
    """Drawn at random, two of three components come to lie upon each other, and no ε tells them apart."""
    model, budget = BayesianGaussianMixture(3, max_norm=5.0), PrivacyBudget(2.0, 1e-6)
    plan = plan_for(model, n_records=20_000, privacy=budget, n_features=2)
    assert plan.widths.loc["weights", "width"] < 0.03


@pytest.mark.slow
def test_where_no_budget_helps_it_is_seen_at_once(monkeypatch):
    """Not by trials at one ε after another: with next to no noise there are no intervals, either."""
    model, X, n_fits = LatentClassAnalysis(4, categories=[2] * 4, random_state=0), np.zeros((2_000, 4), int), []
    fitted = Trials._fitted
    monkeypatch.setattr(Trials, "_fitted", lambda *arguments: n_fits.append(1) or fitted(*arguments))
    with pytest.raises(ValueError, match=r"no intervals came out\. Not even"):
        plan_for(model, n_records=2_000, width={"weights": 0.1}, like=X)
    assert len(n_fits) <= 6


def test_areas_are_planned_with_as_many_records_as_the_fit_has():
    """Areas of few records are drawn to their neighbours: 4,000 records say that 60,000 have 0.57 to 0.75 of their widths."""
    rng, places = np.random.default_rng(2), np.stack(np.divmod(np.arange(100), 10), axis=1) / 10.0
    log_rates = np.sin(7.0 * places[:, 0]) + np.cos(9.0 * places[:, 1])
    people = np.exp(np.sin(37.0 * np.arange(100)))
    areas = rng.choice(100, 120_000, p=people / people.sum())[:, None]
    counts = np.minimum(rng.poisson(0.3 * np.exp(0.3 * log_rates[areas[:, 0]])), 10)
    model = SpatialCounts(areas=range(100), coordinates=places, max_count=10)
    plan = plan_for(model, n_records=60_000, privacy=BUDGET, like=(areas[:60_000], counts[:60_000]))
    both = plan.realised(plan.apply(model).fit(areas[60_000:], counts[60_000:]))
    assert 0.8 < np.median(both["planned"] / both["realised"]) < 1.25


def test_widths_draw_a_picture():
    axes = proportion(2_000, PrivacyBudget(0.1, 1e-6)).plot()
    assert axes.get_xlabel() == "ε"
    curve = axes.lines[0]
    assert np.all(np.diff(curve.get_ydata()) < 0.0)
    assert curve.get_xdata()[0] < 0.1 < curve.get_xdata()[-1]


def test_persons_are_drawn_whole():
    rows = pd.DataFrame({"age": np.arange(60.0), "ward": ["A", "B", "C"] * 20})
    like = Like(rows, np.arange(60), np.array([f"p{i // 3}" for i in range(57)] + [None] * 3, dtype=object))
    drawn = like.drawn(50, np.random.default_rng(0))
    assert drawn.n_rows == 150
    for _, of in drawn.X.groupby(np.asarray(drawn.groups)):
        first = int(of["age"].iloc[0])
        assert first % 3 == 0
        assert of["age"].tolist() == [first, first + 1, first + 2]
    assert np.array_equal(drawn.X["age"], drawn.y)
    assert len(np.unique(drawn.groups)) == 50


def test_a_law_is_that_of_most_trials_and_noise_that_is_left_is_known(monkeypatch):
    """Which are fits to other records; one may have no intervals, and another go astray."""
    trials = Trials(DirichletMultinomial(), Like(np.eye(3)[np.arange(60) % 3]), 600, 60, 3)
    assert not any(np.array_equal(trials.samples[0].X, sample.X) for sample in trials.samples[1:])
    factors = iter([1.0, None, 1.0, 1.0, 9.0, 1.0])

    def widths(less_noise):
        if (factor := next(factors)) is None:
            raise NotImplementedError
        return {"a": factor * np.sqrt(0.04 + 0.09 / (less_noise / 10.0) ** 2)}

    monkeypatch.setattr(Trials, "_fitted", lambda *arguments: arguments[-1])
    monkeypatch.setattr("vips.tools.planning.trial.widths_of", widths)
    law = trials.law(BUDGET, None)
    assert law.of_sampling[0] == pytest.approx(60 * 0.04)
    assert law.widths(600, BUDGET.mu2)[0] ** 2 == pytest.approx(0.04 / 10 + 0.09)


def test_the_law_is_met_where_it_is_inverted():
    law = Law(["a", "b"], np.array([4.0, 1.0]), np.array([9.0, 16.0]), 0.0)
    wanted = {"a": 0.1, "b": 0.05}
    mu2 = law.mu2_for(wanted, 1_000.0)
    assert law.excess(wanted, 1_000.0, mu2) == pytest.approx(1.0)
    assert law.mu2_for({"a": 0.06}, 1_000.0) == np.inf
    assert law.widths(law.records_for({"a": 0.06}), np.inf)[0] == pytest.approx(0.06)


@pytest.mark.slow
def test_shares_of_a_study_are_those_that_widths_need():
    models = {"risk": visits({"age": (18, 100)}), "wards": DirichletMultinomial()}
    like = {"wards": np.eye(3)[np.random.default_rng(0).choice(3, 5_000)]}
    wanted = {"risk": {"age": 0.01}, "wards": {"parameters": 0.02}}
    study = plan_study(models, n_records=20_000, width=wanted, like=like)
    assert study.budget.mu2 == pytest.approx(sum(release.budget.mu2 for release in study.releases.values()))

    def factors_of(study):
        releases = study.releases.items()
        return [release.law.excess(wanted[name], 20_000, release.budget.mu2) for name, release in releases]

    assert max(factors_of(study)) < 1.1
    given = plan_study(models, n_records=20_000, width=wanted, like=like, privacy=PrivacyBudget(1.0, 1e-6))
    factors = factors_of(given)
    assert sum(release.budget.mu2 for release in given.releases.values()) <= given.budget.mu2
    assert factors[0] == pytest.approx(factors[1], rel=0.5)
    assert max(factors) < 1.0
    assert "risk (share" in str(given)
    for width in ({"risk": {"age": 0.01}}, {"risk": {"age": 0.01}, "wards": {}}, 0.01):
        with pytest.raises(ValueError, match="for each of the models"):
            plan_study(models, n_records=20_000, width=width)


def test_a_certificate_quotes_planned_and_realised_widths(tmp_path, monkeypatch):
    budget, rng = PrivacyBudget(1.0, 1e-6), np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(18, 100, 2_000)})
    # noise hides the size of a far steeper slope
    again = rng.random(2_000) < 1.0 / (1.0 + np.exp(-0.05 * (table["age"] - 60)))
    fitted = visits({"age": (18, 100)}).fit(table, np.where(again, "yes", "no"))
    plan = plan_for(fitted, n_records=2_000, privacy=budget)
    planned, realised = plan.realised(fitted).loc["age"]
    fitted.privacy_.to_html(tmp_path / "both.html", reason=plan, model=fitted)
    fitted.privacy_.to_html(tmp_path / "plan.html", reason=plan, model="risk by age")
    both, alone = ((tmp_path / name).read_text(encoding="utf-8") for name in ("both.html", "plan.html"))
    assert f"age {planned:.2g} planned, {realised:.2g} realised" in both
    assert "realised" not in alone
    assert "95 % intervals are about this wide" in alone
    without = pd.DataFrame({"planned": [0.1], "realised": [np.nan]}, index=["age"])
    monkeypatch.setattr(type(plan), "realised", lambda *_: without)
    assert "age 0.1 planned, inf realised" in plan.beside(fitted), "nothing is said of a width that the fit lacks"


GUESS, EFFECTS = {"age": (40, 2), "ward": [0.9, 0.1]}, {"age": 0.2}


@pytest.mark.parametrize(("public", "words"), [
    ({}, ("spread over their bounds", "equally frequent", "half of the outcomes", "guess={name: shares}", "outcome=", "like=")),
    ({"outcome": 0.02}, ("spread over their bounds", "equally frequent")),
    ({"outcome": 0.02, "guess": {"age": (40, 2)}}, ("equally frequent",)),
    ({"outcome": 0.02, "guess": GUESS}, ()),
])  # fmt: skip
def test_a_plan_says_what_it_assumes_and_asks_for_it(public, words):
    columns = {"age": (0, 100), "ward": ["A", "B"]}
    says = assumptions(visits(columns), public.get("guess"), public.get("outcome"))
    everything = ("spread over their bounds", "equally frequent", "half of the outcomes")
    assert all(word in says for word in words)
    assert not any(word in says for word in everything if word not in words)
    assert ("Assumed" in says) == bool(words)


def test_a_plan_of_a_linear_regression_says_how_targets_scatter():
    encoder, model = TableEncoder({"age": (0, 100)}), BayesianLinearRegression(target_range=(0, 90))
    pipeline = make_private_pipeline(encoder, model, privacy=PrivacyBudget(1.0, 1e-6))
    says = assumptions(pipeline, {"age": (40, 20)}, None)
    assert "an eighth of `target_range`" in says
    assert "(like=)" in says


@pytest.mark.slow
def test_a_plan_knows_a_rare_outcome_and_narrow_columns():
    """Widths are within a factor of three, and were 5 to 30 times those of a plan to which nobody had said it."""
    columns = {"age": (0, 1000), "ward": ["A", "B"]}
    table = make_table(columns, 10_000, guess=GUESS, effects=EFFECTS, random_state=0)
    y = np.random.default_rng(1).random(10_000) < 1.0 / (1.0 + np.exp(4.0 - table.predictor))
    fits = [visits(columns).fit(table.data, np.where(y, "yes", "no")) for _ in range(3)]

    def plans(**known):
        return [plan_for(visits(columns), n_records=10_000, privacy=BUDGET, **known) for _ in range(3)]

    def ratio(plans):
        ratios = [plan.realised(fit).eval("realised / planned") for plan in plans for fit in fits]
        return np.exp(np.mean(np.log(ratios), axis=0))

    assert "Noise hides too much for limits of age" in str(
        plan_for(visits(columns), n_records=300, privacy=BUDGET, outcome=0.02, guess=GUESS, effects=EFFECTS)
    )
    (plan, *others), unsaid = (
        plans(outcome=0.02, guess=GUESS, effects=EFFECTS),
        plan_for(visits(columns), n_records=10_000, privacy=BUDGET),
    )
    assert np.abs(np.log(ratio([plan, *others]))).max() < np.log(3.0)
    assert ratio([unsaid]).max() > 5.0
    assert ("Assumed" in unsaid.says, "Assumed" in plan.says) == (True, False)


@pytest.mark.parametrize(("model", "outcome"), [
    (BayesianNegativeBinomialRegression(max_norm=1.0, max_count=20), 0.3),
    (BayesianBinomialRegression(max_norm=1.0, n_trials=4), 3.0),
    (BayesianLogisticRegression(max_norm=1.0, classes=["yes", "no"]), 0.1),
], ids=named)  # fmt: skip
def test_generated_targets_have_the_outcome(model, outcome):
    labels = generated(model, 4000, 2, np.random.default_rng(0), outcome=outcome).y
    values = labels == model.classes[-1] if labels.dtype.kind == "U" else labels
    assert np.mean(values) == pytest.approx(outcome, rel=0.05)


@pytest.mark.parametrize(("model", "arguments", "message"), [
    (BayesianLogisticRegression(max_norm=1.0), {"outcome": 1.5}, "`outcome`"),
    (BayesianLogisticRegression(max_norm=1.0, classes=[0, 1, 2]), {"outcome": 0.1}, "as declared has neither"),
    (BayesianLinearRegression(max_norm=1.0, target_range=(0, 1)), {"outcome": 0.1}, "as declared has neither"),
    (DirichletMultinomial(), {"outcome": 0.1}, "as declared has neither"),
    (BayesianLogisticRegression(max_norm=1.0), {"outcome": 0.1, "like": np.zeros((9, 2))}, "not both"),
], ids=named)  # fmt: skip
def test_an_outcome_that_a_model_does_not_have_is_refused(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        plan_for(model, n_records=2000, privacy=BUDGET, n_features=2, **arguments)
