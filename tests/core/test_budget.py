"""A budget is three numbers that add up: whatever plans itself from one fits into a ledger of the same numbers."""

import copy
import math
import pickle
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import vips
from vips import (
    BayesianLogisticRegression,
    DirichletMultinomial,
    LatentDirichletAllocation,
    LedgerError,
    PrivacyBudget,
    PrivacyBudgetError,
    PrivacyLedger,
    PrivacyPlan,
    PrivateClassifier,
    PrivateTopics,
    count_records,
)
from vips.core.accounting import dominating_mu
from vips.core.accounting.gaussian import gaussian_epsilon
from vips.core.budget import limits
from vips.preprocessing import PrivateCountVectorizer, TableEncoder, make_private_pipeline

VOTES = np.eye(3)[[0, 1, 2, 0] * 25]
TABLE = pd.DataFrame({"age": np.arange(400.0) % 60, "ward": ["A", "B"] * 200})
LABELS = np.arange(400) % 2


def pipeline(budget):
    encoder = TableEncoder({"age": "number", "ward": "category"})
    return make_private_pipeline(encoder, BayesianLogisticRegression(), privacy=budget, n_steps=2)


def classifier(budget):
    return PrivateClassifier({"age": (0, 60), "ward": "category"}, privacy=budget, n_steps=2)


def topics(budget):
    return PrivateTopics(2, privacy=budget, n_steps=2)


def votes(privacy):
    return DirichletMultinomial(privacy=privacy)


def topic_model(budget):
    return LatentDirichletAllocation(2, vocabulary=3, privacy=budget)


STORMS = ["a storm at sea"]
USERS = {
    "fit": lambda ledger, budget: votes(budget).fit(VOTES, ledger=ledger),
    "fit in many steps": lambda ledger, budget: topic_model(budget).fit(VOTES, ledger=ledger),
    "encoder": lambda ledger, budget: TableEncoder(privacy=budget).fit(TABLE, ledger=ledger),
    "words": lambda ledger, budget: PrivateCountVectorizer(privacy=budget).fit(STORMS * 400, ledger=ledger),
    "count": lambda ledger, budget: count_records(VOTES, privacy=budget, ledger=ledger),
    "stream": lambda ledger, budget: votes(budget.stream(n_batches=5)).partial_fit(VOTES, ledger=ledger),
    "pipeline": lambda ledger, budget: pipeline(budget).fit(TABLE, LABELS, ledger=ledger),
    "classifier": lambda ledger, budget: classifier(budget).fit(TABLE, LABELS, ledger=ledger),
    "topics": lambda ledger, budget: topics(budget).fit(STORMS * 4000, ledger=ledger),
}
every_user = pytest.mark.parametrize("spend", USERS.values(), ids=USERS)


@every_user
def test_a_budget_shows_as_itself_alone_fits_a_ledger_of_the_same_numbers_and_leaves_nothing(path, spend):
    larger = PrivacyLedger(path.with_name("larger"), 8.0, 1e-5, "people")
    spend(larger, PrivacyBudget(1.0, 1e-5))
    assert 0.99 < larger.spent() <= 1.0 + 1e-9
    ledger = PrivacyLedger(path, 2.0, 1e-6, "people")
    spend(ledger, PrivacyBudget(2.0, 1e-6))
    assert ledger.spent() <= 2.0
    assert ledger.remaining().epsilon < 0.03
    with pytest.raises(PrivacyBudgetError, match="Nothing was charged"):
        spend(ledger, PrivacyBudget(2.0, 1e-6))
    used = PrivacyLedger(path.with_name("used"), 2.0, 1e-6, "people")
    used.charge(PrivacyPlan(noise_multiplier=7.3, sampling_rate=0.3, n_steps=11))
    spend(used, used.remaining())  # what is left is always admitted
    assert used.spent() <= 2.0


def test_parts_of_a_budget_are_all_admitted_whoever_spends_them(path):
    ledger = PrivacyLedger(path, 3.0, 1e-5, "people")
    parts = PrivacyBudget(3.0, 1e-5).split(len(USERS))
    for spend, part in zip(USERS.values(), parts, strict=True):
        spend(ledger, part)
    assert ledger.spent() <= 3.0
    with pytest.raises(PrivacyBudgetError, match="Nothing was charged"):
        USERS["pipeline"](ledger, parts[0])


