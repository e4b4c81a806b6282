"""Logistic regressions of private tables: limits against maximum likelihood, and the law of features that they average over."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from vips import PrivacyBudget, PrivacyWarning, PrivateTable
from vips.models.tables.logistic import _Law

COLUMNS = {"age": (18, 90), "ward": ["a", "b", "c"], "sex": ["m", "f"], "ill": ["no", "yes"]}


def people(n, seed):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 91, n)
    ward = np.where(rng.random(n) < 0.004 * age, "a", rng.choice(["b", "c"], n))
    sex = rng.choice(["m", "f"], n)
    log_odds = -1.5 + 0.03 * (age - 50) + 1.2 * (ward == "c") - 0.5 * (sex == "f")
    return pd.DataFrame(
        {"age": age, "ward": ward, "sex": sex, "ill": np.where(rng.random(n) < expit(log_odds), "yes", "no")}
    )


def maximum_likelihood(table, names):
    """Effects of these names, and their standard errors."""
    columns = [
        table["age"] if name == "age" else table["sex"] == "f" if name == "sex" else table["ward"] == name[6]
        for name in names
    ]
    x, y, beta = np.column_stack([*columns, np.ones(len(table))]).astype(float), table["ill"] == "yes", 0.0
    beta = np.zeros(x.shape[1])
    for _ in range(25):
        chances = expit(x @ beta)
        information = (x.T * (chances * (1.0 - chances))) @ x
        beta += np.linalg.solve(information, x.T @ (y - chances))
    return beta[:-1], np.sqrt(np.diag(np.linalg.inv(information)))[:-1]


POPULATION = people(400_000, 1)


def deviations(epsilon, n, seed):
    """Effects of a private table less those of all people, over their deviations; and these over maximum likelihood's."""
    budget = PrivacyBudget(epsilon, 1e-6) if epsilon else None
    effects = (
        PrivateTable(columns=COLUMNS, privacy=budget).fit(people(n, seed)).regress("ill", kind="logistic").iloc[:-1]
    )
    true, errors = maximum_likelihood(POPULATION, effects.index)
    stds = (effects["upper"] - effects["lower"]) / (2.0 * 1.96)
    return (effects["effect"] - true) / stds, stds / (errors * np.sqrt(len(POPULATION) / n))


def test_without_noise_effects_are_those_of_maximum_likelihood_and_so_are_their_limits():
    z, widths = deviations(None, 400_000, 1)
    assert np.abs(z).max() < 1.5  # of the same people: what pairs do not tell
    _, widths = deviations(None, 20_000, 2)
    assert widths.between(0.9, 1.3).all()