def test_ten_small_pipelines_one_after_the_other(path):
    ledger = PrivacyLedger(path, 8.0, 1e-5, "people")
    for _ in range(10):
        pipeline(PrivacyBudget(0.1, 1e-5)).fit(TABLE, LABELS, ledger=ledger)
    assert len(ledger.runs()) == 10
    mu2 = 10 * PrivacyBudget(0.1, 1e-5).mu2
    assert ledger.spent() == pytest.approx(gaussian_epsilon(math.sqrt(mu2), 0.9e-5), rel=1e-6)


@pytest.mark.parametrize("wrong", [1.0, "1.0", None, PrivacyPlan(noise_multiplier=1.0, n_steps=1, sampling="full")])
@pytest.mark.parametrize("name", ["pipeline", "topics", "classifier"])
def test_what_is_no_budget_is_refused_before_anything_is_read(path, name, wrong):
    ledger = PrivacyLedger(path, 2.0, 1e-6, "people")
    if name == "classifier" and wrong is None:
        with pytest.raises(ValueError, match=r"no noise.*privacy=PrivacyBudget\(epsilon, delta\)"):
            classifier(None).fit(TABLE, LABELS, ledger=ledger)
        return
    made = {"pipeline": pipeline, "topics": topics, "classifier": classifier}[name](wrong)
    with pytest.raises(TypeError, match=f"got {type(wrong).__name__}: write PrivacyBudget"):
        made.fit(None, None, ledger=ledger)
    assert not ledger.runs()


@pytest.mark.parametrize("name", ["pipeline", "classifier", "topics"])
def test_the_relation_is_the_budget_s(path, name):
    budget = PrivacyBudget(2.0, 1e-6, relation="replace_one")
    ledger = PrivacyLedger(path, 2.0, 1e-6, "people")
    with pytest.raises(LedgerError, match="add_or_remove"):
        USERS[name](ledger, budget)
    assert not ledger.runs()
    replaced = PrivacyLedger(path.with_suffix(".replaced"), 2.0, 1e-6, "people", relation="replace_one")
    fitted = USERS[name](replaced, budget)
    assert all(release.plan.relation == "replace_one" for release in fitted.privacy_.releases)
    assert 1.98 < replaced.spent() <= 2.0


@pytest.mark.parametrize("make", [pipeline, classifier, topics])
def test_estimators_keep_the_budget_that_they_were_given(path, make):
    budget, other = PrivacyBudget(2.0, 1e-6), PrivacyBudget(1.0, 1e-6)
    made = make(budget)
    assert made.get_params()["privacy"] is budget
    assert clone(made).privacy is budget
    assert clone(made).set_params(privacy=other).privacy is other
    assert pickle.loads(pickle.dumps(made)).privacy == budget
    ledger = PrivacyLedger(path, 3.0, 1e-6, "people")
    with ledger:
        sent = pickle.dumps(budget)
    X, y = (STORMS * 4000, None) if make is topics else (TABLE, LABELS)
    make(pickle.loads(sent)).fit(X, y)  # the budget's block, not the estimator's
    assert ledger.spent() > 1.9


def test_a_grid_search_tries_budgets():
    budgets = [PrivacyBudget(epsilon, 1e-6) for epsilon in (1.0, 5.0)]
    search = GridSearchCV(classifier(budgets[0]), {"privacy": budgets}, cv=2).fit(TABLE, LABELS)
    assert search.best_estimator_.privacy in budgets


@pytest.mark.parametrize("shares", [(3,), (1.0, 2.0, 0.1), (0.3, 0.7), (7,)])
def test_parts_are_rounded_down(shares):
    budget = PrivacyBudget(1.7, 3e-6)
    parts = budget.split(*shares)
    assert len(parts) == (shares[0] if len(shares) == 1 else len(shares))
    for name in ("mu2", "delta_0", "pure"):
        total = sum(Fraction(getattr(part, name)) for part in parts)
        assert total <= Fraction(getattr(budget, name))
        assert float(total) == pytest.approx(getattr(budget, name), rel=1e-14)


def test_a_sampled_plan_spends_all_of_it(path):
    budget = PrivacyBudget(1.0, 1e-6)
    plan = budget.plan(sampling_rate=0.1, n_steps=10)
    less_noise = replace(plan, noise_multiplier=0.998 * plan.noise_multiplier)
    assert dominating_mu(plan, budget.delta_0) <= math.sqrt(budget.mu2) < dominating_mu(less_noise, budget.delta_0)
    assert plan.epsilon(1e-6) <= 1.0
    ledger = PrivacyLedger(path, 2.0, 1e-6, "people")
    ledger.charge(ledger.remaining().plan(sampling_rate=0.1, n_steps=20))
    assert 1.9 < ledger.spent() <= 2.0


def test_relation_and_settings_reach_the_plan(path):
    budget = PrivacyBudget(1.0, 1e-6, relation="replace_one")
    plan = budget.plan(n_steps=3, noise="discrete", max_rows_per_group=5)
    assert (plan.relation, plan.noise, plan.max_rows_per_group, plan.n_steps) == ("replace_one", "discrete", 5, 3)
    assert plan.gdp_mu() ** 2 == pytest.approx(budget.mu2, rel=1e-9)
    ledger = PrivacyLedger(path, 1.0, 1e-6, "people", relation="replace_one")
    DirichletMultinomial(privacy=ledger.remaining()).fit(VOTES, ledger=ledger)
    with pytest.raises(ValueError, match="adding or removing"):
        budget.stream(n_batches=3)


def test_a_budget_is_a_value(tmp_path, path):
    budget = PrivacyBudget(1.0, 1e-6)
    assert budget == PrivacyBudget(1.0, 1e-6) != PrivacyBudget(1.0, 1e-7)
    assert pickle.loads(pickle.dumps(budget)) == copy.deepcopy(budget) == budget
    fitted = DirichletMultinomial(privacy=budget).fit(VOTES)
    fitted.save(tmp_path / "votes.vips")
    assert vips.load(tmp_path / "votes.vips").privacy == budget
    ledger = PrivacyLedger(path, 1.0, 1e-6, "people")
    with ledger:
        sent = pickle.dumps(budget)
    for part in pickle.loads(sent).split(2):  # as in another process: it belongs to the block it was sent from
        DirichletMultinomial(privacy=part).fit(VOTES)
    assert len(ledger.runs()) == 2
    streams = PrivacyLedger(path.with_name("streams"), 3.0, 1e-6, "people")
    with streams:
        sent = pickle.dumps((budget, budget.stream(n_batches=3)))
    budget, plan = pickle.loads(sent)
    for privacy in (budget.stream(n_batches=3), plan):
        DirichletMultinomial(privacy=privacy).partial_fit(VOTES)
    assert len(streams.runs()) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("epsilon", 0.0), ("epsilon", np.nan), ("epsilon", "1"), ("delta", 0.0), ("delta", 1.0)]
)
def test_impossible_numbers_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        PrivacyBudget(**({"epsilon": 1.0, "delta": 1e-6} | {name: value}))
    with pytest.raises(ValueError, match="share"):
        PrivacyBudget(1.0, 1e-6).split(0)
    with pytest.raises(TypeError, match=r"write PrivacyBudget\(epsilon, delta\)"):
        DirichletMultinomial(privacy=1.0).fit(VOTES)


def test_without_delta_nothing_that_needs_a_threshold_is_charged(path):
    ledger = PrivacyLedger(path, 3.0, 1e-6, "people")
    stated = {"unit": "one record", "relation": "add_or_remove"}
    ledger.charge_event("all of the tenth", epsilon=0.0, delta=ledger.remaining().delta_0, **stated)
    for name in ("words", "pipeline", "classifier"):
        with pytest.raises(PrivacyBudgetError, match="No δ is left for a threshold"):
            USERS[name](ledger, ledger.remaining())
    USERS["fit"](ledger, ledger.remaining())
    with pytest.raises(PrivacyBudgetError, match="Nothing is left"):
        USERS["fit"](ledger, ledger.remaining())
    assert len(ledger.runs()) == 2


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12, 1e-50, 1e-280])
def test_limits_are_within_the_budget_to_the_last_digit(delta):
    """δ of μ plus δ₀, in many digits, from ε = 10⁻¹² on: small ε are differences of near numbers."""
    with mpmath.workdps(400):
        for epsilon in (1e-12, 1e-8, 3e-7, 1e-5, 1e-3, 0.05, 0.14, 1.0, 30.0):
            mu2, delta_0, _ = limits(epsilon, delta, 0.0)
            mu = mpmath.sqrt(mpmath.mpf(mu2))
            a = epsilon / mu - mu / 2
            of_gaussian = mpmath.ncdf(-a) - mpmath.exp(mpmath.mpf(epsilon)) * mpmath.ncdf(-a - mu)
            assert -1e-8 < (of_gaussian + mpmath.mpf(delta_0)) / mpmath.mpf(delta) - 1 <= 0, epsilon