@pytest.mark.parametrize("n_releases", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_limits_know_the_noise(n_releases):
    """With 60 releases of four effects fewer than 0.87 are held by chance once in 10⁶ runs, if 0.95 are by right."""
    z, widths = (
        np.concatenate(parts)
        for parts in zip(*(deviations(0.5, 5_000, 10 + i) for i in range(n_releases)), strict=True)
    )
    assert np.abs(z).max() < 5.5
    assert np.median(widths) > 1.3
    if n_releases > 4:
        assert np.mean(np.abs(z) < 1.96) > 0.87


def test_effects_that_nothing_tells_apart_are_hidden():
    table = people(20_000, 3).assign(place=lambda table: table["ward"].str.upper())
    columns = {**COLUMNS, "place": ["A", "B", "C"]}
    fitted = PrivateTable(columns=columns, privacy=PrivacyBudget(1.0, 1e-6)).fit(table)
    with pytest.warns(PrivacyWarning, match="hide effects"):
        effects = fitted.regress("ill", ["age", "ward", "place"], kind="logistic")
    twice = effects[effects.index.str.contains("ward|place")]
    assert (twice["effect"].isna() | (twice["upper"] - twice["lower"] > 4.0)).all()
    assert effects.loc["age", "lower"] > 0.0


@pytest.mark.filterwarnings("ignore:Records without an answer", "ignore:Answers are not missing at random")
def test_a_release_of_noise_alone_hides_all_effects():
    fitted = PrivateTable(columns=COLUMNS, privacy=PrivacyBudget(1.0, 1e-6)).fit(people(3, 4))
    with pytest.warns(PrivacyWarning, match="hide effects"):
        assert fitted.regress("ill", kind="logistic")["effect"].iloc[:-1].isna().all()


def test_rows_are_raked_to_the_released_tables_and_least_squares_are_exact():
    fitted = PrivateTable(columns=COLUMNS).fit(people(5_000, 5))
    pairs, starts = fitted._pairs(), fitted._starts()
    drawn = fitted._mixture_of_fit().drawn(4_000, starts, np.random.default_rng(0)) + starts[:-1]
    law = _Law.raked(pairs, drawn, [0, 1, 2])
    released = np.concatenate([pairs.table[np.ix_(*at)].ravel() for _, _, *at in law.tables])
    np.testing.assert_allclose(law.cells.T @ law.weights, released, atol=0.3)
    values = expit(np.random.default_rng(1).standard_normal((len(drawn), 2)))
    weighted = law.cells.T.multiply(law.weights)
    exact = np.linalg.solve((weighted @ law.cells).toarray() + np.diag(law.slack), weighted @ values)
    np.testing.assert_allclose(law.cells @ law.loads(values), law.cells @ exact, atol=0.03)


def test_what_has_no_log_odds_is_refused():
    fitted = PrivateTable(columns=COLUMNS).fit(people(200, 6))
    with pytest.raises(ValueError, match="'age' holds numbers: a logistic regression needs two answers"):
        fitted.regress("age", kind="logistic")
    with pytest.raises(ValueError, match="`kind` must be"):
        fitted.regress("ill", kind="probit")


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_answers_that_are_not_missing_at_random_are_said(kind):
    """Rows of tables then miss the margins: log odds were off by up to 36 of their deviations."""
    table = people(20_000, 7)
    table["ward"] = table["ward"].where(table["age"] > 20, None)
    fitted = PrivateTable(columns=COLUMNS, privacy=PrivacyBudget(2.0, 1e-6)).fit(table)
    with pytest.warns(PrivacyWarning, match="not missing at random: whether there is one of 'ward' by 'age'"):
        effects = fitted.regress("ill", ["age", "ward", "sex"], kind=kind)
    assert effects["effect"].isna().all() == (kind == "logistic")


@pytest.mark.filterwarnings("error:.*not missing at random")
def test_answers_that_are_missing_at_random_leave_limits():
    table, rng = people(20_000, 8), np.random.default_rng(0)
    for name in ("age", "ward", "sex"):
        table[name] = table[name].where(rng.random(len(table)) < 0.9, None)
    fitted = PrivateTable(columns=COLUMNS, privacy=PrivacyBudget(2.0, 1e-6)).fit(table)
    with pytest.warns(PrivacyWarning, match="left out of sums"):
        assert fitted.regress("ill", kind="logistic")["effect"].notna().all()


def test_features_are_a_list_of_columns_once_each():
    fitted = PrivateTable(columns=COLUMNS).fit(people(200, 6))
    with pytest.raises(TypeError, match=r"must be a list of columns: \['age'\]"):
        fitted.regress("ill", "age")
    with pytest.raises(ValueError, match="at least one, and each once"):
        fitted.regress("ill", ["age", "age"])


def test_columns_that_bins_hide_have_no_effect():
    """Half of the numbers are in each of two bins: a third of the variance of middles is then that within bins."""
    table, rng = people(20_000, 9), np.random.default_rng(0)
    table["age"] = rng.standard_normal(20_000)
    fitted = PrivateTable(columns=COLUMNS | {"age": (-1000.0, 1000.0)}, privacy=PrivacyBudget(1.0, 1e-6)).fit(table)
    with pytest.warns(PrivacyWarning, match="Bins are coarse for 'age'"):
        effects = fitted.regress("ill", ["age", "sex"], kind="logistic")["effect"]
    assert effects[["age", "(intercept)"]].isna().all()
